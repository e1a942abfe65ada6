/*
 * family.h - tensors that engines load as one: query, key and value of an attention, the experts of
 * a layer. An engine that finds their schemes different, or one of them kept, refuses the
 * checkpoint, or takes the scheme of the first for all.
 */
#ifndef QP_PLAN_FAMILY_H
#define QP_PLAN_FAMILY_H

#include "plan.h"

/* Which family: what it is called, and where it is in the model. */
struct qp_kin {
    const char *prefix; /* begins the name of the tensor */
    size_t n_prefix;
    size_t kind; /* which names belong together */
};

/* Whether a tensor belongs to a family, by its name. */
bool qp_find_kin(const struct qp_tensor *tensor, struct qp_kin *out);

/*
 * Whether engines load a tensor as one with others, by its name: families whose members are no
 * experts, and in an expert the projections that are such a family.
 */
bool qp_find_joined(const struct qp_tensor *tensor, struct qp_kin *out);

/* Whether a tensor belongs to one of these rows, by its name: its kind is the number of the row. */
bool qp_find_kin_by(const struct qp_tensor *tensor, const struct qp_kin_names *rows,
                    struct qp_kin *out);

/* An order in which the members of a family are neighbours: 0 for two of one family. */
int qp_compare_kin(const struct qp_kin *a, const struct qp_kin *b);

/* A tensor of a plan, and the family that it belongs to. */
struct qp_member {
    struct qp_kin kin;
    struct qp_plan_tensor *tensor;
};

/* Looks at the n members of a family. */
typedef enum qplan_status (*qp_family_fn)(struct qplan_plan *plan, const struct qp_member *members,
                                          size_t n, const void *ctx, struct qplan_error *err);

/* Visits each family of a plan until a visit fails. MEMORY. */
enum qplan_status qp_families_visit(struct qplan_plan *plan, qp_family_fn visit, const void *ctx,
                                    struct qplan_error *err);

/*
 * Makes the members of each family agree after the decisions have been checked against shapes and
 * the layout: where one cannot be quantized, all are kept with its reason. INVALID where they
 * differ because it was asked so.
 */
enum qplan_status qp_families_agree(struct qplan_plan *plan, struct qplan_error *err);

#endif
