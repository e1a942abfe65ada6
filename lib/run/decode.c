/*
 * decode.c - decoding block by block.
 */
#include "decode.h"

#include "kernels/codes/largest.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <float.h>
#include <string.h>

/* The steps of n sets. Any will do for a set of zeros, whose scale may be 0, but 0. */
static void make_steps(struct qp_decoder *d, size_t n)
{
    const enum qplan_dtype work = d->work->work;
    double *f64 = d->steps;
    float *f32 = d->steps;
    memcpy(d->steps, d->window.scale, n * d->work->work_bytes);
    qp_times_f32(work, n, qp_part_of_largest(&d->rule), d->steps);
    for (size_t i = 0; work != QPLAN_F64 && i < n; i++)
        f32[i] = f32[i] > FLT_MIN ? f32[i] : FLT_MIN;
    for (size_t i = 0; work == QPLAN_F64 && i < n; i++)
        f64[i] = f64[i] > (double)FLT_MIN ? f64[i] : (double)FLT_MIN;
    d->scale = d->steps;
}

/* The parameters of as much of the range as the window has room for. */
static enum qplan_status read_window(struct qp_decoder *d, size_t *n_sets, struct qplan_error *err)
{
    struct qp_tile tile;
    uint64_t n = qp_tile_at(&d->sets, d->elem + d->at, d->elem + d->n, d->window_sets, &tile,
                            &d->window_set);
    *n_sets = qp_tile_sets(&tile);
    d->window_end = d->at + n;
    d->scale = d->window.scale;
    QP_TRY(qp_read_params(d->source, d->tensor, d->work, d->window_set, *n_sets, &d->window, err));
    if (d->rule.of_largest && !d->rounds)
        make_steps(d, *n_sets);
    return QPLAN_OK;
}

enum qplan_status qp_decode_begin(struct qp_decoder *d, enum qplan_isa isa, struct qplan_error *err)
{
    const struct qp_tensor *tensor = d->tensor;
    d->rule = qp_code_rule(tensor->scheme);
    d->rule.of_largest = qp_is_of_largest(tensor);
    d->rule.rounds = d->rounds;
    d->quantizer =
        qp_quantizer(qp_storage_row((enum qplan_storage)tensor->storage)->dtype, d->rule.kind, isa);
    qp_stored_sets(&d->sets, tensor);
    if (qp_sets_are_flat(&d->sets)) { /* then no part needs to end with a row */
        d->sets.row_len = d->sets.n_elems;
        d->sets.n_bands = 1;
        d->sets.n_cols = d->sets.n_sets;
    }
    return qp_read_codes(d->source, tensor, d->elem, (size_t)d->n, isa, d->room, &d->codes,
                         &d->bad_fill, err);
}

static void decode_part(const struct qp_decoder *d, const struct qp_code_rule *rule,
                        const struct qp_decoded *part)
{
    const char *scale = rule->rounds ? d->window.scale : d->scale;
    d->quantizer->dequantize(&part->tile, d->codes + part->at, rule,
                             scale + part->set * d->work->work_bytes, d->window.zero + part->set,
                             part->y);
    if (rule->rounds && rule->of_largest)
        qp_times_f32(d->work->work, (size_t)part->n, qp_part_of_largest(rule), part->y);
}

void qp_decode_again(const struct qp_decoder *d, const struct qp_decoded *part)
{
    struct qp_code_rule rule = d->rule;
    rule.rounds = true;
    decode_part(d, &rule, part);
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
    decode_part(d, &d->rule, part);
    d->at += part->n;
    part->ends_block = d->at % QP_BLOCK == 0 || d->at == d->n;
    return QPLAN_OK;
}

void qp_decode_round(const struct qp_tensor *tensor, const struct qp_work_kernels *work, size_t n,
                     void *y)
{
    const enum qplan_dtype dtype = qp_decoder_dtype(tensor);
    if (dtype != work->work)
        work->round(dtype, n, y);
}
