/*
 * window.h - parameters that cannot be computed again, beside what the source needs.
 */
#ifndef QP_VERIFY_WINDOW_H
#define QP_VERIFY_WINDOW_H

#include "measure.h"

/*
 * Compares the parameters of quantized tensors, which have been measured, with those that minmax
 * has for their source, and sets .far of their results. VALUE if minmax has none of their type. CPU
 * only.
 */
enum qplan_status qp_judge_windows(struct qp_pair **pairs, size_t n,
                                   const struct qplan_checkpoint *file,
                                   const struct qplan_checkpoint *source,
                                   const struct qplan_run *run, struct qplan_error *err);

#endif
