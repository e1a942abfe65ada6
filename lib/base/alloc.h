/*
 * alloc.h - all memory of the library comes from here.
 *
 * Sizes are u64 because they may come from a file; a size that does not fit is a failed allocation.
 */
#ifndef QP_BASE_ALLOC_H
#define QP_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

/* n elements of size bytes, zeroed; NULL if that overflows or is refused. Never NULL for n = 0. */
void *qp_alloc(uint64_t n, uint64_t size);

/* Changes the number of elements; the old block stays valid when NULL is returned. */
void *qp_realloc(void *block, uint64_t n, uint64_t size);

/* n bytes at an address that is a multiple of 64, not zeroed: for data buffers. */
void *qp_alloc_buffer(uint64_t n_bytes);

void qp_free(void *block);

/* A copy of a string of n bytes, with a NUL behind it; NULL when refused. */
char *qp_strndup(const char *text, size_t n);

#endif
