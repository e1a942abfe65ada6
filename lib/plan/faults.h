/*
 * faults.h - tensors that share a fault, in one message: the first ones are named, the rest
 * counted.
 */
#ifndef QP_PLAN_FAULTS_H
#define QP_PLAN_FAULTS_H

#include "lib/base/error.h"
#include "lib/model/tensor.h"

struct qp_faults {
    struct qplan_error *err; /* its message goes up to where the list begins */
    size_t n;
};

/* Adds a tensor with its shape. */
void qp_faults_add(struct qp_faults *faults, const struct qp_tensor *tensor);

/* Ends the list: INVALID if there was a fault. */
enum qplan_status qp_faults_end(const struct qp_faults *faults);

#endif
