/*
 * decode_device.h - a flat range of a quantized tensor on a device, part by part: codes and
 * parameters read, the part on the worker's lane and, for one part in a thousand, the same on the
 * CPU to compare.
 */
#ifndef QP_EXECUTE_FLAT_H
#define QP_EXECUTE_FLAT_H

#include "job.h"
#include "lib/device/recheck.h"
#include "stored.h"

/* The buffers of a worker. */
struct qp_flat_buffers {
    struct qp_lane *lane;
    void *codes; /* room for them, as the file has them or one byte each */
    struct qp_param_window window;
    size_t window_sets;
    double *bound; /* measuring, with what was found */
    void *found;
    struct qp_flat_scratch scratch;
};

/* Takes them for ranges of at most tile_bytes / 8 elements. */
void qp_flat_carve(struct qp_carve *carve, size_t tile_bytes, struct qp_flat_buffers *b);

/* A range on its way. */
struct qp_flat_walk {
    struct qplan_device *device;
    const struct qp_flat_buffers *b;
    const struct qp_source *source;
    const struct qp_tensor *tensor;
    uint64_t elem, n;
    uint64_t at;              /* the part that is in memory: its first element of the range */
    struct qp_flat_work work; /* and what it is for the device; 0 elements before the first */
    struct qp_flat_data data;
    /* Lines of codes whose filling bits are not 0: of those that the device gets one byte each, and
     * of those that it gets as the file has them, which it counts itself when it measures. */
    uint64_t bad_fill, bad_pads;
};

/* Begins a walk over n elements from elem on; as: decoding, what is written. */
void qp_flat_begin(struct qp_flat_walk *walk, enum qplan_dtype as);

/* Reads codes and parameters of the next part; found is false at the end of the range. */
enum qplan_status qp_flat_next(struct qp_flat_walk *walk, bool *found, struct qplan_error *err);

/* The values of the part, to where its first element belongs. */
enum qplan_status qp_flat_decode(const struct qp_flat_walk *walk, void *out,
                                 struct qplan_error *err);

/* Its errors against the source, to b->found. */
enum qplan_status qp_flat_measure(struct qp_flat_walk *walk, const void *src,
                                  struct qplan_error *err);

/* By the CPU: the decoded value of an element of the part, and the error that is allowed there. */
double qp_flat_value_at(const struct qp_flat_walk *walk, uint64_t i, double *bound);

#endif
