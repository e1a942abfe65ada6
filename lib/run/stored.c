/*
 * stored.c - reading stored scales, zero points and codes, and refusing those that no quantizer
 * writes. Every command reads by these functions, so none takes what another one refuses.
 */
#include "stored.h"

#include "kernels/codes/biased.h"
#include "lib/base/check.h"
#include "lib/calibrate/calibrate.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

/* "file.safetensors: 'tensor'" of a stored tensor. */
static const char *part_subject(char out[512], const struct qp_source *source,
                                const struct qp_part *part)
{
    return qp_listing_subject(out, &source->listing, part->entry);
}

/* ---- Scales ---------------------------------------------------------------------------------- */

bool qp_may_be_negative(const struct qp_tensor *tensor)
{
    struct qp_calibrator calibrator;
    const bool is_known = qp_calibrator_recorded(tensor->calibrate, tensor->scheme, &calibrator);
    const bool either = is_known && calibrator.either_sign && !tensor->scheme->asymmetric;
    if (tensor->scheme->bias)
        return !is_known || calibrator.codes || either;
    if (tensor->scheme->nested) /* other tools let what is added be less than a scale is off */
        return !is_known;
    if (qplan_dtype_bits(tensor->scheme->scale_dtype) <= 8) /* these are numbers without a sign */
        return false;
    return either && (tensor->scheme->dtype == QPLAN_NF4 || !qp_is_of_largest(tensor));
}

/*
 * A set of zeros may have the scale 0 where another tool has made it, or a recipe that follows it:
 * where scales are largest values, as they are of tables, too, and in MLX, which stores f8e4m3 so.
 */
static bool may_be_zero(const struct qp_tensor *tensor)
{
    const bool is_zeros = qp_is_of_largest(tensor) || tensor->scheme->scale_dtype == QPLAN_F8E4M3 ||
                          qp_code_rule(tensor->scheme).kind == QP_CODES_BOOK;
    return is_zeros && (!tensor->calibrate || qp_is_recipe(tensor->calibrate));
}

static bool is_scale(double scale, bool either_sign, bool zeros)
{
    const double size = either_sign ? fabs(scale) : scale;
    const bool is_zero = size == 0 && !signbit(scale) && zeros;
    return (size > 0 || is_zero) && size <= DBL_MAX;
}

static double scale_at(const struct qp_work_kernels *work, const void *scale, size_t i)
{
    return work->work == QPLAN_F64 ? ((const double *)scale)[i] : (double)((const float *)scale)[i];
}

struct qp_code_rule qp_stored_rule(const struct qp_tensor *tensor)
{
    struct qp_code_rule rule = qp_code_rule(tensor->scheme);
    rule.of_largest = qp_is_of_largest(tensor);
    const struct qp_part *factor = qp_tensor_part(tensor, QP_FACTOR);
    if (factor) {
        rule.factor = tensor->factor;
        rule.divides = factor->divides;
    }
    return rule;
}

/*
 * Scales that have scales, as decoders compute them, in f32: the value of the code times its scale,
 * and then the offset. n are of one of these scales.
 */
static enum qplan_status read_nested(const struct qp_source *source, const struct qp_tensor *tensor,
                                     const struct qp_work_kernels *work, uint64_t set, size_t n,
                                     const uint8_t *codes, void *scale, struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_NESTED);
    const struct qp_work_kernels *f32 = qp_source_kernels(QPLAN_F32, QPLAN_ISA_BEST)->work;
    char room[QP_PART_ROOM(1, sizeof(float))], subject[512], shown[QP_F64_TEXT];
    float values[QP_NESTED_SETS], of_scales, found[QP_NESTED_SETS];
    const void *stored;
    QP_TRY(qp_part_get(source, part, set / QP_NESTED_SETS, 1, QPLAN_ISA_BEST, room, &stored, NULL,
                       err));
    f32->load(QPLAN_F32, 1, stored, &of_scales);
    f32->load(QPLAN_F32, QP_NESTED_SETS, qp_tensor_part(tensor, QP_SCALE)->nested, values);
    if (!(of_scales >= 0 && of_scales <= FLT_MAX)) {
        qp_format_f64(shown, (double)of_scales);
        return qp_fail(err, QPLAN_ERR_INVALID, part_subject(subject, source, part),
                       "bad scale %" PRIu64 ": expected a finite number not below 0, found %s",
                       set / QP_NESTED_SETS, shown);
    }
    for (size_t i = 0; i < n; i++) {
        const float product = values[codes[i]] * of_scales;
        found[i] = product + tensor->offset;
    }
    work->load(QPLAN_F32, n, found, scale);
    return QPLAN_OK;
}

static enum qplan_status load_nested(const struct qp_source *source, const struct qp_tensor *tensor,
                                     const struct qp_work_kernels *work, uint64_t set, size_t n,
                                     const uint8_t *codes, void *scale, struct qplan_error *err)
{
    for (size_t at = 0, part; at < n; at += part) {
        const uint64_t left = QP_NESTED_SETS - (set + at) % QP_NESTED_SETS;
        part = (size_t)qp_min_u64(left, n - at);
        QP_TRY(read_nested(source, tensor, work, set + at, part, codes + at,
                           (char *)scale + at * work->work_bytes, err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_read_scales(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_SCALE);
    const struct qp_code_rule rule = qp_stored_rule(tensor);
    const void *stored;
    char subject[512], found[QP_F64_TEXT];
    uint64_t bad_fill = 0;
    QP_TRY(
        qp_part_get(source, part, set, n, QPLAN_ISA_BEST, window->stored, &stored, &bad_fill, err));
    if (bad_fill > 0 && tensor->calibrate) /* other tools may fill tiles as they like */
        return qp_fail(err, QPLAN_ERR_INVALID, part_subject(subject, source, part),
                       "bad scales: spare bits must be 0");
    if (part->nested)
        QP_TRY(load_nested(source, tensor, work, set, n, stored, window->scale, err));
    else
        qp_load_scales(work, &rule, n, stored, window->scale);
    if (qp_scales_are_above_0(work, n, window->scale))
        return QPLAN_OK;
    const bool either_sign = qp_may_be_negative(tensor), zeros = may_be_zero(tensor);
    size_t i = 0;
    while (i < n && is_scale(scale_at(work, window->scale, i), either_sign, zeros))
        i++;
    if (i == n)
        return QPLAN_OK;
    qp_format_f64(found, scale_at(work, window->scale, i));
    return qp_fail(err, QPLAN_ERR_INVALID, part_subject(subject, source, part),
                   "bad scale of set %" PRIu64 ": expected a finite number %s 0, found %s", set + i,
                   qp_may_be_negative(tensor) ? "other than"
                   : may_be_zero(tensor)      ? "not below"
                                              : "above",
                   found);
}

void qp_stored_bounds(const struct qp_work_kernels *work, const struct qp_code_rule *rule, size_t n,
                      const void *scale, const int32_t *zero, double *bound)
{
    work->bounds(n, scale, zero, rule, bound);
    for (size_t i = 0; i < n; i++) {
        if (bound[i] < 0 && scale_at(work, scale, i) == 0)
            bound[i] = 0;
    }
}

/* ---- Zero points and biases -------------------------------------------------------------------
 */

/* The zero points that a tensor may have: a symmetric one has 0, or the midpoint of unsigned codes.
 */
static void zero_range(const struct qp_tensor *tensor, int32_t *least, int32_t *most)
{
    const struct qp_code_rule rule = qp_code_rule(tensor->scheme);
    const int32_t middle = rule.type->is_signed ? 0 : (rule.q_max + 1) / 2;
    *least = tensor->scheme->asymmetric ? rule.q_min : middle;
    *most = tensor->scheme->asymmetric ? rule.q_max : middle;
}

static enum qplan_status bad_zero(const struct qp_source *source, const struct qp_tensor *tensor,
                                  uint64_t set, int32_t zero, struct qplan_error *err)
{
    char subject[512];
    int32_t least, most;
    zero_range(tensor, &least, &most);
    (void)part_subject(subject, source, qp_tensor_part(tensor, QP_ZERO));
    if (least == most)
        return qp_fail(err, QPLAN_ERR_INVALID, subject,
                       "bad zero point of set %" PRIu64
                       ": expected %d, for the scheme is symmetric, found %d",
                       set, least, zero);
    return qp_fail(err, QPLAN_ERR_INVALID, subject,
                   "bad zero point of set %" PRIu64 ": expected %d to %d, found %d", set, least,
                   most, zero);
}

static enum qplan_status read_biases(const struct qp_source *source, const struct qp_tensor *tensor,
                                     uint64_t set, size_t n, const struct qp_param_window *window,
                                     struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_BIAS);
    const enum qplan_dtype dtype = tensor->scheme->scale_dtype;
    const struct qp_work_kernels *f32 = qp_source_kernels(QPLAN_F32, QPLAN_ISA_BEST)->work;
    const void *stored = NULL;
    char subject[512], found[QP_F64_TEXT];
    float bias[256];
    QP_TRY(qp_part_get(source, part, set, n, QPLAN_ISA_BEST, window->stored, &stored, NULL, err));
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < 256 ? n - at : 256;
        f32->load(dtype, k, (const char *)stored + at * qp_float_bytes(dtype), bias);
        for (size_t i = 0; i < k; i++) {
            window->zero[at + i] = qp_bias_bits(bias[i]);
            if (fabsf(bias[i]) <= FLT_MAX)
                continue;
            qp_format_f64(found, (double)bias[i]);
            return qp_fail(err, QPLAN_ERR_INVALID, part_subject(subject, source, part),
                           "bad bias of set %" PRIu64 ": expected a finite number, found %s",
                           set + at + i, found);
        }
    }
    return QPLAN_OK;
}

enum qplan_status qp_read_zeros(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t set, size_t n, const struct qp_param_window *window,
                                struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_ZERO);
    const void *stored = NULL;
    int32_t least, most;
    uint64_t bad_fill = 0;
    unsigned bad = 0;
    char subject[512];
    if (tensor->scheme->bias)
        return read_biases(source, tensor, set, n, window, err);
    zero_range(tensor, &least, &most);
    if (!part) { /* a symmetric tensor may come without */
        for (size_t i = 0; i < n; i++)
            window->zero[i] = least;
        return QPLAN_OK;
    }
    QP_TRY(
        qp_part_get(source, part, set, n, QPLAN_ISA_BEST, window->stored, &stored, &bad_fill, err));
    if (bad_fill > 0)
        return qp_fail(err, QPLAN_ERR_INVALID, part_subject(subject, source, part),
                       "bad zero points: spare bits must be 0");
    for (size_t i = 0; i < n; i++) {
        const int32_t zero =
            part->place->is_signed ? ((const int8_t *)stored)[i] : ((const uint8_t *)stored)[i];
        window->zero[i] = zero;
        bad |= (unsigned)(zero < least) | (unsigned)(zero > most);
    }
    for (size_t i = 0; bad && i < n; i++) {
        if (window->zero[i] < least || window->zero[i] > most)
            return bad_zero(source, tensor, set + i, window->zero[i], err);
    }
    return QPLAN_OK;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

void qp_stored_sets(struct qp_sets *sets, const struct qp_tensor *tensor)
{
    const struct qplan_scheme columns = {.granularity = QPLAN_PER_GROUP, .group = 1};
    if (qp_tensor_part(tensor, QP_INDEX))
        qp_sets_make(sets, &columns, tensor->shape, tensor->rank);
    else
        qp_tensor_sets(sets, tensor);
}

/* Some neighbouring sets of a row, in memory for columns that belong to them. */
#define GATHERED 512

struct gathered {
    uint64_t set, n; /* of the row */
    double scale[GATHERED];
    int32_t zero[GATHERED];
    char stored[QP_PART_ROOM(GATHERED, sizeof(float))];
};

/* Copies the parameters of those of n columns of a row, from col on, whose sets are in memory. */
static enum qplan_status gather(const struct qp_source *source, const struct qp_part *index,
                                const struct gathered *g, size_t work_bytes, uint64_t col, size_t n,
                                char *scale, int32_t *zero, struct qplan_error *err)
{
    int32_t sets[GATHERED];
    for (size_t at = 0; at < n; at += GATHERED) {
        const size_t n_here = (size_t)qp_min_u64(GATHERED, n - at);
        QP_TRY(qp_source_read(source, index->entry, (col + at) * sizeof *sets, sets,
                              n_here * sizeof *sets, err));
        for (size_t i = 0; i < n_here; i++) {
            const uint64_t k = (uint64_t)sets[i] - g->set;
            if (k >= g->n)
                continue;
            memcpy(scale + (at + i) * work_bytes, (const char *)g->scale + k * work_bytes,
                   work_bytes);
            zero[at + i] = g->zero[k];
        }
    }
    return QPLAN_OK;
}

/* The parameters of n columns of one row, by the set that the index has for each. */
static enum qplan_status read_columns(const struct qp_source *source,
                                      const struct qp_tensor *tensor,
                                      const struct qp_work_kernels *work, uint64_t row,
                                      uint64_t col, size_t n, char *scale, int32_t *zero,
                                      struct qplan_error *err)
{
    const uint64_t n_sets = qp_tensor_part(tensor, QP_SCALE)->matrix.cols;
    struct gathered g;
    const struct qp_param_window window = {g.scale, g.zero, g.stored};
    for (g.set = 0; g.set < n_sets; g.set += GATHERED) {
        g.n = qp_min_u64(GATHERED, n_sets - g.set);
        const uint64_t first = row * n_sets + g.set;
        QP_TRY(qp_read_scales(source, tensor, work, first, (size_t)g.n, &window, err));
        QP_TRY(qp_read_zeros(source, tensor, first, (size_t)g.n, &window, err));
        QP_TRY(gather(source, qp_tensor_part(tensor, QP_INDEX), &g, work->work_bytes, col, n, scale,
                      zero, err));
    }
    return QPLAN_OK;
}

static enum qplan_status read_indexed(const struct qp_source *source,
                                      const struct qp_tensor *tensor,
                                      const struct qp_work_kernels *work, uint64_t elem, size_t n,
                                      const struct qp_param_window *window, struct qplan_error *err)
{
    const uint64_t n_cols = tensor->shape[1];
    for (size_t at = 0, part; at < n; at += part) {
        const uint64_t row = (elem + at) / n_cols, col = (elem + at) % n_cols;
        part = (size_t)qp_min_u64(n_cols - col, n - at);
        QP_TRY(read_columns(source, tensor, work, row, col, part,
                            (char *)window->scale + at * work->work_bytes, window->zero + at, err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_read_params(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    if (qp_tensor_part(tensor, QP_INDEX))
        return read_indexed(source, tensor, work, set, n, window, err);
    QP_TRY(qp_read_scales(source, tensor, work, set, n, window, err));
    return qp_read_zeros(source, tensor, set, n, window, err);
}

/* ---- Codes ----------------------------------------------------------------------------------- */

/*
 * The first of n codes of 8 bits that is infinite or NaN, or NULL. Eight are looked at together:
 * with what the largest number lacks of 127 added, sizes above it reach the bit of the sign.
 */
static const uint8_t *find_no_number(const uint8_t *codes, size_t n,
                                     const struct qp_float_grid *grid)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t bad = 0, word;
    size_t i = 0;
    for (; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, codes + i, sizeof word);
        bad |= (word & 0x7f * ones) + (0x7fu - grid->top) * ones;
    }
    for (i = bad & 0x80 * ones ? 0 : i; i < n; i++) {
        if ((codes[i] & 0x7f) > grid->top)
            return &codes[i];
    }
    return NULL;
}

bool qp_has_other_codes(const struct qplan_scheme *scheme)
{
    const struct qp_code_rule rule = qp_code_rule(scheme);
    return scheme->narrow || (rule.kind == QP_CODES_FLOAT && rule.type->bits == 8);
}

enum qplan_status qp_read_codes(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t elem, size_t n, enum qplan_isa isa, void *room,
                                const uint8_t **codes, uint64_t *bad_fill, struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_CODES);
    const struct qp_code_rule rule = qp_code_rule(tensor->scheme);
    const void *values = NULL;
    char subject[512], at[256];
    QP_TRY(qp_part_get(source, part, elem, n, isa, room, &values, bad_fill, err));
    *codes = values;
    const uint8_t *outside = NULL;
    if (tensor->scheme->narrow)
        outside = memchr(values, (uint8_t)(rule.q_min - 1), n);
    else if (qp_has_other_codes(tensor->scheme))
        outside = find_no_number(values, n, &rule.type->grid);
    if (!outside)
        return QPLAN_OK;
    elem += (uint64_t)(outside - *codes);
    (void)part_subject(subject, source, part);
    qp_format_coordinates(at, sizeof at, tensor->shape, tensor->rank, elem);
    if (!tensor->scheme->narrow)
        return qp_fail(err, QPLAN_ERR_INVALID, subject,
                       "code that is no number at %s: expected none of %s that is infinite or NaN, "
                       "found 0x%02x",
                       at, rule.type->name, *outside);
    return qp_fail(err, QPLAN_ERR_INVALID, subject,
                   "code outside the narrow range at %s: expected %d to %d, found %d", at,
                   rule.q_min, rule.q_max, rule.q_min - 1);
}
