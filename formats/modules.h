/*
 * modules.h - names of modules, for what layouts say of them in config.json.
 *
 * Names of modules in an engine may have other prefixes than names in files. So a module is named
 * by what is the same in both: a component that no quantized module has, or its name from the
 * component before its first number on.
 */
#ifndef QP_FORMAT_MODULES_H
#define QP_FORMAT_MODULES_H

#include "format.h"

/* Text that points into names, and a list of such. */
struct qp_span {
    const char *text;
    size_t n;
};

struct qp_spans {
    struct qp_span *list; /* released with qp_free */
    size_t n, cap;
    bool failed; /* out of memory: the list is not complete */
};

void qp_add_span(struct qp_spans *spans, struct qp_span span);

/* Sorts, and leaves each text once. */
void qp_sort_spans(struct qp_spans *spans);

/* Whether a sorted list has a text. */
bool qp_has_span(const struct qp_spans *spans, struct qp_span span);

/* M of a matrix called M.weight, and M.experts of experts in one tensor, as M.experts.down_proj;
 * empty for any other tensor. */
struct qp_span qp_module_of(const struct qp_tensor *tensor);

/* Cuts the next component off a name; false when none is left. */
bool qp_next_component(struct qp_span *rest, struct qp_span *component);

/* Adds the components of a name that are no numbers. */
void qp_add_components(struct qp_spans *spans, struct qp_span module);

/* The outermost component that no quantized module has, or an empty one. */
struct qp_span qp_own_component(const struct qp_spans *quantized, struct qp_span module);

/* What is the same in all names of a module: all from the component before its first number on. */
struct qp_span qp_common_end(struct qp_span module);

/* What follows the first number of a name, which is that of a block; empty if it has none. */
struct qp_span qp_name_in_block(struct qp_span module);

/* Whether a tensor is a table of embeddings, by the last component of its module. */
bool qp_is_embedding(const struct qp_tensor *tensor);

/*
 * Why engines take a tensor for a plain one by its name, whatever is stored, or NULL: it is no
 * weight of a linear layer. Where lists of layouts have the head in any case, it is none either.
 */
const char *qp_plain_by_name(const struct qp_tensor *tensor, bool with_head);

/*
 * Puts the whole names of the modules that are left as they are, with that of a head, which engines
 * make even where a file has none.
 */
void qp_put_left_modules(struct qp_writer *w, const struct qp_outline *outline);

/* Appends a text as a regular expression that matches nothing else. */
void qp_put_escaped(struct qp_writer *w, struct qp_span span);

/* Puts what a pattern has become as a JSON string, and empties it. */
void qp_put_module_pattern(struct qp_writer *w, struct qp_writer *pattern);

#endif
