/*
 * compare.c - one unit of a file against its source. On the CPU a quantized unit is decoded block
 * by block, and each block is judged and summed while it is in the cache.
 */
#include "compare.h"

#include "recompute.h"

#include "kernels/codes/valued.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/run/decode.h"
#include "lib/store/hold.h"

#include <string.h>

/* ---- Kept tensors ------------------------------------------------------------------------------
 */

/* Elements of the source of a pair. */
static enum qplan_status read_values(const struct qp_compare *c, const struct qp_compare_unit *unit,
                                     const struct qp_compare_buffers *b, uint64_t elem, uint64_t n,
                                     void *out, struct qplan_error *err)
{
    const struct qp_values values = {c->source, unit->pair->source, c->isa, &b->values};
    return qp_values_read(&values, elem, n, out, err);
}

/* Bytes of the source of a pair whose tensor is kept; where it is not stored so, of whole elements.
 */
static enum qplan_status read_bytes(const struct qp_compare *c, const struct qp_compare_unit *unit,
                                    const struct qp_compare_buffers *b, void *out,
                                    struct qplan_error *err)
{
    const struct qp_tensor *t = unit->pair->source;
    const size_t size = qplan_storage_bits((enum qplan_storage)t->storage) / 8;
    if (qp_is_verbatim(t))
        return qp_source_read(c->source, t->entry, unit->elem, out, (size_t)unit->n, err);
    return read_values(c, unit, b, unit->elem / size, unit->n / size, out, err);
}

static enum qplan_status compare_bytes(const struct qp_compare *c,
                                       const struct qp_compare_unit *unit,
                                       const struct qp_compare_buffers *b, struct qp_finding *found,
                                       struct qplan_error *err)
{
    const struct qp_pair *pair = unit->pair;
    size_t n = (size_t)unit->n;
    unsigned char *x = b->source, *y = x + n;
    QP_TRY(read_bytes(c, unit, b, x, err));
    QP_TRY(qp_source_read(c->file, pair->file->entry, unit->elem, y, n, err));
    if (memcmp(x, y, n) == 0)
        return QPLAN_OK;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != y[i] && found->part.offences++ == 0) {
            found->part.first = unit->elem + i;
            found->part.x = x[i];
            found->part.y = y[i];
        }
    }
    return QPLAN_OK;
}

/* ---- Quantized tensors -------------------------------------------------------------------------
 */

struct task {
    const struct qp_compare_unit *unit;
    const struct qp_compare_buffers *b;
    void *source; /* elements of the unit */
    const struct qp_source_kernels *kernels;
    struct qp_decoder decoder;
    struct qp_code_rule rule;
    bool can_clip;
    bool is_nearest; /* codes are judged; else they are only measured */
    struct qp_calibrator recorded;
    const struct qp_calibrator *calibrator; /* that is computed again; or NULL */
    double largest;                         /* error so far: only where a larger one is matters */
    struct qp_finding *found;
};

/* What sums want of a block, with room for what the window has not in the order of its runs. */
struct block_runs {
    struct qp_sums_wish wish;
    double bound[QP_BLOCK / 16];
    double scale[QP_BLOCK / 16]; /* in working precision */
};

static double value_at(enum qplan_dtype dtype, const void *values, size_t i)
{
    double x;
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    f64->load(dtype, 1, (const char *)values + i * qp_float_bytes(dtype), &x);
    return x;
}

/*
 * The error that the at-th element of the unit may have if it decodes to y: that of its set, but of
 * floats and tables by the code.
 */
static double element_bound(const struct task *task, uint64_t at, double y, double scale,
                            double bound)
{
    const double x = value_at(task->kernels->dtype, task->source, (size_t)at);
    if (!qp_is_valued(task->rule.kind) || bound < 0)
        return bound;
    if (task->kernels->work->work == QPLAN_F64) {
        const struct qp_valued_f64 v = qp_valued_of_f64(task->rule.type);
        return qp_valued_bound_f64(x, y, scale, &v);
    }
    const struct qp_valued_f32 v = qp_valued_of_f32(task->rule.type);
    return qp_valued_bound_f32((float)x, (float)y, (float)scale, &v);
}

/* The bound of an element of a tile, found by its coordinates, with the value that it decodes to.
 */
static double bound_at(const struct task *task, const struct qp_decoded *part, size_t i, double y)
{
    const struct qp_tile *tile = &part->tile;
    size_t row = i / tile->cols, col = i % tile->cols;
    size_t set =
        row / tile->band_rows * qp_tile_cols(tile) + (tile->col_skip + col) / tile->col_width;
    return element_bound(
        task, part->at + i, y,
        value_at(task->kernels->work->work, task->decoder.window.scale, part->set + set),
        task->b->bound[part->set + set]);
}

/* What a check found, and where; returns whether its first offence is the first of the unit. */
static bool add_check(struct task *task, const struct qp_check *check, size_t *first)
{
    struct qp_measure *part = &task->found->part;
    uint64_t offences = task->is_nearest ? check->offences : 0;
    *first = check->first_offence;
    if (!task->can_clip && check->clipped) { /* then a clipped value is an offence too */
        if (offences == 0 || check->first_clipped < *first)
            *first = check->first_clipped;
        offences += check->clipped;
    }
    const bool is_first = part->offences == 0 && offences > 0;
    part->offences += offences;
    part->clipped += check->clipped;
    part->nonfinite += check->nonfinite;
    part->max_clip = check->max_clip > part->max_clip ? check->max_clip : part->max_clip;
    return is_first;
}

/* The first offence of the unit: the at-th of its elements. */
static void set_first(struct task *task, size_t at, double y, double bound)
{
    struct qp_measure *part = &task->found->part;
    part->first = task->unit->elem + at;
    part->x = value_at(task->kernels->dtype, task->source, at);
    part->y = y;
    part->bound = bound;
}

static void check_part(struct task *task, const struct qp_decoded *part)
{
    const struct qp_source_kernels *k = task->kernels;
    const struct qp_decoder *d = &task->decoder;
    struct qp_check check;
    d->quantizer->check(&part->tile, (const char *)task->source + part->at * k->elem_bytes, part->y,
                        &task->rule, (const char *)d->scale + part->set * k->work_bytes,
                        d->window.zero + part->set, task->b->bound + part->set, &check);
    size_t first;
    if (add_check(task, &check, &first)) {
        const double y = value_at(k->work->work, part->y, first);
        set_first(task, (size_t)part->at + first, y, bound_at(task, part, first, y));
    }
}

/* Where sets lie behind each other in the window but not in the block: run by run. */
static void gather_runs(const struct qp_tile *tile, size_t work_bytes, struct block_runs *runs)
{
    const size_t n_cols = qp_tile_cols(tile);
    for (size_t i = 0; i < tile->rows * n_cols; i++) {
        const size_t set = i / n_cols / tile->band_rows * n_cols + i % n_cols;
        runs->bound[i] = runs->wish.bound[set];
        memcpy((char *)runs->scale + i * work_bytes,
               (const char *)runs->wish.step + set * work_bytes, work_bytes);
    }
    runs->wish.bound = runs->bound;
    runs->wish.step = runs->scale;
}

/* The runs of a tile; false where they do not go with the lanes of the sums. */
static bool tile_runs(const struct qp_tile *tile, struct qp_sums_wish *wish)
{
    if (tile->rows == 1 && tile->col_skip + tile->cols <= tile->col_width) {
        wish->width = QP_BLOCK;
        return tile->cols % 16 == 0;
    }
    wish->width = tile->rows == 1 || tile->col_width < tile->cols ? tile->col_width : tile->cols;
    wish->skip = tile->col_skip;
    return tile->cols % 16 == 0 && wish->width % 16 == 0 && wish->skip % 16 == 0 &&
           (tile->rows == 1 || tile->cols % wish->width == 0);
}

/*
 * Bounds for the sums of a block that is one part: then these find out on their way whether any
 * element needs to be judged. A linear code is an integer, so a scale is the step from 0 to the
 * next value; with a bias, values may lie as near to 0 as they like, and what floats and tables
 * allow goes by the code.
 */
static void bound_block(const struct task *task, const struct qp_decoded *part,
                        struct block_runs *runs)
{
    const struct qp_tile *tile = &part->tile;
    const size_t work_bytes = task->kernels->work_bytes;
    struct qp_sums_wish wish = runs->wish;
    if (task->rule.kind != QP_CODES_LINEAR || part->at % QP_BLOCK || !part->ends_block ||
        !tile_runs(tile, &wish))
        return;
    wish.bound = task->b->bound + part->set;
    wish.step = (const char *)task->decoder.scale + part->set * work_bytes;
    runs->wish = wish;
    if (tile->rows > 1 && tile->band_rows > 1)
        gather_runs(tile, work_bytes, runs);
}

/* Room for what is known of the next block; its sums are for the caller to say. */
static struct qp_block *next_block(struct task *task, const struct qp_sums *sums)
{
    struct qp_block *block = &task->b->blocks[task->found->n_blocks++];
    block->weighted = (struct qp_weighted_sums){{0, 0}, {0, 0}};
    block->max_abs = sums->max_abs;
    block->max_at = sums->max_at;
    return block;
}

/* The sums of a block by what its columns count; element at of the unit is its first. */
static void weigh_block(const struct task *task, uint64_t at, const void *source, size_t n,
                        struct qp_block *block)
{
    const struct qp_weights *weights = task->unit->pair->weights;
    if (!weights)
        return;
    struct qp_column_weights columns = weights->columns;
    columns.first = (task->unit->elem + at) % columns.n;
    qp_wide_weighted(&block->weighted, task->kernels, source, task->b->block, n, columns);
}

/* The block that has just been decoded to its end; whether all of it is surely within bounds. */
static bool add_block(struct task *task, const struct qp_sums_wish *wish)
{
    const struct qp_source_kernels *k = task->kernels;
    const uint64_t end = task->decoder.at, at = (end - 1) / QP_BLOCK * QP_BLOCK;
    const char *source = (const char *)task->source + at * k->elem_bytes;
    struct qp_sums sums;
    k->sums(source, task->b->block, (size_t)(end - at), wish, &sums);
    struct qp_block *block = next_block(task, &sums);
    if (!qp_wide_take(&block->sums, k->dtype, &sums))
        qp_wide_sums(&block->sums, k, source, task->b->block, (size_t)(end - at));
    weigh_block(task, at, source, (size_t)(end - at), block);
    task->largest = sums.max_abs;
    return sums.within;
}

/* Whether products of the layout's decoder are others than those that codes are judged by. */
static bool has_other_products(const struct task *task)
{
    return task->rule.of_largest ||
           (task->rule.kind == QP_CODES_BIASED && qp_decode_rounds(task->decoder.tensor));
}

/*
 * A code is judged by the value that it stands for; errors are those of what the layout's decoder
 * makes of it, which is rounded.
 */
static void round_block(struct task *task, const struct qp_decoded *part)
{
    const uint64_t end = task->decoder.at;
    if (has_other_products(task))
        qp_decode_again(&task->decoder, part);
    if (part->ends_block && task->rule.kind != QP_CODES_BIASED)
        qp_decode_round(task->decoder.tensor, task->kernels->work,
                        (size_t)(end - (end - 1) / QP_BLOCK * QP_BLOCK), task->b->block);
}

static void measure_part(struct task *task, const struct qp_decoded *part)
{
    const struct qp_source_kernels *k = task->kernels;
    const bool rounds = qp_decode_rounds(task->decoder.tensor);
    struct block_runs runs;
    runs.wish = (struct qp_sums_wish){.floor = task->largest};
    if (part->new_sets)
        qp_stored_bounds(k->work, &task->rule, part->new_sets, task->decoder.scale,
                         task->decoder.window.zero, task->b->bound);
    if (!rounds)
        bound_block(task, part, &runs);
    if (!runs.wish.width)
        check_part(task, part);
    if (rounds)
        round_block(task, part);
    if (part->ends_block && !add_block(task, &runs.wish) && runs.wish.width)
        check_part(task, part);
}

/* Reads n elements of the source from the first of the unit on. */
static enum qplan_status read_source(const struct qp_compare *c, struct task *task, uint64_t n,
                                     struct qplan_error *err)
{
    const struct qp_compare_unit *unit = task->unit;
    const struct qplan_entry *entry = unit->pair->source->entry;
    const size_t size = task->kernels->elem_bytes;
    task->source = qp_source_room(c->source, entry, unit->elem * size, task->b->source);
    return read_values(c, unit, task->b, unit->elem, n, task->source, err);
}

/*
 * The elements of all sets that begin in the unit, as far as they follow each other and fit: from
 * the first of these sets to the end of the last, which may lie behind the unit.
 */
static void find_whole_sets(const struct qp_compare *c, const struct task *task,
                            const struct qp_sets *sets, uint64_t *begin, uint64_t *end)
{
    const struct qp_compare_unit *unit = task->unit;
    *begin = *end = unit->elem + unit->n;
    if (!task->calibrator || sets->band_rows != 1)
        return;
    const uint64_t first = qp_set_limit(sets, unit->elem);
    const uint64_t behind = qp_set_limit(sets, unit->elem + unit->n);
    if ((behind - unit->elem) * task->kernels->elem_bytes > c->source_bytes)
        return;
    *begin = first;
    *end = behind;
}

/* Computes the parameters of these sets again, and counts those that are stored so. */
static enum qplan_status recompute(const struct qp_compare *c, struct task *task,
                                   const struct qp_sets *sets, uint64_t begin, uint64_t end,
                                   struct qplan_error *err)
{
    const struct qp_compare_buffers *b = task->b;
    const struct qp_whole_sets whole = {
        .file = c->file,
        .tensor = task->decoder.tensor,
        .calibrator = task->calibrator,
        .calibration = {.calibrator = task->calibrator,
                        .kernels = task->kernels,
                        .quantizer = task->decoder.quantizer,
                        .rule = &task->rule},
        .sets = sets,
        .begin = begin,
        .end = end,
        .src = (const char *)task->source + (begin - task->unit->elem) * task->kernels->elem_bytes,
        .n_sets = c->window_sets,
        .stored = b->window,
        .state = b->state,
        .scale = b->scale,
        .zero = b->zero,
    };
    return qp_recompute_sets(&whole, &task->found->part.sets_same, &task->found->part.most, err);
}

static enum qplan_status compare_codes(const struct qp_compare *c, struct task *task,
                                       struct qplan_error *err)
{
    const struct qp_tensor *tensor = task->decoder.tensor;
    struct qp_sets sets;
    struct qp_decoded part;
    uint64_t begin, end;
    bool found;
    qp_tensor_sets(&sets, tensor);
    find_whole_sets(c, task, &sets, &begin, &end);
    QP_TRY(read_source(c, task, end - task->unit->elem, err));
    QP_TRY(qp_decode_begin(&task->decoder, c->isa, err));
    QP_TRY(recompute(c, task, &sets, begin, end, err));
    QP_TRY(qp_decode_next(&task->decoder, &part, &found, err));
    while (found) {
        measure_part(task, &part);
        QP_TRY(qp_decode_next(&task->decoder, &part, &found, err));
    }
    task->found->part.bad_fill += task->decoder.bad_fill;
    return QPLAN_OK;
}

/* The sums of the block that begins at the element i of a part that a device has measured. */
static void sum_on_cpu(const struct task *task, const struct qp_flat_walk *walk, uint64_t i,
                       struct qp_block *block)
{
    const struct qp_source_kernels *k = task->kernels;
    const struct qp_flat_scratch *scratch = &walk->b->scratch;
    qp_flat_decode_block(&walk->work, &walk->data, i, scratch);
    qp_wide_sums(&block->sums, k, (const char *)walk->data.src + i * k->elem_bytes, scratch->y,
                 (size_t)qp_min_u64(QP_BLOCK, walk->work.n - i));
}

/* The blocks of a part that a device has measured. */
static void add_found(struct task *task, const struct qp_flat_walk *walk)
{
    for (uint64_t i = 0; i < walk->work.n; i += QP_BLOCK) {
        const struct qp_flat_found found =
            qp_flat_found_at(&walk->work, walk->b->found, (size_t)(i / QP_BLOCK));
        size_t first;
        double bound;
        struct qp_block *block = next_block(task, &found.sums);
        if (!qp_wide_take(&block->sums, task->kernels->dtype, &found.sums))
            sum_on_cpu(task, walk, i, block);
        task->found->part.bad_fill += found.bad_pads;
        if (add_check(task, &found.check, &first)) {
            const double y = qp_flat_value_at(walk, i + first, &bound);
            set_first(task, (size_t)(walk->at + i) + first, y, bound);
        }
    }
}

static enum qplan_status compare_on_device(const struct qp_compare *c, struct task *task,
                                           struct qplan_error *err)
{
    struct qp_flat_walk walk = {.device = c->device,
                                .b = &task->b->flat,
                                .source = c->file,
                                .tensor = task->decoder.tensor,
                                .elem = task->unit->elem,
                                .n = task->unit->n};
    bool found;
    qp_flat_begin(&walk, task->kernels->dtype);
    QP_TRY(read_source(c, task, task->unit->n, err));
    const char *source = task->source;
    QP_TRY(qp_flat_next(&walk, &found, err));
    while (found) {
        QP_TRY(qp_flat_measure(&walk, source + walk.at * task->kernels->elem_bytes, err));
        add_found(task, &walk);
        QP_TRY(qp_flat_next(&walk, &found, err));
    }
    task->found->part.bad_fill += walk.bad_fill;
    return QPLAN_OK;
}

static void prepare(const struct qp_compare *c, struct task *task)
{
    const struct qp_tensor *tensor = task->unit->pair->file;
    const struct qp_calibrator *recorded = &task->recorded;
    /* That of another tool may clip. */
    const bool is_known =
        qp_calibrator_recorded(tensor->calibrate, tensor->scheme, &task->recorded);
    task->kernels =
        qp_source_kernels(qp_storage_row((enum qplan_storage)tensor->storage)->dtype, c->isa);
    task->rule = qp_stored_rule(tensor);
    /* Scales that have scales may be too small for their sets. */
    task->can_clip = !is_known || recorded->can_clip || tensor->scheme->nested;
    task->is_nearest = !is_known || recorded->nearest;
    /* Codes that are not judged are computed again, and their parameters with them; a method of
     * several passes is more than in passing, and so are scales that have scales. */
    if (c->recompute && is_known && recorded->from_source && recorded->nearest &&
        recorded->passes == 1 && !tensor->scheme->nested)
        task->calibrator = recorded;
    task->decoder = (struct qp_decoder){.source = c->file,
                                        .tensor = tensor,
                                        .work = task->kernels->work,
                                        .elem = task->unit->elem,
                                        .n = task->unit->n,
                                        .room = task->b->codes,
                                        .y = task->b->block,
                                        .window = task->b->window,
                                        .window_sets = c->window_sets,
                                        .steps = task->b->scale};
}

static enum qplan_status compare_piece(const struct qp_compare *c, struct qp_compare_unit *piece,
                                       const struct qp_compare_buffers *b, struct qp_finding *found,
                                       struct qplan_error *err)
{
    struct task task = {.unit = piece, .b = b, .largest = piece->largest, .found = found};
    prepare(c, &task);
    QP_TRY(c->device ? compare_on_device(c, &task, err) : compare_codes(c, &task, err));
    piece->largest = task.largest;
    return QPLAN_OK;
}

enum qplan_status qp_compare_do(const struct qp_compare *c, const struct qp_compare_unit *unit,
                                const struct qp_compare_buffers *b, struct qp_finding *found,
                                struct qplan_error *err)
{
    const uint64_t end = unit->elem + unit->n;
    *found = (struct qp_finding){.part.max_abs = -1};
    if (!unit->pair->file->scheme)
        return compare_bytes(c, unit, b, found, err);
    struct qp_hold hold;
    struct qp_source file = *c->file;
    struct qp_compare with_hold = *c;
    struct qp_compare_unit piece = *unit;
    QP_TRY(qp_hold_take(&hold, c->file, unit->pair->file, unit->elem, unit->n, c->piece_elems,
                        b->hold, err));
    file.hold = &hold;
    with_hold.file = &file;
    for (; piece.elem < end; piece.elem += piece.n) {
        piece.n = qp_min_u64(c->piece_elems, end - piece.elem);
        QP_TRY(compare_piece(&with_hold, &piece, b, found, err));
    }
    return QPLAN_OK;
}
