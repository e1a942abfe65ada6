/*
 * cmd_verify.c - qplan verify: the proof that a file is what its source and its stored parameters
 * give. The answer is the exit code; the report says the rest.
 */
#include "plan_args.h"
#include "task.h"

#include <inttypes.h>
#include <stdio.h>

static const struct arg_option proof_rows[] = {
    {.name = "exact", .help = "compute every code again too, and compare byte for byte"},
    {.name = "importance",
     .value = "FILE",
     .repeat = true,
     .help = "measure errors weighted by this too; with --exact: the\n"
             "importance that FILE was made with"},
    {.name = "hessian",
     .value = "FILE",
     .help =
         "likewise by the diagonals of these; with --exact: the\nHessians that it was made with"},
    {.name = "hessian-damp",
     .value = "X",
     .help = "with --exact: what was added to their diagonals",
     .fallback = "that of FILE, or 0.01"},
    {.name = "allow-unproven",
     .help = "only measure codes that are not provable without --exact: those\n"
             "that were rounded by a Hessian; and those of other tools that\n"
             "are not the nearest"},
    {.name = "allow-unquantized", .help = "FILE may be a mere copy, with nothing quantized in it"},
};

static const struct arg_group proof_options = {"Proof", proof_rows,
                                               sizeof proof_rows / sizeof proof_rows[0]};

static const struct arg_option options[] = {
    {.name = "fail-if",
     .value = "GATE",
     .repeat = true,
     .help = "exit 1 if this is true too, as in 'sqnr_db<30'"},
    {.name = "gate-min-elements",
     .value = "N",
     .help = "gates of sqnr_db and cosine without a scope skip smaller\ntensors, unless all are",
     .fallback = "4096"},
};

static const struct arg_group gate_options = {"Gates", options, 2};

static const struct arg_group *const groups[] = {&proof_options,       &gate_options,
                                                 &task_device_options, &task_machine_options,
                                                 &cli_general_options, NULL};

struct verification {
    const struct args *args;
    struct task task;
    struct qplan_inspect_options prove;
    const char *file_path, *source_path;
    struct qplan_checkpoint *file, *source;
    struct qplan_report *report;
};

static enum qplan_status read_data(struct verification *v, struct qplan_error *err)
{
    struct qplan_inspect_options *prove = &v->prove;
    prove->exact = args_has(v->args, "exact");
    prove->n_importance = args_values(v->args, "importance", &prove->importance);
    CLI_TRY(plan_args_hessian(v->args, &prove->hessian, &prove->hessian_damp, err));
    return prove->exact || !args_has(v->args, "hessian-damp")
               ? QPLAN_OK
               : cli_fail(err, QPLAN_ERR_USAGE, "--hessian-damp", "needs --exact");
}

static enum qplan_status read_options(struct verification *v, struct qplan_error *err)
{
    CLI_TRY(task_begin(&v->task, v->args, err));
    CLI_TRY(task_read_gates(&v->task, v->args, err));
    CLI_TRY(task_model_path(v->args, 0, "FILE", &v->file_path, err));
    CLI_TRY(read_data(v, err));
    return task_model_path(v->args, 1, "SOURCE", &v->source_path, err);
}

static void summary(const struct verification *v)
{
    const struct qplan_totals *totals = qplan_report_totals(v->report);
    char file[3 * CLI_SHOWN], source[3 * CLI_SHOWN];
    char unproven[64] = "";
    if (totals->unproven)
        (void)snprintf(unproven, sizeof unproven, ", %" PRIu64 " not proven", totals->unproven);
    task_summary(&v->task, "%s: %s against %s, %" PRIu64 " quantized, %" PRIu64 " kept%s",
                 cli_escape(file, sizeof file, v->file_path),
                 totals->unproven ? "measured" : "proven",
                 cli_escape(source, sizeof source, v->source_path), totals->quantized, totals->kept,
                 unproven);
}

static enum qplan_status run_all(struct verification *v, struct qplan_error *err)
{
    CLI_TRY(read_options(v, err));
    CLI_TRY(qplan_checkpoint_open(&v->file, v->file_path, err));
    CLI_TRY(qplan_checkpoint_open(&v->source, v->source_path, err));
    CLI_TRY(qplan_checkpoint_decode(v->source, err));
    v->prove.against = v->source;
    v->prove.prove = true;
    v->prove.allow_unproven = args_has(v->args, "allow-unproven");
    v->prove.allow_unquantized = args_has(v->args, "allow-unquantized");
    v->prove.gates = task_gates(&v->task);
    v->prove.n_gates = v->task.n_gates;
    enum qplan_status status = qplan_inspect(&v->report, v->file, &v->prove, &v->task.run, err);
    bool proven = status == QPLAN_OK;
    status = task_show(&v->task, TASK_REPORT_PATTERNS, status, v->report, err);
    if (proven)
        summary(v);
    return status;
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    struct verification v = {.args = args};
    enum qplan_status status = run_all(&v, err);
    qplan_report_free(v.report);
    qplan_checkpoint_close(v.source);
    qplan_checkpoint_close(v.file);
    task_end(&v.task);
    return status;
}

const struct command cli_verify = {
    .name = "verify",
    .operands = "FILE SOURCE",
    .summary = "prove a quantized file against its source",
    .about = "Proves FILE against SOURCE, the checkpoint that it was made from: every element of\n"
             "every quantized tensor lies within its error bound, its scales and zero points are\n"
             "those that SOURCE gives, every other tensor is identical byte for byte, and none is\n"
             "missing or left over. Exit 0 if so, 1 if not, and if nothing is quantized.\n",
    .examples = "  qplan verify model.int8.safetensors model.safetensors\n"
                "  qplan verify --quiet --fail-if 'sqnr_db<30' model.int8.safetensors "
                "model.safetensors\n",
    .groups = groups,
    .run = run,
};
