/*
 * qk_affine_args.h - what a launch of the quantize family is told, and which set an element belongs
 * to. The picture is that of lib/model/sets.h: bands of rows, columns of sets.
 */
#ifndef QK_AFFINE_ARGS_H
#define QK_AFFINE_ARGS_H

#include "qk_floats.h"
#include "qk_ops.h"
#include "qk_stores.h"

/* Elements that a group does; of codes the bytes of as many. */
#define QK_AFFINE_CHUNK 4096u

/* Elements of a set whose terms a group makes before they are added. */
#define QK_LEARN_TILE 512u

/* Dtypes of floats in the block; the first three are those of scales. */
#define QK_FLOAT_F32  QK_SCALE_F32
#define QK_FLOAT_F16  QK_SCALE_F16
#define QK_FLOAT_BF16 QK_SCALE_BF16
#define QK_FLOAT_F64  3u

/* What zero points are stored as; floats have the dtype of the scales. */
#define QK_ZERO_NONE  0u /* absent: .no_zero */
#define QK_ZERO_I32   1u
#define QK_ZERO_I8    2u
#define QK_ZERO_U8    3u
#define QK_ZERO_FLOAT 4u

struct qk_affine_args {
    qk_u32 n_elems, n_sets;
    qk_u32 row_len, col_width, n_cols; /* as in struct qp_sets */
    qk_u32 band_rows, period_rows, period_bands;
    qk_u32 wide; /* eight elements from a multiple of 8 on are of one set */
    qk_i32 q_min, q_max;
    qk_u32 count; /* elements of the input that are not finite */
    qk_u32 status, dout, input, scale, zero, output;
    qk_u32 scale_kind, zero_kind;
    qk_i32 no_zero;

    /* Codes. Of those that stand for values q_min and q_max are the ends of the values. */
    struct qk_values v;
    qk_u32 bits, is_signed;
    qk_u32 last_len, row_bytes; /* of fewer than 8 bits: codes of a row, and bytes that they fill */
    qk_u32 n_bytes;             /* of all codes */
    qk_u32 wide_codes;          /* eight codes are of one set, and their bytes of them alone */
    qk_u32 float_kind;          /* of decoded numbers, or of gradients of parameters */

    /* Parameters that are made: ranges in parts, or sums. */
    qk_u32 asymmetric, parts, part_len;
    qk_u32 lo, hi; /* of part p and set s: element p * n_sets + s */
    qk_u32 dscale, dzero;
    qk_u32 factor_low, factor_high; /* the bits of an f64 */
};

QK_FN qk_u32 qk_set_of(const struct qk_affine_args *a, qk_u32 elem)
{
    if (a->n_sets == 1)
        return 0;
    qk_u32 row = elem / a->row_len, col = elem - row * a->row_len;
    qk_u32 period = row / a->period_rows, inside = row - period * a->period_rows;
    qk_u32 band = period * a->period_bands + inside / a->band_rows;
    return band * a->n_cols + col / a->col_width;
}

/* The elements of a set: columns col .. col + width of n_rows rows from row on. */
struct qk_rows {
    qk_u32 row, n_rows, col, width;
};

QK_FN struct qk_rows qk_rows_of(const struct qk_affine_args *a, qk_u32 set)
{
    struct qk_rows r = {0, 0, 0, 0};
    if (a->n_elems == 0)
        return r;
    qk_u32 band = set / a->n_cols, period = band / a->period_bands;
    qk_u32 inside = (band - period * a->period_bands) * a->band_rows;
    r.row = period * a->period_rows + inside;
    r.n_rows = qk_min(a->band_rows, a->period_rows - inside);
    r.col = (set - band * a->n_cols) * a->col_width;
    r.width = qk_min(a->col_width, a->row_len - r.col);
    return r;
}

/* The i-th element of a set, in the order of the tensor. */
QK_FN qk_u32 qk_elem_of(const struct qk_affine_args *a, const struct qk_rows *r, qk_u32 i)
{
    qk_u32 row = r->n_rows == 1 ? 0 : i / r->width;
    return (r->row + row) * a->row_len + r->col + (i - row * r->width);
}

QK_FN void qk_count(QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a, qk_u32 word, qk_u32 n)
{
    if (n)
        QK_ATOMIC_ADD((QK_GLOBAL qk_u32 *)(block + a->status) + word, n);
}

/* Bytes of codes that a group makes. */
QK_FN qk_u32 qk_code_chunk(const struct qk_affine_args *a)
{
    return QK_AFFINE_CHUNK / 8 * a->bits;
}

/* The code of an element, as it is stored: a byte, or some bits of one or two. */
QK_FN qk_u32 qk_code_at(const QK_GLOBAL qk_u8 *codes, const struct qk_affine_args *a, qk_u32 elem)
{
    if (a->bits == 8)
        return codes[elem];
    qk_u32 row = elem / a->last_len, in_row = elem - row * a->last_len;
    qk_u32 first = in_row % 8 * a->bits, shift = first % 8; /* eight codes fill whole bytes */
    qk_u32 byte = row * a->row_bytes + in_row / 8 * a->bits + first / 8;
    qk_u32 code = (qk_u32)codes[byte] >> shift;
    if (shift + a->bits > 8)
        code |= (qk_u32)codes[byte + 1] << (8 - shift);
    return code & ((1u << a->bits) - 1);
}

/* ---- Floats of any of these dtypes ------------------------------------------------------------
 */

QK_FN float qk_float_at(const QK_GLOBAL qk_u8 *from, qk_u32 kind, qk_u32 i)
{
    if (kind == QK_FLOAT_F32)
        return qk_at_f32(from, i);
    return kind == QK_FLOAT_F16 ? qk_at_f16(from, i) : qk_at_bf16(from, i);
}

/* ---- Numbers of working precision f32, clipped to the dtype -----------------------------------
 */

QK_FN void qk_put_float(QK_GLOBAL qk_u8 *to, qk_u32 kind, qk_u32 i, float y)
{
    if (kind == QK_FLOAT_F32)
        ((QK_GLOBAL qk_u32 *)to)[i] = QK_U32(y);
    else
        ((QK_GLOBAL qk_u16 *)to)[i] =
            (qk_u16)(kind == QK_FLOAT_F16 ? qk_clip_f16(y) : qk_clip_bf16(y));
}

QK_FN void qk_put8_floats(QK_GLOBAL qk_u8 *to, qk_u32 kind, qk_u32 i, const float *y)
{
    qk_u32 wide[8];
    qk_u16 narrow[8];
    for (int k = 0; k < 8; k++) {
        wide[k] = QK_U32(y[k]);
        narrow[k] = (qk_u16)(kind == QK_FLOAT_F16 ? qk_clip_f16(y[k]) : qk_clip_bf16(y[k]));
    }
    if (kind == QK_FLOAT_F32)
        qk_put8_u32((QK_GLOBAL qk_u32 *)to, i, wide);
    else
        qk_put8_u16((QK_GLOBAL qk_u16 *)to, i, narrow);
}

#endif
