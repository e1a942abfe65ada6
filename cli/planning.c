/*
 * planning.c - options, model and plan, one after the other.
 */
#include "planning.h"

enum qplan_status planning_read(struct planning *p, struct qplan_error *err)
{
    CLI_TRY(task_begin(&p->task, p->args, err));
    CLI_TRY(plan_args_read(&p->plan_args, p->args, err));
    CLI_TRY(task_read_gates(&p->task, p->args, err));
    return task_model_path(p->args, 0, "MODEL", &p->model_path, err);
}

enum qplan_status planning_make(struct planning *p, struct qplan_error *err)
{
    CLI_TRY(qplan_checkpoint_open(&p->model, p->model_path, err));
    CLI_TRY(plan_args_make(&p->plan, &p->plan_args, p->model, err));
    return cli_check_signal(err);
}

void planning_warn(const struct planning *p)
{
    for (size_t i = 0; i < qplan_plan_warning_count(p->plan); i++)
        cli_print_warning(qplan_plan_warning(p->plan, i));
}

void planning_end(struct planning *p)
{
    qplan_plan_free(p->plan);
    qplan_checkpoint_close(p->model);
    plan_args_free(&p->plan_args);
    task_end(&p->task);
}
