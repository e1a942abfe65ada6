/*
 * qk_args.h - what a launch is told, and the geometry that follows from it: one struct of 32-bit
 * integers, the same bytes on host and device.
 *
 * A tile is a rectangle whose columns fall into parameter sets (kernels/kernel.h); it lies in a
 * block of device memory with everything that is made from it. All offsets are bytes from the start
 * of the block and multiples of 64, so the widest loads and stores are aligned.
 */
#ifndef QK_ARGS_H
#define QK_ARGS_H

#include "qk_platform.h"

/* Work of one group: output bytes of a row, and sets of which each thread takes some. */
#define QK_CHUNK     4096u
#define QK_SET_BLOCK 256u

/* Elements of a set that a group keeps in local memory between its range and its codes. */
#define QK_FUSED_F32 4096u
#define QK_FUSED_F64 2048u

/* What scales are stored as. */
#define QK_SCALE_F32    0u
#define QK_SCALE_F16    1u
#define QK_SCALE_BF16   2u
#define QK_SCALE_E8M0   3u
#define QK_SCALE_F8E4M3 4u

/* How a code stands for a value, as in kernels/codes/code.h. */
#define QK_CODES_LINEAR 0u
#define QK_CODES_BIASED 1u
#define QK_CODES_FLOAT  2u
#define QK_CODES_BOOK   3u

/* Values of a table. */
#define QK_BOOK_SIZE 16u

/* The words at .status: elements that are not finite, and the first set whose scale is too large.
 */
#define QK_STATUS_NONFINITE 0
#define QK_STATUS_BAD_SET   1
#define QK_NO_SET           0xffffffffu

/* What codes of floats and tables stand for. Values are bits of f32. */
struct qk_values {
    qk_u32 kind;
    qk_u32 sign, man_bits; /* of floats, as struct qp_float_grid has them */
    qk_i32 least_exp;
    qk_u32 largest; /* value */
    qk_u32 end;     /* up to which a value is as near to the largest as it would be to another */
    qk_u32 book;    /* of tables: where their values are */
};

struct qk_tile_args {
    qk_u32 rows, cols;
    qk_u32 band_rows, col_width, col_skip; /* as in struct qp_tile */
    qk_u32 set_cols, n_sets;               /* side by side, and in all */
    qk_u32 parts;                          /* that the range of a set is found in */
    qk_u32 part_len; /* a part: elements of a set (range_sets) or rows of a band (range_lanes) */
    qk_u32 wide;     /* every run of a set is whole octets, in the source and in the codes */
    qk_u32 packed;   /* two codes a byte: rows of last_len codes begin a byte, the first inside */
    qk_u32 last_len, phase; /* such a row, after phase of its codes */
    qk_u32 row_bytes;       /* bytes of the codes of a row of the tile */
    qk_u32 row_chunks;      /* and QK_CHUNKs that they fill */
    qk_i32 q_min, q_max;
    qk_u32 asymmetric, is_signed;
    struct qk_values v; /* codes that count from a bias have its bits where a zero point would be */
    qk_u32 scale_kind;
    qk_u32 factor, divides; /* of scales that have one: the bits of an f32, and what it does */
    qk_u32 src, status;
    qk_u32 lo, hi;                    /* of part p and set s: element p * n_sets + s */
    qk_u32 scale, zero;               /* as the codes are made with */
    qk_u32 stored_scale, stored_zero; /* as they are written */
    qk_u32 codes;
};

/* Columns col .. col + width of n_rows rows from row on: the part of a set that is in the tile. */
struct qk_set {
    qk_u32 row, n_rows, col, width;
};

QK_FN qk_u32 qk_min(qk_u32 a, qk_u32 b)
{
    return a < b ? a : b;
}

/* Whether codes stand for values of their own, without zero point or bias. */
QK_FN qk_u32 qk_is_valued(const struct qk_values *v)
{
    return v->kind >= QK_CODES_FLOAT;
}

QK_FN struct qk_set qk_set_at(const struct qk_tile_args *a, qk_u32 set)
{
    struct qk_set s;
    qk_u32 band = set / a->set_cols, across = set - band * a->set_cols;
    qk_u32 end = (across + 1) * a->col_width - a->col_skip;
    s.row = band * a->band_rows;
    s.n_rows = qk_min(a->band_rows, a->rows - s.row);
    s.col = across == 0 ? 0 : end - a->col_width;
    s.width = qk_min(end, a->cols) - s.col;
    return s;
}

/* The place in the tile of the i-th element of a set, counted row by row. */
QK_FN qk_u32 qk_set_elem(const struct qk_tile_args *a, const struct qk_set *s, qk_u32 i)
{
    qk_u32 row = s->n_rows == 1 ? 0 : i / s->width;
    return (s->row + row) * a->cols + s->col + (i - row * s->width);
}

/* The column of the first code in a byte of packed codes, and whether a second one is in it. */
QK_FN qk_u32 qk_packed_col(const struct qk_tile_args *a, qk_u32 byte, qk_u32 *has_second)
{
    qk_u32 per_row = (a->last_len + 1) / 2, at = byte + a->phase / 2;
    qk_u32 row = at / per_row, in_row = 2 * (at - row * per_row);
    qk_u32 col = row * a->last_len + in_row - a->phase;
    *has_second = in_row + 1 < a->last_len && col + 1 < a->cols;
    return col;
}

#endif
