/*
 * op_device.h - laws of operators on a device, for every case of testdata/ops whose operator has a
 * kernel for devices: the bits, the counts and the refusals of the CPU, for contiguous and strided
 * tensors, and nothing outside of a buffer touched. It knows no operator.
 */
#ifndef TESTS_OP_DEVICE_H
#define TESTS_OP_DEVICE_H

#include "tests/property/op_goldens.h"

#include "lib/ops/op_device.h"

/* What the walk has met. */
struct device_walk {
    struct qplan_device *device;
    size_t n_cases, n_refused;
};

static bool has_device_kernel(const struct qplan_op_info *info)
{
    struct qplan_op_sku sku;
    bool picked, found = false;
    for (size_t i = 0; qplan_op_kernel(info, i, QPLAN_ISA_BEST, &sku, &picked); i++)
        found = found || sku.backend == QPLAN_BACKEND_ANY;
    return found;
}

static void same_outcome(const char *name, const struct golden *g, const struct way *way,
                         enum qplan_status wanted_status, const struct outcome *wanted)
{
    struct outcome found;
    const enum qplan_status status = run_golden(g, way, &found);
    const char *strides = way->strided ? "strided" : "contiguous";
    if (status != wanted_status ||
        (status != QPLAN_OK && strcmp(found.err.message, wanted->err.message) != 0))
        fail_msg("%s, %s: %s: %s; expected %s: %s", name, strides, qplan_status_name(status),
                 status == QPLAN_OK ? "" : found.err.message, qplan_status_name(wanted_status),
                 wanted_status == QPLAN_OK ? "" : wanted->err.message);
    if (status != QPLAN_OK)
        check_unwritten(g, &found.out);
    if (status == QPLAN_OK && !found.on_device)
        fail_msg("%s: not on the device", name);
    if (found.out.n != wanted->out.n ||
        (found.out.n > 0 && memcmp(found.out.data, wanted->out.data, found.out.n) != 0))
        fail_msg("%s: other bits, %s", name, strides);
    if (memcmp(&found.counts, &wanted->counts, sizeof found.counts) != 0)
        fail_msg("%s: other counts, %s", name, strides);
    text_free(&found.out);
}

static void check_on_device(const char *name, const struct golden *g, void *ctx)
{
    static const struct way on_cpu = {QPLAN_ISA_SCALAR, 1, true, false, NULL};
    struct device_walk *walk = ctx;
    struct outcome wanted;
    if (!has_device_kernel(g->info))
        return;
    const enum qplan_status status = run_golden(g, &on_cpu, &wanted);
    for (int i = 0; i < 4; i++) {
        const struct way way = {QPLAN_ISA_BEST, 2, i / 2 == 0, i % 2, walk->device};
        same_outcome(name, g, &way, status, &wanted);
    }
    walk->n_cases++;
    walk->n_refused += status != QPLAN_OK;
    text_free(&wanted.out);
}

/* All cases with groups of a size, 0 = as in use. */
static void check_device(struct qplan_device *device, uint32_t group_size)
{
    struct device_walk walk = {.device = device};
    device->gpu->group_size = group_size;
    each_golden(check_on_device, &walk);
    printf("%zu cases, %zu of them refused\n", walk.n_cases, walk.n_refused);
    assert_true(walk.n_cases > 200 && walk.n_refused > 5);
}

#endif
