/*
 * report.h - a report, seen from inside the library. report.c builds it from what lib/verify has
 * found, figures.c counts, judge.c evaluates gates on it, report_json.c and report_text.c print it.
 */
#ifndef QP_REPORT_H
#define QP_REPORT_H

#include "gate.h"
#include "lib/plan/plan.h"
#include "lib/verify/proof.h"

/* One tensor as people think of it. */
struct qp_row {
    struct qp_tested *tested;     /* the tensor, and what comparing it with the source has found */
    struct qp_param_facts *facts; /* quantized only */
    const char *reason, *rule;
    bool restored; /* dequantize: it was quantized before */
};

struct qp_kept_reason {
    const char *reason;
    uint64_t tensors, bytes;
};

struct qp_gate_result {
    const struct qplan_gate *gate;
    const struct qp_row *row; /* the tensor that decides, or NULL */
    struct qp_value value;
    bool failed;
    char *text;            /* of a failure */
    uint64_t min_elements; /* tensors of fewer were skipped */
};

/* Whether a gate skipped a tensor that it would have looked at but for its size. */
bool qp_gate_skipped(const struct qp_gate_result *result, const struct qp_row *row);

struct qplan_report {
    const char *command;
    char *path;
    const char *format; /* "qplan" or "safetensors" */
    size_t n_files;
    uint64_t header_bytes; /* of all files */
    char *source_path;     /* NULL = not measured */
    uint64_t source_file_bytes;
    struct qp_figures total;
    struct qp_row *rows; /* in name order */
    size_t n_rows;
    struct qp_proof proof;       /* of the tensors of the rows, if there is a source */
    struct qp_kept_reason *kept; /* one for each reason, in the order of rows */
    size_t n_kept;
    struct qp_gate_result *gates;
    size_t n_gates;
    struct qp_warnings warnings;
    struct qplan_checkpoint *owned; /* rows borrow from it, if not from the caller's */
    struct qp_arena arena;
};

/* What a report is made from. */
struct qp_report_request {
    const char *command;
    const char *path;
    const struct qplan_checkpoint *file;
    const struct qplan_checkpoint *source; /* NULL = no measurement */
    const struct qplan_plan *plan;         /* quantize: where rules and reasons come from */
    bool prove, exact;
    bool allow_unproven;            /* codes that are not provable are only measured */
    struct qp_made_with with;       /* what may prove them */
    struct qp_made_with weighed_by; /* as of a proof */
    bool allow_unquantized;         /* a file in which nothing is quantized can be proven too */
    const char *const *include;
    size_t n_include;
    const bool *restored; /* dequantize: by row, whether it was quantized before */
    const struct qplan_gate *const *gates;
    size_t n_gates;
};

/*
 * Makes a report and evaluates gates on it, all of them, also when the proof failed: PROOF for
 * either, with the proof's offender before the gates in err. The report is made on OK and on PROOF.
 * USAGE for a gate whose scope matches nothing, before anything is compared.
 */
enum qplan_status qp_report_make(struct qplan_report **out, const struct qp_report_request *request,
                                 const struct qplan_run *run, struct qplan_error *err);

/* Adds what is known of a run besides. MEMORY. */
enum qplan_status qp_report_warn(struct qplan_report *report, const struct qp_warnings *warnings,
                                 struct qplan_error *err);

/* Notes on a run that ended well: threads that were refused, a file system that cannot sync. */
enum qplan_status qp_report_notes(struct qplan_report *report, bool all_threads, bool synced,
                                  struct qplan_error *err);

/* Checks that gates can be evaluated: a source, and weights, where they are needed. USAGE. */
enum qplan_status qp_gates_check(const struct qplan_gate *const *gates, size_t n, bool has_source,
                                 bool has_weights, struct qplan_error *err);

/* Checks, before a plan is run, that every scope of names has a tensor in it. USAGE. */
enum qplan_status qp_gates_check_plan(const struct qplan_gate *const *gates, size_t n,
                                      const struct qplan_plan *plan, struct qplan_error *err);

/* Checks that every scope of names has a quantized row in it. USAGE. */
enum qplan_status qp_gates_check_rows(const struct qplan_gate *const *gates, size_t n,
                                      const struct qplan_report *report, struct qplan_error *err);

/* Evaluates gates whose scopes have been checked. PROOF if one fails. */
enum qplan_status qp_gates_evaluate(struct qplan_report *report,
                                    const struct qplan_gate *const *gates, size_t n,
                                    struct qplan_error *err);

/* The numbers of one tensor. */
struct qp_figures qp_row_figures(const struct qp_row *row);

/* Adds the numbers of one more tensor: counts and errors add up, of bounds the largest counts. */
void qp_figures_add(struct qp_figures *total, const struct qp_figures *f);

/* The recipe of another tool that made tensors of the report, as records name it; NULL = none did.
 */
const char *qp_report_recipe(const struct qplan_report *report);

/* Whether of a quantized tensor nothing tells how its parameters were chosen. */
bool qp_report_is_unknown(const struct qplan_report *report);

/* Whether codes of a tensor were rounded by a Hessian. */
bool qp_report_is_rounded(const struct qplan_report *report);

/* Whether parameters of a tensor have the least error of the weights alone. */
bool qp_report_is_unweighted(const struct qplan_report *report);

/* The name of a tensor, safe to print. */
void qp_put_name(struct qp_writer *w, const struct qp_tensor *t);

#endif
