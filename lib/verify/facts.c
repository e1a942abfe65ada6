/*
 * facts.c - what the stored parameters of a tensor say without its source.
 */
#include "measure.h"

#include "kernels/tiles/runs.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/run/cut.h"
#include "lib/run/stored.h"

#include <math.h>
#include <string.h>

/* Small buffers: this reads a fraction of the file. */
#define FACT_SETS  8192
#define FACT_CODES 8192

struct qp_facts_reader {
    const struct qplan_checkpoint *file;
    const struct qp_tensor *tensor;
    struct qp_code_rule rule; /* of the tensor */
    const struct qp_work_kernels *f64;
    struct qp_sets sets; /* where scales of 1 are searched */
    struct qp_param_window window;
    double *scale;
    int32_t *zero;
    void *codes; /* room */
    /* Scales of the next tensor mostly follow in the file, and a tensor may have very few. */
    struct qp_ahead ahead;
    struct qp_source scales; /* the file's, read ahead */
};

/* ---- All scales ------------------------------------------------------------------------------ */

/*
 * A scale of exactly 1 is not counted in the largest step: it may belong to a set of zeros.
 * *has_one tells whether there was one. Halving is exact: a scale is stored with less precision
 * than a double.
 */
static void add_scales(const double *scale, size_t n, struct qp_param_facts *facts, bool *has_one)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        low = scale[i] < low ? scale[i] : low;
        high = scale[i] > high ? scale[i] : high;
    }
    const bool around_one = low <= 1 && high >= 1; /* mostly they are all smaller */
    double largest = around_one ? -INFINITY : high;
    for (size_t i = 0; around_one && i < n; i++) {
        *has_one |= scale[i] == 1;
        if (scale[i] != 1 && scale[i] > largest)
            largest = scale[i];
    }
    facts->scale_min = low < facts->scale_min ? low : facts->scale_min;
    facts->scale_max = high > facts->scale_max ? high : facts->scale_max;
    facts->half_step = largest / 2 > facts->half_step ? largest / 2 : facts->half_step;
}

/* Looks at every scale; *has_one tells whether one of them is 1. */
static enum qplan_status read_facts(struct qp_facts_reader *r, struct qp_param_facts *facts,
                                    bool *has_one, struct qplan_error *err)
{
    const struct qp_matrix sets = qp_tensor_part(r->tensor, QP_SCALE)->matrix;
    const uint64_t n_sets = sets.rows * sets.cols;
    *has_one = false;
    for (uint64_t set = 0; set < n_sets; set += FACT_SETS) {
        size_t n = (size_t)qp_min_u64(FACT_SETS, n_sets - set);
        QP_TRY(qp_read_scales(&r->scales, r->tensor, r->f64, set, n, &r->window, err));
        add_scales(r->scale, n, facts, has_one);
    }
    return QPLAN_OK;
}

/* ---- Sets of scale 1 ------------------------------------------------------------------------- */

/* Whether a piece holds, in a set of scale 1, a code other than the zero point. */
static enum qplan_status search_piece(const struct qp_facts_reader *r, const struct qp_piece *piece,
                                      bool *found, struct qplan_error *err)
{
    struct qp_tile tile = piece->tile;
    tile.rows = 1;
    for (uint64_t row = 0; row < piece->n_rows && !*found; row++) {
        const size_t base =
            (size_t)piece->first_set + (size_t)(row / r->sets.band_rows) * qp_tile_cols(&tile);
        const uint64_t elem = (piece->row + row) * r->sets.row_len + piece->col;
        const uint8_t *codes;
        QP_TRY(qp_read_codes(&r->file->source, r->tensor, elem, tile.cols, QPLAN_ISA_BEST, r->codes,
                             &codes, NULL, err));
        FOR_EACH_RUN (&tile, run) {
            const uint8_t zero = (uint8_t)r->zero[base + run.set];
            for (size_t i = run.at; r->scale[base + run.set] == 1 && i < run.at + run.n; i++)
                *found |= codes[i] != zero;
        }
    }
    return QPLAN_OK;
}

/*
 * A set of zeros has scale 1 and the zero point in every code. Such a set adds no error, so it must
 * not set the bound; only the codes tell it from a set whose scale happens to be 1.
 */
static enum qplan_status search_ones(struct qp_facts_reader *r, bool *found,
                                     struct qplan_error *err)
{
    const struct qp_limits limits = {
        .elems = FACT_CODES, .sets = FACT_SETS, .apart = FACT_CODES, .cached = FACT_CODES};
    uint64_t band = 0, col = 0;
    struct qp_strip strip;
    qp_sets_make(&r->sets, r->tensor->scheme, r->tensor->shape, r->tensor->rank);
    *found = false;
    do {
        qp_strip_at(&r->sets, &limits, 1, 1, band, col, &strip);
        QP_TRY(qp_read_params(&r->file->source, r->tensor, r->f64, strip.set, (size_t)strip.n_sets,
                              &r->window, err));
        for (uint64_t i = 0; i < strip.n_pieces && !*found; i++) {
            struct qp_piece piece;
            qp_piece_at(&r->sets, &strip, i, &piece);
            QP_TRY(search_piece(r, &piece, found, err));
        }
    } while (!*found && qp_strip_next(&r->sets, &strip, &band, &col));
    return QPLAN_OK;
}

/* ---- All facts of a tensor --------------------------------------------------------------------
 */

/* The bound grows with the scale: the largest one decides. */
static void find_bound(const struct qp_facts_reader *r, struct qp_param_facts *facts)
{
    const enum qplan_dtype source = qp_storage_row((enum qplan_storage)r->tensor->storage)->dtype;
    const struct qp_work_kernels *work = qp_source_kernels(source, QPLAN_ISA_SCALAR)->work;
    const double scale = facts->half_step * 2;
    const float narrow = (float)scale;
    const void *typed = work->work == QPLAN_F32 ? (const void *)&narrow : (const void *)&scale;
    if (facts->half_step >= 0)
        work->bounds(1, typed, r->rule.type, &facts->bound);
}

enum qplan_status qp_facts_read(struct qp_facts_reader *reader, const struct qp_tensor *tensor,
                                struct qp_param_facts *facts, struct qplan_error *err)
{
    struct qp_facts_reader *r = reader;
    bool has_one, found = false;
    *facts = (struct qp_param_facts){INFINITY, -INFINITY, -1, -1};
    r->tensor = tensor;
    r->rule = qp_code_rule(tensor->scheme);
    QP_TRY(read_facts(r, facts, &has_one, err));
    if (has_one && facts->half_step < 0.5) /* a real set of scale 1 would have the largest step */
        QP_TRY(search_ones(r, &found, err));
    if (found)
        facts->half_step = 0.5;
    find_bound(r, facts);
    return QPLAN_OK;
}

enum qplan_status qp_facts_check_zeros(struct qp_facts_reader *reader,
                                       const struct qp_tensor *tensor, struct qplan_error *err)
{
    const struct qp_matrix sets = qp_tensor_part(tensor, QP_SCALE)->matrix;
    const uint64_t n_sets = sets.rows * sets.cols;
    for (uint64_t set = 0; set < n_sets; set += FACT_SETS)
        QP_TRY(qp_read_zeros(&reader->file->source, tensor, set,
                             (size_t)qp_min_u64(FACT_SETS, n_sets - set), &reader->window, err));
    return QPLAN_OK;
}

void qp_facts_close(struct qp_facts_reader *reader)
{
    if (!reader)
        return;
    qp_free(reader->scale);
    qp_free(reader->zero);
    qp_free(reader->codes);
    qp_free(reader->window.stored);
    qp_free(reader->ahead.data);
    qp_free(reader);
}

enum qplan_status qp_facts_open(struct qp_facts_reader **out, const struct qplan_checkpoint *file,
                                struct qplan_error *err)
{
    *out = NULL;
    struct qp_facts_reader *r = qp_alloc(1, sizeof *r);
    if (!r)
        return qp_fail_memory(err, "buffers", sizeof *r);
    r->file = file;
    r->f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    r->scale = qp_alloc_buffer(FACT_SETS * sizeof *r->scale);
    r->zero = qp_alloc_buffer(FACT_SETS * sizeof *r->zero);
    r->codes = qp_alloc_buffer(QP_PART_ROOM(FACT_CODES, 1));
    r->window =
        (struct qp_param_window){r->scale, r->zero, qp_alloc_buffer(QP_PART_ROOM(FACT_SETS, 4))};
    r->ahead = (struct qp_ahead){.data = qp_alloc_buffer(FACT_SETS * 4), .cap = FACT_SETS * 4};
    r->scales = file->source;
    r->scales.ahead = &r->ahead;
    if (!r->scale || !r->zero || !r->codes || !r->window.stored || !r->ahead.data) {
        qp_facts_close(r);
        return qp_fail_memory(err, "buffers", FACT_SETS * sizeof *r->scale);
    }
    *out = r;
    return QPLAN_OK;
}
