/*
 * cmd_quantize.c - qplan quantize: plan, run, write. A dry run stops behind the plan.
 */
#include "planning.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const struct arg_option options[] = {
    {.name = "output",
     .letter = "o",
     .value = "PATH",
     .help = "the new file or folder",
     .fallback = "beside MODEL: STEM.SCHEME.safetensors;\nof a folder NAME-PRESET or NAME-SCHEME"},
};

static const struct arg_group output_options = {"Output", options, 1};

static const struct arg_group *const groups[] = {
    &plan_scheme_options, &plan_calibration_options,
    &plan_budget_options, &plan_selection_options,
    &output_options,      &plan_output_options,
    &task_device_options, &task_machine_options,
    &cli_general_options, NULL,
};

/* Everything that a run holds, released in one place. */
struct quantize {
    struct planning p;
    const char *output; /* NULL until the plan gives the default */
    struct qplan_report *report;
    char *default_path;
};

static enum qplan_status show_plan(const struct quantize *q, struct qplan_error *err)
{
    planning_warn(&q->p);
    enum qplan_status status = q->p.task.json
                                   ? qplan_plan_write_json(q->p.plan, cli_write_stdout, NULL, err)
                                   : qplan_plan_write_text(q->p.plan, cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "plan", err);
}

static void summary(const struct quantize *q)
{
    const struct qplan_totals *totals = qplan_report_totals(q->report);
    char path[4 * CLI_SHOWN], size[CLI_NUMBER], source[CLI_NUMBER];
    char ratio[CLI_NUMBER], bpw[CLI_NUMBER], ratios[5 * CLI_NUMBER] = "";
    char decoded[2 * CLI_NUMBER] = "", values[CLI_NUMBER];
    if (qplan_checkpoint_is_decoded(q->p.model)) /* the ratio is to these bytes */
        (void)snprintf(decoded, sizeof decoded, "%s decoded, ",
                       cli_format_bytes(values, totals->source_bytes));
    if (totals->ratio.known && totals->bpw.known)
        (void)snprintf(ratios, sizeof ratios, " (%s%sx, %s bpw)", decoded,
                       cli_format_number(ratio, totals->ratio.value),
                       cli_format_number(bpw, totals->bpw.value));
    task_summary(&q->p.task, "%s: %s from %s%s, %" PRIu64 " quantized, %" PRIu64 " kept",
                 cli_escape(path, sizeof path, q->output),
                 cli_format_bytes(size, totals->file_bytes),
                 cli_format_bytes(source, qplan_checkpoint_bytes(q->p.model)), ratios,
                 totals->quantized, totals->kept);
}

static enum qplan_status execute(struct quantize *q, struct qplan_error *err)
{
    if (!q->output) {
        q->default_path =
            task_path_beside(qplan_checkpoint_path(q->p.model), qplan_plan_output_name(q->p.plan));
        if (!q->default_path)
            return cli_fail_memory(err);
        q->output = q->default_path;
    }
    struct qplan_quantize_options run_options = {
        .out_path = q->output,
        .verify = args_has(q->p.args, "verify"),
        .gates = task_gates(&q->p.task),
        .n_gates = q->p.task.n_gates,
    };
    enum qplan_status status =
        qplan_quantize(&q->report, q->p.plan, &run_options, &q->p.task.run, err);
    bool written = status == QPLAN_OK;
    status = task_show(&q->p.task, TASK_REPORT_JSON_ONLY, status, q->report, err);
    if (written)
        summary(q);
    return status;
}

static enum qplan_status run_all(struct quantize *q, struct qplan_error *err)
{
    CLI_TRY(planning_read(&q->p, err));
    CLI_TRY(task_output_path(q->p.args, &q->output, err));
    q->p.task.run.force = args_has(q->p.args, "force");
    CLI_TRY(planning_make(&q->p, err));
    return args_has(q->p.args, "dry-run") ? show_plan(q, err) : execute(q, err);
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct quantize q = {.p.args = args};
    enum qplan_status status = run_all(&q, err);
    free(q.default_path);
    qplan_report_free(q.report);
    planning_end(&q.p);
    return status;
}

const struct command cli_quantize = {
    .name = "quantize",
    .operands = "MODEL",
    .summary = "quantize a checkpoint",
    .about =
        "Quantizes the weights of MODEL, a safetensors file or a folder, and writes a new one\n"
        "with the codes, their scales and their zero points. Everything else is copied byte for\n"
        "byte. The new file or folder appears complete or not at all.\n",
    .examples =
        "  qplan quantize model.safetensors\n"
        "  qplan quantize --dtype int4 --per-group 64 --exclude 'lm_head*' model.safetensors\n"
        "  qplan quantize --preset w4a16 --verify Llama-3-8B\n"
        "  qplan quantize --verify --fail-if 'sqnr_db<30' -o small.safetensors "
        "model.safetensors\n"
        "  qplan plan model.safetensors | jq '...' | qplan quantize --plan - "
        "model.safetensors\n",
    .groups = groups,
    .run = run,
};
