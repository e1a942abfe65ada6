/*
 * carve.h - one block of memory cut into buffers.
 */
#ifndef QP_BASE_CARVE_H
#define QP_BASE_CARVE_H

#include <stddef.h>
#include <stdint.h>

/* Cuts one block of memory into buffers or, without a block, finds out how large it must be. */
struct qp_carve {
    char *block; /* NULL = only count */
    uint64_t used;
};

/* The next n_bytes of the block, aligned to 64; NULL while counting. */
void *qp_take(struct qp_carve *carve, uint64_t n_bytes);

#endif
