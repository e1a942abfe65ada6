/*
 * on_range.h - a flat range of a quantized tensor on one lane of a device: its codes decoded, or
 * compared with the source. The same results as the kernels of the CPU, bit for bit.
 */
#ifndef QP_DEVICE_FLAT_H
#define QP_DEVICE_FLAT_H

#include "kernels/backends/backend.h"
#include "kernels/kernel.h"

/* What is to be done with a range. */
struct qp_flat_work {
    enum qplan_dtype dtype; /* of the source, from which the working precision follows */
    enum qplan_dtype as;    /* decoding: what is written */
    struct qp_sets sets;
    uint64_t elem, n; /* elements; measuring: elem is a multiple of QP_BLOCK */
    struct qp_set_window window;
    struct qp_code_rule rule;
    bool packed; /* two codes a byte */
};

/* Its data in memory: codes as the file has them, parameters of the sets of the window. */
struct qp_flat_data {
    const uint8_t *codes;
    const void *scale; /* in working precision */
    const int32_t *zero;
    const void *src;     /* measuring */
    const double *bound; /* measuring */
};

/* Bytes of the codes of a range. */
size_t qp_flat_code_bytes(const struct qp_flat_work *work);

/* What measuring found in a block; positions count from its first element. */
struct qp_flat_found {
    struct qp_sums sums;
    struct qp_check check;
    uint64_t bad_pads;
};

/* For ranges of at most tile_bytes / 8 elements: sets of a window, device memory, and results. */
size_t qp_flat_window_sets(size_t tile_bytes);
uint64_t qp_flat_block_bytes(size_t tile_bytes);
uint64_t qp_flat_found_bytes(size_t tile_bytes);

/* The values of a range, as they are written. */
enum qplan_status qp_device_decode(struct qp_lane *lane, const struct qp_flat_work *work,
                                   const struct qp_flat_data *data, void *out,
                                   struct qplan_error *err);

/* The errors of a range. found has room for qp_flat_found_bytes and is read by qp_flat_found_at. */
enum qplan_status qp_device_measure(struct qp_lane *lane, const struct qp_flat_work *work,
                                    const struct qp_flat_data *data, void *found,
                                    struct qplan_error *err);

/* What was found in a block of the range. */
struct qp_flat_found qp_flat_found_at(const struct qp_flat_work *work, const void *found,
                                      size_t block);

#endif
