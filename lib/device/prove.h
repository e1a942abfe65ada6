/*
 * prove.h - the fixed vectors that tiles and ranges are proven on, and what they are run in.
 */
#ifndef QP_DEVICE_PROVE_H
#define QP_DEVICE_PROVE_H

#include "recheck.h"

/* Device memory that a proof takes. */
uint64_t qp_device_proof_bytes(void);

/* Runs the vectors through every kernel of n rows, given by their numbers, but for rows that the
 * device has proven. */
enum qplan_status qp_device_prove_rows(struct qplan_device *device, const uint32_t *rows, size_t n,
                                       struct qplan_error *err);

/* Runs them through the kernels of all rows that the device can do. */
enum qplan_status qp_device_prove_all_rows(struct qplan_device *device, struct qplan_error *err);

/* ---- For the vectors --------------------------------------------------------------------------
 */

/* Every tile and every range of the lists fits. */
#define QP_PROOF_BYTES ((size_t)512 << 10)
#define QP_PROOF_ELEMS (QP_PROOF_BYTES / sizeof(double))

/* What a proof works in. */
struct qp_bench {
    struct qplan_device *device;
    struct qp_device_row row; /* that is being proven */
    struct qp_lane *lane;
    void *block; /* that the buffers are cut from */
    void *src, *out;
    struct qp_device_scratch tile;

    /* Of ranges: what is decoded, and the buffers of the CPU. */
    uint8_t *codes;
    void *scale;
    int32_t *zero;
    double *bound;
    struct qp_flat_scratch range;
};

/* The vectors of ranges, for a row of the way back (prove_range.c). */
enum qplan_status qp_prove_ranges(const struct qp_bench *bench, struct qplan_error *err);

#endif
