/*
 * ldlq_rows.h - the codes of a tensor that are rounded by the factor of a Hessian: a job over its
 * rows. All parameters of the tensor are stored, and are read as any reader has them.
 *
 * Rows of the last axis are independent of each other. In a row, columns come in the order of the
 * factor N (ldlq_factor.h): column k gets the nearest code of w_k + sum over j before k, in their
 * order, of N_jk (w_j - q_j), where w are the values of the source and q those of their codes. All
 * of it is in f32. A value that is not finite hands on no error.
 */
#ifndef QP_RUN_LDLQ_ROWS_H
#define QP_RUN_LDLQ_ROWS_H

#include "ldlq_factor.h"
#include "lib/plan/plan.h"
#include "lib/store/outs.h"

/* What is made of what. */
struct qp_ldlq_work {
    const struct qplan_plan *plan;
    const struct qp_outs *outs;     /* that codes go to */
    const struct qp_source *stored; /* where parameters are read from */
    const float *factors;           /* of scales, by tensor of the plan; NULL = none has one */
};

/* Makes and writes the codes of a tensor. */
enum qplan_status qp_ldlq_round(const struct qp_ldlq_work *work, const struct qp_plan_tensor *t,
                                const struct qp_ldlq_factor *factor, const struct qplan_run *run,
                                struct qplan_error *err);

/* The least memory that this needs beside the factor. */
uint64_t qp_ldlq_least_bytes(const struct qplan_plan *plan, const struct qp_plan_tensor *t);

#endif
