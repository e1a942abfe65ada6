/*
 * test_verify.c - what verify must not let pass, case by case: scales that are none, tensors that
 * are missing, left over or different, metadata; and what it must let pass.
 */
#include "own_folder.h"
#include "report_cases.h"

static const char *file_path(void)
{
    return in_folder(&folder, "q");
}

static const char *source_path(void)
{
    return in_folder(&folder, "s");
}

/* What verify says of samples that stand for `sources`. */
static enum qplan_status verify(const struct sample *files, size_t n_files,
                                const struct sample *sources, size_t n_sources,
                                struct qplan_error *err)
{
    write_native(file_path(), files, n_files);
    write_source(source_path(), sources, n_sources);
    return verify_file(file_path(), source_path(), err);
}

static void assert_failure(enum qplan_status status, enum qplan_status wanted,
                           const struct qplan_error *err, const char *subject, const char *words)
{
    if (status == QPLAN_OK)
        fail_msg("proven, but expected \"%s\"", words);
    assert_int_equal(status, wanted);
    if (!strstr(err->subject, subject) || !strstr(err->message, words))
        fail_msg("expected \"%s: %s\", found \"%s: %s\"", subject, words, err->subject,
                 err->message);
}

static void assert_offence(enum qplan_status status, const struct qplan_error *err,
                           const char *subject, const char *words)
{
    assert_failure(status, QPLAN_ERR_PROOF, err, subject, words);
}

/* What verify says of a file that may be a mere copy. */
static enum qplan_status verify_copy(struct qplan_error *err)
{
    struct qplan_checkpoint *file = open_checkpoint(file_path());
    struct qplan_checkpoint *source = open_checkpoint(source_path());
    const struct qplan_inspect_options options = {
        .against = source, .prove = true, .allow_unquantized = true};
    struct qplan_report *report = NULL;
    enum qplan_status status = qplan_inspect(&report, file, &options, NULL, err);
    qplan_report_free(report);
    qplan_checkpoint_close(source);
    qplan_checkpoint_close(file);
    return status;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

static void a_right_file_is_proven(void **state)
{
    struct qplan_error err = {.status = QPLAN_OK};
    (void)state;
    OK(verify(&plain_sample, 1, &plain_sample, 1, &err), &err);
    assert_int_equal(err.status, QPLAN_OK); /* left as it was */
}

/* Of every set, whatever its window: the numbers of both precisions are looked at as vectors. */
static void a_scale_that_is_no_scale_is_bad_input(void **state)
{
    static const float scales[] = {INFINITY, NAN, -INFINITY, -1, 0, -0.0f};
    char words[64];
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(scales) * ROWS; i++) {
        struct sample s = plain_sample;
        s.scale[i % ROWS] = scales[i / ROWS];
        (void)snprintf(words, sizeof words,
                       "bad scale of set %zu: expected a finite number above 0, found ", i % ROWS);
        assert_failure(verify(&s, 1, &s, 1, &err), QPLAN_ERR_INVALID, &err, "'w_scale'", words);
    }
}

/* The layout has no scale below 0, though codes of the other sign would decode to such values. */
static void a_scale_below_zero_is_bad_input(void **state)
{
    struct sample s = plain_sample;
    struct qplan_error err;
    (void)state;
    s.scale[2] = -s.scale[2];
    for (size_t i = 2 * COLS; i < 3 * COLS; i++) {
        s.codes[i] = (int8_t)(s.codes[i] == -128 ? 127 : -s.codes[i]);
        s.x[i] = (float)sample_y(&s, i);
    }
    assert_failure(verify(&s, 1, &s, 1, &err), QPLAN_ERR_INVALID, &err, "'w_scale'",
                   "bad scale of set 2");
}

/* inspect and dequantize refuse such a file in the same words. */
static void a_scale_that_is_no_scale_is_bad_input_elsewhere(void **state)
{
    static const float scales[] = {INFINITY, NAN, -1, 0};
    struct sample s = plain_sample;
    struct qplan_report *report;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(scales); i++) {
        s.scale[3] = scales[i];
        write_native(file_path(), &s, 1);
        struct qplan_checkpoint *file = open_checkpoint(file_path());
        assert_int_equal(qplan_inspect(&report, file, NULL, NULL, &err), QPLAN_ERR_INVALID);
        assert_non_null(strstr(err.message, "bad scale of set 3"));
        assert_null(report);
        assert_int_equal(qplan_dequantize(&report, file, in_folder(&folder, "d"), NULL, NULL, &err),
                         QPLAN_ERR_INVALID);
        assert_false(file_exists(in_folder(&folder, "d")));
        qplan_checkpoint_close(file);
    }
}

static void the_first_offender_is_described(void **state)
{
    struct sample s = plain_sample;
    struct qplan_error err;
    (void)state;
    s.codes[8] = 5; /* 3.0 decodes to 5.0; the scale is 1 */
    s.codes[11] = 0;
    assert_offence(
        verify(&s, 1, &s, 1, &err), &err, "'w'",
        "outside the bound at [2,2]: source 3.0, decoded 5.0, allowed error 0.5001220703125001,"
        " and 2 such elements in all");
}

/* The next float above the right scale: every element is within its bound all the same. */
static void a_scale_that_minmax_does_not_give_is_described(void **state)
{
    struct sample s = plain_sample;
    struct qplan_error err;
    (void)state;
    s.scale[3] = 0x1.000002p-2f;
    assert_offence(verify(&s, 1, &s, 1, &err), &err, "'w_scale'",
                   "not what minmax gives for the source at [3]: expected 0.25, found "
                   "0.2500000298023224, and 1 such bytes in all");
}

/* minmax leaves nothing outside the range: a value that is cannot be called clipped. */
static void a_clipped_value_is_an_offence_with_minmax(void **state)
{
    struct sample s = plain_sample;
    struct qplan_error err;
    (void)state;
    s.x[6] = 130;
    s.codes[6] = 127;
    assert_offence(verify(&s, 1, &s, 1, &err), &err, "'w'", "outside the bound at [2,0]");
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static void missing_and_extra_tensors_are_offences(void **state)
{
    struct sample both[2] = {plain_sample, plain_sample};
    struct qplan_error err;
    (void)state;
    both[1].name = "x";
    assert_offence(verify(both, 1, both, 2, &err), &err, "'x'",
                   "this tensor of the source is missing in");
    assert_offence(verify(both, 2, both, 1, &err), &err, "'x'", "this tensor is not in the source");
}

/* The file has a tensor of that name, but it is a part of another one. */
static void a_sidecar_does_not_stand_for_a_tensor_of_the_source(void **state)
{
    static const char *const names[] = {"w_scale", "w_zero_point"};
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        const float values[ROWS] = {1, 2, 3, 4};
        const struct tensor source[] = {
            {"w", "F32", 2, {ROWS, COLS}, plain_sample.x, sizeof plain_sample.x},
            {names[i], "F32", 1, {ROWS}, values, sizeof values}};
        write_native(file_path(), &plain_sample, 1);
        write_checkpoint(source_path(), NULL, source, COUNT(source));
        assert_offence(verify_file(file_path(), source_path(), &err), &err, names[i],
                       "this tensor of the source is missing in");
    }
}

static void another_shape_or_dtype_is_an_offence(void **state)
{
    const struct tensor turned = {"w", "F32", 2, {COLS, ROWS}, plain_sample.x, 48};
    const struct tensor other = {"w", "I32", 2, {ROWS, COLS}, plain_sample.x, 48};
    struct qplan_error err;
    (void)state;
    write_native(file_path(), &plain_sample, 1);
    write_checkpoint(source_path(), NULL, &turned, 1);
    assert_offence(verify_file(file_path(), source_path(), &err), &err, "'w'",
                   "type or shape is not that of the source");
    write_checkpoint(source_path(), NULL, &other, 1);
    assert_offence(verify_file(file_path(), source_path(), &err), &err, "'w'",
                   "type or shape is not that of the source");
}

static void metadata_must_be_that_of_the_source(void **state)
{
    static const char *const rows[][2] = {{"{\"a\":\"1\"}", "{}"},
                                          {"{}", "{\"a\":\"1\"}"},
                                          {"{\"a\":\"1\"}", "{\"a\":\"2\"}"},
                                          {"{\"a\":\"1\\u0000x\"}", "{\"a\":\"1\\u0000y\"}"}};
    static const struct tensor kept = {"k", "I32", 1, {1}, NULL, 4};
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        write_checkpoint(file_path(), rows[i][0], &kept, 1);
        write_checkpoint(source_path(), rows[i][1], &kept, 1);
        assert_offence(verify_file(file_path(), source_path(), &err), &err, "q",
                       "metadata 'a' is not that of the source");
    }
    write_checkpoint(file_path(), "{\"format\":\"pt\",\"a\":\"\"}", &kept, 1);
    write_checkpoint(source_path(), "{\"a\":\"\",\"format\":\"np\",\"qplan.old\":\"x\"}", &kept, 1);
    OK(verify_copy(&err), &err);
}

static void a_mere_copy_is_proven_only_where_that_is_allowed(void **state)
{
    static const unsigned char other[4] = {1, 2, 3, 4};
    struct tensor kept = {"k", "I32", 1, {1}, NULL, 4};
    struct qplan_error err;
    (void)state;
    write_checkpoint(file_path(), NULL, &kept, 1);
    write_checkpoint(source_path(), NULL, &kept, 1);
    assert_offence(verify_file(file_path(), source_path(), &err), &err, "q",
                   "nothing is quantized");
    assert_int_equal(err.advice, QPLAN_ADVICE_UNQUANTIZED);
    OK(verify_copy(&err), &err);
    write_checkpoint(file_path(), NULL, &kept, 0); /* not even a tensor */
    write_checkpoint(source_path(), NULL, &kept, 0);
    assert_offence(verify_file(file_path(), source_path(), &err), &err, "q",
                   "nothing is quantized");
    OK(verify_copy(&err), &err);
    write_checkpoint(file_path(), NULL, &kept, 1);
    kept.data = other;
    write_checkpoint(source_path(), NULL, &kept, 1);
    assert_offence(verify_file(file_path(), source_path(), &err), &err, "'k'", "a kept tensor");
    assert_int_equal(err.advice, QPLAN_ADVICE_NONE);
    assert_offence(verify_copy(&err), &err, "'k'", "a kept tensor");
}

static void a_source_that_is_quantized_is_refused(void **state)
{
    struct qplan_report *report;
    struct qplan_error err;
    (void)state;
    write_native(file_path(), &plain_sample, 1);
    struct qplan_checkpoint *file = open_checkpoint(file_path());
    const struct qplan_inspect_options options = {.against = file, .prove = true};
    assert_int_equal(qplan_inspect(&report, file, &options, NULL, &err), QPLAN_ERR_INVALID);
    assert_null(report);
    const struct qplan_inspect_options alone = {.prove = true};
    assert_int_equal(qplan_inspect(&report, file, &alone, NULL, &err), QPLAN_ERR_USAGE);
    assert_null(report);
    qplan_checkpoint_close(file);
}

/* Without a proof, a file that does not fit the source is bad input. */
static void inspect_refuses_a_source_that_does_not_fit(void **state)
{
    struct sample both[2] = {plain_sample, plain_sample};
    struct looked l;
    (void)state;
    both[1].name = "x";
    write_native(file_path(), both, 2);
    write_source(source_path(), both, 1);
    look(&l, file_path(), source_path(), false, NULL);
    assert_int_equal(l.status, QPLAN_ERR_INVALID);
    look_away(&l);
    write_native(file_path(), both, 1);
    write_source(source_path(), both, 2);
    look(&l, file_path(), source_path(), false, NULL); /* a tensor less is only counted */
    OK(l.status, &l.err);
    look_away(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_right_file_is_proven),
        cmocka_unit_test(a_scale_that_is_no_scale_is_bad_input),
        cmocka_unit_test(a_scale_below_zero_is_bad_input),
        cmocka_unit_test(a_scale_that_is_no_scale_is_bad_input_elsewhere),
        cmocka_unit_test(the_first_offender_is_described),
        cmocka_unit_test(a_scale_that_minmax_does_not_give_is_described),
        cmocka_unit_test(a_clipped_value_is_an_offence_with_minmax),
        cmocka_unit_test(missing_and_extra_tensors_are_offences),
        cmocka_unit_test(a_sidecar_does_not_stand_for_a_tensor_of_the_source),
        cmocka_unit_test(another_shape_or_dtype_is_an_offence),
        cmocka_unit_test(metadata_must_be_that_of_the_source),
        cmocka_unit_test(a_mere_copy_is_proven_only_where_that_is_allowed),
        cmocka_unit_test(a_source_that_is_quantized_is_refused),
        cmocka_unit_test(inspect_refuses_a_source_that_does_not_fit),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
