/*
 * stored.c - reading stored scales, zero points and codes, and refusing those that no quantizer
 * writes. Every command reads by these functions, so none takes what another one refuses.
 */
#include "stored.h"

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

static bool is_scale(double scale)
{
    return scale > 0 && scale <= DBL_MAX;
}

static double scale_at(const struct qp_work_kernels *work, const void *scale, size_t i)
{
    return work->work == QPLAN_F64 ? ((const double *)scale)[i] : (double)((const float *)scale)[i];
}

/* Loops without a way out, which compilers make vectors of. NaN is not above 0. */
static bool are_scales(const struct qp_work_kernels *work, const void *scale, size_t n)
{
    const double *f64 = scale;
    const float *f32 = scale;
    unsigned bad = 0;
    for (size_t i = 0; work->work == QPLAN_F64 && i < n; i++)
        bad |= !(f64[i] > 0 && f64[i] <= DBL_MAX);
    for (size_t i = 0; work->work != QPLAN_F64 && i < n; i++)
        bad |= !(f32[i] > 0 && f32[i] <= FLT_MAX);
    return !bad;
}

enum qplan_status qp_read_scales(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_SCALE);
    const void *stored;
    char subject[512], found[QP_F64_TEXT];
    QP_TRY(qp_part_get(source, part, set, n, QPLAN_ISA_BEST, window->stored, &stored, NULL, err));
    work->load(tensor->scheme->scale_dtype, n, stored, window->scale);
    if (are_scales(work, window->scale, n))
        return QPLAN_OK;
    size_t i = 0;
    while (is_scale(scale_at(work, window->scale, i)))
        i++;
    qp_format_f64(found, scale_at(work, window->scale, i));
    return qp_fail(err, QPLAN_ERR_INVALID, part_subject(subject, source, part),
                   "bad scale of set %" PRIu64 ": expected a finite number above 0, found %s",
                   set + i, found);
}

/* ---- Zero points ----------------------------------------------------------------------------- */

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

enum qplan_status qp_read_zeros(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t set, size_t n, const struct qp_param_window *window,
                                struct qplan_error *err)
{
    const struct qp_part *part = qp_tensor_part(tensor, QP_ZERO);
    const void *stored = NULL;
    int32_t least, most;
    unsigned bad = 0;
    zero_range(tensor, &least, &most);
    if (!part) { /* a symmetric tensor may come without */
        for (size_t i = 0; i < n; i++)
            window->zero[i] = least;
        return QPLAN_OK;
    }
    QP_TRY(qp_part_get(source, part, set, n, QPLAN_ISA_BEST, window->stored, &stored, NULL, err));
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

enum qplan_status qp_read_params(const struct qp_source *source, const struct qp_tensor *tensor,
                                 const struct qp_work_kernels *work, uint64_t set, size_t n,
                                 const struct qp_param_window *window, struct qplan_error *err)
{
    QP_TRY(qp_read_scales(source, tensor, work, set, n, window, err));
    return qp_read_zeros(source, tensor, set, n, window, err);
}

/* ---- Codes ----------------------------------------------------------------------------------- */

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
    if (!tensor->scheme->narrow)
        return QPLAN_OK;
    const uint8_t *outside = memchr(values, (uint8_t)(rule.q_min - 1), n);
    if (!outside)
        return QPLAN_OK;
    elem += (uint64_t)(outside - *codes);
    return qp_fail(err, QPLAN_ERR_INVALID, part_subject(subject, source, part),
                   "code outside the narrow range at %s: expected %d to %d, found %d",
                   qp_format_coordinates(at, sizeof at, tensor->shape, tensor->rank, elem),
                   rule.q_min, rule.q_max, rule.q_min - 1);
}
