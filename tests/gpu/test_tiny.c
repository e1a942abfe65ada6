/*
 * test_tiny.c - every kernel over shapes that are as small as reach all of its paths, on every
 * OpenCL device that can be opened, usable or not: for a simulator that looks at every access
 * (oclgrind.py), which is far too slow for the vectors of a proof. For operators the examples of
 * their rows are small enough.
 *
 *     test-tiny [GROUP_SIZE [PROGRAM]]     77 without a device; the kernels of one program, or of
 * all
 */
#include "lib/device/recheck.h"
#include "lib/ops/op_device.h"
#include "lib/run/cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILE_BYTES ((size_t)64 << 10)
#define MOST_SETS  (TILE_BYTES / 64)

static const enum qplan_dtype floats[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};

struct bench {
    struct qplan_device device;
    struct qp_lane *lane;
    void *src, *out, *scale;
    uint8_t *codes;
    int32_t *zero;
    double *bound;
    struct qp_device_scratch tile;
    struct qp_flat_scratch flat;
    struct qplan_error err;
};

/* ---- What stands between the library and the driver -------------------------------------------
 *
 * All that is copied in goes to an image of the block, whose other bytes are poison, and from there
 * in one piece: so that nothing on the device is left from an earlier tile, a result that depends
 * on what was not written differs from the CPU's, and a simulator that takes each copy for the
 * whole block (Oclgrind 21.10) knows all of it.
 */

static const struct qp_backend *watched;
static bool launched[QK_KERNEL_COUNT];
static unsigned char *image;
static uint64_t n_image;
static unsigned char poison;
static bool is_pending; /* the image has what the device has not */

static enum qplan_status watch_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                    void *host, struct qplan_error *err)
{
    if (way == QP_COPY_OUT)
        return watched->copy(lane, way, span, host, err);
    if (lane->n_bytes > n_image) {
        n_image = lane->n_bytes;
        image = realloc(image, n_image);
    }
    if (!is_pending)
        memset(image, poison, lane->n_bytes);
    is_pending = true;
    memcpy(image + span.off, host, span.n);
    return QPLAN_OK;
}

static enum qplan_status watch_launch(struct qp_lane *lane, const struct qp_launch *launch,
                                      struct qplan_error *err)
{
    launched[launch->kernel] = true;
    if (is_pending)
        QP_TRY(watched->copy(lane, QP_COPY_IN, (struct qp_span){0, lane->n_bytes}, image, err));
    is_pending = false;
    return watched->launch(lane, launch, err);
}

static int count_missed(const struct qp_device_info *info, enum qk_program program)
{
    int missed = 0;
    for (int i = 0; i < QK_KERNEL_COUNT; i++) {
        if (qk_kernel_rows[i].program != program || launched[i])
            continue;
        printf("%s: %s was not launched\n", info->label, qk_kernel_rows[i].name);
        missed++;
    }
    return missed;
}

/* ---- Tiles ------------------------------------------------------------------------------------
 */

static const struct tile {
    struct qp_tile tile;
    uint64_t last_len, phase;
} tiles[] = {
    {{4, 32, 1, 16, 0}, 32, 0},           /* octets */
    {{3, 24, 3, 12, 0}, 24, 0},           /* pairs, a group a set */
    {{3, 27, 2, 9, 2}, 27, 0},            /* bytes with codes of two sets, pads */
    {{300, 2, 300, 1, 0}, 2, 0},          /* a set a column, in parts */
    {{1, 30, 1, 5, 0}, 7, 4},             /* sets of a few elements; rows of codes inside */
    {{2, 24, 2, 100000, 99990}, 1000, 4}, /* a corner of sets that are larger than the tile */
};

static void fill_source(const struct bench *b, enum qplan_dtype dtype, size_t n)
{
    const struct qp_source_kernels *k = qp_source_kernels(dtype, QPLAN_ISA_SCALAR);
    for (size_t i = 0; i < n; i++) {
        const double x = (double)((int)(i * 37 % 101) - 50) / 8;
        const float narrow = (float)x;
        k->work->store(dtype, 1, dtype == QPLAN_F64 ? (const void *)&x : &narrow,
                       (char *)b->src + i * k->elem_bytes);
    }
}

static enum qplan_status run_tile(struct bench *b, const struct qp_device_work *work)
{
    struct qp_device_made made;
    fill_source(b, work->dtype, work->tile.rows * work->tile.cols);
    QP_TRY(qp_device_ranges(b->lane, work, b->src, b->out, &made, &b->err));
    QP_TRY(qp_device_check_ranges(&b->device, work, b->src, &made, &b->tile, &b->err));
    if (work->rule.kind != QP_CODES_BIASED) {
        QP_TRY(qp_device_quantize(b->lane, work, b->src, b->out, &made, &b->err));
        QP_TRY(qp_device_check_quantized(&b->device, work, b->src, &made, &b->tile, &b->err));
    } else {
        (void)qp_quantizer(work->dtype, work->rule.kind, QPLAN_ISA_SCALAR)
            ->params(&work->rule, qp_tile_sets(&work->tile), b->tile.lo, b->tile.hi, b->tile.scale,
                     b->tile.zero);
    }
    QP_TRY(qp_device_codes(b->lane, work, b->src, b->tile.scale, b->tile.zero, b->out, &made,
                           &b->err));
    return qp_device_check_codes(&b->device, work, b->src, b->tile.scale, b->tile.zero, &made,
                                 &b->tile, &b->err);
}

static enum qplan_status run_tiles(struct bench *b, enum qplan_dtype dtype,
                                   const struct qplan_scheme *scheme)
{
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        const struct qp_device_work work = {.dtype = dtype,
                                            .tile = tiles[i].tile,
                                            .rule = qp_code_rule(scheme),
                                            .packed = qplan_dtype_bits(scheme->dtype) == 4,
                                            .last_len = tiles[i].last_len,
                                            .phase = tiles[i].phase};
        QP_TRY(run_tile(b, &work));
    }
    return QPLAN_OK;
}

/* ---- Flat ranges ------------------------------------------------------------------------------
 */

static const struct range {
    uint64_t shape[2], elem, n;
    struct qplan_scheme scheme;
} ranges[] = {
    {{4, 32}, 0, 128, {.granularity = QPLAN_PER_GROUP, .group = 16}},
    {{5, 9}, 7, 38, {.granularity = QPLAN_PER_CHANNEL, .axis = 1}},
    {{7, 11}, 3, 70, {.granularity = QPLAN_PER_BLOCK, .block_rows = 3, .block_cols = 4}},
    {{2, 600}, 0, 1101, {.granularity = QPLAN_PER_TENSOR}}, /* more than a stage */
};

static void fill_params(const struct bench *b, const struct qp_flat_work *work)
{
    const struct qp_work_kernels *k = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR)->work;
    const size_t n = (size_t)(work->window.n + work->window.more);
    for (size_t i = 0; i < n; i++) {
        const double scale = (i % 2 ? -0.25 : 0.25) * (double)(1 + i % 3);
        if (work->dtype == QPLAN_F64)
            ((double *)b->scale)[i] = scale;
        else
            ((float *)b->scale)[i] = (float)scale;
        b->zero[i] = (int32_t)(i % 5);
    }
    k->bounds(n, b->scale, b->zero, &work->rule, b->bound);
}

static enum qplan_status run_range(struct bench *b, struct qp_flat_work *work)
{
    const struct qp_flat_data data = {b->codes, b->scale, b->zero, b->src, b->bound};
    const size_t n_codes = qp_flat_code_bytes(work);
    for (size_t i = 0; i < n_codes; i++)
        b->codes[i] = (uint8_t)(i * 73);
    fill_params(b, work);
    fill_source(b, work->dtype, (size_t)work->n);
    for (size_t i = 0; i < (work->dtype == QPLAN_F64 ? 4u : 3u); i++) {
        work->as = floats[i];
        QP_TRY(qp_device_decode(b->lane, work, &data, b->out, &b->err));
        QP_TRY(qp_device_check_decoded(&b->device, work, &data, b->out, &b->flat, &b->err));
    }
    QP_TRY(qp_device_measure(b->lane, work, &data, b->out, &b->err));
    return qp_device_check_measured(&b->device, work, &data, b->out, &b->flat, &b->err);
}

static enum qplan_status run_ranges(struct bench *b, enum qplan_dtype dtype,
                                    const struct qplan_scheme *scheme)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        struct qp_flat_work work = {.dtype = dtype,
                                    .elem = ranges[i].elem,
                                    .n = ranges[i].n,
                                    .rule = qp_code_rule(scheme),
                                    .packed = qplan_dtype_bits(scheme->dtype) == 4};
        qp_sets_make(&work.sets, &ranges[i].scheme, ranges[i].shape, 2);
        qp_window_of(&work.sets, work.elem, work.n, &work.window);
        QP_TRY(run_range(b, &work));
    }
    return QPLAN_OK;
}

/* ---- Devices ----------------------------------------------------------------------------------
 */

static enum qplan_status run_all(struct bench *b)
{
    static const struct qplan_scheme schemes[] = {
        {.dtype = QPLAN_INT8, .scale_dtype = QPLAN_F32},
        {.dtype = QPLAN_UINT4, .scale_dtype = QPLAN_F16, .asymmetric = true},
        {.dtype = QPLAN_UINT4, .scale_dtype = QPLAN_BF16, .asymmetric = true, .bias = true},
        {.dtype = QPLAN_F8E4M3, .scale_dtype = QPLAN_E8M0},
        {.dtype = QPLAN_NF4, .scale_dtype = QPLAN_F8E4M3},
    };
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < sizeof schemes / sizeof schemes[0]; k++) {
            QP_TRY(run_tiles(b, floats[i], &schemes[k]));
            if (!schemes[k].bias)
                QP_TRY(run_ranges(b, floats[i], &schemes[k]));
        }
    }
    return QPLAN_OK;
}

static void allocate(struct bench *b)
{
    b->src = malloc(TILE_BYTES);
    b->out = malloc(TILE_BYTES);
    b->scale = malloc(MOST_SETS * 8);
    b->codes = malloc(TILE_BYTES);
    b->zero = malloc(MOST_SETS * 4);
    b->bound = malloc(MOST_SETS * 8);
    b->tile = (struct qp_device_scratch){malloc(MOST_SETS * 8), malloc(MOST_SETS * 8),
                                         malloc(MOST_SETS * 8), malloc(MOST_SETS * 4),
                                         malloc(MOST_SETS * 4), malloc(TILE_BYTES)};
    b->flat =
        (struct qp_flat_scratch){malloc(QP_BLOCK + 1), malloc(QP_BLOCK * 8), malloc(QP_BLOCK * 8)};
}

static void release(struct bench *b)
{
    void *all[] = {b->src,         b->out,        b->scale,      b->codes,      b->zero,
                   b->bound,       b->tile.lo,    b->tile.hi,    b->tile.scale, b->tile.zero,
                   b->tile.stored, b->tile.codes, b->flat.codes, b->flat.y,     b->flat.stored};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* Programs by name, and the operators whose examples launch them; NULL: the shapes above. */
static const struct program {
    const char *name, *category;
    enum qk_program id;
} programs[] = {
    {"tiles", NULL, qk_tiles_program},
    {"affine", "quantize", qk_affine_program},
    {"rows", "embedding", qk_rows_program},
    {"grid", "grid", qk_grid_program},
};

_Static_assert(sizeof programs / sizeof programs[0] == QK_PROGRAM_COUNT, "a program is missing");

/* Twice with another poison: none may be what a result happens to be. Examples are many. */
static enum qplan_status run_program(struct bench *b, const struct program *program)
{
    poison = 0xa5;
    if (program->category)
        return qp_op_prove_all(&b->device, program->category, &b->err);
    QP_TRY(run_all(b));
    poison = 0x3c;
    return run_all(b);
}

static int run_device(const struct qp_device_info *info, size_t place, uint32_t group_size,
                      const struct program *program)
{
    struct bench b = {.lane = NULL};
    struct qp_backend backend = qp_backend_opencl;
    struct qp_gpu *gpu;
    enum qplan_status status = qp_backend_opencl.open(&gpu, place, &b.err);
    int missed = 0;
    allocate(&b);
    watched = &qp_backend_opencl;
    backend.copy = watch_copy;
    backend.launch = watch_launch;
    if (status == QPLAN_OK)
        status = backend.alloc(&b.lane, gpu, qp_flat_block_bytes(TILE_BYTES), &b.err);
    if (status == QPLAN_OK) {
        b.device.backend = QPLAN_BACKEND_OPENCL;
        b.device.gpu = gpu;
        b.device.memory_bytes = gpu->info.memory_bytes / 2;
        gpu->group_size = group_size;
        gpu->backend = &backend;
        status = run_program(&b, program);
        gpu->backend = watched;
        missed = status == QPLAN_OK ? count_missed(info, program->id) : 0;
        backend.free(b.lane);
    }
    backend.close(gpu);
    free(image);
    image = NULL;
    n_image = 0;
    release(&b);
    printf("%s %s, %s: %s%s%s\n", info->label, info->name, program->name,
           status == QPLAN_OK ? "done" : b.err.subject, status == QPLAN_OK ? "" : ": ",
           b.err.message);
    return status != QPLAN_OK || missed > 0;
}

int main(int argc, char **argv)
{
    struct qp_device_info infos[4];
    char reason[QP_REASON];
    const uint32_t group_size = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    size_t n = qp_backend_opencl.probe(infos, 4, reason);
    int failed = 0, done = 0;
    for (size_t k = 0; k < sizeof programs / sizeof programs[0]; k++) {
        if (argc > 2 && strcmp(argv[2], programs[k].name) != 0)
            continue;
        for (size_t i = 0; i < n && i < 4; i++, done++)
            failed += run_device(&infos[i], i, group_size, &programs[k]);
    }
    if (n == 0)
        printf("skipped: no OpenCL device: %s\n", reason);
    return n == 0 ? 77 : failed || done == 0 ? 1 : 0;
}
