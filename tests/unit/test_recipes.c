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
enum {
    ZERO = 0,
    MINUS_ZERO = 0x8000,
    ONE = 0x3f80,
    MINUS_ONE = 0xbf80,
    TWO = 0x4000,
    THREE = 0x4040,
    TINY = 0x0001
};

/* The ends of bf16. */
enum { LEAST = 0xff7f, MOST_BF16 = 0x7f7f };

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
    /* Powers of two: of 3 that of 2, less two exponents; of 3.5 the next one. -0.0625 of 0.5 is
     * nearest to 0, and has a sign, which 0 has not; 1.25 and 0.75 of it are even. */
    {&qp_recipe_llm_compressor_blocks,
     "mxfp4",
     5,
     {MINUS_ZERO, 0xbd80, 0x3f20, 0xbec0, THREE},
     0.5f,
     0,
     {0, 8, 2, 10, 7}},
    {&qp_recipe_llm_compressor_blocks, "mxfp4", 2, {THREE, 0x4060}, 1, 0, {5, 6}},
    {&qp_recipe_llm_compressor_blocks, "mxfp4", 2, {ZERO, MINUS_ZERO}, 0x1p-127f, 0, {0, 0}},
    {&qp_recipe_llm_compressor_blocks, "mxfp8", 2, {MINUS_ZERO, THREE}, 0x1p-7f, 0, {-128, 0x7c}},
    /* 3 / 6 with a factor of 1; zeros have an eighth. */
    {&qp_recipe_llm_compressor_blocks, "nvfp4", 2, {MINUS_ONE, THREE}, 0.5f, 0, {12, 7}},
    {&qp_recipe_llm_compressor_blocks, "nvfp4", 2, {ZERO, MINUS_ZERO}, 0.125f, 0, {0, 0}},
    /* 3 / 6 is a power; 3.5 / 6 has the next one. A tie is the smaller one, and 0 has no sign. */
    {&qp_recipe_mlx_blocks, "mxfp4", 4, {MINUS_ZERO, 0xbe00, 0x3ec0, THREE}, 0.5f, 0, {0, 0, 1, 7}},
    {&qp_recipe_mlx_blocks, "mxfp4", 2, {0xbf40, 0x4060}, 1, 0, {9, 5}},
    {&qp_recipe_mlx_blocks, "mxfp4", 2, {ZERO, ZERO}, 1, 0, {0, 0}},
    {&qp_recipe_mlx_blocks, "mxfp8", 2, {MINUS_ZERO, THREE}, 0x1p-7f, 0, {-128, 0x7c}},
    /* A scale of 0, and the largest, 448: 2^127 is beyond all sizes by as much. */
    {&qp_recipe_mlx_blocks, "nvfp4", 2, {TINY, 0x8001}, 0, 0, {0, 0}},
    {&qp_recipe_mlx_blocks, "nvfp4", 3, {0xcb80, 0x4680, 0x7f00}, 448, 0, {15, 7, 0}},
    /* Zero points hold what values are multiplied with: 448, and 1 of zeros. */
    {&qp_recipe_transformers, "fp8:c0:f32", 2, {ONE, MINUS_ONE}, 1.0f / 448, 448, {0x7e, -2}},
    {&qp_recipe_transformers, "fp8:c0:f32", 2, {ZERO, MINUS_ZERO}, 1, 1, {0, -128}},
    {&qp_recipe_modelopt, "nvfp4", 3, {MINUS_ZERO, 0xbc00, THREE}, 0.5f, 0, {0, 8, 7}},
    {&qp_recipe_modelopt, "nvfp4", 2, {ZERO, MINUS_ZERO}, 1, 0, {0, 0}},
    {&qp_recipe_modelopt, "nvfp4", 2, {ZERO, TINY}, 0x1p-9f, 0, {0, 0}},
    /* 1 / 448 in bf16; the quotient of 1 is 448 in bf16. */
    {&qp_recipe_comfy_fp8, "fp8:t:f32", 2, {MINUS_ZERO, ONE}, 0x1.24p-9f, 0, {-128, 0x7e}},
    {&qp_recipe_comfy_int8, "int8:t:f32", 3, {MINUS_ONE, ZERO, ONE}, 1.0f / 127, 0, {-127, 0, 127}},
    {&qp_recipe_comfy_int8, "int8:t:f32", 2, {ZERO, MINUS_ZERO}, 1e-30f, 0, {0, 0}},
    {&qp_recipe_comfy_blocks, "nvfp4", 3, {MINUS_ZERO, MINUS_ONE, THREE}, 0.5f, 0, {8, 12, 7}},
    {&qp_recipe_comfy_blocks, "nvfp4", 2, {TINY, MINUS_ZERO}, 0, 0, {0, 0}},
    {&qp_recipe_comfy_blocks, "mxfp8", 2, {MINUS_ZERO, THREE}, 0x1p-7f, 0, {-128, 0x7c}},
    {&qp_recipe_comfy_blocks, "mxfp8", 2, {ZERO, MINUS_ZERO}, 0x1p-127f, 0, {0, 0}},
};

static void check_example(const struct example *e, size_t number)
{
    const struct qplan_scheme scheme = scheme_of(e->scheme);
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    const struct qp_calibration c = {.calibrator = e->recipe,
                                     .kernels = qp_source_kernels(QPLAN_BF16, QPLAN_ISA_BEST),
                                     .quantizer =
                                         qp_quantizer(QPLAN_BF16, rule.kind, QPLAN_ISA_BEST),
                                     .rule = &rule};
    const struct qp_tile tile = {1, e->n, 1, e->n, 0};
    float state[4] = {0}, scale = 0;
    int32_t zero = 0;
    uint8_t codes[MOST] = {0};
    assert_int_equal(e->recipe->see(&c, 0, &tile, e->values, state), 0);
    assert_int_equal(e->recipe->finish(&c, 0, 1, state, &scale, &zero), 1);
    e->recipe->codes(&c, &tile, e->values, &scale, &zero, codes);
    const bool is_float = scheme.bias || e->recipe == &qp_recipe_transformers;
    const float found = is_float ? qp_bias(zero) : (float)zero;
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
    static const struct {
        const struct qp_calibrator *recipe;
        const char *scheme;
        uint16_t values[2];
    } rows[] = {{&qp_recipe_llm_compressor, "int8:c0:asym:bf16", {LEAST, MOST_BF16}},
                {&qp_recipe_llm_compressor_blocks, "mxfp4", {LEAST, MOST_BF16}},
                {&qp_recipe_mlx, "uint4:c0:bias:bf16", {LEAST, MOST_BF16}},
                {&qp_recipe_mlx_blocks, "mxfp4", {0x0010, ZERO}}, /* 2^-129 */
                {&qp_recipe_gptqmodel, "int4:c0:f16", {LEAST, MOST_BF16}},
                {&qp_recipe_bitsandbytes, "int8:c0:narrow", {LEAST, MOST_BF16}},
                {&qp_recipe_transformers, "fp8:c0:f32", {TINY, ZERO}},
                {&qp_recipe_comfy_fp8, "fp8:t:f32", {ZERO, ZERO}},
                {&qp_recipe_comfy_blocks, "mxfp8", {TINY, ZERO}}};
    const struct qp_tile tile = {1, 2, 1, 2, 0};
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qplan_scheme scheme = scheme_of(rows[i].scheme);
        const struct qp_code_rule rule = qp_code_rule(&scheme);
        const struct qp_calibration c = {.kernels = qp_source_kernels(QPLAN_BF16, QPLAN_ISA_BEST),
                                         .rule = &rule};
        float seen[4] = {0}, scale;
        int32_t zero;
        (void)rows[i].recipe->see(&c, 0, &tile, rows[i].values, seen);
        assert_int_equal(rows[i].recipe->finish(&c, 0, 1, seen, &scale, &zero), 0);
    }
}

static void factors_are_what_the_tools_make(void **state)
{
    static const struct {
        const struct qp_calibrator *recipe;
        enum qplan_dtype dtype;
        float most, factor;
    } rows[] = {
        /* A rounded reciprocal, and its product with 2688; 1 where that is infinite. */
        {&qp_recipe_llm_compressor_blocks, QPLAN_BF16, 40, 67.5f},
        {&qp_recipe_llm_compressor_blocks, QPLAN_F16, 0.02f, 1},
        {&qp_recipe_llm_compressor_blocks, QPLAN_F32, 0, 1},
        {&qp_recipe_modelopt, QPLAN_BF16, 2688, 1},
        {&qp_recipe_modelopt, QPLAN_F32, 0, 0},
        {&qp_recipe_modelopt, QPLAN_F32, 0x1p-133f, 0}, /* 2^-9 of it is nothing */
        {&qp_recipe_comfy_blocks, QPLAN_F32, 2688, 1},
        {&qp_recipe_comfy_blocks, QPLAN_F16, 0x1p-13f, 0x1p-24f},
        {&qp_recipe_comfy_blocks, QPLAN_F16, 0x1p-14f, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const float found = rows[i].recipe->factor(rows[i].dtype, rows[i].most);
        if (found != rows[i].factor)
            fail_msg("factor %zu: expected %.9g, found %.9g", i, (double)rows[i].factor,
                     (double)found);
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
    } rows[] = {
        {&qp_recipe_llm_compressor, "int8:t:asym"}, {&qp_recipe_llm_compressor, "int4:c1"},
        {&qp_recipe_gptqmodel, "int8:t:asym:f16"},  {&qp_recipe_gptqmodel, "int4:g128:f16"},
        {&qp_recipe_mlx, "uint4:t:bias"},           {&qp_recipe_mlx, "uint8:c1:bias"},
        {&qp_recipe_mlx, "uint5:g128:bias"},        {&qp_recipe_llm_compressor_blocks, "mxfp4"},
        {&qp_recipe_mlx_blocks, "mxfp8"},           {&qp_recipe_transformers, "fp8:b128x128:f32"},
        {&qp_recipe_transformers, "fp8:t:f32"},     {&qp_recipe_comfy_fp8, "f8e5m2:t:f32"},
        {&qp_recipe_comfy_int8, "int8:c1:f32"},     {&qp_recipe_comfy_blocks, "mxfp8"}};
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
        cmocka_unit_test(factors_are_what_the_tools_make),
        cmocka_unit_test(values_that_are_not_finite_are_counted),
        cmocka_unit_test(pieces_give_what_the_whole_gives),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
