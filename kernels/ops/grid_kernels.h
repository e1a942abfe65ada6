/*
 * grid_kernels.h - sampling an image at the points of a grid: which pixels a point reads, with
 * which weights, and the loops over points and channels.
 *
 * What a point reads is a list of taps in raster order: the place of a pixel in its plane and a
 * weight. Taps outside the image are not in the list, so a point that reads nothing has an empty
 * one, and every loop is the same for all modes, paddings and dimensions. The arithmetic of a point
 * is in grid_point.inc.h, once for each working precision: scalar, one IEEE operation at a time, no
 * function of a library but fmod, which is exact. Devices have the same steps in
 * kernels/gpu/qk_grid_work.inc.h.
 *
 * Channels are worked on side by side: up to QP_GRID_LANES planes are interleaved, so that one tap
 * is one run of memory and the inner loops are over lanes. An image with a plane and a depth of 1
 * is 2-D; axis 0 is x, 1 is y, 2 is z.
 */
#ifndef QP_KERNELS_OPS_GRID_H
#define QP_KERNELS_OPS_GRID_H

#include "sum.h"

#include <float.h>
#include <string.h>

enum qp_grid_mode { QP_GRID_BILINEAR, QP_GRID_NEAREST, QP_GRID_BICUBIC };
enum qp_grid_padding { QP_GRID_ZEROS, QP_GRID_BORDER, QP_GRID_REFLECTION };

#define QP_GRID_AXES      3
#define QP_GRID_AXIS_TAPS 4
#define QP_GRID_LANES     8

struct qp_grid_rule {
    enum qp_grid_mode mode;
    enum qp_grid_padding padding;
    bool align_corners;
    unsigned n_axes;            /* 2 or 3: numbers of a point */
    int64_t size[QP_GRID_AXES]; /* pixels along x, y, z; z is 1 in 2-D */
};

/*
 * The taps of some points. Tap t of point p is at t * stride + p. Weights are in working precision.
 * For slopes there is a weight for each axis, the derivative by the pixel coordinate of that axis,
 * at (t * n_axes + axis) * stride + p, and a factor for each point and axis, the derivative of that
 * coordinate by the grid.
 */
struct qp_grid_taps {
    size_t stride;
    bool slopes;
    uint32_t *count;
    int64_t *place;
    void *weight, *factor;
};

/* ---- The arithmetic of a point ----------------------------------------------------------------
 */

#define NAME(x)   qp_grid_##x##_f32
#define WORK      float
#define WORK_MAX  FLT_MAX
#define WORK_HALF 0x1p-24f /* half the distance from 1 to the next value */
#define WHOLE     0x1p23f  /* from here on every value is an integer */
#define INTEGER   int32_t
#include "grid_point.inc.h"

#define NAME(x)   qp_grid_##x##_f64
#define WORK      double
#define WORK_MAX  DBL_MAX
#define WORK_HALF 0x1p-53
#define WHOLE     0x1p52
#define INTEGER   int64_t
#include "grid_point.inc.h"

/* ---- Loops ------------------------------------------------------------------------------------
 */

/* Taps of a point at most. */
static inline unsigned qp_grid_max_taps(const struct qp_grid_rule *rule)
{
    if (rule->mode == QP_GRID_NEAREST)
        return 1;
    return rule->mode == QP_GRID_BICUBIC ? 16 : 1u << rule->n_axes;
}

/* Pixels that a worker owns, of a plane; interleaved with the width of the lanes. */
struct qp_grid_band {
    int64_t begin, n;
    double *hi, *lo; /* lo: f64 only */
};

/*
 * Sums of n points, n_axes each: for each lane in ascending order, dout times the sum of weight *
 * pixel over the taps, which are slopes.
 */
struct qp_grid_slopes {
    size_t n;
    unsigned n_lanes;
    const struct qp_grid_taps *taps;
    const void *image, *dout; /* interleaved, in working precision */
    double *hi, *lo;          /* lo: f64 only */
};

/*
 * The loops of one working precision. width is the number of lanes in memory: 8, 4 or 1; the
 * n_lanes first of them are in use.
 */
struct qp_grid_kernels {
    enum qplan_dtype work;
    enum qplan_isa isa;

    /* The taps of n points from their coordinates, n_axes numbers each. */
    void (*points)(const struct qp_grid_rule *rule, size_t n, const void *coordinates,
                   const struct qp_grid_taps *taps);

    /* dst[i][lane] = src[lane][i]; lanes that are not in use have the numbers of the first. */
    void (*interleave)(unsigned width, unsigned n_lanes, size_t n, const void *const *src,
                       void *dst);

    /* out[lane][p] = sum of weight * pixel over the taps, in f64; rows of out are n_out apart. */
    void (*sample)(unsigned width, size_t n, const struct qp_grid_taps *taps, const void *image,
                   double *out, size_t n_out);

    /* Adds weight * dout to the pixels of a band; the rest of the taps is not looked at. */
    void (*scatter)(unsigned width, size_t n, const struct qp_grid_taps *taps, const void *dout,
                    const struct qp_grid_band *band);

    /* The sums of the slopes; see struct qp_grid_slopes. */
    void (*slopes)(unsigned width, unsigned n_axes, const struct qp_grid_slopes *job);
};

/* to[lane][i] = from[i][lane], for sums; rows of to are n_to apart. */
void qp_grid_separate(unsigned width, size_t n, const double *from, double *to, size_t n_to);

/* The best loops for a working precision at a level; every level gives the same bits. */
const struct qp_grid_kernels *qp_grid_kernels(enum qplan_dtype work, enum qplan_isa isa);

/* Those of AVX2: f32, f64; NULL where the compiler has none. */
extern const struct qp_grid_kernels *const qp_grid_avx2_rows[2];

#endif
