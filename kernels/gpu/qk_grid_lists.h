/*
 * qk_grid_lists.h - what the kernels of the grid family share and does not depend on a dtype: the
 * remainder of reflection, and the lists of taps that a pixel's gradient is the sum of.
 *
 * Lists are made by counting, giving each pixel room, and filling. Threads fill in any order and
 * the room of a pixel may be anywhere, but then each list is sorted, so what is read from it does
 * not depend on either.
 */
#ifndef QK_GRID_LISTS_H
#define QK_GRID_LISTS_H

#include "qk_affine_f64.h"
#include "qk_grid_args.h"
#include "qk_sum.h"

QK_FN void qk_grid_overflow(QK_GLOBAL qk_u8 *block, qk_u32 status, qk_u32 n)
{
    if (n)
        QK_ATOMIC_ADD((QK_GLOBAL qk_u32 *)(block + status) + QK_OP_OVERFLOW, n);
}

/* ---- Numbers ----------------------------------------------------------------------------------
 */

/*
 * The exact remainder of x by y, for finite x >= y >= 1: the division of the significands, eleven
 * bits at a time, as many as there are above 53.
 */
QK_FN double qk_remainder(double x, double y)
{
    qk_u64 hidden = (qk_u64)1 << 52, divisor = (QK_U64(y) & (hidden - 1)) | hidden;
    qk_u64 rest = ((QK_U64(x) & (hidden - 1)) | hidden) % divisor;
    qk_u32 exponent = (qk_u32)(QK_U64(y) >> 52), left = (qk_u32)(QK_U64(x) >> 52) - exponent;
    while (left > 0) {
        qk_u32 step = qk_min(left, 11u);
        rest = (rest << step) % divisor;
        left -= step;
    }
    return (double)rest * QK_F64((qk_u64)(exponent - 52u) << 52);
}

/* ---- Lists ------------------------------------------------------------------------------------
 */

QK_KERNEL(qk_clear_grid, struct qk_grid_args)
{
    QK_GLOBAL qk_u32 *counts = (QK_GLOBAL qk_u32 *)(block + a.counts);
    qk_u32 begin = QK_GROUP * QK_GRID_CHUNK, n = a.n_lists + 1;
    qk_u32 end = begin + qk_min(QK_GRID_CHUNK, n - begin);
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE)
        counts[i] = 0;
}

/* Room for the lists of some pixels, which a thread takes at once. */
QK_KERNEL(qk_place_grid, struct qk_grid_args)
{
    QK_GLOBAL qk_u32 *counts = (QK_GLOBAL qk_u32 *)(block + a.counts);
    QK_GLOBAL qk_u32 *ends = (QK_GLOBAL qk_u32 *)(block + a.ends);
    qk_u32 begin = QK_GROUP * QK_GRID_CHUNK, n = 0;
    qk_u32 end = begin + qk_min(QK_GRID_CHUNK, a.n_lists - begin);
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE)
        n += counts[i];
    qk_u32 at = QK_ATOMIC_TAKE(counts + a.n_lists, n);
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE) {
        ends[i] = at;
        at += counts[i];
    }
}

/* Of a heap, all is in order but what is at root. */
QK_FN void qk_grid_sift(QK_GLOBAL qk_u32 *list, qk_u32 root, qk_u32 n)
{
    qk_u32 x = list[root], child = 2 * root + 1;
    while (child < n) {
        if (child + 1 < n && list[child + 1] > list[child])
            child++;
        if (list[child] < x)
            break;
        list[root] = list[child];
        root = child;
        child = 2 * root + 1;
    }
    list[root] = x;
}

/* Ascending, in n log n steps however many taps fall on one pixel. */
QK_FN void qk_grid_sort(QK_GLOBAL qk_u32 *list, qk_u32 n)
{
    for (qk_u32 i = n / 2; i > 0; i--)
        qk_grid_sift(list, i - 1, n);
    for (qk_u32 left = n; left > 1; left--) {
        qk_u32 most = list[0];
        list[0] = list[left - 1];
        qk_grid_sift(list, 0, left - 1);
        list[left - 1] = most;
    }
}

QK_KERNEL(qk_order_grid, struct qk_grid_args)
{
    const QK_GLOBAL qk_u32 *counts = (const QK_GLOBAL qk_u32 *)(block + a.counts);
    const QK_GLOBAL qk_u32 *ends = (const QK_GLOBAL qk_u32 *)(block + a.ends);
    QK_GLOBAL qk_u32 *list = (QK_GLOBAL qk_u32 *)(block + a.list);
    qk_u32 begin = QK_GROUP * QK_GRID_TILE;
    qk_u32 end = begin + qk_min(QK_GRID_TILE, a.n_lists - begin);
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE)
        qk_grid_sort(list + (ends[i] - counts[i]), counts[i]);
}

#endif
