/*
 * planning.c - options, model and plan, one after the other.
 */
#include "planning.h"

#include <inttypes.h>
#include <stdio.h>

enum qplan_status planning_read(struct planning *p, struct qplan_error *err)
{
    CLI_TRY(task_begin(&p->task, p->args, err));
    CLI_TRY(plan_args_read(&p->plan_args, p->args, err));
    CLI_TRY(task_read_gates(&p->task, p->args, err));
    return task_model_path(p->args, 0, "MODEL", &p->model_path, err);
}

/* A line about the plan, and one about the plan of a single scheme beside it. */
static void show_budget(const struct planning *p, const struct qplan_budget_facts *facts)
{
    const double above = facts->bound > 0 ? 100 * (facts->error - facts->bound) / facts->bound : 0;
    char far[64] = "";
    if (p->task.quiet)
        return;
    if (above > 0)
        (void)snprintf(far, sizeof far, "at most %.2g %% above ", above);
    fprintf(stderr,
            "target: %" PRIu64 " bytes, %.4f bpw, squared error %.6g, %sthe least possible%s\n",
            facts->bytes, facts->bpw, facts->error, far,
            facts->raised ? " with head and embeddings at 8 bits or more" : "");
    if (facts->uniform[0])
        fprintf(stderr, "uniform: %" PRIu64 " bytes with %s alone, squared error %.6g\n",
                facts->uniform_bytes, facts->uniform, facts->uniform_error);
    else
        fprintf(stderr, "uniform: no candidate alone keeps to the target\n");
}

static enum qplan_status make_within(struct planning *p, struct qplan_error *err)
{
    struct qplan_budget_facts facts;
    const enum qplan_status status =
        plan_args_make_within(&p->plan, &p->plan_args, p->model, &p->task.run, &facts, err);
    progress_end(&p->task.progress);
    if (status == QPLAN_OK)
        show_budget(p, &facts);
    return status;
}

enum qplan_status planning_make(struct planning *p, struct qplan_error *err)
{
    CLI_TRY(qplan_checkpoint_open(&p->model, p->model_path, err));
    CLI_TRY(p->plan_args.budget.candidates
                ? make_within(p, err)
                : plan_args_make(&p->plan, &p->plan_args, p->model, err));
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
