/*
 * sensitivity.h - a table of what each candidate makes of each tensor: made in sensitivity.c, a
 * plan chosen by it in plan_within.c.
 */
#ifndef QP_SENSITIVITY_H
#define QP_SENSITIVITY_H

#include "lib/plan/budget.h"
#include "lib/plan/plan.h"

struct qp_candidate {
    const char *text; /* as it was asked for */
    bool is_keep;
    bool is_wide; /* 8 bits or more */
    struct qplan_scheme scheme;
    struct qplan_plan *plan; /* all tensors that fit have it; NULL = keep */
};

/* A tensor as one of the candidates. */
struct qp_cell {
    uint64_t bytes;
    double error;
    bool is_there; /* the tensor fits */
};

/* Of tensors that no candidate changes. */
#define QP_NO_GROUP SIZE_MAX

struct qplan_sensitivity {
    const struct qplan_checkpoint *checkpoint;
    const struct qplan_plan_options *options;
    const struct qplan_budget *budget;
    struct qp_candidate *candidates;
    size_t n_candidates;
    const struct qplan_plan *first; /* of the candidates' plans: all have the same tensors */
    struct qp_cell *cells;          /* n_candidates for each tensor */
    size_t *group;                  /* by tensor: those that get one candidate together */
    size_t n_groups;
    struct qp_option *of_groups; /* n_candidates for each group: its tensors together */
    bool *is_first;              /* by group: heads and embeddings */
    uint64_t fixed_bytes;        /* of tensors without a group */
    uint64_t n_elems;            /* of all tensors */
    struct qp_arena arena;
};

static inline struct qp_cell *qp_cell_at(const struct qplan_sensitivity *s, size_t tensor,
                                         size_t candidate)
{
    return &s->cells[tensor * s->n_candidates + candidate];
}

/* Makes the plan in which groups have these candidates. */
enum qplan_status qp_sensitivity_plan(const struct qplan_sensitivity *s, const size_t *option,
                                      struct qplan_plan **out, struct qplan_error *err);

/* INVALID if the target of the budget is below the least that candidates give, which is named. */
enum qplan_status qp_sensitivity_check(const struct qplan_sensitivity *s, struct qplan_error *err);

#endif
