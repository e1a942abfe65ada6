/*
 * cmd_op.c - qplan op: the operators of the library, listed, described and run on files.
 */
#include "task.h"
#include "values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct arg_option options[] = {
    {.name = "set",
     .value = "KEY=VALUE",
     .repeat = true,
     .help = "a field of the operator; 'op describe NAME' lists them"},
    {.name = "output", .letter = "o", .value = "PATH", .help = "the new file of op run"},
    {.name = "force", .letter = "f", .help = "replace an existing output"},
};

static const struct arg_group run_options = {"Run", options, sizeof options / sizeof options[0]};

static const struct arg_option machine[] = {
    {.name = "threads",
     .letter = "T",
     .value = "N",
     .help = "worker threads, 1 to 1024",
     .fallback = "the CPUs that this process may use"},
};

static const struct arg_group machine_options = {"Machine", machine,
                                                 sizeof machine / sizeof machine[0]};

static const struct arg_group *const groups[] = {&run_options, &task_device_options,
                                                 &machine_options, &cli_general_options, NULL};

/* ---- Options ----------------------------------------------------------------------------------*/

static enum qplan_status read_isa(enum qplan_isa *out, struct qplan_error *err)
{
    const char *isa = getenv("QPLAN_CPU");
    *out = QPLAN_ISA_BEST;
    if (!isa || !*isa)
        return QPLAN_OK;
    enum qplan_status status = qplan_isa_parse(isa, out, err);
    if (status != QPLAN_OK)
        (void)snprintf(err->subject, sizeof err->subject, "QPLAN_CPU");
    return status;
}

static enum qplan_status read_preference(struct qplan_op_preference *out, const struct args *args,
                                         struct qplan_error *err)
{
    int64_t threads = 0;
    CLI_TRY(task_open_device(&out->device, args, err));
    CLI_TRY(value_whole(args, "threads", (struct whole_range){1, 1024}, &threads, err));
    out->threads = (unsigned)threads;
    return read_isa(&out->isa, err);
}

/* KEY=VALUE: the key is copied, the value is the rest of the word. */
static enum qplan_status read_field(struct qplan_op_field *out, const char *word,
                                    struct qplan_error *err)
{
    char shown[CLI_SHOWN];
    size_t n = strcspn(word, "=");
    if (n == 0 || word[n] != '=')
        return cli_fail(err, QPLAN_ERR_USAGE, "--set", "expected KEY=VALUE, found '%s'",
                        cli_escape(shown, sizeof shown, word));
    char *name = strndup(word, n);
    if (!name)
        return cli_fail_memory(err);
    *out = (struct qplan_op_field){.name = name, .text = word + n + 1};
    return QPLAN_OK;
}

/* ---- op run -----------------------------------------------------------------------------------*/

static void print_counts(const struct qplan_op_result *result)
{
    const struct {
        const char *what;
        uint64_t n;
    } counts[] = {{"nonfinite", result->counts.nonfinite},
                  {"skipped", result->counts.skipped},
                  {"overflow", result->counts.overflow}};
    const char *joint = ":";
    fprintf(stderr, "%s", result->sku.op);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i].n == 0)
            continue;
        fprintf(stderr, "%s %" PRIu64 " %s", joint, counts[i].n, counts[i].what);
        joint = ",";
    }
    fprintf(stderr, "%s %s %s\n", joint, qplan_backend_name(result->sku.backend), result->sku.arch);
}

static enum qplan_status run_file(const struct args *args, struct qplan_op_file *file,
                                  struct qplan_error *err)
{
    struct qplan_op_result result;
    CLI_TRY(qplan_op_run_file(&result, file, err));
    if (!args_has(args, "json")) {
        if (!args_has(args, "quiet"))
            print_counts(&result);
        return QPLAN_OK;
    }
    enum qplan_status status = qplan_op_result_write_json(&result, cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "result", err);
}

static enum qplan_status run_with_fields(const struct args *args, struct qplan_op_file *file,
                                         struct qplan_op_field *fields, struct qplan_error *err)
{
    const char *const *words;
    size_t n = args_values(args, "set", &words);
    for (; file->n_fields < n; file->n_fields++)
        CLI_TRY(read_field(&fields[file->n_fields], words[file->n_fields], err));
    file->fields = fields;
    CLI_TRY(task_model_path(args, 2, "IN", &file->in_path, err));
    CLI_TRY(task_output_path(args, &file->out_path, err));
    if (!file->out_path)
        return cli_fail(err, QPLAN_ERR_USAGE, "--output",
                        "required: expected the path of the "
                        "output");
    return run_file(args, file, err);
}

static enum qplan_status op_run(const struct args *args, const char *name, struct qplan_error *err)
{
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    struct qplan_op_file file = {.op = name,
                                 .force = args_has(args, "force"),
                                 .preference = &preference,
                                 .cancel = &cli_signal};
    const char *const *words;
    size_t n = args_values(args, "set", &words);
    struct qplan_op_field *fields = calloc(n + 1, sizeof *fields);
    if (!fields)
        return cli_fail_memory(err);
    enum qplan_status status = read_preference(&preference, args, err);
    if (status == QPLAN_OK)
        status = run_with_fields(args, &file, fields, err);
    for (size_t i = 0; i < n; i++)
        free((char *)(uintptr_t)fields[i].name);
    free(fields);
    qplan_device_close(preference.device);
    return status;
}

/* ---- op list, op describe ---------------------------------------------------------------------*/

static enum qplan_status op_list(const struct args *args, const char *name, struct qplan_error *err)
{
    enum qplan_isa isa;
    (void)name;
    CLI_TRY(read_isa(&isa, err));
    enum qplan_status status = args_has(args, "json")
                                   ? qplan_op_list_write_json(isa, cli_write_stdout, NULL, err)
                                   : qplan_op_list_write_text(isa, cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "list", err);
}

static enum qplan_status op_describe(const struct args *args, const char *name,
                                     struct qplan_error *err)
{
    const struct qplan_op_info *info = qplan_op_find(name);
    enum qplan_isa isa;
    (void)args;
    CLI_TRY(read_isa(&isa, err));
    if (!info) {
        char shown[CLI_SHOWN];
        (void)cli_fail(err, QPLAN_ERR_USAGE, "op", "unknown operator '%s'",
                       cli_escape(shown, sizeof shown, name));
        err->advice = QPLAN_ADVICE_OPERATORS;
        return QPLAN_ERR_USAGE;
    }
    enum qplan_status status = qplan_op_describe_write(info, isa, cli_write_stdout, NULL, err);
    return cli_finish_stdout(status, "description", err);
}

/* ---- Which one --------------------------------------------------------------------------------*/

static const struct action {
    const char *name, *operands;
    size_t n_operands;
    const char *allowed; /* options besides --help, each between blanks */
    enum qplan_status (*run)(const struct args *args, const char *name, struct qplan_error *err);
} actions[] = {
    {"list", "none", 1, " json quiet ", op_list},
    {"describe", "NAME", 2, " quiet ", op_describe},
    {"run", "NAME IN", 3, " set output force device device-memory threads json quiet ", op_run},
};

/* An option that the action has no use for is refused, not ignored. */
static enum qplan_status check_options(const struct action *action, const struct args *args,
                                       struct qplan_error *err)
{
    for (const struct arg_group *const *group = groups; *group; group++) {
        for (size_t i = 0; i < (*group)->n_options; i++) {
            const char *name = (*group)->options[i].name;
            char word[CLI_SHOWN], flag[CLI_SHOWN];
            (void)snprintf(word, sizeof word, " %s ", name);
            (void)snprintf(flag, sizeof flag, "--%s", name);
            if (args_has(args, name) && !strstr(action->allowed, word))
                return cli_fail(err, QPLAN_ERR_USAGE, flag, "op %s does not have it", action->name);
        }
    }
    return QPLAN_OK;
}

static enum qplan_status run(const struct args *args, struct qplan_error *err)
{
    const char *const *operands;
    const size_t n = args_operands(args, &operands);
    char shown[CLI_SHOWN];
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        const struct action *action = &actions[i];
        if (strcmp(operands[0], action->name) != 0)
            continue;
        if (n != action->n_operands)
            return cli_fail(err, QPLAN_ERR_USAGE, "op", "%s: expected operands: %s, found %zu",
                            action->name, action->operands, n - 1);
        CLI_TRY(check_options(action, args, err));
        return action->run(args, n > 1 ? operands[1] : NULL, err);
    }
    return cli_fail(err, QPLAN_ERR_USAGE, "op", "expected list, describe or run, found '%s'",
                    cli_escape(shown, sizeof shown, operands[0]));
}

const struct command cli_op = {
    .name = "op",
    .operands = "ACTION [NAME] [IN]",
    .summary = "for developers: list, describe and run the operators",
    .about =
        "The operators of the library, for those who build on it or check it:\n"
        "\n"
        "  op list              every operator, its kernels, and which one this machine picks\n"
        "  op describe NAME     formula, fields, tensors, errors\n"
        "  op run NAME IN       run it: the tensors of IN are the inputs, by name, and the file\n"
        "                       --output gets the outputs. Tensors of IN that begin with\n"
        "                       'expect.' are not looked at.\n",
    .examples = "  qplan op describe quantize_per_group\n"
                "  qplan op run quantize_per_group --set group_size=128 -o out.safetensors "
                "in.safetensors\n",
    .groups = groups,
    .run = run,
};
