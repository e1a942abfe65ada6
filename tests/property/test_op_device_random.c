/*
 * test_op_device_random.c - the quantize family on a device that is the device text as host C,
 * against the scalar kernels: random shapes at every granularity, every dtype of data, scales and
 * zero points, data of random bits, tensors with gaps.
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

/* ---- Problems ---------------------------------------------------------------------------------
 */

static void add_params(struct problem *p, struct memory *m, const struct family *f,
                       const struct layout *l, enum qplan_storage data)
{
    static const enum qplan_storage ints[] = {QPLAN_STORAGE_I32, QPLAN_STORAGE_I8,
                                              QPLAN_STORAGE_U8};
    const bool wide = data == QPLAN_STORAGE_F64 || f->codes_in;
    const enum qplan_storage scale = dtypes[random_below(&seed, wide ? 4 : 3)];
    add_input(p, m, "scale", scale, l->set_rank, l->sets, put_scale);
    if (random_below(&seed, 4))
        add_input(p, m, "zero_point", f->float_zero ? scale : ints[random_below(&seed, 3)],
                  l->set_rank, l->sets, put_zero);
}

static void add_fields(struct problem *p, const struct family *f, enum qplan_storage data)
{
    static const char *const codes[] = {"int8", "uint8", "int4", "uint4"};
    static const char *const types[] = {"f32", "f16", "bf16", "f64"};
    const size_t code = random_below(&seed, 4);
    if (f->codes_out) {
        set(p, "output_dtype", codes[code]);
        set(p, "q_max", code == 0 || code == 1 ? "100" : "6");
    } else if (!f->codes_in) {
        set(p, "q_min", "-13");
        set(p, "q_max", "900");
    }
    if (f->forward)
        set(p, "nonfinite", "saturate");
    if (f->codes_in && random_below(&seed, 2))
        set(p, "output_dtype", types[random_below(&seed, 4)]);
    if (f->outputs[2] && f->dout)
        set(p, "grad_factor", "-0.3");
    if (f->params)
        return;
    set(p, "scheme", random_below(&seed, 2) ? "asymmetric" : "symmetric");
    set(p, "scale_dtype", types[random_below(&seed, data == QPLAN_STORAGE_F64 ? 4 : 3)]);
}

static enum qplan_storage random_data(const struct family *f)
{
    if (f->codes_in)
        return random_below(&seed, 2) ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8;
    return dtypes[random_below(&seed, 4)];
}

static void random_problem(struct problem *p, struct memory *m, const struct family *f,
                           char name[64])
{
    const struct layout l = random_layout(&seed, (int)random_below(&seed, GRANULARITIES));
    const enum qplan_storage data = random_data(f);
    *p = make(f->verb, &l, name);
    (void)strncat(name, f->tail, 63 - strlen(name));
    if (f->dout)
        add_input(p, m, "dout", data, 3, l.shape, put_data);
    add_input(p, m, "input", data, 3, l.shape, f->codes_in ? put_byte : put_data);
    if (f->params)
        add_params(p, m, f, &l, data);
    add_fields(p, f, data);
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
