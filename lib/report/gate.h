/*
 * gate.h - a condition that fails a run: [SCOPE:]METRIC OP NUMBER. Parsing only; judge.c evaluates.
 */
#ifndef QP_GATE_H
#define QP_GATE_H

#include "lib/base/error.h"
#include "metrics.h"

enum qp_gate_op { QP_OP_LT, QP_OP_LE, QP_OP_GT, QP_OP_GE, QP_OP_EQ, QP_OP_NE };

struct qplan_gate {
    char *text; /* as given, blanks removed around the parts: the "expr" of the report */
    enum qp_gate_scope scope;
    char *glob; /* QP_SCOPE_GLOB */
    const struct qp_metric *metric;
    enum qp_gate_op op;
    double limit;
    uint64_t min_elements; /* of QP_SCOPE_LARGE: tensors of fewer are skipped, unless all are */
};

/* "<", "<=", ... */
const char *qp_gate_op_text(enum qp_gate_op op);

/* Whether "value op limit" holds. */
bool qp_gate_holds(enum qp_gate_op op, double value, double limit);

#endif
