/*
 * test_plan_read.c - the plan document: what is written is read again and gives the same bytes;
 * edits are taken; everything that does not fit is refused, by name.
 */
#include "support.h"

#include <cjson/cJSON.h>
#include <inttypes.h>

static struct folder folder;
static struct qplan_checkpoint *checkpoint; /* m.safetensors */
static char *document;                      /* its plan with int8 */

static const struct tensor model[] = {
    {"a.weight", "F32", 2, {4, 6}, NULL, 96}, {"b", "BF16", 3, {2, 3, 8}, NULL, 96},
    {"bias", "F32", 1, {6}, NULL, 24},        {"ids", "I64", 2, {2, 2}, NULL, 32},
    {"none", "F32", 2, {0, 4}, NULL, 0},      {"q\\\"\\\\\\n\xc3\xa9", "F16", 2, {1, 3}, NULL, 6},
};

static char *write_plan(const struct qplan_plan *plan)
{
    struct qplan_error err;
    struct text text = {0};
    OK(qplan_plan_write_json(plan, text_add, &text, &err), &err);
    return text.data;
}

static char *plan_text(const char *scheme, enum qplan_zero_point zero_point,
                       enum qplan_indivisible indivisible)
{
    struct qplan_plan_options options = {
        .scheme = scheme_of(scheme), .zero_point = zero_point, .indivisible = indivisible};
    struct qplan_plan *plan;
    struct qplan_error err;
    OK(qplan_plan_make(&plan, checkpoint, &options, &err), &err);
    char *text = write_plan(plan);
    qplan_plan_free(plan);
    return text;
}

static int make_model(void **state)
{
    (void)state;
    folder_make(&folder);
    write_checkpoint(in_folder(&folder, "m.safetensors"), NULL, model, COUNT(model));
    checkpoint = open_checkpoint(in_folder(&folder, "m.safetensors"));
    document = plan_text("int8", QPLAN_ZERO_POINT_ALWAYS, QPLAN_INDIVISIBLE_ERROR);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    free(document);
    qplan_checkpoint_close(checkpoint);
    folder_remove(&folder);
    return 0;
}

/* ---- Reading and editing --------------------------------------------------------------------- */

/* Reads n bytes that no NUL follows. */
static enum qplan_status read_bytes(struct qplan_plan **plan, const char *text, size_t n,
                                    struct qplan_error *err)
{
    char *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, text, n);
    enum qplan_status status = qplan_plan_read(
        plan, checkpoint, &(struct qplan_document){.name = "p.json", .text = exact, .n_bytes = n},
        err);
    free(exact);
    assert_int_equal(*plan != NULL, status == QPLAN_OK);
    return status;
}

/* A copy of text with the first `from` replaced, which must be there. */
static char *edited(const char *text, const char *from, const char *to)
{
    struct text result = {0};
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("no %s in %s", from, text);
    (void)text_add(&result, text, (size_t)(at - text));
    text_puts(&result, to);
    text_puts(&result, at + strlen(from));
    return result.data;
}

/* A copy without a member `,"key":...` that ends with the given text. */
static char *without(const char *text, const char *key, const char *end)
{
    struct text result = {0};
    const char *at = strstr(text, key);
    assert_non_null(at);
    const char *behind = strstr(at, end);
    assert_non_null(behind);
    (void)text_add(&result, text, (size_t)(at - text));
    text_puts(&result, behind + strlen(end));
    return result.data;
}

/* The document without what is computed, as jq 'del(.output, .tensors[].outputs)' leaves it. */
static char *bare_document(void)
{
    cJSON *tree = cJSON_Parse(document), *tensor;
    cJSON_DeleteItemFromObject(tree, "output");
    cJSON_ArrayForEach(tensor, cJSON_GetObjectItem(tree, "tensors"))
    {
        cJSON_DeleteItemFromObject(tensor, "outputs");
    }
    char *text = cJSON_PrintUnformatted(tree);
    assert_non_null(text);
    cJSON_Delete(tree);
    return text;
}

static void assert_same_again(const char *text)
{
    struct qplan_plan *plan;
    struct qplan_error err;
    OK(read_bytes(&plan, text, strlen(text), &err), &err);
    char *again = write_plan(plan);
    assert_string_equal(text, again);
    free(again);
    qplan_plan_free(plan);
}

/* What a text that is accepted is written as. */
static char *rewritten(const char *text)
{
    struct qplan_plan *plan;
    struct qplan_error err;
    OK(read_bytes(&plan, text, strlen(text), &err), &err);
    char *again = write_plan(plan);
    qplan_plan_free(plan);
    return again;
}

static void a_written_plan_is_read_and_written_the_same(void **state)
{
    static const char *const schemes[] = {
        "int8",      "int8:t:narrow",    "int8:c-1:asym:f16",        "uint8",
        "uint8:sym", "int4:g3:bf16",     "int8:b2x5:asym:narrow",    "uint4:g1",
        "int4:t",    "uint4:b100x1:sym", "int8:g4611686018427387904"};
    (void)state;
    for (size_t i = 0; i < COUNT(schemes) * 4; i++) {
        char *text = plan_text(schemes[i / 4], (enum qplan_zero_point)(i % 2),
                               i / 2 % 2 ? QPLAN_INDIVISIBLE_KEEP : QPLAN_INDIVISIBLE_RAGGED);
        assert_same_again(text);
        free(text);
    }
}

static void what_is_computed_may_be_left_out(void **state)
{
    char *bare = bare_document();
    (void)state;
    assert_null(strstr(bare, "output"));
    char *full = rewritten(bare);
    char *expected = edited(document, "m.int8.safetensors", "m.quantized.safetensors");
    assert_string_equal(full, expected);
    free(expected);
    free(full);
    free(bare);
}

static void edits_of_action_and_scheme_are_taken(void **state)
{
    char *bare = bare_document();
    (void)state;
    char *scheme = edited(bare, "\"scheme\":\"int8:c0\"", "\"scheme\":\"uint4:g2:sym:bf16\"");
    char *text = edited(scheme, "\"action\":\"quantize\",\"scheme\":\"int8:c0\"",
                        "\"action\":\"keep\",\"scheme\":\"int8:c0\"");
    char *again = rewritten(text);
    assert_non_null(strstr(again, "\"scheme\":\"uint4:g2:sym:bf16\",\"calibrate\":\"minmax\""));
    assert_non_null(strstr(again, "\"action\":\"keep\",\"scheme\":null,\"calibrate\":null,"
                                  "\"rule\":\"select:all\",\"reason\":\"rule keep\""));
    assert_same_again(again);
    free(again);
    free(text);
    free(scheme);
    free(bare);
}

static void white_space_and_the_order_of_tensors_do_not_matter(void **state)
{
    cJSON *tree = cJSON_Parse(document), *tensors = cJSON_GetObjectItem(tree, "tensors");
    (void)state;
    for (int i = 1; i < cJSON_GetArraySize(tensors); i++)
        cJSON_InsertItemInArray(tensors, 0, cJSON_DetachItemFromArray(tensors, i));
    char *turned = cJSON_Print(tree), *again = rewritten(turned);
    assert_string_equal(again, document);
    free(again);
    free(turned);
    cJSON_Delete(tree);
}

static void the_name_of_the_output_is_the_plans(void **state)
{
    char *text = edited(document, "m.int8.safetensors", "other name");
    struct qplan_plan *plan;
    struct qplan_error err;
    (void)state;
    OK(read_bytes(&plan, text, strlen(text), &err), &err);
    assert_string_equal(qplan_plan_output_name(plan), "other name");
    qplan_plan_free(plan);
    free(text);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void assert_refused(const char *text, const char *words)
{
    struct qplan_plan *plan;
    struct qplan_error err = {.message = ""};
    enum qplan_status status = read_bytes(&plan, text, strlen(text), &err);
    if (status == QPLAN_OK)
        fail_msg("accepted, but expected \"%s\": %s", words, text);
    assert_int_equal(status, QPLAN_ERR_INVALID);
    assert_int_equal(err.status, status);
    if (!strstr(err.message, words))
        fail_msg("expected \"%s\" in \"%s\"", words, err.message);
    const struct qplan_document again = {.name = "p", .text = text, .n_bytes = strlen(text)};
    assert_int_equal(qplan_plan_read(&plan, checkpoint, &again, NULL), status);
}

/* An edit of the document, and what the refusal must say. */
struct refusal {
    const char *from, *to, *words;
};

static void assert_all_refused(const struct refusal *rows, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++) {
        char *changed = edited(text, rows[i].from, rows[i].to);
        assert_refused(changed, rows[i].words);
        free(changed);
    }
}

static void texts_that_are_not_strict_json_are_refused(void **state)
{
    static const struct refusal rows[] = {
        {"{\"schema\"", "\xef\xbb\xbf{\"schema\"", "at byte 0"},
        {"{\"schema\"", "[{\"schema\"", ""},
        {"\"int8:c0\"", "'int8:c0'", "at byte"},
        {"\"int8:c0\"", "\"int8:c0\",", "at byte"},
        {"\"m.safetensors\"", "\"m\xff.safetensors\"", "at byte"},
        {"\"m.safetensors\"", "\"\\ud800\"", "at byte"},
        {"\"m.safetensors\"", "\"m\\u0000\"", "U+0000"},
        {"\"schema\"", "\"sch\\u0000ema\"", "U+0000"},
        {"null", "nul", "at byte"},
    };
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
    assert_refused("", "");
    assert_refused("null", "an object");
    assert_refused("[]", "an object");
    assert_refused("7", "an object");
    char *twice = edited(document, "\n", "{}");
    assert_refused(twice, "at byte");
    free(twice);
    struct qplan_plan *plan;
    for (size_t n = 0; n + 1 < strlen(document); n++)
        assert_int_equal(read_bytes(&plan, document, n, NULL), QPLAN_ERR_INVALID);
}

static void deep_texts_are_refused(void **state)
{
    char text[2001];
    (void)state;
    memset(text, '[', 2000);
    text[2000] = '\0';
    assert_refused(text, "at byte 8");
}

static void settings_must_be_known_words(void **state)
{
    static const struct refusal rows[] = {
        {"qplan-plan/1", "qplan-plan/2", "schema: expected qplan-plan/1, found 'qplan-plan/2'"},
        {"\"qplan-plan/1\"", "1", "schema"},
        {"\"schema\":\"qplan-plan/1\",", "", "schema"},
        {"\"numerics\":1", "\"numerics\":2", "numerics"},
        {"\"numerics\":1", "\"numerics\":\"1\"", "numerics"},
        {"\"format\":\"qplan\"", "\"format\":\"gguf\"", "format"},
        {"\"nonfinite\":\"error\"", "\"nonfinite\":\"skip\"", "error or saturate, found 'skip'"},
        {"\"nonfinite\":\"error\",", "", "nonfinite"},
        {"\"indivisible\":\"error\"", "\"indivisible\":\"Keep\"", "indivisible"},
        {"\"zero_point\":\"always\"", "\"zero_point\":true", "zero_point"},
    };
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
}

static void unknown_and_repeated_keys_are_refused_everywhere(void **state)
{
    static const struct refusal rows[] = {
        {"{\"schema\"", "{\"extra\":1,\"schema\"", "no unknown key, found 'extra'"},
        {"{\"schema\"", "{\"Schema\":\"qplan-plan/1\",\"schema\"", "found 'Schema'"},
        {"{\"schema\"", "{\"format\":\"qplan\",\"schema\"", "each key once, found 'format'"},
        {"{\"name\"", "{\"comment\":\"x\",\"name\"", "tensors: expected no unknown key"},
        {"{\"name\"", "{\"action\":\"keep\",\"name\"", "tensors: expected each key once"},
        {"{\"file\":\"m.safetensors\"", "{\"x\":1,\"file\":\"m.safetensors\"", "source"},
        {"\"output\":{", "\"output\":{\"x\":1,", "output: expected no unknown key"},
        {"{\"file\":\"m.int8", "{\"bytes\":1,\"file\":\"m.int8", "output.files: expected each"},
        {"\"outputs\":[{", "\"outputs\":[{\"x\":1,", "outputs: expected no unknown key"},
        {"\"outputs\":[{", "\"outputs\":[{\"begin\":0,", "outputs: expected each key once"},
    };
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
}

static void numbers_are_whole_and_plain(void **state)
{
    static const char *const numbers[] = {
        "4.0", "4e0", "-4", "-0", "9223372036854775808", "99999999999999999999", "1e400"};
    (void)state;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        char shape[64];
        (void)snprintf(shape, sizeof shape, "\"shape\":[%s,6]", numbers[i]);
        char *text = edited(document, "\"shape\":[4,6]", shape);
        assert_refused(text, "whole number up to 2^63-1");
        free(text);
    }
    char *leading = edited(document, "[4,6]", "[04,6]");
    assert_refused(leading, "at byte");
    free(leading);
}

/* Row I6 of the fault table: 2^53 + 1, and the largest that a file can have. As doubles they are
 * the same as their neighbours. */
static void large_extents_are_exact(void **state)
{
    static const struct {
        const char *dtype;
        uint64_t extent;
        const char *neighbour;
    } rows[] = {{"F32", 9007199254740993, "9007199254740992"},
                {"U8", 1152921504606846975, "1152921504606846976"}};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct tensor none = {"none", rows[i].dtype, 2, {0, rows[i].extent}, NULL, 0};
        struct qplan_checkpoint *before = checkpoint;
        char number[32];
        (void)snprintf(number, sizeof number, "%" PRIu64, rows[i].extent);
        write_checkpoint(in_folder(&folder, "large"), NULL, &none, 1);
        checkpoint = open_checkpoint(in_folder(&folder, "large"));
        char *text = plan_text("int8", QPLAN_ZERO_POINT_ALWAYS, QPLAN_INDIVISIBLE_ERROR);
        assert_same_again(text);
        char *other = edited(text, number, rows[i].neighbour);
        assert_refused(other, rows[i].neighbour);
        qplan_checkpoint_close(checkpoint);
        checkpoint = before;
        free(other);
        free(text);
    }
}

static void tensors_must_be_those_of_the_checkpoint(void **state)
{
    static const struct refusal rows[] = {
        {"\"name\":\"a.weight\"", "\"name\":\"c.weight\"", "found 'c.weight'"},
        {"\"name\":\"a.weight\"", "\"name\":\"b\"", "dtype of"},
        {"\"name\":\"a.weight\"", "\"name\":5", "a name for each"},
        {"\"name\":\"a.weight\",", "", "a name for each"},
        {"\"dtype\":\"F32\"", "\"dtype\":\"F64\"", "dtype of"},
        {"\"dtype\":\"F32\"", "\"dtype\":0", "dtype of"},
        {"\"shape\":[4,6]", "\"shape\":[6,4]", "shape of"},
        {"\"shape\":[4,6]", "\"shape\":[4,6,1]", "shape of"},
        {"\"shape\":[4,6]", "\"shape\":[4]", "shape of"},
        {"\"shape\":[4,6]", "\"shape\":\"4x6\"", "shape of"},
        {"\"shape\":[4,6]", "\"shape\": [ 4, null, [6] ]",
         "expected '[4,null,an array]', found [4,6]"},
        {"\"shape\":[4,6]", "\"shape\":{\"x\":[4,6]}", "expected 'an object', found [4,6]"},
        {"\"shape\":[4,6],", "", "expected '', found [4,6]"},
        {"\"file\":0", "\"file\":1", "file of"},
        {"\"bytes\":", "\"bytes\":1", "the plan is for another checkpoint"},
        {"\"source\":[{", "\"source\":[{},{", "one file"},
        {"\"source\":[{", "\"source\":[5,{", "one file"},
    };
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
}

static void missing_and_repeated_tensors_are_refused(void **state)
{
    (void)state;
    char *missing = without(document, "{\"name\":\"bias\"", "]},");
    assert_refused(missing, "tensor 'bias' is missing");
    free(missing);
    const char *begin = strstr(document, "{\"name\":\"bias\""), *end = strstr(begin, "]},") + 3;
    struct text twice = {0};
    (void)text_add(&twice, document, (size_t)(end - document));
    (void)text_add(&twice, begin, (size_t)(end - begin));
    text_puts(&twice, end);
    assert_refused(twice.data, "each tensor once, found 'bias'");
    text_free(&twice);
    char *none = without(document, ",\"tensors\":[", "\n");
    text_puts(&twice, none);
    text_puts(&twice, "}");
    assert_refused(twice.data, "an array");
    text_free(&twice);
    free(none);
}

static void actions_that_cannot_be_are_refused(void **state)
{
#define KEEP_OF(dtype, shape)                                                                      \
    "\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"action\":\"keep\",\"scheme\":null"
#define QUANTIZE_OF(dtype, shape)                                                                  \
    "\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"action\":\"quantize\",\"scheme\":\"int8\""
    static const struct refusal rows[] = {
        {"\"quantize\"", "\"drop\"", "keep or quantize, found 'drop'"},
        {"\"quantize\"", "null", "keep or quantize"},
        {"\"action\":\"quantize\",", "", "keep or quantize"},
        {KEEP_OF("F32", "6"), QUANTIZE_OF("F32", "6"), "'bias' cannot be quantized: rank 1"},
        {KEEP_OF("I64", "2,2"), QUANTIZE_OF("I64", "2,2"),
         "'ids' cannot be quantized: not a float"},
        {KEEP_OF("F32", "0,4"), QUANTIZE_OF("F32", "0,4"), "'none' cannot be quantized: empty"},
        {"\"int8:c0\"", "null", "needs a scheme"},
        {"\"int8:c0\"", "8", "needs a scheme"},
        {"\"int8:c0\"", "\"int9\"", "unknown dtype 'int9'"},
        {"\"int8:c0\"", "\"int8:c2\"", "axis 2 does not exist in: 'a.weight' [4,6]"},
        {"\"int8:c0\"", "\"int8:g4\"", "group size 4 does not divide"},
        {"\"minmax\"", "\"mae\"", "calibrate: expected minmax, mse[:fast], "},
    };
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
}

static void names_of_outputs_are_bare(void **state)
{
    static const struct refusal rows[] = {
        {"\"m.int8.safetensors\"", "\"../m\"", "a bare file name, found '../m'"},
        {"\"m.int8.safetensors\"", "\"/m\"", "a bare file name"},
        {"\"m.int8.safetensors\"", "\"a/b\"", "a bare file name"},
        {"\"m.int8.safetensors\"", "\"\"", "a bare file name"},
        {"\"m.int8.safetensors\"", "\".\"", "a bare file name"},
        {"\"m.int8.safetensors\"", "\"..\"", "a bare file name"},
    };
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
}

/* Not taken for absent: the person meant something by it. */
static void values_of_the_wrong_type_are_refused(void **state)
{
    static const struct refusal rows[] = {
        {"\"minmax\"", "5", "calibrate"},
        {"\"minmax\"", "[\"mse\"]", "calibrate"},
        {"\"m.int8.safetensors\"", "7", "file"},
    };
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
}

static void stale_outputs_are_refused_with_a_hint(void **state)
{
    static const struct refusal rows[] = {
        {"\"scheme\":\"int8:c0\"", "\"scheme\":\"int8:t\"", "is not what its actions"},
        {"\"begin\":0", "\"begin\":1", "an output tensor"},
        {"\"dtype\":\"I8\"", "\"dtype\":\"U8\"", "an output tensor"},
        {"\"name\":\"a.weight_scale\"", "\"name\":\"x\"", "an output tensor"},
        {"\"outputs\":[", "\"outputs\":[{},", "the number of output tensors"},
        {"\"outputs\":[", "\"outputs\":7,\"x\":[", "unknown key"},
        {"\"header_bytes\":", "\"header_bytes\":1", "the size of the output"},
        {"\"zero_point\":\"always\"", "\"zero_point\":\"asymmetric\"", "is not what its actions"},
    };
    struct qplan_plan *plan;
    struct qplan_error err;
    (void)state;
    assert_all_refused(rows, COUNT(rows), document);
    char *text = edited(document, "\"scheme\":\"int8:c0\"", "\"scheme\":\"int4:g2\"");
    assert_int_equal(read_bytes(&plan, text, strlen(text), &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.hint, "jq 'del(.output, .tensors[].outputs)'"));
    free(text);
}

static void a_plan_for_a_quantized_checkpoint_is_refused(void **state)
{
    struct tensor plain = {"w", "F32", 2, {2, 2}, NULL, 16};
    const char *path = in_folder(&folder, "native.safetensors");
    struct qplan_plan *plan;
    struct qplan_error err;
    (void)state;
    write_checkpoint(path,
                     "{\"qplan.layout\":\"1\",\"qplan.numerics\":\"1\",\"qplan.tensors\":\"{}\"}",
                     &plain, 1);
    struct qplan_checkpoint *native = open_checkpoint(path);
    const struct qplan_document given = {
        .name = "p", .text = document, .n_bytes = strlen(document)};
    assert_int_equal(qplan_plan_read(&plan, native, &given, &err), QPLAN_ERR_INVALID);
    assert_non_null(strstr(err.message, "already quantized"));
    assert_null(plan);
    qplan_checkpoint_close(native);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_plan_is_read_and_written_the_same),
        cmocka_unit_test(what_is_computed_may_be_left_out),
        cmocka_unit_test(edits_of_action_and_scheme_are_taken),
        cmocka_unit_test(white_space_and_the_order_of_tensors_do_not_matter),
        cmocka_unit_test(the_name_of_the_output_is_the_plans),
        cmocka_unit_test(texts_that_are_not_strict_json_are_refused),
        cmocka_unit_test(deep_texts_are_refused),
        cmocka_unit_test(settings_must_be_known_words),
        cmocka_unit_test(unknown_and_repeated_keys_are_refused_everywhere),
        cmocka_unit_test(numbers_are_whole_and_plain),
        cmocka_unit_test(large_extents_are_exact),
        cmocka_unit_test(tensors_must_be_those_of_the_checkpoint),
        cmocka_unit_test(missing_and_repeated_tensors_are_refused),
        cmocka_unit_test(actions_that_cannot_be_are_refused),
        cmocka_unit_test(names_of_outputs_are_bare),
        cmocka_unit_test(values_of_the_wrong_type_are_refused),
        cmocka_unit_test(stale_outputs_are_refused_with_a_hint),
        cmocka_unit_test(a_plan_for_a_quantized_checkpoint_is_refused),
    };
    return cmocka_run_group_tests(tests, make_model, remove_model);
}
