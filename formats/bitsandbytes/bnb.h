/*
 * bnb.h - the layout of bitsandbytes, which transformers loads: LLM.int8, and codes of 4 bits.
 */
#ifndef QP_FORMAT_BNB_H
#define QP_FORMAT_BNB_H

#include "formats/format.h"

/* The bytes of an f32 with these bits. */
#define F32(bits) (bits) & 0xff, (bits) >> 8 & 0xff, (bits) >> 16 & 0xff, (bits) >> 24

/* Whether a scheme has codes of 4 bits, and whether the library has groups of this size. */
bool qp_bnb_is_4bit(const struct qplan_scheme *scheme);
bool qp_bnb_has_group(uint64_t group);

/* Parts of a tensor of 4 bits, and those tensors of a checkpoint (formats/format.h). */
unsigned qp_bnb_4bit_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries);
enum qplan_status qp_bnb_4bit_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                       struct qp_tensor **tensors, size_t *n,
                                       struct qplan_error *err);

/* Sets the offset of scales that have scales (recall in formats/format.h). */
enum qplan_status qp_bnb_4bit_recall(const struct qp_listing *listing, struct qp_tensor *t,
                                     struct qplan_error *err);

/* The name that the library has for the type of weights, or NULL if it does not take them. */
const char *qp_bnb_dtype(enum qplan_storage storage);

/* What config.json says of an output (config in formats/format.h). */
void qp_bnb_config(struct qp_writer *w, const struct qp_outline *outline);

#endif
