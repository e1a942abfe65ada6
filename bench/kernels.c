/*
 * kernels.c - how fast each kernel is on one thread, against memcpy of the same source bytes.
 *
 * Walks the kernel table: every dtype, every level that this CPU has, every kernel, for a channel
 * of 4096 columns, groups of 128 and columns of their own. Rates are GB/s of source bytes, the best
 * of some rounds; data stays in the second-level cache, as it does in the pipeline.
 *
 *     build/bench-kernels [ROUNDS]
 */
#include "kernels/kernel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COLS  4096
#define ROWS  32
#define ELEMS (COLS * ROWS)

struct data {
    _Alignas(64) unsigned char src[ELEMS * 8];
    _Alignas(64) unsigned char copy[ELEMS * 8];
    _Alignas(64) double lo[ELEMS], hi[ELEMS], scale[ELEMS], bound[ELEMS], y[ELEMS];
    _Alignas(64) int32_t zero[ELEMS];
    _Alignas(64) uint8_t codes[ELEMS], packed[ELEMS];
};

struct geometry {
    const char *name;
    struct qp_tile tile;
};

static const struct geometry geometries[] = {
    {"channel 4096", {ROWS, COLS, 1, COLS, 0}},
    {"group 128", {ROWS, COLS, 1, 128, 0}},
    {"group 32", {ROWS, COLS, 1, 32, 0}},
    {"columns", {ROWS, COLS, ROWS, 1, 0}},
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- What is timed -----------------------------------------------------------------------------
 */

struct bench {
    const struct qp_source_kernels *k;
    const struct qp_tile *tile;
    struct data *d;
    struct qp_code_rule rule;
};

static void run_memcpy(struct bench *b)
{
    memcpy(b->d->copy, b->d->src, (size_t)ELEMS * b->k->elem_bytes);
}

static void run_range(struct bench *b)
{
    (void)b->k->range(b->tile, b->d->src, b->d->lo, b->d->hi);
}

static void run_params(struct bench *b)
{
    (void)b->k->work->params(&b->rule, qp_tile_sets(b->tile), b->d->lo, b->d->hi, b->d->scale,
                             b->d->zero);
}

static void run_quantize(struct bench *b)
{
    b->k->quantize(b->tile, b->d->src, &b->rule, b->d->scale, b->d->zero, b->d->codes);
}

static void run_dequantize(struct bench *b)
{
    b->k->work->dequantize(b->tile, b->d->codes, true, b->d->scale, b->d->zero, b->d->y);
}

static void run_store(struct bench *b)
{
    b->k->work->store(b->k->dtype, ELEMS, b->d->y, b->d->copy);
}

static void run_bounds(struct bench *b)
{
    b->k->work->bounds(qp_tile_sets(b->tile), b->d->scale, 8, b->d->bound);
}

static void run_check(struct bench *b)
{
    struct qp_check check;
    b->k->check(b->tile, b->d->src, b->d->y, &b->rule, b->d->scale, b->d->zero, b->d->bound,
                &check);
}

static void run_sums(struct bench *b)
{
    struct qp_sums sums;
    for (size_t at = 0; at < ELEMS; at += QP_BLOCK)
        b->k->sums(b->d->src + at * b->k->elem_bytes, (const char *)b->d->y + at * b->k->work_bytes,
                   QP_BLOCK, INFINITY, &sums);
}

static void run_pack(struct bench *b)
{
    qp_code_kernels(b->k->isa)->pack4(b->d->codes, ELEMS, b->d->packed);
}

static void run_unpack(struct bench *b)
{
    qp_code_kernels(b->k->isa)->unpack4(b->d->packed, ELEMS, true, b->d->codes);
}

/* In an order in which each finds what it needs. */
static const struct kernel {
    const char *name;
    void (*run)(struct bench *b);
} kernels[] = {
    {"memcpy", run_memcpy},     {"range", run_range},           {"params", run_params},
    {"quantize", run_quantize}, {"dequantize", run_dequantize}, {"store", run_store},
    {"bounds", run_bounds},     {"check", run_check},           {"sums", run_sums},
    {"pack4", run_pack},        {"unpack4", run_unpack},
};

/* ---- Timing ------------------------------------------------------------------------------------
 */

static double best_rate(struct bench *b, void (*run)(struct bench *b), int rounds)
{
    double best = 0;
    for (int i = 0; i < rounds; i++) {
        double start = now();
        for (int k = 0; k < 8; k++)
            run(b);
        double rate = 8.0 * ELEMS * b->k->elem_bytes / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Values around 0.02 in size, in any float dtype. */
static void fill(struct bench *b)
{
    static double x[ELEMS];
    uint64_t state = 88172645463325252u;
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    for (size_t i = 0; i < ELEMS; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        x[i] = ((double)(state >> 11) * 0x1p-53 - 0.5) * 0.04;
    }
    f64->store(b->k->dtype, ELEMS, x, b->d->src);
    memset(b->d->lo, 0, sizeof b->d->lo);
    memset(b->d->hi, 0, sizeof b->d->hi);
}

static void bench_row(const struct qp_source_kernels *k, struct data *d, int rounds)
{
    printf("\n%s, %s, GB/s of source bytes\n%-14s", qplan_dtype_name(k->dtype),
           qplan_isa_name(k->isa), "");
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        printf("%11s", kernels[i].name);
    for (size_t g = 0; g < sizeof geometries / sizeof geometries[0]; g++) {
        struct bench b = {k, &geometries[g].tile, d, {-128, 127, false, true, QPLAN_F32, true}};
        printf("\n%-14s", geometries[g].name);
        fill(&b);
        for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
            printf("%11.2f", best_rate(&b, kernels[i].run, rounds));
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    static const enum qplan_dtype dtypes[] = {QPLAN_BF16, QPLAN_F16, QPLAN_F32, QPLAN_F64};
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    struct data *d = aligned_alloc(64, sizeof *d);
    if (!d || rounds < 1)
        return 2;
    memset(d, 0, sizeof *d);
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        const struct qp_source_kernels *last = NULL;
        for (int isa = QPLAN_ISA_SCALAR; isa <= (int)qp_isa_detect(); isa++) {
            const struct qp_source_kernels *k = qp_source_kernels(dtypes[i], (enum qplan_isa)isa);
            if (k != last)
                bench_row(k, d, rounds);
            last = k;
        }
    }
    free(d);
    return 0;
}
