/*
 * ct.h - the layout of compressed-tensors, which vLLM, SGLang and transformers load.
 *
 * A weight M.weight of a linear layer is, packed: M.weight_packed, M.weight_scale, M.weight_shape
 * and, if it is asymmetric, M.weight_zero_point. For engines that quantize activations too, and of
 * floats, it is M.weight, one byte a code, M.weight_scale and perhaps M.weight_zero_point. Blocks
 * of floats with scales of one byte (formats/blocks.h) are M.weight_packed, or M.weight where codes
 * have a byte, M.weight_scale and, if these have a factor, M.weight_global_scale, by which they are
 * divided. config.json says in groups how numbers were made, and for which modules.
 */
#ifndef QP_FORMAT_CT_H
#define QP_FORMAT_CT_H

#include "formats/blocks.h"

enum { QP_CT_PACKED, QP_CT_BYTES, QP_CT_VARIANTS };

/* How config.json names blocks of floats (formats/blocks.h). */
struct qp_ct_names {
    const char *format, *strategy, *scale;
};

extern const struct qp_ct_names qp_ct_names[QP_BLOCKS];

/* Whether engines quantize activations for weights of this scheme: by itself for floats alone. */
bool qp_ct_is_dynamic(const struct qplan_scheme *scheme, const struct qp_format_options *options);

/* The functions of the row (formats/format.h says what they do). */
enum qplan_status qp_ct_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                 struct qp_tensor **tensors, size_t *n, struct qplan_error *err);
bool qp_ct_is_active(const struct qp_listing *listing);
void qp_ct_config(struct qp_writer *w, const struct qp_outline *outline);

#endif
