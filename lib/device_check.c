/*
 * device_check.c - the same tile by the scalar kernels, which are the specification, and the
 * comparison. A device that differs anywhere is refused by name.
 */
#include "device.h"

#include "base/check.h"

#include <string.h>

static enum qplan_status differs(const struct qp_gpu *gpu, const struct qp_device_work *work,
                                 const char *what, struct qplan_error *err)
{
    qp_fail(err, QPLAN_ERR_DEVICE, gpu->info.label,
            "the device does not compute as the CPU does: %s of %s on %s, driver %s", what,
            qplan_dtype_name(work->dtype), gpu->info.name, gpu->info.driver);
    qp_hint(err, "--device cpu");
    return QPLAN_ERR_DEVICE;
}

static const struct qp_source_kernels *scalar(const struct qp_device_work *work)
{
    return qp_source_kernels(work->dtype, QPLAN_ISA_SCALAR);
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
static size_t pack_row(const struct qp_device_work *work, uint8_t *from, uint8_t *to)
{
    const struct qp_code_kernels *kernels = qp_code_kernels(QPLAN_ISA_SCALAR);
    uint8_t *const start = to;
    uint64_t left = work->tile.cols, col = work->phase;
    while (left > 0) {
        size_t n = (size_t)qp_min_u64(work->last_len - col, left);
        kernels->pack4(from, n, to);
        from += n;
        to += n / 2 + n % 2;
        left -= n;
        col = 0;
    }
    return (size_t)(to - start);
}

static bool same_codes(const struct qp_device_work *work, const void *src, const void *scale,
                       const int32_t *zero, const struct qp_device_made *made, uint8_t *codes)
{
    const struct qp_tile *tile = &work->tile;
    scalar(work)->quantize(tile, src, &work->rule, scale, zero, codes);
    for (size_t row = 0; row < tile->rows; row++) {
        uint8_t *at = codes + row * tile->cols;
        size_t n = work->packed ? pack_row(work, at, at) : tile->cols;
        if (n != made->row_bytes || memcmp(at, made->codes + row * made->row_bytes, n) != 0)
            return false;
    }
    return true;
}

static bool same_params(const struct qp_device_work *work, const struct qp_device_made *made,
                        const struct qp_device_scratch *s, size_t n)
{
    scalar(work)->work->store(work->rule.scale_dtype, n, s->scale, s->stored);
    if (memcmp(s->stored, made->stored_scale, n * qp_float_bytes(work->rule.scale_dtype)) != 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((uint8_t)s->zero[i] != made->stored_zero[i])
            return false;
    }
    return true;
}

enum qplan_status qp_device_check_quantized(const struct qp_gpu *gpu,
                                            const struct qp_device_work *work, const void *src,
                                            const struct qp_device_made *made,
                                            const struct qp_device_scratch *s,
                                            struct qplan_error *err)
{
    const size_t n = qp_tile_sets(&work->tile);
    if (find_ranges(work, src, s) != made->nonfinite)
        return differs(gpu, work, "the count of values that are not finite", err);
    size_t good = scalar(work)->work->params(&work->rule, n, s->lo, s->hi, s->scale, s->zero);
    if ((good < n ? good : UINT64_MAX) != made->bad_set)
        return differs(gpu, work, "a scale", err);
    if (good < n)
        return QPLAN_OK;
    if (!same_params(work, made, s, n))
        return differs(gpu, work, "a scale or zero point", err);
    if (!same_codes(work, src, s->scale, s->zero, made, s->codes))
        return differs(gpu, work, "a code", err);
    return QPLAN_OK;
}

enum qplan_status qp_device_check_ranges(const struct qp_gpu *gpu,
                                         const struct qp_device_work *work, const void *src,
                                         const struct qp_device_made *made,
                                         const struct qp_device_scratch *s, struct qplan_error *err)
{
    const size_t n = qp_tile_sets(&work->tile) * scalar(work)->work_bytes;
    bool same = find_ranges(work, src, s) == made->nonfinite && memcmp(s->lo, made->lo, n) == 0 &&
                memcmp(s->hi, made->hi, n) == 0;
    return same ? QPLAN_OK : differs(gpu, work, "a range", err);
}

enum qplan_status qp_device_check_codes(const struct qp_gpu *gpu, const struct qp_device_work *work,
                                        const void *src, const void *scale, const int32_t *zero,
                                        const struct qp_device_made *made,
                                        const struct qp_device_scratch *s, struct qplan_error *err)
{
    bool same = same_codes(work, src, scale, zero, made, s->codes);
    return same ? QPLAN_OK : differs(gpu, work, "a code", err);
}
