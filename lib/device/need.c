/*
 * need.c - the kinds of work in a job, each once.
 */
#include "need.h"

bool qp_row_needs_fp64(const struct qp_device_row *row)
{
    /* Errors are 64-bit floats whatever the values are. */
    return row->kind == QP_KIND_MEASURE || row->dtype == QPLAN_F64;
}

/* On the way back parameters are given, so how they would be made does not matter. */
uint32_t qp_row_number(const struct qp_device_row *row)
{
    const struct qplan_scheme *scheme = &row->scheme;
    const bool makes = row->kind == QP_KIND_QUANTIZE;
    const uint32_t stored = makes ? scheme->scale_dtype : row->as;
    return (uint32_t)row->dtype | (uint32_t)scheme->dtype << 8 | stored << 16 |
           (uint32_t)row->kind << 24 | (uint32_t)scheme->narrow << 28 |
           (uint32_t)(makes && scheme->asymmetric) << 29 | (uint32_t)scheme->bias << 30;
}

struct qp_device_row qp_row_of(uint32_t number)
{
    const enum qplan_dtype stored = (enum qplan_dtype)(number >> 16 & 0xff);
    return (struct qp_device_row){.kind = (enum qp_device_kind)(number >> 24 & 0xf),
                                  .dtype = (enum qplan_dtype)(number & 0xff),
                                  .scheme = {.dtype = (enum qplan_dtype)(number >> 8 & 0xff),
                                             .narrow = number >> 28 & 1,
                                             .asymmetric = number >> 29 & 1,
                                             .bias = number >> 30 & 1,
                                             .scale_dtype = stored},
                                  .as = stored};
}

void qp_need_add(struct qp_device_need *need, const struct qp_device_row *row, uint64_t n_bytes,
                 const char *name, size_t name_len)
{
    const uint32_t number = qp_row_number(row);
    size_t k = 0;
    while (k < need->n_rows && need->rows[k] != number)
        k++;
    if (k == QP_MOST_ROWS)
        need->has_more = true;
    else if (k == need->n_rows)
        need->rows[need->n_rows++] = number;
    need->n_bytes += n_bytes;
    need->measures |= row->kind == QP_KIND_MEASURE;
    if (!need->fp64_name && qp_row_needs_fp64(row)) {
        need->fp64_name = name;
        need->fp64_name_len = name_len;
    }
}
