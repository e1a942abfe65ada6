/*
 * prove.h - what the two families of proofs share: values that are hard, and the proof of
 * one row on a lane.
 */
#ifndef QP_DEVICE_PROVE_H
#define QP_DEVICE_PROVE_H

#include "device.h"
#include "lib/base/carve.h"

/* The next of a fixed sequence. */
uint32_t qp_proof_random(uint32_t *state);

/* Zeros of both signs, subnormals, ties, and ends of ranges; infinity and NaN where wanted. */
double qp_proof_special(uint32_t random, bool nonfinite);

/* Writes an element of the dtype; bits of what is not finite are kept. */
void qp_proof_put(enum qplan_dtype dtype, double x, void *to);

/* Buffers for proofs of flat ranges. */
struct qp_flat_bench {
    struct qp_gpu *gpu;
    struct qp_lane *lane;
    uint32_t group_size;
    void *src, *scale, *out;
    uint8_t *codes;
    int32_t *zero;
    double *bound;
    struct qp_flat_scratch scratch;
};

void qp_flat_bench_carve(struct qp_carve *carve, struct qp_flat_bench *bench);

/* Device memory that they take. */
uint64_t qp_flat_proof_bytes(void);

enum qplan_status qp_flat_prove_row(const struct qp_flat_bench *bench,
                                    const struct qp_device_row *row, struct qplan_error *err);

#endif
