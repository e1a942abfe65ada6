/*
 * test_report.c - the numbers of a report against their formulas, worked out in long double on a
 * tensor small enough to follow; what is null; the order of keys; totals.
 */
#include "own_folder.h"
#include "report_cases.h"

static void look_at(struct looked *l, const struct sample *samples, size_t n, bool measured)
{
    const char *file = in_folder(&folder, "q"), *source = in_folder(&folder, "s");
    write_native(file, samples, n);
    write_source(source, samples, n);
    look(l, file, measured ? source : NULL, false, NULL);
    OK(l->status, &l->err);
}

/* ---- Numbers --------------------------------------------------------------------------------- */

struct moments {
    long double e2, x2, y2, xy, max_abs;
    size_t n;
};

static void add_moments(struct moments *m, const struct sample *s)
{
    for (size_t i = 0; i < N_ELEM; i++) {
        long double x = s->x[i], y = sample_y(s, i), e = x - y;
        m->e2 += e * e;
        m->x2 += x * x;
        m->y2 += y * y;
        m->xy += x * y;
        m->max_abs = fmaxl(m->max_abs, fabsl(e));
        m->n++;
    }
}

/* Asserts the measured fields below a prefix, "totals." or "tensors.0.". */
static void assert_moments(const struct looked *l, const char *prefix, const struct moments *m)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%smax_abs", prefix);
    assert_near(l, path, m->max_abs);
    (void)snprintf(path, sizeof path, "%srms", prefix);
    assert_near(l, path, sqrtl(m->e2 / (long double)m->n));
    (void)snprintf(path, sizeof path, "%ssqnr_db", prefix);
    assert_near(l, path, 10 * log10l(m->x2 / m->e2));
    (void)snprintf(path, sizeof path, "%scosine", prefix);
    assert_near(l, path, m->xy / (sqrtl(m->x2) * sqrtl(m->y2)));
}

static void measured_numbers_are_those_of_the_formulas(void **state)
{
    struct looked l;
    struct moments m = {0};
    (void)state;
    look_at(&l, &plain_sample, 1, true);
    add_moments(&m, &plain_sample);
    assert_moments(&l, "tensors.0.", &m);
    assert_moments(&l, "totals.", &m);
    assert_int_equal(number(&l, "tensors.0.max_at.0"), 2); /* 127.25 stands for 127 */
    assert_int_equal(number(&l, "tensors.0.max_at.1"), 0);
    assert_int_equal(number(&l, "tensors.0.clipped"), 0);
    assert_true(number(&l, "tensors.0.max_clip") == 0);
    assert_int_equal(number(&l, "tensors.0.nonfinite"), 0);
    assert_true(cJSON_IsTrue(member(&l, "tensors.0.proven")));
    assert_true(cJSON_IsTrue(member(&l, "totals.proven")));
    look_away(&l);
}

static void totals_pool_all_quantized_tensors(void **state)
{
    struct sample samples[3] = {plain_sample, plain_sample, plain_sample};
    struct moments m = {0};
    struct looked l;
    (void)state;
    samples[0].name = "a";
    samples[1].name = "b";
    samples[2].name = "c";
    samples[1].x[0] = 1.125f;
    for (size_t i = 0; i < N_ELEM; i++) {
        samples[2].x[i] *= 4;
        samples[2].scale[i / COLS] = plain_sample.scale[i / COLS] * 4;
    }
    for (size_t i = 0; i < COUNT(samples); i++)
        add_moments(&m, &samples[i]);
    look_at(&l, samples, COUNT(samples), true);
    assert_moments(&l, "totals.", &m);
    assert_near(&l, "totals.half_step", 2);
    look_away(&l);
}

/* Of several largest errors the first in flat order is named. */
static void the_first_largest_error_is_named(void **state)
{
    struct sample s = plain_sample;
    struct looked l;
    (void)state;
    s.x[5] = -0.25f; /* decodes to 0: as wrong as element 6 */
    look_at(&l, &s, 1, true);
    assert_int_equal(number(&l, "tensors.0.max_at.0"), 1);
    assert_int_equal(number(&l, "tensors.0.max_at.1"), 2);
    look_away(&l);
}

static void what_is_not_finite_is_counted_and_left_out(void **state)
{
    struct sample s = plain_sample, rest = plain_sample;
    struct moments m = {0};
    struct looked l;
    (void)state;
    s.x[2] = NAN;
    s.codes[2] = 0; /* NaN stands as 0 */
    s.x[8] = INFINITY;
    s.codes[8] = 127;
    s.x[11] = -INFINITY;
    s.codes[11] = -128;
    rest.x[2] = rest.x[8] = rest.x[11] = 0;
    rest.codes[2] = rest.codes[8] = 0;
    rest.codes[11] = rest.zero[3];
    add_moments(&m, &rest);
    m.n -= 3;
    look_at(&l, &s, 1, true);
    assert_moments(&l, "tensors.0.", &m);
    assert_int_equal(number(&l, "tensors.0.nonfinite"), 3);
    assert_true(cJSON_IsTrue(member(&l, "tensors.0.proven")));
    look_away(&l);
}

/* With minmax no value is outside the range; one that is counts as clipped, and is not proven. */
static void clipped_values_are_counted_and_measured(void **state)
{
    struct sample s = plain_sample;
    struct looked l;
    (void)state;
    s.x[6] = 130;
    s.codes[6] = 127;
    s.x[7] = -200.5f;
    s.codes[7] = -128;
    look_at(&l, &s, 1, true);
    assert_int_equal(number(&l, "tensors.0.clipped"), 2);
    assert_true(number(&l, "tensors.0.max_clip") == 72.5);
    assert_true(number(&l, "totals.max_clip") == 72.5);
    assert_true(cJSON_IsFalse(member(&l, "tensors.0.proven")));
    assert_true(cJSON_IsFalse(member(&l, "totals.proven")));
    look_away(&l);
}

/* ---- Scales ---------------------------------------------------------------------------------- */

/* s (1/2 + 2^(b-21)) + 2^-149 of b bits and a power of two: the next double above the first terms.
 */
static double bound_of_bits(int bits, double scale)
{
    return nextafter(scale * (0.5 + ldexp(1, bits - 21)), INFINITY);
}

static double bound_of(double scale)
{
    return bound_of_bits(8, scale);
}

static void zero_sets_do_not_set_the_bound_but_sets_with_scale_1_do(void **state)
{
    struct sample s = plain_sample;
    struct looked l;
    (void)state;
    look_at(&l, &s, 1, false); /* row 2 has scale 1 and other codes than its zero point */
    assert_true(number(&l, "tensors.0.half_step") == 0.5);
    assert_true(number(&l, "tensors.0.bound") == bound_of(1));
    assert_true(number(&l, "tensors.0.scale_min") == 0.25);
    assert_true(number(&l, "tensors.0.scale_max") == 1);
    look_away(&l);
    s.scale[2] = 0.125f; /* now only the zeros of row 1 have scale 1 */
    look_at(&l, &s, 1, false);
    assert_true(number(&l, "tensors.0.half_step") == 0.25);
    assert_true(number(&l, "tensors.0.bound") == bound_of(0.5));
    assert_true(number(&l, "tensors.0.scale_min") == 0.125);
    assert_true(number(&l, "tensors.0.scale_max") == 1);
    look_away(&l);
    s.codes[5] = 1; /* one code of row 1 is not its zero point: the row counts */
    look_at(&l, &s, 1, false);
    assert_true(number(&l, "tensors.0.half_step") == 0.5);
    assert_true(number(&l, "totals.half_step") == 0.5);
    look_away(&l);
    s.codes[5] = s.zero[1] = 1;
    s.codes[3] = s.codes[4] = 1; /* zeros again, with another zero point */
    look_at(&l, &s, 1, false);
    assert_true(number(&l, "tensors.0.half_step") == 0.25);
    look_away(&l);
}

/* A zero set does not decode to 0 alone with any other scale. */
static void zero_codes_with_another_scale_do_set_the_bound(void **state)
{
    struct sample s = plain_sample;
    struct looked l;
    (void)state;
    s.scale[1] = 2;
    look_at(&l, &s, 1, false);
    assert_true(number(&l, "tensors.0.half_step") == 1);
    look_away(&l);
}

/*
 * GPTQ decodes in f16: at 8 steps of 1 half a unit in the last place is 2^-8. With a largest value
 * of 7.5 the scale of 4 bits is 1.
 */
static void a_decoder_that_rounds_adds_half_a_unit_to_the_bound(void **state)
{
    static const char config[] = "{\"model_type\":\"llama\"}";
    static float values[32 * 32];
    const struct tensor tensors[] = {{"m.0.w.weight", "F32", 2, {32, 32}, values, sizeof values}};
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, "rounded.out")};
    const struct qplan_plan_options options = {.scheme = scheme_of("int4:g32"), .format = "gptq"};
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_report *report;
    struct qplan_plan *plan;
    struct qplan_error err;
    struct looked l;
    (void)state;
    for (size_t i = 0; i < COUNT(values); i++)
        values[i] = 7.5f;
    assert_int_equal(mkdir(in_folder(&folder, "rounded"), 0777), 0);
    write_file(in_folder(&folder, "rounded/config.json"), config, sizeof config - 1);
    write_checkpoint(in_folder(&folder, "rounded/model.safetensors"), NULL, tensors, 1);
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "rounded"));
    OK(qplan_plan_make(&plan, source, &options, &err), &err);
    OK(qplan_quantize(&report, plan, &how, &run, &err), &err);
    look(&l, how.out_path, NULL, false, (const char *[]){NULL});
    assert_true(number(&l, "tensors.0.half_step") == 0.5);
    assert_true(number(&l, "tensors.0.bound") == nextafter(bound_of_bits(4, 1) + 0x1p-8, INFINITY));
    look_away(&l);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
}

#define MANY_SETS 9000 /* more than are read at a time */

/* The facts of all sets, wherever the one that is unlike the others stands. */
static void facts_are_those_of_all_sets(void **state)
{
    static const char metadata[] =
        "{\"format\":\"pt\",\"qplan.layout\":\"1\",\"qplan.numerics\":\"1\","
        "\"qplan.tensors\":\"{\\\"w\\\":\\\"int8:c0 minmax F32 9000x1\\\"}\"}";
    static const size_t places[] = {0, 8191, 8192, MANY_SETS - 1};
    static const float others[] = {0.625f, 0.375f};
    static int8_t codes[MANY_SETS];
    static float scales[MANY_SETS];
    const struct tensor tensors[] = {{"w", "I8", 2, {MANY_SETS, 1}, codes, sizeof codes},
                                     {"w_scale", "F32", 1, {MANY_SETS}, scales, sizeof scales}};
    (void)state;
    for (size_t i = 0; i < COUNT(places) * COUNT(others); i++) {
        const float other = others[i % COUNT(others)];
        struct looked l;
        for (size_t k = 0; k < MANY_SETS; k++)
            scales[k] = k == places[i / COUNT(others)] ? other : 0.5f;
        write_checkpoint(in_folder(&folder, "q"), metadata, tensors, COUNT(tensors));
        look(&l, in_folder(&folder, "q"), NULL, false, NULL);
        OK(l.status, &l.err);
        assert_true(number(&l, "tensors.0.scale_min") == (other < 0.5f ? other : 0.5f));
        assert_true(number(&l, "tensors.0.scale_max") == (other > 0.5f ? other : 0.5f));
        assert_true(number(&l, "tensors.0.half_step") == (other > 0.5f ? other : 0.5f) / 2);
        look_away(&l);
    }
}

/* One set of zeros, of more codes than are read at a time; then its last code is another one. */
static void a_large_set_of_zeros_does_not_set_the_bound(void **state)
{
    static const char metadata[] =
        "{\"format\":\"pt\",\"qplan.layout\":\"1\",\"qplan.numerics\":\"1\","
        "\"qplan.tensors\":\"{\\\"w\\\":\\\"int8:b5x3000 minmax F32 5x3000\\\"}\"}";
    static int8_t codes[5 * 3000];
    static const float scale = 1;
    const struct tensor tensors[] = {{"w", "I8", 2, {5, 3000}, codes, sizeof codes},
                                     {"w_scale", "F32", 2, {1, 1}, &scale, sizeof scale}};
    struct looked l;
    (void)state;
    for (int8_t last = 0; last < 2; last++) {
        codes[COUNT(codes) - 1] = last;
        write_checkpoint(in_folder(&folder, "q"), metadata, tensors, COUNT(tensors));
        look(&l, in_folder(&folder, "q"), NULL, false, NULL);
        OK(l.status, &l.err);
        assert_int_equal(is_null(&l, "tensors.0.half_step"), last == 0);
        assert_true(last == 0 || number(&l, "tensors.0.half_step") == 0.5);
        look_away(&l);
    }
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* The report on a file of many tensors with so many threads; the message where there is none. */
static void report_with(const char *path, unsigned threads, struct text *text)
{
    struct qplan_checkpoint *file = open_checkpoint(path);
    const struct qplan_inspect_options options = {.prove = false};
    const struct qplan_run run = {.threads = threads};
    struct qplan_report *report;
    struct qplan_error err;
    if (qplan_inspect(&report, file, &options, &run, &err) == QPLAN_OK)
        OK(qplan_report_write_json(report, text_add, text, &err), &err);
    else
        text_puts(text, err.subject), text_puts(text, err.message);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
}

static void a_report_does_not_depend_on_threads(void **state)
{
    static struct sample samples[MOST_SAMPLES];
    static char names[MOST_SAMPLES][16];
    const char *path = in_folder(&folder, "many");
    (void)state;
    for (size_t bad = 0; bad < 3; bad++) {
        for (size_t i = 0; i < COUNT(samples); i++) {
            samples[i] = plain_sample;
            (void)snprintf(names[i], sizeof names[i], "w%03zu", i);
            samples[i].name = names[i];
            samples[i].scale[i % ROWS] *= (float)(1 + i);
        }
        if (bad > 0) /* two of them, of which the first must be named */
            samples[bad == 1 ? 40 : 0].scale[3] = samples[130].scale[0] = -1;
        write_native(path, samples, COUNT(samples));
        struct text one = {0}, some = {0};
        report_with(path, 1, &one);
        assert_int_equal(strstr(one.data, "w040_scale") != NULL, bad == 1);
        assert_int_equal(strstr(one.data, "bad scale of set 3") != NULL, bad > 0);
        for (unsigned threads = 2; threads < 8; threads++) {
            some.n = 0;
            report_with(path, threads, &some);
            assert_int_equal(some.n, one.n);
            assert_memory_equal(some.data, one.data, one.n);
        }
        text_free(&one);
        text_free(&some);
    }
}

/* ---- What is null ---------------------------------------------------------------------------- */

static const char *const measured_keys[] = {"max_abs", "rms",      "sqnr_db",   "cosine",
                                            "clipped", "max_clip", "nonfinite", "proven"};

static void measured_fields_are_null_without_a_source(void **state)
{
    struct looked l;
    char path[64];
    (void)state;
    look_at(&l, &plain_sample, 1, false);
    assert_true(is_null(&l, "source"));
    assert_true(is_null(&l, "tensors.0.max_at"));
    for (size_t i = 0; i < COUNT(measured_keys); i++) {
        (void)snprintf(path, sizeof path, "totals.%s", measured_keys[i]);
        assert_true(is_null(&l, path));
        (void)snprintf(path, sizeof path, "tensors.0.%s", measured_keys[i]);
        assert_true(is_null(&l, path));
    }
    assert_string_equal(string(&l, "command"), "inspect");
    look_away(&l);
}

static struct sample zero_sample(void)
{
    return (struct sample){.name = "w", .scale = {1, 1, 1, 1}};
}

static void ratios_of_nothing_are_null(void **state)
{
    struct sample s = zero_sample();
    struct looked l;
    (void)state;
    look_at(&l, &s, 1, true);
    assert_true(is_null(&l, "tensors.0.half_step"));
    assert_true(is_null(&l, "tensors.0.bound"));
    assert_true(is_null(&l, "totals.bound"));
    assert_true(is_null(&l, "tensors.0.sqnr_db"));
    assert_true(is_null(&l, "tensors.0.cosine"));
    assert_true(number(&l, "tensors.0.rms") == 0);
    assert_true(number(&l, "tensors.0.max_abs") == 0);
    look_away(&l);
    s.x[0] = s.codes[0] = 1; /* no error, but a signal */
    look_at(&l, &s, 1, true);
    assert_true(is_null(&l, "tensors.0.sqnr_db"));
    assert_true(number(&l, "tensors.0.cosine") == 1);
    look_away(&l);
    for (size_t i = 0; i < N_ELEM; i++) { /* nothing finite to measure */
        s.x[i] = NAN;
        s.codes[i] = 0;
    }
    look_at(&l, &s, 1, true);
    assert_true(is_null(&l, "tensors.0.max_abs"));
    assert_true(is_null(&l, "tensors.0.max_at"));
    assert_true(is_null(&l, "tensors.0.rms"));
    look_away(&l);
}

/* verify goes on after a tensor that the source lacks: nothing was measured of that one. */
static void a_tensor_without_a_partner_has_no_measured_numbers(void **state)
{
    struct sample both[2] = {plain_sample, plain_sample};
    struct looked l;
    (void)state;
    both[1].name = "x";
    write_native(in_folder(&folder, "q"), both, 2);
    write_source(in_folder(&folder, "s"), both, 1);
    look(&l, in_folder(&folder, "q"), in_folder(&folder, "s"), true, NULL);
    assert_int_equal(l.status, QPLAN_ERR_PROOF);
    assert_string_equal(string(&l, "tensors.1.name"), "x");
    assert_true(cJSON_IsFalse(member(&l, "tensors.1.proven")));
    assert_true(is_null(&l, "tensors.1.max_abs"));
    assert_true(is_null(&l, "tensors.1.rms"));
    look_away(&l);
}

/* ---- The document ---------------------------------------------------------------------------- */

static void assert_keys(const cJSON *object, const char *keys)
{
    char found[512] = "";
    for (const cJSON *item = object->child; item; item = item->next) {
        size_t n = strlen(found);
        (void)snprintf(found + n, sizeof found - n, "%s%s", n ? " " : "", item->string);
    }
    assert_string_equal(found, keys);
}

#define TENSOR_KEYS                                                                                \
    "name action reason rule scheme calibrate source_dtype storage_dtype shape elements sets "     \
    "source_bytes code_bytes param_bytes ratio_ideal ratio bpw scale_min scale_max "               \
    "negative_scales negative_percent half_step "                                                  \
    "bound max_abs max_at rms sqnr_db weighted_sqnr_db cosine clipped max_clip nonfinite proven"

static void keys_are_complete_and_in_order(void **state)
{
    struct looked l;
    (void)state;
    for (int measured = 0; measured < 2; measured++) {
        look_at(&l, &plain_sample, 1, measured);
        assert_keys(l.json, "schema command version numerics file source totals tensors kept gates "
                            "warnings");
        assert_keys(member(&l, "file"), "path format bytes header_bytes shards");
        assert_keys(member(&l, "totals"),
                    "tensors quantized kept elements source_bytes code_bytes param_bytes "
                    "kept_bytes data_bytes ratio_ideal ratio bpw negative_scales "
                    "negative_percent half_step bound "
                    "max_abs rms "
                    "sqnr_db weighted_sqnr_db cosine clipped max_clip nonfinite proven");
        assert_keys(member(&l, "tensors.0"), TENSOR_KEYS);
        assert_string_equal(string(&l, "schema"), "qplan-report/1");
        assert_string_equal(string(&l, "version"), QPLAN_VERSION);
        look_away(&l);
    }
}

static void sizes_add_up(void **state)
{
    struct looked l;
    (void)state;
    look_at(&l, &plain_sample, 1, true);
    assert_int_equal(number(&l, "tensors.0.elements"), 12);
    assert_int_equal(number(&l, "tensors.0.sets"), 4);
    assert_int_equal(number(&l, "tensors.0.source_bytes"), 48);
    assert_int_equal(number(&l, "tensors.0.code_bytes"), 12);
    assert_int_equal(number(&l, "tensors.0.param_bytes"), 20);
    assert_true(number(&l, "tensors.0.ratio_ideal") == 4);
    assert_true(number(&l, "tensors.0.ratio") == 1.5);
    assert_near(&l, "tensors.0.bpw", 8 * 32 / 12.0L);
    assert_int_equal(number(&l, "totals.data_bytes"), 32);
    assert_int_equal(number(&l, "file.bytes"), number(&l, "file.header_bytes") + 32);
    assert_string_equal(string(&l, "tensors.0.source_dtype"), "F32");
    assert_string_equal(string(&l, "tensors.0.storage_dtype"), "I8");
    assert_string_equal(string(&l, "tensors.0.scheme"), "int8:c0:asym");
    const struct qplan_totals *totals = qplan_report_totals(l.report);
    assert_int_equal(totals->file_bytes, qplan_checkpoint_bytes(l.file));
    assert_int_equal(totals->quantized, 1);
    assert_true(totals->ratio.known && totals->ratio.value == 1.5);
    look_away(&l);
}

static void kept_tensors_are_listed_by_reason(void **state)
{
    static const struct tensor tensors[] = {{"a", "F32", 1, {3}, NULL, 12},
                                            {"b", "F16", 1, {2}, NULL, 4},
                                            {"c", "I8", 2, {2, 2}, NULL, 4},
                                            {"d", "F32", 2, {2, 2}, NULL, 16}};
    struct looked l;
    (void)state;
    write_checkpoint(in_folder(&folder, "k"), NULL, tensors, COUNT(tensors));
    look(&l, in_folder(&folder, "k"), in_folder(&folder, "k"), true, NULL);
    assert_int_equal(l.status, QPLAN_ERR_PROOF); /* a mere copy */
    assert_string_equal(string(&l, "file.format"), "safetensors");
    assert_string_equal(string(&l, "command"), "verify");
    assert_string_equal(string(&l, "kept.0.reason"), "rank 1");
    assert_int_equal(number(&l, "kept.0.tensors"), 2);
    assert_int_equal(number(&l, "kept.0.bytes"), 16);
    assert_string_equal(string(&l, "kept.1.reason"), "not a float");
    assert_string_equal(string(&l, "kept.2.reason"), "not quantized");
    assert_int_equal(number(&l, "totals.kept_bytes"), 36);
    assert_int_equal(number(&l, "totals.quantized"), 0);
    assert_true(is_null(&l, "totals.ratio_ideal"));
    assert_true(is_null(&l, "totals.max_abs"));
    assert_true(cJSON_IsFalse(member(&l, "totals.proven")));
    assert_true(cJSON_IsTrue(member(&l, "tensors.0.proven")));
    assert_keys(member(&l, "tensors.0"), TENSOR_KEYS);
    assert_true(is_null(&l, "tensors.0.scheme") && is_null(&l, "tensors.0.max_abs"));
    look_away(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_numbers_are_those_of_the_formulas),
        cmocka_unit_test(totals_pool_all_quantized_tensors),
        cmocka_unit_test(the_first_largest_error_is_named),
        cmocka_unit_test(what_is_not_finite_is_counted_and_left_out),
        cmocka_unit_test(clipped_values_are_counted_and_measured),
        cmocka_unit_test(zero_sets_do_not_set_the_bound_but_sets_with_scale_1_do),
        cmocka_unit_test(zero_codes_with_another_scale_do_set_the_bound),
        cmocka_unit_test(a_decoder_that_rounds_adds_half_a_unit_to_the_bound),
        cmocka_unit_test(facts_are_those_of_all_sets),
        cmocka_unit_test(a_large_set_of_zeros_does_not_set_the_bound),
        cmocka_unit_test(a_report_does_not_depend_on_threads),
        cmocka_unit_test(measured_fields_are_null_without_a_source),
        cmocka_unit_test(ratios_of_nothing_are_null),
        cmocka_unit_test(a_tensor_without_a_partner_has_no_measured_numbers),
        cmocka_unit_test(keys_are_complete_and_in_order),
        cmocka_unit_test(sizes_add_up),
        cmocka_unit_test(kept_tensors_are_listed_by_reason),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
