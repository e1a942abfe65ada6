/*
 * test_codes.c - the table of code types: a row for every folder, what a row says of its codes, and
 * that every quantizer of its kind keeps to it. A type that is added is tested without a change.
 */
#include "kernel_cases.h"

#include <dirent.h>

static size_t n_types(void)
{
    size_t n = 0;
    while (qp_code_types[n])
        n++;
    return n;
}

static bool has_row(const char *name)
{
    bool found = false;
    for (size_t i = 0; qp_code_types[i]; i++)
        found |= strcmp(qp_code_types[i]->name, name) == 0;
    return found;
}

static void every_folder_has_its_row(void **state)
{
    (void)state;
    size_t n_folders = 0;
    DIR *folder = opendir("kernels/codes");
    assert_non_null(folder);
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (strchr(entry->d_name, '.'))
            continue; /* a file, or a folder above */
        n_folders++;
        if (!has_row(entry->d_name))
            fail_msg("kernels/codes/%s has no row", entry->d_name);
    }
    (void)closedir(folder);
    assert_int_equal(n_types(), n_folders);
}

static void a_row_agrees_with_what_is_public_of_its_dtype(void **state)
{
    (void)state;
    for (size_t i = 0; qp_code_types[i]; i++) {
        const struct qp_code_type *type = qp_code_types[i];
        int32_t q_min, q_max;
        assert_true(qp_code_type(type->dtype) == type);
        assert_int_equal(strcmp(type->name, qplan_dtype_name(type->dtype)), 0);
        assert_int_equal(type->bits, qplan_dtype_bits(type->dtype));
        assert_int_equal(type->is_signed, qplan_dtype_is_signed(type->dtype));
        assert_true(qplan_dtype_range(type->dtype, &q_min, &q_max));
        assert_int_equal(type->least, q_min);
        assert_int_equal(type->most, q_max);
    }
    assert_null(qp_code_type(QPLAN_F32));
    assert_null(qp_code_type(QPLAN_INT16));
    assert_null(qp_code_type(QPLAN_DTYPE_COUNT));
}

static void a_rule_has_the_codes_of_its_type_or_all_but_the_least(void **state)
{
    struct qp_code_rule rule;
    (void)state;
    for (size_t i = 0; rule_at(i, &rule); i++) {
        const bool narrow = rule.q_min != rule.type->least;
        assert_int_equal(rule.q_min, rule.type->least + narrow);
        assert_int_equal(rule.q_max, rule.type->most);
        assert_true(rule.type->is_signed || !narrow);
        assert_false(rule.bounded);
    }
}

/* ---- What codes stand for -------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value of every code with scale 1 and zero point 0, ascending. Returns their number. */
static size_t values_of(const struct qp_code_type *type, double values[256])
{
    const struct qp_code_rule rule = {.type = type, .q_min = type->least, .q_max = type->most};
    const struct qp_tile one = flat_tile(1);
    const double scale = 1;
    const int32_t zero = 0;
    size_t n = 0;
    for (int32_t code = type->least; code <= type->most; code++) {
        const uint8_t byte = (uint8_t)code;
        qp_quantizer(QPLAN_F64, type->kind, QPLAN_ISA_SCALAR)
            ->dequantize(&one, &byte, &rule, &scale, &zero, &values[n++]);
    }
    qsort(values, n, sizeof values[0], compare_numbers);
    return n;
}

/* Nothing between two values is further from the nearer one than half their distance. */
static void the_reach_is_half_of_the_widest_gap(void **state)
{
    (void)state;
    for (size_t i = 0; qp_code_types[i]; i++) {
        double values[256], widest = 0;
        const size_t n = values_of(qp_code_types[i], values);
        assert_int_equal(n, (size_t)1 << qp_code_types[i]->bits);
        for (size_t k = 1; k < n; k++)
            widest = fmax(widest, values[k] - values[k - 1]);
        assert_true(qp_code_types[i]->reach == widest / 2);
    }
}

/* A product with 24 bits of a scale must not need more than the 53 of f64. */
static void the_reach_has_few_bits(void **state)
{
    (void)state;
    for (size_t i = 0; qp_code_types[i]; i++) {
        int exponent;
        const double bits = ldexp(frexp(qp_code_types[i]->reach, &exponent), 29);
        assert_true(bits > 0 && bits == floor(bits));
    }
}

/* Every code of every type, decoded and encoded again by one row: the same code. */
static void code_all(const struct qp_source_kernels *row)
{
    for (size_t i = 0; qp_code_types[i]; i++) {
        const struct qp_code_type *type = qp_code_types[i];
        const struct qp_quantizer *quantizer = qp_quantizer(row->dtype, type->kind, row->isa);
        const struct qp_code_rule rule = {.type = type, .q_min = type->least, .q_max = type->most};
        const size_t n = (size_t)(type->most - type->least) + 1;
        const struct qp_tile tile = flat_tile(n);
        const int32_t zero = type->least < 0 ? 0 : 3;
        uint8_t codes[256], found[256];
        double scale, y[256], src[256];
        for (size_t k = 0; k < n; k++)
            codes[k] = (uint8_t)(type->least + (int32_t)k);
        set_work(row, &scale, 0, 0.125); /* every value has the 8 bits that any dtype has */
        quantizer->dequantize(&tile, codes, &rule, &scale, &zero, y);
        row->work->store(row->dtype, n, y, src);
        quantizer->quantize(&tile, src, &rule, &scale, &zero, found);
        assert_memory_equal(found, codes, n);
    }
}

static void every_code_survives_decoding_and_encoding(void **state)
{
    (void)state;
    for_each_row(code_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_folder_has_its_row),
        cmocka_unit_test(a_row_agrees_with_what_is_public_of_its_dtype),
        cmocka_unit_test(a_rule_has_the_codes_of_its_type_or_all_but_the_least),
        cmocka_unit_test(the_reach_is_half_of_the_widest_gap),
        cmocka_unit_test(the_reach_has_few_bits),
        cmocka_unit_test(every_code_survives_decoding_and_encoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
