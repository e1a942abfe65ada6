/*
 * on_device.h - the steps of a unit on a device: a tile on the worker's lane and, for one tile
 * in a thousand, the same on the CPU to compare.
 */
#ifndef QP_EXECUTE_DEVICE_H
#define QP_EXECUTE_DEVICE_H

#include "unit.h"

/* A tile of a run. */
struct qp_device_step {
    struct qplan_device *device;
    const struct qp_unit_buffers *b; /* with a lane */
    struct qp_device_work work;
    const void *src;
};

/* What a piece of a tensor, whose codes follow a rule, is for a device. */
struct qp_device_work qp_device_work(const struct qp_plan_tensor *t,
                                     const struct qp_code_rule *rule, const struct qp_sets *sets,
                                     const struct qp_piece *piece);

/* Ranges, parameters and codes; ranges; codes with known parameters. Results are in b->made. */
enum qplan_status qp_step_quantize(const struct qp_device_step *step, struct qp_device_made *made,
                                   struct qplan_error *err);
enum qplan_status qp_step_ranges(const struct qp_device_step *step, struct qp_device_made *made,
                                 struct qplan_error *err);
enum qplan_status qp_step_codes(const struct qp_device_step *step, const void *scale,
                                const int32_t *zero, struct qp_device_made *made,
                                struct qplan_error *err);

#endif
