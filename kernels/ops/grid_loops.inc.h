/*
 * grid_loops.inc.h - the loops of grid sampling, as a template of the working precision.
 *
 * The including file defines NAME(x) for what is defined here, POINT(x) for what grid_point.inc.h
 * defined, WORK, BITS, WORK_DTYPE, KEEPS_ERRORS and ISA.
 */

typedef double NAME(quad) __attribute__((vector_size(4 * sizeof(double))));
typedef WORK NAME(work_quad) __attribute__((vector_size(4 * sizeof(WORK))));

#define LANES(x)  NAME(x##_one)
#define VEC       double
#define WORK_VEC  WORK
#define WIDEN(v)  ((double)(v))
#define VEC_LANES 1
#include "grid_lanes.inc.h"

#define LANES(x)  NAME(x##_quad)
#define VEC       NAME(quad)
#define WORK_VEC  NAME(work_quad)
#define WIDEN(v)  __builtin_convertvector(v, NAME(quad))
#define VEC_LANES 4
#include "grid_lanes.inc.h"

#include "grid_inner.inc.h"

/* Whether the short way is for some points of this problem; it has indices in int32. */
static bool NAME(has_inner)(const struct qp_grid_rule *rule)
{
    bool has = rule->mode == QP_GRID_BILINEAR && rule->padding != QP_GRID_REFLECTION;
    for (unsigned i = 0; i < QP_GRID_AXES; i++)
        has &= rule->size[i] <= 1 << 23;
    return has;
}

static void NAME(points)(const struct qp_grid_rule *rule, size_t n, const void *coordinates,
                         const struct qp_grid_taps *taps)
{
    const WORK *g = coordinates;
    struct POINT(axis) axes[QP_GRID_AXES];
    for (unsigned i = 0; i < QP_GRID_AXES; i++)
        axes[i] = POINT(axis)(rule->size[i], rule->align_corners);
    if (NAME(has_inner)(rule))
        NAME(inner_points)(rule, axes, n, g, taps);
    else
        memset(taps->count, 0, n * sizeof *taps->count);
    for (size_t p = 0; p < n; p++) {
        if (taps->count[p] == 0)
            POINT(point)(rule, axes, g + p * rule->n_axes, taps, p);
    }
}

ALWAYS_INLINE void NAME(interleave_lanes)(const unsigned width, unsigned n_lanes, size_t n,
                                          const void *const *src, WORK *restrict to)
{
    const WORK *from[QP_GRID_LANES];
    for (unsigned k = 0; k < width; k++)
        from[k] = src[k < n_lanes ? k : 0];
    for (size_t i = 0; i < n; i++) {
        for (unsigned k = 0; k < width; k++)
            to[i * width + k] = from[k][i];
    }
}

static void NAME(interleave)(unsigned width, unsigned n_lanes, size_t n, const void *const *src,
                             void *dst)
{
    if (width == 8)
        NAME(interleave_lanes)(8, n_lanes, n, src, dst);
    else if (width == 4)
        NAME(interleave_lanes)(4, n_lanes, n, src, dst);
    else
        memcpy(dst, src[0], n * sizeof(WORK));
}

/* ---- A copy for each width --------------------------------------------------------------------
 */

static void NAME(sample)(unsigned width, size_t n, const struct qp_grid_taps *taps,
                         const void *image, double *out, size_t n_out)
{
    if (width == 8)
        NAME(sample_quad)(2, n, taps, image, out, n_out);
    else if (width == 4)
        NAME(sample_quad)(1, n, taps, image, out, n_out);
    else
        NAME(sample_one)(1, n, taps, image, out, n_out);
}

static void NAME(scatter)(unsigned width, size_t n, const struct qp_grid_taps *taps,
                          const void *dout, const struct qp_grid_band *band)
{
    if (width == 8)
        NAME(scatter_quad)(2, n, taps, dout, band);
    else if (width == 4)
        NAME(scatter_quad)(1, n, taps, dout, band);
    else
        NAME(scatter_one)(1, n, taps, dout, band);
}

static void NAME(slopes)(unsigned width, unsigned n_axes, const struct qp_grid_slopes *job)
{
    if (width == 8 && n_axes == 2)
        NAME(slopes_quad)(2, 2, job);
    else if (width == 8)
        NAME(slopes_quad)(2, 3, job);
    else if (width == 4 && n_axes == 2)
        NAME(slopes_quad)(1, 2, job);
    else if (width == 4)
        NAME(slopes_quad)(1, 3, job);
    else if (n_axes == 2)
        NAME(slopes_one)(1, 2, job);
    else
        NAME(slopes_one)(1, 3, job);
}

static const struct qp_grid_kernels NAME(kernels) = {
    .work = WORK_DTYPE,
    .isa = ISA,
    .points = NAME(points),
    .interleave = NAME(interleave),
    .sample = NAME(sample),
    .scatter = NAME(scatter),
    .slopes = NAME(slopes),
};

#undef NAME
#undef POINT
#undef WORK
#undef BITS
#undef WORK_DTYPE
#undef KEEPS_ERRORS
