/*
 * select.h - which tensors are quantized where neither pattern nor rule names them: all that can
 * be, or the weights of linear layers inside blocks. Works on names and shapes.
 */
#ifndef QP_PLAN_SELECT_H
#define QP_PLAN_SELECT_H

#include "formats/format.h"

struct qp_selection {
    const char *name; /* "linear" */
    const char *rule; /* "select:linear", as plans and reports name it */

    /* Why a tensor that can be quantized is kept, or NULL if it is quantized; is_conv1d: that of a
     * model of QP_CONV1D_TYPES. */
    const char *(*keeps)(const struct qp_tensor *tensor, const struct qp_format *format,
                         bool is_conv1d);
};

/* The selection that is asked for, or the usual one of the layout. */
const struct qp_selection *qp_selection_of(enum qplan_select select,
                                           const struct qp_format *format);

/* Whether a tensor is the head of a model or an embedding, by its name. */
bool qp_is_table_or_head(const struct qp_tensor *tensor);

/*
 * Where a pattern of struct qp_keep first occurs in a name of n bytes: from *begin to *end. The dot
 * that begins a pattern also stands for the begin of the name. False if it does not occur.
 */
bool qp_name_find(const char *name, size_t n, const char *pattern, size_t *begin, size_t *end);

#endif
