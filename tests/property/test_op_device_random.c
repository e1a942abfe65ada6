/*
 * test_op_device_random.c - the quantize family on a device that is the device text as host C,
 * against the scalar kernels: random shapes at every granularity, every dtype of data, scales and
 * zero points, data of random bits, tensors with gaps.
 */
#include "../unit/op_layout.h"

#include "../gpu/host_backend.h"
#include "lib/op_device.h"

#define N_PROBLEMS 3000

static uint64_t seed = 0x2545f4914f6cdd1du;

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

/* Buffers that live as long as a problem. */
struct memory {
    void *blocks[32];
    size_t n;
    int64_t strides[8][3];
};

static void *take(struct memory *m, size_t n_bytes)
{
    void *block = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(block);
    m->blocks[m->n++] = block;
    return block;
}

static void put_float(enum qplan_storage dtype, double x, unsigned char *to)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    f64->store(qp_op_float(dtype), 1, &x, to);
}

/* Any bits now and then, else numbers of moderate size. */
static void put_data(enum qplan_storage dtype, unsigned char *to)
{
    const uint64_t bits = random_bits(&seed);
    const size_t size = qplan_storage_bits(dtype) / 8;
    if (bits % 16 == 0)
        memcpy(to, &(uint64_t){random_bits(&seed)}, size);
    else
        put_float(dtype, ldexp((double)(int64_t)bits, -60 - (int)(bits % 8)), to);
}

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

/* A tensor of the layout, sometimes with gaps between its elements. */
static void add_input(struct problem *p, struct memory *m, const char *name,
                      enum qplan_storage dtype, unsigned rank, const int64_t *shape,
                      void (*put_one)(enum qplan_storage dtype, unsigned char *to))
{
    const size_t size = qplan_storage_bits(dtype) / 8;
    const size_t step = random_below(&seed, 4) == 0 ? 2 : 1;
    struct qplan_tensor *tensor = add(p, name, dtype, rank, shape, p);
    const size_t n = (size_t)tensor->n_bytes / size;
    tensor->data = take(m, n * step * size);
    tensor->n_bytes = n * step * size;
    for (size_t i = 0; i < n; i++)
        put_one(dtype, (unsigned char *)tensor->data + i * step * size);
    if (step == 1)
        return;
    int64_t *stride = m->strides[p->n_tensors - 1], next = (int64_t)step;
    for (unsigned i = rank; i-- > 0; next *= shape[i])
        stride[i] = next;
    tensor->stride = stride;
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

/* Runs on the device or the CPU; the outputs one behind the other. */
static enum qplan_status run_on(const struct problem *from, struct qplan_device *device,
                                struct text *out, struct qplan_op_counts *counts,
                                struct qplan_error *err)
{
    struct memory m = {.n = 0};
    struct qplan_op *op;
    struct qplan_tensor form;
    struct problem p = *from;
    for (size_t i = 0; i < p.n_tensors; i++)
        p.tensors[i].shape = p.shapes[i];
    p.preference.device = device;
    p.preference.isa = QPLAN_ISA_SCALAR;
    p.preference.threads = 1;
    enum qplan_status status = select_op(&p, &op, err);
    if (status != QPLAN_OK)
        return status;
    assert_int_equal(qplan_op_sku(op)->backend, device ? QPLAN_BACKEND_OPENCL : QPLAN_BACKEND_CPU);
    const size_t first = p.n_tensors;
    for (size_t i = 0; qplan_op_output(op, i, &form); i++) {
        struct qplan_tensor *tensor = add(&p, form.name, form.dtype, form.rank, form.shape, &m);
        tensor->data = take(&m, (size_t)tensor->n_bytes);
    }
    const uint64_t n = qplan_op_workspace_size(op);
    const struct qplan_op_args args = {p.tensors, p.n_tensors, counts};
    status = qplan_op_run(op, NULL, take(&m, n), n, &args, err);
    for (size_t i = first; status == QPLAN_OK && i < p.n_tensors; i++)
        (void)text_add(out, p.tensors[i].data, (size_t)p.tensors[i].n_bytes);
    while (m.n > 0)
        free(m.blocks[--m.n]);
    qplan_op_free(op);
    return status;
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
        struct text cpu = {0}, gpu = {0};
        struct qplan_op_counts cpu_counts = {0}, gpu_counts = {0};
        struct qplan_error cpu_err, gpu_err;
        struct problem p;
        random_problem(&p, &m, &families[i % COUNT(families)], name);
        const enum qplan_status wanted = run_on(&p, NULL, &cpu, &cpu_counts, &cpu_err);
        const enum qplan_status found = run_on(&p, &device, &gpu, &gpu_counts, &gpu_err);
        if (wanted != found || (wanted != QPLAN_OK && strcmp(cpu_err.message, gpu_err.message)))
            fail_msg("%zu %s: %s; expected %s", i, name, found ? gpu_err.message : "done",
                     wanted ? cpu_err.message : "done");
        if (cpu.n != gpu.n || (cpu.n && memcmp(cpu.data, gpu.data, cpu.n) != 0) ||
            memcmp(&cpu_counts, &gpu_counts, sizeof cpu_counts) != 0)
            fail_msg("%zu %s: other bits or counts", i, name);
        n_run += wanted == QPLAN_OK;
        text_free(&cpu);
        text_free(&gpu);
        while (m.n > 0)
            free(m.blocks[--m.n]);
    }
    printf("%zu of %d ran\n", n_run, N_PROBLEMS);
    assert_true(n_run > N_PROBLEMS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_problems)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
