/*
 * hold.h - rows of a tensor whose turned parts are in memory, as images. What a few rows have of
 * such a part lies in many short runs of its file: a worker holds many rows, does them a few at a
 * time, and reads or writes longer runs at once.
 */
#ifndef QP_STORE_HOLD_H
#define QP_STORE_HOLD_H

#include "parts.h"

struct qp_held {
    const struct qp_part *part;
    struct qp_rect rect; /* whole rows */
    char *image;
};

struct qp_hold {
    struct qp_held held[QP_MOST_PARTS];
    unsigned n; /* 0: nothing is held */
};

/* Elements of any tensor in so many bytes, at the most: fewer than could be of 2 bits. */
#define QP_HELD_ELEMS(n_bytes) (2 * (n_bytes))

/* Rows that words of any part go down: cuts between multiples of it share no word. */
uint64_t qp_tall_rows(const struct qp_tensor *tensor);

/*
 * How many rows of a tensor may be held in so many bytes, from any row on; 0 if that is not even as
 * many as words go down, or if the codes of the tensor are not turned.
 */
uint64_t qp_hold_rows(const struct qp_tensor *tensor, uint64_t n_bytes);

/*
 * How many elements of it may be held, from any element on, and in whole pieces: but one piece at
 * the least, which is then not held.
 */
uint64_t qp_hold_elems(const struct qp_tensor *tensor, uint64_t n_bytes, uint64_t piece);

/* A hold of no more rows than that, with nothing in its images; parameters alone, or codes too. */
void qp_hold_make(struct qp_hold *hold, const struct qp_tensor *tensor, uint64_t row,
                  uint64_t n_rows, bool codes, void *bytes);

/* Holds what is stored of n elements from elem on, if they are more than a piece, and reads it. */
enum qplan_status qp_hold_take(struct qp_hold *hold, const struct qp_source *source,
                               const struct qp_tensor *tensor, uint64_t elem, uint64_t n,
                               uint64_t piece, void *bytes, struct qplan_error *err);

/* What is held of a part; NULL if it does not have all of n values from the flat element elem on.
 */
const struct qp_held *qp_hold_find(const struct qp_hold *hold, const struct qp_part *part,
                                   uint64_t elem, uint64_t n);

/* Such values into the image, and out of it; raises bad_fill as qp_part_get does. */
void qp_held_put(const struct qp_held *held, uint64_t elem, size_t n, enum qplan_isa isa,
                 const void *values);
void qp_held_get(const struct qp_held *held, uint64_t elem, size_t n, enum qplan_isa isa,
                 void *values, uint64_t *bad_fill);

/* Hands all images to put, run by run. */
enum qplan_status qp_hold_write(const struct qp_hold *hold, qp_put_fn put, void *ctx,
                                struct qplan_error *err);

#endif
