/*
 * test_op_quantize.c - quantize_G and dequantize_G against the formula, element by element: random
 * shapes, every granularity, strides, threads, instruction sets, edges of scales and ranges.
 */
#include "op_layout.h"

/* ---- The formulas -----------------------------------------------------------------------------
 */

static int32_t code_f32(float value, float scale, int32_t zero, int32_t least, int32_t most)
{
    const float r = rintf(value / scale);
    if (isnan(r))
        return zero;
    if (r < (float)(least - zero))
        return least;
    return r > (float)(most - zero) ? most : (int32_t)r + zero;
}

static int32_t code_f64(double value, double scale, int32_t zero, int32_t least, int32_t most)
{
    const double r = rint(value / scale);
    if (isnan(r))
        return zero;
    if (r < (double)(least - zero))
        return least;
    return r > (double)(most - zero) ? most : (int32_t)r + zero;
}

/* ---- Quantize ---------------------------------------------------------------------------------
 */

static int64_t row_bytes(const struct layout *l, unsigned bits)
{
    return up(l->shape[2] * bits, 8);
}

/* A code out of a tensor that may be packed, bit by bit. */
static int32_t stored_code(const struct layout *l, const uint8_t *out, unsigned bits,
                           bool is_signed, size_t elem)
{
    const size_t row = elem / (size_t)l->shape[2], col = elem % (size_t)l->shape[2];
    const uint8_t *bytes = out + row * (size_t)row_bytes(l, bits);
    int32_t code = 0;
    for (size_t i = 0; i < bits; i++) {
        const size_t bit = col * bits + i;
        code |= (bytes[bit / 8] >> bit % 8 & 1) << i;
    }
    return is_signed && code >> (bits - 1) ? code - (1 << bits) : code;
}

/* Whether the bits behind the codes of every row are 0. */
static bool has_clean_ends(const struct layout *l, const uint8_t *out, unsigned bits)
{
    const size_t n = (size_t)row_bytes(l, bits), used = (size_t)l->shape[2] * bits % 8;
    bool clean = true;
    for (size_t r = 1; used && r <= (size_t)(l->shape[0] * l->shape[1]); r++)
        clean &= out[r * n - 1] >> used == 0;
    return clean;
}

static const struct {
    const char *name;
    unsigned bits;
    int32_t least, most;
} codes[] = {{"int8", 8, -128, 127}, {"uint8", 8, 0, 255}, {"int4", 4, -8, 7},
             {"uint4", 4, 0, 15},    {"int2", 2, -2, 1},   {"uint2", 2, 0, 3},
             {"int3", 3, -4, 3},     {"uint3", 3, 0, 7},   {"int5", 5, -16, 15},
             {"uint5", 5, 0, 31},    {"int6", 6, -32, 31}, {"uint6", 6, 0, 63},
             {"int7", 7, -64, 63},   {"uint7", 7, 0, 127}};

static void one_quantize(uint64_t *seed, enum qplan_isa isa, bool wide)
{
    static float x32[MOST], s32[MOST];
    static double x64[MOST], s64[MOST];
    static int32_t zero[MOST];
    static uint8_t out[MOST + 1];
    struct layout l = random_layout(seed, (int)random_below(seed, GRANULARITIES));
    const size_t k = random_below(seed, COUNT(codes));
    const unsigned bits = codes[k].bits;
    int32_t least = codes[k].least, most = codes[k].most;
    char name[64];
    struct problem p = make("quantize", &l, name);
    set(&p, "output_dtype", codes[k].name);
    set(&p, "nonfinite", "saturate");
    if (random_below(seed, 2)) {
        most -= (int32_t)random_below(seed, bits == 2 ? 2 : 4);
        least += (int32_t)random_below(seed, bits == 2 ? 2 : 4);
        set_number(&p, "q_min", least);
        set_number(&p, "q_max", most);
    }
    for (size_t i = 0; i < l.n_sets; i++) {
        s64[i] = s32[i] = (float)random_scale(seed);
        zero[i] = least + (int32_t)random_below(seed, (uint64_t)(most - least + 1));
    }
    for (size_t i = 0; i < l.n; i++)
        x64[i] = x32[i] = (float)random_datum(seed, s64[set_of(&l, i)]);
    const enum qplan_storage f = wide ? QPLAN_STORAGE_F64 : QPLAN_STORAGE_F32;
    add(&p, "input", f, 3, l.shape, wide ? (void *)x64 : x32);
    add(&p, "scale", QPLAN_STORAGE_F32, l.set_rank, l.sets, s32);
    add(&p, "zero_point", QPLAN_STORAGE_I32, l.set_rank, l.sets, zero);
    const int64_t stored[3] = {l.shape[0], l.shape[1], row_bytes(&l, bits)};
    add(&p, "output", k == 0 ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8, 3, stored, out);
    p.preference.isa = isa;
    p.preference.threads = 1 + (unsigned)random_below(seed, 3);
    struct qplan_error err;
    memset(out, 0xa5, sizeof out);
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < l.n; i++) {
        const size_t set = set_of(&l, i);
        const int32_t want = wide ? code_f64(x64[i], s64[set], zero[set], least, most)
                                  : code_f32(x32[i], s32[set], zero[set], least, most);
        assert_int_equal(stored_code(&l, out, bits, codes[k].least < 0, i), want);
    }
    assert_true(has_clean_ends(&l, out, bits));
    assert_int_equal(out[(size_t)(stored[0] * stored[1] * stored[2])], 0xa5);
}

static void quantize_is_the_formula(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 400; i++) {
        for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++)
            one_quantize(&seed, isa, i % 3 == 0);
    }
}

/* ---- Dequantize -------------------------------------------------------------------------------
 */

static void one_dequantize(uint64_t *seed, enum qplan_isa isa)
{
    static float s32[MOST], y[MOST];
    static int32_t zero[MOST];
    static uint8_t in[MOST];
    struct layout l = random_layout(seed, (int)random_below(seed, GRANULARITIES));
    const size_t k = random_below(seed, COUNT(codes));
    const unsigned bits = codes[k].bits;
    char name[64];
    struct problem p = make("dequantize", &l, name);
    set(&p, "input_dtype", codes[k].name);
    if (bits < 8)
        set_number(&p, "row_len", l.shape[2]);
    for (size_t i = 0; i < l.n_sets; i++) {
        s32[i] = (float)random_scale(seed);
        zero[i] = (int32_t)random_below(seed, (1 << 24) + 1) - (1 << 23);
    }
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)random_bits(seed);
    const int64_t stored[3] = {l.shape[0], l.shape[1], row_bytes(&l, bits)};
    add(&p, "input", k == 0 ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8, 3, stored, in);
    add(&p, "scale", QPLAN_STORAGE_F32, l.set_rank, l.sets, s32);
    add(&p, "zero_point", QPLAN_STORAGE_I32, l.set_rank, l.sets, zero);
    add(&p, "output", QPLAN_STORAGE_F32, 3, l.shape, y);
    p.preference.isa = isa;
    p.preference.threads = 1 + (unsigned)random_below(seed, 3);
    struct qplan_error err;
    OK(run_op(&p, &err), &err);
    for (size_t i = 0; i < l.n; i++) {
        const size_t set = set_of(&l, i);
        /* The exact product fits f64, so this is one rounding. */
        const int32_t q = stored_code(&l, in, bits, codes[k].least < 0, i);
        const double exact = (double)s32[set] * (double)(q - zero[set]);
        const double clipped = exact > (double)FLT_MAX    ? (double)FLT_MAX
                               : exact < -(double)FLT_MAX ? -(double)FLT_MAX
                                                          : exact;
        assert_true(y[i] == (float)clipped);
    }
}

static void dequantize_is_the_formula(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 300; i++) {
        for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++)
            one_dequantize(&seed, isa);
    }
}

/* ---- Views ------------------------------------------------------------------------------------
 */

/* A transposed input, spread-out parameters and output: the bits of the contiguous run. */
static void strided_is_contiguous(void **state)
{
    enum { R = 37, C = 501 };
    static float x[R * C], turned[C * R], s[C], spread[3 * C];
    static int8_t z8[C], q[R * C], apart[R * C * 2];
    static const int64_t column[] = {1, R}, third[] = {3}, second[] = {2 * C, 2};
    uint64_t seed = 3;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < C; i++) {
        s[i] = spread[3 * i] = (float)(0.01 + (double)random_below(&seed, 100) / 100);
        z8[i] = (int8_t)random_bits(&seed);
    }
    for (size_t i = 0; i < R * C; i++) {
        x[i] = (float)random_signed(&seed) * 100;
        turned[i % C * R + i / C] = x[i];
    }
    for (unsigned threads = 1; threads <= 7; threads += 2) {
        struct problem p = problem("quantize_per_channel");
        set(&p, "axis", "1");
        add(&p, "input", QPLAN_STORAGE_F32, 2, SHAPE(R, C), x);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(C), s);
        add(&p, "zero_point", QPLAN_STORAGE_I8, 1, SHAPE(C), z8);
        add(&p, "output", QPLAN_STORAGE_I8, 2, SHAPE(R, C), q);
        p.preference.threads = threads;
        OK(run_op(&p, &err), &err);
        p.tensors[0].data = turned;
        p.tensors[0].stride = column;
        p.tensors[1].data = spread;
        p.tensors[1].stride = third;
        p.tensors[1].n_bytes = sizeof spread - 2 * sizeof(float);
        p.tensors[3].data = apart;
        p.tensors[3].stride = second;
        p.tensors[3].n_bytes = sizeof apart - 1;
        memset(apart, 77, sizeof apart);
        OK(run_op(&p, &err), &err);
        for (size_t i = 0; i < R * C; i++) {
            assert_int_equal(apart[2 * i], q[i]);
            assert_int_equal(apart[2 * i + 1], 77);
        }
        /* One scale for all, by a stride of 0. */
        static const int64_t none[] = {0};
        p.tensors[1].stride = none;
        p.tensors[1].n_bytes = sizeof(float);
        OK(run_op(&p, &err), &err);
    }
}

/* Not one byte outside of any buffer is touched. */
static void buffers_between_guard_pages(void **state)
{
    enum { R = 3, C = 1001, B = R * ((C + 1) / 2) };
    struct guarded in = guarded_make(R * C * 2), scale = guarded_make(R * 4), out = guarded_make(B);
    struct qplan_error err;
    (void)state;
    for (int end = 0; end < 2; end++) {
        struct problem p = problem("quantize_per_token");
        char *x = (char *)(end ? in.end - R * C * 2 : in.begin);
        float *s = (float *)(void *)(end ? scale.end - R * 4 : scale.begin);
        memset(x, 0x12, R * C * 2);
        s[0] = s[1] = s[2] = 1;
        set(&p, "output_dtype", "int4");
        add(&p, "input", QPLAN_STORAGE_BF16, 2, SHAPE(R, C), x);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(R), s);
        add(&p, "output", QPLAN_STORAGE_U8, 2, SHAPE(R, (C + 1) / 2),
            end ? out.end - B : out.begin);
        OK(run_op(&p, &err), &err);
    }
    guarded_free(&in);
    guarded_free(&scale);
    guarded_free(&out);
}

/* per_token, per_group of a whole row and per_channel of rows are one thing. */
static void three_names_of_one_thing(void **state)
{
    enum { R = 19, C = 83 };
    static double x[R * C], s[R];
    static uint8_t q[3][R * C];
    uint64_t seed = 4;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < R * C; i++)
        x[i] = random_signed(&seed);
    for (size_t i = 0; i < R; i++)
        s[i] = 0.001 + random_signed(&seed) * 0.0005;
    for (int k = 0; k < 3; k++) {
        static const char *const names[] = {"quantize_per_token", "quantize_per_group",
                                            "quantize_per_channel"};
        struct problem p = problem(names[k]);
        if (k == 1)
            set_number(&p, "group_size", C);
        add(&p, "input", QPLAN_STORAGE_F64, 2, SHAPE(R, C), x);
        add(&p, "scale", QPLAN_STORAGE_F64, k == 2 ? 1 : 2, SHAPE(R, 1), s);
        add(&p, "output", QPLAN_STORAGE_I8, 2, SHAPE(R, C), q[k]);
        OK(run_op(&p, &err), &err);
        assert_memory_equal(q[k], q[0], sizeof q[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantize_is_the_formula),  cmocka_unit_test(dequantize_is_the_formula),
        cmocka_unit_test(strided_is_contiguous),    cmocka_unit_test(buffers_between_guard_pages),
        cmocka_unit_test(three_names_of_one_thing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
