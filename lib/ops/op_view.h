/*
 * op_view.h - a tensor in memory, whatever its strides, read and written by flat index.
 *
 * Kernels see contiguous elements. Where a range of a view is contiguous they work on it directly;
 * else it passes through a buffer. So a strided tensor gives the bits that its contiguous copy
 * would.
 */
#ifndef QP_OP_VIEW_H
#define QP_OP_VIEW_H

#include "lib/qplan.h"

/* Neighbouring axes that one step covers are joined, and extents of 1 dropped. */
struct qp_view {
    char *data;
    size_t elem_bytes;
    uint64_t n_elems;
    unsigned rank; /* of the joined axes; 0 = one element, or none */
    uint64_t shape[QPLAN_MAX_RANK];
    uint64_t stride[QPLAN_MAX_RANK]; /* in elements */
    const char *made;                /* NULL, or all elements as they should be, contiguous: */
    bool *differs;                   /* puts only compare with them, and set this */
};

/* A view of a tensor whose shape and strides are not negative; stride NULL = contiguous. */
void qp_view_make(struct qp_view *view, void *data, size_t elem_bytes, const uint64_t *shape,
                  const int64_t *stride, unsigned rank);

/* The address of n elements from flat index elem on if they are contiguous, else NULL. */
void *qp_view_at(const struct qp_view *view, uint64_t elem, size_t n);

/* The address of n elements to read from flat index elem on: in place, or copied to buffer. */
const void *qp_view_get(const struct qp_view *view, uint64_t elem, size_t n, void *buffer);

/*
 * Where to write n elements: in place, or buffer. qp_view_put then brings them to the tensor, or
 * compares them with what it should have.
 */
void *qp_view_room(const struct qp_view *view, uint64_t elem, size_t n, void *buffer);
void qp_view_put(const struct qp_view *view, uint64_t elem, size_t n, const void *from);

/* Sets n elements to 0. */
void qp_view_zero(const struct qp_view *view, uint64_t elem, uint64_t n);

/* Says that n elements stay as they are. */
void qp_view_keep(const struct qp_view *view, uint64_t elem, uint64_t n);

#endif
