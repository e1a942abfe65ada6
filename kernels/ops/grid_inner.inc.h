/*
 * grid_inner.inc.h - the taps of points well inside the image, as a template of the working
 * precision; the including file defines NAME(x), POINT(x), WORK and BITS (unsigned, of that size).
 *
 * Bilinear samples are the common ones, and most of their points have all their taps inside. For
 * those padding changes nothing (but reflection rounds, so it is left out) and the text of
 * grid_point.inc.h comes to what is here: short loops without branches, of which compilers make
 * vectors of points. A point that is not inside gets a count of 0 and numbers that mean nothing.
 */

#define CELLS 256

/* Cells that points lie in: along each axis the pixel before the point, and the way from there. */
struct NAME(cells) {
    WORK t[QP_GRID_AXES][CELLS], u[QP_GRID_AXES][CELLS]; /* u = 1 - t */
    int32_t left[QP_GRID_AXES][CELLS];
    int64_t place[CELLS];
};

static inline BITS NAME(bits)(WORK x)
{
    BITS bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline WORK NAME(of_bits)(BITS bits)
{
    WORK x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One axis; g is the first point's number for it, and the next ones are n_axes apart. */
static inline void NAME(cells_of_axis)(const struct POINT(axis) * a, bool align_corners, size_t n,
                                       const WORK *restrict g, size_t n_axes,
                                       struct NAME(cells) *restrict cells, unsigned axis,
                                       uint32_t *restrict count)
{
    WORK *t = cells->t[axis], *u = cells->u[axis];
    int32_t *left = cells->left[axis];
    const WORK last = a->last;
    if (align_corners) {
        for (size_t p = 0; p < n; p++)
            t[p] = POINT(scale)(a, true, g[p * n_axes]);
    } else {
        for (size_t p = 0; p < n; p++)
            t[p] = POINT(scale)(a, false, g[p * n_axes]);
    }
    /* 0 < t < last, as integers: floats above 0 have their order, and NaN and the rest is above. */
    const BITS range = last > 0 ? NAME(bits)(last) - 1 : 0;
    for (size_t p = 0; p < n; p++) {
        const BITS bits = NAME(bits)(t[p]), in = bits - 1 < range ? ~(BITS)0 : 0;
        const WORK at = NAME(of_bits)(bits & in);
        count[p] &= (uint32_t)in;
        left[p] = (int32_t)at;
        t[p] = at - (WORK)left[p];
        u[p] = 1 - t[p];
    }
}

/* Weights of one tap: the products of the axes that are given, in this order. */
static inline void NAME(multiply)(size_t n, const WORK *restrict z, const WORK *restrict y,
                                  const WORK *restrict x, bool negative, WORK *restrict out)
{
    if (z && y && x) {
        for (size_t p = 0; p < n; p++)
            out[p] = z[p] * y[p] * x[p];
        return;
    }
    const WORK *first = z ? z : y, *second = x ? x : y;
    const WORK sign = negative ? (WORK)-1 : 1;
    if (first && second && first != second) {
        for (size_t p = 0; p < n; p++)
            out[p] = sign * (first[p] * second[p]);
    } else {
        for (size_t p = 0; p < n; p++)
            out[p] = sign * second[p];
    }
}

/* Tap t of all points: bit i of t says which pixel along axis i. */
static inline void NAME(corner)(const struct NAME(cells) * cells, size_t n, unsigned n_axes,
                                unsigned t, int64_t step, const struct qp_grid_taps *taps)
{
    const size_t stride = taps->stride;
    const WORK *x = t & 1 ? cells->t[0] : cells->u[0], *y = t & 2 ? cells->t[1] : cells->u[1];
    const WORK *z = n_axes < 3 ? NULL : t & 4 ? cells->t[2] : cells->u[2];
    WORK *weight = (WORK *)taps->weight + (size_t)t * (taps->slopes ? n_axes : 1) * stride;
    int64_t *restrict place = taps->place + t * stride;
    for (size_t p = 0; p < n; p++)
        place[p] = cells->place[p] + step;
    if (!taps->slopes) {
        NAME(multiply)(n, z, y, x, false, weight);
        return;
    }
    NAME(multiply)(n, z, y, NULL, !(t & 1), weight);
    NAME(multiply)(n, z, NULL, x, !(t & 2), weight + stride);
    if (n_axes == 3)
        NAME(multiply)(n, NULL, y, x, !(t & 4), weight + 2 * stride);
}

/* Taps and factors of at most CELLS points. */
static void NAME(inner_points)(const struct qp_grid_rule *rule, const struct POINT(axis) * axes,
                               size_t n, const WORK *g, const struct qp_grid_taps *taps)
{
    const unsigned n_axes = rule->n_axes, n_taps = 1u << n_axes;
    const int64_t row = axes[0].size, plane = axes[0].size * axes[1].size;
    WORK *factor = taps->factor;
    struct NAME(cells) cells;
    for (size_t p = 0; p < n; p++)
        taps->count[p] = n_taps;
    for (unsigned i = 0; i < n_axes; i++)
        NAME(cells_of_axis)
    (&axes[i], rule->align_corners, n, g + i, n_axes, &cells, i, taps->count);
    for (size_t p = 0; p < n; p++)
        cells.place[p] = cells.left[1][p] * row + cells.left[0][p];
    for (size_t p = 0; n_axes == 3 && p < n; p++)
        cells.place[p] += cells.left[2][p] * plane;
    for (unsigned t = 0; t < n_taps; t++)
        NAME(corner)(&cells, n, n_axes, t, (t & 1) + (t & 2 ? row : 0) + (t & 4 ? plane : 0), taps);
    for (unsigned i = 0; taps->slopes && i < n_axes; i++) {
        for (size_t p = 0; p < n; p++)
            factor[p * n_axes + i] = axes[i].slope;
    }
}

#undef CELLS
