/*
 * facts.c - what the stored parameters of a tensor say without its source.
 */
#include "measure.h"

#include "kernels/codes/biased.h"
#include "kernels/codes/largest.h"
#include "kernels/codes/valued.h"
#include "kernels/tiles/runs.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/calibrate/calibrate.h"
#include "lib/model/dtype.h"
#include "lib/run/cut.h"
#include "lib/run/decode.h"

#include <math.h>
#include <string.h>

/* Small buffers: this reads a fraction of the file. */
#define FACT_SETS  8192
#define FACT_CODES 8192
#define FACT_TALL  64 /* rows at a time of codes that lie behind each other down columns */
#define FACT_REACH ((uint64_t)1 << 32)

/* Of few rows each code of a turned part may be in a word of its own, or in two. */
#define FACT_IMAGE (8 * FACT_CODES + QP_IO_SPARE)

struct qp_facts_reader {
    const struct qplan_checkpoint *file;
    const struct qp_tensor *tensor;
    struct qp_code_rule rule; /* of the tensor */
    double largest;           /* scale of it by size; -1: none that counts */
    const struct qp_work_kernels *f64;
    struct qp_sets sets; /* where scales of 1 are searched */
    struct qp_param_window window;
    double *scale;
    int32_t *zero;
    void *codes; /* room */
    void *image; /* room for words of a turned part */
    /* Scales of the next tensor mostly follow in the file, and a tensor may have very few. */
    struct qp_ahead ahead;
    struct qp_source scales; /* the file's, read ahead */
};

/* ---- All scales ------------------------------------------------------------------------------ */

/*
 * A scale of exactly 1 is not counted in the largest step: it may belong to a set of zeros.
 * *has_one tells whether there was one.
 */
static void add_scales(struct qp_facts_reader *r, size_t n, struct qp_param_facts *facts,
                       bool *has_one)
{
    const double *scale = r->scale;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        facts->negative += scale[i] < 0;
        low = scale[i] < low ? scale[i] : low;
        high = scale[i] > high ? scale[i] : high;
    }
    const double most = high > -low ? high : -low; /* a step has the size of its scale */
    const bool around_one = low <= 1 && most >= 1; /* mostly they are all smaller */
    double largest = around_one ? -INFINITY : most;
    for (size_t i = 0; around_one && i < n; i++) {
        *has_one |= scale[i] == 1;
        if (scale[i] != 1 && fabs(scale[i]) > largest)
            largest = fabs(scale[i]);
    }
    facts->scale_min = low < facts->scale_min ? low : facts->scale_min;
    facts->scale_max = high > facts->scale_max ? high : facts->scale_max;
    r->largest = largest > r->largest ? largest : r->largest;
}

/* Makes steps of the scales that were read. */
static void make_steps(struct qp_facts_reader *r, size_t n)
{
    if (r->rule.of_largest)
        qp_times_f32(QPLAN_F64, n, qp_part_of_largest(&r->rule), r->scale);
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
        make_steps(r, n);
        add_scales(r, n, facts, has_one);
    }
    return QPLAN_OK;
}

/* ---- Sets of scale 1 ------------------------------------------------------------------------- */

/* Whether a code stands for 0 where the scale is 1. */
static bool is_zero(const struct qp_code_rule *rule, int32_t zero, uint8_t code)
{
    if (qp_is_valued(rule->kind))
        return qp_value_f32(code, rule->type, rule->kind == QP_CODES_BOOK) == 0;
    return rule->kind == QP_CODES_BIASED ? (float)code == -qp_bias(zero) : code == (uint8_t)zero;
}

/* Whether a row of a tile, whose first set is at base of the window, holds such a code. */
static bool row_differs(const struct qp_facts_reader *r, const struct qp_tile *tile, size_t base,
                        const uint8_t *codes)
{
    bool found = false;
    FOR_EACH_RUN (tile, run) {
        const int32_t zero = r->zero[base + run.set];
        for (size_t i = run.at; r->scale[base + run.set] == 1 && i < run.at + run.n; i++)
            found |= !is_zero(&r->rule, zero, codes[i]);
    }
    return found;
}

/* The first set of a row of a piece, among those in the window. */
static size_t set_of_row(const struct qp_facts_reader *r, const struct qp_piece *piece,
                         uint64_t row)
{
    return (size_t)piece->first_set +
           (size_t)(row / r->sets.band_rows) * qp_tile_cols(&piece->tile);
}

/* Whether some rows of a piece have a set of scale 1. */
static bool have_ones(const struct qp_facts_reader *r, const struct qp_piece *piece, uint64_t row,
                      uint64_t n_rows)
{
    const size_t end = set_of_row(r, piece, row + n_rows - 1) + qp_tile_cols(&piece->tile);
    size_t i = set_of_row(r, piece, row);
    while (i < end && r->scale[i] != 1)
        i++;
    return i < end;
}

/* Whether a piece holds, in a set of scale 1, a code that does not stand for 0. */
static enum qplan_status search_piece(const struct qp_facts_reader *r, const struct qp_piece *piece,
                                      bool *found, struct qplan_error *err)
{
    struct qp_tile tile = piece->tile;
    tile.rows = 1;
    for (uint64_t row = 0; row < piece->n_rows && !*found; row++) {
        const uint64_t elem = (piece->row + row) * r->sets.row_len + piece->col;
        const uint8_t *codes;
        if (!have_ones(r, piece, row, 1))
            continue;
        QP_TRY(qp_read_codes(&r->file->source, r->tensor, elem, tile.cols, QPLAN_ISA_BEST, r->codes,
                             &codes, NULL, err));
        *found = row_differs(r, &tile, set_of_row(r, piece, row), codes);
    }
    return QPLAN_OK;
}

/* The same of some rows of a piece, from a column of it on, whose codes are in a turned part. */
static enum qplan_status search_rect(const struct qp_facts_reader *r, const struct qp_piece *piece,
                                     const struct qp_rect *rect, bool *found,
                                     struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(r->tensor, QP_CODES);
    const uint64_t skip = piece->tile.col_skip + (rect->col - piece->col);
    struct qp_tile tile = piece->tile;
    tile.rows = 1;
    tile.cols = (size_t)rect->n_cols;
    tile.col_skip = (size_t)(skip % tile.col_width);
    QP_TRY(qp_read_runs(&r->file->source, part, rect, r->image, err));
    (void)qp_place_get(part->place, part->matrix, rect, QPLAN_ISA_BEST, r->image, r->codes);
    for (uint64_t i = 0; i < rect->n_rows && !*found; i++) {
        const size_t base = set_of_row(r, piece, rect->row - piece->row + i);
        *found = row_differs(r, &tile, base + (size_t)(skip / tile.col_width),
                             (const uint8_t *)r->codes + i * tile.cols);
    }
    return QPLAN_OK;
}

/* Of a turned part few rows are many short runs: some rows and some columns at a time. */
static enum qplan_status search_turned(const struct qp_facts_reader *r,
                                       const struct qp_piece *piece, bool *found,
                                       struct qplan_error *err)
{
    struct qp_rect rect;
    for (uint64_t row = 0; row < piece->n_rows && !*found; row += rect.n_rows) {
        rect.row = piece->row + row;
        rect.n_rows = qp_min_u64(FACT_TALL, piece->n_rows - row);
        const uint64_t n_cols = have_ones(r, piece, row, rect.n_rows) ? piece->tile.cols : 0;
        for (uint64_t col = 0; col < n_cols && !*found; col += rect.n_cols) {
            rect.col = piece->col + col;
            rect.n_cols = qp_min_u64(FACT_CODES / rect.n_rows, n_cols - col);
            QP_TRY(search_rect(r, piece, &rect, found, err));
        }
    }
    return QPLAN_OK;
}

/* Sets that are whole rows may be those of one row behind each other: here rows are the part's. */
static void set_in_rows(struct qp_facts_reader *r)
{
    const uint64_t cols = qp_tensor_part(r->tensor, QP_CODES)->matrix.cols;
    const struct qplan_scheme rows = {.granularity = QPLAN_PER_GROUP, .group = cols};
    if (r->sets.row_len != cols)
        qp_sets_make(&r->sets, &rows, r->tensor->shape, r->tensor->rank);
}

/*
 * A set of zeros has scale 1 and the zero point in every code. Such a set adds no error, so it must
 * not set the bound; only the codes tell it from a set whose scale happens to be 1.
 */
static enum qplan_status search_ones(struct qp_facts_reader *r, bool *found,
                                     struct qplan_error *err)
{
    const bool turned = qp_part_is_turned(qp_tensor_part(r->tensor, QP_CODES));
    const uint64_t reach = turned ? FACT_REACH : FACT_CODES;
    const struct qp_limits limits = {
        .elems = reach, .sets = FACT_SETS, .apart = reach, .cached = reach};
    uint64_t band = 0, col = 0;
    struct qp_strip strip;
    qp_stored_sets(&r->sets, r->tensor);
    if (turned)
        set_in_rows(r);
    *found = false;
    do {
        qp_strip_at(&r->sets, &limits, 1, 1, band, col, &strip);
        QP_TRY(qp_read_params(&r->file->source, r->tensor, r->f64, strip.set, (size_t)strip.n_sets,
                              &r->window, err));
        make_steps(r, (size_t)strip.n_sets);
        for (uint64_t i = 0; i < strip.n_pieces && !*found; i++) {
            struct qp_piece piece;
            qp_piece_at(&r->sets, &strip, i, &piece);
            QP_TRY((turned ? search_turned : search_piece)(r, &piece, found, err));
        }
    } while (!*found && qp_strip_next(&r->sets, &strip, &band, &col));
    return QPLAN_OK;
}

/* ---- All facts of a tensor --------------------------------------------------------------------
 */

/* Half a unit in the last place of a type, at a value. */
static double half_unit(enum qplan_dtype dtype, double value)
{
    static const struct {
        int bits, least; /* of the fraction; half of the least number, as a power of 2 */
    } types[] = {[QPLAN_F32] = {24, -150}, [QPLAN_F16] = {11, -25}, [QPLAN_BF16] = {8, -134}};
    const int bits = types[dtype].bits, least = types[dtype].least;
    int exponent;
    (void)frexp(value, &exponent); /* value is below 2^exponent */
    return ldexp(1, exponent - bits - 1 > least ? exponent - bits - 1 : least);
}

/* The layout's decoder rounds what a code stands for: at the largest value that a code can have. */
static double rounded_bound(const struct qp_facts_reader *r, double bound)
{
    const struct qp_code_rule *rule = &r->rule;
    const double least = -(double)rule->q_min, most = rule->q_max;
    const double steps = qp_is_valued(rule->kind)        ? rule->type->largest
                         : r->tensor->scheme->asymmetric ? least + most
                         : least > most                  ? least
                                                         : most;
    const enum qplan_dtype dtype = qp_decoder_dtype(r->tensor);
    const double n_roundings = rule->kind == QP_CODES_BIASED ? 2 : 1; /* of product and sum */
    return nextafter(bound + n_roundings * half_unit(dtype, r->largest * steps), INFINITY);
}

/*
 * What grows with the scale: the largest one decides. Its product with the reach of codes is exact:
 * a scale is stored with less precision than a double. Of a recipe no bound is claimed.
 */
static void find_bound(const struct qp_facts_reader *r, struct qp_param_facts *facts)
{
    const enum qplan_dtype source = qp_storage_row((enum qplan_storage)r->tensor->storage)->dtype;
    const struct qp_work_kernels *work = qp_source_kernels(source, QPLAN_ISA_SCALAR)->work;
    const bool has_bound = r->largest >= 0 && !qp_is_recipe(r->tensor->calibrate);
    const float narrow = (float)r->largest;
    const int32_t no_bias = 0; /* the little that one far away from 0 adds is in no report */
    const void *typed = work->work == QPLAN_F32 ? (const void *)&narrow : (const void *)&r->largest;
    facts->half_step = r->largest >= 0 ? r->largest * r->rule.type->reach : -1;
    if (has_bound)
        work->bounds(1, typed, &no_bias, &r->rule, &facts->bound);
    if (has_bound && qp_decode_rounds(r->tensor) && qp_decoder_dtype(r->tensor) != QPLAN_F32)
        facts->bound = rounded_bound(r, facts->bound);
}

enum qplan_status qp_facts_read(struct qp_facts_reader *reader, const struct qp_tensor *tensor,
                                struct qp_param_facts *facts, struct qplan_error *err)
{
    struct qp_facts_reader *r = reader;
    bool has_one, found = false;
    *facts = (struct qp_param_facts){INFINITY, -INFINITY, 0, -1, -1};
    r->tensor = tensor;
    r->rule = qp_code_rule(tensor->scheme);
    r->rule.of_largest = qp_is_of_largest(tensor);
    r->largest = -1;
    QP_TRY(read_facts(r, facts, &has_one, err));
    if (has_one && r->largest < 1) /* a real set of scale 1 would have the largest step */
        QP_TRY(search_ones(r, &found, err));
    if (found)
        r->largest = 1;
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
    qp_free(reader->image);
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
    r->image = qp_alloc_buffer(FACT_IMAGE);
    r->window =
        (struct qp_param_window){r->scale, r->zero, qp_alloc_buffer(QP_PART_ROOM(FACT_SETS, 4))};
    r->ahead = (struct qp_ahead){.data = qp_alloc_buffer(FACT_SETS * 4), .cap = FACT_SETS * 4};
    r->scales = file->source;
    r->scales.ahead = &r->ahead;
    if (!r->scale || !r->zero || !r->codes || !r->image || !r->window.stored || !r->ahead.data) {
        qp_facts_close(r);
        return qp_fail_memory(err, "buffers", FACT_SETS * sizeof *r->scale);
    }
    *out = r;
    return QPLAN_OK;
}
