/*
 * job.c - the shared part of streaming jobs.
 */
#include "job.h"

#include "base/check.h"
#include "base/pool.h"

#include <inttypes.h>
#include <string.h>

/* A tile and the codes made of it stay in a core's second-level cache; larger tiles gain nothing.
 */
#define TILE_DEFAULT ((size_t)1 << 20)
#define TILE_LEAST   ((size_t)64 << 10)

static const struct qplan_run default_run;

/* The largest tile of n workers under a cap: a multiple of the least one, or 0 if none fits. */
static size_t fit_tile(uint64_t memory, unsigned n, uint64_t (*worker_bytes)(size_t))
{
    size_t tile = TILE_DEFAULT;
    while (tile > TILE_LEAST && worker_bytes(tile) > memory / n)
        tile -= TILE_LEAST;
    return worker_bytes(tile) <= memory / n ? tile : 0;
}

static enum qplan_status size_team(struct qp_job *job, uint64_t (*worker_bytes)(size_t),
                                   struct qplan_error *err)
{
    const uint64_t memory = job->run->memory_bytes;
    job->n_workers = job->run->threads ? job->run->threads : qp_cpu_count();
    job->tile_bytes = TILE_DEFAULT;
    if (memory == 0)
        return QPLAN_OK;
    while ((job->tile_bytes = fit_tile(memory, job->n_workers, worker_bytes)) == 0) {
        if (job->n_workers == 1)
            return qp_fail(err, QPLAN_ERR_MEMORY, "memory",
                           "the cap is too small: expected at least %" PRIu64
                           " bytes, found %" PRIu64,
                           worker_bytes(TILE_LEAST), memory);
        job->n_workers--;
    }
    return QPLAN_OK;
}

enum qplan_status qp_job_init(struct qp_job *job, const struct qplan_run *run,
                              uint64_t (*worker_bytes)(size_t tile_bytes), uint64_t total_bytes,
                              struct qplan_error *err)
{
    memset(job, 0, sizeof *job);
    job->run = run ? run : &default_run;
    job->failed_unit = UINT64_MAX;
    job->total_bytes = total_bytes;
    QP_TRY(size_team(job, worker_bytes, err));
    if (pthread_mutex_init(&job->lock, NULL) != 0 || pthread_cond_init(&job->changed, NULL) != 0)
        return qp_fail_memory(err, "threads", sizeof *job);
    return QPLAN_OK;
}

void qp_job_destroy(struct qp_job *job)
{
    (void)pthread_cond_destroy(&job->changed);
    (void)pthread_mutex_destroy(&job->lock);
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

enum qplan_status qp_job_result(const struct qp_job *job, struct qplan_error *err)
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
