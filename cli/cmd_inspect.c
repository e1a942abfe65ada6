/*
 * cmd_inspect.c - qplan inspect: what is in a file; with a source, how far it is off; of a plain
 * one, what schemes would make of it. Writes nothing but its report.
 */
#include "plan_args.h"
#include "task.h"

#include <stdio.h>

static const struct arg_option options[] = {
    {.name = "against",
     .value = "SOURCE",
     .help = "measure the errors against the checkpoint that FILE\nwas made from"},
    {.name = "tensors", .help = "a line for every tensor instead of patterns"},
    {.name = "include",
     .value = "GLOB",
     .repeat = true,
     .help = "report, or measure, only tensors that one of these matches"},
    {.name = "fail-if",
     .value = "GATE",
     .repeat = true,
     .help = "exit 1 if this is true, as in 'bpw>8.5' or, with a source,\n'*.mlp.*:max_abs>1e-3'"},
    {.name = "gate-min-elements",
     .value = "N",
     .help = "gates of sqnr_db and cosine without a scope skip smaller\ntensors, unless all are",
     .fallback = "4096"},
};

static const struct arg_group report_options = {"Report", options,
                                                sizeof options / sizeof options[0]};

#define CANDIDATES "int4:g128,int4:g32,int8:c0"

static const struct arg_option sensitivity_rows[] = {
    {.name = "sensitivity",
     .help = "show what candidates would make of each tensor: squared\n"
             "error and bits per weight"},
    {.name = "candidates",
     .value = "LIST",
     .help = "schemes with commas between; each is measured on each\ntensor",
     .fallback = CANDIDATES},
    {.name = "format",
     .value = "NAME",
     .help = "as they would be in this layout",
     .fallback = "qplan"},
    {.name = "select",
     .value = "all|linear",
     .help = "which tensors are measured, as quantize\nselects them",
     .fallback = "that of the layout"},
    {.name = "exclude",
     .value = "GLOB",
     .repeat = true,
     .help = "leave out tensors that match; wins over --include"},
    {.name = "indivisible",
     .value = "error|keep|ragged",
     .help = "what to do when a group does not divide the last axis:\n"
             "refuse if no candidate fits, leave the candidate out, or\n"
             "make the last group shorter",
     .fallback = "keep"},
};

static const struct arg_group sensitivity_options = {
    "Sensitivity", sensitivity_rows, sizeof sensitivity_rows / sizeof sensitivity_rows[0]};

static const struct arg_group *const groups[] = {
    &report_options,
    &sensitivity_options,
    &plan_calibration_options,
    &task_device_options,
    &task_machine_options,
    &cli_general_options,
    NULL,
};

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
    static const char *const of_models[] = {"against", "tensors",           "include",
                                            "fail-if", "gate-min-elements", "json"};
    for (size_t i = 0; i < sizeof of_models / sizeof of_models[0]; i++)
        if (args_has(args, of_models[i]))
            return cli_fail(err, QPLAN_ERR_INVALID, path,
                            "--%s needs a checkpoint: expected safetensors, found an imatrix",
                            of_models[i]);
    return qplan_importance_write_text(path, &cli_signal, cli_write_stdout, NULL, err);
}

/* ---- Sensitivity ------------------------------------------------------------------------------*/

/* What goes with --sensitivity alone, and what does not. */
static enum qplan_status check_sensitivity(const struct args *args, struct qplan_error *err)
{
    static const char *const needed_by[] = {"candidates",
                                            "format",
                                            "select",
                                            "exclude",
                                            "indivisible",
                                            "calibrate",
                                            "importance-missing",
                                            "hessian-damp",
                                            "positive-scales"};
    static const char *const weights[] = {"importance", "hessian"};
    static const char *const refused[] = {"against", "fail-if", "gate-min-elements"};
    char flag[CLI_SHOWN];
    if (args_has(args, "sensitivity")) {
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
            if (args_has(args, refused[i]))
                return cli_fail(err, QPLAN_ERR_USAGE, "--sensitivity",
                                "cannot be combined with --%s", refused[i]);
        return QPLAN_OK;
    }
    for (size_t i = 0; i < sizeof needed_by / sizeof needed_by[0]; i++) {
        (void)snprintf(flag, sizeof flag, "--%s", needed_by[i]);
        if (args_has(args, needed_by[i]))
            return cli_fail(err, QPLAN_ERR_USAGE, flag, "needs --sensitivity");
    }
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        (void)snprintf(flag, sizeof flag, "--%s", weights[i]);
        if (args_has(args, weights[i]) && !args_has(args, "against"))
            return cli_fail(err, QPLAN_ERR_USAGE, flag, "needs --against or --sensitivity");
    }
    return QPLAN_OK;
}

static enum qplan_status write_sensitivity(const struct inspection *in,
                                           const struct qplan_sensitivity *sensitivity,
                                           struct qplan_error *err)
{
    const enum qplan_status status =
        in->task.json ? qplan_sensitivity_write_json(sensitivity, cli_write_stdout, NULL, err)
                      : qplan_sensitivity_write_text(sensitivity, args_has(in->args, "tensors"),
                                                     cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "sensitivity", err);
}

static enum qplan_status show_sensitivity(struct inspection *in, const char *path,
                                          struct qplan_error *err)
{
    const char *candidates = args_value(in->args, "candidates");
    const struct qplan_budget budget = {.candidates = candidates ? candidates : CANDIDATES};
    struct qplan_plan_options plan_options = {.indivisible = QPLAN_INDIVISIBLE_KEEP};
    struct qplan_sensitivity *sensitivity;
    CLI_TRY(plan_args_calibration(&plan_options, in->args, err));
    CLI_TRY(plan_args_format(in->args, &plan_options.format, err));
    CLI_TRY(plan_args_selection(&plan_options, in->args, err));
    CLI_TRY(qplan_checkpoint_open(&in->file, path, err));
    CLI_TRY(qplan_checkpoint_decode(in->file, err));
    enum qplan_status status = qplan_sensitivity_measure(&sensitivity, in->file, &plan_options,
                                                         &budget, &in->task.run, err);
    progress_end(&in->task.progress);
    if (status == QPLAN_OK)
        status = write_sensitivity(in, sensitivity, err);
    qplan_sensitivity_free(sensitivity);
    return status;
}

/* ---- The command ------------------------------------------------------------------------------*/

static enum qplan_status run_all(struct inspection *in, struct qplan_error *err)
{
    const char *path;
    CLI_TRY(task_begin(&in->task, in->args, err));
    CLI_TRY(check_sensitivity(in->args, err));
    CLI_TRY(task_read_gates(&in->task, in->args, err));
    CLI_TRY(task_model_path(in->args, 0, "FILE", &path, err));
    if (args_has(in->args, "sensitivity"))
        return show_sensitivity(in, path, err);
    const enum qplan_status opened = open_files(in, err);
    if (opened == QPLAN_ERR_INVALID && !in->file && qplan_importance_is_imatrix(path, &cli_signal))
        return show_imatrix(in->args, path, err);
    CLI_TRY(cli_check_signal(err));
    CLI_TRY(opened);
    struct qplan_inspect_options inspect_options = {
        .against = in->source,
        .gates = task_gates(&in->task),
        .n_gates = in->task.n_gates,
        .hessian = args_value(in->args, "hessian"),
    };
    inspect_options.n_importance = args_values(in->args, "importance", &inspect_options.importance);
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
                "  qplan inspect --json model.int8.safetensors | jq .totals\n"
                "  qplan inspect --sensitivity --candidates int4:g32,int8:c0 model.safetensors\n",
    .groups = groups,
    .run = run,
};
