/*
 * gate.c - reading [SCOPE:]METRIC OP NUMBER. Never looks at a report: what a metric is worth is for
 * the report to say.
 */
#include "gate.h"

#include "lib/base/alloc.h"
#include "lib/base/glob.h"
#include "lib/base/text.h"

#include <stdio.h>
#include <string.h>

static const char *const op_texts[] = {
    [QP_OP_LT] = "<",  [QP_OP_LE] = "<=", [QP_OP_GT] = ">",
    [QP_OP_GE] = ">=", [QP_OP_EQ] = "==", [QP_OP_NE] = "!=",
};

#define N_OPS    (sizeof op_texts / sizeof op_texts[0])
#define OP_CHARS "<>=!"
#define BLANKS   " \t"

const char *qp_gate_op_text(enum qp_gate_op op)
{
    return op_texts[op];
}

bool qp_gate_holds(enum qp_gate_op op, double value, double limit)
{
    switch (op) {
    case QP_OP_LT:
        return value < limit;
    case QP_OP_LE:
        return value <= limit;
    case QP_OP_GT:
        return value > limit;
    case QP_OP_GE:
        return value >= limit;
    case QP_OP_EQ:
        return value == limit;
    case QP_OP_NE:
        return value != limit;
    }
    return false;
}

/* ---- Splitting the text -----------------------------------------------------------------------
 */

/* Some bytes of the text. */
struct span {
    const char *text;
    size_t n;
};

/* The parts as they stand in the text, blanks around them left out; no scope: scope.text is NULL.
 */
struct parts {
    struct span scope, metric, op, number;
};

static struct span trimmed(const char *begin, const char *end)
{
    while (begin < end && strchr(BLANKS, *begin))
        begin++;
    while (end > begin && strchr(BLANKS, end[-1]))
        end--;
    return (struct span){begin, (size_t)(end - begin)};
}

static bool span_is(struct span span, const char *text)
{
    return strlen(text) == span.n && memcmp(span.text, text, span.n) == 0;
}

static bool is_op_char(char c)
{
    return c != '\0' && strchr(OP_CHARS, c);
}

/*
 * A scope may contain any character, a metric and a number none of those that parts are told apart
 * by: so the last operator and the last colon before it are the ones meant. False if there is no
 * operator.
 */
static bool split(struct parts *parts, const char *text)
{
    const char *end = text + strlen(text), *op_end = end;
    while (op_end > text && !is_op_char(op_end[-1]))
        op_end--;
    const char *op = op_end;
    while (op > text && is_op_char(op[-1]))
        op--;
    const char *metric = op;
    while (metric > text && metric[-1] != ':')
        metric--;
    *parts = (struct parts){
        .metric = trimmed(metric, op),
        .op = {op, (size_t)(op_end - op)},
        .number = trimmed(op_end, end),
    };
    if (metric > text)
        parts->scope = trimmed(text, metric - 1);
    return op < op_end;
}

/* ---- Understanding the parts ------------------------------------------------------------------
 */

/* Room for "gate " and the quoted text. */
#define SUBJECT_TEXT (QP_QUOTED + 8)

/* Fails with "PROBLEM 'PART': ", to be continued by qp_fail_more. */
static enum qplan_status fail_part(struct qplan_error *err, const char *subject,
                                   const char *problem, struct span part)
{
    char shown[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_USAGE, subject, "%s %s: ", problem,
                   qp_quote(shown, part.text, part.n));
}

static enum qplan_status read_metric(struct qplan_gate *gate, struct span part, const char *subject,
                                     struct qplan_error *err)
{
    gate->metric = qp_metric_find(part.text, part.n);
    if (gate->metric && gate->metric->scope != QP_SCOPE_NONE)
        return QPLAN_OK;
    (void)fail_part(err, subject, "unknown metric", part);
    struct qplan_metric known;
    for (size_t i = 0; qplan_metric_at(i, &known); i++)
        qp_fail_more(err, "%s%s", i ? ", " : "expected one of ", known.name);
    return QPLAN_ERR_USAGE;
}

static enum qplan_status read_op(struct qplan_gate *gate, struct span part, const char *subject,
                                 struct qplan_error *err)
{
    for (unsigned i = 0; i < N_OPS; i++) {
        if (span_is(part, op_texts[i])) {
            gate->op = (enum qp_gate_op)i;
            return QPLAN_OK;
        }
    }
    (void)fail_part(err, subject, "unknown operator", part);
    qp_fail_more(err, "expected <, <=, >, >=, == or !=");
    return QPLAN_ERR_USAGE;
}

static enum qplan_status read_number(struct qplan_gate *gate, struct span part, const char *subject,
                                     struct qplan_error *err)
{
    char *text = qp_strndup(part.text, part.n);
    if (!text)
        return qp_fail_memory(err, "gate", part.n);
    bool good = qp_parse_f64(text, &gate->limit);
    qp_free(text);
    if (good)
        return QPLAN_OK;
    (void)fail_part(err, subject, "bad number", part);
    qp_fail_more(err, "expected a decimal number such as 30, -0.5 or 1e-3");
    return QPLAN_ERR_USAGE;
}

static enum qplan_status read_glob(struct qplan_gate *gate, struct span part,
                                   struct qplan_error *err)
{
    gate->scope = QP_SCOPE_GLOB;
    gate->glob = qp_strndup(part.text, part.n);
    if (!gate->glob)
        return qp_fail_memory(err, "gate", part.n);
    return qp_glob_check(gate->glob, err);
}

static enum qplan_status read_scope(struct qplan_gate *gate, struct span part, const char *subject,
                                    struct qplan_error *err)
{
    const struct qp_metric *metric = gate->metric;
    gate->scope = metric->scope;
    gate->min_elements = QPLAN_GATE_ELEMENTS;
    if (!part.text)
        return QPLAN_OK;
    if (part.n == 0)
        return qp_fail(err, QPLAN_ERR_USAGE, subject,
                       "empty scope: expected worst, total or a pattern before ':'");
    if (span_is(part, "total")) {
        gate->scope = QP_SCOPE_TOTAL;
        return QPLAN_OK;
    }
    if (!(metric->shown & QP_IN_TENSORS)) {
        (void)fail_part(err, subject, "bad scope", part);
        qp_fail_more(err, "expected total or none, since %s is a number of the whole file",
                     metric->name);
        return QPLAN_ERR_USAGE;
    }
    if (!span_is(part, "worst"))
        return read_glob(gate, part, err);
    gate->scope = QP_SCOPE_WORST;
    return QPLAN_OK;
}

static char *put(char *out, struct span part)
{
    memcpy(out, part.text, part.n);
    return out + part.n;
}

/* Puts the parts of text together again without the blanks around them. */
static enum qplan_status keep_text(struct qplan_gate *gate, const struct parts *parts,
                                   const char *text, struct qplan_error *err)
{
    size_t n_bytes = strlen(text) + 1;
    char *out = gate->text = qp_alloc(n_bytes, 1);
    if (!out)
        return qp_fail_memory(err, "gate", n_bytes);
    if (parts->scope.text) {
        out = put(out, parts->scope);
        *out++ = ':';
    }
    out = put(out, parts->metric);
    out = put(out, parts->op);
    (void)put(out, parts->number);
    return QPLAN_OK;
}

static enum qplan_status read_gate(struct qplan_gate *gate, const char *text,
                                   struct qplan_error *err)
{
    char shown[QP_QUOTED], subject[SUBJECT_TEXT];
    struct parts parts;
    (void)snprintf(subject, sizeof subject, "gate %s", qp_quote(shown, text, strlen(text)));
    if (!split(&parts, text))
        return qp_fail(err, QPLAN_ERR_USAGE, subject,
                       "no operator: expected <, <=, >, >=, == or != behind the metric");
    QP_TRY(read_metric(gate, parts.metric, subject, err));
    QP_TRY(read_op(gate, parts.op, subject, err));
    QP_TRY(read_number(gate, parts.number, subject, err));
    QP_TRY(read_scope(gate, parts.scope, subject, err));
    return keep_text(gate, &parts, text, err);
}

enum qplan_status qplan_gate_parse(struct qplan_gate **out, const char *text,
                                   struct qplan_error *err)
{
    *out = NULL;
    struct qplan_gate *gate = qp_alloc(1, sizeof *gate);
    if (!gate)
        return qp_fail_memory(err, "gate", sizeof *gate);
    enum qplan_status status = read_gate(gate, text, err);
    if (status == QPLAN_OK)
        *out = gate;
    else
        qplan_gate_free(gate);
    return status;
}

void qplan_gate_set_least(struct qplan_gate *gate, uint64_t min_elements)
{
    gate->min_elements = min_elements;
}

void qplan_gate_free(struct qplan_gate *gate)
{
    if (!gate)
        return;
    qp_free(gate->text);
    qp_free(gate->glob);
    qp_free(gate);
}
