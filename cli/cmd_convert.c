/*
 * cmd_convert.c - qplan convert: the same codes and parameters in another layout.
 */
#include "plan_args.h"
#include "task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct arg_option options[] = {
    {.name = "format",
     .value = "NAME",
     .help = "the layout of the output: 'qplan help formats' lists\nthem"},
    {.name = "output",
     .letter = "o",
     .value = "PATH",
     .help = "the new folder or file",
     .fallback = "NAME-FORMAT or STEM.FORMAT.safetensors,\nbeside FOLDER"},
    {.name = "force", .letter = "f", .help = "replace an existing output"},
    {.name = "copy",
     .value = "GLOB",
     .repeat = true,
     .help = "copy files of the folder too that would be left out,\nas '*.py'"},
};

static const struct arg_group output_options = {"Output", options,
                                                sizeof options / sizeof options[0]};

static const struct arg_group *const groups[] = {&output_options, &task_machine_options,
                                                 &cli_general_options, NULL};

struct conversion {
    const struct args *args;
    struct task task;
    const char *path, *format, *output;
    struct qplan_checkpoint *file;
    struct qplan_report *report;
    char *default_path;
};

/* NAME-FORMAT beside a folder, STEM.FORMAT.safetensors beside a file. */
static char *default_output(const struct conversion *c)
{
    static const char extension[] = ".safetensors";
    const char *path = qplan_checkpoint_path(c->file);
    const bool is_folder = qplan_checkpoint_is_folder(c->file);
    size_t n = strlen(path);
    const size_t n_extension = sizeof extension - 1;
    if (!is_folder && n >= n_extension && strcmp(path + n - n_extension, extension) == 0)
        n -= n_extension;
    const size_t n_out = n + strlen(c->format) + sizeof extension + 1;
    char *out = malloc(n_out);
    if (out)
        (void)snprintf(out, n_out, "%.*s%c%s%s", (int)n, path, is_folder ? '-' : '.', c->format,
                       is_folder ? "" : extension);
    return out;
}

static enum qplan_status read_options(struct conversion *c, struct qplan_error *err)
{
    CLI_TRY(task_begin(&c->task, c->args, err));
    c->task.run.force = args_has(c->args, "force");
    c->task.run.n_copy = args_values(c->args, "copy", &c->task.run.copy);
    CLI_TRY(plan_args_format(c->args, &c->format, err));
    CLI_TRY(task_model_path(c->args, 0, "FOLDER", &c->path, err));
    CLI_TRY(task_output_path(c->args, &c->output, err));
    return c->format
               ? QPLAN_OK
               : cli_fail(err, QPLAN_ERR_USAGE, "convert", "missing option: expected --format");
}

static void summary(const struct conversion *c)
{
    const struct qplan_totals *totals = qplan_report_totals(c->report);
    char path[4 * CLI_SHOWN], size[CLI_NUMBER], source[CLI_NUMBER];
    task_summary(
        &c->task, "%s: %s from %s, %" PRIu64 " converted, %" PRIu64 " kept",
        cli_escape(path, sizeof path, c->output), cli_format_bytes(size, totals->file_bytes),
        cli_format_bytes(source, qplan_checkpoint_bytes(c->file)), totals->quantized, totals->kept);
}

static enum qplan_status run_all(struct conversion *c, struct qplan_error *err)
{
    CLI_TRY(read_options(c, err));
    CLI_TRY(qplan_checkpoint_open(&c->file, c->path, err));
    if (!c->output)
        c->output = c->default_path = default_output(c);
    if (!c->output)
        return cli_fail_memory(err);
    enum qplan_status status =
        qplan_convert(&c->report, c->file, c->format, c->output, &c->task.run, err);
    const bool written = status == QPLAN_OK;
    status = task_show(&c->task, TASK_REPORT_JSON_ONLY, status, c->report, err);
    if (written)
        summary(c);
    return status;
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct conversion c = {.args = args};
    enum qplan_status status = run_all(&c, err);
    free(c.default_path);
    qplan_report_free(c.report);
    qplan_checkpoint_close(c.file);
    task_end(&c.task);
    return status;
}

const struct command cli_convert = {
    .name = "convert",
    .operands = "FOLDER",
    .summary = "store the same codes in another layout",
    .about =
        "Writes the codes and parameters of FOLDER, a quantized folder or file made by qplan or\n"
        "another tool, in another layout without loss. What the other layout cannot hold is\n"
        "refused, with the tensor. verify proves the result against the source, as it does the\n"
        "original.\n",
    .examples = "  qplan convert --format compressed-tensors Llama-3-8B-int4\n"
                "  qplan convert --format qplan -o plain.d Llama-3-8B-w4a16\n",
    .groups = groups,
    .run = run,
};
