/*
 * lint_text.c - findings for people and for programs.
 */
#include "lint.h"

#include "lib/base/json.h"

#define LINT_SCHEMA "qplan-lint/1"
#define MOST_LINES  10u /* of one rule, for people */

size_t qplan_findings_count(const struct qplan_findings *findings, bool errors)
{
    size_t n = 0;
    for (size_t i = 0; i < findings->n; i++)
        n += findings->list[i].rule->is_error == errors;
    return n;
}

static const char *severity(const struct qplan_lint_rule *rule)
{
    return rule->is_error ? "error" : "warning";
}

static void put_finding(struct qp_writer *w, const struct qp_finding *finding)
{
    qp_json_open(w, '{');
    qp_json_key(w, "id");
    qp_json_put_str(w, finding->rule->id);
    qp_json_key(w, "severity");
    qp_json_put_str(w, severity(finding->rule));
    qp_json_key(w, "tensor");
    if (finding->name)
        qp_json_put_string(w, finding->name, finding->n_name);
    else
        qp_json_put_null(w);
    qp_json_key(w, "message");
    qp_json_put_str(w, finding->message);
    qp_json_close(w, '}');
}

enum qplan_status qplan_findings_write_json(const struct qplan_findings *findings,
                                            qplan_write_fn write, void *ctx,
                                            struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_stream(&w, write, ctx);
    qp_json_open(&w, '{');
    qp_json_key(&w, "schema");
    qp_json_put_str(&w, LINT_SCHEMA);
    qp_json_key(&w, "path");
    qp_json_put_str(&w, findings->path);
    qp_json_key(&w, "format");
    qp_json_put_str(&w, findings->format);
    qp_json_key(&w, "for");
    qp_json_put_str(&w, findings->engine);
    qp_json_key(&w, "errors");
    qp_json_put_u64(&w, qplan_findings_count(findings, true));
    qp_json_key(&w, "warnings");
    qp_json_put_u64(&w, qplan_findings_count(findings, false));
    qp_json_key(&w, "findings");
    qp_json_open(&w, '[');
    for (size_t i = 0; i < findings->n; i++)
        put_finding(&w, &findings->list[i]);
    qp_json_close(&w, ']');
    qp_json_close(&w, '}');
    qp_puts(&w, "\n");
    const enum qplan_status status = qp_writer_finish(&w, "findings", err);
    qp_writer_free(&w);
    return status;
}

enum qplan_status qplan_findings_write_text(const struct qplan_findings *findings,
                                            qplan_write_fn write, void *ctx,
                                            struct qplan_error *err)
{
    struct qp_writer w;
    qp_writer_stream(&w, write, ctx);
    for (size_t i = 0, end; i < findings->n; i = end) {
        const struct qplan_lint_rule *rule = findings->list[i].rule;
        for (end = i; end < findings->n && findings->list[end].rule == rule; end++) {
            const struct qp_finding *finding = &findings->list[end];
            char quoted[QP_QUOTED];
            if (end - i >= MOST_LINES)
                continue;
            qp_printf(&w, "%s %s: ", rule->id, severity(rule));
            if (finding->name)
                qp_printf(&w, "%s: ", qp_quote(quoted, finding->name, finding->n_name));
            qp_printf(&w, "%s\n", finding->message);
        }
        if (end - i > MOST_LINES)
            qp_printf(&w, "%s %s: and %zu more\n", rule->id, severity(rule), end - i - MOST_LINES);
    }
    const enum qplan_status status = qp_writer_finish(&w, "findings", err);
    qp_writer_free(&w);
    return status;
}
