/*
 * job.h - what every streaming job shares: a team of workers that claim units of work in order,
 * the first failure, cancelling, progress, and the fixed set of buffers.
 *
 * Units are claimed in ascending order and a failure stops further claims, so every unit before a
 * failed one has been claimed and ends: the failure with the lowest unit is the same for any number
 * of workers, and that one is reported.
 */
#ifndef QP_JOB_H
#define QP_JOB_H

#include "base/error.h"

#include <pthread.h>

struct qp_job {
    const struct qplan_run *run; /* never NULL */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    uint64_t failed_unit; /* UINT64_MAX = none */
    struct qplan_error error;
    uint64_t done_bytes, total_bytes;
    unsigned n_workers;
    size_t tile_bytes; /* source bytes of a tile; the other buffers follow from it */
};

/*
 * Sizes the team and its tiles: n_tiles_bytes(tile_bytes) is what one worker needs. MEMORY if
 * run->memory_bytes is below the least, which the message names.
 */
enum qplan_status qp_job_init(struct qp_job *job, const struct qplan_run *run,
                              uint64_t (*worker_bytes)(size_t tile_bytes), uint64_t total_bytes,
                              struct qplan_error *err);
void qp_job_destroy(struct qp_job *job);

/* Call with the lock held. Whether workers must stop: a failure, or the caller's wish. */
bool qp_job_stopping(struct qp_job *job);

/* Records a failure of a unit; takes the lock itself. */
void qp_job_fail(struct qp_job *job, uint64_t unit, const struct qplan_error *err);

/* Adds to the bytes done and tells the caller; takes the lock itself. */
void qp_job_advance(struct qp_job *job, uint64_t n_bytes);

/* After the team has ended: the status of the job, its error copied out. */
enum qplan_status qp_job_result(const struct qp_job *job, struct qplan_error *err);

#endif
