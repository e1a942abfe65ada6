/*
 * prove_range.c - the vectors of the way back: ranges of tensors that reach every path of the
 * kernels, over parameters and errors that are hard.
 */
#include "prove.h"

#include "hard.h"

#include <math.h>

#define HUGE_LEN (((uint64_t)1 << 40) + 1)

/* A tensor, and a range of it. */
struct vector {
    uint64_t shape[3];
    unsigned rank;
    struct qplan_scheme scheme; /* its granularity */
    uint64_t elem, n;
};

#define TENSOR                                                                                     \
    {                                                                                              \
        .granularity = QPLAN_PER_TENSOR                                                            \
    }
#define CHANNEL(k)                                                                                 \
    {                                                                                              \
        .granularity = QPLAN_PER_CHANNEL, .axis = (k)                                              \
    }
#define GROUP(g)                                                                                   \
    {                                                                                              \
        .granularity = QPLAN_PER_GROUP, .group = (g)                                               \
    }
#define BLOCK(r, c)                                                                                \
    {                                                                                              \
        .granularity = QPLAN_PER_BLOCK, .block_rows = (r), .block_cols = (c)                       \
    }

static const struct vector vectors[] = {
    {{64, 256}, 2, GROUP(32), 0, 64 * 256},        /* octets, sets without regard to rows */
    {{64, 256}, 2, BLOCK(8, 32), 4096, 9001},      /* octets, bands of rows */
    {{100, 129}, 2, TENSOR, 4096, 8192},           /* one set; spare nibbles, odd phase */
    {{60, 41}, 2, CHANNEL(1), 0, 60 * 41},         /* a set a column, all of them */
    {{3, 6000, 2}, 3, CHANNEL(1), 8192, 8192},     /* the end of a row and the next's start */
    {{30, 1000}, 2, GROUP(48), 8192, 12001},       /* a short set in each row */
    {{4, 17, 23}, 3, BLOCK(3, 5), 0, 4 * 17 * 23}, /* periods with short bands and sets */
    {{3, HUGE_LEN},
     2,
     TENSOR,
     HUGE_LEN / 4096 * 4096,
     4097}, /* far lengths: over the end of a row */
    {{3, HUGE_LEN}, 2, CHANNEL(0), HUGE_LEN / 4096 * 4096, 300},
    {{3, HUGE_LEN}, 2, CHANNEL(1), HUGE_LEN / 4096 * 4096, 700},
};

/* ---- Data --------------------------------------------------------------------------------------
 */

/* Scales that are hard; what is written has one of the first, what is measured may have any. */
static const double hard[] = {1, 0x1p-126, 0x1p-149, 65504, 0x1.fffffep127, 0, NAN, INFINITY};
#define USABLE 5
#define ANY    (sizeof hard / sizeof hard[0])

/* A scale: mostly near a power that all share, so that a value can be near a code. Of either sign.
 */
static double scale_at(uint32_t *state, size_t n_hard)
{
    const uint32_t random = qp_hard_random(state);
    const double sign = random >> 7 & 1 ? -1 : 1;
    if (n_hard && random % 4 == 0)
        return sign * hard[random / 4 % n_hard];
    return sign * 0x1p-6 * (1 + (double)(random >> 8) * 0x1p-24);
}

static void fill_params(const struct qp_bench *b, const struct qp_flat_work *work, size_t n_hard)
{
    const struct qp_work_kernels *k = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR)->work;
    const size_t n = (size_t)(work->window.n + work->window.more);
    const uint32_t span = (uint32_t)(work->rule.q_max - work->rule.q_min) + 1;
    uint32_t state = 362436069u;
    for (size_t i = 0; i < n; i++) {
        const double scale = scale_at(&state, n_hard);
        if (k->work == QPLAN_F64)
            ((double *)b->scale)[i] = scale;
        else
            ((float *)b->scale)[i] = (float)scale;
        b->zero[i] = work->rule.q_min + (int32_t)(qp_hard_random(&state) % span);
    }
    k->bounds(n, b->scale, b->zero, &work->rule, b->bound);
}

/* A code of a type from some bits: of floats none that is no number. */
static uint8_t code_of(const struct qp_code_type *type, uint8_t byte)
{
    const unsigned bits = byte & ((1u << type->bits) - 1), size = bits & (type->grid.sign - 1u);
    if (type->kind == QP_CODES_FLOAT && size > type->grid.top)
        return (uint8_t)(bits - size + type->grid.top);
    return (uint8_t)(qp_is_valued(type->kind)
                         ? bits
                         : (unsigned)(type->least + (byte & (type->most - type->least))));
}

/* Codes at the ends of their range are as likely as all others: there values are clipped. */
static void fill_codes(const struct qp_bench *b, const struct qp_flat_work *work)
{
    static const uint8_t ends[] = {0x7f, 0x80, 0xff, 0x00, 0x77, 0x88, 0xf7, 0x08};
    const size_t n = qp_flat_code_bytes(work);
    uint32_t state = 521288629u;
    for (size_t i = 0; i < n; i++) {
        const uint32_t random = qp_hard_random(&state);
        const uint8_t byte = random % 2 ? ends[random / 2 % sizeof ends] : (uint8_t)(random >> 8);
        b->codes[i] = work->packed ? byte : code_of(work->rule.type, byte);
    }
}

/* Values within their bounds, about them, and far from them. */
static double near_value(double y, uint32_t random, bool wild)
{
    const double share = (double)(random >> 8) * 0x1p-23 - 1;
    if (random % 16 == 0)
        return qp_hard_value(random / 16, wild);
    if (random % 16 == 1)
        return y + share;
    if (random % 16 < 6)
        return y + 0x1p-3 * share * y;
    return y + 0x1.1p-7 * share;
}

static void fill_source(const struct qp_bench *b, const struct qp_flat_work *work,
                        const struct qp_flat_data *data, bool wild)
{
    const struct qp_source_kernels *k = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR);
    uint32_t state = 88675123u;
    for (uint64_t i = 0; i < work->n; i++) {
        if (i % QP_BLOCK == 0)
            qp_flat_decode_block(work, data, i, &b->range);
        const size_t at = (size_t)(i % QP_BLOCK);
        const double y = k->work->work == QPLAN_F64 ? ((const double *)b->range.y)[at]
                                                    : (double)((const float *)b->range.y)[at];
        qp_hard_put(work->dtype, near_value(y, qp_hard_random(&state), wild),
                    (char *)b->src + i * k->elem_bytes);
    }
}

/* ---- Proofs ------------------------------------------------------------------------------------
 */

static struct qp_flat_work make_work(const struct vector *v, const struct qp_device_row *row)
{
    struct qp_flat_work work = {.dtype = row->dtype,
                                .as = row->as,
                                .elem = v->elem,
                                .n = v->n,
                                .rule = qp_code_rule(&row->scheme)};
    qp_sets_make(&work.sets, &v->scheme, v->shape, v->rank);
    qp_window_of(&work.sets, work.elem, work.n, &work.window);
    return work;
}

static enum qplan_status prove_range(const struct qp_bench *b, const struct qp_flat_work *work,
                                     bool wild, struct qplan_error *err)
{
    const struct qp_device_row *row = &b->row;
    const struct qp_flat_data data = {b->codes, b->scale, b->zero, b->src, b->bound};
    fill_codes(b, work);
    fill_params(b, work, !wild ? 0 : row->kind == QP_KIND_DECODE ? USABLE : ANY);
    if (row->kind == QP_KIND_DECODE) {
        QP_TRY(qp_device_decode(b->lane, work, &data, b->out, err));
        return qp_device_check_decoded(b->device, work, &data, b->out, &b->range, err);
    }
    fill_source(b, work, &data, wild);
    QP_TRY(qp_device_measure(b->lane, work, &data, b->out, err));
    return qp_device_check_measured(b->device, work, &data, b->out, &b->range, err);
}

enum qplan_status qp_prove_ranges(const struct qp_bench *bench, struct qplan_error *err)
{
    const bool may_pack = qplan_dtype_bits(bench->row.scheme.dtype) == 4;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        struct qp_flat_work work = make_work(&vectors[i], &bench->row);
        for (int k = 0; k < (may_pack ? 4 : 2); k++) {
            work.packed = k / 2;
            QP_TRY(prove_range(bench, &work, k % 2, err));
        }
    }
    return QPLAN_OK;
}
