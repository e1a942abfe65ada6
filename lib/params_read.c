/*
 * params_read.c - stored scales and zero points: back to working precision, and what they say of a
 * tensor without its source.
 */
#include "measure.h"

#include "../kernels/cpu/runs.h"
#include "base/alloc.h"
#include "base/check.h"
#include "base/dtype.h"
#include "transfer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A symmetric tensor may come without zero points: all are 0, or the midpoint of unsigned codes. */
static int32_t default_zero(const struct qp_native_tensor *tensor)
{
    struct qp_code_rule rule = qp_code_rule(&tensor->scheme);
    return rule.is_signed ? 0 : (rule.q_max + 1) / 2;
}

enum qplan_status qp_read_params(const struct qp_st *st, const struct qp_native_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    const enum qplan_dtype dtype = tensor->scheme.scale_dtype;
    const size_t size = qp_float_bytes(dtype);
    const bool is_signed = qplan_dtype_is_signed(tensor->scheme.dtype);
    const struct qplan_entry *zeros = tensor->part[QP_ZERO_POINT];
    uint64_t off = st->header_bytes + tensor->part[QP_SCALE]->begin + set * size;
    QP_TRY(qp_file_read(&st->file, off, window->stored, n * size, err));
    work->load(dtype, n, window->stored, window->scale);
    if (zeros)
        QP_TRY(
            qp_file_read(&st->file, st->header_bytes + zeros->begin + set, window->stored, n, err));
    const uint8_t *stored = window->stored;
    for (size_t i = 0; i < n; i++)
        window->zero[i] = !zeros ? default_zero(tensor) : is_signed ? (int8_t)stored[i] : stored[i];
    return QPLAN_OK;
}

enum qplan_status qp_decode_tile(const struct qp_st *st, const struct qp_native_tensor *tensor,
                                 const struct qp_work_kernels *work, const struct qp_tile *tile,
                                 uint64_t set, const uint8_t *codes,
                                 const struct qp_param_window *window, void *y,
                                 struct qplan_error *err)
{
    QP_TRY(qp_read_params(st, tensor, work, set, qp_tile_sets(tile), window, err));
    work->dequantize(tile, codes, qplan_dtype_is_signed(tensor->scheme.dtype), window->scale,
                     window->zero, y);
    return QPLAN_OK;
}

/* ---- Facts -------------------------------------------------------------------------------------
 */

/* Small buffers: this reads a fraction of the file. */
#define FACT_SETS  2048
#define FACT_CODES 8192

struct facts_reader {
    const struct qp_st *st;
    const struct qp_native_tensor *tensor;
    const struct qp_work_kernels *f64;
    struct qp_sets sets;
    struct qp_param_window window;
    double *scale;
    int32_t *zero;
    bool *used; /* by set of the strip: some code is not the zero point */
    uint8_t *codes;
};

/* Marks the sets of a piece that hold a code other than their zero point. */
static enum qplan_status mark_piece(struct facts_reader *r, const struct qp_piece *piece,
                                    struct qplan_error *err)
{
    const struct qp_code_form form = qp_code_form(&r->tensor->scheme, QPLAN_ISA_BEST);
    for (uint64_t row = 0; row < piece->n_rows; row++) {
        struct qp_tile tile = piece->tile;
        size_t base = (size_t)piece->first_set;
        tile.rows = 1;
        base += (size_t)(row / r->sets.band_rows) * qp_tile_cols(&tile);
        uint64_t elem = (piece->row + row) * r->sets.row_len + piece->col;
        QP_TRY(qp_read_codes(r->st, r->tensor->part[QP_CODES], &r->sets, &form, elem, tile.cols,
                             r->codes, NULL, err));
        FOR_EACH_RUN (&tile, run) {
            for (size_t i = run.at; i < run.at + run.n; i++)
                r->used[base + run.set] |= r->codes[i] != (uint8_t)r->zero[base + run.set];
        }
    }
    return QPLAN_OK;
}

/*
 * A set of zeros has scale 1 and the zero point in every code. Such a set adds no error, so it must
 * not set the bound; only the codes tell it from a set whose scale happens to be 1.
 */
static enum qplan_status mark_used(struct facts_reader *r, const struct qp_strip *strip,
                                   struct qplan_error *err)
{
    bool any = false;
    for (size_t i = 0; i < strip->n_sets; i++) {
        r->used[i] = r->scale[i] != 1;
        any |= !r->used[i];
    }
    for (uint64_t i = 0; any && i < strip->n_pieces; i++) {
        struct qp_piece piece;
        qp_piece_at(&r->sets, strip, i, &piece);
        QP_TRY(mark_piece(r, &piece, err));
    }
    return QPLAN_OK;
}

static enum qplan_status check_set(const struct facts_reader *r, uint64_t set, double scale,
                                   int32_t zero, struct qplan_error *err)
{
    struct qp_code_rule rule = qp_code_rule(&r->tensor->scheme);
    char subject[512], found[QP_F64_TEXT];
    if (!(scale > 0) || isinf(scale)) {
        qp_format_f64(found, scale);
        return qp_fail(
            err, QPLAN_ERR_INVALID, qp_st_subject(subject, r->st, r->tensor->part[QP_SCALE]),
            "bad scale of set %" PRIu64 ": expected a finite number above 0, found %s", set, found);
    }
    if (zero < rule.q_min || zero > rule.q_max)
        return qp_fail(err, QPLAN_ERR_INVALID,
                       qp_st_subject(subject, r->st, r->tensor->part[QP_ZERO_POINT]),
                       "bad zero point of set %" PRIu64 ": expected %d to %d, found %d", set,
                       rule.q_min, rule.q_max, zero);
    return QPLAN_OK;
}

static void add_set(const struct facts_reader *r, size_t i, struct qp_param_facts *facts)
{
    const double scale = r->scale[i];
    facts->scale_min = scale < facts->scale_min ? scale : facts->scale_min;
    facts->scale_max = scale > facts->scale_max ? scale : facts->scale_max;
    if (r->used[i] && scale / 2 > facts->half_step)
        facts->half_step = scale / 2;
}

/* The bound grows with the scale: the largest one decides. */
static void find_bound(const struct facts_reader *r, struct qp_param_facts *facts)
{
    const enum qplan_dtype source = qp_storage_row(r->tensor->source)->dtype;
    const struct qp_work_kernels *work = qp_source_kernels(source, QPLAN_ISA_SCALAR)->work;
    const double scale = facts->half_step * 2;
    const float narrow = (float)scale;
    const void *typed = work->work == QPLAN_F32 ? (const void *)&narrow : (const void *)&scale;
    if (facts->half_step >= 0)
        work->bounds(1, typed, qplan_dtype_bits(r->tensor->scheme.dtype), &facts->bound);
}

static enum qplan_status read_strips(struct facts_reader *r, bool strict,
                                     struct qp_param_facts *facts, struct qplan_error *err)
{
    const struct qp_limits limits = {.elems = FACT_CODES, .sets = FACT_SETS, .cached = FACT_CODES};
    const bool packed = qplan_dtype_bits(r->tensor->scheme.dtype) == 4;
    uint64_t band = 0, col = 0;
    struct qp_strip strip;
    do {
        qp_strip_at(&r->sets, &limits, 1, packed, band, col, &strip);
        QP_TRY(qp_read_params(r->st, r->tensor, r->f64, strip.set, (size_t)strip.n_sets, &r->window,
                              err));
        QP_TRY(mark_used(r, &strip, err));
        for (size_t i = 0; i < strip.n_sets; i++) {
            if (strict)
                QP_TRY(check_set(r, strip.set + i, r->scale[i], r->zero[i], err));
            add_set(r, i, facts);
        }
    } while (qp_strip_next(&r->sets, &strip, &band, &col));
    find_bound(r, facts);
    return QPLAN_OK;
}

enum qplan_status qp_read_param_facts(const struct qp_st *st, const struct qp_native_tensor *tensor,
                                      bool strict, struct qp_param_facts *facts,
                                      struct qplan_error *err)
{
    struct facts_reader r = {.st = st, .tensor = tensor};
    *facts = (struct qp_param_facts){INFINITY, -INFINITY, -1, -1};
    r.f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    qp_sets_make(&r.sets, &tensor->scheme, tensor->shape, tensor->rank);
    r.scale = qp_alloc_buffer(FACT_SETS * sizeof *r.scale);
    r.zero = qp_alloc_buffer(FACT_SETS * sizeof *r.zero);
    r.used = qp_alloc_buffer(FACT_SETS * sizeof *r.used);
    r.codes = qp_alloc_buffer(QP_CODE_ROOM(FACT_CODES) + 1);
    r.window = (struct qp_param_window){r.scale, r.zero, qp_alloc_buffer(FACT_SETS * 4)};
    enum qplan_status status = QPLAN_ERR_MEMORY;
    if (r.scale && r.zero && r.used && r.codes && r.window.stored)
        status = read_strips(&r, strict, facts, err);
    else
        qp_fail_memory(err, "buffers", FACT_SETS * sizeof *r.scale);
    qp_free(r.scale);
    qp_free(r.zero);
    qp_free(r.used);
    qp_free(r.codes);
    qp_free(r.window.stored);
    return status;
}
