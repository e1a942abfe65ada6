/*
 * device_prove.c - the vectors that a device must compute as the scalar kernels do, before it is
 * used: geometries that reach every kernel and every path in it, over values that are hard.
 */
#include "device.h"

#include "base/alloc.h"
#include "job.h"
#include "split.h"

#include <math.h>
#include <string.h>

/* Every tile of the list fits. */
#define TILE_BYTES ((size_t)512 << 10)
#define MOST_ELEMS (TILE_BYTES / sizeof(double))

struct vector {
    struct qp_tile tile;
    uint64_t last_len, phase; /* of packed codes */
};

/* The kernel that each is for; one set or another has a short end in each. */
static const struct vector vectors[] = {
    {{4, 256, 1, 128, 0}, 256, 0},          /* fused, octets, a small group */
    {{2, 1056, 2, 1056, 0}, 1056, 0},       /* fused, octets, a large group */
    {{21, 90, 8, 30, 0}, 90, 0},            /* fused, pairs */
    {{3, 129, 1, 43, 0}, 129, 0},           /* bytes with codes of two sets, pads */
    {{300, 40, 300, 1, 0}, 40, 0},          /* a set a column, in parts */
    {{1, 1000, 1, 10, 0}, 25, 4},           /* sets of a few elements; rows of codes inside */
    {{1, 40000, 1, 20000, 0}, 40000, 0},    /* large sets in parts, octets */
    {{1, 33011, 1, 16500, 7}, 1001, 6},     /* the same, odd in every way */
    {{5, 24, 2, 100000, 99990}, 100000, 4}, /* a corner of sets that are larger than the tile */
};

/* What a proof works in. */
struct bench {
    struct qp_gpu *gpu;
    struct qp_lane *lane;
    uint32_t group_size;
    void *src, *buffer;
    struct qp_device_scratch scratch;
};

/* ---- Values -----------------------------------------------------------------------------------
 */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Zeros of both signs, subnormals, ties, and ends of ranges; infinity and NaN where wanted. */
static double special(uint32_t random, bool nonfinite)
{
    static const double finite[] = {0.0,  -0.0, 0x1p-149, -0x1p-140, 0x1p-1060, 0.5,
                                    -1.5, 2.5,  127.5,    -128.0,    65504.0,   -0x1p-24};
    static const double others[] = {INFINITY, -INFINITY, NAN};
    if (nonfinite && random % 4 == 0)
        return others[random / 4 % 3];
    return finite[random / 4 % (sizeof finite / sizeof finite[0])];
}

/* A magnitude that falls along the tile and starts anew, with all bits of a mantissa. */
static double value_at(uint32_t *state, size_t i, bool nonfinite)
{
    uint32_t random = next_random(state), low = next_random(state);
    if (random % 16 == 0)
        return special(random / 16, nonfinite);
    double x = (double)random * 0x1p-31 - 1 + (double)low * 0x1p-64;
    for (size_t k = i / 512 % 24; k > 0; k--)
        x *= 0.5;
    return x;
}

/* An element of the dtype. Storing clips, so what is not finite has its bits written here. */
static void put(const struct qp_work_kernels *work, enum qplan_dtype dtype, double x, void *to)
{
    const uint16_t infinity = dtype == QPLAN_F16 ? 0x7c00 : 0x7f80;
    const float narrow = (float)x;
    const uint16_t bits = (uint16_t)(infinity | (signbit(x) ? 0x8000 : 0) | (isnan(x) ? 0x40 : 0));
    if (dtype == QPLAN_F64)
        memcpy(to, &x, sizeof x);
    else if (dtype == QPLAN_F32)
        memcpy(to, &narrow, sizeof narrow);
    else if (isfinite(x))
        work->store(dtype, 1, &narrow, to);
    else
        memcpy(to, &bits, sizeof bits);
}

static void fill(const struct bench *b, enum qplan_dtype dtype, size_t n, bool nonfinite)
{
    const struct qp_source_kernels *kernels = qp_source_kernels(dtype, QPLAN_ISA_SCALAR);
    uint32_t state = 2463534242u;
    for (size_t i = 0; i < n; i++)
        put(kernels->work, dtype, value_at(&state, i, nonfinite),
            (char *)b->src + i * kernels->elem_bytes);
}

uint64_t qp_device_proof_bytes(void)
{
    return qp_device_block_bytes(TILE_BYTES);
}

/* ---- Proofs -----------------------------------------------------------------------------------
 */

static enum qplan_status prove_tile(const struct bench *b, const struct qp_device_work *work,
                                    struct qplan_error *err)
{
    struct qp_device_made made;
    QP_TRY(qp_device_quantize(b->lane, work, b->src, b->buffer, &made, err));
    QP_TRY(qp_device_check_quantized(b->gpu, work, b->src, &made, &b->scratch, err));
    const bool usable = made.bad_set == UINT64_MAX; /* then the scratch has the parameters */
    QP_TRY(qp_device_ranges(b->lane, work, b->src, b->buffer, &made, err));
    QP_TRY(qp_device_check_ranges(b->gpu, work, b->src, &made, &b->scratch, err));
    if (!usable)
        return QPLAN_OK;
    QP_TRY(qp_device_codes(b->lane, work, b->src, b->scratch.scale, b->scratch.zero, b->buffer,
                           &made, err));
    return qp_device_check_codes(b->gpu, work, b->src, b->scratch.scale, b->scratch.zero, &made,
                                 &b->scratch, err);
}

static enum qplan_status prove_row(const struct bench *b, const struct qp_device_row *row,
                                   struct qplan_error *err)
{
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct qp_device_work work = {.dtype = row->dtype,
                                            .tile = vectors[i].tile,
                                            .rule = qp_code_rule(&row->scheme),
                                            .packed = qplan_dtype_bits(row->scheme.dtype) == 4,
                                            .last_len = vectors[i].last_len,
                                            .phase = vectors[i].phase,
                                            .group_size = b->group_size};
        for (int nonfinite = 0; nonfinite < 2; nonfinite++) {
            fill(b, row->dtype, work.tile.rows * work.tile.cols, nonfinite);
            QP_TRY(prove_tile(b, &work, err));
        }
    }
    return QPLAN_OK;
}

static enum qplan_status prove_rows(struct bench *b, const struct qp_device_row *rows, size_t n,
                                    struct qplan_error *err)
{
    QP_TRY(b->gpu->backend->alloc(&b->lane, b->gpu, qp_device_proof_bytes(), err));
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; i < n && status == QPLAN_OK; i++)
        status = prove_row(b, &rows[i], err);
    b->gpu->backend->free(b->lane);
    return status;
}

static void carve(struct qp_carve *carve, struct bench *b)
{
    const size_t n_sets = TILE_BYTES / 64;
    b->src = qp_take(carve, TILE_BYTES);
    b->buffer = qp_take(carve, qp_device_made_bytes(TILE_BYTES));
    b->scratch = (struct qp_device_scratch){
        qp_take(carve, n_sets * sizeof(double)), qp_take(carve, n_sets * sizeof(double)),
        qp_take(carve, n_sets * sizeof(double)), qp_take(carve, n_sets * sizeof(int32_t)),
        qp_take(carve, n_sets * sizeof(float)),  qp_take(carve, MOST_ELEMS)};
}

static enum qplan_status prove(struct qp_gpu *gpu, uint32_t group_size,
                               const struct qp_device_row *rows, size_t n, struct qplan_error *err)
{
    struct bench b = {.gpu = gpu, .group_size = group_size};
    struct qp_carve count = {0};
    carve(&count, &b);
    struct qp_carve block = {.block = qp_alloc_buffer(count.used)};
    if (!block.block)
        return qp_fail_memory(err, "device", count.used);
    carve(&block, &b);
    enum qplan_status status = prove_rows(&b, rows, n, err);
    qp_free(block.block);
    return status;
}

enum qplan_status qp_device_prove(struct qp_gpu *gpu, const struct qp_device_row *rows, size_t n,
                                  struct qplan_error *err)
{
    return prove(gpu, 0, rows, n, err);
}

/* Every dtype, code type, symmetry and kind of scale that the device can have. */
enum qplan_status qp_device_prove_all(struct qp_gpu *gpu, uint32_t group_size,
                                      struct qplan_error *err)
{
    static const enum qplan_dtype floats[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
    static const enum qplan_dtype codes[] = {QPLAN_INT8, QPLAN_UINT8, QPLAN_INT4, QPLAN_UINT4};
    struct qp_device_row rows[4 * 4 * 2 * 3];
    size_t n = 0;
    for (size_t i = 0; i < (gpu->info.has_fp64 ? 4u : 3u); i++) {
        for (size_t k = 0; k < 4 * 2 * 3; k++) {
            rows[n++] = (struct qp_device_row){
                floats[i],
                {.dtype = codes[k % 4], .asymmetric = k / 4 % 2, .scale_dtype = floats[k / 8]}};
        }
    }
    return prove(gpu, group_size, rows, n, err);
}
