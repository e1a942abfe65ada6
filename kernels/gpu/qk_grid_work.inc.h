/*
 * qk_grid_work.inc.h - which pixels a point of a grid reads, and with which weights, as a template
 * of the working precision. The specification is kernels/ops/grid_point.inc.h: the same steps, but
 * a tap outside of the image keeps its slot, so that no index into an array is made at run time.
 *
 * The including file defines IN(op), WORK, WORK_MAX and WHOLE, from which magnitude on WORK has no
 * fractions.
 */

struct IN(axis) {
    WORK extent, last, low, high, span, slope;
};

/* A coordinate in pixels, and the derivative by what it was before padding: -1, 0 or 1. */
struct IN(pixel) {
    WORK at, factor;
};

/* Four slots of an axis: pixel or QK_GRID_NONE, weight, and the derivative of the weight. */
struct IN(line) {
    qk_u32 i0, i1, i2, i3;
    WORK w0, w1, w2, w3;
    WORK s0, s1, s2, s3;
    WORK factor;
};

struct IN(point) {
    qk_u32 reads;
    struct IN(line) x, y, z; /* in 2-D z is the plane itself */
};

QK_FN struct IN(axis) IN(axis_of)(const struct qk_grid_axis *from)
{
    struct IN(axis) a;
    a.extent = (WORK)QK_F64(from->extent);
    a.last = (WORK)QK_F64(from->last);
    a.low = (WORK)QK_F64(from->low);
    a.high = (WORK)QK_F64(from->high);
    a.span = (WORK)QK_F64(from->span);
    a.slope = (WORK)QK_F64(from->slope);
    return a;
}

/* ---- Rounding to integers ---------------------------------------------------------------------
 */

/* Ties to even; a zero is positive. */
QK_FN WORK IN(nearest)(WORK x)
{
    WORK shift = x < 0 ? -(WHOLE) : (WHOLE), near = (x + shift) - shift;
    return x > -(WHOLE) && x < (WHOLE) ? near : x;
}

QK_FN WORK IN(below)(WORK x)
{
    WORK near = IN(nearest)(x);
    return near > x ? near - 1 : near;
}

/* ---- Pixel coordinates ------------------------------------------------------------------------
 */

QK_FN qk_u32 IN(is_finite)(WORK x)
{
    return x >= -(WORK_MAX) && x <= (WORK_MAX);
}

/* Whether a number of a point lets the point read at all. */
QK_FN qk_u32 IN(reads)(const struct qk_grid_args *a, WORK g)
{
    if (IN(is_finite)(g))
        return 1;
    return g == g && a->padding == QK_GRID_BORDER && a->mode != QK_GRID_BICUBIC;
}

QK_FN WORK IN(unnormalize)(const struct IN(axis) * axis, qk_u32 align_corners, WORK g)
{
    if (!IN(is_finite)(g))
        return g > 0 ? (WORK_MAX) : -(WORK_MAX);
    WORK p = align_corners ? (g + 1) / 2 * axis->last : ((g + 1) * axis->extent - 1) / 2;
    p = p > (WORK_MAX) ? (WORK_MAX) : p;
    return p < -(WORK_MAX) ? -(WORK_MAX) : p;
}

/* The edges count as outside. */
QK_FN struct IN(pixel) IN(clip)(const struct IN(axis) * axis, struct IN(pixel) p)
{
    if (p.at <= 0) {
        p.at = 0;
        p.factor = 0;
    } else if (p.at >= axis->last) {
        p.at = axis->last;
        p.factor = 0;
    }
    return p;
}

/* Mirrored at low and high until it is between them. */
QK_FN struct IN(pixel) IN(reflect)(const struct IN(axis) * axis, WORK at)
{
    struct IN(pixel) p = {0, 0};
    if (axis->span == 0)
        return p;
    WORK d = at - axis->low, sign = d < 0 ? (WORK)-1 : (WORK)1;
    d = d < 0 ? -d : d;
    if (!(d < 2 * axis->span))
        d = (WORK)qk_remainder((double)d, (double)(2 * axis->span));
    p.at = d < axis->span ? d + axis->low : axis->high - (d - axis->span);
    p.factor = d < axis->span ? sign : -sign;
    return p;
}

QK_FN struct IN(pixel) IN(pad)(const struct qk_grid_args *a, const struct IN(axis) * axis, WORK at)
{
    struct IN(pixel) p = {at, 1};
    if (a->padding == QK_GRID_ZEROS)
        return p;
    if (a->padding == QK_GRID_REFLECTION)
        p = IN(reflect)(axis, at);
    return IN(clip)(axis, p);
}

/* ---- Taps of one axis -------------------------------------------------------------------------
 */

QK_FN qk_u32 IN(index)(const struct IN(axis) * axis, WORK at)
{
    return at >= 0 && at <= axis->last ? (qk_u32)at : QK_GRID_NONE;
}

/* The pixel itself, as the only one. */
QK_FN struct IN(line) IN(line_of)(qk_u32 i)
{
    struct IN(line) line;
    line.i0 = i;
    line.i1 = line.i2 = line.i3 = QK_GRID_NONE;
    line.w0 = 1;
    line.w1 = line.w2 = line.w3 = 0;
    line.s0 = line.s1 = line.s2 = line.s3 = 0;
    line.factor = 0;
    return line;
}

QK_FN struct IN(line) IN(linear)(const struct IN(axis) * axis, struct IN(pixel) p)
{
    WORK left = IN(below)(p.at), t = p.at - left;
    struct IN(line) line = IN(line_of)(IN(index)(axis, left));
    line.i1 = IN(index)(axis, left + 1);
    line.w0 = 1 - t;
    line.w1 = t;
    line.s0 = -1;
    line.s1 = 1;
    line.factor = p.factor;
    return line;
}

/* Keys' convolution with A = -3/4, inside one pixel and between one and two pixels away. */
#define CUBIC_A ((WORK)-0.75)

QK_FN WORK IN(cubic_near)(WORK x)
{
    return ((CUBIC_A + 2) * x - (CUBIC_A + 3)) * x * x + 1;
}

QK_FN WORK IN(cubic_far)(WORK x)
{
    return ((CUBIC_A * x - 5 * CUBIC_A) * x + 8 * CUBIC_A) * x - 4 * CUBIC_A;
}

QK_FN WORK IN(cubic_near_slope)(WORK x)
{
    return (3 * (CUBIC_A + 2) * x - 2 * (CUBIC_A + 3)) * x;
}

QK_FN WORK IN(cubic_far_slope)(WORK x)
{
    return (3 * CUBIC_A * x - 10 * CUBIC_A) * x + 8 * CUBIC_A;
}

#undef CUBIC_A

/* Not the coordinate is padded, but each of the four taps, which are integers. */
QK_FN qk_u32 IN(cubic_index)(const struct qk_grid_args *a, const struct IN(axis) * axis, WORK at)
{
    return IN(index)(axis, IN(pad)(a, axis, at).at);
}

QK_FN struct IN(line) IN(cubic)(const struct qk_grid_args *a, const struct IN(axis) * axis, WORK at)
{
    WORK left = IN(below)(at), t = at - left, u = 1 - t;
    struct IN(line) line;
    line.i0 = IN(cubic_index)(a, axis, left - 1);
    line.i1 = IN(cubic_index)(a, axis, left);
    line.i2 = IN(cubic_index)(a, axis, left + 1);
    line.i3 = IN(cubic_index)(a, axis, left + 2);
    line.w0 = IN(cubic_far)(t + 1);
    line.w1 = IN(cubic_near)(t);
    line.w2 = IN(cubic_near)(u);
    line.w3 = IN(cubic_far)(u + 1);
    line.s0 = IN(cubic_far_slope)(t + 1);
    line.s1 = IN(cubic_near_slope)(t);
    line.s2 = -IN(cubic_near_slope)(u);
    line.s3 = -IN(cubic_far_slope)(u + 1);
    line.factor = 1;
    return line;
}

QK_FN struct IN(line)
    IN(line)(const struct qk_grid_args *a, const struct qk_grid_axis *constants, WORK g)
{
    struct IN(axis) axis = IN(axis_of)(constants);
    WORK at = IN(unnormalize)(&axis, a->align_corners, g);
    if (a->mode == QK_GRID_BICUBIC)
        return IN(cubic)(a, &axis, at);
    if (a->mode == QK_GRID_BILINEAR)
        return IN(linear)(&axis, IN(pad)(a, &axis, at));
    return IN(line_of)(IN(index)(&axis, IN(nearest)(IN(pad)(a, &axis, at).at)));
}

/* ---- Taps of a point --------------------------------------------------------------------------
 */

/* Of a point of 2-D, z is not looked at. */
QK_FN struct IN(point) IN(point)(const struct qk_grid_args *a, WORK x, WORK y, WORK z)
{
    struct IN(point) p;
    qk_u32 is_3d = a->n_axes == 3;
    p.reads = IN(reads)(a, x) && IN(reads)(a, y) && (!is_3d || IN(reads)(a, z));
    p.z = IN(line_of)(0);
    if (!p.reads) {
        p.x = p.y = IN(line_of)(QK_GRID_NONE);
        return p;
    }
    p.x = IN(line)(a, &a->x, x);
    p.y = IN(line)(a, &a->y, y);
    if (is_3d)
        p.z = IN(line)(a, &a->z, z);
    return p;
}

/* One of four. */
#define IN_SLOT(slot, v) ((slot) < 2 ? ((slot) ? v##1 : v##0) : ((slot) == 2 ? v##2 : v##3))

QK_FN qk_u32 IN(has_taps)(const struct IN(line) * l)
{
    return (l->i0 & l->i1 & l->i2 & l->i3) != QK_GRID_NONE;
}

/* The pixel of tap t in its plane, or QK_GRID_NONE. Taps count in raster order. */
QK_FN qk_u32 IN(place)(const struct qk_grid_args *a, const struct IN(point) * p, qk_u32 t)
{
    qk_u32 mask = (1u << a->slot_bits) - 1, i = t & mask, j = t >> a->slot_bits & mask;
    qk_u32 k = t >> (2 * a->slot_bits);
    qk_u32 x = IN_SLOT(i, p->x.i), y = IN_SLOT(j, p->y.i), z = IN_SLOT(k, p->z.i);
    if (x == QK_GRID_NONE || y == QK_GRID_NONE || z == QK_GRID_NONE)
        return QK_GRID_NONE;
    return (z * a->height + y) * a->width + x;
}

/* Weights of a tap: by itself, or for each axis with the derivative along that axis. */
struct IN(weights) {
    WORK x, y, z;
};

QK_FN WORK IN(weight)(const struct qk_grid_args *a, const struct IN(point) * p, qk_u32 t)
{
    qk_u32 mask = (1u << a->slot_bits) - 1, i = t & mask, j = t >> a->slot_bits & mask;
    qk_u32 k = t >> (2 * a->slot_bits);
    return IN_SLOT(k, p->z.w) * IN_SLOT(j, p->y.w) * IN_SLOT(i, p->x.w);
}

QK_FN struct IN(weights)
    IN(slopes)(const struct qk_grid_args *a, const struct IN(point) * p, qk_u32 t)
{
    qk_u32 mask = (1u << a->slot_bits) - 1, i = t & mask, j = t >> a->slot_bits & mask;
    qk_u32 k = t >> (2 * a->slot_bits);
    WORK x = IN_SLOT(i, p->x.w), y = IN_SLOT(j, p->y.w), z = IN_SLOT(k, p->z.w);
    struct IN(weights) w;
    w.x = z * y * IN_SLOT(i, p->x.s);
    w.y = z * IN_SLOT(j, p->y.s) * x;
    w.z = IN_SLOT(k, p->z.s) * y * x;
    return w;
}

#undef IN_SLOT
