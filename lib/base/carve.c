/*
 * carve.c - one block of memory cut into buffers.
 */
#include "carve.h"

#include "check.h"

void *qp_take(struct qp_carve *carve, uint64_t n_bytes)
{
    void *buffer = carve->block ? carve->block + carve->used : NULL;
    carve->used += qp_div_up(n_bytes, 64) * 64;
    return buffer;
}
