/*
 * qk_grid.inc.h - grid samples and their gradients, as a template for one float dtype. The
 * specification is kernels/ops/grid_lanes.inc.h and lib/ops/grid_sample*.c.
 *
 * Every result has one owner, which adds its terms in the order of the specification: a sample the
 * taps of its point, the gradient of a point the channels, that of a pixel the taps of its list.
 *
 * The including file defines NAME(op), IN(op) and WORK of the working precision, KIND, AT(from, i),
 * which reads a number, ADD(sum, term) and VALUE(sum).
 */

/* What a group does: some points or pixels, and some channels of a batch. */
struct NAME(part) {
    qk_u32 begin, end, batch, channel, last_channel;
};

QK_FN struct NAME(part) NAME(part_of)(const struct qk_grid_args *a, qk_u32 group, qk_u32 n)
{
    struct NAME(part) part;
    qk_u32 rest = group / a->n_tiles;
    part.begin = group % a->n_tiles * QK_GRID_TILE;
    part.end = part.begin + qk_min(QK_GRID_TILE, n - part.begin);
    part.batch = rest / a->n_blocks;
    part.channel = rest % a->n_blocks * QK_GRID_BLOCK;
    part.last_channel = qk_min(part.channel + QK_GRID_BLOCK, a->n_channels);
    return part;
}

QK_FN struct IN(point)
    NAME(point_at)(const QK_GLOBAL qk_u8 *block, const struct qk_grid_args *a, qk_u32 point)
{
    const QK_GLOBAL qk_u8 *from = block + a->points;
    qk_u32 i = point * a->n_axes;
    return IN(point)(a, AT(from, i), AT(from, i + 1), a->n_axes == 3 ? AT(from, i + 2) : (WORK)0);
}

/* Rounds a sum once, with the old value as its last term; returns whether that made it infinite. */
QK_FN qk_u32 NAME(finish)(QK_GLOBAL qk_u8 *to, qk_u32 i, struct qk_sum sum, qk_u32 accumulate)
{
    if (accumulate)
        ADD(&sum, (double)AT(to, i));
    return qk_put_gradient(to, KIND, i, VALUE(&sum));
}

/* ---- Samples ----------------------------------------------------------------------------------
 */

/* A point in n_lanes planes; the others repeat the last of these. */
QK_FN qk_u32 NAME(sample)(QK_GLOBAL qk_u8 *block, const struct qk_grid_args *a,
                          const struct IN(point) * p, qk_u32 point, qk_u32 plane, qk_u32 n_lanes)
{
    const QK_GLOBAL qk_u8 *input = block + a->input;
    struct qk_sum sums[QK_GRID_LANES];
    qk_u32 overflow = 0;
    for (qk_u32 k = 0; k < QK_GRID_LANES; k++)
        sums[k].hi = sums[k].lo = 0;
    for (qk_u32 t = 0; t < a->n_taps; t++) {
        qk_u32 place = IN(place)(a, p, t);
        if (place == QK_GRID_NONE)
            continue;
        double w = (double)IN(weight)(a, p, t);
        for (qk_u32 k = 0; k < QK_GRID_LANES; k++) {
            qk_u32 at = (plane + qk_min(k, n_lanes - 1)) * a->n_pixels + place;
            sums[k].hi += (double)AT(input, at) * w;
        }
    }
    for (qk_u32 k = 0; k < QK_GRID_LANES; k++) {
        if (k < n_lanes)
            overflow +=
                NAME(finish)(block + a->output, (plane + k) * a->n_points + point, sums[k], 0);
    }
    return overflow;
}

QK_KERNEL(NAME(qk_sample), struct qk_grid_args)
{
    struct NAME(part) part = NAME(part_of)(&a, QK_GROUP, a.n_points);
    qk_u32 overflow = 0;
    for (qk_u32 i = part.begin + QK_LID; i < part.end; i += QK_LSIZE) {
        struct IN(point) p = NAME(point_at)(block, &a, part.batch * a.n_points + i);
        for (qk_u32 c = part.channel; c < part.last_channel; c += QK_GRID_LANES)
            overflow += NAME(sample)(block, &a, &p, i, part.batch * a.n_channels + c,
                                     qk_min(QK_GRID_LANES, part.last_channel - c));
    }
    qk_grid_overflow(block, a.status, overflow);
}

/* ---- Gradients of points ----------------------------------------------------------------------
 */

struct NAME(slopes) {
    struct qk_sum x, y, z;
};

/* What a channel adds to the sums of a point. */
QK_FN void NAME(add_channel)(const QK_GLOBAL qk_u8 *block, const struct qk_grid_args *a,
                             const struct IN(point) * p, qk_u32 plane, qk_u32 point,
                             struct NAME(slopes) * sums)
{
    const QK_GLOBAL qk_u8 *input = block + a->input;
    double x = 0, y = 0, z = 0;
    for (qk_u32 t = 0; t < a->n_taps; t++) {
        qk_u32 place = IN(place)(a, p, t);
        if (place == QK_GRID_NONE)
            continue;
        struct IN(weights) w = IN(slopes)(a, p, t);
        double pixel = (double)AT(input, plane * a->n_pixels + place);
        x += pixel * (double)w.x;
        y += pixel * (double)w.y;
        z += pixel * (double)w.z;
    }
    double dout = (double)AT(block + a->dout, plane * a->n_points + point);
    ADD(&sums->x, x * dout);
    ADD(&sums->y, y * dout);
    ADD(&sums->z, z * dout);
}

/* A sum times the derivative of the pixel coordinate by the grid: one product, after which no error
 * is kept. */
QK_FN qk_u32 NAME(put_slope)(QK_GLOBAL qk_u8 *block, const struct qk_grid_args *a, qk_u32 i,
                             WORK factor, const struct qk_sum *sum)
{
    struct qk_sum product = {(double)factor * VALUE(sum), 0};
    return NAME(finish)(block + a->output, i, product, a->accumulate);
}

QK_KERNEL(NAME(qk_slopes), struct qk_grid_args)
{
    struct IN(axis) x = IN(axis_of)(&a.x), y = IN(axis_of)(&a.y), z = IN(axis_of)(&a.z);
    struct NAME(part) part = NAME(part_of)(&a, QK_GROUP, a.n_points);
    qk_u32 overflow = 0;
    for (qk_u32 i = part.begin + QK_LID; i < part.end; i += QK_LSIZE) {
        qk_u32 at = part.batch * a.n_points + i;
        struct NAME(slopes) sums = {{0, 0}, {0, 0}, {0, 0}};
        struct IN(point) p = NAME(point_at)(block, &a, at);
        qk_u32 reads = p.reads && !a.flat;
        qk_u32 taps = IN(has_taps)(&p.x) && IN(has_taps)(&p.y) && IN(has_taps)(&p.z);
        for (qk_u32 c = 0; reads && taps && c < a.n_channels; c++)
            NAME(add_channel)(block, &a, &p, part.batch * a.n_channels + c, i, &sums);
        at *= a.n_axes;
        overflow += NAME(put_slope)(block, &a, at, reads ? x.slope * p.x.factor : 0, &sums.x);
        overflow += NAME(put_slope)(block, &a, at + 1, reads ? y.slope * p.y.factor : 0, &sums.y);
        if (a.n_axes == 3)
            overflow +=
                NAME(put_slope)(block, &a, at + 2, reads ? z.slope * p.z.factor : 0, &sums.z);
    }
    qk_grid_overflow(block, a.status, overflow);
}

/* ---- Gradients of pixels ----------------------------------------------------------------------
 */

/* Counts the taps of each pixel or, with fill, lists them. Batches count from a.first_batch on. */
QK_KERNEL(NAME(qk_taps), struct qk_grid_args)
{
    QK_GLOBAL qk_u32 *counts = (QK_GLOBAL qk_u32 *)(block + a.counts);
    QK_GLOBAL qk_u32 *ends = (QK_GLOBAL qk_u32 *)(block + a.ends);
    QK_GLOBAL qk_u32 *list = (QK_GLOBAL qk_u32 *)(block + a.list);
    QK_GLOBAL WORK *weights = (QK_GLOBAL WORK *)(block + a.weights);
    struct NAME(part) part = NAME(part_of)(&a, QK_GROUP, a.n_points);
    for (qk_u32 i = part.begin + QK_LID; i < part.end; i += QK_LSIZE) {
        qk_u32 point = (a.first_batch + part.batch) * a.n_points + i;
        struct IN(point) p = NAME(point_at)(block, &a, point);
        for (qk_u32 t = 0; t < a.n_taps; t++) {
            qk_u32 place = IN(place)(&a, &p, t), pixel = part.batch * a.n_pixels + place;
            if (place == QK_GRID_NONE)
                continue;
            if (!a.fill) {
                QK_ATOMIC_ADD(counts + pixel, 1u);
                continue;
            }
            qk_u32 tap = i * a.n_taps + t;
            list[QK_ATOMIC_TAKE(ends + pixel, 1u)] = tap;
            weights[part.batch * a.n_points * a.n_taps + tap] = IN(weight)(&a, &p, t);
        }
    }
}

/* A pixel in n_lanes planes of a batch; the others repeat the last of these. */
QK_FN qk_u32 NAME(gather)(QK_GLOBAL qk_u8 *block, const struct qk_grid_args *a, qk_u32 batch,
                          qk_u32 pixel, qk_u32 channel, qk_u32 n_lanes)
{
    const QK_GLOBAL qk_u32 *list = (const QK_GLOBAL qk_u32 *)(block + a->list);
    const QK_GLOBAL WORK *weights = (const QK_GLOBAL WORK *)(block + a->weights);
    qk_u32 which = batch * a->n_pixels + pixel, first_tap = batch * a->n_points * a->n_taps;
    qk_u32 end = ((const QK_GLOBAL qk_u32 *)(block + a->ends))[which];
    qk_u32 begin = end - ((const QK_GLOBAL qk_u32 *)(block + a->counts))[which];
    qk_u32 plane = (a->first_batch + batch) * a->n_channels + channel, overflow = 0;
    struct qk_sum sums[QK_GRID_LANES];
    for (qk_u32 k = 0; k < QK_GRID_LANES; k++)
        sums[k].hi = sums[k].lo = 0;
    for (qk_u32 i = begin; i < end; i++) {
        qk_u32 tap = list[i], point = tap / a->n_taps;
        double w = (double)weights[first_tap + tap];
        for (qk_u32 k = 0; k < QK_GRID_LANES; k++) {
            qk_u32 at = (plane + qk_min(k, n_lanes - 1)) * a->n_points + point;
            ADD(&sums[k], (double)AT(block + a->dout, at) * w);
        }
    }
    for (qk_u32 k = 0; k < QK_GRID_LANES; k++) {
        if (k < n_lanes)
            overflow += NAME(finish)(block + a->output, (plane + k) * a->n_pixels + pixel, sums[k],
                                     a->accumulate);
    }
    return overflow;
}

QK_KERNEL(NAME(qk_gather), struct qk_grid_args)
{
    struct NAME(part) part = NAME(part_of)(&a, QK_GROUP, a.n_pixels);
    qk_u32 overflow = 0;
    for (qk_u32 i = part.begin + QK_LID; i < part.end; i += QK_LSIZE) {
        for (qk_u32 c = part.channel; c < part.last_channel; c += QK_GRID_LANES)
            overflow += NAME(gather)(block, &a, part.batch, i, c,
                                     qk_min(QK_GRID_LANES, part.last_channel - c));
    }
    qk_grid_overflow(block, a.status, overflow);
}
