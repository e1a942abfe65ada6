/*
 * small.c - tensors that are too small to be worth few bits: they save next to nothing, and of all
 * tensors they lose most. Which ones are kept is asked for; of others that should be there is a
 * warning. So there is of sets that are too small for the method that chooses their range.
 */
#include "family.h"

#include <inttypes.h>
#include <stdio.h>

struct size {
    uint64_t elements, rows; /* rows are all axes but the last */
};

static struct size size_of(const struct qp_tensor *t)
{
    struct size size = {1, 1};
    for (unsigned i = 0; i < t->rank; i++) {
        size.rows = size.elements;
        size.elements *= t->shape[i];
    }
    return size;
}

/* ---- What is kept ------------------------------------------------------------------------------
 */

/* The least sizes that were asked for, and the reasons of what is below them. */
struct least {
    struct size size;
    const char *few_elements, *few_rows;
};

static const char *few(struct qplan_plan *plan, uint64_t n, const char *what)
{
    char text[64];
    const int length = snprintf(text, sizeof text, "fewer than %" PRIu64 " ", n);
    return qp_arena_join(&plan->arena, text, (size_t)length, what);
}

/* Keeps those of n tensors that are quantized, if the largest of all is too small. */
static void keep_if_small(const struct qp_member *members, size_t n, const struct least *least)
{
    struct size most = {0, 0};
    for (size_t i = 0; i < n; i++) {
        const struct size size = size_of(members[i].tensor->source);
        most.elements = size.elements > most.elements ? size.elements : most.elements;
        most.rows = size.rows > most.rows ? size.rows : most.rows;
    }
    const bool has_few_elements = most.elements < least->size.elements;
    if (!has_few_elements && most.rows >= least->size.rows)
        return;
    for (size_t i = 0; i < n; i++) {
        if (qp_is_quantized(members[i].tensor))
            qp_plan_keep(members[i].tensor, has_few_elements ? "min-elements" : "min-rows",
                         has_few_elements ? least->few_elements : least->few_rows);
    }
}

static enum qplan_status visit_family(struct qplan_plan *plan, const struct qp_member *members,
                                      size_t n, const void *ctx, struct qplan_error *err)
{
    (void)plan;
    (void)err;
    keep_if_small(members, n, ctx);
    return QPLAN_OK;
}

enum qplan_status qp_plan_keep_small(struct qplan_plan *plan,
                                     const struct qplan_plan_options *options,
                                     struct qplan_error *err)
{
    const struct least least = {{options->min_elements, options->min_rows},
                                few(plan, options->min_elements, "elements"),
                                few(plan, options->min_rows, "rows")};
    if (!least.few_elements || !least.few_rows)
        return qp_fail_memory(err, "plan", 64);
    if (!options->min_elements && !options->min_rows)
        return QPLAN_OK;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_member alone = {.tensor = &plan->tensors[i]};
        if (!qp_find_kin(alone.tensor->source, &alone.kin))
            keep_if_small(&alone, 1, &least);
    }
    return qp_families_visit(plan, visit_family, &least, err);
}

/* ---- What should be ----------------------------------------------------------------------------
 */

/* A tensor with less of either should be kept; all of them together are this part at the most. */
#define FEW_ELEMENTS 4096
#define FEW_ROWS     4
#define PART         1000

static bool is_candidate(const struct qp_plan_tensor *t)
{
    const struct size size = size_of(t->source);
    return qp_is_quantized(t) && qplan_dtype_bits(t->result.scheme->dtype) < 8 &&
           (size.elements < FEW_ELEMENTS || size.rows < FEW_ROWS);
}

enum qplan_status qp_plan_warn_small(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_plan_tensor *first = NULL;
    uint64_t n = 0, few = 0, all = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        const bool candidate = is_candidate(t);
        const uint64_t elements = size_of(t->source).elements;
        first = candidate && !first ? t : first;
        n += candidate;
        few += candidate ? elements : 0;
        all += qp_is_quantized(t) ? elements : 0;
    }
    if (!first || few > all / PART)
        return QPLAN_OK;
    char text[768], quoted[QP_QUOTED];
    (void)snprintf(text, sizeof text,
                   "%" PRIu64
                   " small tensor%s %s codes of fewer than 8 bits, the first is %s: such "
                   "lose most, and have %" PRIu64 " of %" PRIu64 " elements",
                   n, n == 1 ? "" : "s", n == 1 ? "has" : "have",
                   qp_quote(quoted, first->source->name, first->source->name_len), few, all);
    return qp_warn(&plan->warnings, &plan->arena, "small-tensors", plan->checkpoint->source.path,
                   text, err);
}

/* ---- Sets --------------------------------------------------------------------------------------
 */

/* Whether the method looks at more bins than a set has values, and may clip at all. */
static bool has_few_values(const struct qp_plan_tensor *t)
{
    if (!qp_is_quantized(t) || !t->calibrator->wants_many)
        return false;
    struct qp_sets sets;
    qp_tensor_sets(&sets, &t->result);
    const uint64_t bins = t->calibrator->parameter;
    return sets.band_rows * sets.col_width < bins &&
           bins > (uint64_t)1 << (qplan_dtype_bits(t->result.scheme->dtype) - 1);
}

enum qplan_status qp_plan_warn_few(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_plan_tensor *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        const bool has_few = has_few_values(t);
        first = has_few && !first ? t : first;
        n += has_few;
    }
    if (!first)
        return QPLAN_OK;
    char text[768], quoted[QP_QUOTED];
    (void)snprintf(
        text, sizeof text,
        "%zu tensor%s %s sets of fewer values than there are bins, the first is %s by %s: "
        "far too much of them is clipped",
        n, n == 1 ? "" : "s", n == 1 ? "has" : "have",
        qp_quote(quoted, first->source->name, first->source->name_len), first->calibrator->name);
    return qp_warn(&plan->warnings, &plan->arena, "few-values", plan->checkpoint->source.path, text,
                   err);
}
