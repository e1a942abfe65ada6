/*
 * job.h - what every streaming job shares: a team of workers that claim units of work in order,
 * the fixed buffers of each, the first failure, cancelling, and progress.
 *
 * Units are claimed in ascending order and a failure stops further claims, so every unit before a
 * failed one has been claimed and ends: the failure with the lowest unit is the same for any number
 * of workers, and that one is reported.
 */
#ifndef QP_JOB_H
#define QP_JOB_H

#include "lib/base/carve.h"
#include "lib/base/error.h"

#include <pthread.h>

struct qp_job;
struct qp_lane;

/* Room for the struct of any job's buffers; each job asserts that its own fits. */
union qp_any_buffers {
    void *pointers[64];
    uint64_t numbers[64];
};

/* What makes one kind of job different from another. */
struct qp_job_ops {
    size_t buffers_size; /* of the struct that holds a worker's buffers */

    /* Takes the buffers of one worker for tiles of so many bytes. */
    void (*carve)(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                  void *buffers);

    /* Takes buffers that all workers share, for tiles of so many bytes; or NULL. */
    void (*carve_shared)(struct qp_carve *carve, size_t tile_bytes, struct qp_job *job);

    /* What a tile must hold, where that may be more than the least of any job; or NULL. */
    size_t (*tile_least)(const struct qp_job *job);

    /* What a tile should hold, where that may be more than is usual; or NULL. */
    size_t (*tile_wish)(const struct qp_job *job);

    /*
     * For a job on a device, else NULL: the bytes that a worker takes of its memory for tiles of so
     * many bytes; and the worker's lane, with a block of so many.
     */
    uint64_t (*device_bytes)(size_t tile_bytes);
    void (*attach)(void *buffers, struct qp_lane *lane);

    /* Claims a unit and does it; false when none is left. Reports failures by qp_job_fail. */
    bool (*step)(struct qp_job *job, void *buffers, struct qplan_error *err);
};

struct qp_job {
    const struct qp_job_ops *ops;
    const struct qplan_run *run; /* never NULL */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    uint64_t failed_unit; /* UINT64_MAX = none */
    struct qplan_error error;
    uint64_t done_bytes, total_bytes;
    unsigned n_workers;
    unsigned n_ran;         /* fewer where the system refuses threads */
    size_t tile_least;      /* bytes that a tile has at the least */
    size_t tile_bytes;      /* the other buffers follow from it */
    struct qp_lane **lanes; /* of the run's device, one for each worker; NULL for the CPU */
    unsigned n_lanes;
};

/* Bytes that a tile has at the least in a job that asks for so many. */
size_t qp_job_tile_least(size_t n_bytes);

/*
 * Runs a job to its end: sizes team and tiles by run (NULL = defaults), works, and returns the
 * status of the first failure. MEMORY if run->memory_bytes is below the least, which is named.
 */
enum qplan_status qp_job_run(struct qp_job *job, const struct qp_job_ops *ops,
                             const struct qplan_run *run, uint64_t total_bytes,
                             struct qplan_error *err);

/* For a step: whether to stop, because of a failure or the caller's wish. The lock is held. */
bool qp_job_stopping(struct qp_job *job);

/* For a step: a unit failed. Takes the lock. */
void qp_job_fail(struct qp_job *job, uint64_t unit, const struct qplan_error *err);

/* For a step: n_bytes more are done. Takes the lock. */
void qp_job_advance(struct qp_job *job, uint64_t n_bytes);

/* ---- Items cut into units of fixed length, in order ------------------------------------------ */

struct qp_flat {
    const void *ctx;
    size_t n_items;
    /* The length of an item, and of a full unit of it. */
    uint64_t (*length)(const void *ctx, size_t item, uint64_t *unit_length);
    size_t item; /* where the next unit begins */
    uint64_t pos, number;
};

struct qp_flat_unit {
    uint64_t number;
    size_t item;
    uint64_t pos, n;
};

/* Takes the next unit; false when there is none or the job stops. */
bool qp_flat_claim(struct qp_job *job, struct qp_flat *flat, struct qp_flat_unit *unit);

/*
 * A wish for tiles that hold many rows, because values are turned and few rows are short runs: so
 * many bytes, or as many as the team may have.
 */
size_t qp_job_turned_wish(const struct qp_job *job, size_t n_bytes);

/*
 * Bytes of a worker for rows of turned parts (store/hold.h) beside tiles of so many: the less the
 * smaller tiles are, and none beside the least.
 */
size_t qp_job_hold_bytes(const struct qp_job *job, size_t tile_bytes);

/* Tiles larger by this than the least leave room for as much as a hold may have. */
#define QP_HOLD_TILE ((size_t)1 << 20)

#endif
