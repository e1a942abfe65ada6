/*
 * plan_args.h - from command line to plan: the options that quantize and plan share, their house
 * rules, and the plan itself, made or read from a document.
 */
#ifndef CLI_PLAN_ARGS_H
#define CLI_PLAN_ARGS_H

#include "args.h"
#include "document.h"

extern const struct arg_group plan_scheme_options, plan_calibration_options, plan_budget_options;
extern const struct arg_group plan_selection_options, plan_output_options;

struct plan_args {
    struct qplan_plan_options options;
    struct qplan_budget budget; /* without candidates there is none */
    const char *document;       /* of --plan: a path, "-" for stdin, or NULL */
    const char *rules;          /* of --rules, likewise */
    bool requantize;            /* of --requantize */
    struct document rules_text;
};

/* Reads --format, a layout that is written; *out stays as it is without the option. */
enum qplan_status plan_args_format(const struct args *args, const char **out,
                                   struct qplan_error *err);

/* Reads --hessian and --hessian-damp. */
enum qplan_status plan_args_hessian(const struct args *args, const char **path, double *damp,
                                    struct qplan_error *err);

/* Reads --select, --include, --exclude and --indivisible; a policy stays as it is without one. */
enum qplan_status plan_args_selection(struct qplan_plan_options *options, const struct args *args,
                                      struct qplan_error *err);

/* Reads the options of the group Calibration. */
enum qplan_status plan_args_calibration(struct qplan_plan_options *options, const struct args *args,
                                        struct qplan_error *err);

/* Checks and reads the options, before any file is opened. Borrows from args. */
enum qplan_status plan_args_read(struct plan_args *out, const struct args *args,
                                 struct qplan_error *err);

/* Makes a plan within the target of the options, of candidates that are measured. */
enum qplan_status plan_args_make_within(struct qplan_plan **out, struct plan_args *plan_args,
                                        struct qplan_checkpoint *checkpoint,
                                        const struct qplan_run *run,
                                        struct qplan_budget_facts *facts, struct qplan_error *err);

/* Makes the plan, with the rules read, or reads it from the document. */
enum qplan_status plan_args_make(struct qplan_plan **out, struct plan_args *plan_args,
                                 struct qplan_checkpoint *checkpoint, struct qplan_error *err);
void plan_args_free(struct plan_args *plan_args);

#endif
