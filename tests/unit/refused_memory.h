/*
 * refused_memory.h - a program whose allocations can be refused, each in turn: the job says MEMORY
 * and nothing else, and gives back all that it has.
 *
 * Such a program brings the allocator and the arena of the library, so that each object in an arena
 * is an allocation of its own; the linker then leaves out alloc.c and arena.c.
 */
#ifndef TEST_REFUSED_MEMORY_H
#define TEST_REFUSED_MEMORY_H

#include "own_folder.h"

#include "lib/base/alloc.h"
#include "lib/base/arena.h"
#include "lib/base/check.h"

static size_t n_live, n_asked, refused; /* refused: the number of the one that fails; 0 = none */

/* ---- The allocator -----------------------------------------------------------------------------
 */

static bool is_refused(void)
{
    return ++n_asked == refused;
}

void *qp_alloc(uint64_t n, uint64_t size)
{
    void *block = is_refused() ? NULL : calloc((size_t)n + !n, (size_t)size);
    n_live += block != NULL;
    return block;
}

void *qp_realloc(void *block, uint64_t n, uint64_t size)
{
    void *larger = is_refused() ? NULL : realloc(block, (size_t)(n * size) + 1);
    n_live += larger && !block;
    return larger;
}

void *qp_alloc_buffer(uint64_t n_bytes)
{
    void *block = is_refused() ? NULL : aligned_alloc(64, (size_t)(n_bytes / 64 + 1) * 64);
    n_live += block != NULL;
    return block;
}

void qp_free(void *block)
{
    n_live -= block != NULL;
    free(block);
}

char *qp_strndup(const char *text, size_t n)
{
    char *copy = qp_alloc((uint64_t)n + 1, 1);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

/* ---- The arena ---------------------------------------------------------------------------------
 */

struct qp_arena_block {
    struct qp_arena_block *next;
    max_align_t bytes[];
};

void *qp_arena_alloc(struct qp_arena *arena, uint64_t n, uint64_t size)
{
    struct qp_arena_block *block = qp_alloc(sizeof *block + n * size, 1);
    if (!block)
        return NULL;
    block->next = arena->blocks;
    arena->blocks = block;
    return block->bytes;
}

void *qp_arena_copy(struct qp_arena *arena, const void *elements, uint64_t n, uint64_t size)
{
    void *copy = qp_arena_alloc(arena, n, size);
    if (copy && n > 0)
        memcpy(copy, elements, (size_t)(n * size));
    return copy;
}

void *qp_arena_grow(struct qp_arena *arena, void *array, size_t n, size_t size)
{
    void *larger = qp_arena_alloc(arena, n + 1, size);
    if (larger && n > 0)
        memcpy(larger, array, n * size);
    return larger;
}

char *qp_arena_join(struct qp_arena *arena, const char *a, size_t n_a, const char *b)
{
    char *text = qp_arena_alloc(arena, n_a + strlen(b) + 1, 1);
    if (text) {
        memcpy(text, a, n_a);
        memcpy(text + n_a, b, strlen(b) + 1);
    }
    return text;
}

void qp_arena_clear(struct qp_arena *arena)
{
    qp_arena_free(arena);
}

void qp_arena_free(struct qp_arena *arena)
{
    while (arena->blocks) {
        struct qp_arena_block *next = arena->blocks->next;
        qp_free(arena->blocks);
        arena->blocks = next;
    }
}

/* ---- Jobs --------------------------------------------------------------------------------------
 */

static int ignore(void *ctx, const void *bytes, size_t n)
{
    (void)ctx, (void)bytes, (void)n;
    return 0;
}

/* Quantizes a checkpoint by a scheme beside the other options, and writes both documents. */
static enum qplan_status quantize_as(const char *scheme, const char *path,
                                     struct qplan_plan_options *options,
                                     const struct qplan_quantize_options *how,
                                     struct qplan_error *err)
{
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_checkpoint *source;
    struct qplan_plan *plan = NULL;
    struct qplan_report *report = NULL;
    OK(qplan_scheme_parse(&options->scheme, scheme, err), err);
    enum qplan_status status = qplan_checkpoint_open(&source, path, err);
    if (status == QPLAN_OK)
        status = qplan_checkpoint_decode(source, err);
    if (status == QPLAN_OK)
        status = qplan_plan_make(&plan, source, options, err);
    if (status == QPLAN_OK)
        status = qplan_plan_write_json(plan, ignore, NULL, err);
    if (status == QPLAN_OK)
        status = qplan_quantize(&report, plan, how, &run, err);
    if (status == QPLAN_OK)
        status = qplan_report_write_json(report, ignore, NULL, err);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    return status;
}

/* Runs a job until no allocation is left to refuse. */
static void refuse_each(enum qplan_status (*job)(const char *, struct qplan_error *),
                        const char *scheme)
{
    for (refused = 1;; refused++) {
        struct qplan_error err = {.status = QPLAN_OK};
        n_asked = n_live = 0;
        enum qplan_status status = job(scheme, &err);
        if (n_live != 0)
            fail_msg("allocation %zu refused: %zu blocks are left", refused, n_live);
        if (n_asked < refused) {
            OK(status, &err);
            break;
        }
        if (status != QPLAN_ERR_MEMORY || !strstr(err.message, "memory"))
            fail_msg("allocation %zu refused: %s: %s", refused, qplan_status_name(status),
                     err.message);
    }
    assert_true(refused > 5);
    refused = 0;
}

#endif
