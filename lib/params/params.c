/*
 * params.c - the life of struct qplan_params: making, copying, showing, releasing, and what it
 * costs in bytes. Never computes a scale: that is statistics.c.
 */
#include "lib/qplan.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Making -----------------------------------------------------------------------------------
 */

/* Makes *out from the members given in fields; every set gets the same pair. */
static enum qplan_status construct(struct qplan_params *out, struct qplan_params fields,
                                   double scale, int32_t zero_point, struct qplan_error *err)
{
    size_t n = fields.n_sets;
    fields.scale_dtype = QPLAN_F32;
    fields.scale = qp_alloc(n, sizeof *fields.scale);
    fields.zero_point = qp_alloc(n, sizeof *fields.zero_point);
    if (!fields.scale || !fields.zero_point) {
        qplan_params_free(&fields);
        return qp_fail_memory(err, "params", (uint64_t)n * sizeof *fields.scale);
    }
    for (size_t i = 0; i < n; i++) {
        fields.scale[i] = (double)(float)scale;
        fields.zero_point[i] = zero_point;
    }
    *out = fields;
    return QPLAN_OK;
}

enum qplan_status qplan_params_int8_symmetric(struct qplan_params *out, struct qplan_error *err)
{
    struct qplan_params fields = {.dtype = QPLAN_INT8, .scheme = QPLAN_SYMMETRIC, .n_sets = 1};
    return construct(out, fields, 1, 0, err);
}

enum qplan_status qplan_params_uint8_asymmetric(struct qplan_params *out, struct qplan_error *err)
{
    return qplan_params_new(out, 1, 128, err);
}

enum qplan_status qplan_params_int4_symmetric(struct qplan_params *out, struct qplan_error *err)
{
    struct qplan_params fields = {.dtype = QPLAN_INT4, .scheme = QPLAN_SYMMETRIC, .n_sets = 1};
    return construct(out, fields, 1, 0, err);
}

enum qplan_status qplan_params_new(struct qplan_params *out, double scale, int32_t zero_point,
                                   struct qplan_error *err)
{
    struct qplan_params fields = {.dtype = QPLAN_UINT8, .scheme = QPLAN_ASYMMETRIC, .n_sets = 1};
    return construct(out, fields, scale, zero_point, err);
}

static enum qplan_status check_has_codes(enum qplan_dtype dtype, struct qplan_error *err)
{
    int32_t q_min, q_max;
    const char *name = qplan_dtype_name(dtype);
    if (qplan_dtype_range(dtype, &q_min, &q_max))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, "params", "dtype: expected an integer type, found %s",
                   name ? name : "an unknown one");
}

enum qplan_status qplan_params_channel_wise(struct qplan_params *out, size_t n,
                                            enum qplan_dtype dtype, struct qplan_error *err)
{
    struct qplan_params fields = {.dtype = dtype, .scheme = QPLAN_CHANNEL_WISE, .n_sets = n};
    QP_TRY(check_has_codes(dtype, err));
    if (n == 0)
        return qp_fail(err, QPLAN_ERR_INVALID, "params", "channels: expected at least 1, found 0");
    return construct(out, fields, 1, 0, err);
}

enum qplan_status qplan_params_block_wise(struct qplan_params *out, size_t block_size,
                                          enum qplan_dtype dtype, struct qplan_error *err)
{
    struct qplan_params fields = {
        .dtype = dtype, .scheme = QPLAN_BLOCK_WISE, .n_sets = 1, .block_size = block_size};
    QP_TRY(check_has_codes(dtype, err));
    if (block_size == 0)
        return qp_fail(err, QPLAN_ERR_INVALID, "params",
                       "block_size: expected at least 1, found 0");
    return construct(out, fields, 1, 0, err);
}

/* ---- Copying and releasing --------------------------------------------------------------------
 */

/* A copy of an array of n elements; of NULL, NULL. *ok becomes false when memory is refused. */
static void *copy_array(const void *array, size_t n, size_t size, bool *ok)
{
    if (!array)
        return NULL;
    void *copy = qp_alloc(n, size);
    if (copy)
        memcpy(copy, array, n * size);
    else
        *ok = false;
    return copy;
}

enum qplan_status qplan_params_copy(struct qplan_params *out, const struct qplan_params *params,
                                    struct qplan_error *err)
{
    size_t n = params->n_sets;
    bool ok = true;
    struct qplan_params copy = *params;
    copy.scale = copy_array(params->scale, n, sizeof *copy.scale, &ok);
    copy.zero_point = copy_array(params->zero_point, n, sizeof *copy.zero_point, &ok);
    copy.min_val = copy_array(params->min_val, n, sizeof *copy.min_val, &ok);
    copy.max_val = copy_array(params->max_val, n, sizeof *copy.max_val, &ok);
    if (!ok) {
        qplan_params_free(&copy);
        return qp_fail_memory(err, "params", (uint64_t)n * sizeof *copy.scale);
    }
    *out = copy;
    return QPLAN_OK;
}

void qplan_params_free(struct qplan_params *params)
{
    if (!params)
        return;
    qp_free(params->scale);
    qp_free(params->zero_point);
    qp_free(params->min_val);
    qp_free(params->max_val);
    *params = (struct qplan_params){0};
}

/* ---- Showing ----------------------------------------------------------------------------------
 */

static const char *scheme_name(enum qplan_param_scheme scheme)
{
    static const char *const names[] = {
        [QPLAN_SYMMETRIC] = "symmetric",
        [QPLAN_ASYMMETRIC] = "asymmetric",
        [QPLAN_LINEAR] = "linear",
        [QPLAN_LOGARITHMIC] = "logarithmic",
        [QPLAN_CHANNEL_WISE] = "channel_wise",
        [QPLAN_BLOCK_WISE] = "block_wise",
    };
    return (size_t)scheme < sizeof names / sizeof names[0] ? names[scheme] : "unknown";
}

/* Room for ", zero point " or a shorter name, and two numbers. */
#define SPAN_TEXT (2 * QP_F64_TEXT + 32)

/* ", NAME LEAST" or ", NAME LEAST to LARGEST" of n values; "" where there are none. */
static const char *format_span(char out[SPAN_TEXT], const char *name, const double *values,
                               size_t n)
{
    char least_text[QP_F64_TEXT], largest_text[QP_F64_TEXT];
    out[0] = '\0';
    if (!values || n == 0)
        return out;
    double least = values[0], largest = values[0];
    for (size_t i = 1; i < n; i++) {
        least = values[i] < least ? values[i] : least;
        largest = values[i] > largest ? values[i] : largest;
    }
    (void)qp_format_f64(least_text, least);
    (void)qp_format_f64(largest_text, largest);
    bool one = !(largest > least);
    (void)snprintf(out, SPAN_TEXT, ", %s %s%s%s", name, least_text, one ? "" : " to ",
                   one ? "" : largest_text);
    return out;
}

static const char *format_zero_points(char out[SPAN_TEXT], const int32_t *values, size_t n)
{
    out[0] = '\0';
    if (!values || n == 0)
        return out;
    int32_t least = values[0], largest = values[0];
    for (size_t i = 1; i < n; i++) {
        least = values[i] < least ? values[i] : least;
        largest = values[i] > largest ? values[i] : largest;
    }
    int used = snprintf(out, SPAN_TEXT, ", zero point %" PRId32, least);
    if (largest > least)
        (void)snprintf(out + used, SPAN_TEXT - (size_t)used, " to %" PRId32, largest);
    return out;
}

size_t qplan_params_print(const struct qplan_params *params, char *out, size_t n_bytes)
{
    const char *dtype = qplan_dtype_name(params->dtype);
    size_t n = params->n_sets;
    char blocks[SPAN_TEXT] = "", scales[SPAN_TEXT], zeros[SPAN_TEXT], mins[SPAN_TEXT],
         maxs[SPAN_TEXT];
    if (params->block_size)
        (void)snprintf(blocks, sizeof blocks, ", blocks of %zu", params->block_size);
    return (size_t)snprintf(
        out, n_bytes, "%s %s%s%s, %zu set%s%s%s%s%s", dtype ? dtype : "unknown",
        scheme_name(params->scheme), params->narrow_range ? " narrow" : "", blocks, n,
        n == 1 ? "" : "s", format_span(scales, "scale", params->scale, n),
        format_zero_points(zeros, params->zero_point, n),
        format_span(mins, "min", params->min_val, n), format_span(maxs, "max", params->max_val, n));
}

/* ---- Counting ---------------------------------------------------------------------------------
 */

size_t qplan_params_num_parameter_sets(const struct qplan_params *params)
{
    return params->n_sets;
}

bool qplan_params_is_per_channel(const struct qplan_params *params)
{
    return (params->scheme == QPLAN_CHANNEL_WISE || params->scheme == QPLAN_BLOCK_WISE) &&
           params->n_sets > 1;
}

double qplan_params_compression_ratio(const struct qplan_params *params)
{
    unsigned bits = qplan_dtype_bits(params->dtype);
    return bits ? 32.0 / bits : 0;
}

double qplan_params_effective_compression_ratio(const struct qplan_params *params, uint64_t n_elems)
{
    unsigned bits = qplan_dtype_bits(params->dtype);
    if (n_elems == 0 || bits == 0)
        return 0;
    uint64_t n_sets = params->n_sets;
    if (params->scheme == QPLAN_BLOCK_WISE && params->block_size > 0)
        n_sets = qp_div_up(n_elems, params->block_size);
    /* In whole bytes without overflow: 8 elements take bits bytes. */
    uint64_t eights = n_elems / 8, rest = n_elems % 8;
    double code_bytes = (double)eights * bits + (double)qp_div_up(rest * bits, 8);
    double set_bytes = sizeof(float) + sizeof(int32_t);
    return (double)n_elems * sizeof(float) / (code_bytes + (double)n_sets * set_bytes);
}
