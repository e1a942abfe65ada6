/*
 * alloc.c - checked allocation over the C library's. Keeps no state.
 */
#include "alloc.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

/* The bytes of n elements, at least 1, or 0 if that does not fit a size_t. */
static size_t block_bytes(uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (!qp_mul_u64(n, size, &bytes) || bytes > PTRDIFF_MAX)
        return 0;
    return bytes ? (size_t)bytes : 1;
}

void *qp_alloc(uint64_t n, uint64_t size)
{
    size_t bytes = block_bytes(n, size);
    return bytes ? calloc(1, bytes) : NULL;
}

void *qp_realloc(void *block, uint64_t n, uint64_t size)
{
    size_t bytes = block_bytes(n, size);
    return bytes ? realloc(block, bytes) : NULL;
}

void *qp_alloc_buffer(uint64_t n_bytes)
{
    uint64_t padded;
    if (!qp_add_u64(n_bytes, 63, &padded) || padded > PTRDIFF_MAX)
        return NULL;
    padded -= padded % 64;
    return aligned_alloc(64, padded ? (size_t)padded : 64);
}

void qp_free(void *block)
{
    free(block);
}

char *qp_strndup(const char *text, size_t n)
{
    char *copy = qp_alloc((uint64_t)n + 1, 1);
    if (copy && n > 0)
        memcpy(copy, text, n);
    return copy;
}
