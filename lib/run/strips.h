/*
 * strips.h - what the units of a plan are made of: reading, ranges, parameters, codes and
 * writing of one piece, and of the strips of a tensor behind each other.
 */
#ifndef QP_EXECUTE_TASK_H
#define QP_EXECUTE_TASK_H

#include "lib/store/transfer.h"
#include "unit.h"

/* All that the steps of a unit need to know. */
struct qp_task {
    const struct qp_unit_context *context;
    const struct qp_unit *unit;
    struct qp_unit_buffers *b;
    const void *src;        /* the elements of the piece */
    const struct qp_st *st; /* of the source */
    const struct qp_source_kernels *kernels;
    const struct qp_quantizer *quantizer;
    struct qp_sets sets;
    struct qp_piece piece;
    struct qp_code_rule rule;
    struct qp_code_form form;
    struct qplan_error *err;
};

/* Sets what depends on the tensor: kernels, sets, rule, form. */
void qp_task_prepare(struct qp_task *task, const struct qp_plan_tensor *t);

/* Bytes of an output tensor, together with what follows; they may wait until qp_task_flush. */
enum qplan_status qp_task_write(const struct qp_task *task, unsigned part, uint64_t off,
                                const void *bytes, size_t n);
enum qplan_status qp_task_flush(const struct qp_task *task);

/* Reads the piece. */
enum qplan_status qp_task_read(struct qp_task *task);

/* The ranges of the piece, in the buffers of the worker. */
enum qplan_status qp_task_ranges(const struct qp_task *task);

/* Finds scale and zero point of the n sets of a strip, and writes the scales. */
enum qplan_status qp_task_params(struct qp_task *task, size_t n, const void *lo, const void *hi,
                                 void *scale, int32_t *zero);

/* Parameters of n sets from that of the strip on, and the codes of the piece, to the output. */
enum qplan_status qp_task_write_scales(const struct qp_task *task, size_t n, const void *scale);
enum qplan_status qp_task_write_zeros(struct qp_task *task, size_t n, const int32_t *zero);
enum qplan_status qp_task_write_codes(struct qp_task *task, const void *scale, const int32_t *zero);

/* A unit whose strips are done one after the other, and its task. */
struct qp_strips {
    struct qp_task task;
    struct qp_unit unit; /* with the strip at hand */
};

void qp_strips_begin(struct qp_strips *s, const struct qp_task *from, const struct qp_unit *unit);

/* The strip at (band, col) and its piece, which is all of it, become those at hand. */
void qp_strips_set(struct qp_strips *s, uint64_t band, uint64_t col);

/*
 * Does them, from that of the unit on. Their elements are in memory, behind each other from bytes
 * on, or are read for each strip where bytes is NULL.
 */
enum qplan_status qp_strips_quantize(struct qp_strips *s, const char *bytes);

/* A unit of the kind QP_UNIT_BATCH. */
enum qplan_status qp_batch_run(struct qp_task *task);

#endif
