/*
 * task.h - what the commands that read tensor data share: the machine options, the gates, the
 * report and the summary line.
 */
#ifndef CLI_TASK_H
#define CLI_TASK_H

#include "cli.h"
#include "progress.h"

/* --device, --device-memory; and behind them --threads, --memory. */
extern const struct arg_group task_device_options;
extern const struct arg_group task_machine_options;

struct task {
    struct qplan_run run; /* points into this struct, which must not move */
    struct progress progress;
    double began;
    struct qplan_gate **gates;
    size_t n_gates;
    bool quiet, json;
};

/* How the report goes to stdout. With --json it is always the document. */
enum task_report { TASK_REPORT_JSON_ONLY, TASK_REPORT_PATTERNS, TASK_REPORT_EVERY_TENSOR };

/* Reads the machine and general options and QPLAN_CPU. task_end must be called in any case. */
enum qplan_status task_begin(struct task *task, const struct args *args, struct qplan_error *err);

/* Reads --fail-if, for commands that have it. */
enum qplan_status task_read_gates(struct task *task, const struct args *args,
                                  struct qplan_error *err);

/* The gates that were read, as the options of the library take them. */
const struct qplan_gate *const *task_gates(const struct task *task);

/*
 * Shows what a finished run has to say: warnings, failed gates and the report. status is what the
 * run returned; the result is the status of the whole.
 */
enum qplan_status task_show(struct task *task, enum task_report form, enum qplan_status status,
                            const struct qplan_report *report, struct qplan_error *err);

/* The device that --device and --device-memory name; for the caller to close. */
enum qplan_status task_open_device(struct qplan_device **out, const struct args *args,
                                   struct qplan_error *err);

/* The line on stderr: the text, the device and the time; nothing with --quiet. */
void task_summary(const struct task *task, const char *fmt, ...) CLI_PRINTF(2, 3);

void task_end(struct task *task);

/* The operand at that place, of that name, as the path of a model: USAGE for "" and "-". */
enum qplan_status task_model_path(const struct args *args, size_t place, const char *name,
                                  const char **out, struct qplan_error *err);

/* The value of --output for a model: NULL if absent, USAGE for "" and "-". */
enum qplan_status task_output_path(const struct args *args, const char **out,
                                   struct qplan_error *err);

/* USAGE if path cannot be that of a model: "" or "-". The subject says where it was given. */
enum qplan_status task_check_path(const char *subject, const char *path, struct qplan_error *err);

/* The path of name beside a file or folder at path, allocated; NULL if there is no memory. */
char *task_path_beside(const char *path, const char *name);

#endif
