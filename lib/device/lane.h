/*
 * lane.h - work on one lane of a device: where things lie in its block of memory, copies, launches,
 * and the wait for their end. Tiles and ranges of checkpoints and the problems of operators all go
 * this way.
 */
#ifndef QP_DEVICE_LANE_H
#define QP_DEVICE_LANE_H

#include "kernels/backends/backend.h"
#include "lib/base/check.h"

/*
 * The place of the next n_bytes of a block that is laid out up to *end. Places are multiples of 64.
 * They are 32 bits wide, as in the device text: a block with a larger end must not be used.
 */
static inline uint32_t qp_block_place(uint64_t *end, uint64_t n_bytes)
{
    const uint64_t at = *end;
    *end = at + qp_div_up(n_bytes, 64) * 64;
    return (uint32_t)at;
}

/*
 * Queue a copy to a place of the block, or from it. The host's bytes stay in use until the lane was
 * waited for. Nothing is queued for 0 bytes.
 */
static inline enum qplan_status qp_lane_copy_in(struct qp_lane *lane, uint64_t to, uint64_t n_bytes,
                                                const void *from, struct qplan_error *err)
{
    const struct qp_span span = {to, n_bytes};
    void *host = (void *)(uintptr_t)from;
    return n_bytes ? lane->gpu->backend->copy(lane, QP_COPY_IN, span, host, err) : QPLAN_OK;
}
static inline enum qplan_status qp_lane_copy_out(struct qp_lane *lane, uint64_t from,
                                                 uint64_t n_bytes, void *to,
                                                 struct qplan_error *err)
{
    const struct qp_span span = {from, n_bytes};
    return n_bytes ? lane->gpu->backend->copy(lane, QP_COPY_OUT, span, to, err) : QPLAN_OK;
}

/*
 * Queues a kernel. Its group_size is what suits it, unless the gpu has one for all: no result
 * depends on that. Nothing is queued for 0 groups.
 */
static inline enum qplan_status qp_lane_launch(struct qp_lane *lane, const struct qp_launch *launch,
                                               struct qplan_error *err)
{
    struct qp_launch what = *launch;
    if (lane->gpu->group_size)
        what.group_size = lane->gpu->group_size;
    return what.groups ? lane->gpu->backend->launch(lane, &what, err) : QPLAN_OK;
}

/* Waits until all that was queued has ended, and tells whether it ended well. */
static inline enum qplan_status qp_lane_wait(struct qp_lane *lane, struct qplan_error *err)
{
    return lane->gpu->backend->sync(lane, err);
}

/*
 * The end of a series of calls with this status, which is returned. After a failure what was queued
 * is waited for, so that nothing uses the caller's memory any more.
 */
static inline enum qplan_status qp_lane_settle(struct qp_lane *lane, enum qplan_status status)
{
    if (status != QPLAN_OK)
        (void)qp_lane_wait(lane, NULL);
    return status;
}

#endif
