/*
 * trust.c - what is known of a device that is open: what it has proven, which of its work is looked
 * at again, and whether it was ever wrong. What there is to prove and to compare is for others.
 */
#include "device.h"

/* The first tile of a device, and then one in so many. */
#define CHECKED_TILES 1000

static bool has_proven(const struct qplan_device *device, struct qp_device_proof proof)
{
    for (size_t i = 0; i < device->n_proven; i++) {
        if (device->proven[i].of == proof.of && device->proven[i].which == proof.which)
            return true;
    }
    return false;
}

enum qplan_status qp_device_prove(struct qplan_device *device, struct qp_device_proof proof,
                                  enum qplan_status (*run)(void *ctx, struct qplan_error *err),
                                  void *ctx, struct qplan_error *err)
{
    const size_t most = sizeof device->proven / sizeof device->proven[0];
    if (has_proven(device, proof))
        return QPLAN_OK;
    QP_TRY(run(ctx, err));
    if (device->n_proven < most)
        device->proven[device->n_proven++] = proof;
    return QPLAN_OK;
}

bool qp_device_is_checked(struct qplan_device *device)
{
    const uint64_t every = device->checked_every ? device->checked_every : CHECKED_TILES;
    return atomic_fetch_add(&device->n_tiles, 1) % every == 0;
}

static enum qplan_status fail(const struct qplan_device *device, const char *what, const char *of,
                              const char *dtype, struct qplan_error *err)
{
    const struct qp_device_info *info = &device->gpu->info;
    (void)qp_fail(err, QPLAN_ERR_DEVICE, info->label,
                  "the device does not compute as the CPU does: %s%s%s on %s, driver %s", what, of,
                  dtype, info->name, info->driver);
    qp_advise(err, QPLAN_ADVICE_CPU);
    return QPLAN_ERR_DEVICE;
}

enum qplan_status qp_device_fail_wrong(struct qplan_device *device, const char *what,
                                       const char *dtype, struct qplan_error *err)
{
    atomic_store(&device->differs, true);
    return fail(device, what, " of ", dtype, err);
}

enum qplan_status qp_device_check_trust(struct qplan_device *device, struct qplan_error *err)
{
    return atomic_load(&device->differs) ? fail(device, "an earlier result", "", "", err)
                                         : QPLAN_OK;
}

void qp_device_forget(struct qplan_device *device)
{
    device->n_proven = 0;
    atomic_store(&device->differs, false);
}
