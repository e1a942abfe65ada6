/*
 * host_backend.h - the device text compiled as C11, behind the vtable of a backend: every launch
 * runs its groups one after the other, with one thread each. So all that the library does with a
 * device, and every kernel, runs on any machine and under the sanitizers.
 */
#ifndef TESTS_HOST_BACKEND_H
#define TESTS_HOST_BACKEND_H

#include "host_kernels.h"

#include "lib/device/device.h"

#include <stdlib.h>

struct host_lane {
    struct qp_lane lane;
    unsigned char *block; /* of its own, so that a sanitizer sees its ends */
};

static enum qplan_status host_alloc(struct qp_lane **out, struct qp_gpu *gpu, uint64_t n_bytes,
                                    struct qplan_error *err)
{
    struct host_lane *l = malloc(sizeof *l);
    void *block = NULL;
    *out = NULL;
    if (!l || posix_memalign(&block, 64, n_bytes) != 0) {
        free(l);
        return qp_fail_memory(err, "block", n_bytes);
    }
    memset(block, 0xa5, n_bytes);
    *l = (struct host_lane){{gpu, n_bytes}, block};
    *out = &l->lane;
    return QPLAN_OK;
}

static void host_free(struct qp_lane *lane)
{
    if (lane)
        free(((struct host_lane *)lane)->block);
    free(lane);
}

static enum qplan_status host_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                                   void *host, struct qplan_error *err)
{
    unsigned char *at = ((struct host_lane *)lane)->block + span.off;
    if (span.off + span.n > lane->n_bytes)
        return qp_fail(err, QPLAN_ERR_INTERNAL, "host", "a copy outside the block");
    if (way == QP_COPY_IN)
        memcpy(at, host, span.n);
    else
        memcpy(host, at, span.n);
    return QPLAN_OK;
}

static enum qplan_status host_launch(struct qp_lane *lane, const struct qp_launch *launch,
                                     struct qplan_error *err)
{
    (void)err;
    for (uint32_t i = 0; i < launch->groups; i++)
        host_kernels[launch->kernel].run(i, ((struct host_lane *)lane)->block, launch->args);
    return QPLAN_OK;
}

static enum qplan_status host_sync(struct qp_lane *lane, struct qplan_error *err)
{
    (void)lane;
    (void)err;
    return QPLAN_OK;
}

static const struct qp_backend host_backend = {
    .id = QPLAN_BACKEND_OPENCL,
    .alloc = host_alloc,
    .free = host_free,
    .copy = host_copy,
    .launch = host_launch,
    .sync = host_sync,
};

static struct qp_gpu host_gpu = {.backend = &host_backend,
                                 .info = {.label = "host",
                                          .name = "host C",
                                          .driver = "none",
                                          .memory_bytes = UINT64_C(1) << 30,
                                          .has_fp64 = true}};

/* A device that is open and has shown nothing yet. */
static inline struct qplan_device host_device(struct qp_gpu *gpu)
{
    return (struct qplan_device){
        .backend = gpu->backend->id, .gpu = gpu, .memory_bytes = gpu->info.memory_bytes};
}

#endif
