/*
 * on_tile.c - one tile on one lane. Decides which kernels a geometry takes and where in the
 * block of the lane everything lies; computes nothing itself.
 *
 * The block: the source, then what is copied back in one piece (status, parameters, codes), then
 * what stays on the device.
 */
#include "on_tile.h"

#include "code_values.h"
#include "kernels/gpu/qk_args.h"
#include "lane.h"
#include "lib/base/check.h"

/* ---- Kernels by dtype -------------------------------------------------------------------------
 */

struct kernel_row {
    enum qplan_dtype dtype;
    uint32_t elem_bytes, work_bytes;
    uint32_t fused_elems; /* of the largest set that a group can keep */
    enum qk_kernel range_sets, range_lanes, codes, fused, merge, params;
};

#define ROW(id, name, work, elem_bytes, work_bytes, fused_elems)                                   \
    {                                                                                              \
        id, elem_bytes, work_bytes, fused_elems, qk_range_sets_##name##_id,                        \
            qk_range_lanes_##name##_id, qk_codes_##name##_id, qk_fused_##name##_id,                \
            qk_merge_in_##work##_id, qk_params_in_##work##_id                                      \
    }

static const struct kernel_row rows[] = {
    ROW(QPLAN_F32, f32, f32, 4, 4, QK_FUSED_F32),
    ROW(QPLAN_F16, f16, f32, 2, 4, QK_FUSED_F32),
    ROW(QPLAN_BF16, bf16, f32, 2, 4, QK_FUSED_F32),
    ROW(QPLAN_F64, f64, f64, 8, 8, QK_FUSED_F64),
};

static const struct kernel_row *row_of(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (rows[i].dtype != dtype)
        i++;
    return &rows[i];
}

/* ---- Geometry ---------------------------------------------------------------------------------
 */

/* Parts that a range is found in: so large that joining them costs nothing. */
#define PART_ELEMS 16384u
#define PART_ROWS  256u

/* Sets of fewer columns, or of fewer elements in all, are read by one thread each. */
#define NARROW_COLS 8u
#define SMALL_ELEMS 16u
/* A group for sets of at most so many elements has so many threads. */
#define SMALL_SET    512u
#define SMALL_GROUP  32u
#define LENGTH_LIMIT ((uint64_t)1 << 30)

/*
 * The kernels count in 32 bits. Sets and rows of codes may be longer than that; what matters is
 * where they end inside the tile, so both are cut to a length that keeps these places.
 */
static void cut_columns(struct qk_tile_args *a, const struct qp_tile *tile)
{
    uint64_t first = qp_min_u64(tile->col_width - tile->col_skip, tile->cols);
    bool longer = tile->col_width > tile->cols;
    a->col_width = (qk_u32)(longer ? tile->cols : tile->col_width);
    a->col_skip = (qk_u32)(longer ? tile->cols - first : tile->col_skip);
}

static void cut_rows_of_codes(struct qk_tile_args *a, const struct qp_device_work *work)
{
    uint64_t len = work->last_len, phase = work->phase;
    if (phase + a->cols <= len) { /* inside one row of codes */
        len = a->cols;
        phase = 0;
    } else if (len > LENGTH_LIMIT) { /* the tile crosses its end, so phase is as large */
        uint64_t less = (len - LENGTH_LIMIT) & ~(uint64_t)1;
        len -= less;
        phase -= less;
    }
    a->last_len = (qk_u32)len;
    a->phase = (qk_u32)phase;
}

/* Rows that are bands of whole sets are the same as one long row; fewer, larger pieces of work. */
static void join_rows(struct qk_tile_args *a)
{
    bool whole_codes = !a->packed || (a->phase == 0 && a->cols % a->last_len == 0);
    if (a->band_rows == 1 && a->col_skip == 0 && a->cols % a->col_width == 0 && whole_codes) {
        a->cols *= a->rows;
        a->rows = 1;
    }
}

static qk_u32 packed_bytes(const struct qk_tile_args *a)
{
    qk_u32 last = a->phase + a->cols - 1, per_row = a->last_len / 2 + a->last_len % 2;
    return last / a->last_len * per_row + last % a->last_len / 2 - a->phase / 2 + 1;
}

static bool is_wide(const struct qk_tile_args *a)
{
    qk_u32 joined = a->cols | a->col_width | a->col_skip;
    if (a->packed)
        joined |= a->last_len | a->phase;
    return joined % 8 == 0;
}

static qk_u32 scale_kind(enum qplan_dtype dtype)
{
    static const enum qplan_dtype kinds[] = {[QK_SCALE_F32] = QPLAN_F32,
                                             [QK_SCALE_F16] = QPLAN_F16,
                                             [QK_SCALE_BF16] = QPLAN_BF16,
                                             [QK_SCALE_E8M0] = QPLAN_E8M0,
                                             [QK_SCALE_F8E4M3] = QPLAN_F8E4M3};
    qk_u32 kind = 0;
    while (kinds[kind] != dtype)
        kind++;
    return kind;
}

static void set_geometry(struct qk_tile_args *a, const struct qp_device_work *work)
{
    const struct qp_tile *tile = &work->tile;
    *a = (struct qk_tile_args){.rows = (qk_u32)tile->rows,
                               .cols = (qk_u32)tile->cols,
                               .band_rows = (qk_u32)qp_min_u64(tile->band_rows, tile->rows),
                               .n_sets = (qk_u32)qp_tile_sets(tile),
                               .parts = 1,
                               .packed = work->packed,
                               .q_min = work->rule.q_min,
                               .q_max = work->rule.q_max,
                               .asymmetric = work->rule.asymmetric,
                               .is_signed = work->rule.type->is_signed,
                               .v = qp_device_values(&work->rule),
                               .scale_kind = scale_kind(work->rule.scale_dtype),
                               .factor = qp_bits_f32(work->rule.factor),
                               .divides = work->rule.divides};
    cut_columns(a, tile);
    if (work->packed)
        cut_rows_of_codes(a, work);
    join_rows(a);
    a->set_cols = (a->col_skip + a->cols - 1) / a->col_width + 1;
    a->row_bytes = work->packed ? packed_bytes(a) : a->cols;
    a->row_chunks = (a->row_bytes - 1) / QK_CHUNK + 1;
    a->wide = is_wide(a);
}

/* ---- Layout -----------------------------------------------------------------------------------
 */

/* Returns the end of what is copied back; what follows stays on the device. */
static uint64_t set_layout(struct qk_tile_args *a, const struct kernel_row *row)
{
    uint64_t end = 0, n_elems = (uint64_t)a->rows * a->cols;
    uint64_t n_ranges = (uint64_t)a->n_sets * a->parts;
    a->src = qp_block_place(&end, n_elems * row->elem_bytes);
    a->status = qp_block_place(&end, 64);
    a->stored_scale = qp_block_place(&end, (uint64_t)a->n_sets * sizeof(float));
    a->stored_zero = qp_block_place(&end, a->n_sets);
    a->codes = qp_block_place(&end, (uint64_t)a->rows * a->row_bytes);
    const uint64_t made = end;
    a->scale = qp_block_place(&end, (uint64_t)a->n_sets * row->work_bytes);
    a->zero = qp_block_place(&end, (uint64_t)a->n_sets * sizeof(int32_t));
    a->lo = qp_block_place(&end, n_ranges * row->work_bytes);
    a->v.book = qp_block_place(&end, QP_BOOK_BYTES);
    a->hi = qp_block_place(&end, n_ranges * row->work_bytes);
    return made;
}

/* Sets of a tile, as the engine cuts tiles; and what parts add, where edges make sets unequal. */
static uint64_t most_sets(size_t tile_bytes)
{
    return tile_bytes / 64;
}

uint64_t qp_device_made_bytes(size_t tile_bytes)
{
    uint64_t n_codes = tile_bytes / 2, padded = 4 * 64;
    uint64_t params = most_sets(tile_bytes) * (sizeof(float) + 1);
    uint64_t ranges = 2 * most_sets(tile_bytes) * sizeof(double);
    return padded + qp_max_u64(params + n_codes, ranges) + 64;
}

uint64_t qp_device_block_bytes(size_t tile_bytes)
{
    uint64_t n_ranges = most_sets(tile_bytes) + 4 * (tile_bytes / 2 / PART_ROWS) + 64;
    uint64_t params = most_sets(tile_bytes) * (sizeof(double) + sizeof(int32_t));
    return tile_bytes + qp_device_made_bytes(tile_bytes) + params + 2 * n_ranges * sizeof(double) +
           9 * 64;
}

/* ---- Steps ------------------------------------------------------------------------------------
 */

/* A tile on its way. */
struct run {
    struct qp_lane *lane;
    const struct qp_device_work *work;
    const struct kernel_row *row;
    struct qk_tile_args a;
    uint64_t made_end;
    struct qplan_error *err;
};

static enum qplan_status launch(struct run *r, enum qk_kernel kernel, qk_u32 groups,
                                qk_u32 group_size)
{
    const struct qp_launch what = {kernel, groups, group_size, &r->a, sizeof r->a};
    return qp_lane_launch(r->lane, &what, r->err);
}

static enum qplan_status copy_in(struct run *r, qk_u32 to, uint64_t n, const void *from)
{
    return qp_lane_copy_in(r->lane, to, n, from, r->err);
}

static enum qplan_status copy_out(struct run *r, qk_u32 from, uint64_t n, void *to)
{
    return qp_lane_copy_out(r->lane, from, n, to, r->err);
}

static enum qplan_status begin(struct run *r, const void *src)
{
    static const qk_u32 no_status[] = {[QK_STATUS_NONFINITE] = 0, [QK_STATUS_BAD_SET] = QK_NO_SET};
    r->made_end = set_layout(&r->a, r->row);
    uint64_t needed = (uint64_t)r->a.hi + (uint64_t)r->a.n_sets * r->a.parts * r->row->work_bytes;
    if (needed > r->lane->n_bytes)
        return qp_fail(r->err, QPLAN_ERR_INTERNAL, r->lane->gpu->info.label,
                       "a tile does not fit its block of device memory");
    QP_TRY(copy_in(r, r->a.src, (uint64_t)r->a.rows * r->a.cols * r->row->elem_bytes, src));
    QP_TRY(qp_device_copy_book(r->lane, &r->work->rule, r->a.v.book, r->err));
    return copy_in(r, r->a.status, sizeof no_status, no_status);
}

/* What the words of the status say. */
static void read_status(struct qp_device_made *made, const void *status)
{
    const qk_u32 *words = status;
    made->nonfinite = words[QK_STATUS_NONFINITE];
    made->bad_set = words[QK_STATUS_BAD_SET] == QK_NO_SET ? UINT64_MAX : words[QK_STATUS_BAD_SET];
}

static enum qplan_status fetch_made(struct run *r, void *buffer, struct qp_device_made *made)
{
    char *at = buffer;
    const struct qk_tile_args *a = &r->a;
    QP_TRY(copy_out(r, a->status, r->made_end - a->status, buffer));
    QP_TRY(qp_lane_wait(r->lane, r->err));
    *made =
        (struct qp_device_made){.stored_scale = at + (a->stored_scale - a->status),
                                .stored_zero = (uint8_t *)at + (a->stored_zero - a->status),
                                .codes = (uint8_t *)at + (a->codes - a->status),
                                .row_bytes = (uint64_t)a->row_bytes * a->rows / r->work->tile.rows};
    read_status(made, buffer);
    return QPLAN_OK;
}

/* ---- Which kernels ----------------------------------------------------------------------------
 */

static bool is_narrow(const struct qk_tile_args *a)
{
    return a->col_width < NARROW_COLS ||
           a->band_rows * qp_min_u64(a->col_width, a->cols) <= SMALL_ELEMS;
}

/* Divides the ranges into parts; their number decides the layout. */
static void set_parts(struct qk_tile_args *a)
{
    uint64_t whole =
        is_narrow(a) ? a->band_rows : (uint64_t)a->band_rows * qp_min_u64(a->col_width, a->cols);
    a->part_len = is_narrow(a) ? PART_ROWS : PART_ELEMS;
    a->parts = (qk_u32)qp_div_up(whole, a->part_len);
}

static enum qplan_status launch_ranges(struct run *r)
{
    const struct qk_tile_args *a = &r->a;
    qk_u32 blocks = (a->n_sets - 1) / QK_SET_BLOCK + 1;
    if (is_narrow(a))
        return launch(r, r->row->range_lanes, blocks * a->parts, QK_GROUP_MOST);
    return launch(r, r->row->range_sets, a->n_sets * a->parts, QK_GROUP_MOST);
}

static enum qplan_status launch_codes(struct run *r)
{
    return launch(r, r->row->codes, r->a.rows * r->a.row_chunks, QK_GROUP_MOST);
}

/* Whether groups can do whole sets: they fit, and no byte has codes of two. */
static bool can_fuse(const struct run *r)
{
    const struct qk_tile_args *a = &r->a;
    qk_u32 even = a->cols | a->col_width | a->col_skip | a->last_len | a->phase;
    return !is_narrow(a) && (!a->packed || even % 2 == 0) &&
           (uint64_t)a->band_rows * a->col_width <= r->row->fused_elems;
}

static struct run make_run(struct qp_lane *lane, const struct qp_device_work *work,
                           struct qplan_error *err)
{
    struct run r = {.lane = lane, .work = work, .row = row_of(work->dtype), .err = err};
    set_geometry(&r.a, work);
    return r;
}

static enum qplan_status quantize(struct run *r, const void *src, void *buffer,
                                  struct qp_device_made *made)
{
    const qk_u32 set_blocks = (r->a.n_sets - 1) / QK_SET_BLOCK + 1;
    if (can_fuse(r)) {
        bool small = r->a.band_rows * r->a.col_width <= SMALL_SET;
        QP_TRY(begin(r, src));
        QP_TRY(launch(r, r->row->fused, r->a.n_sets, small ? SMALL_GROUP : QK_GROUP_MOST));
        return fetch_made(r, buffer, made);
    }
    set_parts(&r->a);
    QP_TRY(begin(r, src));
    QP_TRY(launch_ranges(r));
    QP_TRY(launch(r, r->row->params, set_blocks, QK_GROUP_MOST));
    QP_TRY(launch_codes(r));
    return fetch_made(r, buffer, made);
}

static enum qplan_status ranges(struct run *r, const void *src, void *buffer,
                                struct qp_device_made *made)
{
    set_parts(&r->a);
    QP_TRY(begin(r, src));
    QP_TRY(launch_ranges(r));
    if (r->a.parts > 1)
        QP_TRY(launch(r, r->row->merge, (r->a.n_sets - 1) / QK_SET_BLOCK + 1, QK_GROUP_MOST));
    const uint64_t n = (uint64_t)r->a.n_sets * r->row->work_bytes, room = qp_div_up(n, 64) * 64;
    char *at = buffer;
    *made = (struct qp_device_made){.lo = at + 64, .hi = at + 64 + room};
    QP_TRY(copy_out(r, r->a.status, 64, at));
    QP_TRY(copy_out(r, r->a.lo, n, made->lo));
    QP_TRY(copy_out(r, r->a.hi, n, made->hi));
    QP_TRY(qp_lane_wait(r->lane, r->err));
    read_status(made, at);
    return QPLAN_OK;
}

static enum qplan_status codes(struct run *r, const void *src, const void *scale,
                               const int32_t *zero, void *buffer, struct qp_device_made *made)
{
    QP_TRY(begin(r, src));
    QP_TRY(copy_in(r, r->a.scale, (uint64_t)r->a.n_sets * r->row->work_bytes, scale));
    QP_TRY(copy_in(r, r->a.zero, (uint64_t)r->a.n_sets * sizeof *zero, zero));
    QP_TRY(launch_codes(r));
    return fetch_made(r, buffer, made);
}

enum qplan_status qp_device_quantize(struct qp_lane *lane, const struct qp_device_work *work,
                                     const void *src, void *buffer, struct qp_device_made *made,
                                     struct qplan_error *err)
{
    struct run r = make_run(lane, work, err);
    return qp_lane_settle(lane, quantize(&r, src, buffer, made));
}

enum qplan_status qp_device_ranges(struct qp_lane *lane, const struct qp_device_work *work,
                                   const void *src, void *buffer, struct qp_device_made *made,
                                   struct qplan_error *err)
{
    struct run r = make_run(lane, work, err);
    return qp_lane_settle(lane, ranges(&r, src, buffer, made));
}

enum qplan_status qp_device_codes(struct qp_lane *lane, const struct qp_device_work *work,
                                  const void *src, const void *scale, const int32_t *zero,
                                  void *buffer, struct qp_device_made *made,
                                  struct qplan_error *err)
{
    struct run r = make_run(lane, work, err);
    return qp_lane_settle(lane, codes(&r, src, scale, zero, buffer, made));
}
