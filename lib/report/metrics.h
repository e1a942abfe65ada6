/*
 * metrics.h - the numbers of a report: what they are computed from, and one row for each. Gates,
 * the JSON document, the text and the help walk these rows; nothing else lists metrics.
 */
#ifndef QP_REPORT_METRICS_H
#define QP_REPORT_METRICS_H

#include "lib/verify/measure.h"

/* What metrics are computed from: the numbers of one tensor, or of all tensors of a file. */
struct qp_figures {
    struct qplan_totals sums;
    uint64_t sets;
    uint64_t source_bits, code_bits; /* of quantized tensors */
    uint64_t compared;               /* elements of quantized tensors that the source has too */
    uint64_t missing;                /* tensors of the source that the file lacks */
    struct qp_param_facts facts;     /* if has_facts */
    struct qp_measure errors;        /* if has_errors */
    bool has_facts;                  /* a quantized tensor, or the whole file */
    bool has_errors;                 /* compared with a source */
};

/* A value of a metric. A count has both forms, of which the double is rounded. */
struct qp_value {
    bool known;
    double number;
    uint64_t count;
};

/* The scope of a gate. LARGE is the worst of the tensors that are not small. */
enum qp_gate_scope { QP_SCOPE_NONE, QP_SCOPE_WORST, QP_SCOPE_LARGE, QP_SCOPE_TOTAL, QP_SCOPE_GLOB };

enum qp_metric_kind {
    QP_NUMBER,
    QP_COUNT,  /* a whole number, and exact */
    QP_ELEMENT /* the flat index of an element; documents show its coordinates */
};

/* Each needs what those before it do. */
enum qp_metric_need {
    QP_NEEDS_NOTHING,
    QP_NEEDS_FACTS,
    QP_NEEDS_SOURCE,
    QP_NEEDS_WEIGHTS /* what columns count */
};

/* Where a metric is shown. One that JSON tensors have exists for a tensor, and gates may ask so. */
enum {
    QP_IN_TENSORS = 1, /* JSON: the object of a tensor */
    QP_IN_TOTALS = 2,  /* JSON: the totals */
    QP_IN_LINES = 4,   /* text: the line of tensors that are alike, the worst of them */
    QP_IN_SUMMARY = 8, /* text: the totals */
    QP_IF_ANY = 16     /* text: only where it is not 0 */
};

struct qp_metric {
    const char *name;
    enum qp_metric_kind kind;
    enum qp_metric_need needs;
    unsigned shown;
    enum qp_gate_scope scope; /* of a gate that names none; NONE = not for gates */
    bool low_is_bad;          /* which end is the worst */
    struct qp_value (*of)(const struct qp_figures *figures);
    const char *unit, *help; /* of metrics for gates */
};

/* All rows, in the order of the keys of the document. */
extern const struct qp_metric qp_metrics[];
extern const size_t qp_n_metrics;

/* The metric of that name, or NULL. */
const struct qp_metric *qp_metric_find(const char *name, size_t n);

/* The value of a metric; unknown where what it needs is not there. */
struct qp_value qp_metric_value(const struct qp_metric *metric, const struct qp_figures *figures);

#endif
