/*
 * report_cases.h - for the tests of reports: quantized files made by hand, and reports on them that
 * are parsed again.
 */
#ifndef TESTS_REPORT_CASES_H
#define TESTS_REPORT_CASES_H

#include "support.h"

#include <cjson/cJSON.h>

/* ---- A quantized file made by hand ----------------------------------------------------------- */

#define ROWS   4
#define COLS   3
#define N_ELEM (ROWS * COLS)

#define MOST_SAMPLES 160

/* One tensor of int8:c0, 4 x 3, and the f32 source it claims to stand for. */
struct sample {
    const char *name;
    float x[N_ELEM];
    int8_t codes[N_ELEM];
    float scale[ROWS];
    int8_t zero[ROWS];
};

/*
 * The parameters are those of minmax: each row but that of zeros has its least and its largest
 * value 255 steps apart. Errors: row 0 one of -0.2; row 1 all zeros; row 2 has scale 1 and is not
 * zeros, errors 0.25; row 3 has a zero point, errors 0 and 0.0625.
 */
static const struct sample plain_sample = {
    .name = "w",
    .x = {63.5f, -64, 0.3f, 0, 0, 0, 127.25f, -127.75f, 3, -30.25f, 33.5f, 31.8125f},
    .codes = {127, -128, 1, 0, 0, 0, 127, -128, 3, -128, 127, 120},
    .scale = {0.5f, 1, 1, 0.25f},
    .zero = {0, 0, 0, -7},
};

/* What an element decodes to; exact for the samples here. */
static inline double sample_y(const struct sample *s, size_t i)
{
    return (double)s->scale[i / COLS] * (s->codes[i] - s->zero[i / COLS]);
}

static inline void write_source(const char *path, const struct sample *samples, size_t n)
{
    struct tensor tensors[MOST_SAMPLES];
    for (size_t i = 0; i < n; i++)
        tensors[i] = (struct tensor){samples[i].name, "F32",        2,
                                     {ROWS, COLS},    samples[i].x, sizeof samples[i].x};
    write_checkpoint(path, NULL, tensors, n);
}

/* Writes samples as a file of the native layout. */
static inline void write_native(const char *path, const struct sample *samples, size_t n)
{
    struct tensor tensors[3 * MOST_SAMPLES];
    char names[2 * MOST_SAMPLES][64];
    struct text metadata = {0};
    text_puts(&metadata, "{\"format\":\"pt\",\"qplan.layout\":\"1\",\"qplan.nonfinite\":"
                         "\"saturate\",\"qplan.numerics\":\"1\","
                         "\"qplan.tensors\":\"{");
    for (size_t i = 0; i < n; i++) {
        const struct sample *s = &samples[i];
        char *scale = names[2 * i], *zero = names[2 * i + 1];
        (void)snprintf(scale, sizeof names[0], "%s_scale", s->name);
        (void)snprintf(zero, sizeof names[0], "%s_zero_point", s->name);
        tensors[3 * i] = (struct tensor){s->name, "I8", 2, {ROWS, COLS}, s->codes, N_ELEM};
        tensors[3 * i + 1] = (struct tensor){scale, "F32", 1, {ROWS}, s->scale, sizeof s->scale};
        tensors[3 * i + 2] = (struct tensor){zero, "I8", 1, {ROWS}, s->zero, ROWS};
        text_puts(&metadata, i ? ",\\\"" : "\\\"");
        text_puts(&metadata, s->name);
        text_puts(&metadata, "\\\":\\\"int8:c0:asym minmax F32 4x3\\\"");
    }
    text_puts(&metadata, "}\"}");
    write_checkpoint(path, metadata.data, tensors, 3 * n);
    text_free(&metadata);
}

/* ---- Reports --------------------------------------------------------------------------------- */

/* A report and all that it borrows from. */
struct looked {
    struct qplan_checkpoint *file, *source;
    struct qplan_gate *gates[8];
    size_t n_gates;
    struct qplan_report *report;
    struct text text;
    cJSON *json;
    enum qplan_status status;
    struct qplan_error err;
};

static inline void print_report(struct looked *l)
{
    OK(qplan_report_write_json(l->report, text_add, &l->text, &l->err), &l->err);
    assert_int_equal(l->text.data[l->text.n - 1], '\n');
    assert_ptr_equal(strchr(l->text.data, '\n'), l->text.data + l->text.n - 1);
    l->json = cJSON_Parse(l->text.data);
    assert_non_null(l->json);
}

/* A file of importance by which errors are weighted too; NULL = none. */
static const char *weighted_by;

/* Looks at a file; source may be NULL; gates are texts, ended by NULL. */
static inline void look(struct looked *l, const char *path, const char *source, bool prove,
                        const char *const *gates)
{
    *l = (struct looked){.file = open_checkpoint(path)};
    l->source = source ? open_checkpoint(source) : NULL;
    for (; gates && gates[l->n_gates]; l->n_gates++)
        OK(qplan_gate_parse(&l->gates[l->n_gates], gates[l->n_gates], &l->err), &l->err);
    const struct qplan_inspect_options options = {
        .against = l->source,
        .prove = prove,
        .importance = &weighted_by,
        .n_importance = weighted_by != NULL,
        .gates = (const struct qplan_gate *const *)l->gates,
        .n_gates = l->n_gates,
    };
    l->status = qplan_inspect(&l->report, l->file, &options, NULL, &l->err);
    assert_int_equal(l->report != NULL, l->status == QPLAN_OK || l->status == QPLAN_ERR_PROOF);
    if (l->report)
        print_report(l);
}

static inline void look_away(struct looked *l)
{
    cJSON_Delete(l->json);
    text_free(&l->text);
    qplan_report_free(l->report);
    for (size_t i = 0; i < l->n_gates; i++)
        qplan_gate_free(l->gates[i]);
    qplan_checkpoint_close(l->source);
    qplan_checkpoint_close(l->file);
}

/* A member by its path of keys, "totals.rms"; a number is an index, "tensors.0.name". */
static inline const cJSON *member(const struct looked *l, const char *path)
{
    const cJSON *item = l->json;
    char key[64];
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, ".");
        (void)snprintf(key, sizeof key, "%.*s", (int)n, at);
        item = cJSON_IsArray(item) ? cJSON_GetArrayItem(item, atoi(key))
                                   : cJSON_GetObjectItemCaseSensitive(item, key);
        if (!item)
            fail_msg("no %s in %s", path, l->text.data);
        at += at[n] ? n + 1 : n;
    }
    return item;
}

static inline double number(const struct looked *l, const char *path)
{
    const cJSON *item = member(l, path);
    if (!cJSON_IsNumber(item))
        fail_msg("%s is no number in %s", path, l->text.data);
    return item->valuedouble;
}

static inline const char *string(const struct looked *l, const char *path)
{
    const cJSON *item = member(l, path);
    if (!cJSON_IsString(item))
        fail_msg("%s is no string in %s", path, l->text.data);
    return item->valuestring;
}

static inline bool is_null(const struct looked *l, const char *path)
{
    return cJSON_IsNull(member(l, path));
}

static inline void assert_near(const struct looked *l, const char *path, long double expected)
{
    long double found = number(l, path), error = fabsl(found - expected);
    if (error > 4e-16L * fabsl(expected))
        fail_msg("%s: expected %.20Lg, found %.20Lg", path, expected, found);
}

#endif
