/*
 * test_recipes.c - the recipes of other tools, on numbers that were computed by hand from what
 * those tools do, and in pieces of any size. tests/golden/layouts.py compares them with the tools'
 * bytes.
 */
#include "own_folder.h"

#include "kernels/codes/biased.h"
#include "lib/calibrate/calibrate.h"
#include "lib/plan/plan.h"

#define MOST 8

/* A set of values in bf16, and what a recipe makes of it. */
struct example {
    const struct qp_calibrator *recipe;
    const char *scheme;
    size_t n;
    uint16_t values[MOST];
    float scale;
    float zero; /* point, or bias */
    int8_t codes[MOST];
};

/* 1, 3 and others in bf16. */
enum { ZERO = 0, ONE = 0x3f80, MINUS_ONE = 0xbf80, TWO = 0x4000, THREE = 0x4040, TINY = 0x0001 };

static const struct example examples[] = {
    /* 4 / 15 in bf16; -8 - round(-1 / s) = -4; 3 / s = 11.21, in bf16 11.1875, less 4 is 7. */
    {&qp_recipe_llm_compressor,
     "int4:c0:asym:bf16",
     4,
     {MINUS_ONE, ZERO, ONE, THREE},
     0.267578125f,
     -4,
     {-8, -4, 0, 7}},
    /* 3 / 7.5 in bf16; the largest value is clamped. */
    {&qp_recipe_llm_compressor,
     "int4:c0:bf16",
     3,
     {MINUS_ONE, ZERO, THREE},
     0.400390625f,
     0,
     {-2, 0, 7}},
    /* Zeros: the distance from 1 to the next number of bf16. */
    {&qp_recipe_llm_compressor, "int8:c0:asym:bf16", 2, {ZERO, ZERO}, 0.0078125f, 0, {0, 0}},
    {&qp_recipe_llm_compressor, "int8:c0:bf16", 2, {ZERO, ZERO}, 0.0078125f, 0, {0, 0}},
    /* The least number of bf16 over 255 is 0; 0 / 0 gives the zero point 0. */
    {&qp_recipe_llm_compressor, "int8:c0:asym:bf16", 2, {ZERO, TINY}, 0.0078125f, 0, {0, 0}},
    /* -11 steps from 0 to the edge 3: a scale of -3/11, and 0 is a code. */
    {&qp_recipe_mlx,
     "uint4:c0:bias:bf16",
     4,
     {MINUS_ONE, ZERO, ONE, THREE},
     -3.0f / 11,
     3,
     {15, 11, 7, 0}},
    /* 4.5 steps of 2/3 from 0 to the edge 3, which are 4: no value is on the other side of 0. */
    {&qp_recipe_mlx, "uint2:c0:bias:bf16", 3, {ONE, TWO, THREE}, -0.75f, 3, {3, 1, 0}},
    {&qp_recipe_mlx, "uint4:c0:bias:bf16", 2, {ZERO, ZERO}, -1e-7f, 0, {0, 0}},
    /* 2 * 3 / 15; without a negative value half of the range is outside; zeros are -1 to 1. */
    {&qp_recipe_gptqmodel, "int4:c0:f16", 3, {MINUS_ONE, ZERO, THREE}, 0.4f, 0, {-2, 0, 7}},
    {&qp_recipe_gptqmodel, "int4:c0:f16", 3, {ZERO, ONE, THREE}, 0.2f, 0, {0, 5, 7}},
    {&qp_recipe_gptqmodel, "int4:c0:f16", 2, {ZERO, ZERO}, 2.0f / 15, 0, {0, 0}},
    /* 4 / 15; the zero point is 4 of 0 to 15. */
    {&qp_recipe_gptqmodel,
     "int4:c0:asym:f16",
     4,
     {MINUS_ONE, ZERO, ONE, THREE},
     4.0f / 15,
     -4,
     {-8, -4, 0, 7}},
    /* 127 / 3 = 42.33; the least number of bf16 is 0 in f16, and a row of zeros has the scale 0. */
    {&qp_recipe_bitsandbytes,
     "int8:c0:narrow",
     4,
     {MINUS_ONE, ZERO, TINY, THREE},
     3,
     0,
     {-42, 0, 0, 127}},
    {&qp_recipe_bitsandbytes, "int8:c0:narrow", 2, {ZERO, TINY}, 0, 0, {0, 0}},
    /* nf4: thirds of 3, codes by the nearest value, ties and 0 to the lower. */
    {&qp_recipe_bitsandbytes, "nf4:g64", 4, {MINUS_ONE, ZERO, ONE, THREE}, 3, 0, {4, 7, 11, 15}},
    {&qp_recipe_bitsandbytes, "nf4:g64", 2, {ZERO, ZERO}, 0, 0, {7, 7}},
    /* The least number of bf16 is not brought to the end of the codes, but divided by 1e-38. */
    {&qp_recipe_bitsandbytes, "nf4:g64", 2, {ZERO, TINY}, 0x1p-133f, 0, {7, 7}},
    /* Halves of 127, which the reciprocal of 2.109375 makes less, and that of 2.375 more. */
    {&qp_recipe_bitsandbytes, "int8:c0:narrow", 2, {0x3f87, 0xc007}, 2.109375f, 0, {63, -127}},
    {&qp_recipe_bitsandbytes, "int8:c0:narrow", 2, {0x3f98, 0x4018}, 2.375f, 0, {64, 127}},
};

static void check_example(const struct example *e, size_t number)
{
    const struct qplan_scheme scheme = scheme_of(e->scheme);
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    const struct qp_calibration c = {.kernels = qp_source_kernels(QPLAN_BF16, QPLAN_ISA_BEST),
                                     .rule = &rule};
    const struct qp_tile tile = {1, e->n, 1, e->n, 0};
    float state[4] = {0}, scale = 0;
    int32_t zero = 0;
    uint8_t codes[MOST] = {0};
    assert_int_equal(e->recipe->see(&c, 0, &tile, e->values, state), 0);
    assert_int_equal(e->recipe->finish(&c, 0, 1, state, &scale, &zero), 1);
    e->recipe->codes(&c, &tile, e->values, &scale, &zero, codes);
    const float found = scheme.bias ? qp_bias(zero) : (float)zero;
    if (scale != e->scale || found != e->zero)
        fail_msg("example %zu: expected scale %.9g, zero %g, found %.9g and %g", number,
                 (double)e->scale, (double)e->zero, (double)scale, (double)found);
    for (size_t i = 0; i < e->n; i++) {
        if ((int8_t)codes[i] != e->codes[i])
            fail_msg("example %zu, code %zu: expected %d, found %d", number, i, e->codes[i],
                     (int8_t)codes[i]);
    }
}

static void sets_are_what_the_tools_make_of_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(examples); i++)
        check_example(&examples[i], i);
}

static void ranges_that_no_scale_holds_are_refused(void **state)
{
    static const uint16_t huge[] = {0xff7f, 0x7f7f}; /* the ends of bf16 */
    static const struct {
        const struct qp_calibrator *recipe;
        const char *scheme;
    } rows[] = {{&qp_recipe_llm_compressor, "int8:c0:asym:bf16"},
                {&qp_recipe_mlx, "uint4:c0:bias:bf16"},
                {&qp_recipe_gptqmodel, "int4:c0:f16"},
                {&qp_recipe_bitsandbytes, "int8:c0:narrow"}};
    const struct qp_tile tile = {1, 2, 1, 2, 0};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qplan_scheme scheme = scheme_of(rows[i].scheme);
        const struct qp_code_rule rule = qp_code_rule(&scheme);
        const struct qp_calibration c = {.kernels = qp_source_kernels(QPLAN_BF16, QPLAN_ISA_BEST),
                                         .rule = &rule};
        float seen[4] = {0}, scale;
        int32_t zero;
        (void)rows[i].recipe->see(&c, 0, &tile, huge, seen);
        assert_int_equal(rows[i].recipe->finish(&c, 0, 1, seen, &scale, &zero), 0);
    }
}

static void values_that_are_not_finite_are_counted(void **state)
{
    static const uint16_t values[] = {ONE, 0x7f80, 0xff80, 0x7fc0, THREE};
    const struct qp_tile tile = {1, 5, 1, 3, 0};
    const struct qplan_scheme scheme = scheme_of("uint4:g3:bias:bf16");
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    const struct qp_calibration c = {.kernels = qp_source_kernels(QPLAN_BF16, QPLAN_ISA_BEST),
                                     .rule = &rule};
    float seen[8] = {0};
    (void)state;
    assert_int_equal(qp_recipe_mlx.see(&c, 0, &tile, values, seen), 3);
}

/* ---- In pieces ---------------------------------------------------------------------------------
 */

#define ROWS 96
#define COLS 4096

static float values[ROWS * COLS];

static unsigned char *quantize_by(const struct qp_calibrator *recipe, const char *scheme,
                                  const struct qplan_run *run, size_t *n_bytes)
{
    const struct tensor tensors[] = {{"w", "F32", 2, {ROWS, COLS}, values, sizeof values}};
    const struct qplan_plan_options options = {.scheme = scheme_of(scheme)};
    const struct qplan_quantize_options how = {.out_path = in_folder(&folder, "out")};
    struct qplan_plan *plan;
    struct qplan_report *report;
    struct qplan_error err;
    write_checkpoint(in_folder(&folder, "in"), NULL, tensors, 1);
    struct qplan_checkpoint *source = open_checkpoint(in_folder(&folder, "in"));
    OK(qplan_plan_make(&plan, source, &options, &err), &err);
    plan->tensors[0].calibrator = recipe;
    OK(qplan_quantize(&report, plan, &how, run, &err), &err);
    qplan_report_free(report);
    qplan_plan_free(plan);
    qplan_checkpoint_close(source);
    return read_file(in_folder(&folder, "out"), n_bytes);
}

static void pieces_give_what_the_whole_gives(void **state)
{
    static const struct {
        const struct qp_calibrator *recipe;
        const char *scheme;
    } rows[] = {{&qp_recipe_llm_compressor, "int8:t:asym"}, {&qp_recipe_llm_compressor, "int4:c1"},
                {&qp_recipe_gptqmodel, "int8:t:asym:f16"},  {&qp_recipe_gptqmodel, "int4:g128:f16"},
                {&qp_recipe_mlx, "uint4:t:bias"},           {&qp_recipe_mlx, "uint8:c1:bias"},
                {&qp_recipe_mlx, "uint5:g128:bias"}};
    (void)state;
    /* Below 0: MLX's range does not hold it, and its scales are positive, as the record wants. */
    for (size_t i = 0; i < COUNT(values); i++)
        values[i] = -(float)(i * 2654435761u % 20001 + 40) / 64;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qplan_run large = {.threads = 1, .memory_bytes = 64 << 20, .force = true};
        const struct qplan_run small = {.threads = 3, .memory_bytes = 4 << 20, .force = true};
        size_t n, n_found;
        unsigned char *expected = quantize_by(rows[i].recipe, rows[i].scheme, &large, &n);
        unsigned char *found = quantize_by(rows[i].recipe, rows[i].scheme, &small, &n_found);
        assert_int_equal(n_found, n);
        assert_memory_equal(found, expected, n);
        free(found);
        free(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_what_the_tools_make_of_them),
        cmocka_unit_test(ranges_that_no_scale_holds_are_refused),
        cmocka_unit_test(values_that_are_not_finite_are_counted),
        cmocka_unit_test(pieces_give_what_the_whole_gives),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
