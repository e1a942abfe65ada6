/*
 * cmd_lint.c - qplan lint: whether engines will load a quantized folder, and as it was meant.
 * Writes nothing but its findings.
 */
#include "task.h"
#include "values.h"

#include <stdio.h>

static const struct arg_option options[] = {
    {.name = "for",
     .value = "vllm|sglang|transformers|mlx|comfyui",
     .help = "look at the limits of this engine too"},
};

static const struct arg_group engine_options = {"Engine", options,
                                                sizeof options / sizeof options[0]};

static const struct arg_group *const groups[] = {&engine_options, &cli_general_options, NULL};

/* On stderr: how much was found, of which layout. */
static void summary(const char *path, size_t n_errors, size_t n_warnings)
{
    char shown[4 * CLI_SHOWN];
    fprintf(stderr, "%s: %zu error%s, %zu warning%s\n", cli_escape(shown, sizeof shown, path),
            n_errors, n_errors == 1 ? "" : "s", n_warnings, n_warnings == 1 ? "" : "s");
}

static enum qplan_status show(const struct args *args, const char *path,
                              const struct qplan_findings *findings, struct qplan_error *err)
{
    const size_t n_errors = qplan_findings_count(findings, true);
    enum qplan_status status =
        args_has(args, "json") ? qplan_findings_write_json(findings, cli_write_stdout, NULL, err)
                               : qplan_findings_write_text(findings, cli_write_stdout, NULL, err);
    CLI_TRY(cli_finish_stdout(status, "findings", err));
    if (!args_has(args, "quiet"))
        summary(path, n_errors, qplan_findings_count(findings, false));
    return n_errors ? QPLAN_ERR_PROOF : QPLAN_OK;
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    const char *path;
    size_t place;
    struct qplan_findings *findings = NULL;
    const struct qplan_lint_options how = {.engine = args_value(args, "for"),
                                           .cancel = &cli_signal};
    CLI_TRY(value_choice(args, "for", "engine", &place, err));
    CLI_TRY(task_model_path(args, 0, "FOLDER", &path, err));
    CLI_TRY(qplan_lint(&findings, path, &how, err));
    const enum qplan_status status = show(args, path, findings, err);
    qplan_findings_free(findings);
    return status;
}

const struct command cli_lint = {
    .name = "lint",
    .operands = "FOLDER",
    .summary = "check a quantized folder as engines do",
    .about = "Checks the quantized checkpoint FOLDER as those will who load it: names, types and\n"
             "shapes, config.json against tensors, the index against shards, tensors that are\n"
             "loaded as one, scales and zero points, what is left over. 'qplan help rules' lists\n"
             "what it finds. Any error is exit 1; warnings alone are exit 0.\n",
    .examples = "  qplan lint Llama-3-8B-w4a16\n"
                "  qplan lint --for vllm --json Llama-3-8B-w4a16 | jq -r '.findings[].message'\n",
    .groups = groups,
    .run = run,
};
