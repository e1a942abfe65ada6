/*
 * pool.h - a team of threads for one job.
 */
#ifndef QP_BASE_POOL_H
#define QP_BASE_POOL_H

#include "error.h"

#include <fenv.h>
#include <stddef.h>

/* One worker's part of the job; worker counts from 0. */
typedef void (*qp_worker_fn)(void *ctx, unsigned worker);

/*
 * Runs work on n workers at once, this thread among them, and returns when all are done. Where the
 * system refuses threads, fewer workers run: the work must be claimed, not split by number.
 * Every worker runs in the default floating-point environment, whatever the caller's is. Returns
 * the number of workers that ran.
 */
unsigned qp_team_run(unsigned n, qp_worker_fn work, void *ctx);

/*
 * Rounding mode and flush-to-zero belong to the thread and may come from a foreign library: results
 * must not depend on them. The default environment, until the saved one is put back.
 */
void qp_fenv_enter(fenv_t *saved);
void qp_fenv_leave(const fenv_t *saved);

/* The CPUs of the affinity mask, capped by the cgroup's quota; at least 1. */
unsigned qp_cpu_count(void);

#endif
