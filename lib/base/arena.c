/*
 * arena.c - a list of blocks that are filled from the front and freed together.
 */
#include "arena.h"

#include "alloc.h"
#include "check.h"

#include <stdalign.h>
#include <string.h>

struct qp_arena_block {
    struct qp_arena_block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
};

/* What blocks have with their heads: each twice as much as the one before it, so few are enough. */
#define LEAST_BYTES (64u * 1024u)
#define MOST_BYTES  (2048u * 1024u)

static struct qp_arena_block *add_block(struct qp_arena *arena, uint64_t n_bytes)
{
    const size_t head = sizeof(struct qp_arena_block);
    uint64_t need, before = arena->blocks ? arena->blocks->size + head : LEAST_BYTES / 2;
    if (!qp_add_u64(n_bytes, head, &need))
        return NULL;
    const uint64_t total = qp_max_u64(need, qp_min_u64(2 * before, MOST_BYTES));
    struct qp_arena_block *block = qp_alloc(total, 1);
    if (!block)
        return NULL;
    block->size = (size_t)(total - head);
    block->next = arena->blocks;
    arena->blocks = block;
    return block;
}

/* The next n_bytes at a multiple of align. */
static void *take(struct qp_arena *arena, uint64_t n_bytes, size_t align)
{
    struct qp_arena_block *block = arena->blocks;
    size_t pad = block ? (align - block->used % align) % align : 0;
    if (!block || block->size - block->used < pad || block->size - block->used - pad < n_bytes) {
        block = add_block(arena, n_bytes);
        pad = 0;
    }
    if (!block)
        return NULL;
    void *object = block->bytes + block->used + pad;
    block->used += pad + (size_t)n_bytes;
    return object;
}

void *qp_arena_alloc(struct qp_arena *arena, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    return qp_mul_u64(n, size, &bytes) ? take(arena, bytes, alignof(max_align_t)) : NULL;
}

void *qp_arena_copy(struct qp_arena *arena, const void *elements, uint64_t n, uint64_t size)
{
    void *copy = qp_arena_alloc(arena, n, size);
    if (copy)
        memcpy(copy, elements, (size_t)(n * size));
    return copy;
}

/* An array has room for a power of two: it is full where n is one, or 0. */
void *qp_arena_grow(struct qp_arena *arena, void *array, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0)
        return array;
    void *larger = qp_arena_alloc(arena, n ? 2 * (uint64_t)n : 1, size);
    if (larger && n)
        memcpy(larger, array, n * size);
    return larger;
}

char *qp_arena_join(struct qp_arena *arena, const char *a, size_t n_a, const char *b)
{
    size_t n_b = strlen(b);
    char *text = take(arena, (uint64_t)n_a + n_b + 1, 1);
    if (text) {
        memcpy(text, a, n_a);
        memcpy(text + n_a, b, n_b + 1);
    }
    return text;
}

static void free_blocks(struct qp_arena_block *block)
{
    while (block) {
        struct qp_arena_block *next = block->next;
        qp_free(block);
        block = next;
    }
}

void qp_arena_clear(struct qp_arena *arena)
{
    struct qp_arena_block *kept = arena->blocks;
    if (!kept)
        return;
    free_blocks(kept->next);
    memset(kept->bytes, 0, kept->used);
    kept->next = NULL;
    kept->used = 0;
}

void qp_arena_free(struct qp_arena *arena)
{
    free_blocks(arena->blocks);
    arena->blocks = NULL;
}
