/*
 * hessian.h - how the inputs of a weight go together: of each pair of input channels the sum, or
 * the mean, of their products, collected while a model ran. Codes are rounded by it, so that the
 * error of one makes up for that of others.
 *
 * A safetensors file has NAME.hessian for a weight NAME: F32 [in,in], or [in/b,b,b] where only
 * blocks along the diagonal are known. Weights with the same inputs share one: then the metadata
 * have a pair of their name and that of the other weight, with or without ".hessian".
 */
#ifndef QP_HESSIAN_H
#define QP_HESSIAN_H

#include "lib/base/digest.h"
#include "lib/store/source.h"

/* A file of them; zeroed it is none. */
struct qp_hessians {
    struct qp_source source;
    const volatile sig_atomic_t *cancel; /* of the caller, or NULL */
    bool is_open;
};

/* That of a weight. */
struct qp_hessian {
    const struct qp_source *source;
    const struct qplan_entry *entry;
    uint64_t columns; /* of the weight */
    uint64_t block;   /* columns of a block: all of them in a whole matrix */
};

enum qplan_status qp_hessians_open(struct qp_hessians *hessians, const char *path,
                                   struct qplan_error *err);
void qp_hessians_close(struct qp_hessians *hessians);

/*
 * Reads all of the file for its digest, in the arena. INVALID if it is not the one that is
 * expected, unless that is NULL or of no file.
 */
enum qplan_status qp_hessians_digest(const struct qp_hessians *hessians,
                                     const struct qp_digests *expected, struct qp_arena *arena,
                                     struct qp_digests *out, struct qplan_error *err);

/*
 * The Hessian of a weight with so many columns; ->entry is NULL if the file has none for it.
 * INVALID if it has another type or shape, if the name that stands for it leads nowhere, or if it
 * has both one of its own and that of another.
 */
enum qplan_status qp_hessian_find(const struct qp_hessians *hessians, const char *tensor,
                                  uint64_t columns, struct qp_hessian *out,
                                  struct qplan_error *err);

/* Whether the file has one for a weight, of any shape. */
bool qp_hessians_name(const struct qp_hessians *hessians, const char *tensor);

/* The diagonal. INVALID if a number of it is negative, or not finite. */
enum qplan_status qp_hessian_diagonal(const struct qp_hessian *hessian, float *out,
                                      struct qplan_error *err);

/* A row of its block: hessian->block numbers. INVALID if one is not finite. */
enum qplan_status qp_hessian_row(const struct qp_hessian *hessian, uint64_t row, float *out,
                                 struct qplan_error *err);

/* Describes two numbers that should be the same: those at (row, col) of a block, and at (col, row).
 */
enum qplan_status qp_hessian_unequal(const struct qp_hessian *hessian, uint64_t block, uint64_t row,
                                     uint64_t col, double there, double found,
                                     struct qplan_error *err);

#endif
