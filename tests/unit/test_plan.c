/*
 * test_plan.c - making plans: which tensors are quantized and why not, shapes that do not fit,
 * names of outputs, the table for people.
 */
#include "own_folder.h"

#include <cjson/cJSON.h>
#include <errno.h>

/* ---- Plans of a small checkpoint ------------------------------------------------------------- */

static const struct tensor model[] = {
    {"a.weight", "F32", 2, {4, 6}, NULL, 96},   {"b.weight", "BF16", 2, {3, 8}, NULL, 48},
    {"conv", "F16", 4, {2, 3, 1, 5}, NULL, 60}, {"bias", "F32", 1, {6}, NULL, 24},
    {"ids", "I64", 2, {2, 2}, NULL, 32},        {"scalar", "F64", 0, {0}, NULL, 8},
    {"empty", "F32", 2, {0, 4}, NULL, 0},
};

static const char *write_model(void)
{
    const char *path = in_folder(&folder, "m.safetensors");
    write_checkpoint(path, NULL, model, COUNT(model));
    return path;
}

/* A plan and what it was made from. */
struct planned {
    struct qplan_checkpoint *checkpoint;
    struct qplan_plan *plan;
    cJSON *json;
    enum qplan_status status;
    struct qplan_error err;
};

static struct planned make_plan(const char *path, const struct qplan_plan_options *options)
{
    struct planned p = {.checkpoint = open_checkpoint(path)};
    p.status = qplan_plan_make(&p.plan, p.checkpoint, options, &p.err);
    assert_int_equal(p.plan != NULL, p.status == QPLAN_OK);
    if (!p.plan)
        return p;
    struct text text = {0};
    OK(qplan_plan_write_json(p.plan, text_add, &text, &p.err), &p.err);
    assert_int_equal(text.data[text.n - 1], '\n');
    assert_ptr_equal(strchr(text.data, '\n'), text.data + text.n - 1);
    p.json = cJSON_Parse(text.data);
    assert_non_null(p.json);
    text_free(&text);
    return p;
}

static void free_plan(struct planned *p)
{
    cJSON_Delete(p->json);
    qplan_plan_free(p->plan);
    qplan_checkpoint_close(p->checkpoint);
}

static const cJSON *tensor_of(const struct planned *p, const char *name)
{
    const cJSON *t;
    cJSON_ArrayForEach(t, cJSON_GetObjectItem(p->json, "tensors"))
    {
        if (strcmp(cJSON_GetObjectItem(t, "name")->valuestring, name) == 0)
            return t;
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* A string or null of a tensor. */
static const char *field(const struct planned *p, const char *name, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(tensor_of(p, name), key);
    assert_non_null(item);
    return cJSON_IsNull(item) ? "null" : item->valuestring;
}

static void assert_decision(const struct planned *p, const char *name, const char *action,
                            const char *rule, const char *reason)
{
    assert_string_equal(field(p, name, "action"), action);
    assert_string_equal(field(p, name, "rule"), rule);
    assert_string_equal(field(p, name, "reason"), reason);
}

static void assert_refused(const struct qplan_plan_options *options, enum qplan_status status,
                           const char *words)
{
    struct planned p = make_plan(write_model(), options);
    assert_int_equal(p.status, status);
    if (!strstr(p.err.message, words))
        fail_msg("expected \"%s\" in \"%s\"", words, p.err.message);
    free_plan(&p);
}

/* ---- Selection ------------------------------------------------------------------------------- */

static void all_floats_of_rank_2_and_more_are_quantized(void **state)
{
    struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    (void)state;
    struct planned p = make_plan(write_model(), &options);
    OK(p.status, &p.err);
    assert_decision(&p, "a.weight", "quantize", "select:all", "null");
    assert_decision(&p, "b.weight", "quantize", "select:all", "null");
    assert_decision(&p, "conv", "quantize", "select:all", "null");
    assert_decision(&p, "bias", "keep", "select:all", "rank 1");
    assert_decision(&p, "ids", "keep", "select:all", "not a float");
    assert_decision(&p, "scalar", "keep", "select:all", "rank 0");
    assert_decision(&p, "empty", "keep", "null", "empty");
    assert_string_equal(field(&p, "a.weight", "scheme"), "int8:c0");
    assert_string_equal(field(&p, "a.weight", "calibrate"), "minmax");
    assert_string_equal(field(&p, "bias", "scheme"), "null");
    assert_string_equal(field(&p, "bias", "calibrate"), "null");
    free_plan(&p);
}

static void exclude_wins_over_include_and_the_rest_is_not_selected(void **state)
{
    const char *include[] = {"a.*", "*.weight", "bias"}, *exclude[] = {"b*", "ids"};
    struct qplan_plan_options options = {.scheme = scheme_of("int8"),
                                         .include = include,
                                         .n_include = 2,
                                         .exclude = exclude,
                                         .n_exclude = 2};
    (void)state;
    struct planned p = make_plan(write_model(), &options);
    OK(p.status, &p.err);
    assert_decision(&p, "a.weight", "quantize", "include:a.*", "null");
    assert_decision(&p, "b.weight", "keep", "exclude:b*", "excluded");
    assert_decision(&p, "bias", "keep", "exclude:b*", "excluded");
    assert_decision(&p, "conv", "keep", "include", "not selected");
    assert_decision(&p, "ids", "keep", "exclude:ids", "excluded");
    assert_decision(&p, "empty", "keep", "null", "empty");
    free_plan(&p);
}

static void include_never_widens(void **state)
{
    const char *include[] = {"*"};
    struct qplan_plan_options options = {
        .scheme = scheme_of("int8"), .include = include, .n_include = 1};
    (void)state;
    struct planned p = make_plan(write_model(), &options);
    OK(p.status, &p.err);
    assert_decision(&p, "bias", "keep", "include:*", "rank 1");
    assert_decision(&p, "ids", "keep", "include:*", "not a float");
    free_plan(&p);
}

static void a_pattern_that_matches_nothing_is_an_error_that_names_it(void **state)
{
    const char *include[] = {"a.*", "bias"}, *exclude[] = {"nothing*"}, *bad[] = {"[a"};
    struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    (void)state;
    options.include = include;
    options.n_include = 2; /* bias exists, but cannot be quantized */
    assert_refused(&options, QPLAN_ERR_INVALID,
                   "include pattern 'bias' matches no tensor that can be quantized");
    options.n_include = 1;
    options.exclude = exclude;
    options.n_exclude = 1;
    assert_refused(&options, QPLAN_ERR_INVALID, "exclude pattern 'nothing*' matches no tensor");
    options.exclude = bad;
    assert_refused(&options, QPLAN_ERR_USAGE, "");
}

static void an_unknown_calibrator_is_refused(void **state)
{
    struct qplan_plan_options options = {.scheme = scheme_of("int8"), .calibrate = "mae"};
    (void)state;
    assert_refused(&options, QPLAN_ERR_USAGE, "minmax");
}

static void nothing_selected_is_a_copy_with_a_warning(void **state)
{
    const char *exclude[] = {"*"};
    struct qplan_plan_options options = {
        .scheme = scheme_of("int8"), .exclude = exclude, .n_exclude = 1};
    (void)state;
    struct planned p = make_plan(write_model(), &options);
    OK(p.status, &p.err);
    assert_int_equal(qplan_plan_warning_count(p.plan), 1);
    assert_non_null(strstr(qplan_plan_warning(p.plan, 0), "no tensor is quantized"));
    assert_null(qplan_plan_warning(p.plan, 1));
    free_plan(&p);
}

/* ---- Shapes that do not fit ------------------------------------------------------------------ */

static void a_negative_axis_is_resolved_for_each_tensor(void **state)
{
    struct qplan_plan_options options = {.scheme = scheme_of("int8:c-1")};
    (void)state;
    struct planned p = make_plan(write_model(), &options);
    OK(p.status, &p.err);
    assert_string_equal(field(&p, "a.weight", "scheme"), "int8:c1");
    assert_string_equal(field(&p, "conv", "scheme"), "int8:c3");
    free_plan(&p);
}

static void an_axis_that_tensors_lack_is_refused_with_their_names(void **state)
{
    struct qplan_plan_options options = {.scheme = scheme_of("int8:c2")};
    (void)state;
    assert_refused(&options, QPLAN_ERR_INVALID,
                   "axis 2 does not exist in: 'a.weight' [4,6], 'b.weight' [3,8]");
    options.scheme = scheme_of("int8:c-3");
    assert_refused(&options, QPLAN_ERR_INVALID, "axis -3 does not exist in: 'a.weight' [4,6]");
}

static void groups_that_do_not_divide_are_an_error_kept_or_ragged(void **state)
{
    struct qplan_plan_options options = {.scheme = scheme_of("int4:g4")};
    (void)state;
    assert_refused(&options, QPLAN_ERR_INVALID,
                   "group size 4 does not divide the last axis of: 'a.weight' [4,6], 'conv' "
                   "[2,3,1,5]");

    options.indivisible = QPLAN_INDIVISIBLE_KEEP;
    struct planned p = make_plan(write_model(), &options);
    OK(p.status, &p.err);
    assert_decision(&p, "a.weight", "keep", "select:all", "indivisible");
    assert_decision(&p, "b.weight", "quantize", "select:all", "null");
    free_plan(&p);

    options.indivisible = QPLAN_INDIVISIBLE_RAGGED;
    p = make_plan(write_model(), &options);
    OK(p.status, &p.err);
    assert_decision(&p, "a.weight", "quantize", "select:all", "null");
    const cJSON *outputs = cJSON_GetObjectItem(tensor_of(&p, "a.weight"), "outputs");
    char *scale =
        cJSON_PrintUnformatted(cJSON_GetObjectItem(cJSON_GetArrayItem(outputs, 1), "shape"));
    assert_string_equal(scale, "[4,2]");
    cJSON_free(scale);
    free_plan(&p);
}

/* The list ends after 20 names and counts the rest. */
static void long_lists_of_tensors_are_cut(void **state)
{
    struct tensor many[25];
    char names[25][8];
    struct qplan_plan_options options = {.scheme = scheme_of("int8:g5")};
    (void)state;
    for (size_t i = 0; i < COUNT(many); i++) {
        (void)snprintf(names[i], sizeof names[i], "t%02zu", i);
        many[i] = (struct tensor){names[i], "F32", 2, {1, 4}, NULL, 16};
    }
    const char *path = in_folder(&folder, "many.safetensors");
    write_checkpoint(path, NULL, many, COUNT(many));
    struct planned p = make_plan(path, &options);
    assert_int_equal(p.status, QPLAN_ERR_INVALID);
    assert_non_null(strstr(p.err.message, "'t19' [1,4] and 5 more"));
    assert_null(strstr(p.err.message, "t20"));
    assert_int_equal(p.err.advice, QPLAN_ADVICE_INDIVISIBLE);
    free_plan(&p);
}

/* ---- Names and sizes ------------------------------------------------------------------------- */

static void outputs_are_named_after_what_is_not_the_default(void **state)
{
    static const char *const rows[][2] = {
        {"int8", "int8"},
        {"int8:c0:bf16", "int8-bf16"},
        {"int8:c1", "int8-c1"},
        {"int8:c-1", "int8-c-1"},
        {"int8:t", "int8-t"},
        {"int8:asym", "int8-asym"},
        {"int8:narrow", "int8-narrow"},
        {"int8:g2:asym:narrow:f16", "int8-g2-asym-narrow-f16"},
        {"uint8", "uint8"},
        {"uint8:sym", "uint8-sym"},
        {"int8:b2x3", "int8-b2x3"},
        {"int4:g2:asym:bf16", "int4-g2"},
        {"int4:g2:asym", "int4-g2-f32"},
        {"int4:g2", "int4-g2-sym-f32"},
        {"int4:g2:bf16", "int4-g2-sym"},
        {"int4:c0", "int4-c0-sym"},
        {"int4:c0:asym:bf16", "int4-c0-bf16"},
        {"uint4:b2x3:bf16", "uint4-b2x3"},
        {"uint4:g2:bias", "uint4-g2-bias-f32"},
        {"nvfp4", "f4e2m1-g16-f8e4m3"},
        {"mxfp4", "f4e2m1-e8m0"},
        {"nf4:g64:bf16", "nf4"},
    };
    char expected[64];
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_plan_options options = {.scheme = scheme_of(rows[i][0]),
                                             .indivisible = QPLAN_INDIVISIBLE_RAGGED};
        struct planned p = make_plan(write_model(), &options);
        OK(p.status, &p.err);
        (void)snprintf(expected, sizeof expected, "m.%s.safetensors", rows[i][1]);
        assert_string_equal(qplan_plan_output_name(p.plan), expected);
        free_plan(&p);
    }
    struct qplan_plan_options options = {.scheme = scheme_of("int4:g128:asym:bf16"),
                                         .indivisible = QPLAN_INDIVISIBLE_KEEP};
    struct planned p = make_plan(write_model(), &options);
    assert_string_equal(qplan_plan_output_name(p.plan), "m.int4.safetensors");
    free_plan(&p);
}

static void the_stem_is_the_name_without_its_extension(void **state)
{
    static const char *const rows[][2] = {
        {"x.y.safetensors", "x.y.int8.safetensors"},
        {"model", "model.int8.safetensors"},
        {".safetensors", ".safetensors.int8.safetensors"},
        {"m.SAFETENSORS", "m.SAFETENSORS.int8.safetensors"},
    };
    struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *path = in_folder(&folder, rows[i][0]);
        write_checkpoint(path, NULL, model, COUNT(model));
        struct planned p = make_plan(path, &options);
        OK(p.status, &p.err);
        assert_string_equal(qplan_plan_output_name(p.plan), rows[i][1]);
        free_plan(&p);
    }
}

static void zero_points_may_be_left_out_of_symmetric_tensors(void **state)
{
    static const struct {
        const char *scheme;
        enum qplan_zero_point zero_point;
        int n_outputs;
    } rows[] = {{"int8", QPLAN_ZERO_POINT_ALWAYS, 3},
                {"int8", QPLAN_ZERO_POINT_ASYMMETRIC, 2},
                {"int8:asym", QPLAN_ZERO_POINT_ASYMMETRIC, 3},
                {"uint8:sym", QPLAN_ZERO_POINT_ASYMMETRIC, 2}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct qplan_plan_options options = {.scheme = scheme_of(rows[i].scheme),
                                             .zero_point = rows[i].zero_point};
        struct planned p = make_plan(write_model(), &options);
        const cJSON *outputs = cJSON_GetObjectItem(tensor_of(&p, "a.weight"), "outputs");
        assert_int_equal(cJSON_GetArraySize(outputs), rows[i].n_outputs);
        free_plan(&p);
    }
}

/* ---- For people ------------------------------------------------------------------------------ */

static void the_table_has_patterns_and_the_exact_size(void **state)
{
    static const struct tensor layers[] = {
        {"l.0.w", "F32", 2, {2, 2}, NULL, 16}, {"l.1.w", "F32", 2, {2, 2}, NULL, 16},
        {"l.2.w", "F32", 2, {2, 2}, NULL, 16}, {"l.3.w", "F32", 2, {2, 3}, NULL, 24},
        {"l.0.b", "F32", 1, {2}, NULL, 8},
    };
    struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    const char *path = in_folder(&folder, "l.safetensors");
    struct text text = {0};
    char last[128];
    (void)state;
    write_checkpoint(path, NULL, layers, COUNT(layers));
    struct planned p = make_plan(path, &options);
    OK(qplan_plan_write_text(p.plan, text_add, &text, &p.err), &p.err);
    assert_non_null(strstr(text.data, "l.{0..2}.w  3 x [2,2]  F32  int8:c0 minmax\n"));
    assert_non_null(strstr(text.data, "l.3.w  [2,3]  F32  int8:c0 minmax\n"));
    assert_non_null(strstr(text.data, "l.0.b  [2]  F32  keep: rank 1\n"));
    (void)snprintf(last, sizeof last, "l.int8.safetensors: %" PRIu64 " bytes",
                   qplan_plan_output_bytes(p.plan));
    assert_non_null(strstr(text.data, last));
    assert_non_null(strstr(text.data, "4 quantized, 1 kept\n"));
    text_free(&text);
    free_plan(&p);
}

static int refuse_bytes(void *ctx, const void *bytes, size_t n)
{
    (void)ctx;
    (void)bytes;
    (void)n;
    return ENOSPC;
}

static void a_writer_that_fails_is_reported(void **state)
{
    struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    struct qplan_error err;
    (void)state;
    struct planned p = make_plan(write_model(), &options);
    assert_int_equal(qplan_plan_write_json(p.plan, refuse_bytes, NULL, &err), QPLAN_ERR_IO);
    assert_int_equal(err.sys_errno, ENOSPC);
    assert_int_equal(qplan_plan_write_text(p.plan, refuse_bytes, NULL, NULL), QPLAN_ERR_IO);
    free_plan(&p);
}

/* ---- Many tensors ---------------------------------------------------------------------------- */

#define N_MANY 5000 /* enough to be laid out by two threads */

/* N_MANY tensors of 2 x 2 floats, and one more if it has a name. */
static const char *write_many(const char *extra)
{
    const char *path = in_folder(&folder, "many.safetensors");
    struct tensor *tensors = calloc(N_MANY + 1, sizeof *tensors);
    char(*names)[8] = calloc(N_MANY, sizeof *names);
    assert_true(tensors && names);
    for (size_t i = 0; i < N_MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "w%04zu", i);
        tensors[i] = (struct tensor){names[i], "F32", 2, {2, 2}, NULL, 16};
    }
    if (extra)
        tensors[N_MANY] = (struct tensor){extra, "F32", 1, {1}, NULL, 4};
    write_checkpoint(path, NULL, tensors, N_MANY + (extra != NULL));
    free(names);
    free(tensors);
    return path;
}

static void assert_begin(const cJSON *output, size_t begin)
{
    assert_int_equal(cJSON_GetObjectItem(output, "begin")->valuedouble, begin);
}

/* Scales of 8 bytes each come first, then 4 bytes of codes and 2 of zero points by turns. */
static void many_tensors_lie_where_few_would(void **state)
{
    (void)state;
    const struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    struct planned p = make_plan(write_many(NULL), &options);
    const cJSON *t;
    size_t i = 0;
    cJSON_ArrayForEach(t, cJSON_GetObjectItem(p.json, "tensors"))
    {
        const cJSON *outputs = cJSON_GetObjectItem(t, "outputs");
        assert_begin(cJSON_GetArrayItem(outputs, 0), (size_t)N_MANY * 8 + i * 6);
        assert_begin(cJSON_GetArrayItem(outputs, 1), i * 8);
        assert_begin(cJSON_GetArrayItem(outputs, 2), (size_t)N_MANY * 8 + i * 6 + 4);
        i++;
    }
    assert_int_equal(i, N_MANY);
    free_plan(&p);
}

static void a_collision_among_many_is_found(void **state)
{
    (void)state;
    const struct qplan_plan_options options = {.scheme = scheme_of("int8")};
    struct planned p = make_plan(write_many("w4999_scale"), &options);
    assert_int_equal(p.status, QPLAN_ERR_INVALID);
    assert_non_null(strstr(p.err.message, "name collision: 'w4999_scale', a sidecar of 'w4999'"));
    free_plan(&p);
}

/* qplan.tensors is JSON in a JSON string, so that a name may be escaped twice. */
static void records_keep_names_that_need_escapes(void **state)
{
    static const char *const written[] = {"a\\\"b", "c\\\\d", "e\\n\\u0001", "\\u00e9\\\\\\\"",
                                          "plain"};
    static const char *const names[] = {"a\"b", "c\\d", "e\n\x01", "\xc3\xa9\\\"", "plain"};
    static const float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const char *path = in_folder(&folder, "names"), *out = in_folder(&folder, "names.q");
    struct tensor tensors[COUNT(names)];
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++)
        tensors[i] = (struct tensor){written[i], "F32", 2, {2, 4}, values, sizeof values};
    write_checkpoint(path, NULL, tensors, COUNT(tensors));
    OK(quantize_file(path, out, "int8:c0", NULL, &err), &err);
    OK(verify_file(out, path, &err), &err);
    struct qplan_checkpoint *file = open_checkpoint(out);
    cJSON *records = cJSON_Parse(qplan_checkpoint_metadata(file, "qplan.tensors", NULL));
    assert_int_equal(cJSON_GetArraySize(records), COUNT(names));
    for (size_t i = 0; i < COUNT(names); i++)
        assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(records, names[i])),
                            "int8:c0 minmax F32 2x4");
    cJSON_Delete(records);
    qplan_checkpoint_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_floats_of_rank_2_and_more_are_quantized),
        cmocka_unit_test(exclude_wins_over_include_and_the_rest_is_not_selected),
        cmocka_unit_test(include_never_widens),
        cmocka_unit_test(a_pattern_that_matches_nothing_is_an_error_that_names_it),
        cmocka_unit_test(an_unknown_calibrator_is_refused),
        cmocka_unit_test(nothing_selected_is_a_copy_with_a_warning),
        cmocka_unit_test(a_negative_axis_is_resolved_for_each_tensor),
        cmocka_unit_test(an_axis_that_tensors_lack_is_refused_with_their_names),
        cmocka_unit_test(groups_that_do_not_divide_are_an_error_kept_or_ragged),
        cmocka_unit_test(long_lists_of_tensors_are_cut),
        cmocka_unit_test(outputs_are_named_after_what_is_not_the_default),
        cmocka_unit_test(the_stem_is_the_name_without_its_extension),
        cmocka_unit_test(zero_points_may_be_left_out_of_symmetric_tensors),
        cmocka_unit_test(the_table_has_patterns_and_the_exact_size),
        cmocka_unit_test(a_writer_that_fails_is_reported),
        cmocka_unit_test(many_tensors_lie_where_few_would),
        cmocka_unit_test(a_collision_among_many_is_found),
        cmocka_unit_test(records_keep_names_that_need_escapes),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
