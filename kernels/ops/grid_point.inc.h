/*
 * grid_point.inc.h - which pixels a point of a grid reads, as a template of the working precision.
 *
 * The including file defines NAME(x), WORK, WORK_MAX, WORK_HALF, WHOLE and INTEGER. The formulas
 * and their order are those of PyTorch. Where PyTorch converts a number to an integer that it does
 * not fit in, this text compares first, so every coordinate has a meaning:
 *
 *   not finite       the point reads nothing; but infinity under border padding, except for
 *                    bicubic, is the pixel at that end
 *   finite, large    the pixel coordinate is clipped to the largest finite number if it is not one
 */

/* Constants of an axis. */
struct NAME(axis) {
    int64_t size;
    WORK extent, last;    /* size and size - 1; last is rounded down where it is not exact */
    WORK low, high, span; /* where reflection turns round, and their distance */
    WORK slope;           /* the derivative of the pixel coordinate by the grid */
};

static inline struct NAME(axis) NAME(axis)(int64_t size, bool align_corners)
{
    struct NAME(axis) a;
    a.size = size;
    a.extent = (WORK)size;
    a.last = (WORK)(size - 1);
    if ((int64_t)a.last > size - 1)
        a.last *= 1 - WORK_HALF;
    a.low = align_corners ? 0 : (WORK)-0.5;
    a.high = align_corners ? a.last : a.extent - (WORK)0.5;
    a.span = align_corners ? a.last : a.extent;
    a.slope = (align_corners ? a.last : a.extent) / 2;
    return a;
}

/* ---- Rounding to integers ---------------------------------------------------------------------
 */

static inline WORK NAME(floor)(WORK x)
{
    if (!(x < WHOLE && x > -WHOLE))
        return x;
    WORK below = (WORK)(INTEGER)x;
    return below > x ? below - 1 : below;
}

/* Ties to even: a sum with WHOLE has no bits below 1. */
static inline WORK NAME(nearest)(WORK x)
{
    if (!(x < WHOLE && x > -WHOLE))
        return x;
    return x < 0 ? (x - WHOLE) + WHOLE : (x + WHOLE) - WHOLE;
}

/* ---- Pixel coordinates ------------------------------------------------------------------------
 */

/* Whether a number of a point lets the point read at all. */
static inline bool NAME(reads)(const struct qp_grid_rule *rule, WORK g)
{
    if (g >= -WORK_MAX && g <= WORK_MAX)
        return true;
    return g == g && rule->padding == QP_GRID_BORDER && rule->mode != QP_GRID_BICUBIC;
}

/* A coordinate in pixels, and the derivative by what it was before padding: -1, 0 or 1. */
struct NAME(pixel) {
    WORK at, factor;
};

static inline WORK NAME(scale)(const struct NAME(axis) * a, bool align_corners, WORK g)
{
    return align_corners ? (g + 1) / 2 * a->last : ((g + 1) * a->extent - 1) / 2;
}

static inline WORK NAME(unnormalize)(const struct NAME(axis) * a, bool align_corners, WORK g)
{
    if (!(g >= -WORK_MAX && g <= WORK_MAX))
        return g > 0 ? WORK_MAX : -WORK_MAX;
    WORK p = NAME(scale)(a, align_corners, g);
    p = p > WORK_MAX ? WORK_MAX : p;
    return p < -WORK_MAX ? -WORK_MAX : p;
}

/* The edges count as outside. */
static inline struct NAME(pixel) NAME(clip)(const struct NAME(axis) * a, struct NAME(pixel) p)
{
    if (p.at <= 0)
        return (struct NAME(pixel)){0, 0};
    if (p.at >= a->last)
        return (struct NAME(pixel)){a->last, 0};
    return p;
}

/*
 * Mirrored at low and high until it is between them. The number of mirrorings matters only by being
 * even or odd, so the remainder is that of twice the span; fmod is exact, and f32 has its remainder
 * in f64.
 */
static inline struct NAME(pixel) NAME(reflect)(const struct NAME(axis) * a, struct NAME(pixel) p)
{
    if (a->span == 0)
        return (struct NAME(pixel)){0, 0};
    WORK d = p.at - a->low, sign = d < 0 ? (WORK)-1 : 1;
    d = d < 0 ? -d : d;
    if (!(d < 2 * a->span))
        d = (WORK)fmod((double)d, (double)(2 * a->span));
    if (d < a->span)
        return (struct NAME(pixel)){d + a->low, sign};
    return (struct NAME(pixel)){a->high - (d - a->span), -sign};
}

static inline struct NAME(pixel)
    NAME(pad)(const struct qp_grid_rule *rule, const struct NAME(axis) * a, WORK at)
{
    struct NAME(pixel) p = {at, 1};
    if (rule->padding == QP_GRID_ZEROS)
        return p;
    if (rule->padding == QP_GRID_REFLECTION)
        p = NAME(reflect)(a, p);
    return NAME(clip)(a, p);
}

/* ---- Taps of one axis -------------------------------------------------------------------------
 */

/* Pixels along an axis, their weights and the derivatives of these; n = 0: the point reads none. */
struct NAME(line) {
    unsigned n;
    int64_t index[QP_GRID_AXIS_TAPS];
    WORK weight[QP_GRID_AXIS_TAPS], slope[QP_GRID_AXIS_TAPS];
    WORK factor;
};

/* Adds a tap if it is on the axis. */
static inline void NAME(tap)(struct NAME(line) * line, const struct NAME(axis) * a, WORK at,
                             WORK weight, WORK slope)
{
    if (!(at >= 0 && at <= a->last))
        return;
    line->index[line->n] = (int64_t)at;
    line->weight[line->n] = weight;
    line->slope[line->n++] = slope;
}

static inline void NAME(linear)(struct NAME(line) * line, const struct NAME(axis) * a,
                                struct NAME(pixel) p)
{
    const WORK left = NAME(floor)(p.at), t = p.at - left;
    line->factor = p.factor;
    NAME(tap)(line, a, left, 1 - t, -1);
    NAME(tap)(line, a, left + 1, t, 1);
}

/* Keys' convolution with A = -3/4, inside one pixel and between one and two pixels away. */
#define CUBIC_A ((WORK)-0.75)

static inline WORK NAME(cubic_near)(WORK x)
{
    return ((CUBIC_A + 2) * x - (CUBIC_A + 3)) * x * x + 1;
}

static inline WORK NAME(cubic_far)(WORK x)
{
    return ((CUBIC_A * x - 5 * CUBIC_A) * x + 8 * CUBIC_A) * x - 4 * CUBIC_A;
}

static inline WORK NAME(cubic_near_slope)(WORK x)
{
    return (3 * (CUBIC_A + 2) * x - 2 * (CUBIC_A + 3)) * x;
}

static inline WORK NAME(cubic_far_slope)(WORK x)
{
    return (3 * CUBIC_A * x - 10 * CUBIC_A) * x + 8 * CUBIC_A;
}

#undef CUBIC_A

/* Not the coordinate is padded, but each of the four taps, which are integers. */
static inline void NAME(cubic)(struct NAME(line) * line, const struct qp_grid_rule *rule,
                               const struct NAME(axis) * a, WORK at)
{
    const WORK left = NAME(floor)(at), t = at - left, u = 1 - t;
    const WORK weight[QP_GRID_AXIS_TAPS] = {NAME(cubic_far)(t + 1), NAME(cubic_near)(t),
                                            NAME(cubic_near)(u), NAME(cubic_far)(u + 1)};
    const WORK slope[QP_GRID_AXIS_TAPS] = {NAME(cubic_far_slope)(t + 1), NAME(cubic_near_slope)(t),
                                           -NAME(cubic_near_slope)(u),
                                           -NAME(cubic_far_slope)(u + 1)};
    line->factor = 1;
    for (int i = 0; i < QP_GRID_AXIS_TAPS; i++)
        NAME(tap)(line, a, NAME(pad)(rule, a, left + (WORK)(i - 1)).at, weight[i], slope[i]);
}

static inline void NAME(line)(struct NAME(line) * line, const struct qp_grid_rule *rule,
                              const struct NAME(axis) * a, WORK g)
{
    const WORK at = NAME(unnormalize)(a, rule->align_corners, g);
    line->n = 0;
    if (rule->mode == QP_GRID_BICUBIC)
        NAME(cubic)(line, rule, a, at);
    else if (rule->mode == QP_GRID_BILINEAR)
        NAME(linear)(line, a, NAME(pad)(rule, a, at));
    else
        NAME(tap)(line, a, NAME(nearest)(NAME(pad)(rule, a, at).at), 1, 0);
}

/* ---- Taps of a point --------------------------------------------------------------------------
 */

/* Lines of a point, x first; false if it reads nothing. In 2-D the line of z is the plane itself.
 */
static inline bool NAME(lines)(const struct qp_grid_rule *rule, const struct NAME(axis) * axes,
                               const WORK *g, struct NAME(line) * lines)
{
    for (unsigned i = 0; i < rule->n_axes; i++) {
        if (!NAME(reads)(rule, g[i]))
            return false;
    }
    lines[2].n = 1;
    lines[2].index[0] = 0;
    lines[2].weight[0] = 1;
    for (unsigned i = 0; i < rule->n_axes; i++)
        NAME(line)(&lines[i], rule, &axes[i], g[i]);
    return true;
}

/*
 * Writes the taps of point p; returns how many. A product has its z first. With slopes there is a
 * weight for each axis, with the derivative along that axis in place of the line's weight.
 */
static inline unsigned NAME(products)(const struct NAME(axis) * axes,
                                      const struct NAME(line) * lines, unsigned n_axes,
                                      const struct qp_grid_taps *taps, size_t p)
{
    const struct NAME(line) *x = &lines[0], *y = &lines[1], *z = &lines[2];
    const size_t stride = taps->stride;
    WORK *weight = (WORK *)taps->weight + p;
    unsigned t = 0;
    for (unsigned k = 0; k < z->n; k++) {
        for (unsigned j = 0; j < y->n; j++) {
            const int64_t row = (z->index[k] * axes[1].size + y->index[j]) * axes[0].size;
            const WORK w = z->weight[k] * y->weight[j], w_y = z->weight[k] * y->slope[j];
            for (unsigned i = 0; i < x->n; i++, t++) {
                taps->place[t * stride + p] = row + x->index[i];
                *weight = w * (taps->slopes ? x->slope[i] : x->weight[i]);
                weight += stride;
                if (!taps->slopes)
                    continue;
                *weight = w_y * x->weight[i];
                weight += stride;
                if (n_axes == 2)
                    continue;
                *weight = z->slope[k] * y->weight[j] * x->weight[i];
                weight += stride;
            }
        }
    }
    return t;
}

/*
 * The taps of point p, whose coordinates are at g, and with slopes its factors. The derivative of
 * nearest is 0: it has no taps.
 */
static inline void NAME(point)(const struct qp_grid_rule *rule, const struct NAME(axis) * axes,
                               const WORK *g, const struct qp_grid_taps *taps, size_t p)
{
    const unsigned n_axes = rule->n_axes;
    WORK *factor = taps->factor;
    struct NAME(line) lines[QP_GRID_AXES];
    const bool reads =
        !(taps->slopes && rule->mode == QP_GRID_NEAREST) && NAME(lines)(rule, axes, g, lines);
    taps->count[p] = reads ? NAME(products)(axes, lines, n_axes, taps, p) : 0;
    for (unsigned i = 0; taps->slopes && i < n_axes; i++)
        factor[p * n_axes + i] = reads ? axes[i].slope * lines[i].factor : 0;
}

#undef NAME
#undef WORK
#undef WORK_MAX
#undef WORK_HALF
#undef WHOLE
#undef INTEGER
