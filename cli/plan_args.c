/*
 * plan_args.c - the meaning of the options of quantize and plan. The clashes come first: a command
 * line that contradicts itself is refused before anything is read.
 */
#include "plan_args.h"
#include "cli.h"
#include "values.h"

#include <stdio.h>
#include <string.h>

/* Of an element of any type. */
#define MOST_BITS 64

/* More added to a diagonal than this many times its mean leaves nothing of the rest. */
#define MOST_DAMP 1000

/* ---- House rules ------------------------------------------------------------------------------*/

static enum qplan_status clash(const char *a, const char *b, struct qplan_error *err)
{
    char flag[CLI_SHOWN];
    (void)snprintf(flag, sizeof flag, "--%s", a);
    return cli_fail(err, QPLAN_ERR_USAGE, flag, "cannot be combined with --%s", b);
}

static enum qplan_status check_pairs(const struct args *args, struct qplan_error *err)
{
    static const char *const pairs[][2] = {
        {"per-tensor", "per-channel"}, {"per-tensor", "per-group"}, {"per-tensor", "block"},
        {"per-channel", "per-group"},  {"per-channel", "block"},    {"per-group", "block"},
        {"symmetric", "asymmetric"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (args_has(args, pairs[i][0]) && args_has(args, pairs[i][1]))
            return clash(pairs[i][0], pairs[i][1], err);
    if (args_has(args, "axis") && !args_has(args, "per-channel"))
        return cli_fail(err, QPLAN_ERR_USAGE, "--axis", "needs --per-channel");
    return QPLAN_OK;
}

/* Whether an option names data that methods need, or says how to take them. */
static bool is_data_option(const char *name)
{
    return strcmp(name, "importance") == 0 || strncmp(name, "hessian", strlen("hessian")) == 0;
}

/* Refuses every option of the group, itself excepted, beside the option given. */
static enum qplan_status check_group(const struct args *args, const char *option,
                                     const struct arg_group *group, struct qplan_error *err)
{
    for (size_t i = 0; i < group->n_options; i++) {
        const char *name = group->options[i].name;
        const bool is_data = is_data_option(name); /* which a document cannot hold */
        if (strcmp(name, option) != 0 && !is_data && args_has(args, name))
            return clash(option, name, err);
    }
    return QPLAN_OK;
}

static enum qplan_status check_document(const struct args *args, struct qplan_error *err)
{
    CLI_TRY(check_group(args, "plan", &plan_scheme_options, err));
    CLI_TRY(check_group(args, "plan", &plan_calibration_options, err));
    CLI_TRY(check_group(args, "plan", &plan_budget_options, err));
    CLI_TRY(check_group(args, "plan", &plan_selection_options, err));
    static const char *const others[] = {"format",  "zero-point",     "activations", "arithmetic",
                                         "experts", "max-shard-size", "copy"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (args_has(args, others[i]))
            return clash("plan", others[i], err);
    return QPLAN_OK;
}

/* A target chooses the schemes, of candidates. */
static enum qplan_status check_target(const struct args *args, struct qplan_error *err)
{
    const bool has_size = args_has(args, "target-size");
    const char *target = has_size ? "target-size" : "target-bpw";
    if (has_size && args_has(args, "target-bpw"))
        return clash("target-bpw", "target-size", err);
    if (!args_has(args, target))
        return args_has(args, "candidates") ? cli_fail(err, QPLAN_ERR_USAGE, "--candidates",
                                                       "needs --target-bpw or --target-size")
                                            : QPLAN_OK;
    CLI_TRY(check_group(args, target, &plan_scheme_options, err));
    if (args_has(args, "rules"))
        return clash(target, "rules", err);
    if (args_has(args, "candidates"))
        return QPLAN_OK;
    char flag[CLI_SHOWN];
    (void)snprintf(flag, sizeof flag, "--%s", target);
    (void)cli_fail(err, QPLAN_ERR_USAGE, flag, "needs --candidates");
    cli_hint(err, "for example --candidates int4:g128,int4:g32,int8:c0,keep");
    return QPLAN_ERR_USAGE;
}

static enum qplan_status check_clashes(const struct args *args, struct qplan_error *err)
{
    if (args_has(args, "plan"))
        CLI_TRY(check_document(args, err));
    CLI_TRY(check_target(args, err));
    if (args_has(args, "preset"))
        CLI_TRY(check_group(args, "preset", &plan_scheme_options, err));
    if (args_has(args, "preset") && args_has(args, "format"))
        return clash("preset", "format", err);
    if (args_has(args, "preset") && args_has(args, "activations"))
        return clash("preset", "activations", err);
    if (args_has(args, "scheme"))
        CLI_TRY(check_group(args, "scheme", &plan_scheme_options, err));
    return check_pairs(args, err);
}

/* ---- The scheme -------------------------------------------------------------------------------*/

static enum qplan_status read_dtype(const struct args *args, const char *name,
                                    enum qplan_dtype *out, struct qplan_error *err)
{
    size_t place;
    struct qplan_scheme scheme;
    const char *text = args_value(args, name);
    const enum qplan_status status = value_choice(args, name, "dtype", &place, err);
    if (text && status == QPLAN_OK)
        (void)qplan_dtype_parse(text, out);
    else if (text && qplan_scheme_parse(&scheme, text, NULL) == QPLAN_OK)
        cli_hint(err, "--scheme %s", text);
    return status;
}

static enum qplan_status read_granularity(struct qplan_scheme *scheme, const struct args *args,
                                          struct qplan_error *err)
{
    int64_t axis = 0, group = 0;
    const struct whole_range axes = {-QPLAN_MAX_RANK, QPLAN_MAX_RANK - 1};
    CLI_TRY(value_whole(args, "axis", axes, &axis, err));
    CLI_TRY(value_whole(args, "per-group", (struct whole_range){1, VALUE_MAX_EXTENT}, &group, err));
    uint64_t rows = 0, cols = 0;
    CLI_TRY(value_block(args, "block", &rows, &cols, err));
    static const struct {
        const char *name;
        enum qplan_granularity granularity;
    } flags[] = {{"per-tensor", QPLAN_PER_TENSOR},
                 {"per-channel", QPLAN_PER_CHANNEL},
                 {"per-group", QPLAN_PER_GROUP},
                 {"block", QPLAN_PER_BLOCK}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (!args_has(args, flags[i].name))
            continue;
        scheme->granularity = flags[i].granularity;
        scheme->axis = (int32_t)axis;
        scheme->group = (uint64_t)group;
        scheme->block_rows = rows;
        scheme->block_cols = cols;
    }
    return QPLAN_OK;
}

static enum qplan_status fail_type(const char *option, const char *expected,
                                   const struct qplan_scheme *scheme, const char *format,
                                   const struct args *args, struct qplan_error *err)
{
    const char *dtype = qplan_dtype_name(scheme->dtype);
    return args_has(args, "dtype") || !format
               ? cli_fail(err, QPLAN_ERR_USAGE, option,
                          "cannot be combined with --dtype %s: expected %s", dtype, expected)
               : cli_fail(err, QPLAN_ERR_USAGE, option,
                          "cannot be combined with %s, the type of --format %s: expected %s", dtype,
                          format, expected);
}

/* Options that not all types have. */
static enum qplan_status check_type(const struct qplan_scheme *scheme, const char *format,
                                    const struct args *args, struct qplan_error *err)
{
    int32_t q_min, q_max;
    const bool is_integer = qplan_dtype_range(scheme->dtype, &q_min, &q_max);
    if (scheme->narrow && (!is_integer || !qplan_dtype_is_signed(scheme->dtype)))
        return fail_type("--narrow-range", is_integer ? "a signed type" : "a signed integer type",
                         scheme, format, args, err);
    if (scheme->asymmetric && !is_integer)
        return fail_type("--asymmetric", "an integer type", scheme, format, args, err);
    return QPLAN_OK;
}

/* Options change what is usual for a type or, where none is given, for the layout. */
static enum qplan_status read_scheme(struct qplan_scheme *scheme, const char *format,
                                     const struct args *args, struct qplan_error *err)
{
    if (args_has(args, "scheme"))
        return qplan_scheme_parse(scheme, args_value(args, "scheme"), err);
    enum qplan_dtype dtype = QPLAN_INT8;
    CLI_TRY(read_dtype(args, "dtype", &dtype, err));
    if (args_has(args, "dtype") || !format || !qplan_format_scheme(format, scheme))
        CLI_TRY(qplan_scheme_default(scheme, dtype, err));
    CLI_TRY(read_granularity(scheme, args, err));
    if (!format || strcmp(format, "qplan") == 0) /* layouts of engines have a type of their own */
        qplan_scheme_usual(scheme);
    CLI_TRY(read_dtype(args, "scale-dtype", &scheme->scale_dtype, err));
    scheme->scale_given = args_has(args, "scale-dtype");
    if (args_has(args, "symmetric") || args_has(args, "asymmetric"))
        scheme->asymmetric = args_has(args, "asymmetric");
    scheme->narrow = args_has(args, "narrow-range");
    return check_type(scheme, format, args, err);
}

/* ---- The rest ---------------------------------------------------------------------------------*/

/* A least size; 0 if it is not asked for. */
static enum qplan_status read_least(const struct args *args, const char *name, uint64_t *out,
                                    struct qplan_error *err)
{
    int64_t least = 0;
    CLI_TRY(value_whole(args, name, (struct whole_range){1, VALUE_MAX_EXTENT}, &least, err));
    *out = (uint64_t)least;
    return QPLAN_OK;
}

enum qplan_status plan_args_selection(struct qplan_plan_options *options, const struct args *args,
                                      struct qplan_error *err)
{
    size_t place = 0;
    CLI_TRY(value_choice(args, "select", "selection", &place, err));
    if (args_has(args, "select"))
        options->select = place ? QPLAN_SELECT_LINEAR : QPLAN_SELECT_ALL;
    options->n_include = args_values(args, "include", &options->include);
    options->n_exclude = args_values(args, "exclude", &options->exclude);
    place = options->indivisible;
    CLI_TRY(value_choice(args, "indivisible", "policy", &place, err));
    options->indivisible = (enum qplan_indivisible)place;
    return QPLAN_OK;
}

static enum qplan_status read_selection(struct qplan_plan_options *options, const struct args *args,
                                        struct qplan_error *err)
{
    size_t place = 0;
    CLI_TRY(read_least(args, "min-elements", &options->min_elements, err));
    CLI_TRY(read_least(args, "min-rows", &options->min_rows, err));
    CLI_TRY(plan_args_selection(options, args, err));
    options->n_copy = args_values(args, "copy", &options->copy);
    CLI_TRY(value_choice(args, "nonfinite", "policy", &place, err));
    options->nonfinite = (enum qplan_nonfinite)place;
    return QPLAN_OK;
}

/* A value that is one of the names that the library lists; *out is as it was if there is none. */
static enum qplan_status read_listed(const struct args *args, const char *name, const char *noun,
                                     const char *(*name_at)(size_t i), const char **out,
                                     struct qplan_error *err)
{
    const char *text = args_value(args, name);
    char flag[CLI_SHOWN], names[1024] = "", shown[CLI_SHOWN];
    for (size_t i = 0; text && name_at(i); i++) {
        const size_t used = strlen(names);
        if (strcmp(text, name_at(i)) == 0) {
            *out = name_at(i);
            return QPLAN_OK;
        }
        (void)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", name_at(i));
    }
    (void)snprintf(flag, sizeof flag, "--%s", name);
    return text ? cli_fail(err, QPLAN_ERR_USAGE, flag, "unknown %s: expected %s, found '%s'", noun,
                           names, cli_escape(shown, sizeof shown, text))
                : QPLAN_OK;
}

enum qplan_status plan_args_hessian(const struct args *args, const char **path, double *damp,
                                    struct qplan_error *err)
{
    *path = args_value(args, "hessian");
    if (!*path && args_has(args, "hessian-damp"))
        return cli_fail(err, QPLAN_ERR_USAGE, "--hessian-damp", "needs --hessian");
    return value_decimal(args, "hessian-damp", MOST_DAMP, damp, err);
}

/* A method whose parameter is wrong is known, but not what it should do. */
static enum qplan_status check_parameter(const char *text, struct qplan_error *err)
{
    static const struct {
        const char *method, *parameter;
    } rows[] = {{"percentile", "a number above 50 and up to 100, with up to 6 digits behind the "
                               "point"},
                {"entropy", "a whole number from 64 to 8192"}};
    char shown[CLI_SHOWN];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t n = strlen(rows[i].method);
        if (strncmp(text, rows[i].method, n) == 0 && text[n] == ':')
            return cli_fail(err, QPLAN_ERR_USAGE, "--calibrate",
                            "bad parameter of %s: expected %s, found '%s'", rows[i].method,
                            rows[i].parameter, cli_escape(shown, sizeof shown, text + n + 1));
    }
    return QPLAN_OK;
}

enum qplan_status plan_args_calibration(struct qplan_plan_options *options, const struct args *args,
                                        struct qplan_error *err)
{
    const char *text = args_value(args, "calibrate");
    size_t place = 0;
    options->cancel = &cli_signal;
    options->positive_scales = args_has(args, "positive-scales");
    options->n_importance = args_values(args, "importance", &options->importance);
    CLI_TRY(value_choice(args, "importance-missing", "policy", &place, err));
    options->importance_required = place > 0;
    CLI_TRY(plan_args_hessian(args, &options->hessian, &options->hessian_damp, err));
    if (args_has(args, "importance-missing") && !options->n_importance && !options->hessian)
        return cli_fail(err, QPLAN_ERR_USAGE, "--importance-missing",
                        "needs --importance or --hessian");
    if (text && !qplan_calibrator_is(text))
        CLI_TRY(check_parameter(text, err));
    if (!text || !qplan_calibrator_is(text)) /* one that is written as it is listed, or none */
        return read_listed(args, "calibrate", "method", qplan_calibrator_name, &options->calibrate,
                           err);
    options->calibrate = text;
    return QPLAN_OK;
}

/* The i-th layout that is written, or NULL behind the last. */
static const char *written_format(size_t i)
{
    struct qplan_format_facts facts;
    for (size_t k = 0; qplan_format_at(k, &facts); k++) {
        if (!facts.is_read_only && i-- == 0)
            return facts.name;
    }
    return NULL;
}

enum qplan_status plan_args_format(const struct args *args, const char **out,
                                   struct qplan_error *err)
{
    const char *text = args_value(args, "format");
    struct qplan_format_facts facts;
    for (size_t k = 0; text && qplan_format_at(k, &facts); k++) {
        if (facts.is_read_only && strcmp(text, facts.name) == 0)
            return cli_fail(err, QPLAN_ERR_USAGE, "--format",
                            "the layout %s is only read, never written", facts.name);
    }
    return read_listed(args, "format", "format", written_format, out, err);
}

static const char *preset_name(size_t i)
{
    const struct qplan_preset *preset = qplan_preset_at(i);
    return preset ? preset->name : NULL;
}

/* A preset stands for layout, scheme and activations, and names the output. */
static enum qplan_status read_preset(struct qplan_plan_options *options, const struct args *args,
                                     struct qplan_error *err)
{
    CLI_TRY(read_listed(args, "preset", "preset", preset_name, &options->tag, err));
    const struct qplan_preset *preset = qplan_preset_at(0);
    while (preset->name != options->tag)
        preset++;
    options->format = preset->format;
    options->activations = preset->activations;
    return qplan_scheme_parse(&options->scheme, preset->scheme, err);
}

static enum qplan_status read_activations(struct qplan_plan_options *options,
                                          const struct args *args, struct qplan_error *err)
{
    size_t place = 0;
    CLI_TRY(value_choice(args, "activations", "choice", &place, err));
    if (args_has(args, "activations"))
        options->activations = place ? QPLAN_ACTIVATIONS_DYNAMIC : QPLAN_ACTIVATIONS_NONE;
    return QPLAN_OK;
}

enum qplan_status plan_args_read(struct plan_args *out, const struct args *args,
                                 struct qplan_error *err)
{
    *out = (struct plan_args){.document = args_value(args, "plan"),
                              .rules = args_value(args, "rules"),
                              .requantize = args_has(args, "requantize")};
    CLI_TRY(check_clashes(args, err));
    CLI_TRY(plan_args_format(args, &out->options.format, err));
    CLI_TRY(read_activations(&out->options, args, err));
    CLI_TRY(value_size(args, "max-shard-size", &out->options.max_shard_bytes, err));
    CLI_TRY(args_has(args, "preset")
                ? read_preset(&out->options, args, err)
                : read_scheme(&out->options.scheme, out->options.format, args, err));
    CLI_TRY(plan_args_calibration(&out->options, args, err));
    out->budget.candidates = args_value(args, "candidates");
    CLI_TRY(value_decimal(args, "target-bpw", MOST_BITS, &out->budget.target_bpw, err));
    CLI_TRY(value_size(args, "target-size", &out->budget.target_bytes, err));
    CLI_TRY(read_selection(&out->options, args, err));
    size_t place = 0;
    CLI_TRY(value_choice(args, "zero-point", "policy", &place, err));
    if (args_has(args, "zero-point"))
        out->options.zero_point = place ? QPLAN_ZERO_POINT_ASYMMETRIC : QPLAN_ZERO_POINT_ALWAYS;
    place = 0;
    CLI_TRY(value_choice(args, "arithmetic", "choice", &place, err));
    out->options.arithmetic = (enum qplan_arithmetic)place;
    place = 0;
    CLI_TRY(value_choice(args, "experts", "choice", &place, err));
    out->options.experts = (enum qplan_experts)place;
    return QPLAN_OK;
}

/* What errors call a document that was given as a path. */
static const char *document_name(const char *path)
{
    return strcmp(path, "-") == 0 ? "stdin" : path;
}

static enum qplan_status read_plan(struct qplan_plan **out, const struct plan_args *plan_args,
                                   const struct qplan_checkpoint *checkpoint,
                                   struct qplan_error *err)
{
    const struct qplan_plan_options *options = &plan_args->options;
    struct document text;
    CLI_TRY(document_read(&text, plan_args->document, err));
    const struct qplan_document document = {.name = document_name(plan_args->document),
                                            .text = text.text,
                                            .n_bytes = text.n_bytes,
                                            .importance = options->importance,
                                            .n_importance = options->n_importance,
                                            .hessian = options->hessian,
                                            .hessian_damp = options->hessian_damp,
                                            .cancel = options->cancel};
    enum qplan_status status = qplan_plan_read(out, checkpoint, &document, err);
    document_free(&text);
    return status;
}

enum qplan_status plan_args_make(struct qplan_plan **out, struct plan_args *plan_args,
                                 struct qplan_checkpoint *checkpoint, struct qplan_error *err)
{
    struct qplan_plan_options *options = &plan_args->options;
    *out = NULL;
    if (plan_args->requantize)
        CLI_TRY(qplan_checkpoint_decode(checkpoint, err));
    if (plan_args->document)
        return read_plan(out, plan_args, checkpoint, err);
    if (plan_args->rules) {
        CLI_TRY(document_read(&plan_args->rules_text, plan_args->rules, err));
        options->rules = plan_args->rules_text.text;
        options->n_rules = plan_args->rules_text.n_bytes;
        options->rules_name = document_name(plan_args->rules);
    }
    return qplan_plan_make(out, checkpoint, options, err);
}

enum qplan_status plan_args_make_within(struct qplan_plan **out, struct plan_args *plan_args,
                                        struct qplan_checkpoint *checkpoint,
                                        const struct qplan_run *run,
                                        struct qplan_budget_facts *facts, struct qplan_error *err)
{
    struct qplan_sensitivity *sensitivity;
    *out = NULL;
    if (plan_args->requantize)
        CLI_TRY(qplan_checkpoint_decode(checkpoint, err));
    CLI_TRY(qplan_sensitivity_measure(&sensitivity, checkpoint, &plan_args->options,
                                      &plan_args->budget, run, err));
    enum qplan_status status = qplan_plan_make_within(out, sensitivity, facts, err);
    qplan_sensitivity_free(sensitivity);
    return status;
}

void plan_args_free(struct plan_args *plan_args)
{
    document_free(&plan_args->rules_text);
}
