/*
 * constants.c - writing parts that are known without any value of their tensor.
 */
#include "constants.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/check.h"

#define PAGE 1024 /* values of an index that are made at once */

/* The set of each column, as the scheme has it. */
static enum qplan_status write_index(const struct qp_tensor *t, const struct qp_part *part,
                                     const struct qp_outs *outs, struct qplan_error *err)
{
    const uint64_t n = part->matrix.cols;
    const uint64_t width = t->scheme->granularity == QPLAN_PER_GROUP ? t->scheme->group : n;
    uint8_t page[PAGE * sizeof(uint32_t)];
    for (uint64_t at = 0; at < n; at += PAGE) {
        const size_t n_here = (size_t)qp_min_u64(PAGE, n - at);
        for (size_t i = 0; i < n_here; i++)
            qp_put32(page + i * sizeof(uint32_t), (uint32_t)((at + i) / width));
        QP_TRY(qp_outs_write(outs, part->entry, at * sizeof(uint32_t), page,
                             n_here * sizeof(uint32_t), err));
    }
    return QPLAN_OK;
}

static enum qplan_status write_part(const struct qp_tensor *t, const struct qp_part *part,
                                    const struct qp_outs *outs, struct qplan_error *err)
{
    const struct qplan_entry *entry = part->entry;
    if (part->role == QP_INDEX)
        return write_index(t, part, outs, err);
    if (t->scheme->nested && part->is_text) /* it tells the offset (offsets.h) */
        return QPLAN_OK;
    if (part->role == QP_CONSTANT && part->bytes)
        return qp_outs_write(outs, entry, 0, part->bytes, (size_t)(entry->end - entry->begin), err);
    return QPLAN_OK;
}

enum qplan_status qp_write_constants(const struct qplan_plan *plan, const struct qp_outs *outs,
                                     struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_tensor *t = &plan->tensors[i].result;
        for (unsigned k = 0; t->scheme && k < t->n_parts; k++)
            QP_TRY(write_part(t, &t->parts[k], outs, err));
    }
    return QPLAN_OK;
}
