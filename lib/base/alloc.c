/*
 * alloc.c - checked allocation over the C library's. Keeps no state.
 */
#include "alloc.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The bytes of n elements, at least 1, or 0 if that does not fit a size_t. */
static size_t block_bytes(uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (!qp_mul_u64(n, size, &bytes) || bytes > PTRDIFF_MAX)
        return 0;
    return bytes ? (size_t)bytes : 1;
}

/* A large page, as x86 and others have it. */
#define LARGE_PAGE ((size_t)1 << 21)
#define MANY_BYTES (LARGE_PAGE / 2)

/*
 * A block for which the system is asked to use large pages, to the nearest whole one. What has so
 * many bytes is filled from end to end, and in small pages most of that time goes into finding them
 * one by one.
 */
static void *alloc_many(size_t bytes)
{
    const size_t advised = (bytes + MANY_BYTES) / LARGE_PAGE * LARGE_PAGE;
    void *block = aligned_alloc(LARGE_PAGE, (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);
    if (block)
        (void)madvise(block, advised, MADV_HUGEPAGE); /* where there are none, small ones do */
    return block;
}

void *qp_alloc(uint64_t n, uint64_t size)
{
    size_t bytes = block_bytes(n, size);
    if (bytes < MANY_BYTES)
        return bytes ? calloc(1, bytes) : NULL;
    void *block = alloc_many(bytes);
    return block ? memset(block, 0, bytes) : NULL;
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
