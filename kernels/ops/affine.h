/*
 * affine.h - what fake quantizing and the gradients of quantizing do to float data, tile by tile.
 *
 * For an element x of a set with scale s and zero point z, in working precision:
 *
 *     r = rne(x / s)                              an IEEE quotient, half to even, any size
 *     inside = q_min - z <= r <= q_max - z        both ends are exact; not so where x is NaN
 *     steps = clamp(r, q_min - z, q_max - z)      q - z; 0 where x is NaN
 *
 * One text for all of it (affine.inc.h), so the code that a forward operator makes and the mask of
 * a backward one cannot disagree. q_min, q_max and z lie within +-2^23, so their differences are
 * exact in f32.
 */
#ifndef QP_KERNELS_OPS_AFFINE_H
#define QP_KERNELS_OPS_AFFINE_H

#include "sum.h"

/* A tile and its parameters: arrays with one element for each set of the tile. */
struct qp_affine {
    const struct qp_tile *tile;
    int32_t q_min, q_max;
    const void *scale; /* in working precision */
    const int32_t *zero;
};

/*
 * Elementwise work on a tile. All data has one dtype; out may be dout or x, or overlap neither.
 * Where only one of dout and x is used, the other must be the same pointer. Returns how many finite
 * dout gave a result too large for the dtype, which is stored as infinity.
 */
typedef uint64_t (*qp_affine_fn)(const struct qp_affine *affine, const void *dout, const void *x,
                                 void *out);

/* The two sums of each set of a tile, which learn adds to. */
struct qp_affine_sums {
    struct qp_sum *scale, *zero;
};

/* The kernels for one float dtype. */
struct qp_affine_kernels {
    enum qplan_dtype dtype;
    enum qplan_isa isa;

    qp_affine_fn fake;                /* s * steps, clipped to the finite range of the dtype */
    qp_affine_fn fake_backward;       /* inside ? the bits of dout : 0 */
    qp_affine_fn quantize_backward;   /* inside ? dout / s : 0 */
    qp_affine_fn dequantize_backward; /* dout * s */

    /*
     * The same where codes stand for values of their own: there is no zero point, q_min and q_max
     * are the least and the largest value, and inside = q_min <= x / s <= q_max.
     */
    qp_affine_fn fake_backward_values, quantize_backward_values;

    /*
     * fake_backward, and the gradients of scale and zero point: for each element in ascending order
     * the sums of its set grow by
     *
     *     scale:  dout * (inside ? steps - x / s : steps)     zero:  inside ? 0 : -(dout * s)
     *
     * with every operation in f64; a NaN x adds nothing. Sums of f64 data keep their errors.
     */
    void (*learn)(const struct qp_affine *affine, const void *dout, const void *x, void *out,
                  const struct qp_affine_sums *sums);

    /* Zero points of n floats of working precision: clamp(rne(from), least, most). */
    void (*round_zero)(size_t n, const void *from, int32_t least, int32_t most, int32_t *zero);
};

/* The best kernels for a dtype at a level. */
const struct qp_affine_kernels *qp_affine_kernels(enum qplan_dtype dtype, enum qplan_isa isa);

/* The rows of AVX2, ended by NULL; none on another architecture. */
extern const struct qp_affine_kernels *const qp_affine_avx2_rows[];

#endif
