/*
 * cmd_explain.c - qplan explain: why tensors become what they become. Reads the header of the model
 * only, unless schemes are chosen by their errors.
 */
#include "planning.h"

static const struct arg_group *const groups[] = {
    &plan_scheme_options,    &plan_calibration_options, &plan_budget_options,
    &plan_selection_options, &plan_output_options,      &task_device_options,
    &task_machine_options,   &cli_general_options,      NULL,
};

static enum qplan_status explain(const struct planning *p, struct qplan_error *err)
{
    const char *const *operands;
    const size_t n = args_operands(p->args, &operands);
    const struct qplan_explain_options options = {
        .asked =
            p->plan_args.document || p->plan_args.budget.candidates ? NULL : &p->plan_args.options,
        .patterns = operands + 1,
        .n_patterns = n - 1,
        .json = p->task.json,
    };
    enum qplan_status status = qplan_plan_explain(p->plan, &options, cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "explanation", err);
}

static enum qplan_status run_all(struct planning *p, struct qplan_error *err)
{
    CLI_TRY(planning_read(p, err));
    CLI_TRY(planning_make(p, err));
    planning_warn(p);
    return explain(p, err);
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct planning p = {.args = args};
    enum qplan_status status = run_all(&p, err);
    planning_end(&p);
    return status;
}

const struct command cli_explain = {
    .name = "explain",
    .operands = "MODEL [GLOB...]",
    .summary = "say why tensors are quantized or kept",
    .about = "Says of each tensor of MODEL that one of the patterns matches (of all, without a\n"
             "pattern) what quantize would do with it, by which rule, which rules lost against\n"
             "that one, what is written, and its size. It takes the options of plan; --json\n"
             "prints a document.\n",
    .examples = "  qplan explain model.safetensors 'lm_head*'\n"
                "  qplan explain --select linear --include '*.mlp.*' model.safetensors '*gate*'\n"
                "  qplan explain --rules rules.txt --json model.safetensors |\n"
                "      jq -r '.tensors[] | [.name, .rule, .bytes] | @tsv'\n",
    .groups = groups,
    .run = run,
};
