/*
 * qk_affine_grid.inc.h - affine grids and their gradients, as a template for one float dtype. The
 * specification is kernels/ops/affine_grid_kernels.h: all of it in f64.
 *
 * The including file defines NAME(op), KIND, AT(from, i), which reads a number, ADD(sum, term) and
 * VALUE(sum); NAME(finish) is that of qk_grid.inc.h.
 */

/* Where the i-th of so many points is between -1 and 1: at centres of cells, or on the ends. */
QK_FN double NAME(base)(qk_u32 i, qk_u32 size, qk_u32 align_corners)
{
    if (!align_corners)
        return (double)(2 * (qk_u64)i + 1) / (double)size - 1;
    return size == 1 ? 0 : (double)(2 * (qk_u64)i) / (double)(size - 1) - 1;
}

struct NAME(bases) {
    double x, y, z;
};

QK_FN struct NAME(bases) NAME(bases_of)(const struct qk_affine_grid_args *a, qk_u32 point)
{
    struct NAME(bases) b;
    qk_u32 row = point / a->width, plane = row / a->height;
    b.x = NAME(base)(point - row * a->width, a->width, a->align_corners);
    b.y = NAME(base)(row - plane * a->height, a->height, a->align_corners);
    b.z = NAME(base)(plane, a->depth, a->align_corners);
    return b;
}

/* A group does a tile of the points of a batch. */
QK_KERNEL(NAME(qk_points), struct qk_affine_grid_args)
{
    const QK_GLOBAL qk_u8 *theta = block + a.input;
    qk_u32 batch = QK_GROUP / a.n_tiles, begin = QK_GROUP % a.n_tiles * QK_GRID_TILE;
    qk_u32 end = begin + qk_min(QK_GRID_TILE, a.n_points - begin);
    qk_u32 n = a.n_axes, overflow = 0;
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE) {
        struct NAME(bases) b = NAME(bases_of)(&a, i);
        for (qk_u32 axis = 0; axis < n; axis++) {
            qk_u32 row = (batch * n + axis) * (n + 1);
            struct qk_sum sum = {(double)AT(theta, row) * b.x + (double)AT(theta, row + 1) * b.y,
                                 0};
            if (n == 3)
                sum.hi += (double)AT(theta, row + 2) * b.z;
            sum.hi += (double)AT(theta, row + n);
            overflow += NAME(finish)(block + a.output, (batch * a.n_points + i) * n + axis, sum, 0);
        }
    }
    qk_grid_overflow(block, a.status, overflow);
}

/* What a point adds to the sums of its batch, which are QK_AFFINE_GRID_TILE terms apart. */
QK_FN void NAME(terms)(const QK_GLOBAL qk_u8 *block, const struct qk_affine_grid_args *a,
                       qk_u32 batch, qk_u32 point, QK_LOCAL double *terms)
{
    struct NAME(bases) b = NAME(bases_of)(a, point);
    for (qk_u32 axis = 0; axis < a->n_axes; axis++) {
        qk_u32 at = (batch * a->n_points + point) * a->n_axes + axis;
        double dout = (double)AT(block + a->input, at);
        terms[0] = dout * b.x;
        terms[QK_AFFINE_GRID_TILE] = dout * b.y;
        if (a->n_axes == 3)
            terms[2 * QK_AFFINE_GRID_TILE] = dout * b.z;
        terms[a->n_axes * QK_AFFINE_GRID_TILE] = dout;
        terms += (a->n_axes + 1) * QK_AFFINE_GRID_TILE;
    }
}

/* A group does a batch: all threads make the terms of a tile of points, and one adds up each sum.
 */
QK_KERNEL(NAME(qk_sums), struct qk_affine_grid_args)
{
    QK_SHARED double terms[QK_AFFINE_GRID_SUMS * QK_AFFINE_GRID_TILE];
    QK_SHARED double hi[QK_AFFINE_GRID_SUMS];
    QK_SHARED double lo[QK_AFFINE_GRID_SUMS];
    qk_u32 n_sums = a.n_axes * (a.n_axes + 1), overflow = 0;
    for (qk_u32 s = QK_LID; s < n_sums; s += QK_LSIZE)
        hi[s] = lo[s] = 0;
    for (qk_u32 begin = 0; begin < a.n_points; begin += QK_AFFINE_GRID_TILE) {
        qk_u32 n = qk_min(QK_AFFINE_GRID_TILE, a.n_points - begin);
        for (qk_u32 i = QK_LID; i < n; i += QK_LSIZE)
            NAME(terms)(block, &a, QK_GROUP, begin + i, terms + i);
        QK_BARRIER;
        for (qk_u32 s = QK_LID; s < n_sums; s += QK_LSIZE) {
            struct qk_sum sum = {hi[s], lo[s]};
            for (qk_u32 i = 0; i < n; i++)
                ADD(&sum, terms[s * QK_AFFINE_GRID_TILE + i]);
            hi[s] = sum.hi;
            lo[s] = sum.lo;
        }
        QK_BARRIER;
    }
    for (qk_u32 s = QK_LID; s < n_sums; s += QK_LSIZE) {
        struct qk_sum sum = {hi[s], lo[s]};
        overflow += NAME(finish)(block + a.output, QK_GROUP * n_sums + s, sum, 0);
    }
    qk_grid_overflow(block, a.status, overflow);
}
