/*
 * test_formats.c - every layout of the registry: what its row promises, the way there and back, and
 * stored tensors that are not what they should be. A layout that is added is found here by itself;
 * its goldens are run by tests/golden.
 */
#include "own_folder.h"

#include "formats/record.h"
#include "lib/base/json.h"
#include "lib/model/dtype.h"
#include "lib/plan/plan.h"

#include <math.h>

static const struct qp_format *next_format(size_t *i)
{
    return qp_format_at((*i)++);
}

static void rows_are_complete_and_found_by_name(void **state)
{
    const struct qp_format *format;
    struct qplan_format_facts facts;
    struct qplan_scheme scheme;
    (void)state;
    assert_non_null(qp_format_find("qplan"));
    assert_null(qp_format_find("no such layout"));
    assert_null(qp_format_find(""));
    for (size_t i = 0; (format = next_format(&i)) != NULL;) {
        assert_true(format->name && format->schemes && format->parts);
        assert_int_equal(format->is_read_only, format->variant == NULL);
        assert_true(format->n_variants > 0);
        assert_true(!format->config == !format->config_keys && !format->is == !format->describe);
        assert_true(!format->config == !format->is_folder);
        assert_ptr_equal(qp_format_find(format->name), format);
        assert_string_equal(qplan_format_name(i - 1), format->name);
        assert_true(qplan_format_at(i - 1, &facts));
        assert_ptr_equal(facts.name, format->name);
        assert_int_equal(qplan_format_scheme(format->name, &scheme), format->scheme != NULL);
    }
    assert_false(qplan_format_at(1000, &facts));
    assert_null(qplan_format_name(1000));
    assert_false(qplan_format_scheme("no such layout", &scheme));
}

static void an_unknown_layout_is_refused_with_those_that_there_are(void **state)
{
    static const struct tensor tensors[] = {{"a", "F32", 2, {2, 2}, NULL, 16}};
    struct qplan_plan_options options = {.scheme = scheme_of("int8"), .format = "other"};
    struct qplan_plan *plan;
    struct qplan_error err;
    (void)state;
    write_checkpoint(in_folder(&folder, "in"), NULL, tensors, COUNT(tensors));
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "in"));
    assert_int_equal(qplan_plan_make(&plan, source, &options, &err), QPLAN_ERR_USAGE);
    assert_null(plan);
    assert_non_null(strstr(err.message, "'other'"));
    assert_non_null(strstr(err.message, "qplan"));
    qplan_checkpoint_close(source);
}

/* ---- There and back ----------------------------------------------------------------------------
 */

static const char *const schemes[] = {
    "int8:c0",           "int8:t:asym",    "uint8:c-1",        "int4:g4",
    "int4:g3:asym",      "uint4:g5:f16",   "uint4:c0",         "int8:b2x3:bf16",
    "int8:c0:narrow",    "int3:g4",        "uint2:c0",         "int7:b2x3:asym",
    "uint4:g5:bias:f16", "uint8:c-1:bias", "int8:g4:e8m0",     "uint4:g3:f8e4m3",
    "int4:b2x3:f8e4m3",  "fp8:g4",         "f8e5m2:b2x3:bf16", "f4e2m1:g4",
    "nf4:g3:f16",        "nf4:t"};

#define N_SOURCES 3

static const struct tensor sources[N_SOURCES] = {{"plain.bias", "F32", 1, {7}, NULL, 28},
                                                 {"a.weight", "F32", 2, {6, 9}, NULL, 216},
                                                 {"b.weight", "F32", 3, {2, 3, 8}, NULL, 192}};

/* Engines take matrices of rows that are a multiple of some words, and perhaps of some rows. */
static const char *const engine_schemes[] = {
    "nf4:g32", "nf4:g64",   "int8:c0",       "int8:g32:asym", "int4:g32",      "int4:g64:asym",
    "int4:c0", "uint4:g32", "uint4:g64:sym", "int8:c0:asym",  "uint5:g32:bias"};

static const struct tensor engine_sources[N_SOURCES] = {
    {"plain.bias", "F32", 1, {7}, NULL, 28},
    {"m.0.a.weight", "F32", 2, {32, 64}, NULL, 8192},
    {"m.1.b.weight", "F32", 2, {64, 192}, NULL, 49152}};

static float random_values[16384];

/* The sources of a layout: a file, or a folder with a config.json. */
static void write_sources(const struct qp_format *format)
{
    static const char config[] = "{\"model_type\": \"llama\", \"torch_dtype\": \"float32\"}\n";
    const struct tensor *wanted = format->fit ? engine_sources : sources;
    const char *path = in_folder(&folder, format->is_folder ? "model" : "in");
    struct tensor tensors[N_SOURCES];
    uint32_t seed = 7;
    if (format->is_folder) {
        (void)mkdir(path, 0777);
        write_file(in_folder(&folder, "model/config.json"), config, sizeof config - 1);
        path = in_folder(&folder, "model/model.safetensors");
    }
    for (size_t i = 0; i < COUNT(random_values); i++) {
        seed = seed * 1664525u + 1013904223u;
        random_values[i] = (float)((double)seed / 4294967296.0 - 0.4);
    }
    for (size_t i = 0; i < N_SOURCES; i++) {
        tensors[i] = wanted[i];
        tensors[i].data = random_values + 50 * i;
    }
    write_checkpoint(path, "{\"note\":\"kept\"}", tensors, COUNT(tensors));
}

/* False if the layout does not store the scheme. */
static bool quantize_by(const struct qp_format *format, const char *scheme,
                        enum qplan_zero_point zero_point)
{
    struct qplan_plan_options options = {.scheme = scheme_of(scheme),
                                         .format = format->name,
                                         .zero_point = zero_point,
                                         .indivisible = format->has_ragged_groups
                                                            ? QPLAN_INDIVISIBLE_RAGGED
                                                            : QPLAN_INDIVISIBLE_ERROR};
    const struct qplan_quantize_options how = {
        .out_path = in_folder(&folder, format->is_folder ? "out.folder" : "out"), .verify = true};
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_checkpoint *source =
        open_checkpoint(in_folder(&folder, format->is_folder ? "model" : "in"));
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_error err;
    const enum qplan_status status = qplan_plan_make(&plan, source, &options, &err);
    if (status == QPLAN_OK) {
        assert_int_equal(plan->n_quantized, 2);
        OK(qplan_quantize(&report, plan, &how, &run, &err), &err);
        qplan_report_free(report);
    }
    assert_true(status == QPLAN_OK || (status == QPLAN_ERR_USAGE && format->fit));
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    return status == QPLAN_OK;
}

/* The bit of a stored word that is bit k of a number to which 1 is added in each value of it. */
static unsigned bit_of_word(const struct qp_place *place, const unsigned char *word, unsigned k)
{
    uint32_t number = 0, ones = 0;
    for (unsigned b = 0; b < place->word_bytes; b++)
        number |= (uint32_t)word[b] << 8 * b;
    for (unsigned at = 0; place->one_less && at < 32; at += place->bits)
        ones |= 1u << at;
    return (number + ones) >> k & 1;
}

/* Where value `at` of a line is among the values of its words. */
static uint64_t slot_of(const struct qp_place *place, uint64_t at)
{
    unsigned slot = 0;
    while (slot < place->n_order && place->order[slot] != at % place->n_order)
        slot++;
    return place->n_order ? at - at % place->n_order + slot : at;
}

/* The value of a stored part by the definition of its place, bit by bit. */
static uint64_t stored_bits(const struct qp_part *part, const unsigned char *bytes, uint64_t elem)
{
    const struct qp_place *place = part->place;
    const uint64_t row = elem / part->matrix.cols, col = elem % part->matrix.cols;
    const uint64_t line = place->columns ? col : row, at = place->columns ? row : col;
    const uint64_t n_lines = place->columns ? part->matrix.cols : part->matrix.rows;
    const uint64_t len = place->columns ? part->matrix.rows : part->matrix.cols;
    const unsigned word_bits = 8u * place->word_bytes;
    const uint64_t n_words = qp_place_line_bytes(place, len) / place->word_bytes;
    uint64_t value = 0;
    assert_false(place->swizzled || (place->one_less && word_bits % place->bits != 0));
    for (unsigned k = 0; k < place->bits; k++) {
        const uint64_t bit = slot_of(place, at) * place->bits + k, in_line = bit / word_bits;
        const uint64_t word =
            place->interleaved ? in_line * n_lines + line : line * n_words + in_line;
        value |= (uint64_t)bit_of_word(place, bytes + word * place->word_bytes,
                                       (unsigned)(bit % word_bits))
                 << k;
    }
    return place->half_added ? value ^ (uint64_t)1 << (place->bits - 1) : value;
}

static int32_t stored_integer(const struct qp_part *part, const unsigned char *data, uint64_t elem)
{
    const uint64_t bits = stored_bits(part, data + part->entry->begin, elem);
    const uint64_t sign = (uint64_t)1 << (part->place->bits - 1);
    return part->place->is_signed ? (int32_t)(int64_t)((bits ^ sign) - sign) : (int32_t)bits;
}

/*
 * What the decoder of a layout makes of a product: nothing, or it rounds it to scales of f16, or,
 * where a scale is the value of the code 127, multiplies it by the constant of bitsandbytes.
 */
static float decoded(const struct qp_tensor *t, float product)
{
    if (qp_is_of_largest(t))
        return product * 7.874015718698502e-3f;
    if (!t->rounds || t->scheme->scale_dtype == QPLAN_F32 || product == 0)
        return product;
    assert_int_equal(t->scheme->scale_dtype, QPLAN_F16);
    const int exponent = ilogbf(product), unit = (exponent < -14 ? -14 : exponent) - 10;
    return ldexpf(nearbyintf(ldexpf(product, -unit)), unit);
}

/* A scale from what is stored of it and the factor. */
static float with_factor(const struct qp_tensor *t, const unsigned char *data, float stored)
{
    const struct qp_part *part = qp_tensor_part(t, QP_FACTOR);
    if (!part)
        return stored;
    const double factor = value_of_bits(QPLAN_F32, stored_bits(part, data + part->entry->begin, 0));
    return part->divides ? stored / (float)factor : stored * (float)factor;
}

/* Every element of a quantized tensor by its parts alone, against what dequantize has made of it.
 */
static void check_tensor(const char *path, const unsigned char *data, const struct qp_tensor *t)
{
    struct qplan_checkpoint *plain = open_checkpoint(path);
    const struct qp_tensor *back = qp_checkpoint_find(plain, t->name, t->name_len);
    const struct qp_part *codes = qp_tensor_part(t, QP_CODES), *zero = qp_tensor_part(t, QP_ZERO);
    const struct qp_part *scale = qp_tensor_part(t, QP_SCALE), *bias = qp_tensor_part(t, QP_BIAS);
    static float values[16384];
    struct qplan_error err;
    assert_non_null(back);
    assert_null(back->scheme);
    const uint64_t n = qp_entry_elements(back->entry);
    assert_true(n <= COUNT(values));
    assert_int_equal(codes->matrix.rows * codes->matrix.cols, n);
    OK(qp_source_read(&plain->source, back->entry, 0, values, (size_t)n * 4, &err), &err);
    for (uint64_t i = 0; i < n; i++) {
        const bool is_flat = t->is_flat && t->scheme->granularity == QPLAN_PER_GROUP;
        const uint64_t set =
            is_flat ? i / t->scheme->group : set_of_element(t->scheme, t->shape, t->rank, i);
        const double stored = value_of_bits(t->scheme->scale_dtype,
                                            stored_bits(scale, data + scale->entry->begin, set));
        const double s = (double)with_factor(t, data, (float)stored);
        const bool is_unsigned = !qplan_dtype_is_signed(t->scheme->dtype);
        const int32_t middle = is_unsigned ? 1 << (codes->place->bits - 1) : 0;
        const int32_t z = zero ? stored_integer(zero, data, set) : bias ? 0 : middle;
        const uint64_t bits = stored_bits(codes, data + codes->entry->begin, i);
        const float steps = qp_integer_bits(t->scheme->dtype)
                                ? (float)(stored_integer(codes, data, i) - z)
                                : (float)value_of_bits(t->scheme->dtype, bits);
        const float product = (float)s * steps;
        const double b = bias ? value_of_bits(t->scheme->scale_dtype,
                                              stored_bits(bias, data + bias->entry->begin, set))
                              : 0;
        const float expected = decoded(t, bias ? product + (float)b : product);
        assert_memory_equal(&values[i], &expected, sizeof expected);
    }
    qplan_checkpoint_close(plain);
}

static void dequantize_out(const char *out, const char *back)
{
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_checkpoint *file = open_checkpoint(out);
    struct qplan_report *report;
    struct qplan_error err;
    OK(qplan_dequantize(&report, file, back, NULL, &run, &err), &err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
}

/* What was written is read as this layout, with the tensors, schemes and values that went in. */
static void check_round_trip(const struct qp_format *format, const char *text)
{
    size_t n_bytes;
    const char *out = in_folder(&folder, format->is_folder ? "out.folder" : "out");
    const char *back = in_folder(&folder, format->is_folder ? "back.folder" : "back");
    dequantize_out(out, back);
    struct qplan_checkpoint *file = open_checkpoint(out);
    unsigned char *bytes = read_file(file->source.files[0].file.path, &n_bytes);
    assert_ptr_equal(file->format, format);
    assert_int_equal(file->n_tensors, N_SOURCES);
    size_t n_parts = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct qp_tensor *t = &file->tensors[i];
        n_parts += t->scheme ? t->n_parts : 1;
        if (!t->scheme)
            continue;
        const struct qp_format_options options = {.activations = QPLAN_ACTIVATIONS_USUAL};
        struct qplan_scheme wanted = scheme_of(text), resolved;
        assert_true(qp_scheme_resolve(&wanted, t->rank, &resolved));
        if (format->fit)
            assert_null(format->fit(&resolved, QPLAN_STORAGE_F32, &options));
        assert_true(qp_scheme_equal(t->scheme, &resolved));
        assert_string_equal(t->calibrate, "minmax");
        check_tensor(back, bytes + file->source.files[0].header_bytes, t);
    }
    assert_int_equal(n_parts,
                     file->source.listing.n_entries); /* all of the file is accounted for */
    assert_string_equal(qplan_checkpoint_metadata(file, "note", NULL), "kept");
    free(bytes);
    qplan_checkpoint_close(file);
}

/* Layouts of float codes alone are proven by their goldens, and so are those that are only read. */
static bool has_float_codes(const struct qp_format *format)
{
    if (format->is_read_only)
        return true;
    return format->scheme && strncmp(format->scheme, "int", 3) != 0 &&
           strncmp(format->scheme, "uint", 4) != 0;
}

static void every_layout_gives_back_what_went_in(void **state)
{
    const struct qp_format *format;
    (void)state;
    for (size_t i = 0; (format = next_format(&i)) != NULL;) {
        const char *const *texts = format->fit ? engine_schemes : schemes;
        const size_t n = format->fit ? COUNT(engine_schemes) : COUNT(schemes);
        size_t n_stored = 0;
        write_sources(format);
        for (size_t k = 0; k < 2 * n; k++) {
            const bool omits = k % 2;
            if ((omits && !format->may_omit_zeros) ||
                !quantize_by(format, texts[k / 2],
                             omits ? QPLAN_ZERO_POINT_ASYMMETRIC : QPLAN_ZERO_POINT_USUAL))
                continue;
            check_round_trip(format, texts[k / 2]);
            n_stored++;
        }
        assert_true(n_stored > 0 || has_float_codes(format));
    }
}

/* ---- Stored tensors that are not what they should be ------------------------------------------
 */

/* A file with one stored tensor changed, or left out. */
enum fault { FAULT_GONE, FAULT_TYPE, FAULT_SHAPE, FAULT_RANK, FAULTS };

static bool spoil(struct tensor *t, enum fault fault)
{
    switch (fault) {
    case FAULT_TYPE: /* of the same size */
        t->dtype = strcmp(t->dtype, "F32") == 0    ? "I32"
                   : strcmp(t->dtype, "BF16") == 0 ? "I16"
                   : strcmp(t->dtype, "F16") == 0  ? "BF16"
                   : strcmp(t->dtype, "I8") == 0   ? "U8"
                   : strcmp(t->dtype, "I32") == 0  ? "F32"
                   : strcmp(t->dtype, "U32") == 0  ? "F32"
                   : strcmp(t->dtype, "I64") == 0  ? "F64"
                                                   : "I8";
        return true;
    case FAULT_SHAPE:
        if (t->rank < 2 || t->shape[0] == t->shape[1])
            return false;
        t->shape[0] ^= t->shape[1];
        t->shape[1] ^= t->shape[0];
        t->shape[0] ^= t->shape[1];
        return true;
    case FAULT_RANK:
        t->shape[t->rank++] = 1;
        return true;
    default:
        return true;
    }
}

/* Writes the file again with a fault in its k-th stored tensor; false if there is none to make. */
static bool write_spoiled(const char *path, const struct qplan_checkpoint *file,
                          const unsigned char *bytes, size_t k, enum fault fault)
{
    const struct qp_st *st = &file->source.files[0];
    struct tensor tensors[16];
    struct text metadata = {0};
    size_t n = 0;
    struct qp_writer w;
    qp_writer_init(&w);
    qp_json_open(&w, '{');
    for (size_t i = 0; i < st->n_metadata; i++) {
        qp_json_key_n(&w, st->metadata[i].key, st->metadata[i].key_len);
        qp_json_put_string(&w, st->metadata[i].value, st->metadata[i].value_len);
    }
    qp_json_close(&w, '}');
    (void)text_add(&metadata, w.data, w.n);
    qp_writer_free(&w);
    for (size_t i = 0; i < file->source.listing.n_entries; i++) {
        const struct qplan_entry *e = &file->source.listing.entries[i];
        struct tensor t = {.name = e->name,
                           .dtype = qplan_storage_name((enum qplan_storage)e->storage),
                           .rank = e->rank,
                           .data = bytes + st->header_bytes + e->begin,
                           .n_bytes = (size_t)(e->end - e->begin)};
        memcpy(t.shape, e->shape, e->rank * sizeof *t.shape);
        if (i == k && fault == FAULT_GONE)
            continue;
        if (i == k && !spoil(&t, fault)) {
            text_free(&metadata);
            return false;
        }
        tensors[n++] = t;
    }
    write_checkpoint(path, metadata.data, tensors, n);
    text_free(&metadata);
    return true;
}

/* Whether a stored tensor belongs to a quantized one that can do without it. */
static bool is_needed(const struct qplan_checkpoint *file, const struct qplan_entry *entry)
{
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct qp_tensor *t = &file->tensors[i];
        for (unsigned k = 0; k < t->n_parts; k++) {
            if (t->parts[k].entry == entry)
                return t->scheme && (t->parts[k].role != QP_ZERO || t->scheme->asymmetric);
        }
    }
    return false;
}

static void check_faults(const struct qp_format *format)
{
    size_t n_bytes;
    const char *bad_path = in_folder(&folder, format->is_folder ? "bad.folder" : "bad");
    const char *bad_file =
        in_folder(&folder, format->is_folder ? "bad.folder/model.safetensors" : "bad");
    struct qplan_checkpoint *file =
        open_checkpoint(in_folder(&folder, format->is_folder ? "out.folder" : "out"));
    unsigned char *bytes = read_file(file->source.files[0].file.path, &n_bytes);
    if (format->is_folder) {
        (void)mkdir(bad_path, 0777);
        write_file(in_folder(&folder, "bad.folder/config.json"), file->source.config->text,
                   file->source.config->n_bytes);
    }
    for (size_t k = 0; k < file->source.listing.n_entries; k++) {
        const struct qplan_entry *entry = &file->source.listing.entries[k];
        for (enum fault fault = FAULT_GONE; fault < FAULTS; fault++) {
            struct qplan_checkpoint *bad;
            struct qplan_error err;
            if (!is_needed(file, entry) || !write_spoiled(bad_file, file, bytes, k, fault))
                continue;
            if (qplan_checkpoint_open(&bad, bad_path, &err) != QPLAN_ERR_INVALID)
                fail_msg("%s: %s with fault %d is taken", format->name, entry->name, fault);
            assert_null(bad);
            if (!strstr(err.subject, entry->name))
                fail_msg("%s is not named: %s: %s", entry->name, err.subject, err.message);
        }
    }
    free(bytes);
    qplan_checkpoint_close(file);
}

static void every_part_that_is_wrong_is_refused_by_name(void **state)
{
    const struct qp_format *format;
    (void)state;
    for (size_t i = 0; (format = next_format(&i)) != NULL;) {
        const char *const *texts = format->fit ? engine_schemes : schemes;
        const size_t n = format->fit ? COUNT(engine_schemes) : COUNT(schemes);
        write_sources(format);
        for (size_t k = 0; k < n; k++) {
            if (quantize_by(format, texts[k], QPLAN_ZERO_POINT_USUAL))
                check_faults(format);
        }
    }
}

/* ---- What a layout cannot store ----------------------------------------------------------------
 */

static const char *no_three_axes(const struct qp_tensor *tensor)
{
    return tensor->rank == 3 ? "not 2-D" : NULL;
}

static void what_a_layout_cannot_store_is_kept_with_its_reason(void **state)
{
    struct qp_format picky = *qp_format_find("qplan");
    struct qplan_plan_options options = {.scheme = scheme_of("int8:c0")};
    struct qplan_plan *plan;
    struct qplan_error err;
    (void)state;
    picky.misfit = no_three_axes;
    write_sources(qp_format_find("qplan"));
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "in"));
    OK(qplan_plan_make(&plan, source, &options, &err), &err);
    assert_int_equal(plan->n_quantized, 2);
    plan->format = &picky;
    OK(qp_plan_check(plan, &err), &err);
    assert_int_equal(plan->n_quantized, 1);
    assert_string_equal(plan->tensors[0].source->name, "a.weight");
    assert_true(qp_is_quantized(&plan->tensors[0]));
    assert_false(qp_is_quantized(&plan->tensors[1]));
    assert_string_equal(plan->tensors[1].reason, "not 2-D");
    assert_string_equal(plan->tensors[1].rule, "select:all");
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
}

/* AWQ has one group size for all; GPTQ and MLX name the modules that have another. */
static void a_config_of_one_scheme_refuses_two(void **state)
{
    static const char rules[] = "m.0.* uint4:g32\n* uint4:g64\n";
    static const char *const names[] = {"awq", "gptq_v2", "mlx"};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        const struct qplan_plan_options options = {
            .format = names[i], .rules = rules, .n_rules = sizeof rules - 1};
        struct qplan_plan *plan;
        struct qplan_error err;
        write_sources(qp_format_find(names[i]));
        struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "model"));
        const enum qplan_status status = qplan_plan_make(&plan, source, &options, &err);
        assert_int_equal(status, i == 0 ? QPLAN_ERR_INVALID : QPLAN_OK);
        assert_true(status == QPLAN_OK || strstr(err.message, "one scheme"));
        qplan_plan_free(plan);
        qplan_checkpoint_close(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete_and_found_by_name),
        cmocka_unit_test(an_unknown_layout_is_refused_with_those_that_there_are),
        cmocka_unit_test(every_layout_gives_back_what_went_in),
        cmocka_unit_test(every_part_that_is_wrong_is_refused_by_name),
        cmocka_unit_test(what_a_layout_cannot_store_is_kept_with_its_reason),
        cmocka_unit_test(a_config_of_one_scheme_refuses_two),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
