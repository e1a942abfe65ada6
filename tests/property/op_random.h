/*
 * op_random.h - random problems on a device that is the device text as host C, against the scalar
 * kernels: data of random bits, tensors with gaps. What is asked of an operator is the test's.
 */
#ifndef TESTS_OP_RANDOM_H
#define TESTS_OP_RANDOM_H

#include "tests/unit/op_layout.h"

#include "lib/ops/op_device.h"
#include "tests/gpu/host_backend.h"

static uint64_t seed = 0x2545f4914f6cdd1du;

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

static void release(struct memory *m)
{
    while (m->n > 0)
        free(m->blocks[--m->n]);
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

/* ---- Runs ------------------------------------------------------------------------------------
 */

static struct qplan_tensor *given_tensor(struct problem *p, const char *name)
{
    size_t i = 0;
    while (i < p->n_tensors && strcmp(p->tensors[i].name, name) != 0)
        i++;
    return i < p->n_tensors ? &p->tensors[i] : NULL;
}

/* Runs on the device or the CPU; the outputs one behind the other. An input that is updated is
 * copied first. */
static enum qplan_status run_on(const struct problem *from, struct qplan_device *device,
                                struct text *out, struct qplan_op_counts *counts,
                                struct qplan_error *err)
{
    struct memory m = {.n = 0};
    struct qplan_op *op;
    struct qplan_tensor form, *made[MAX_TENSORS];
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
    size_t i = 0;
    for (; qplan_op_output(op, i, &form); i++) {
        struct qplan_tensor *tensor = given_tensor(&p, form.name);
        const void *old = tensor ? tensor->data : NULL;
        if (!tensor)
            tensor = add(&p, form.name, form.dtype, form.rank, form.shape, &m);
        tensor->data = take(&m, (size_t)tensor->n_bytes);
        if (old)
            memcpy(tensor->data, old, (size_t)tensor->n_bytes);
        made[i] = tensor;
    }
    const uint64_t n = qplan_op_workspace_size(op);
    const struct qplan_op_args args = {p.tensors, p.n_tensors, counts};
    status = qplan_op_run(op, NULL, take(&m, n), n, &args, err);
    for (size_t k = 0; status == QPLAN_OK && k < i; k++)
        (void)text_add(out, made[k]->data, (size_t)made[k]->n_bytes);
    release(&m);
    qplan_op_free(op);
    return status;
}

/* The same outcome, bits and counts on both. Returns whether the problem was not refused. */
static bool check_random(const struct problem *p, struct qplan_device *device, size_t number)
{
    struct text cpu = {0}, gpu = {0};
    struct qplan_op_counts cpu_counts = {0}, gpu_counts = {0};
    struct qplan_error cpu_err, gpu_err;
    const enum qplan_status wanted = run_on(p, NULL, &cpu, &cpu_counts, &cpu_err);
    const enum qplan_status found = run_on(p, device, &gpu, &gpu_counts, &gpu_err);
    if (wanted != found || (wanted != QPLAN_OK && strcmp(cpu_err.message, gpu_err.message)))
        fail_msg("%zu %s: %s; expected %s", number, p->op, found ? gpu_err.message : "done",
                 wanted ? cpu_err.message : "done");
    if (cpu.n != gpu.n || (cpu.n && memcmp(cpu.data, gpu.data, cpu.n) != 0) ||
        memcmp(&cpu_counts, &gpu_counts, sizeof cpu_counts) != 0)
        fail_msg("%zu %s: other bits or counts", number, p->op);
    text_free(&cpu);
    text_free(&gpu);
    return wanted == QPLAN_OK;
}

#endif
