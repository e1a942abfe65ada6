/*
 * strips.h - what a worker does with the values of a tensor: reading, calibrating, codes and
 * writing of one piece, and of the strips of a tensor behind each other.
 */
#ifndef QP_RUN_STRIPS_H
#define QP_RUN_STRIPS_H

#include "unit.h"

/* A worker, and what it has at hand. */
struct qp_worker {
    const struct qp_unit_context *context;
    const struct qp_unit *unit;
    struct qp_unit_buffers *b;
    const void *src; /* the elements of the piece */
    const struct qp_source_kernels *kernels;
    const struct qp_quantizer *quantizer;
    struct qp_sets sets;
    struct qp_piece piece;
    struct qp_code_rule rule;
    struct qp_hold hold; /* of the unit */
    struct qplan_error *err;
};

/* Sets what depends on the tensor of the unit. */
void qp_worker_prepare(struct qp_worker *worker);

/*
 * Writes bytes of a stored tensor from its byte off on. They may wait for what follows them until
 * qp_worker_flush, together with others of their kind.
 */
enum qplan_status qp_worker_write(struct qp_worker *worker, enum qp_joined_kind kind,
                                  const struct qplan_entry *entry, uint64_t off, const void *bytes,
                                  size_t n);
enum qplan_status qp_worker_flush(struct qp_worker *worker);

/* Holds rows of the unit, if it says so: what is put of them is written when it is released. */
void qp_worker_hold(struct qp_worker *worker);
enum qplan_status qp_worker_release(struct qp_worker *worker);

/* Reads the piece. */
enum qplan_status qp_worker_read(struct qp_worker *worker);

/* Lets the calibrator see the piece: b->state is then the state of its sets. */
enum qplan_status qp_worker_see(struct qp_worker *worker, unsigned pass);

/* Ends a pass of the calibrator over the n sets of the strip. VALUE if a scale is too large. */
enum qplan_status qp_worker_finish(const struct qp_worker *worker, unsigned pass, size_t n,
                                   void *state, void *scale, int32_t *zero);

/*
 * Writes scales and zero points, or biases, of the n sets of the strip, and the codes of the piece.
 * Scales that are written become those that codes are made by.
 */
enum qplan_status qp_worker_put_scales(struct qp_worker *worker, size_t n, void *scale);
enum qplan_status qp_worker_put_zeros(struct qp_worker *worker, size_t n, const int32_t *zero);
enum qplan_status qp_worker_put_codes(struct qp_worker *worker, const void *scale,
                                      const int32_t *zero);

/* Adds the errors of the codes of the piece, which these parameters made, to that of the unit. */
void qp_worker_measure(const struct qp_worker *worker, const uint8_t *codes, const void *scale,
                       const int32_t *zero);

/*
 * Quantizes the strips of a tensor that fit a tile, one after the other, from that of the unit on.
 * Their elements are in memory, behind each other from bytes on, or are read for each strip where
 * bytes is NULL.
 */
enum qplan_status qp_quantize_strips(const struct qp_worker *from, const struct qp_unit *unit,
                                     const char *bytes);

/* Does a unit of the kind QP_UNIT_BATCH. */
enum qplan_status qp_run_batch(struct qp_worker *worker);

#endif
