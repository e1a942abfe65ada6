/*
 * qk_rows_args.h - what a launch of the embeddings is told, and how bags, indices and pieces of
 * rows are read. A table has rows; a bag is the places of the indices that belong together. The
 * picture is that of lib/ops/bags.h and lib/ops/row_sums.h.
 */
#ifndef QK_ROWS_ARGS_H
#define QK_ROWS_ARGS_H

#include "qk_ops.h"
#include "qk_stores.h"

/* Items that a group does: octets of rows, or columns of a range of rows; units of a copy. */
#define QK_ROWS_ITEMS 256u
#define QK_ROWS_UNITS 2048u

/* In the place of the number of a row: there is none. */
#define QK_NO_ROW 0xffffffffu

struct qk_rows_args {
    qk_u32 n_items;         /* of all groups */
    qk_u32 n_rows, row_len; /* of the table; of a copy, row_len is in units */
    qk_u32 wide;            /* rows are whole octets, each at an aligned place */
    qk_u32 padding;         /* the row that does not count, or QK_NO_ROW */
    qk_u32 n_bags, n_indices, per_bag, has_offsets, has_end; /* as in struct qp_bags */
    qk_u32 is_i64;                                           /* indices and offsets */
    qk_u32 by_count;   /* each sum is divided by the number of its terms */
    qk_u32 accumulate; /* what the target has is the last term */
    qk_u32 status, source, indices, offsets, target, max_indices;

    /* Lists, as in struct qp_row_sums: 64-bit numbers, and divisors of f64 if has_sizes. */
    qk_u32 start, list, sizes, has_sizes;

    /* Sums of elements of the table, and the rows that an item has of them. */
    qk_u32 sums, range_rows;
};

/* ---- Bags ------------------------------------------------------------------------------------ */

/* The row that an index names, if it counts. A negative one is too large, read as unsigned. */
QK_FN qk_u32 qk_row_at(const QK_GLOBAL qk_u8 *block, const struct qk_rows_args *a, qk_u32 place)
{
    const QK_GLOBAL qk_u8 *from = block + a->indices;
    qk_u64 index = a->is_i64 ? ((const QK_GLOBAL qk_u64 *)from)[place]
                             : ((const QK_GLOBAL qk_u32 *)from)[place];
    return index < a->n_rows && index != a->padding ? (qk_u32)index : QK_NO_ROW;
}

/* Where a bag begins, and the one before it ends; offsets were found good before. */
QK_FN qk_u32 qk_bag_begin(const QK_GLOBAL qk_u8 *block, const struct qk_rows_args *a, qk_u32 bag)
{
    const QK_GLOBAL qk_u8 *from = block + a->offsets;
    if (!a->has_offsets)
        return bag * a->per_bag;
    if (bag >= a->n_bags + a->has_end)
        return a->n_indices;
    return a->is_i64 ? (qk_u32)((const QK_GLOBAL qk_u64 *)from)[bag]
                     : ((const QK_GLOBAL qk_u32 *)from)[bag];
}

/* ---- Octets ---------------------------------------------------------------------------------- */

/* An item that is an octet: n of up to 8 elements from a column of a row on. */
struct qk_octet {
    qk_u32 row, col, n;
};

QK_FN struct qk_octet qk_octet_of(const struct qk_rows_args *a, qk_u32 item)
{
    struct qk_octet o;
    qk_u32 across = a->row_len / 8 + (a->row_len % 8 != 0);
    o.row = item / across;
    o.col = (item - o.row * across) * 8;
    o.n = qk_min(8, a->row_len - o.col);
    return o;
}

/* Its elements in a row of a tensor; of what is behind them, 0 is read and nothing written. */
#define QK_ROW_OCTETS(type)                                                                        \
    QK_FN void qk_row_get_##type(const QK_GLOBAL qk_##type *from, const struct qk_rows_args *a,    \
                                 const struct qk_octet *o, qk_u32 row, qk_##type *x)               \
    {                                                                                              \
        qk_u32 at = row * a->row_len + o->col;                                                     \
        if (a->wide)                                                                               \
            qk_get8_##type(from, at, x);                                                           \
        else                                                                                       \
            for (qk_u32 k = 0; k < 8; k++)                                                         \
                x[k] = k < o->n ? from[at + k] : (qk_##type)0;                                     \
    }                                                                                              \
                                                                                                   \
    QK_FN void qk_row_put_##type(QK_GLOBAL qk_##type *to, const struct qk_rows_args *a,            \
                                 const struct qk_octet *o, const qk_##type *x)                     \
    {                                                                                              \
        qk_u32 at = o->row * a->row_len + o->col;                                                  \
        if (a->wide)                                                                               \
            qk_put8_##type(to, at, x);                                                             \
        else                                                                                       \
            for (qk_u32 k = 0; k < 8; k++)                                                         \
                if (k < o->n)                                                                      \
                    to[at + k] = x[k];                                                             \
    }
QK_ROW_OCTETS(u16)
QK_ROW_OCTETS(u32)
QK_ROW_OCTETS(u64)
#undef QK_ROW_OCTETS

#endif
