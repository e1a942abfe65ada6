/*
 * report.h - a report, seen from inside the library. report.c builds it, report_json.c and
 * report_text.c print it, report_gates.c judges it.
 */
#ifndef QP_REPORT_H
#define QP_REPORT_H

#include "gate.h"
#include "lib/plan/plan.h"
#include "lib/verify/measure.h"

/* One logical tensor. */
struct qp_row {
    struct qp_logical tensor;
    const char *reason, *rule;
    struct qp_param_facts *facts; /* quantized only */
    struct qp_measure *measure;   /* quantized, and measured */
    bool measured;                /* the source has this tensor too */
    bool proven;                  /* where there is a source */
    bool restored;                /* dequantize: it was quantized before */
};

struct qp_kept_reason {
    const char *reason;
    uint64_t tensors, bytes;
};

struct qp_gate_result {
    const struct qplan_gate *gate;
    const struct qp_row *row; /* the tensor that decides, or NULL */
    struct qplan_maybe value;
    bool failed;
    char *text; /* of a failure */
};

struct qplan_report {
    const char *command;
    char *path;
    const char *format; /* "qplan" or "safetensors" */
    uint64_t header_bytes;
    char *source_path; /* NULL = not measured */
    uint64_t source_file_bytes;
    struct qplan_totals totals;
    struct qp_param_facts total_facts; /* of all quantized tensors */
    struct qp_measure total_measure;   /* of those of them that the source has too */
    uint64_t measured_elements;
    struct qp_row *rows; /* in name order */
    size_t n_rows;
    struct qp_kept_reason *kept; /* one for each reason, in the order of rows */
    size_t n_kept;
    uint64_t missing; /* source tensors that the file lacks */
    bool proven;
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
    bool prove;
    bool strict_params; /* a scale that is no scale is bad input */
    const char *const *include;
    size_t n_include;
    const bool *restored; /* dequantize: by row, whether it was quantized before */
};

/* Reads the facts of the rows that have room for them, with so many threads; 0 = one for each CPU.
 */
enum qplan_status qp_report_facts(struct qp_row *rows, size_t n, const struct qp_st *st,
                                  bool strict, unsigned threads, struct qplan_error *err);

/* PROOF with the first offender in err if .prove is set; the report is made all the same. */
enum qplan_status qp_report_make(struct qplan_report **out, const struct qp_report_request *request,
                                 const struct qplan_run *run, struct qplan_error *err);

/* Notes on a run that ended well: threads that were refused, a file system that cannot sync. */
enum qplan_status qp_report_notes(struct qplan_report *report, bool all_threads, bool synced,
                                  struct qplan_error *err);

/* Checks that gates can be evaluated: a source where one is needed. USAGE. */
enum qplan_status qp_gates_check(const struct qplan_gate *const *gates, size_t n, bool has_source,
                                 struct qplan_error *err);

/* Checks, before a plan is run, that every scope of names has a tensor in it. USAGE. */
enum qplan_status qp_gates_check_plan(const struct qplan_gate *const *gates, size_t n,
                                      const struct qplan_plan *plan, struct qplan_error *err);

/* Evaluates gates. USAGE for a scope that matches nothing, PROOF if one fails. */
enum qplan_status qp_gates_evaluate(struct qplan_report *report,
                                    const struct qplan_gate *const *gates, size_t n,
                                    struct qplan_error *err);

/*
 * Makes a report and evaluates gates on it, all of them, also when the proof failed: PROOF for
 * either, the proof's offender first. The report is made on OK and on PROOF.
 */
enum qplan_status qp_report_judge(struct qplan_report **out,
                                  const struct qp_report_request *request,
                                  const struct qplan_gate *const *gates, size_t n_gates,
                                  const struct qplan_run *run, struct qplan_error *err);

/* Numbers of a row or, with row NULL, of the whole file. */
struct qp_sizes {
    uint64_t elements, sets, source_bytes, code_bytes, param_bytes;
};
struct qp_sizes qp_row_sizes(const struct qp_row *row);
struct qplan_maybe qp_ratio(double a, double b); /* unknown where b is 0 */
struct qplan_maybe qp_rms(const struct qp_measure *m, uint64_t elements);
struct qplan_maybe qp_sqnr_db(const struct qp_measure *m);
struct qplan_maybe qp_cosine(const struct qp_measure *m);
struct qplan_maybe qp_not_negative(double value); /* unknown where < 0 */

/* Measured elements: those that are finite. */
uint64_t qp_measured_elements(uint64_t elements, const struct qp_measure *m);

#endif
