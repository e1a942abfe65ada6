/*
 * op_units.c - the team of an operator: units of work, claimed one by one. Keeps nothing between
 * runs.
 */
#include "lib/device/device.h"
#include "op.h"

#include "lib/base/check.h"
#include "lib/base/pool.h"

#include <stdatomic.h>

struct team {
    atomic_uint_fast64_t next;
    uint64_t n;
    qp_op_unit_fn work;
    void *ctx;
};

static void claim(void *ctx, unsigned worker)
{
    struct team *team = ctx;
    for (;;) {
        uint64_t unit = atomic_fetch_add_explicit(&team->next, 1, memory_order_relaxed);
        if (unit >= team->n)
            return;
        team->work(team->ctx, worker, unit);
    }
}

static void check_some(struct qplan_device *device, uint64_t n, qp_op_unit_fn work, void *ctx)
{
    for (uint64_t unit = 0; unit < n; unit++) {
        if (qp_device_is_checked(device))
            work(ctx, 0, unit);
    }
}

void qp_op_units(const struct qplan_op *op, uint64_t n, qp_op_unit_fn work, void *ctx)
{
    if (op->checked) {
        check_some(op->checked, n, work, ctx);
        return;
    }
    struct team team = {.n = n, .work = work, .ctx = ctx};
    unsigned n_workers = (unsigned)qp_min_u64(op->n_workers, n);
    if (n_workers > 1)
        (void)qp_team_run(n_workers, claim, &team);
    else
        claim(&team, 0); /* the caller has set the floating-point environment */
}
