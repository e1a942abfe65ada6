/*
 * units.h - running a plan: source bytes in, output bytes at their offsets.
 */
#ifndef QP_EXECUTE_H
#define QP_EXECUTE_H

#include "lib/plan/plan.h"

/*
 * Writes every tensor of the plan, not the header. The output has no name yet.
 * *all_threads is false if the system refused some; the bytes are the same.
 */
enum qplan_status qp_execute(const struct qplan_plan *plan, const struct qp_out *out,
                             const struct qplan_run *run, bool *all_threads,
                             struct qplan_error *err);

/* Copies n bytes between files through a buffer with QP_IO_SPARE bytes more. */
enum qplan_status qp_copy_range(const struct qp_st *from, uint64_t from_off,
                                const struct qp_out *out, uint64_t to_off, uint64_t n, void *buffer,
                                struct qplan_error *err);

/*
 * Describes the first value of a tensor that is not finite and how many there are: VALUE. The
 * buffer has room for n_buffer bytes.
 */
enum qplan_status qp_fail_nonfinite(const struct qp_st *st, const struct qplan_entry *entry,
                                    void *buffer, size_t n_buffer, struct qplan_error *err);

#endif
