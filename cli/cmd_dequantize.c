/*
 * cmd_dequantize.c - qplan dequantize: back to a plain checkpoint.
 */
#include "task.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct arg_option options[] = {
    {.name = "output",
     .letter = "o",
     .value = "PATH",
     .help = "the new file or folder",
     .fallback = "STEM.dequant.safetensors or NAME-dequant,\nbeside FILE"},
    {.name = "force", .letter = "f", .help = "replace an existing output"},
    {.name = "copy",
     .value = "GLOB",
     .repeat = true,
     .help = "copy files of the folder too that would be left out,\nas '*.py'"},
    {.name = "dtype",
     .value = "f32|f16|bf16",
     .help = "type of quantized tensors",
     .fallback = "that of the source; in engine layouts\nthat of config.json, else the decoder's"},
};

static const struct arg_group output_options = {"Output", options,
                                                sizeof options / sizeof options[0]};

static const struct arg_group *const groups[] = {&output_options, &task_device_options,
                                                 &task_machine_options, &cli_general_options, NULL};

struct dequantize {
    const struct args *args;
    struct task task;
    const char *file_path;
    const char *output;
    enum qplan_dtype dtype;
    struct qplan_checkpoint *file;
    struct qplan_report *report;
    char *default_path;
};

/* STEM.dequant.safetensors beside a file, NAME-dequant beside a folder. */
static char *default_output(const struct qplan_checkpoint *file)
{
    static const char extension[] = ".safetensors";
    const char *path = qplan_checkpoint_path(file);
    const bool is_folder = qplan_checkpoint_is_folder(file);
    const char *added = is_folder ? "-dequant" : ".dequant.safetensors";
    size_t n = strlen(path), n_extension = sizeof extension - 1;
    if (!is_folder && n >= n_extension && strcmp(path + n - n_extension, extension) == 0)
        n -= n_extension;
    char *out = malloc(n + strlen(added) + 1);
    if (out)
        (void)snprintf(out, n + strlen(added) + 1, "%.*s%s", (int)n, path, added);
    return out;
}

static enum qplan_status read_options(struct dequantize *d, struct qplan_error *err)
{
    CLI_TRY(task_begin(&d->task, d->args, err));
    d->task.run.force = args_has(d->args, "force");
    d->task.run.n_copy = args_values(d->args, "copy", &d->task.run.copy);
    size_t place;
    CLI_TRY(value_choice(d->args, "dtype", "dtype", &place, err));
    if (args_has(d->args, "dtype"))
        (void)qplan_dtype_parse(args_value(d->args, "dtype"), &d->dtype);
    CLI_TRY(task_model_path(d->args, 0, "FILE", &d->file_path, err));
    return task_output_path(d->args, &d->output, err);
}

static void summary(const struct dequantize *d)
{
    const struct qplan_totals *totals = qplan_report_totals(d->report);
    char path[4 * CLI_SHOWN], size[CLI_NUMBER], source[CLI_NUMBER];
    task_summary(
        &d->task, "%s: %s from %s, %" PRIu64 " dequantized, %" PRIu64 " kept",
        cli_escape(path, sizeof path, d->output), cli_format_bytes(size, totals->file_bytes),
        cli_format_bytes(source, qplan_checkpoint_bytes(d->file)), totals->quantized, totals->kept);
}

static enum qplan_status run_all(struct dequantize *d, struct qplan_error *err)
{
    CLI_TRY(read_options(d, err));
    CLI_TRY(qplan_checkpoint_open(&d->file, d->file_path, err));
    if (!d->output)
        d->output = d->default_path = default_output(d->file);
    if (!d->output)
        return cli_fail_memory(err);
    const enum qplan_dtype *dtype = args_has(d->args, "dtype") ? &d->dtype : NULL;
    enum qplan_status status =
        qplan_dequantize(&d->report, d->file, d->output, dtype, &d->task.run, err);
    bool written = status == QPLAN_OK;
    status = task_show(&d->task, TASK_REPORT_JSON_ONLY, status, d->report, err);
    if (written)
        summary(d);
    return status;
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct dequantize d = {.args = args};
    enum qplan_status status = run_all(&d, err);
    free(d.default_path);
    qplan_report_free(d.report);
    qplan_checkpoint_close(d.file);
    task_end(&d.task);
    return status;
}

const struct command cli_dequantize = {
    .name = "dequantize",
    .operands = "FILE",
    .summary = "turn a quantized checkpoint back into a plain one",
    .about =
        "Writes the plain checkpoint that FILE, a quantized file or folder of qplan or another\n"
        "tool, stands for: with the names and the shapes of the source.\n",
    .examples = "  qplan dequantize model.int8.safetensors\n"
                "  qplan dequantize --dtype f32 -o plain.safetensors model.int8.safetensors\n",
    .groups = groups,
    .run = run,
};
