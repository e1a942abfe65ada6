/*
 * plan_args.h - from command line to plan: the options that quantize and plan share, their house
 * rules, and the plan itself, made or read from a document.
 */
#ifndef CLI_PLAN_ARGS_H
#define CLI_PLAN_ARGS_H

#include "args.h"

extern const struct arg_group plan_scheme_options, plan_calibration_options;
extern const struct arg_group plan_selection_options, plan_output_options;

struct plan_args {
    struct qplan_plan_options options;
    const char *document; /* of --plan: a path, "-" for stdin, or NULL */
};

/* Checks and reads the options, before any file is opened. Borrows from args. */
enum qplan_status plan_args_read(struct plan_args *out, const struct args *args,
                                 struct qplan_error *err);

/* Makes the plan, or reads it from the document. */
enum qplan_status plan_args_make(struct qplan_plan **out, const struct plan_args *plan_args,
                                 const struct qplan_checkpoint *checkpoint,
                                 struct qplan_error *err);

#endif
