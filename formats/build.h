/*
 * build.h - what layouts share when they make the parts of a tensor: names of stored tensors beside
 * each other, and places of parameters.
 */
#ifndef QP_FORMAT_BUILD_H
#define QP_FORMAT_BUILD_H

#include "format.h"

/* Whether a name ends so. */
bool qp_name_ends(const char *name, size_t n, const char *suffix);

/* A stored tensor that is to be made: its name is the first n bytes of a name, and a suffix. */
struct qp_entry_wish {
    const char *name;
    size_t n;
    const char *suffix;
    enum qplan_storage storage;
    unsigned rank;
    uint64_t shape[4];
};

/* Makes the stored tensor of a wish, without offsets; false when out of memory. */
bool qp_build_entry(struct qplan_entry *entry, const struct qp_entry_wish *wish,
                    struct qp_arena *arena);

/* What a layout without a bias stores instead of one (fit in format.h). */
#define QP_NO_BIAS "zero points instead of a bias"

/* The type of scales where they have that of the weights, because decoders work in it. */
enum qplan_dtype qp_weight_scale_type(enum qplan_storage storage);

/* The member of config.json that most layouts write. */
extern const char *const qp_quantization_keys[];

/* Scales, row by row. */
const struct qp_place *qp_scale_place(enum qplan_dtype dtype);

/* The part of a factor, which multiplies scales or divides them. */
struct qp_part qp_factor_part(const struct qplan_entry *entry, bool divides);

/* The sets of a matrix of rows and columns, as a matrix: channels are rows. */
struct qp_matrix qp_row_sets(const struct qplan_scheme *scheme, const uint64_t shape[2]);

/* Appends a tensor to an array that grows; false when out of memory. */
bool qp_add_tensor(struct qp_tensor **tensors, size_t *n, const struct qp_tensor *tensor);

#endif
