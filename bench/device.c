/*
 * device.c - how fast each kernel is on a device, and the copies to it and from it.
 *
 *     bench-device DEVICE ROUNDS TILE_BYTES
 *
 * Runs tiles through lib/device/on_tile.c, and ranges back through lib/device/on_range.c, on a lane
 * whose backend is watched: every launch and every copy is waited for and timed alone. Prints a
 * JSON document with the least time of each, and what it moved.
 */
#include "lib/device/on_range.h"
#include "lib/device/on_tile.h"
#include "lib/run/cut.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench-device: %s\n", what);
    exit(5);
}

static void check(enum qplan_status status, const struct qplan_error *err)
{
    if (status != QPLAN_OK) {
        (void)fprintf(stderr, "bench-device: %s: %s\n", err->subject, err->message);
        exit(5);
    }
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- A backend that is watched -----------------------------------------------------------------
 */

/* What a run of a tile did, step by step. */
struct step {
    char name[48];
    uint64_t bytes;
    double seconds; /* the least of all rounds */
};

#define MOST_STEPS 16

static struct watch {
    struct qp_lane lane; /* what the library sees */
    struct qp_lane *inner;
    struct step steps[MOST_STEPS];
    size_t n_steps, at;
} watch;

static void begin_round(void)
{
    watch.at = 0;
}

static void note(const char *name, uint64_t bytes, double seconds)
{
    struct step *step = &watch.steps[watch.at];
    if (watch.at == MOST_STEPS)
        fail("more steps than expected");
    if (watch.at++ == watch.n_steps) {
        *step = (struct step){.bytes = bytes, .seconds = seconds};
        (void)snprintf(step->name, sizeof step->name, "%s", name);
        watch.n_steps++;
    }
    step->seconds = seconds < step->seconds ? seconds : step->seconds;
}

static enum qplan_status sync_inner(struct qplan_error *err)
{
    return watch.inner->gpu->backend->sync(watch.inner, err);
}

static enum qplan_status watch_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                    void *host, struct qplan_error *err)
{
    const double start = now();
    (void)lane;
    QP_TRY(watch.inner->gpu->backend->copy(watch.inner, way, span, host, err));
    QP_TRY(sync_inner(err));
    note(way == QP_COPY_IN ? "copy in" : "copy out", span.n, now() - start);
    return QPLAN_OK;
}

static enum qplan_status watch_launch(struct qp_lane *lane, const struct qp_launch *launch,
                                      struct qplan_error *err)
{
    const double start = now();
    (void)lane;
    QP_TRY(watch.inner->gpu->backend->launch(watch.inner, launch, err));
    QP_TRY(sync_inner(err));
    note(qk_kernel_rows[launch->kernel].name, 0, now() - start);
    return QPLAN_OK;
}

static enum qplan_status watch_sync(struct qp_lane *lane, struct qplan_error *err)
{
    (void)lane;
    return sync_inner(err);
}

static const struct qp_backend watched = {
    .copy = watch_copy, .launch = watch_launch, .sync = watch_sync};

/* ---- Tiles -------------------------------------------------------------------------------------
 */

#define COLS 4096

static const struct way {
    const char *name;
    size_t band_rows, col_width;
    bool tall; /* the set is all rows of the tile */
} ways[] = {
    {"per channel", 1, COLS, false},    {"group 128", 1, 128, false}, {"group 32", 1, 32, false},
    {"block 128x128", 128, 128, false}, {"per column", 1, 1, true},
};

static const struct code {
    enum qplan_dtype dtype;
    bool asymmetric;
} codes[] = {{QPLAN_INT8, false}, {QPLAN_INT4, false}};

/* Values of either sign, all finite. */
static void fill(unsigned char *src, size_t n_bytes, size_t elem_bytes)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < n_bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const bool is_last = i % elem_bytes == elem_bytes - 1;
        src[i] = (unsigned char)(seed >> 56 & (is_last ? 0xbf : 0xff));
    }
}

static struct qp_device_work make_work(enum qplan_dtype dtype, const struct way *way,
                                       const struct code *code, size_t rows)
{
    const struct qplan_scheme scheme = {
        .dtype = code->dtype, .asymmetric = code->asymmetric, .scale_dtype = QPLAN_F32};
    return (struct qp_device_work){
        .dtype = dtype,
        .tile = {.rows = rows,
                 .cols = COLS,
                 .band_rows = way->tall ? rows : way->band_rows,
                 .col_width = way->col_width},
        .rule = qp_code_rule(&scheme),
        .packed = code->dtype == QPLAN_INT4,
        .last_len = COLS,
    };
}

static void print_steps(const char *sep, const char *job, enum qplan_dtype dtype,
                        const struct way *way, const struct code *code, uint64_t src_bytes)
{
    (void)printf(
        "%s{\"job\":\"%s\",\"source\":\"%s\",\"codes\":\"%s\",\"way\":\"%s\",\"source_bytes\":%llu,"
        "\"steps\":[",
        sep, job, qplan_dtype_name(dtype), qplan_dtype_name(code->dtype), way->name,
        (unsigned long long)src_bytes);
    for (size_t i = 0; i < watch.n_steps; i++)
        (void)printf("%s{\"name\":\"%s\",\"bytes\":%llu,\"seconds\":%.9f}", i ? "," : "",
                     watch.steps[i].name, (unsigned long long)watch.steps[i].bytes,
                     watch.steps[i].seconds);
    (void)printf("]}");
}

struct bench {
    int rounds;
    size_t tile_bytes;
    unsigned char *src;
    void *made;
    /* For the way back: parameters of every set, and codes of any bits. */
    void *scale;
    int32_t *zero;
    double *bound;
    uint8_t *codes;
};

static void run_tile(const struct bench *b, const char *sep, enum qplan_dtype dtype,
                     const struct way *way, const struct code *code)
{
    const size_t elem = qp_float_bytes(dtype), rows = b->tile_bytes / (COLS * elem);
    const struct qp_device_work work = make_work(dtype, way, code, rows);
    struct qplan_error err;
    struct qp_device_made made;
    fill(b->src, b->tile_bytes, elem);
    watch.n_steps = 0;
    for (int i = 0; i <= b->rounds; i++) { /* the first one compiles and is not counted */
        begin_round();
        check(qp_device_quantize(&watch.lane, &work, b->src, b->made, &made, &err), &err);
        if (i == 0)
            watch.n_steps = 0;
    }
    print_steps(sep, "quantize", dtype, way, code, b->tile_bytes);
}

/* Elements of a range: as many as the block of a lane for tiles of so many bytes has room for. */
static size_t range_elems(const struct bench *b)
{
    const size_t n = b->tile_bytes / sizeof(double);
    return n - n % COLS;
}

static void fill_params(const struct bench *b, bool is_f64)
{
    const size_t n = range_elems(b);
    for (size_t i = 0; i < n; i++) {
        if (is_f64)
            ((double *)b->scale)[i] = 0.25;
        else
            ((float *)b->scale)[i] = 0.25f;
        b->zero[i] = 0;
        b->bound[i] = INFINITY; /* no element is an offence, which would be counted one by one */
        b->codes[i] = (uint8_t)(i * 73);
    }
}

/* Codes to values and, in a second document, codes against their source. */
static void run_range(const struct bench *b, enum qplan_dtype dtype, const struct code *code)
{
    static const struct way way = {"group 128", 1, 128, false};
    const struct qplan_scheme scheme = {.dtype = code->dtype,
                                        .granularity = QPLAN_PER_GROUP,
                                        .group = 128,
                                        .scale_dtype = QPLAN_F32};
    const uint64_t n = range_elems(b), shape[2] = {n / COLS, COLS};
    const struct qp_flat_data data = {b->codes, b->scale, b->zero, b->src, b->bound};
    struct qp_flat_work work = {.dtype = dtype,
                                .as = dtype,
                                .n = n,
                                .rule = qp_code_rule(&scheme),
                                .packed = code->dtype == QPLAN_INT4};
    struct qplan_error err;
    qp_sets_make(&work.sets, &scheme, shape, 2);
    qp_window_of(&work.sets, 0, n, &work.window);
    fill(b->src, n * qp_float_bytes(dtype), qp_float_bytes(dtype));
    fill_params(b, dtype == QPLAN_F64);
    for (int measures = 0; measures < 2; measures++) {
        for (int i = 0; i <= b->rounds; i++) {
            begin_round();
            check(measures ? qp_device_measure(&watch.lane, &work, &data, b->made, &err)
                           : qp_device_decode(&watch.lane, &work, &data, b->made, &err),
                  &err);
            if (i == 0)
                watch.n_steps = 0;
        }
        print_steps(",\n", measures ? "verify" : "dequantize", dtype, &way, code,
                    n * qp_float_bytes(dtype));
    }
}

static void run_all(const struct bench *b, bool has_fp64)
{
    static const enum qplan_dtype sources[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
    const char *sep = "";
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
            for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
                if (sources[s] == QPLAN_F64 && !has_fp64)
                    continue;
                run_tile(b, sep, sources[s], &ways[w], &codes[c]);
                sep = ",\n";
            }
        }
        for (size_t c = 0; has_fp64 && c < sizeof codes / sizeof codes[0]; c++)
            run_range(b, sources[s], &codes[c]);
    }
}

/* The device of a name such as opencl:0. */
static struct qp_gpu *open_device(const char *label)
{
    struct qp_gpu *gpu = NULL;
    struct qplan_error err;
    const char *colon = strchr(label, ':');
    const size_t n = colon ? (size_t)(colon - label) : strlen(label);
    for (size_t i = 0; qp_backends[i]; i++) {
        const char *name = qplan_backend_name(qp_backends[i]->id);
        if (strlen(name) == n && strncmp(name, label, n) == 0)
            check(qp_backends[i]->open(&gpu, colon ? strtoul(colon + 1, NULL, 10) : 0, &err), &err);
    }
    if (!gpu)
        fail("no such backend: expected cuda[:N] or opencl[:N]");
    return gpu;
}

int main(int argc, char **argv)
{
    struct qplan_error err;
    if (argc != 4)
        fail("usage: bench-device DEVICE ROUNDS TILE_BYTES");
    struct bench b = {.rounds = atoi(argv[2]), .tile_bytes = strtoull(argv[3], NULL, 10)};
    if (b.rounds < 1 || b.tile_bytes < 8 * 128 * COLS || b.tile_bytes % (8 * 128 * COLS))
        fail("rounds: at least 1; bytes: a multiple of 4 MiB");
    struct qp_gpu *gpu = open_device(argv[1]);
    const uint64_t for_tiles = qp_device_made_bytes(b.tile_bytes);
    const uint64_t for_ranges = b.tile_bytes + qp_flat_found_bytes(b.tile_bytes);
    const uint64_t tile_block = qp_device_block_bytes(b.tile_bytes);
    const uint64_t range_block = qp_flat_block_bytes(b.tile_bytes);
    b.src = malloc(b.tile_bytes);
    b.made = malloc(for_tiles > for_ranges ? for_tiles : for_ranges);
    b.scale = malloc(b.tile_bytes);
    b.zero = malloc(b.tile_bytes);
    b.bound = malloc(b.tile_bytes);
    b.codes = malloc(b.tile_bytes);
    if (!b.src || !b.made || !b.scale || !b.zero || !b.bound || !b.codes)
        fail("out of memory");
    check(gpu->backend->alloc(&watch.inner, gpu,
                              tile_block > range_block ? tile_block : range_block, &err),
          &err);
    struct qp_gpu seen = {.backend = &watched, .info = gpu->info};
    watch.lane = (struct qp_lane){&seen, watch.inner->n_bytes};
    (void)printf("{\"device\":\"%s\",\"name\":\"%s\",\"tiles\":[\n", gpu->info.label,
                 gpu->info.name);
    run_all(&b, gpu->info.has_fp64);
    (void)printf("]}\n");
    gpu->backend->free(watch.inner);
    gpu->backend->close(gpu);
    free(b.src);
    free(b.made);
    free(b.scale);
    free(b.zero);
    free(b.bound);
    free(b.codes);
    return 0;
}
