/*
 * pattern.h - many tensors in few lines: those that differ only in numbers become one pattern,
 * model.layers.{0..31}.mlp.up_proj.weight.
 */
#ifndef QP_PATTERN_H
#define QP_PATTERN_H

#include "text.h"

/* Numbers of a name that a pattern keeps track of; further ones are compared as text. */
#define QP_PATTERN_NUMBERS 4

struct qp_group {
    size_t first, count; /* the first item, and how many */
    uint64_t low[QP_PATTERN_NUMBERS], high[QP_PATTERN_NUMBERS];
};

struct qp_groups {
    struct qp_group *groups; /* in order of their first items */
    size_t n, cap;
    uint32_t *of;    /* by item: its group */
    uint32_t *table; /* open addressing: group number + 1 */
    size_t table_size;
};

/* What the groups are made of: the name of an item, and whether two may share a line. */
struct qp_group_source {
    const void *ctx;
    const char *(*name)(const void *ctx, size_t i, size_t *n);
    bool (*alike)(const void *ctx, size_t a, size_t b);
};

/* Puts items 0..n-1 into groups. MEMORY. */
enum qplan_status qp_groups_make(struct qp_groups *groups, const struct qp_group_source *source,
                                 size_t n, struct qplan_error *err);
void qp_groups_free(struct qp_groups *groups);

/* Appends the pattern of a group, or the plain name of its only item, escaped. */
void qp_put_pattern(struct qp_writer *w, const struct qp_group *group,
                    const struct qp_group_source *source);

#endif
