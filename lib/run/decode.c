/*
 * decode.c - decoding block by block.
 */
#include "decode.h"

#include "lib/base/check.h"
#include "lib/model/dtype.h"

/* The parameters of as much of the range as the window has room for. */
static enum qplan_status read_window(struct qp_decoder *d, size_t *n_sets, struct qplan_error *err)
{
    struct qp_tile tile;
    uint64_t n = qp_tile_at(&d->sets, d->elem + d->at, d->elem + d->n, d->window_sets, &tile,
                            &d->window_set);
    *n_sets = qp_tile_sets(&tile);
    d->window_end = d->at + n;
    return qp_read_params(d->source, d->tensor, d->work, d->window_set, *n_sets, &d->window, err);
}

enum qplan_status qp_decode_begin(struct qp_decoder *d, enum qplan_isa isa, struct qplan_error *err)
{
    const struct qp_tensor *tensor = d->tensor;
    d->rule = qp_code_rule(tensor->scheme);
    d->quantizer = qp_quantizer(qp_storage_row((enum qplan_storage)tensor->storage)->dtype,
                                d->rule.type->kind, isa);
    qp_sets_make(&d->sets, tensor->scheme, tensor->shape, tensor->rank);
    if (qp_sets_are_flat(&d->sets)) { /* then no part needs to end with a row */
        d->sets.row_len = d->sets.n_elems;
        d->sets.n_bands = 1;
        d->sets.n_cols = d->sets.n_sets;
    }
    return qp_read_codes(d->source, tensor, d->elem, (size_t)d->n, isa, d->room, &d->codes,
                         &d->bad_fill, err);
}

enum qplan_status qp_decode_next(struct qp_decoder *d, struct qp_decoded *part, bool *found,
                                 struct qplan_error *err)
{
    *part = (struct qp_decoded){.at = d->at};
    *found = d->at < d->n;
    if (!*found)
        return QPLAN_OK;
    if (d->at == d->window_end)
        QP_TRY(read_window(d, &part->new_sets, err));
    const size_t in_block = (size_t)(d->at % QP_BLOCK);
    const uint64_t end = qp_min_u64(d->at - in_block + QP_BLOCK, d->window_end);
    uint64_t set;
    part->n =
        qp_tile_at(&d->sets, d->elem + d->at, d->elem + end, d->window_sets, &part->tile, &set);
    part->set = (size_t)(set - d->window_set);
    part->y = (char *)d->y + in_block * d->work->work_bytes;
    d->quantizer->dequantize(&part->tile, d->codes + d->at, &d->rule,
                             (const char *)d->window.scale + part->set * d->work->work_bytes,
                             d->window.zero + part->set, part->y);
    d->at += part->n;
    part->ends_block = d->at % QP_BLOCK == 0 || d->at == d->n;
    return QPLAN_OK;
}
