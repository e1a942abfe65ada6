/*
 * recheck.c - a tile or a range by the scalar kernels, which are the specification, and the
 * comparison.
 */
#include "recheck.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/check.h"
#include "lib/store/place.h"

#include <math.h>
#include <string.h>

static enum qplan_status differs(struct qplan_device *device, enum qplan_dtype dtype,
                                 const char *what, struct qplan_error *err)
{
    return qp_device_fail_wrong(device, what, qplan_dtype_name(dtype), err);
}

static const struct qp_source_kernels *scalar(const struct qp_device_work *work)
{
    return qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR);
}

static const struct qp_quantizer *quantizer(enum qplan_dtype dtype, const struct qp_code_rule *rule)
{
    return qp_quantizer(dtype, rule->kind, QPLAN_ISA_SCALAR);
}

static uint64_t find_ranges(const struct qp_device_work *work, const void *src,
                            const struct qp_device_scratch *s)
{
    const struct qp_source_kernels *kernels = scalar(work);
    const size_t n = qp_tile_sets(&work->tile) * kernels->work_bytes;
    memset(s->lo, 0, n);
    memset(s->hi, 0, n);
    return kernels->range(&work->tile, src, s->lo, s->hi);
}

/* Packs the codes of one row of the tile over themselves; returns the bytes. */
static size_t pack_row(const struct qp_device_work *work, uint8_t *codes)
{
    const struct qp_place place = qp_row_place(4, work->rule.type->is_signed);
    const uint64_t n = work->tile.cols, n_rows = qp_div_up(work->phase + n, work->last_len);
    const struct qp_flat_range range = {{n_rows, work->last_len}, work->phase, n};
    qp_flat_put(&place, &range, QPLAN_ISA_SCALAR, codes, codes);
    return (size_t)qp_flat_run(&place, &range).n_bytes;
}

static bool same_codes(const struct qp_device_work *work, const void *src, const void *scale,
                       const int32_t *zero, const struct qp_device_made *made, uint8_t *codes)
{
    const struct qp_tile *tile = &work->tile;
    quantizer(work->dtype, &work->rule)->quantize(tile, src, &work->rule, scale, zero, codes);
    for (size_t row = 0; row < tile->rows; row++) {
        uint8_t *at = codes + row * tile->cols;
        size_t n = work->packed ? pack_row(work, at) : tile->cols;
        if (n != made->row_bytes || memcmp(at, made->codes + row * made->row_bytes, n) != 0)
            return false;
    }
    return true;
}

static bool same_params(const struct qp_device_work *work, const struct qp_device_made *made,
                        const struct qp_device_scratch *s, size_t n)
{
    qp_store_scales(scalar(work)->work, &work->rule, n, s->scale, s->stored);
    if (memcmp(s->stored, made->stored_scale, n * qp_float_bytes(work->rule.scale_dtype)) != 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((uint8_t)s->zero[i] != made->stored_zero[i])
            return false;
    }
    return true;
}

enum qplan_status qp_device_check_quantized(struct qplan_device *device,
                                            const struct qp_device_work *work, const void *src,
                                            const struct qp_device_made *made,
                                            const struct qp_device_scratch *s,
                                            struct qplan_error *err)
{
    const size_t n = qp_tile_sets(&work->tile);
    if (find_ranges(work, src, s) != made->nonfinite)
        return differs(device, work->dtype, "the count of values that are not finite", err);
    size_t good = quantizer(work->dtype, &work->rule)
                      ->params(&work->rule, n, s->lo, s->hi, s->scale, s->zero);
    if ((good < n ? good : UINT64_MAX) != made->bad_set)
        return differs(device, work->dtype, "a scale", err);
    if (good < n)
        return QPLAN_OK;
    if (!same_params(work, made, s, n))
        return differs(device, work->dtype, "a scale or zero point", err);
    if (!same_codes(work, src, s->scale, s->zero, made, s->codes))
        return differs(device, work->dtype, "a code", err);
    return QPLAN_OK;
}

enum qplan_status qp_device_check_ranges(struct qplan_device *device,
                                         const struct qp_device_work *work, const void *src,
                                         const struct qp_device_made *made,
                                         const struct qp_device_scratch *s, struct qplan_error *err)
{
    const size_t n = qp_tile_sets(&work->tile) * scalar(work)->work_bytes;
    bool same = find_ranges(work, src, s) == made->nonfinite && memcmp(s->lo, made->lo, n) == 0 &&
                memcmp(s->hi, made->hi, n) == 0;
    return same ? QPLAN_OK : differs(device, work->dtype, "a range", err);
}

enum qplan_status qp_device_check_codes(struct qplan_device *device,
                                        const struct qp_device_work *work, const void *src,
                                        const void *scale, const int32_t *zero,
                                        const struct qp_device_made *made,
                                        const struct qp_device_scratch *s, struct qplan_error *err)
{
    bool same = same_codes(work, src, scale, zero, made, s->codes);
    return same ? QPLAN_OK : differs(device, work->dtype, "a code", err);
}

/* ---- Flat ranges -------------------------------------------------------------------------------
 */

static size_t block_elems(const struct qp_flat_work *work, uint64_t at)
{
    return (size_t)qp_min_u64(QP_BLOCK, work->n - at);
}

/* Codes of the block; returns its spare nibbles that are not 0. */
static uint64_t unpack_block(const struct qp_flat_work *work, const struct qp_flat_data *data,
                             uint64_t at, uint8_t *codes)
{
    const struct qp_place place = qp_row_place(work->packed ? 4 : 8, work->rule.type->is_signed);
    const struct qp_matrix rows = {work->sets.n_elems / work->sets.last_len, work->sets.last_len};
    const struct qp_flat_range all = {rows, work->elem, work->n};
    const struct qp_flat_range block = {rows, work->elem + at, block_elems(work, at)};
    const uint64_t off = qp_flat_run(&place, &block).off - qp_flat_run(&place, &all).off;
    return qp_flat_get(&place, &block, QPLAN_ISA_SCALAR, data->codes + off, codes);
}

/* A rectangle of a block, and the place of its first set in the window. */
struct part {
    struct qp_tile tile;
    size_t set, n;
};

static struct part part_at(const struct qp_flat_work *work, uint64_t from, uint64_t to)
{
    struct part part;
    uint64_t set;
    part.n = (size_t)qp_tile_at(&work->sets, work->elem + from, work->elem + to, UINT64_MAX,
                                &part.tile, &set);
    part.set = (size_t)qp_window_place(&work->window, set);
    return part;
}

void qp_flat_decode_block(const struct qp_flat_work *work, const struct qp_flat_data *data,
                          uint64_t at, const struct qp_flat_scratch *s)
{
    const struct qp_quantizer *k = quantizer(work->dtype, &work->rule);
    const size_t size = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR)->work_bytes;
    const size_t n = block_elems(work, at);
    struct part part;
    (void)unpack_block(work, data, at, s->codes);
    for (size_t i = 0; i < n; i += part.n) {
        part = part_at(work, at + i, at + n);
        k->dequantize(&part.tile, s->codes + i, &work->rule,
                      (const char *)data->scale + part.set * size, data->zero + part.set,
                      (char *)s->y + i * size);
    }
}

enum qplan_status qp_device_check_decoded(struct qplan_device *device,
                                          const struct qp_flat_work *work,
                                          const struct qp_flat_data *data, const void *out,
                                          const struct qp_flat_scratch *s, struct qplan_error *err)
{
    const struct qp_work_kernels *k = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR)->work;
    const size_t size = qp_float_bytes(work->as);
    for (uint64_t at = 0; at < work->n; at += QP_BLOCK) {
        const size_t n = block_elems(work, at);
        qp_flat_decode_block(work, data, at, s);
        k->store(work->as, n, s->y, s->stored);
        if (memcmp(s->stored, (const char *)out + at * size, n * size) != 0)
            return differs(device, work->dtype, "a decoded value", err);
    }
    return QPLAN_OK;
}

/* Adds what a check found in the part of a block that begins at its element `from`. */
static void add_check(struct qp_check *total, const struct qp_check *part, size_t from)
{
    if (total->offences == 0 && part->offences)
        total->first_offence = from + part->first_offence;
    if (total->clipped == 0 && part->clipped)
        total->first_clipped = from + part->first_clipped;
    total->offences += part->offences;
    total->clipped += part->clipped;
    total->nonfinite += part->nonfinite;
    total->max_clip = part->max_clip > total->max_clip ? part->max_clip : total->max_clip;
}

static struct qp_flat_found measure_block(const struct qp_flat_work *work,
                                          const struct qp_flat_data *data, uint64_t at,
                                          const struct qp_flat_scratch *s)
{
    const struct qp_source_kernels *k = qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR);
    const struct qp_quantizer *q = quantizer(work->dtype, &work->rule);
    const char *src = (const char *)data->src + at * k->elem_bytes;
    const size_t n = block_elems(work, at);
    struct qp_flat_found found = {.bad_pads = unpack_block(work, data, at, s->codes)};
    struct part part;
    qp_flat_decode_block(work, data, at, s);
    k->sums(src, s->y, n, &(struct qp_sums_wish){.floor = -1}, &found.sums);
    for (size_t i = 0; i < n; i += part.n) {
        struct qp_check check;
        part = part_at(work, at + i, at + n);
        q->check(&part.tile, src + i * k->elem_bytes, (const char *)s->y + i * k->work_bytes,
                 &work->rule, (const char *)data->scale + part.set * k->work_bytes,
                 data->zero + part.set, data->bound + part.set, &check);
        add_check(&found.check, &check, i);
    }
    return found;
}

/* Which NaN it is shows nowhere. */
static bool same_number(double a, double b)
{
    return qp_bits_f64(a) == qp_bits_f64(b) || (isnan(a) && isnan(b));
}

static bool same_sums(const struct qp_sums *a, const struct qp_sums *b)
{
    return same_number(a->e2, b->e2) && same_number(a->x2, b->x2) && same_number(a->y2, b->y2) &&
           same_number(a->max_abs, b->max_abs) && a->max_at == b->max_at;
}

static bool same_check(const struct qp_check *a, const struct qp_check *b)
{
    return a->offences == b->offences && a->first_offence == b->first_offence &&
           a->clipped == b->clipped && a->first_clipped == b->first_clipped &&
           same_number(a->max_clip, b->max_clip) && a->nonfinite == b->nonfinite;
}

enum qplan_status qp_device_check_measured(struct qplan_device *device,
                                           const struct qp_flat_work *work,
                                           const struct qp_flat_data *data, const void *found,
                                           const struct qp_flat_scratch *s, struct qplan_error *err)
{
    for (uint64_t at = 0; at < work->n; at += QP_BLOCK) {
        const struct qp_flat_found wanted = measure_block(work, data, at, s);
        const struct qp_flat_found got = qp_flat_found_at(work, found, (size_t)(at / QP_BLOCK));
        if (!same_sums(&wanted.sums, &got.sums))
            return differs(device, work->dtype, "the sum of errors", err);
        if (!same_check(&wanted.check, &got.check) || wanted.bad_pads != got.bad_pads)
            return differs(device, work->dtype, "a count of errors", err);
    }
    return QPLAN_OK;
}
