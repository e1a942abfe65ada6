/*
 * test_op_device_random.c - the quantize family on a device that is the device text as host C,
 * against the scalar kernels: random shapes at every granularity, every dtype of data, scales and
 * zero points, codes of all kinds, data of random bits, tensors with gaps.
 */
#include "op_random.h"

#define N_PROBLEMS 3000

/* F64 last: not all scales may have it. */
static const enum qplan_storage dtypes[] = {QPLAN_STORAGE_F32, QPLAN_STORAGE_F16,
                                            QPLAN_STORAGE_BF16, QPLAN_STORAGE_F64};

/* What an operator takes besides its data. */
static const struct family {
    const char *verb, *tail; /* around the granularity */
    bool dout, params, float_zero, codes_in, codes_out, forward;
    const char *outputs[3];
} families[] = {
    {"quantize", "", false, true, false, false, true, true, {"output"}},
    {"quantize", "_backward", true, true, false, false, false, false, {"dinput"}},
    {"dequantize", "", false, true, false, true, false, false, {"output"}},
    {"fake_quantize", "", false, true, false, false, false, true, {"output"}},
    {"fake_quantize", "_backward", true, true, false, false, false, false, {"dinput"}},
    {"fake_quantize_learnable", "", false, true, true, false, false, true, {"output"}},
    {"fake_quantize_learnable",
     "_backward",
     true,
     true,
     true,
     false,
     false,
     false,
     {"dinput", "dscale", "dzero_point"}},
    {"dynamic_quantize",
     "",
     false,
     false,
     false,
     false,
     true,
     true,
     {"output", "scale", "zero_point"}},
};

/* ---- Data -------------------------------------------------------------------------------------
 */

static void put_scale(enum qplan_storage dtype, unsigned char *to)
{
    const uint64_t bits = random_bits(&seed);
    const int shift = bits % 32 == 0 ? -24 : -(int)(bits % 12); /* subnormal in f16 */
    put_float(dtype, ldexp(1 + (double)(bits >> 40) * 0x1p-24, shift), to);
}

static void put_zero(enum qplan_storage dtype, unsigned char *to)
{
    const int64_t whole = (int64_t)random_below(&seed, 4);
    if (QP_FP_BITS & QP_BIT(dtype))
        put_float(dtype, (double)whole * 0.5 - 0.25, to);
    else
        memcpy(to, &whole, qplan_storage_bits(dtype) / 8);
}

static void put_byte(enum qplan_storage dtype, unsigned char *to)
{
    (void)dtype;
    *to = (unsigned char)random_bits(&seed);
}

/* Codes of floats: few that are no numbers, so that most problems run. */
static void put_code(enum qplan_storage dtype, unsigned char *to)
{
    put_byte(dtype, to);
    if (random_below(&seed, 20000) > 0)
        *to &= dtype == QPLAN_STORAGE_F8_E4M3 ? 0xfe : dtype == QPLAN_STORAGE_F8_E5M2 ? 0xfb : 0xff;
}

/* ---- Codes ------------------------------------------------------------------------------------
 */

static const struct code {
    const char *name;
    enum qplan_storage stored;
    unsigned bits;
    bool valued;
    const char *q_max; /* of integers */
} codes[] = {
    {"int8", QPLAN_STORAGE_I8, 8, false, "100"},
    {"uint8", QPLAN_STORAGE_U8, 8, false, "100"},
    {"int4", QPLAN_STORAGE_U8, 4, false, "6"},
    {"uint4", QPLAN_STORAGE_U8, 4, false, "6"},
    {"int2", QPLAN_STORAGE_U8, 2, false, "1"},
    {"uint3", QPLAN_STORAGE_U8, 3, false, "6"},
    {"int5", QPLAN_STORAGE_U8, 5, false, "6"},
    {"uint6", QPLAN_STORAGE_U8, 6, false, "60"},
    {"int7", QPLAN_STORAGE_U8, 7, false, "60"},
    {"f8e4m3", QPLAN_STORAGE_F8_E4M3, 8, true, NULL},
    {"f8e5m2", QPLAN_STORAGE_F8_E5M2, 8, true, NULL},
    {"f4e2m1", QPLAN_STORAGE_U8, 4, true, NULL},
    {"nf4", QPLAN_STORAGE_U8, 4, true, NULL},
};

/* ---- Problems ---------------------------------------------------------------------------------
 */

static void add_params(struct problem *p, struct memory *m, const struct family *f,
                       const struct layout *l, enum qplan_storage data, const struct code *code)
{
    static const enum qplan_storage ints[] = {QPLAN_STORAGE_I32, QPLAN_STORAGE_I8,
                                              QPLAN_STORAGE_U8};
    const bool wide = data == QPLAN_STORAGE_F64 || f->codes_in;
    const enum qplan_storage scale = dtypes[random_below(&seed, wide ? 4 : 3)];
    add_input(p, m, "scale", scale, l->set_rank, l->sets, put_scale);
    if (random_below(&seed, code->valued ? 100 : 4) > (code->valued ? 98 : 0))
        add_input(p, m, "zero_point", f->float_zero ? scale : ints[random_below(&seed, 3)],
                  l->set_rank, l->sets, put_zero);
}

static void add_code(struct problem *p, const struct family *f, const struct code *code)
{
    if (f->codes_in || f->codes_out)
        set(p, f->codes_in ? "input_dtype" : "output_dtype", code->name);
    else if (code->valued)
        set(p, "code_dtype", code->name);
    else
        set(p, "q_min", "-13");
    if (f->codes_out && !code->valued)
        set(p, "q_max", code->q_max);
    else if (!f->codes_in && !code->valued)
        set(p, "q_max", "900");
}

static void add_fields(struct problem *p, const struct family *f, enum qplan_storage data,
                       const struct code *code)
{
    static const char *const types[] = {"f32", "f16", "bf16", "f64"};
    add_code(p, f, code);
    if (f->forward)
        set(p, "nonfinite", "saturate");
    if (f->codes_in && random_below(&seed, 2))
        set(p, "output_dtype", types[random_below(&seed, 4)]);
    if (f->outputs[2] && f->dout)
        set(p, "grad_factor", "-0.3");
    if (f->params)
        return;
    set(p, "scheme", !code->valued && random_below(&seed, 2) ? "asymmetric" : "symmetric");
    set(p, "scale_dtype", types[random_below(&seed, data == QPLAN_STORAGE_F64 ? 4 : 3)]);
}

/* Codes of the whole layout, in as many bytes as its rows fill. */
static void add_codes(struct problem *p, struct memory *m, const struct layout *l,
                      const struct code *code)
{
    const int64_t bytes = (l->shape[2] * (int64_t)code->bits + 7) / 8;
    add_input(p, m, "input", code->stored, 3, SHAPE(l->shape[0], l->shape[1], bytes),
              code->valued ? put_code : put_byte);
    if (code->bits < 8)
        set_number(p, "row_len", l->shape[2]);
}

static void random_problem(struct problem *p, struct memory *m, const struct family *f,
                           char name[64])
{
    const struct layout l = random_layout(&seed, (int)random_below(&seed, GRANULARITIES));
    const struct code *code = &codes[f->float_zero ? 0 : random_below(&seed, COUNT(codes))];
    const enum qplan_storage data = f->codes_in ? code->stored : dtypes[random_below(&seed, 4)];
    *p = make(f->verb, &l, name);
    (void)strncat(name, f->tail, 63 - strlen(name));
    if (f->dout)
        add_input(p, m, "dout", data, 3, l.shape, put_data);
    if (f->codes_in)
        add_codes(p, m, &l, code);
    else
        add_input(p, m, "input", data, 3, l.shape, put_data);
    if (f->params)
        add_params(p, m, f, &l, data, code);
    add_fields(p, f, data, code);
}

static void test_random_problems(void **state)
{
    struct qplan_device device = {.backend = QPLAN_BACKEND_OPENCL,
                                  .gpu = &host_gpu,
                                  .memory_bytes = host_gpu.info.memory_bytes};
    size_t n_run = 0;
    (void)state;
    for (size_t i = 0; i < N_PROBLEMS; i++) {
        char name[64];
        struct memory m = {.n = 0};
        struct problem p;
        random_problem(&p, &m, &families[i % COUNT(families)], name);
        n_run += check_random(&p, &device, i);
        release(&m);
    }
    printf("%zu of %d ran\n", n_run, N_PROBLEMS);
    assert_true(n_run > N_PROBLEMS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_problems)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
