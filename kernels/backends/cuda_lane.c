/*
 * cuda_lane.c - a stream of CUDA with its block of device memory, and two buffers of pinned memory
 * that all copies go through.
 *
 * The driver copies pinned memory alone without waiting. So a copy in is a plain copy to a buffer
 * and a queued one from there; a copy out is queued to a buffer, and copied on to the caller's
 * memory when it is known to have ended. Large copies alternate between the buffers: while the
 * device reads one the CPU fills the other. What the device does for a lane overlaps with what it
 * does for others, and no call but sync and a full buffer waits for it.
 */
#include "cuda_gpu.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"

#include <string.h>

/*
 * Pinned memory is scarce: a part of the block, and no more than lets a bus run at its full speed.
 * A lane has two such buffers.
 */
#define STAGE_SHARE 8
#define STAGE_BYTES ((size_t)1 << 20)
#define MOST_OUTS   16

/* A copy out that the caller's memory has yet to get. */
struct out {
    void *host;
    const unsigned char *bytes;
    size_t n;
};

struct stage {
    unsigned char *bytes;
    size_t used;
    struct CUevent_st *ended; /* recorded behind the last use of the buffer, when it is full */
    bool recorded;
    struct out outs[MOST_OUTS];
    size_t n_outs;
};

struct cu_lane {
    struct qp_lane lane; /* first */
    struct CUstream_st *stream;
    uint64_t block; /* of the device */
    unsigned char *pinned;
    size_t stage_bytes;
    struct stage stages[2];
    unsigned now; /* the stage that is being filled */
};

static const struct cu_gpu *gpu_of(const struct qp_lane *lane)
{
    return (const struct cu_gpu *)lane->gpu;
}

/* ---- Stages -----------------------------------------------------------------------------------
 */

static void deliver(struct stage *stage)
{
    for (size_t i = 0; i < stage->n_outs; i++)
        memcpy(stage->outs[i].host, stage->outs[i].bytes, stage->outs[i].n);
}

static void clear(struct stage *stage)
{
    stage->used = stage->n_outs = 0;
    stage->recorded = false;
}

/* The buffer is full: the other one is next, once what went through it has ended. */
static enum qplan_status turn(struct cu_lane *l, struct qplan_error *err)
{
    const struct cu_gpu *g = gpu_of(&l->lane);
    QP_TRY_CU(g, cuEventRecord, l->stages[l->now].ended, l->stream);
    l->stages[l->now].recorded = true;
    l->now ^= 1;
    struct stage *stage = &l->stages[l->now];
    if (!stage->recorded)
        return QPLAN_OK;
    QP_TRY_CU(g, cuEventSynchronize, stage->ended);
    deliver(stage);
    clear(stage);
    return QPLAN_OK;
}

/* Copies a part that fits into the stage that is being filled. */
static enum qplan_status copy_part(struct cu_lane *l, enum qp_copy_way way, struct qp_span span,
                                   void *host, struct qplan_error *err)
{
    const struct cu_gpu *g = gpu_of(&l->lane);
    struct stage *stage = &l->stages[l->now];
    unsigned char *at = stage->bytes + stage->used;
    const size_t n = (size_t)span.n;
    stage->used += (size_t)qp_div_up(n, 64) * 64;
    if (way == QP_COPY_IN) {
        memcpy(at, host, n);
        QP_TRY_CU(g, cuMemcpyHtoDAsync_v2, l->block + span.off, at, n, l->stream);
        return QPLAN_OK;
    }
    QP_TRY_CU(g, cuMemcpyDtoHAsync_v2, at, l->block + span.off, n, l->stream);
    stage->outs[stage->n_outs++] = (struct out){host, at, n};
    return QPLAN_OK;
}

static enum qplan_status copy_parts(struct cu_lane *l, enum qp_copy_way way, struct qp_span span,
                                    char *host, struct qplan_error *err)
{
    while (span.n > 0) {
        const struct stage *stage = &l->stages[l->now];
        if (stage->used == l->stage_bytes || stage->n_outs == MOST_OUTS) {
            QP_TRY(turn(l, err));
            stage = &l->stages[l->now];
        }
        const uint64_t n = qp_min_u64(span.n, l->stage_bytes - stage->used);
        QP_TRY(copy_part(l, way, (struct qp_span){span.off, n}, host, err));
        span.off += n;
        span.n -= n;
        host += n;
    }
    return QPLAN_OK;
}

enum qplan_status qp_cu_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                             void *host, struct qplan_error *err)
{
    const struct cu_gpu *g = gpu_of(lane);
    QP_TRY(qp_cu_enter(g, err));
    enum qplan_status status = copy_parts((struct cu_lane *)lane, way, span, host, err);
    qp_cu_leave(g);
    return status;
}

/* By an event, not by the stream: so the thread sleeps and leaves its core to others. */
static enum qplan_status wait_all(struct cu_lane *l, struct qplan_error *err)
{
    const struct cu_gpu *g = gpu_of(&l->lane);
    QP_TRY_CU(g, cuEventRecord, l->stages[l->now].ended, l->stream);
    QP_TRY_CU(g, cuEventSynchronize, l->stages[l->now].ended);
    deliver(&l->stages[l->now ^ 1]);
    deliver(&l->stages[l->now]);
    return QPLAN_OK;
}

enum qplan_status qp_cu_sync(struct qp_lane *lane, struct qplan_error *err)
{
    struct cu_lane *l = (struct cu_lane *)lane;
    const struct cu_gpu *g = gpu_of(lane);
    enum qplan_status status = qp_cu_enter(g, err);
    if (status == QPLAN_OK) {
        status = wait_all(l, err);
        qp_cu_leave(g);
    }
    clear(&l->stages[0]); /* after a failure too: the caller's memory is the caller's again */
    clear(&l->stages[1]);
    return status;
}

/* ---- Launches ---------------------------------------------------------------------------------
 */

static enum qplan_status queue_kernel(struct cu_lane *l, struct CUfunc_st *function,
                                      const struct qp_launch *what, struct qplan_error *err)
{
    const struct cu_gpu *g = gpu_of(&l->lane);
    void *parameters[] = {&l->block, (void *)what->args};
    QP_TRY_CU(g, cuLaunchKernel, function, what->groups, 1, 1, what->group_size, 1, 1, 0, l->stream,
              parameters, NULL);
    return QPLAN_OK;
}

enum qplan_status qp_cu_launch(struct qp_lane *lane, struct CUfunc_st *function,
                               const struct qp_launch *what, struct qplan_error *err)
{
    const struct cu_gpu *g = gpu_of(lane);
    QP_TRY(qp_cu_enter(g, err));
    enum qplan_status status = queue_kernel((struct cu_lane *)lane, function, what, err);
    qp_cu_leave(g);
    return status;
}

/* ---- Making -----------------------------------------------------------------------------------
 */

static void release(const struct cu_gpu *g, struct cu_lane *l)
{
    if (l->stream) /* nothing may use what is given back */
        (void)g->cu.cuStreamSynchronize(l->stream);
    if (l->block)
        (void)g->cu.cuMemFree_v2(l->block);
    if (l->pinned)
        (void)g->cu.cuMemFreeHost(l->pinned);
    for (int i = 0; i < 2; i++) {
        if (l->stages[i].ended)
            (void)g->cu.cuEventDestroy_v2(l->stages[i].ended);
    }
    if (l->stream)
        (void)g->cu.cuStreamDestroy_v2(l->stream);
}

void qp_cu_free(struct qp_lane *lane)
{
    if (!lane)
        return;
    const struct cu_gpu *g = gpu_of(lane);
    if (qp_cu_enter(g, NULL) == QPLAN_OK) {
        release(g, (struct cu_lane *)lane);
        qp_cu_leave(g);
    }
    qp_free(lane);
}

static enum qplan_status fill(struct cu_lane *l, struct qplan_error *err)
{
    const struct cu_gpu *g = gpu_of(&l->lane);
    void *pinned = NULL;
    QP_TRY_CU(g, cuStreamCreate, &l->stream, QP_CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 2; i++)
        QP_TRY_CU(g, cuEventCreate, &l->stages[i].ended,
                  QP_CU_EVENT_BLOCKING | QP_CU_EVENT_NO_TIMING);
    QP_TRY_CU(g, cuMemHostAlloc, &pinned, 2 * l->stage_bytes, 0);
    l->pinned = pinned;
    l->stages[0].bytes = l->pinned;
    l->stages[1].bytes = l->pinned + l->stage_bytes;
    QP_TRY_CU(g, cuMemAlloc_v2, &l->block, (size_t)l->lane.n_bytes);
    return QPLAN_OK;
}

static size_t stage_bytes(uint64_t n_bytes)
{
    return (size_t)qp_min_u64(qp_div_up(n_bytes, STAGE_SHARE * 64) * 64, STAGE_BYTES);
}

uint64_t qp_cu_host_bytes(uint64_t n_bytes)
{
    return 2 * stage_bytes(n_bytes);
}

enum qplan_status qp_cu_alloc(struct qp_lane **out, struct qp_gpu *gpu, uint64_t n_bytes,
                              struct qplan_error *err)
{
    const struct cu_gpu *g = (const struct cu_gpu *)gpu;
    struct cu_lane *l = qp_alloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return qp_fail_memory(err, "device", sizeof *l);
    l->lane = (struct qp_lane){gpu, n_bytes};
    l->stage_bytes = stage_bytes(n_bytes);
    enum qplan_status status = qp_cu_enter(g, err);
    if (status == QPLAN_OK) {
        status = fill(l, err);
        qp_cu_leave(g);
    }
    if (status == QPLAN_OK)
        *out = &l->lane;
    else
        qp_cu_free(&l->lane);
    return status;
}
