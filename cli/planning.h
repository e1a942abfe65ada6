/*
 * planning.h - a plan from its command line, for the commands that make one: quantize, plan and
 * explain.
 */
#ifndef CLI_PLANNING_H
#define CLI_PLANNING_H

#include "plan_args.h"
#include "task.h"

struct planning {
    const struct args *args;
    struct task task;
    struct plan_args plan_args;
    const char *model_path;
    struct qplan_checkpoint *model;
    struct qplan_plan *plan;
};

/*
 * Reads the options, all of them for every command, so that a line written for quantize fails
 * elsewhere as it does there. Nothing is opened yet. planning_end must be called in any case.
 */
enum qplan_status planning_read(struct planning *p, struct qplan_error *err);

/* Opens the model and makes the plan. */
enum qplan_status planning_make(struct planning *p, struct qplan_error *err);

/* Prints the warnings of the plan. */
void planning_warn(const struct planning *p);

void planning_end(struct planning *p);

#endif
