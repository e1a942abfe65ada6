/*
 * nonfinite.c - describing values that are not finite: where the first one is, and how many. Only
 * the path to an error comes here, so it reads the tensor again, slowly.
 */
#include "unit.h"

#include "kernels/kernel.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct scan {
    uint64_t count, first;
    double value; /* of the first */
};

static void scan_values(struct scan *scan, const double *x, size_t n, uint64_t elem)
{
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]))
            continue;
        if (scan->count++ == 0) {
            scan->first = elem + i;
            scan->value = x[i];
        }
    }
}

enum qplan_status qp_fail_nonfinite(const struct qp_values *values, void *buffer, size_t n_buffer,
                                    struct qplan_error *err)
{
    const struct qplan_entry *entry = values->tensor->entry;
    const enum qplan_dtype dtype = qp_storage_row((enum qplan_storage)entry->storage)->dtype;
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    const size_t size = qp_float_bytes(dtype);
    const uint64_t n_elems = qp_entry_elements(entry), step = n_buffer / size;
    struct scan scan = {0};
    double x[256];
    for (uint64_t elem = 0; elem < n_elems; elem += step) {
        size_t n = (size_t)qp_min_u64(step, n_elems - elem);
        QP_TRY(qp_values_read(values, elem, n, buffer, err));
        for (size_t i = 0; i < n; i += 256) {
            size_t part = (size_t)qp_min_u64(256, n - i);
            f64->load(dtype, part, (const char *)buffer + i * size, x);
            scan_values(&scan, x, part, elem + i);
        }
    }
    char subject[512], at[256];
    qp_fail(err, QPLAN_ERR_VALUE, qp_listing_subject(subject, &values->source->listing, entry),
            "not a finite number: expected finite values, found %s at %s, flat index %" PRIu64
            ", and %" PRIu64 " such values in all",
            isnan(scan.value) ? "NaN"
            : scan.value > 0  ? "+Inf"
                              : "-Inf",
            qp_format_coordinates(at, sizeof at, entry->shape, entry->rank, scan.first), scan.first,
            scan.count);
    qp_advise(err, QPLAN_ADVICE_NONFINITE);
    return QPLAN_ERR_VALUE;
}
