/*
 * arena.h - many small objects that live and die together.
 */
#ifndef QP_BASE_ARENA_H
#define QP_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

struct qp_arena {
    struct qp_arena_block *blocks; /* newest first */
};

/* n elements of size bytes, zeroed and aligned for any type; NULL when refused. */
void *qp_arena_alloc(struct qp_arena *arena, uint64_t n, uint64_t size);

/* A copy of n elements of size bytes, aligned for any type; NULL when refused. */
void *qp_arena_copy(struct qp_arena *arena, const void *elements, uint64_t n, uint64_t size);

/*
 * Makes room for one more element behind the n of an array that only this call has made and grown;
 * NULL with n = 0 begins one. Returns the array, which may have moved, or NULL when refused: the
 * old one is as it was then.
 */
void *qp_arena_grow(struct qp_arena *arena, void *array, size_t n, size_t size);

/* The strings a and b one behind the other, NUL-terminated; NULL when refused. Not aligned. */
char *qp_arena_join(struct qp_arena *arena, const char *a, size_t n_a, const char *b);

/* Forgets everything, but keeps a block for what comes next. */
void qp_arena_clear(struct qp_arena *arena);

/* Releases everything. A zeroed arena is empty. */
void qp_arena_free(struct qp_arena *arena);

#endif
