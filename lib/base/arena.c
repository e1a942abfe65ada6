/*
 * arena.c - a list of blocks that are filled from the front and freed together.
 */
#include "arena.h"

#include "alloc.h"
#include "check.h"

#include <stdalign.h>
#include <string.h>

#define BLOCK_BYTES (64u * 1024u)

struct qp_arena_block {
    struct qp_arena_block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
};

static struct qp_arena_block *add_block(struct qp_arena *arena, uint64_t n_bytes)
{
    uint64_t size = qp_max_u64(n_bytes, BLOCK_BYTES), total;
    if (!qp_add_u64(size, sizeof(struct qp_arena_block), &total))
        return NULL;
    struct qp_arena_block *block = qp_alloc(total, 1);
    if (!block)
        return NULL;
    block->size = (size_t)size;
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
