/*
 * on_range.c - one flat range on one lane. Says where the sets and codes of the range are, in
 * the 32-bit numbers of the kernels, and where in the block of the lane everything lies; computes
 * nothing itself.
 *
 * The block: source, codes and parameters, which are copied in, then the results.
 */
#include "on_range.h"

#include "code_values.h"
#include "kernels/gpu/qk_flat.h"
#include "lane.h"
#include "lib/base/check.h"
#include "lib/store/place.h"

_Static_assert(QK_BLOCK == QP_BLOCK, "one order of sums");

/* Longer lengths are cut. Ranges are far shorter. */
#define LENGTH_LIMIT ((uint64_t)1 << 30)

/* A group of the measuring kernels has a thread for each sum of a lane. */
#define MEASURE_GROUP 64u

static enum qk_kernel decode_kernel(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F64 ? qk_decode_in_f64_id : qk_decode_in_f32_id;
}

static enum qk_kernel measure_kernel(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F64   ? qk_measure_f64_id
           : dtype == QPLAN_F32 ? qk_measure_f32_id
           : dtype == QPLAN_F16 ? qk_measure_f16_id
                                : qk_measure_bf16_id;
}

static qk_u32 kind_of(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F64   ? QK_AS_F64
           : dtype == QPLAN_F32 ? QK_AS_F32
           : dtype == QPLAN_F16 ? QK_AS_F16
                                : QK_AS_BF16;
}

/* ---- Geometry ---------------------------------------------------------------------------------
 */

/* A length that matters only up to the end of the range, which is cut behind an octet. */
static qk_u32 cut(uint64_t length, uint64_t n)
{
    return (qk_u32)(length < n ? length : qp_div_up(n, 8) * 8);
}

/* Pieces of a length of which skip lies before the range: where they end in the range stays. */
static void cut_pieces(uint64_t length, uint64_t skip, uint64_t n, qk_u32 *cut_length,
                       qk_u32 *cut_skip)
{
    *cut_length = cut(length, n);
    *cut_skip = (qk_u32)(length < n ? skip : *cut_length - cut(length - skip, n));
}

/* The rows behind the first one. */
static void set_rows(struct qk_flat_args *a, const struct qp_flat_work *work)
{
    const struct qp_sets *sets = &work->sets;
    const uint64_t row = work->elem / sets->row_len + 1, n = work->n;
    const uint64_t in_period = row % sets->period_rows, band = qp_band_of(sets, row);
    a->next_set = (qk_u32)qp_window_place(&work->window, band * sets->n_cols);
    a->n_cols = cut(sets->n_cols, n);
    a->head_rows = cut(sets->period_rows - in_period, n);
    a->head_bands = cut(sets->period_bands - in_period / sets->band_rows, n);
    a->period_rows = cut(sets->period_rows, n);
    a->period_bands = cut(sets->period_bands, n);
    cut_pieces(sets->band_rows, in_period % sets->band_rows, n, &a->band_rows, &a->band_skip);
}

static void set_sets(struct qk_flat_args *a, const struct qp_flat_work *work)
{
    const struct qp_sets *sets = &work->sets;
    const uint64_t row = work->elem / sets->row_len, col = work->elem % sets->row_len;
    const uint64_t set = qp_band_of(sets, row) * sets->n_cols + col / sets->col_width;
    a->first_set = (qk_u32)qp_window_place(&work->window, set);
    a->head = qp_sets_are_flat(sets) ? a->n : (qk_u32)qp_min_u64(sets->row_len - col, work->n);
    a->row_len = cut(sets->row_len, work->n);
    cut_pieces(sets->col_width, col % sets->col_width, work->n, &a->col_width, &a->col_skip);
    if (a->head < a->n)
        set_rows(a, work);
    qk_u32 joined = a->col_width | a->col_skip;
    if (a->head < a->n)
        joined |= a->head | a->row_len;
    a->even_sets = joined % 8 == 0;
}

/* Rows of an even number of codes, and one whose end is not reached, have no spare nibble. */
static void set_codes(struct qk_flat_args *a, const struct qp_flat_work *work)
{
    uint64_t len = work->sets.last_len, phase = work->elem % len;
    if (!work->packed)
        return;
    a->packed = 1;
    if (len % 2 == 0 || phase + work->n < len) {
        a->phase = phase % 2;
        return;
    }
    if (len > LENGTH_LIMIT) { /* the range reaches its end, so phase is as large */
        uint64_t less = (len - LENGTH_LIMIT) & ~(uint64_t)1;
        len -= less;
        phase -= less;
    }
    a->odd_len = (qk_u32)len;
    a->phase = (qk_u32)phase;
}

/* ---- Layout -----------------------------------------------------------------------------------
 */

static size_t work_bytes(const struct qp_flat_work *work)
{
    return work->dtype == QPLAN_F64 ? sizeof(double) : sizeof(float);
}

static uint64_t n_blocks(uint64_t n_elems)
{
    return qp_div_up(n_elems, QP_BLOCK);
}

static uint64_t window_sets(const struct qp_flat_work *work)
{
    return work->window.n + work->window.more;
}

size_t qp_flat_code_bytes(const struct qp_flat_work *work)
{
    const struct qp_place place = qp_row_place(work->packed ? 4 : 8, work->rule.type->is_signed);
    const struct qp_matrix rows = {work->sets.n_elems / work->sets.last_len, work->sets.last_len};
    const struct qp_flat_range range = {rows, work->elem, work->n};
    return (size_t)qp_flat_run(&place, &range).n_bytes;
}

/* Returns the end. What only the other kind of work needs has no bytes. */
static uint64_t set_layout(struct qk_flat_args *a, const struct qp_flat_work *work, bool measures)
{
    const uint64_t sets = window_sets(work), blocks = measures ? n_blocks(work->n) : 0;
    uint64_t end = 0;
    a->src = qp_block_place(&end, measures ? work->n * qp_float_bytes(work->dtype) : 0);
    a->codes = qp_block_place(&end, qp_flat_code_bytes(work));
    a->scale = qp_block_place(&end, sets * work_bytes(work));
    a->zero = qp_block_place(&end, sets * sizeof(int32_t));
    a->v.book = qp_block_place(&end, QP_BOOK_BYTES);
    a->bound = qp_block_place(&end, measures ? sets * sizeof(double) : 0);
    a->out = qp_block_place(&end, measures ? 0 : work->n * qp_float_bytes(work->as));
    a->sums = qp_block_place(&end, blocks * QK_BLOCK_SUMS * sizeof(double));
    a->counts = qp_block_place(&end, blocks * QK_BLOCK_COUNTS * sizeof(qk_u32));
    return end;
}

size_t qp_flat_window_sets(size_t tile_bytes)
{
    return tile_bytes / 64 + QP_BLOCK_SETS;
}

uint64_t qp_flat_found_bytes(size_t tile_bytes)
{
    const uint64_t block = QK_BLOCK_SUMS * sizeof(double) + QK_BLOCK_COUNTS * sizeof(qk_u32);
    return n_blocks(tile_bytes / sizeof(double)) * block;
}

uint64_t qp_flat_block_bytes(size_t tile_bytes)
{
    const uint64_t of_set = 2 * sizeof(double) + sizeof(int32_t);
    return tile_bytes + tile_bytes / sizeof(double) + qp_flat_window_sets(tile_bytes) * of_set +
           qp_flat_found_bytes(tile_bytes) + 9 * 64;
}

/* ---- Steps ------------------------------------------------------------------------------------
 */

/* A range on its way. */
struct run {
    struct qp_lane *lane;
    const struct qp_flat_work *work;
    struct qk_flat_args a;
    struct qplan_error *err;
};

static enum qplan_status copy_in(struct run *r, qk_u32 to, uint64_t n, const void *from)
{
    return qp_lane_copy_in(r->lane, to, n, from, r->err);
}

static enum qplan_status launch(struct run *r, enum qk_kernel kernel, qk_u32 group_size)
{
    const struct qp_launch what = {kernel, (uint32_t)n_blocks(r->work->n), group_size, &r->a,
                                   sizeof r->a};
    return qp_lane_launch(r->lane, &what, r->err);
}

static enum qplan_status begin(struct run *r, const struct qp_flat_data *data, bool measures)
{
    const struct qp_flat_work *work = r->work;
    const uint64_t sets = window_sets(work);
    r->a = (struct qk_flat_args){.n = (qk_u32)work->n,
                                 .is_signed = work->rule.type->is_signed,
                                 .v = qp_device_values(&work->rule),
                                 .q_min = work->rule.q_min,
                                 .q_max = work->rule.q_max,
                                 .as = kind_of(work->as)};
    set_sets(&r->a, work);
    set_codes(&r->a, work);
    if (set_layout(&r->a, work, measures) > r->lane->n_bytes)
        return qp_fail(r->err, QPLAN_ERR_INTERNAL, r->lane->gpu->info.label,
                       "a range does not fit its block of device memory");
    QP_TRY(copy_in(r, r->a.codes, qp_flat_code_bytes(work), data->codes));
    QP_TRY(qp_device_copy_book(r->lane, &work->rule, r->a.v.book, r->err));
    QP_TRY(copy_in(r, r->a.scale, sets * work_bytes(work), data->scale));
    return copy_in(r, r->a.zero, sets * sizeof *data->zero, data->zero);
}

static enum qplan_status decode(struct run *r, const struct qp_flat_data *data, void *out)
{
    const struct qp_flat_work *work = r->work;
    QP_TRY(begin(r, data, false));
    QP_TRY(launch(r, decode_kernel(work->dtype), QK_GROUP_MOST));
    QP_TRY(qp_lane_copy_out(r->lane, r->a.out, work->n * qp_float_bytes(work->as), out, r->err));
    return qp_lane_wait(r->lane, r->err);
}

/* Sums and counts follow each other on the device, each at a multiple of 64. */
static enum qplan_status measure(struct run *r, const struct qp_flat_data *data, void *found)
{
    const struct qp_flat_work *work = r->work;
    const uint64_t blocks = n_blocks(work->n), n_sums = blocks * QK_BLOCK_SUMS * sizeof(double);
    QP_TRY(begin(r, data, true));
    QP_TRY(copy_in(r, r->a.src, work->n * qp_float_bytes(work->dtype), data->src));
    QP_TRY(copy_in(r, r->a.bound, window_sets(work) * sizeof(double), data->bound));
    QP_TRY(launch(r, measure_kernel(work->dtype), MEASURE_GROUP));
    QP_TRY(qp_lane_copy_out(r->lane, r->a.sums, n_sums, found, r->err));
    QP_TRY(qp_lane_copy_out(r->lane, r->a.counts, blocks * QK_BLOCK_COUNTS * sizeof(qk_u32),
                            (char *)found + n_sums, r->err));
    return qp_lane_wait(r->lane, r->err);
}

enum qplan_status qp_device_decode(struct qp_lane *lane, const struct qp_flat_work *work,
                                   const struct qp_flat_data *data, void *out,
                                   struct qplan_error *err)
{
    struct run r = {.lane = lane, .work = work, .err = err};
    return qp_lane_settle(lane, decode(&r, data, out));
}

enum qplan_status qp_device_measure(struct qp_lane *lane, const struct qp_flat_work *work,
                                    const struct qp_flat_data *data, void *found,
                                    struct qplan_error *err)
{
    struct run r = {.lane = lane, .work = work, .err = err};
    return qp_lane_settle(lane, measure(&r, data, found));
}

struct qp_flat_found qp_flat_found_at(const struct qp_flat_work *work, const void *found,
                                      size_t block)
{
    const double *all_sums = found;
    const double *sums = all_sums + block * QK_BLOCK_SUMS;
    const qk_u32 *all_counts = (const qk_u32 *)(all_sums + n_blocks(work->n) * QK_BLOCK_SUMS);
    const qk_u32 *counts = all_counts + block * QK_BLOCK_COUNTS;
    const bool any = sums[QK_MAX_ERROR] >= 0;
    return (struct qp_flat_found){
        .sums = {sums[QK_SUM_E2], sums[QK_SUM_X2], sums[QK_SUM_Y2], sums[QK_MAX_ERROR],
                 any ? counts[QK_MAX_AT] : 0, false},
        .check = {.offences = counts[QK_OFFENCES],
                  .first_offence = counts[QK_OFFENCES] ? counts[QK_FIRST_OFFENCE] : 0,
                  .clipped = counts[QK_CLIPPED],
                  .first_clipped = counts[QK_CLIPPED] ? counts[QK_FIRST_CLIPPED] : 0,
                  .max_clip = sums[QK_MAX_CLIP],
                  .nonfinite = counts[QK_NONFINITE]},
        .bad_pads = counts[QK_BAD_PADS]};
}
