/*
 * need.c - the kinds of work in a job, each once.
 */
#include "need.h"

#include "lib/model/dtype.h"

bool qp_row_needs_fp64(const struct qp_device_row *row)
{
    /* Errors are 64-bit floats whatever the values are. */
    return row->kind == QP_KIND_MEASURE || row->dtype == QPLAN_F64;
}

/* Whether a proof for one is a proof for the other: parameters are given for the way back. */
static bool same_row(const struct qp_device_row *a, const struct qp_device_row *b)
{
    const bool same_codes = a->kind == b->kind && a->dtype == b->dtype &&
                            a->scheme.dtype == b->scheme.dtype &&
                            a->scheme.narrow == b->scheme.narrow;
    if (a->kind != QP_KIND_QUANTIZE)
        return same_codes && a->as == b->as;
    return same_codes && a->scheme.asymmetric == b->scheme.asymmetric &&
           a->scheme.scale_dtype == b->scheme.scale_dtype;
}

void qp_need_add(struct qp_device_need *need, const struct qp_device_row *row, uint64_t n_bytes,
                 const char *name, size_t name_len)
{
    size_t k = 0;
    need->rows[need->n_rows] = *row;
    while (!same_row(&need->rows[k], row))
        k++;
    need->n_rows += k == need->n_rows;
    need->n_bytes += n_bytes;
    need->measures |= row->kind == QP_KIND_MEASURE;
    if (!need->fp64_name && qp_row_needs_fp64(row)) {
        need->fp64_name = name;
        need->fp64_name_len = name_len;
    }
}
