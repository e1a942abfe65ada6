/*
 * ops.c - how long one operator takes for one problem, on one thread and on two, beside a memcpy of
 * the bytes that it must move: its inputs and its outputs, once each. The two take turns, round by
 * round; the least of each counts, since a busy machine only adds.
 *
 *     bench-ops ROUNDS OPERATOR [@BYTES] [FIELD=VALUE]... [NAME:DTYPE:SHAPE[:KIND]]...
 *
 * SHAPE is 4096x4096. KIND says what a tensor holds: nothing = numbers around 0, "zero", "scale" =
 * around 1/64, "below=N" = integers below N. @BYTES is what must be moved where that is not all of
 * the tensors. The result is a line of JSON.
 */
#include "kernels/kernel.h"
#include "lib/base/alloc.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_TENSORS 16
#define MAX_FIELDS  16
#define MAX_THREADS 2

struct problem {
    struct qplan_op_field fields[MAX_FIELDS];
    struct qplan_tensor tensors[MAX_TENSORS];
    int64_t shapes[MAX_TENSORS][QPLAN_MAX_RANK];
    size_t n_fields, n_tensors, n_inputs;
    uint64_t n_bytes; /* that must be moved */
    char *from, *to;  /* as many each, for memcpy */
};

/* One thread has the time that it ran, which nothing else on the machine adds to. */
static double now(unsigned threads)
{
    struct timespec t;
    (void)clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench-ops: %s: %s\n", what, why);
    exit(2);
}

static void *make(uint64_t n_bytes)
{
    void *block = qp_alloc_buffer(n_bytes);
    if (!block)
        fail("memory", "not enough");
    memset(block, 0, (size_t)n_bytes);
    return block;
}

/* ---- Tensors ----------------------------------------------------------------------------------
 */

static uint64_t random_bits(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void fill_floats(const struct qplan_tensor *t, uint64_t n, bool is_scale)
{
    static double x[1 << 16];
    const enum qplan_dtype dtype = t->dtype == QPLAN_STORAGE_F64   ? QPLAN_F64
                                   : t->dtype == QPLAN_STORAGE_F32 ? QPLAN_F32
                                   : t->dtype == QPLAN_STORAGE_F16 ? QPLAN_F16
                                                                   : QPLAN_BF16;
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    for (uint64_t at = 0; at < n; at += 1 << 16) {
        const size_t part = (size_t)(n - at < 1 << 16 ? n - at : 1 << 16);
        for (size_t i = 0; i < part; i++) {
            double unit = (double)(random_bits() >> 11) * 0x1p-53;
            x[i] = is_scale ? (1 + unit) / 96 : 2 * unit - 1;
        }
        f64->store(dtype, part, x, (char *)t->data + at * (t->n_bytes / n));
    }
}

static void fill_integers(const struct qplan_tensor *t, uint64_t n, const char *kind)
{
    const char *number = strchr(kind, '=');
    const uint64_t limit = number ? strtoull(number + 1, NULL, 10) : 256;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t value = random_bits() % limit;
        const size_t size = (size_t)(t->n_bytes / n);
        memcpy((char *)t->data + i * size, &value, size);
    }
}

/* NAME:DTYPE:SHAPE[:KIND] */
static void add_tensor(struct problem *p, char *word)
{
    char *rest = NULL, *name = strtok_r(word, ":", &rest), *dtype = strtok_r(NULL, ":", &rest),
         *shape = strtok_r(NULL, ":", &rest), *kind = strtok_r(NULL, ":", &rest);
    struct qplan_tensor *t = &p->tensors[p->n_tensors];
    int64_t *extents = p->shapes[p->n_tensors++];
    uint64_t n = 1;
    if (!shape || p->n_tensors == MAX_TENSORS)
        fail(word, "expected NAME:DTYPE:SHAPE");
    *t = (struct qplan_tensor){.name = name, .shape = extents};
    while (qplan_storage_name(t->dtype) && strcmp(qplan_storage_name(t->dtype), dtype) != 0)
        t->dtype++;
    for (char *x = strtok_r(shape, "x", &rest); x; x = strtok_r(NULL, "x", &rest))
        n *= (uint64_t)(extents[t->rank++] = strtoll(x, NULL, 10));
    t->n_bytes = n * (qplan_storage_bits(t->dtype) / 8);
    t->data = make(t->n_bytes);
    if (kind && strcmp(kind, "zero") == 0)
        return;
    if (strchr("FB", dtype[0]) && qplan_storage_bits(t->dtype) > 8)
        fill_floats(t, n, kind && strcmp(kind, "scale") == 0);
    else
        fill_integers(t, n, kind ? kind : "");
}

static void read_problem(struct problem *p, char **words, int n)
{
    for (int i = 0; i < n; i++) {
        char *equals = strchr(words[i], '='), *colon = strchr(words[i], ':');
        if (words[i][0] == '@') {
            p->n_bytes = strtoull(words[i] + 1, NULL, 10);
        } else if (colon && (!equals || colon < equals)) {
            add_tensor(p, words[i]);
        } else if (equals && p->n_fields < MAX_FIELDS) {
            *equals = '\0';
            p->fields[p->n_fields++] =
                (struct qplan_op_field){.name = words[i], .text = equals + 1};
        } else {
            fail(words[i], "neither a field nor a tensor");
        }
    }
    p->n_inputs = p->n_tensors;
}

static bool is_listed(const struct problem *p, const char *name)
{
    for (size_t i = 0; i < p->n_inputs; i++) {
        if (strcmp(p->tensors[i].name, name) == 0)
            return true;
    }
    return false;
}

/* Outputs of an op, once: they are the same for any number of threads. */
static void add_outputs(struct problem *p, const struct qplan_op *op)
{
    struct qplan_tensor form;
    for (size_t i = 0; qplan_op_output(op, i, &form); i++) {
        uint64_t n = qplan_storage_bits(form.dtype) / 8;
        if (is_listed(p, form.name))
            continue;
        for (unsigned axis = 0; axis < form.rank; axis++)
            n *= (uint64_t)(p->shapes[p->n_tensors][axis] = form.shape[axis]);
        form.shape = p->shapes[p->n_tensors];
        form.data = make(n);
        form.n_bytes = n;
        p->tensors[p->n_tensors++] = form;
    }
    const bool all = p->n_bytes == 0;
    for (size_t i = 0; all && i < p->n_tensors; i++)
        p->n_bytes += p->tensors[i].n_bytes;
    p->from = make(p->n_bytes);
    p->to = make(p->n_bytes);
}

/* ---- What is timed ----------------------------------------------------------------------------
 */

struct copy {
    const struct problem *p;
    unsigned part, n_parts;
};

static void *copy_part(void *ctx)
{
    const struct copy *c = ctx;
    const size_t n = (size_t)(c->p->n_bytes / c->n_parts);
    memcpy(c->p->to + c->part * n, c->p->from + c->part * n, n);
    return NULL;
}

static double time_memcpy(const struct problem *p, unsigned threads)
{
    struct copy parts[MAX_THREADS];
    pthread_t others[MAX_THREADS];
    double start = now(threads);
    for (unsigned i = 0; i < threads; i++) {
        parts[i] = (struct copy){p, i, threads};
        if (i > 0 && pthread_create(&others[i], NULL, copy_part, &parts[i]) != 0)
            fail("thread", "cannot start");
    }
    (void)copy_part(&parts[0]);
    for (unsigned i = 1; i < threads; i++)
        (void)pthread_join(others[i], NULL);
    return now(threads) - start;
}

static double time_op(const struct problem *p, const struct qplan_op *op, unsigned threads,
                      void *workspace)
{
    struct qplan_error err;
    const struct qplan_op_args args = {p->tensors, p->n_tensors, NULL};
    double start = now(threads);
    if (qplan_op_run(op, NULL, workspace, qplan_op_workspace_size(op), &args, &err) != QPLAN_OK)
        fail(err.subject, err.message);
    return now(threads) - start;
}

/* ---- Rounds -----------------------------------------------------------------------------------
 */

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void bench(struct problem *p, const char *name, unsigned threads, int rounds)
{
    const struct qplan_op_desc desc = {name, p->fields, p->n_fields, p->tensors, p->n_inputs};
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    struct qplan_op *op;
    struct qplan_error err;
    double copy = HUGE_VAL, run = HUGE_VAL;
    preference.threads = threads;
    if (qplan_op_select(&op, &desc, &preference, &err) != QPLAN_OK)
        fail(err.subject, err.message);
    if (!p->from)
        add_outputs(p, op);
    void *workspace = make(qplan_op_workspace_size(op));
    (void)time_op(p, op, threads, workspace); /* warms up */
    for (int i = 0; i < rounds; i++) {
        copy = least(copy, time_memcpy(p, threads));
        run = least(run, time_op(p, op, threads, workspace));
    }
    printf("%s{\"threads\":%u,\"seconds\":%.6g,\"memcpy\":%.6g}", threads > 1 ? "," : "", threads,
           run, copy);
    if (threads == MAX_THREADS)
        printf("],\"arch\":\"%s\",\"bytes\":%" PRIu64 "}\n", qplan_op_sku(op)->arch, p->n_bytes);
    qp_free(workspace);
    qplan_op_free(op);
}

int main(int argc, char **argv)
{
    static struct problem p;
    const int rounds = argc > 2 ? atoi(argv[1]) : 0;
    if (rounds < 1)
        fail("usage",
             "bench-ops ROUNDS OPERATOR [@BYTES] [FIELD=VALUE]... [NAME:DTYPE:SHAPE[:KIND]]...");
    read_problem(&p, argv + 3, argc - 3);
    printf("{\"op\":\"%s\",\"runs\":[", argv[2]);
    for (unsigned threads = 1; threads <= MAX_THREADS; threads++)
        bench(&p, argv[2], threads, rounds);
    return 0;
}
