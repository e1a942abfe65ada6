/*
 * prove.c - the vectors that a device must compute as the scalar kernels do, before it is
 * used: geometries that reach every kernel and every path in it, over values that are hard.
 */
#include "prove.h"

#include "hard.h"
#include "lib/base/alloc.h"
#include "lib/base/carve.h"
#include "lib/base/check.h"

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

/* ---- Values -----------------------------------------------------------------------------------
 */

/* A magnitude that falls along the tile and starts anew, with all bits of a mantissa. */
static double value_at(uint32_t *state, size_t i, bool nonfinite)
{
    uint32_t random = qp_hard_random(state), low = qp_hard_random(state);
    if (random % 16 == 0)
        return qp_hard_value(random / 16, nonfinite);
    double x = (double)random * 0x1p-31 - 1 + (double)low * 0x1p-64;
    for (size_t k = i / 512 % 24; k > 0; k--)
        x *= 0.5;
    return x;
}

static void fill(const struct qp_bench *b, enum qplan_dtype dtype, size_t n, bool nonfinite)
{
    const struct qp_source_kernels *kernels = qp_source_kernels(dtype, QPLAN_ISA_SCALAR);
    uint32_t state = 2463534242u;
    for (size_t i = 0; i < n; i++)
        qp_hard_put(dtype, value_at(&state, i, nonfinite),
                    (char *)b->src + i * kernels->elem_bytes);
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

/* The parameters that the CPU makes of ranges in the scratch; false if a set has none. */
static bool find_params(const struct qp_device_work *work, const struct qp_device_scratch *s)
{
    const struct qp_quantizer *q = qp_quantizer(work->dtype, work->rule.kind, QPLAN_ISA_SCALAR);
    const size_t n = qp_tile_sets(&work->tile);
    return q->params(&work->rule, n, s->lo, s->hi, s->scale, s->zero) == n;
}

static enum qplan_status prove_tile(const struct qp_bench *b, const struct qp_device_work *work,
                                    struct qplan_error *err)
{
    const struct qp_device_scratch *s = &b->tile;
    struct qp_device_made made;
    if (work->rule.kind != QP_CODES_BIASED) {
        QP_TRY(qp_device_quantize(b->lane, work, b->src, b->out, &made, err));
        QP_TRY(qp_device_check_quantized(b->device, work, b->src, &made, s, err));
    }
    QP_TRY(qp_device_ranges(b->lane, work, b->src, b->out, &made, err));
    QP_TRY(qp_device_check_ranges(b->device, work, b->src, &made, s, err));
    if (!find_params(work, s))
        return QPLAN_OK;
    negate_some(work, s->scale);
    QP_TRY(qp_device_codes(b->lane, work, b->src, s->scale, s->zero, b->out, &made, err));
    return qp_device_check_codes(b->device, work, b->src, s->scale, s->zero, &made, s, err);
}

/* Scales under a factor have one that is not a power of two, which divides or multiplies, or 1. */
static void set_factor(struct qp_code_rule *rule, size_t i)
{
    if (rule->scale_dtype != QPLAN_F8E4M3 || i % 3 == 0)
        return;
    rule->divides = i % 3 == 1;
    rule->factor = rule->divides ? 0x1.234567p9f : 0x1.234567p-9f;
}

static enum qplan_status prove_tiles(const struct qp_bench *b, struct qplan_error *err)
{
    const struct qp_device_row *row = &b->row;
    const bool may_pack = qplan_dtype_bits(row->scheme.dtype) == 4; /* as some layouts have it */
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct qp_device_work work = {.dtype = row->dtype,
                                      .tile = vectors[i].tile,
                                      .rule = qp_code_rule(&row->scheme),
                                      .last_len = vectors[i].last_len,
                                      .phase = vectors[i].phase};
        set_factor(&work.rule, i);
        for (int nonfinite = 0; nonfinite < 2; nonfinite++) {
            fill(b, row->dtype, work.tile.rows * work.tile.cols, nonfinite);
            for (int packed = 0; packed <= may_pack; packed++) {
                work.packed = packed;
                QP_TRY(prove_tile(b, &work, err));
            }
        }
    }
    return QPLAN_OK;
}

/* ---- The bench --------------------------------------------------------------------------------
 */

uint64_t qp_device_proof_bytes(void)
{
    return qp_max_u64(qp_device_block_bytes(QP_PROOF_BYTES), qp_flat_block_bytes(QP_PROOF_BYTES));
}

static void carve(struct qp_carve *carve, struct qp_bench *b)
{
    const size_t n_sets = qp_flat_window_sets(QP_PROOF_BYTES); /* more than a tile has */
    b->src = qp_take(carve, QP_PROOF_BYTES);
    b->out = qp_take(carve, qp_max_u64(QP_PROOF_BYTES, qp_device_made_bytes(QP_PROOF_BYTES)));
    b->tile = (struct qp_device_scratch){
        qp_take(carve, n_sets * sizeof(double)), qp_take(carve, n_sets * sizeof(double)),
        qp_take(carve, n_sets * sizeof(double)), qp_take(carve, n_sets * sizeof(int32_t)),
        qp_take(carve, n_sets * sizeof(float)),  qp_take(carve, QP_PROOF_ELEMS)};
    b->codes = qp_take(carve, QP_PROOF_ELEMS + 64);
    b->scale = qp_take(carve, n_sets * sizeof(double));
    b->zero = qp_take(carve, n_sets * sizeof(int32_t));
    b->bound = qp_take(carve, n_sets * sizeof(double));
    b->range = (struct qp_flat_scratch){qp_take(carve, QP_BLOCK + 1),
                                        qp_take(carve, QP_BLOCK * sizeof(double)),
                                        qp_take(carve, QP_BLOCK * sizeof(double))};
}

static enum qplan_status open_bench(struct qp_bench *b, struct qplan_error *err)
{
    struct qp_gpu *gpu = b->device->gpu;
    struct qp_carve count = {0};
    carve(&count, b);
    struct qp_carve block = {.block = qp_alloc_buffer(count.used)};
    if (!block.block)
        return qp_fail_memory(err, "device", count.used);
    b->block = block.block;
    carve(&block, b);
    return gpu->backend->alloc(&b->lane, gpu, qp_device_proof_bytes(), err);
}

static void close_bench(struct qp_bench *b)
{
    if (b->lane)
        b->device->gpu->backend->free(b->lane);
    qp_free(b->block);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

/* The first row that the device has not proven yet opens the bench. */
static enum qplan_status prove_row(void *ctx, struct qplan_error *err)
{
    struct qp_bench *b = ctx;
    if (!b->lane)
        QP_TRY(open_bench(b, err));
    return b->row.kind == QP_KIND_QUANTIZE ? prove_tiles(b, err) : qp_prove_ranges(b, err);
}

enum qplan_status qp_device_prove_rows(struct qplan_device *device, const uint32_t *rows, size_t n,
                                       struct qplan_error *err)
{
    struct qp_bench b = {.device = device};
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; i < n && status == QPLAN_OK; i++) {
        b.row = qp_row_of(rows[i]);
        status =
            qp_device_prove(device, (struct qp_device_proof){NULL, rows[i]}, prove_row, &b, err);
    }
    close_bench(&b);
    return status;
}

static const enum qplan_dtype floats[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
static const enum qplan_dtype scales[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_E8M0,
                                          QPLAN_F8E4M3};

#define N_FLOATS (sizeof floats / sizeof floats[0])
#define N_SCALES (sizeof scales / sizeof scales[0])
#define N_BIASES 3 /* scales whose type a bias may have */

/* Quantizing: symmetries and kinds of scales, without and with a bias. The way back: targets, and
 * measuring. */
#define ROWS_OF_TYPES (2 * (N_SCALES + N_BIASES) + 4 + 1)

/* The rows of one source type and one code type. */
static size_t rows_of_types(enum qplan_dtype dtype, const struct qp_code_type *type,
                            struct qp_device_row rows[ROWS_OF_TYPES])
{
    const enum qplan_dtype code = type->dtype;
    const bool is_linear = type->kind == QP_CODES_LINEAR;
    const size_t n_biased = is_linear && !type->is_signed ? N_BIASES : 0;
    size_t n = 0;
    for (size_t k = 0; k < 2 * (N_SCALES + n_biased); k++) {
        const bool bias = k / 2 >= N_SCALES;
        if (is_linear || k % 2 == 0)
            rows[n++] = (struct qp_device_row){.kind = QP_KIND_QUANTIZE,
                                               .dtype = dtype,
                                               .scheme = {.dtype = code,
                                                          .asymmetric = k % 2,
                                                          .bias = bias,
                                                          .scale_dtype = scales[k / 2 % N_SCALES]}};
    }
    for (size_t k = 0; k < (dtype == QPLAN_F64 ? 4u : 3u); k++)
        rows[n++] = (struct qp_device_row){
            .kind = QP_KIND_DECODE, .dtype = dtype, .scheme = {.dtype = code}, .as = floats[k]};
    rows[n++] =
        (struct qp_device_row){.kind = QP_KIND_MEASURE, .dtype = dtype, .scheme = {.dtype = code}};
    return n;
}

enum qplan_status qp_device_prove_all_rows(struct qplan_device *device, struct qplan_error *err)
{
    struct qp_device_row rows[N_FLOATS * ROWS_OF_TYPES];
    uint32_t numbers[N_FLOATS * ROWS_OF_TYPES];
    for (const struct qp_code_type *type = qp_code_types; type->name; type++) {
        size_t n = 0, n_kept = 0;
        for (size_t i = 0; !type->only_read && i < N_FLOATS; i++)
            n += rows_of_types(floats[i], type, rows + n);
        for (size_t i = 0; i < n; i++) {
            if (device->gpu->info.has_fp64 || !qp_row_needs_fp64(&rows[i]))
                numbers[n_kept++] = qp_row_number(&rows[i]);
        }
        QP_TRY(qp_device_prove_rows(device, numbers, n_kept, err));
    }
    return QPLAN_OK;
}
