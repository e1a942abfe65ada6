/*
 * gate.h - a condition that fails a run: [SCOPE:]METRIC OP NUMBER. Parsing only; report.c
 * evaluates.
 */
#ifndef QP_GATE_H
#define QP_GATE_H

#include "lib/base/error.h"

enum qp_metric_id {
    QP_METRIC_SQNR_DB,
    QP_METRIC_MAX_ABS,
    QP_METRIC_RMS,
    QP_METRIC_COSINE,
    QP_METRIC_CLIPPED,
    QP_METRIC_MAX_CLIP,
    QP_METRIC_NONFINITE,
    QP_METRIC_BOUND,
    QP_METRIC_HALF_STEP,
    QP_METRIC_BPW,
    QP_METRIC_RATIO,
    QP_METRIC_RATIO_IDEAL,
    QP_METRIC_BYTES,
    QP_METRIC_KEPT_BYTES,
    QP_METRIC_KEPT_PERCENT,
    QP_METRIC_QUANTIZED,
    QP_METRIC_MISSING,
    QP_METRIC_COUNT
};

enum qp_gate_scope { QP_SCOPE_WORST, QP_SCOPE_TOTAL, QP_SCOPE_GLOB };
enum qp_gate_op { QP_OP_LT, QP_OP_LE, QP_OP_GT, QP_OP_GE, QP_OP_EQ, QP_OP_NE };

/* One row per metric. Every metric exists for the whole file: the total scope is always legal. */
struct qp_metric {
    const char *name;
    enum qp_gate_scope scope; /* the natural one: worst or total */
    bool measured;            /* needs a source */
    bool integer;             /* a count or a number of bytes */
    bool per_tensor;          /* exists for one tensor (worst and glob scopes are legal) */
    bool low_is_bad;          /* for == and !=: which end is the worst */
};

struct qplan_gate {
    char *text; /* as given, blanks removed around the parts: the "expr" of the report */
    enum qp_gate_scope scope;
    char *glob; /* QP_SCOPE_GLOB */
    enum qp_metric_id metric;
    enum qp_gate_op op;
    double limit;
};

const struct qp_metric *qp_metric_row(enum qp_metric_id id);

/* "<", "<=", ... */
const char *qp_gate_op_text(enum qp_gate_op op);

/* Whether "value op limit" holds. */
bool qp_gate_holds(enum qp_gate_op op, double value, double limit);

#endif
