/*
 * test_codes.c - the table of code types: a row for every integer, small float and table, what a
 * row says of its codes, and that every quantizer of its kind keeps to it. A type that is added is
 * tested without a change.
 */
#include "kernel_cases.h"

static void every_integer_of_2_to_8_bits_has_its_row(void **state)
{
    size_t n = 0;
    (void)state;
    for (const struct qp_code_type *type = qp_code_types; type->name; type++)
        n += type->kind == QP_CODES_LINEAR;
    assert_int_equal(n, 2 * 7);
    for (unsigned i = 0; i < QPLAN_DTYPE_COUNT; i++) {
        const unsigned bits = qplan_dtype_bits((enum qplan_dtype)i);
        assert_int_equal(qp_code_type((enum qplan_dtype)i) != NULL,
                         bits >= 2 && bits <= 8 && i != QPLAN_E8M0);
    }
}

static void a_row_agrees_with_what_is_public_of_its_dtype(void **state)
{
    (void)state;
    for (const struct qp_code_type *type = qp_code_types; type->name; type++) {
        int32_t q_min, q_max;
        assert_true(qp_code_type(type->dtype) == type);
        assert_int_equal(strcmp(type->name, qplan_dtype_name(type->dtype)), 0);
        assert_int_equal(type->bits, qplan_dtype_bits(type->dtype));
        if (qp_is_valued(type->kind)) {
            assert_false(qplan_dtype_range(type->dtype, &q_min, &q_max));
            continue;
        }
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

/* The rule of all codes of a type. */
static struct qp_code_rule rule_of_all(const struct qp_code_type *type)
{
    return (struct qp_code_rule){
        .type = type, .kind = type->kind, .q_min = type->least, .q_max = type->most};
}

/* The codes of a type that are numbers of their own: no -0 besides 0, and nothing twice. Returns
 * how many there are. */
static size_t codes_of(const struct qp_code_type *type, uint8_t codes[256])
{
    const struct qp_float_grid *grid = &type->grid;
    size_t n = 0;
    for (unsigned code = 0; code < 1u << type->bits; code++) {
        const bool is_float = (code & (grid->sign - 1u)) <= grid->top && code != grid->sign;
        const bool is_again =
            type->kind == QP_CODES_BOOK && code > 0 && type->book[code] == type->book[code - 1];
        if ((type->kind != QP_CODES_FLOAT || is_float) && !is_again)
            codes[n++] = (uint8_t)(type->least + (int32_t)code);
    }
    return n;
}

/* The value of every code with scale 1 and zero point 0, ascending. Returns their number. */
static size_t values_of(const struct qp_code_type *type, double values[256])
{
    const struct qp_code_rule rule = rule_of_all(type);
    const struct qp_tile one = flat_tile(1);
    const double scale = 1;
    const int32_t zero = 0;
    uint8_t codes[256];
    const size_t n = codes_of(type, codes);
    for (size_t i = 0; i < n; i++)
        qp_quantizer(QPLAN_F64, type->kind, QPLAN_ISA_SCALAR)
            ->dequantize(&one, &codes[i], &rule, &scale, &zero, &values[i]);
    qsort(values, n, sizeof values[0], compare_numbers);
    return n;
}

/* Nothing between two values is further from the nearer one than half their distance. */
static void the_reach_is_half_of_the_widest_gap(void **state)
{
    (void)state;
    for (const struct qp_code_type *type = qp_code_types; type->name; type++) {
        double values[256], widest = 0;
        const size_t n = values_of(type, values);
        if (qp_is_valued(type->kind))
            assert_true(values[n - 1] == type->largest && values[0] == -type->largest);
        else
            assert_int_equal(n, (size_t)1 << type->bits);
        for (size_t k = 1; k < n; k++)
            widest = fmax(widest, values[k] - values[k - 1]);
        assert_true(type->reach == widest / 2);
    }
}

/* A product with 24 bits of a scale must not need more than the 53 of f64. */
static void the_reach_has_few_bits(void **state)
{
    (void)state;
    for (const struct qp_code_type *type = qp_code_types; type->name; type++) {
        int exponent;
        const double bits = ldexp(frexp(type->reach, &exponent), 29);
        assert_true(bits > 0 && bits == floor(bits));
    }
}

/* Every code of every type, decoded and encoded again by one row: the same code. */
static void code_all(const struct qp_source_kernels *row)
{
    for (const struct qp_code_type *type = qp_code_types; type->name; type++) {
        const struct qp_quantizer *quantizer = qp_quantizer(row->dtype, type->kind, row->isa);
        const struct qp_code_rule rule = rule_of_all(type);
        const int32_t zero = type->least < 0 ? 0 : 3;
        uint8_t codes[256], found[256];
        double scale, y[256], src[256];
        const size_t n = codes_of(type, codes);
        const struct qp_tile tile = flat_tile(n);
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
        cmocka_unit_test(every_integer_of_2_to_8_bits_has_its_row),
        cmocka_unit_test(a_row_agrees_with_what_is_public_of_its_dtype),
        cmocka_unit_test(a_rule_has_the_codes_of_its_type_or_all_but_the_least),
        cmocka_unit_test(the_reach_is_half_of_the_widest_gap),
        cmocka_unit_test(the_reach_has_few_bits),
        cmocka_unit_test(every_code_survives_decoding_and_encoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
