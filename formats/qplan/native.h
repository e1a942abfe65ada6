/*
 * native.h - the native layout of a quantized checkpoint: man/qplan-native.5 describes it.
 *
 * A quantized tensor NAME is three stored tensors: the codes under NAME itself, NAME_scale and
 * NAME_zero_point. The records in the metadata say how each was made.
 */
#ifndef QP_NATIVE_H
#define QP_NATIVE_H

#include "formats/format.h"

/* The functions of the row (formats/format.h says what they do). */
bool qp_native_is(const struct qp_listing *listing);
enum qplan_status qp_native_read(const struct qp_listing *listing, struct qp_arena *arena,
                                 struct qp_tensor **tensors, size_t *n, struct qplan_error *err);
unsigned qp_native_parts(const struct qp_tensor *tensor, const struct qp_format_options *options,
                         struct qp_arena *arena, struct qp_part *parts,
                         struct qplan_entry *entries);

#endif
