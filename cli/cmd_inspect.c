/*
 * cmd_inspect.c - qplan inspect: what is in a file; with a source, how far it is off. Writes
 * nothing but its report.
 */
#include "task.h"

static const struct arg_option options[] = {
    {.name = "against",
     .value = "SOURCE",
     .help = "measure the errors against the checkpoint that FILE\nwas made from"},
    {.name = "tensors", .help = "a line for every tensor instead of patterns"},
    {.name = "include",
     .value = "GLOB",
     .repeat = true,
     .help = "report only tensors that one of these matches"},
    {.name = "fail-if",
     .value = "GATE",
     .repeat = true,
     .help = "exit 1 if this is true, as in 'bpw>8.5' or, with a source,\n'*.mlp.*:max_abs>1e-3'"},
};

static const struct arg_group report_options = {"Report", options,
                                                sizeof options / sizeof options[0]};

static const struct arg_group *const groups[] = {&report_options, &task_device_options,
                                                 &task_machine_options, &cli_general_options, NULL};

struct inspection {
    const struct args *args;
    struct task task;
    struct qplan_checkpoint *file, *source;
    struct qplan_report *report;
};

static enum qplan_status open_files(struct inspection *in, struct qplan_error *err)
{
    const char *path, *against = args_value(in->args, "against");
    CLI_TRY(task_model_path(in->args, 0, "FILE", &path, err));
    if (against)
        CLI_TRY(task_check_path("--against", against, err));
    CLI_TRY(qplan_checkpoint_open(&in->file, path, err));
    if (!against)
        return QPLAN_OK;
    CLI_TRY(qplan_checkpoint_open(&in->source, against, err));
    return qplan_checkpoint_decode(in->source, err);
}

/* Shows an imatrix, of which nothing can be measured. */
static enum qplan_status show_imatrix(const struct args *args, const char *path,
                                      struct qplan_error *err)
{
    static const char *const of_models[] = {"against", "tensors", "include", "fail-if", "json"};
    for (size_t i = 0; i < sizeof of_models / sizeof of_models[0]; i++)
        if (args_has(args, of_models[i]))
            return cli_fail(err, QPLAN_ERR_INVALID, path,
                            "--%s needs a checkpoint: expected safetensors, found an imatrix",
                            of_models[i]);
    return qplan_importance_write_text(path, cli_write_stdout, NULL, err);
}

static enum qplan_status run_all(struct inspection *in, struct qplan_error *err)
{
    const char *path;
    CLI_TRY(task_begin(&in->task, in->args, err));
    CLI_TRY(task_read_gates(&in->task, in->args, err));
    CLI_TRY(task_model_path(in->args, 0, "FILE", &path, err));
    const enum qplan_status opened = open_files(in, err);
    if (opened == QPLAN_ERR_INVALID && !in->file && qplan_importance_is_imatrix(path))
        return show_imatrix(in->args, path, err);
    CLI_TRY(opened);
    struct qplan_inspect_options inspect_options = {
        .against = in->source,
        .gates = task_gates(&in->task),
        .n_gates = in->task.n_gates,
    };
    inspect_options.n_include = args_values(in->args, "include", &inspect_options.include);
    enum qplan_status status =
        qplan_inspect(&in->report, in->file, &inspect_options, &in->task.run, err);
    enum task_report form =
        args_has(in->args, "tensors") ? TASK_REPORT_EVERY_TENSOR : TASK_REPORT_PATTERNS;
    return task_show(&in->task, form, status, in->report, err);
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct inspection in = {.args = args};
    enum qplan_status status = run_all(&in, err);
    qplan_report_free(in.report);
    qplan_checkpoint_close(in.source);
    qplan_checkpoint_close(in.file);
    task_end(&in.task);
    return status;
}

const struct command cli_inspect = {
    .name = "inspect",
    .operands = "FILE",
    .summary = "show what is in a file, its error bounds and ratios",
    .about = "Shows what is in FILE, any safetensors file; of a quantized one the schemes, the\n"
             "proven error bounds, the ratios, and what did not shrink and why. Of an imatrix of\n"
             "llama.cpp it shows how much the channels of each weight matter.\n",
    .examples = "  qplan inspect model.int8.safetensors\n"
                "  qplan inspect --against model.safetensors --tensors model.int8.safetensors\n"
                "  qplan inspect --json model.int8.safetensors | jq .totals\n",
    .groups = groups,
    .run = run,
};
