/*
 * quant_values.c - the values that the quantize family refuses: scales, zero points, data that is
 * not finite. Everything here happens before the first write.
 */
#include "quant.h"

#include "lib/base/check.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

/* Elements looked at together; few, since they are on the stack. */
#define STEP 256

static const char *name_of_nonfinite(double x)
{
    return isnan(x) ? "NaN" : x > 0 ? "+Inf" : "-Inf";
}

/* ---- Parameters -------------------------------------------------------------------------------
 */

static enum qplan_status check_scales(const struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_view *view = qp_op_view(call, "scale");
    const enum qplan_dtype dtype = qp_op_float(qp_op_tensor(call->op, "scale")->dtype);
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    double stored[STEP], value[STEP];
    char shown[QP_F64_TEXT];
    for (uint64_t at = 0; at < view->n_elems; at += STEP) {
        const size_t n = (size_t)qp_min_u64(STEP, view->n_elems - at);
        f64->load(dtype, n, qp_view_get(view, at, n, stored), value);
        for (size_t i = 0; i < n; i++) {
            if (value[i] > 0 && isfinite(value[i]))
                continue;
            (void)qp_format_f64(shown, value[i]);
            return qp_op_fail_value(call->op, "scale", at + i, err,
                                    "no scale: expected a finite number above 0, found %s", shown);
        }
    }
    return QPLAN_OK;
}

/* Any finite number will do: it is rounded and clamped. */
static enum qplan_status check_float_zeros(const struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_view *view = qp_op_view(call, "zero_point");
    const enum qplan_dtype dtype = qp_op_float(qp_op_tensor(call->op, "zero_point")->dtype);
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    double stored[STEP], value[STEP];
    for (uint64_t at = 0; at < view->n_elems; at += STEP) {
        const size_t n = (size_t)qp_min_u64(STEP, view->n_elems - at);
        f64->load(dtype, n, qp_view_get(view, at, n, stored), value);
        for (size_t i = 0; i < n; i++) {
            if (!isfinite(value[i]))
                return qp_op_fail_value(call->op, "zero_point", at + i, err,
                                        "not finite: expected a number, found %s",
                                        name_of_nonfinite(value[i]));
        }
    }
    return QPLAN_OK;
}

static enum qplan_status check_zeros(const struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_quant *quant = call->op->state;
    const struct qp_op_tensor *tensor = qp_op_tensor(call->op, "zero_point");
    const struct qp_view *view = qp_op_view(call, "zero_point");
    int32_t stored[STEP], value[STEP];
    for (uint64_t at = 0; at < view->n_elems; at += STEP) {
        const size_t n = (size_t)qp_min_u64(STEP, view->n_elems - at);
        qp_quant_load_zero(tensor->dtype, n, qp_view_get(view, at, n, stored), value);
        for (size_t i = 0; i < n; i++) {
            if (value[i] >= quant->zero_min && value[i] <= quant->zero_max)
                continue;
            return qp_op_fail_value(call->op, "zero_point", at + i, err,
                                    "out of range: expected %" PRId32 " to %" PRId32
                                    ", found %" PRId32,
                                    quant->zero_min, quant->zero_max, value[i]);
        }
    }
    return QPLAN_OK;
}

enum qplan_status qp_quant_validate_params(const struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_quant *quant = call->op->state;
    QP_TRY(check_scales(call, err));
    if (qp_op_tensor(call->op, "zero_point"))
        return quant->float_zero ? check_float_zeros(call, err) : check_zeros(call, err);
    if (quant->float_zero || (quant->zero_min <= 0 && quant->zero_max >= 0))
        return QPLAN_OK;
    return qp_op_fail_tensor(call->op, QPLAN_ERR_VALUE, "zero_point", err,
                             "out of range: expected %" PRId32 " to %" PRId32
                             ", found none, which means 0",
                             quant->zero_min, quant->zero_max);
}

/* ---- Data -------------------------------------------------------------------------------------
 */

struct scan {
    const struct qp_op_call *call;
    const struct qp_view *view;
    const struct qp_source_kernels *source; /* of floats */
    const struct qp_float_grid *grid;       /* of codes, each of them a byte */
    atomic_uint_fast64_t count;             /* of all elements that are not finite */
    atomic_uint_fast64_t first;             /* chunk with one, the lowest */
};

static bool is_number(const struct qp_float_grid *grid, uint8_t code)
{
    return (code & (grid->sign - 1)) <= grid->top;
}

static uint64_t count_no_numbers(const struct qp_float_grid *grid, const uint8_t *codes, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += !is_number(grid, codes[i]);
    return count;
}

static void scan_unit(void *ctx, unsigned worker, uint64_t unit)
{
    struct scan *scan = ctx;
    const struct qp_quant_worker buffers = qp_quant_worker(scan->call, worker);
    const uint64_t at = unit * QP_OP_CHUNK;
    const size_t n = qp_op_chunk(scan->view->n_elems, unit);
    const void *from = qp_view_get(scan->view, at, n, buffers.elems[0]);
    const uint64_t found = scan->grid ? count_no_numbers(scan->grid, from, n)
                                      : qp_quant_nonfinite(scan->source, from, n);
    if (found == 0)
        return;
    (void)atomic_fetch_add(&scan->count, found);
    uint_fast64_t lowest = atomic_load(&scan->first);
    while (unit < lowest && !atomic_compare_exchange_weak(&scan->first, &lowest, unit))
        continue;
}

uint64_t qp_quant_nonfinite(const struct qp_source_kernels *source, const void *src, size_t n)
{
    const struct qp_tile tile = {.rows = 1, .cols = n, .band_rows = 1, .col_width = n};
    double lo = 0, hi = 0; /* room for one of either precision; all bits 0 is 0 in both */
    return source->range(&tile, src, &lo, &hi);
}

enum qplan_status qp_quant_validate_finite(const struct qp_op_call *call, const char *argument,
                                           struct qplan_error *err)
{
    const struct qplan_op *op = call->op;
    const enum qplan_dtype dtype = qp_op_float(qp_op_tensor(op, argument)->dtype);
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    struct scan scan = {.call = call,
                        .view = qp_op_view(call, argument),
                        .source = qp_source_kernels(dtype, op->isa)};
    atomic_init(&scan.first, UINT64_MAX);
    qp_op_units(op, qp_op_chunks(scan.view->n_elems), scan_unit, &scan);
    if (scan.count == 0)
        return QPLAN_OK;
    uint64_t at = scan.first * QP_OP_CHUNK;
    double stored, value = 0;
    for (; isfinite(value); at++)
        f64->load(dtype, 1, qp_view_get(scan.view, at, 1, &stored), &value);
    return qp_op_fail_value(op, argument, at - 1, err,
                            "%" PRIuFAST64 " values are not finite: expected none, found %s",
                            scan.count, name_of_nonfinite(value));
}

enum qplan_status qp_quant_validate_codes(struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_quant *quant = call->op->state;
    struct scan scan = {
        .call = call, .view = qp_op_view(call, "input"), .grid = &quant->rule.type->grid};
    uint8_t stored, code = 0;
    if (quant->rule.kind != QP_CODES_FLOAT || quant->packed)
        return QPLAN_OK; /* every code is a number */
    atomic_init(&scan.first, UINT64_MAX);
    qp_op_units(call->op, qp_op_chunks(scan.view->n_elems), scan_unit, &scan);
    if (scan.count == 0)
        return QPLAN_OK;
    uint64_t at = scan.first * QP_OP_CHUNK;
    for (; is_number(scan.grid, code); at++)
        code = *(const uint8_t *)qp_view_get(scan.view, at, 1, &stored);
    return qp_op_fail_value(call->op, "input", at - 1, err,
                            "%" PRIuFAST64 " codes are no numbers: expected none, found 0x%02x",
                            scan.count, code);
}

/* ---- For kernels ------------------------------------------------------------------------------
 */

enum qplan_status qp_quant_validate(struct qp_op_call *call, struct qplan_error *err)
{
    return qp_quant_validate_params(call, err);
}

enum qplan_status qp_quant_validate_all(struct qp_op_call *call, struct qplan_error *err)
{
    QP_TRY(qp_quant_validate_params(call, err));
    if (qp_op_is(call->op, "nonfinite", "error"))
        return qp_quant_validate_finite(call, "input", err);
    return QPLAN_OK;
}
