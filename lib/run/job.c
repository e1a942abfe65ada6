/*
 * job.c - the shared part of streaming jobs. Knows nothing of tensors.
 */
#include "job.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/pool.h"
#include "lib/device/device.h"

#include <inttypes.h>

/* Some times what stays in a cache: larger ones gain nothing, but for a band that needs them. */
#define TILE_DEFAULT ((size_t)1 << 20)
#define TILE_LEAST   ((size_t)64 << 10)
/* Larger ones of all workers together: what leaves the cache that they share gains nothing. */
#define WISHES_MOST ((uint64_t)64 << 20)
/* Rows of turned parts: of all workers together, but of each no less and no more than this. */
#define HOLDS_MOST ((uint64_t)32 << 20)
#define HOLD_LEAST ((uint64_t)4 << 20)
#define HOLD_MOST  ((size_t)16 << 20)
/* For a device: large enough that a copy over a bus runs at its full speed. */
#define TILE_DEVICE ((size_t)4 << 20)

/*
 * Workers that wait for a device leave their core to others: on one core too, the copies of one
 * overlap with the kernels of another.
 */
#define DEVICE_TEAM 2u

static const struct qplan_run default_run;

/* ---- Memory ------------------------------------------------------------------------------------
 */

/* The block of one worker begins with the struct that its buffers are named in. */
static void *carve_worker(const struct qp_job *job, struct qp_carve *carve, size_t tile_bytes,
                          void *scratch)
{
    void *buffers = qp_take(carve, job->ops->buffers_size);
    job->ops->carve(carve, tile_bytes, job, buffers ? buffers : scratch);
    return buffers;
}

static uint64_t worker_bytes(const struct qp_job *job, size_t tile_bytes)
{
    union qp_any_buffers scratch;
    struct qp_carve count = {0};
    (void)carve_worker(job, &count, tile_bytes, &scratch);
    return count.used;
}

static uint64_t shared_bytes(struct qp_job *job, size_t tile_bytes)
{
    struct qp_carve count = {0};
    if (job->ops->carve_shared)
        job->ops->carve_shared(&count, tile_bytes, job);
    return count.used;
}

static uint64_t device_bytes(const struct qp_job *job, unsigned n, size_t tile_bytes)
{
    return job->ops->device_bytes ? n * job->ops->device_bytes(tile_bytes) : 0;
}

/* Memory of the host that a worker's lane takes. */
static uint64_t lane_bytes(const struct qp_job *job, size_t tile_bytes)
{
    if (!job->ops->device_bytes)
        return 0;
    const struct qp_backend *backend = job->run->device->gpu->backend;
    return backend->host_bytes ? backend->host_bytes(device_bytes(job, 1, tile_bytes)) : 0;
}

static uint64_t team_bytes(struct qp_job *job, unsigned n, size_t tile_bytes)
{
    return shared_bytes(job, tile_bytes) +
           n * (worker_bytes(job, tile_bytes) + lane_bytes(job, tile_bytes));
}

static uint64_t memory_cap(const struct qp_job *job)
{
    return job->run->memory_bytes ? job->run->memory_bytes : UINT64_MAX;
}

static uint64_t device_cap(const struct qp_job *job)
{
    return job->ops->device_bytes ? job->run->device->memory_bytes : UINT64_MAX;
}

static bool fits(struct qp_job *job)
{
    return team_bytes(job, job->n_workers, job->tile_bytes) <= memory_cap(job) &&
           device_bytes(job, job->n_workers, job->tile_bytes) <= device_cap(job);
}

/* Smaller tiles, then a smaller team; false when both are at their least. */
static bool shrink(struct qp_job *job)
{
    if (job->tile_bytes > job->tile_least)
        job->tile_bytes -= TILE_LEAST;
    else if (job->n_workers > 1)
        job->n_workers--;
    else
        return false;
    return true;
}

static enum qplan_status fail_cap(struct qp_job *job, struct qplan_error *err)
{
    const bool host = team_bytes(job, 1, job->tile_least) > memory_cap(job);
    return qp_fail(err, QPLAN_ERR_MEMORY, host ? "memory" : "device memory",
                   "the cap is too small: expected at least %" PRIu64 " bytes, found %" PRIu64,
                   host ? team_bytes(job, 1, job->tile_least)
                        : device_bytes(job, 1, job->tile_least),
                   host ? memory_cap(job) : device_cap(job));
}

size_t qp_job_turned_wish(const struct qp_job *job, size_t n_bytes)
{
    return (size_t)qp_min_u64(n_bytes, WISHES_MOST / job->n_workers);
}

size_t qp_job_hold_bytes(const struct qp_job *job, size_t tile_bytes)
{
    const uint64_t most = qp_max_u64(HOLDS_MOST / job->n_workers, HOLD_LEAST);
    return (size_t)qp_min_u64(most, HOLD_MOST / QP_HOLD_TILE * (tile_bytes - job->tile_least));
}

size_t qp_job_tile_least(size_t n_bytes)
{
    return (size_t)qp_div_up(qp_max_u64(n_bytes, TILE_LEAST), TILE_LEAST) * TILE_LEAST;
}

/* The team that was asked for with tiles as large as the caps allow, or else a smaller team. */
static enum qplan_status size_team(struct qp_job *job, struct qplan_error *err)
{
    job->n_workers = job->run->threads ? job->run->threads : qp_cpu_count();
    if (!job->run->threads && job->ops->device_bytes && job->n_workers < DEVICE_TEAM)
        job->n_workers = DEVICE_TEAM;
    const size_t least = job->ops->tile_least ? job->ops->tile_least(job) : 0;
    job->tile_least = qp_job_tile_least(least);
    job->tile_bytes = job->ops->device_bytes ? TILE_DEVICE : TILE_DEFAULT;
    job->tile_bytes = (size_t)qp_max_u64(job->tile_bytes, job->tile_least);
    const size_t wish = job->ops->tile_wish ? job->ops->tile_wish(job) : 0;
    if (wish > job->tile_bytes && wish <= WISHES_MOST / job->n_workers)
        job->tile_bytes = (size_t)qp_div_up(wish, TILE_LEAST) * TILE_LEAST;
    while (!fits(job)) {
        if (!shrink(job))
            return fail_cap(job, err);
    }
    return QPLAN_OK;
}

/* ---- Working -----------------------------------------------------------------------------------
 */

static void work(void *ctx, unsigned worker)
{
    struct qp_job *job = ctx;
    struct qplan_error err;
    uint64_t n_bytes = worker_bytes(job, job->tile_bytes);
    struct qp_carve carve = {.block = qp_alloc_buffer(n_bytes)};
    if (carve.block) {
        void *buffers = carve_worker(job, &carve, job->tile_bytes, NULL);
        if (job->lanes)
            job->ops->attach(buffers, job->lanes[worker]);
        while (job->ops->step(job, buffers, &err))
            continue;
    } else {
        (void)qp_fail_memory(&err, "buffers", n_bytes);
        qp_job_fail(job, 0, &err);
    }
    qp_free(carve.block);
}

static enum qplan_status result(const struct qp_job *job, struct qplan_error *err)
{
    if (job->failed_unit != UINT64_MAX) {
        if (err)
            *err = job->error;
        return job->error.status;
    }
    if (job->stop)
        return qp_fail(err, QPLAN_ERR_CANCELLED, "qplan", "stopped on request");
    return QPLAN_OK;
}

/* ---- The device --------------------------------------------------------------------------------
 */

static void close_lanes(struct qp_job *job)
{
    for (unsigned i = 0; i < job->n_lanes; i++)
        job->lanes[i]->gpu->backend->free(job->lanes[i]);
    qp_free(job->lanes);
    job->lanes = NULL;
    job->n_lanes = 0;
}

/* All before the first tile, so that too little memory shows while tiles can still be smaller. */
static enum qplan_status try_lanes(struct qp_job *job, struct qplan_error *err)
{
    struct qp_gpu *gpu = job->run->device->gpu;
    const uint64_t n_bytes = device_bytes(job, 1, job->tile_bytes);
    enum qplan_status status = QPLAN_OK;
    job->lanes = qp_alloc(job->n_workers, sizeof *job->lanes);
    if (!job->lanes)
        return qp_fail_memory(err, "lanes", job->n_workers * sizeof *job->lanes);
    while (job->n_lanes < job->n_workers && status == QPLAN_OK) {
        status = gpu->backend->alloc(&job->lanes[job->n_lanes], gpu, n_bytes, err);
        job->n_lanes += status == QPLAN_OK;
    }
    if (status != QPLAN_OK)
        close_lanes(job);
    return status;
}

/* A device may have less memory than its driver says: then tiles are smaller. */
static enum qplan_status open_lanes(struct qp_job *job, struct qplan_error *err)
{
    enum qplan_status status;
    do
        status = job->ops->device_bytes ? try_lanes(job, err) : QPLAN_OK;
    while (status == QPLAN_ERR_MEMORY && shrink(job));
    return status;
}

static enum qplan_status run_team(struct qp_job *job, struct qplan_error *err)
{
    QP_TRY(open_lanes(job, err));
    uint64_t n_bytes = shared_bytes(job, job->tile_bytes);
    struct qp_carve shared = {.block = n_bytes ? qp_alloc_buffer(n_bytes) : NULL};
    if (n_bytes && !shared.block)
        return qp_fail_memory(err, "buffers", n_bytes);
    if (shared.block)
        job->ops->carve_shared(&shared, job->tile_bytes, job);
    job->n_ran = qp_team_run(job->n_workers, work, job);
    qp_free(shared.block);
    return result(job, err);
}

enum qplan_status qp_job_run(struct qp_job *job, const struct qp_job_ops *ops,
                             const struct qplan_run *run, uint64_t total_bytes,
                             struct qplan_error *err)
{
    *job = (struct qp_job){.ops = ops,
                           .run = run ? run : &default_run,
                           .failed_unit = UINT64_MAX,
                           .total_bytes = total_bytes};
    QP_TRY(size_team(job, err));
    if (pthread_mutex_init(&job->lock, NULL) != 0)
        return qp_fail_memory(err, "threads", sizeof job->lock);
    enum qplan_status status = QPLAN_ERR_MEMORY;
    if (pthread_cond_init(&job->changed, NULL) == 0) {
        status = run_team(job, err);
        close_lanes(job);
        (void)pthread_cond_destroy(&job->changed);
    } else {
        (void)qp_fail_memory(err, "threads", sizeof job->changed);
    }
    (void)pthread_mutex_destroy(&job->lock);
    return status;
}

bool qp_job_stopping(struct qp_job *job)
{
    if (!job->stop && job->run->cancel && *job->run->cancel) {
        job->stop = true;
        (void)pthread_cond_broadcast(&job->changed);
    }
    return job->stop;
}

void qp_job_fail(struct qp_job *job, uint64_t unit, const struct qplan_error *err)
{
    (void)pthread_mutex_lock(&job->lock);
    if (unit < job->failed_unit) {
        job->failed_unit = unit;
        job->error = *err;
    }
    job->stop = true;
    (void)pthread_cond_broadcast(&job->changed);
    (void)pthread_mutex_unlock(&job->lock);
}

void qp_job_advance(struct qp_job *job, uint64_t n_bytes)
{
    (void)pthread_mutex_lock(&job->lock);
    job->done_bytes += n_bytes;
    if (job->run->progress)
        job->run->progress(job->run->progress_ctx, job->done_bytes, job->total_bytes);
    (void)pthread_mutex_unlock(&job->lock);
}

/* ---- Flat units --------------------------------------------------------------------------------
 */

bool qp_flat_claim(struct qp_job *job, struct qp_flat *flat, struct qp_flat_unit *unit)
{
    uint64_t length = 0, unit_length = 0;
    (void)pthread_mutex_lock(&job->lock);
    while (flat->item < flat->n_items) {
        length = flat->length(flat->ctx, flat->item, &unit_length);
        if (flat->pos < length)
            break;
        flat->item++;
        flat->pos = 0;
    }
    bool found = flat->item < flat->n_items && !qp_job_stopping(job);
    if (found) {
        uint64_t n = qp_min_u64(length - flat->pos, unit_length);
        *unit = (struct qp_flat_unit){flat->number++, flat->item, flat->pos, n};
        flat->pos += n;
    }
    (void)pthread_mutex_unlock(&job->lock);
    return found;
}
