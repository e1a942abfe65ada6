/*
 * prove.c - the vectors that a device must compute as the scalar kernels do, before it is
 * used: geometries that reach every kernel and every path in it, over values that are hard.
 */
#include "prove.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/sets.h"

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
    struct qp_flat_bench flat;
};

/* ---- Values -----------------------------------------------------------------------------------
 */

uint32_t qp_proof_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

double qp_proof_special(uint32_t random, bool nonfinite)
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
    uint32_t random = qp_proof_random(state), low = qp_proof_random(state);
    if (random % 16 == 0)
        return qp_proof_special(random / 16, nonfinite);
    double x = (double)random * 0x1p-31 - 1 + (double)low * 0x1p-64;
    for (size_t k = i / 512 % 24; k > 0; k--)
        x *= 0.5;
    return x;
}

/* An element of the dtype. Storing clips, so what is not finite has its bits written here. */
void qp_proof_put(enum qplan_dtype dtype, double x, void *to)
{
    const struct qp_work_kernels *work = qp_source_kernels(dtype, QPLAN_ISA_SCALAR)->work;
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
        qp_proof_put(dtype, value_at(&state, i, nonfinite),
                     (char *)b->src + i * kernels->elem_bytes);
}

uint64_t qp_device_proof_bytes(void)
{
    return qp_max_u64(qp_device_block_bytes(TILE_BYTES), qp_flat_proof_bytes());
}

/* ---- Proofs -----------------------------------------------------------------------------------
 */

/* Codes may be asked for with scales of either sign; those that were made are above 0. */
static void negate_some(const struct qp_device_work *work, void *scale)
{
    for (size_t i = 0; i < qp_tile_sets(&work->tile); i += 2) {
        if (work->dtype == QPLAN_F64)
            ((double *)scale)[i] *= -1;
        else
            ((float *)scale)[i] *= -1;
    }
}

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
    negate_some(work, b->scratch.scale);
    QP_TRY(qp_device_codes(b->lane, work, b->src, b->scratch.scale, b->scratch.zero, b->buffer,
                           &made, err));
    return qp_device_check_codes(b->gpu, work, b->src, b->scratch.scale, b->scratch.zero, &made,
                                 &b->scratch, err);
}

static enum qplan_status prove_codes(const struct bench *b, const struct qp_device_row *row,
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

static enum qplan_status prove_row(struct bench *b, const struct qp_device_row *row,
                                   struct qplan_error *err)
{
    if (row->kind == QP_KIND_QUANTIZE)
        return prove_codes(b, row, err);
    b->flat.gpu = b->gpu;
    b->flat.lane = b->lane;
    b->flat.group_size = b->group_size;
    return qp_flat_prove_row(&b->flat, row, err);
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
    qp_flat_bench_carve(carve, &b->flat);
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

/* ---- All rows ----------------------------------------------------------------------------------
 */

static const enum qplan_dtype floats[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
static const enum qplan_dtype code_dtypes[] = {QPLAN_INT8, QPLAN_UINT8, QPLAN_INT4, QPLAN_UINT4};

/* Quantizing: code types, symmetries and kinds of scales. The way back: targets, and measuring. */
#define ROWS_OF_DTYPE ((4 * 2 * 3) + (4 * 4) + 4)

static size_t rows_of_dtype(enum qplan_dtype dtype, struct qp_device_row *rows)
{
    size_t n = 0;
    for (size_t k = 0; k < 4 * 2 * 3; k++)
        rows[n++] = (struct qp_device_row){.kind = QP_KIND_QUANTIZE,
                                           .dtype = dtype,
                                           .scheme = {.dtype = code_dtypes[k % 4],
                                                      .asymmetric = k / 4 % 2,
                                                      .scale_dtype = floats[k / 8]}};
    for (size_t k = 0; k < 4 * (dtype == QPLAN_F64 ? 4u : 3u); k++)
        rows[n++] = (struct qp_device_row){.kind = QP_KIND_DECODE,
                                           .dtype = dtype,
                                           .scheme = {.dtype = code_dtypes[k % 4]},
                                           .as = floats[k / 4]};
    for (size_t k = 0; k < 4; k++)
        rows[n++] = (struct qp_device_row){
            .kind = QP_KIND_MEASURE, .dtype = dtype, .scheme = {.dtype = code_dtypes[k]}};
    return n;
}

enum qplan_status qp_device_prove_all(struct qp_gpu *gpu, uint32_t group_size,
                                      struct qplan_error *err)
{
    struct qp_device_row rows[4 * ROWS_OF_DTYPE];
    size_t n = 0, n_kept = 0;
    for (size_t i = 0; i < 4; i++)
        n += rows_of_dtype(floats[i], rows + n);
    for (size_t i = 0; i < n; i++) {
        if (gpu->info.has_fp64 || !qp_row_needs_fp64(&rows[i]))
            rows[n_kept++] = rows[i];
    }
    return prove(gpu, group_size, rows, n_kept, err);
}
