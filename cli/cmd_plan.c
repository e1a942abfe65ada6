/*
 * cmd_plan.c - qplan plan: the plan as a document, on stdout or in a new file. Reads the header of
 * the model only, unless schemes are chosen by their errors.
 */
#include "planning.h"

#include <string.h>

static const struct arg_option options[] = {
    {.name = "output",
     .letter = "o",
     .value = "PATH",
     .help = "the new document; - is stdout",
     .fallback = "stdout"},
};

static const struct arg_group output_options = {"Output", options, 1};

static const struct arg_group *const groups[] = {
    &plan_scheme_options, &plan_calibration_options,
    &plan_budget_options, &plan_selection_options,
    &output_options,      &plan_output_options,
    &task_device_options, &task_machine_options,
    &cli_general_options, NULL,
};

static enum qplan_status write_document(const struct planning *p, struct qplan_error *err)
{
    const char *path = args_value(p->args, "output");
    if (path && strcmp(path, "-") != 0)
        return qplan_plan_write_file(p->plan, path, args_has(p->args, "force"), err);
    enum qplan_status status = qplan_plan_write_json(p->plan, cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "plan", err);
}

static enum qplan_status run_all(struct planning *p, struct qplan_error *err)
{
    CLI_TRY(planning_read(p, err));
    CLI_TRY(planning_make(p, err));
    planning_warn(p);
    return write_document(p, err);
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct planning p = {.args = args};
    enum qplan_status status = run_all(&p, err);
    planning_end(&p);
    return status;
}

const struct command cli_plan = {
    .name = "plan",
    .operands = "MODEL",
    .summary = "write what quantize would do as a JSON document",
    .about = "Writes the plan of quantize for MODEL: what becomes of every tensor, every output\n"
             "tensor with its offset, and the exact size. Edit it and give it to quantize --plan.\n"
             "It takes every option of quantize; those of a run (--verify, --fail-if, --dry-run\n"
             "and the machine) are checked and change nothing.\n",
    .examples = "  qplan plan model.safetensors | jq .output\n"
                "  qplan plan --dtype int4 -o plan.json model.safetensors\n"
                "  qplan plan --scheme int8:c0 model.safetensors |\n"
                "      jq 'del(.output, .tensors[].outputs)' > edited.json\n",
    .groups = groups,
    .run = run,
};
