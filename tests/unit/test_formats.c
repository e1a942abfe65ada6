/*
 * test_formats.c - every layout of the registry: what its row promises, the way there and back, and
 * stored tensors that are not what they should be. A layout that is added is found here by itself;
 * its goldens are run by tests/golden.
 */
#include "own_folder.h"

#include "formats/record.h"
#include "lib/base/json.h"
#include "lib/plan/plan.h"

static const struct qp_format *next_format(size_t *i)
{
    return qp_format_at((*i)++);
}

static void rows_are_complete_and_found_by_name(void **state)
{
    const struct qp_format *format;
    (void)state;
    assert_non_null(qp_format_find("qplan"));
    assert_null(qp_format_find("no such layout"));
    assert_null(qp_format_find(""));
    for (size_t i = 0; (format = next_format(&i)) != NULL;) {
        assert_true(format->name && format->is && format->read && format->parts);
        assert_ptr_equal(qp_format_find(format->name), format);
        assert_string_equal(qplan_format_name(i - 1), format->name);
    }
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

static const char *const schemes[] = {"int8:c0",  "int8:t:asym",    "uint8:c-1",
                                      "int4:g4",  "int4:g3:asym",   "uint4:g5:f16",
                                      "uint4:c0", "int8:b2x3:bf16", "int8:c0:narrow"};

static const struct tensor sources[] = {{"plain.bias", "F32", 1, {7}, NULL, 28},
                                        {"a.weight", "F32", 2, {6, 9}, NULL, 216},
                                        {"b.weight", "F32", 3, {2, 3, 8}, NULL, 192}};

static float random_values[256];

static void write_sources(const char *path)
{
    struct tensor tensors[COUNT(sources)];
    uint32_t seed = 7;
    for (size_t i = 0; i < COUNT(random_values); i++) {
        seed = seed * 1664525u + 1013904223u;
        random_values[i] = (float)((double)seed / 4294967296.0 - 0.4);
    }
    for (size_t i = 0; i < COUNT(sources); i++) {
        tensors[i] = sources[i];
        tensors[i].data = random_values + 50 * i;
    }
    write_checkpoint(path, "{\"note\":\"kept\"}", tensors, COUNT(tensors));
}

static void quantize_by(const struct qp_format *format, const char *scheme,
                        enum qplan_zero_point zero_point)
{
    struct qplan_plan_options options = {.scheme = scheme_of(scheme),
                                         .format = format->name,
                                         .zero_point = zero_point,
                                         .indivisible = QPLAN_INDIVISIBLE_RAGGED};
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, "out"),
                                               .verify = true};
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "in"));
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_error err;
    OK(qplan_plan_make(&plan, source, &options, &err), &err);
    OK(qplan_quantize(&report, plan, &how, &run, &err), &err);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
}

/* The value of a stored part by the definition of its place, bit by bit; lines must be rows. */
static uint64_t stored_bits(const struct qp_part *part, const unsigned char *bytes, uint64_t elem)
{
    const struct qp_place *place = part->place;
    const uint64_t row = elem / part->matrix.cols, col = elem % part->matrix.cols;
    const uint64_t line = qp_place_line_bytes(place, part->matrix.cols) * 8;
    uint64_t value = 0;
    assert_false(place->columns || place->interleaved || place->swizzled || place->n_order);
    for (unsigned k = 0; k < place->bits; k++) {
        const uint64_t bit = row * line + col * place->bits + k;
        value |= (uint64_t)(bytes[bit / 8] >> (bit % 8) & 1) << k;
    }
    return value;
}

static int32_t stored_integer(const struct qp_part *part, const unsigned char *data, uint64_t elem)
{
    const uint64_t bits = stored_bits(part, data + part->entry->begin, elem);
    const uint64_t sign = (uint64_t)1 << (part->place->bits - 1);
    return part->place->is_signed ? (int32_t)(int64_t)((bits ^ sign) - sign) : (int32_t)bits;
}

/* Every element of a quantized tensor by its parts alone, against what dequantize has made of it.
 */
static void check_tensor(const struct qplan_checkpoint *file, const unsigned char *data,
                         const struct qp_tensor *t)
{
    struct qplan_checkpoint *plain = open_checkpoint(in_folder(&folder, "back"));
    const struct qp_tensor *back = qp_checkpoint_find(plain, t->name, t->name_len);
    const struct qp_part *codes = qp_tensor_part(t, QP_CODES), *zero = qp_tensor_part(t, QP_ZERO);
    const struct qp_part *scale = qp_tensor_part(t, QP_SCALE);
    float values[64];
    struct qplan_error err;
    assert_non_null(back);
    assert_null(back->scheme);
    const uint64_t n = qp_entry_elements(back->entry);
    assert_true(n <= COUNT(values));
    assert_int_equal(codes->matrix.rows * codes->matrix.cols, n);
    OK(qp_source_read(&plain->source, back->entry, 0, values, (size_t)n * 4, &err), &err);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t set = set_of_element(t->scheme, t->shape, t->rank, i);
        const double s = value_of_bits(t->scheme->scale_dtype,
                                       stored_bits(scale, data + scale->entry->begin, set));
        const bool is_unsigned = !qplan_dtype_is_signed(t->scheme->dtype);
        const int32_t middle = is_unsigned ? 1 << (codes->place->bits - 1) : 0;
        const int32_t z = zero ? stored_integer(zero, data, set) : middle;
        const float expected = (float)s * (float)(stored_integer(codes, data, i) - z);
        assert_memory_equal(&values[i], &expected, sizeof expected);
    }
    (void)file;
    qplan_checkpoint_close(plain);
}

static void dequantize_out(void)
{
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "out"));
    struct qplan_report *report;
    struct qplan_error err;
    OK(qplan_dequantize(&report, file, in_folder(&folder, "back"), NULL, &run, &err), &err);
    qplan_report_free(report);
    qplan_checkpoint_close(file);
}

/* What was written is read as this layout, with the tensors, schemes and values that went in. */
static void check_round_trip(const struct qp_format *format, const char *text)
{
    size_t n_bytes;
    dequantize_out();
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "out"));
    unsigned char *bytes = read_file(in_folder(&folder, "out"), &n_bytes);
    assert_ptr_equal(file->format, format);
    assert_int_equal(file->n_tensors, COUNT(sources));
    size_t n_parts = 0;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct qp_tensor *t = &file->tensors[i];
        n_parts += t->scheme ? t->n_parts : 1;
        if (!t->scheme)
            continue;
        struct qplan_scheme wanted = scheme_of(text), resolved;
        assert_true(qp_scheme_resolve(&wanted, t->rank, &resolved));
        assert_true(qp_scheme_equal(t->scheme, &resolved));
        assert_string_equal(t->calibrate, "minmax");
        check_tensor(file, bytes + file->source.files[0].header_bytes, t);
    }
    assert_int_equal(n_parts,
                     file->source.listing.n_entries); /* all of the file is accounted for */
    assert_string_equal(qplan_checkpoint_metadata(file, "note", NULL), "kept");
    free(bytes);
    qplan_checkpoint_close(file);
}

static void every_layout_gives_back_what_went_in(void **state)
{
    const struct qp_format *format;
    (void)state;
    write_sources(in_folder(&folder, "in"));
    for (size_t i = 0; (format = next_format(&i)) != NULL;) {
        for (size_t k = 0; k < 2 * COUNT(schemes); k++) {
            quantize_by(format, schemes[k / 2],
                        k % 2 ? QPLAN_ZERO_POINT_ASYMMETRIC : QPLAN_ZERO_POINT_ALWAYS);
            check_round_trip(format, schemes[k / 2]);
        }
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
static bool write_spoiled(const struct qplan_checkpoint *file, const unsigned char *bytes, size_t k,
                          enum fault fault)
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
    for (size_t i = 0; i < st->n_entries; i++) {
        const struct qplan_entry *e = &st->entries[i];
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
    write_checkpoint(in_folder(&folder, "bad"), metadata.data, tensors, n);
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

static void check_faults(void)
{
    size_t n_bytes;
    struct qplan_checkpoint *file = open_checkpoint(in_folder(&folder, "out"));
    unsigned char *bytes = read_file(in_folder(&folder, "out"), &n_bytes);
    for (size_t k = 0; k < file->source.listing.n_entries; k++) {
        const struct qplan_entry *entry = &file->source.listing.entries[k];
        for (enum fault fault = FAULT_GONE; fault < FAULTS; fault++) {
            struct qplan_checkpoint *bad;
            struct qplan_error err;
            if (!is_needed(file, entry) || !write_spoiled(file, bytes, k, fault))
                continue;
            assert_int_equal(qplan_checkpoint_open(&bad, in_folder(&folder, "bad"), &err),
                             QPLAN_ERR_INVALID);
            assert_null(bad);
            assert_non_null(strstr(err.subject, entry->name));
        }
    }
    free(bytes);
    qplan_checkpoint_close(file);
}

static void every_part_that_is_wrong_is_refused_by_name(void **state)
{
    const struct qp_format *format;
    (void)state;
    write_sources(in_folder(&folder, "in"));
    for (size_t i = 0; (format = next_format(&i)) != NULL;) {
        for (size_t k = 0; k < COUNT(schemes); k++) {
            quantize_by(format, schemes[k], QPLAN_ZERO_POINT_ALWAYS);
            check_faults();
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
    write_sources(in_folder(&folder, "in"));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete_and_found_by_name),
        cmocka_unit_test(an_unknown_layout_is_refused_with_those_that_there_are),
        cmocka_unit_test(every_layout_gives_back_what_went_in),
        cmocka_unit_test(every_part_that_is_wrong_is_refused_by_name),
        cmocka_unit_test(what_a_layout_cannot_store_is_kept_with_its_reason),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
