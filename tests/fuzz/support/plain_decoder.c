/*
 * plain_decoder.c - the native layout, decoded by its description.
 */
#include "plain_decoder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The bytes of the stored tensor NAME and a suffix, or NULL. */
static const unsigned char *find_stored(const struct qplan_checkpoint *file,
                                        const struct bytes *bytes, const struct qp_tensor *tensor,
                                        const char *suffix)
{
    const struct qp_st *st = &file->source.files[0];
    for (size_t i = 0; i < st->n_entries; i++) {
        const struct qplan_entry *entry = &st->entries[i];
        if (entry->name_len == tensor->name_len + strlen(suffix) &&
            memcmp(entry->name, tensor->name, tensor->name_len) == 0 &&
            strcmp(entry->name + tensor->name_len, suffix) == 0)
            return (const unsigned char *)bytes->data + st->header_bytes + entry->begin;
    }
    return NULL;
}

void plain_open(struct plain_tensor *out, const struct qplan_checkpoint *file,
                const struct bytes *bytes, const struct qp_tensor *tensor)
{
    const struct qplan_scheme *scheme = tensor->scheme;
    const enum qplan_storage scales = scheme->scale_dtype == QPLAN_F16    ? QPLAN_STORAGE_F16
                                      : scheme->scale_dtype == QPLAN_BF16 ? QPLAN_STORAGE_BF16
                                                                          : QPLAN_STORAGE_F32;
    *out = (struct plain_tensor){
        .tensor = tensor,
        .codes = find_stored(file, bytes, tensor, ""),
        .scales = find_stored(file, bytes, tensor, "_scale"),
        .zeros = find_stored(file, bytes, tensor, "_zero_point"),
        .source = plain_float_of((enum qplan_storage)tensor->storage),
        .scale = plain_float_of(scales),
        .n = 1,
        .bits = qplan_dtype_bits(scheme->dtype),
        .is_signed = qplan_dtype_is_signed(scheme->dtype),
    };
    for (unsigned i = 0; i < tensor->rank; i++)
        out->n *= tensor->shape[i];
    out->last = tensor->shape[tensor->rank - 1];
    const int half = 1 << (out->bits - 1);
    out->q_min = out->is_signed ? -half + scheme->narrow : 0;
    out->q_max = out->is_signed ? half - 1 : 2 * half - 1;
    promise(out->codes && out->scales && out->source, "a quantized tensor has codes and scales");
    promise(out->zeros || !scheme->asymmetric, "an asymmetric tensor has zero points");
}

static uint64_t set_of(const struct plain_tensor *t, uint64_t i)
{
    const struct qplan_scheme *s = t->tensor->scheme;
    const uint64_t *shape = t->tensor->shape;
    const uint64_t row = i / t->last, col = i % t->last;
    uint64_t inner = 1;
    if (s->granularity == QPLAN_PER_TENSOR)
        return 0;
    if (s->granularity == QPLAN_PER_GROUP)
        return row * ((t->last - 1) / s->group + 1) + col / s->group;
    if (s->granularity == QPLAN_PER_CHANNEL) {
        for (unsigned k = (unsigned)s->axis + 1; k < t->tensor->rank; k++)
            inner *= shape[k];
        return i / inner % shape[s->axis];
    }
    const uint64_t rows = shape[t->tensor->rank - 2];
    const uint64_t band =
        row / rows * ((rows - 1) / s->block_rows + 1) + row % rows / s->block_rows;
    return band * ((t->last - 1) / s->block_cols + 1) + col / s->block_cols;
}

uint64_t plain_row_bytes(const struct plain_tensor *t)
{
    return (t->last * t->bits + 7) / 8;
}

static int code_at(const struct plain_tensor *t, uint64_t i)
{
    const unsigned char *row = t->codes + i / t->last * plain_row_bytes(t);
    int code = 0;
    for (unsigned k = 0; k < t->bits; k++) {
        const uint64_t bit = i % t->last * t->bits + k;
        code |= (row[bit / 8] >> bit % 8 & 1) << k;
    }
    return t->is_signed && code >> (t->bits - 1) ? code - (1 << t->bits) : code;
}

struct plain_element plain_at(const struct plain_tensor *t, uint64_t i)
{
    struct plain_element e = {.set = set_of(t, i), .code = code_at(t, i)};
    e.scale = plain_get(t->scale, t->scales, e.set);
    if (t->zeros)
        e.zero = t->is_signed ? (int8_t)t->zeros[e.set] : t->zeros[e.set];
    else if (!t->is_signed) /* symmetric: the middle */
        e.zero = 1 << (t->bits - 1);
    return e;
}

double plain_decode(const struct plain_tensor *t, const struct plain_element *e, int code)
{
    const double y = e->scale * (code - e->zero); /* exact: 24 bits times 9 */
    return t->source->n_bytes == 8 ? y : plain_round(plain_float_of(QPLAN_STORAGE_F32), y);
}

double plain_bound(const struct plain_tensor *t, const struct plain_element *e)
{
    const int rest = t->source->n_bytes == 8 ? -50 : -21;
    const double bound = e->scale * (0.5 + ldexp(1, (int)t->bits + rest)) + ldexp(1, -149);
    return nextafter(nextafter(bound, (double)INFINITY), (double)INFINITY);
}
