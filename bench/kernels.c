/*
 * kernels.c - how fast each kernel is on one thread, against memcpy of the same source bytes.
 *
 * Walks the kernel tables: every dtype, every level that this CPU has, every kernel, for the ways
 * in which a tile falls into sets. Every round runs each once, memcpy among them; the best round
 * counts.
 */
#include "kernels/kernel.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COLS    4096
#define REPEATS 8 /* runs between two looks at the clock */

static const char help[] =
    "usage: bench-kernels [OPTION]...\n"
    "\n"
    "Prints GB/s of source bytes on one thread, and in brackets the share of what memcpy of the\n"
    "same bytes reaches in the same rounds. Sources are rows of 4096 elements.\n"
    "\n"
    "  --rounds N      how often each kernel is timed; the best counts [20]\n"
    "  --rows N        rows of the tile; 32 stay in the second-level cache, as they do in the\n"
    "                  pipeline, 16384 go through memory [32]\n"
    "  --dtype NAME    only sources of this type: f64, f32, f16, bf16\n"
    "  --isa NAME      only this level: scalar, avx2, ...\n"
    "  --codes NAME    the type of the codes: int8, f8e4m3, nf4, ... [int8]\n"
    "  --help          this text\n";

struct options {
    int rounds;
    size_t rows;
    const char *dtype, *isa;
    enum qplan_dtype codes;
};

/* What the kernels work on; arrays have an element for each of the tile, of its largest type. */
struct data {
    size_t n;
    unsigned char *src, *copy;
    void *y, *lo, *hi, *scale;
    double *bound;
    int32_t *zero;
    uint8_t *codes, *packed;
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
    const struct qp_quantizer *q;
    const struct qp_code_kernels *code;
    struct qp_tile tile;
    struct data *d;
    struct qp_code_rule rule;
};

static void run_memcpy(struct bench *b)
{
    memcpy(b->d->copy, b->d->src, b->d->n * b->k->elem_bytes);
}

static void run_range(struct bench *b)
{
    (void)b->k->range(&b->tile, b->d->src, b->d->lo, b->d->hi);
}

static void run_merge(struct bench *b)
{
    b->k->work->merge(qp_tile_sets(&b->tile), b->d->lo, b->d->hi, b->d->lo, b->d->hi);
}

static void run_params(struct bench *b)
{
    (void)b->q->params(&b->rule, qp_tile_sets(&b->tile), b->d->lo, b->d->hi, b->d->scale,
                       b->d->zero);
}

static void quantize(struct bench *b, bool bounded)
{
    struct qp_code_rule rule = b->rule;
    rule.bounded = bounded;
    b->q->quantize(&b->tile, b->d->src, &rule, b->d->scale, b->d->zero, b->d->codes);
}

static void run_quantize(struct bench *b)
{
    quantize(b, true);
}

static void run_quantize_any(struct bench *b)
{
    quantize(b, false);
}

static void run_dequantize(struct bench *b)
{
    b->q->dequantize(&b->tile, b->d->codes, &b->rule, b->d->scale, b->d->zero, b->d->y);
}

static void run_store(struct bench *b)
{
    b->k->work->store(b->k->dtype, b->d->n, b->d->y, b->d->copy);
}

static void run_load(struct bench *b)
{
    b->k->work->load(b->k->dtype, b->d->n, b->d->copy, b->d->y);
}

static void run_bounds(struct bench *b)
{
    b->k->work->bounds(qp_tile_sets(&b->tile), b->d->scale, b->d->zero, &b->rule, b->d->bound);
}

static void run_check(struct bench *b)
{
    struct qp_check check;
    b->q->check(&b->tile, b->d->src, b->d->y, &b->rule, b->d->scale, b->d->zero, b->d->bound,
                &check);
}

/* A row is a block; bounded, the runs of its sets are given, unless these are columns. */
static void sums(struct bench *b, bool bounded)
{
    struct qp_sums_wish wish = {.floor = INFINITY};
    struct qp_sums result;
    if (bounded && b->tile.col_width > 1)
        wish.width = b->tile.col_width < QP_BLOCK ? b->tile.col_width : QP_BLOCK;
    for (size_t row = 0; row < b->tile.rows; row++) {
        const size_t set = row / b->tile.band_rows * qp_tile_cols(&b->tile), at = row * QP_BLOCK;
        wish.bound = b->d->bound + set;
        wish.step = (const char *)b->d->scale + set * b->k->work_bytes;
        b->k->sums(b->d->src + at * b->k->elem_bytes, (const char *)b->d->y + at * b->k->work_bytes,
                   QP_BLOCK, &wish, &result);
    }
}

static void run_sums(struct bench *b)
{
    sums(b, true);
}

static void run_sums_any(struct bench *b)
{
    sums(b, false);
}

static void run_memcpy_codes(struct bench *b)
{
    memcpy(b->d->copy, b->d->codes, b->d->n);
}

static void run_pack(struct bench *b)
{
    b->code->pack4(b->d->codes, b->d->n, 0, b->d->packed);
}

static void run_unpack(struct bench *b)
{
    b->code->unpack4(b->d->packed, b->d->n, 8, 8, b->d->codes);
}

struct kernel {
    const char *name;
    void (*run)(struct bench *b);
};

/* memcpy first; then in an order in which each finds what it needs. */
static const struct kernel source_kernels[] = {
    {"memcpy", run_memcpy},
    {"range", run_range},
    {"merge", run_merge},
    {"params", run_params},
    {"quantize", run_quantize_any},
    {"quantize, bounded", run_quantize},
    {"dequantize", run_dequantize},
    {"bounds", run_bounds},
    {"check", run_check},
    {"sums", run_sums_any},
    {"sums, bounded", run_sums},
    {"store", run_store},
    {"load", run_load},
};
static const struct kernel code_kernels[] = {
    {"memcpy", run_memcpy_codes},
    {"pack4", run_pack},
    {"unpack4", run_unpack},
};
#define N_SOURCE (sizeof source_kernels / sizeof source_kernels[0])
#define N_CODE   (sizeof code_kernels / sizeof code_kernels[0])

/* How a tile of rows x COLS falls into sets; 0 rows in a band means all of them. */
static const struct geometry {
    const char *name;
    size_t band_rows, col_width;
} geometries[] = {
    {"channel", 1, COLS},        {"group 128", 1, 128}, {"group 32", 1, 32},
    {"block 128x128", 128, 128}, {"columns", 0, 1},
};
#define N_GEOMETRIES (sizeof geometries / sizeof geometries[0])

/* ---- Timing ------------------------------------------------------------------------------------
 */

static double rate_of(struct bench *b, void (*run)(struct bench *b), size_t n_bytes)
{
    double start = now();
    for (int i = 0; i < REPEATS; i++)
        run(b);
    return REPEATS * (double)n_bytes / (now() - start) * 1e-9;
}

/* The best rate of each kernel. */
static void time_all(struct bench *b, const struct kernel *kernels, size_t n, size_t n_bytes,
                     int rounds, double *best)
{
    for (size_t i = 0; i < n; i++) {
        kernels[i].run(b); /* fills what the next ones need */
        best[i] = 0;
    }
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < n; i++) {
            double rate = rate_of(b, kernels[i].run, n_bytes);
            best[i] = rate > best[i] ? rate : best[i];
        }
    }
}

/* Values of up to 0.02 in size, in any float dtype. */
static void fill(struct bench *b)
{
    struct data *d = b->d;
    double *x = d->bound;
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < d->n; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        x[i] = ((double)(state >> 11) * 0x1p-53 - 0.5) * 0.04;
    }
    qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work->store(b->k->dtype, d->n, x, d->src);
    memset(d->lo, 0, d->n * sizeof(double));
    memset(d->hi, 0, d->n * sizeof(double));
}

static void *new_array(size_t n, size_t size)
{
    size_t n_bytes = (n * size + 63) / 64 * 64;
    void *p = aligned_alloc(64, n_bytes);
    if (!p) {
        perror("bench-kernels");
        exit(5);
    }
    memset(p, 0, n_bytes);
    return p;
}

static struct data new_data(size_t n)
{
    const size_t f64 = sizeof(double);
    return (struct data){.n = n,
                         .src = new_array(n, f64),
                         .copy = new_array(n, f64),
                         .y = new_array(n, f64),
                         .lo = new_array(n, f64),
                         .hi = new_array(n, f64),
                         .scale = new_array(n, f64),
                         .bound = new_array(n, f64),
                         .zero = new_array(n, sizeof(int32_t)),
                         .codes = new_array(n, 1),
                         .packed = new_array(n, 1)};
}

/* ---- Tables ------------------------------------------------------------------------------------
 */

static void print_head(const char *const *names, size_t n)
{
    printf("%-18s", "kernel");
    for (size_t i = 0; i < n; i++)
        printf("%15s", names[i]);
    printf("\n");
}

static void print_line(const char *name, const double *rates, const double *memcpy_rates, size_t n)
{
    printf("%-18s", name);
    for (size_t i = 0; i < n; i++) {
        if (rates[i] < 1000)
            printf("%8.1f (%.2f)", rates[i], rates[i] / memcpy_rates[i]);
        else
            printf("%15s", "> 1000"); /* a few sets, whatever the bytes */
    }
    printf("\n");
}

static void bench_source(const struct qp_source_kernels *k, struct data *d,
                         const struct options *options)
{
    double rates[N_SOURCE][N_GEOMETRIES], best[N_SOURCE], fastest = 0;
    const char *names[N_GEOMETRIES];
    const struct qplan_scheme scheme = {.dtype = options->codes, .scale_dtype = QPLAN_F32};
    const struct qp_code_rule rule = qp_code_rule(&scheme);
    for (size_t g = 0; g < N_GEOMETRIES; g++) {
        const struct geometry *geometry = &geometries[g];
        struct bench b = {
            .k = k, .q = qp_quantizer(k->dtype, rule.kind, k->isa), .d = d, .rule = rule};
        size_t band = geometry->band_rows ? geometry->band_rows : options->rows;
        b.tile = (struct qp_tile){options->rows, COLS, band, geometry->col_width, 0};
        fill(&b);
        time_all(&b, source_kernels, N_SOURCE, d->n * k->elem_bytes, options->rounds, best);
        for (size_t i = 0; i < N_SOURCE; i++)
            rates[i][g] = best[i];
        fastest = best[0] > fastest ? best[0] : fastest;
        names[g] = geometry->name;
    }
    printf("\n%s, %s; memcpy %.1f GB/s\n", qplan_dtype_name(k->dtype), qplan_isa_name(k->isa),
           fastest);
    print_head(names, N_GEOMETRIES);
    for (size_t i = 1; i < N_SOURCE; i++)
        print_line(source_kernels[i].name, rates[i], rates[0], N_GEOMETRIES);
}

static void bench_codes(const struct qp_code_kernels *code, struct data *d,
                        const struct options *options)
{
    static const char *const names[] = {"of codes"};
    struct bench b = {.code = code, .d = d};
    double best[N_CODE];
    time_all(&b, code_kernels, N_CODE, d->n, options->rounds, best);
    printf("\n4-bit codes, %s; memcpy %.1f GB/s\n", qplan_isa_name(code->isa), best[0]);
    print_head(names, 1);
    for (size_t i = 1; i < N_CODE; i++)
        print_line(code_kernels[i].name, &best[i], &best[0], 1);
}

/* ---- The walk ----------------------------------------------------------------------------------
 */

static bool wanted_isa(enum qplan_isa isa, const struct options *options)
{
    return !options->isa || strcmp(options->isa, qplan_isa_name(isa)) == 0;
}

static int walk(struct data *d, const struct options *options)
{
    const int best = (int)qp_isa_detect();
    int n_done = 0;
    for (int dtype = 0; dtype < QPLAN_DTYPE_COUNT; dtype++) {
        const struct qp_source_kernels *last = NULL;
        if (options->dtype && strcmp(options->dtype, qplan_dtype_name((enum qplan_dtype)dtype)))
            continue;
        for (int isa = QPLAN_ISA_SCALAR; isa <= best; isa++) {
            const struct qp_source_kernels *k =
                qp_source_kernels((enum qplan_dtype)dtype, (enum qplan_isa)isa);
            if (k && k != last && wanted_isa(k->isa, options)) {
                bench_source(k, d, options);
                n_done++;
            }
            last = k;
        }
    }
    const struct qp_code_kernels *last = NULL;
    for (int isa = QPLAN_ISA_SCALAR; isa <= best && !options->dtype; isa++) {
        const struct qp_code_kernels *code = qp_code_kernels((enum qplan_isa)isa);
        if (code != last && wanted_isa(code->isa, options)) {
            bench_codes(code, d, options);
            n_done++;
        }
        last = code;
    }
    return n_done;
}

/* Exits on a mistake and after the help. */
static struct options parse(int argc, char **argv)
{
    static const struct option words[] = {
        {"rounds", required_argument, NULL, 'r'},
        {"rows", required_argument, NULL, 'n'},
        {"dtype", required_argument, NULL, 'd'},
        {"isa", required_argument, NULL, 'i'},
        {"codes", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct options options = {.rounds = 20, .rows = 32, .codes = QPLAN_INT8};
    bool has_codes = true;
    for (int c; (c = getopt_long(argc, argv, "", words, NULL)) != -1;) {
        if (c == 'r')
            options.rounds = atoi(optarg);
        else if (c == 'n')
            options.rows = (size_t)strtoul(optarg, NULL, 10);
        else if (c == 'd')
            options.dtype = optarg;
        else if (c == 'i')
            options.isa = optarg;
        else if (c == 'c')
            has_codes = qplan_dtype_parse(optarg, &options.codes) && qp_code_type(options.codes);
        else {
            fputs(help, c == 'h' ? stdout : stderr);
            exit(c == 'h' ? 0 : 2);
        }
    }
    if (optind < argc || !has_codes || options.rounds < 1 || options.rows < 1 ||
        options.rows > 1u << 20) {
        fputs(help, stderr);
        exit(2);
    }
    return options;
}

int main(int argc, char **argv)
{
    const struct options options = parse(argc, argv);
    struct data d = new_data(options.rows * COLS);
    if (walk(&d, &options) == 0) {
        fputs("bench-kernels: no such row\n", stderr);
        return 2;
    }
    return 0;
}
