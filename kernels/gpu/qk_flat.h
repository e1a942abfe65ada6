/*
 * qk_flat.h - the way back from codes works on a flat range of a tensor, not on a rectangle: what a
 * launch is told, which parameters an element has, and which code.
 *
 * The range begins somewhere in a row of the matrix of lib/model/sets.h, with `head` elements of
 * that row; the rows that follow are counted from 0, in bands and periods. Lengths that are longer
 * than the range are cut to what keeps the places of all ends inside it, so 32 bits are enough. The
 * parameters that the range needs lie behind each other.
 */
#ifndef QK_FLAT_H
#define QK_FLAT_H

#include "qk_args.h"

/* Elements whose errors are summed in one fixed order: a group does them. */
#define QK_BLOCK 4096u

/* What values are written as. */
#define QK_AS_F32  0u
#define QK_AS_F16  1u
#define QK_AS_BF16 2u
#define QK_AS_F64  3u

/* Results of a block: 64-bit floats, and counts. A place is an element of the block. */
#define QK_SUM_E2     0
#define QK_SUM_X2     1
#define QK_SUM_Y2     2
#define QK_MAX_ERROR  3
#define QK_MAX_CLIP   4
#define QK_BLOCK_SUMS 5

#define QK_MAX_AT        0
#define QK_OFFENCES      1
#define QK_FIRST_OFFENCE 2
#define QK_CLIPPED       3
#define QK_FIRST_CLIPPED 4
#define QK_NONFINITE     5
#define QK_BAD_PADS      6
#define QK_BLOCK_COUNTS  8

struct qk_flat_args {
    qk_u32 n;                              /* elements */
    qk_u32 head, row_len;                  /* of the first row, and of every other */
    qk_u32 col_width, col_skip;            /* of a set, and left of the range */
    qk_u32 first_set, next_set;            /* parameters of the first row, of the next */
    qk_u32 n_cols;                         /* sets side by side */
    qk_u32 head_rows, head_bands;          /* of the period that the next row is in */
    qk_u32 band_rows, band_skip;           /* of a band, and above the next row */
    qk_u32 period_rows, period_bands;      /* of every other period */
    qk_u32 even_sets;                      /* no octet has elements of two sets */
    qk_u32 packed, phase;                  /* two codes a byte; codes before the first one */
    qk_u32 odd_len;                        /* rows of so many codes begin a byte, 0 = no gaps */
    qk_u32 is_signed;                      /* codes */
    struct qk_values v;                    /* what they stand for */
    qk_i32 q_min, q_max;                   /* measuring */
    qk_u32 as;                             /* decoding: what is written */
    qk_u32 src, codes, scale, zero, bound; /* in */
    qk_u32 out;                            /* decoding */
    qk_u32 sums, counts;                   /* measuring */
};

/* Where the parameters of an element are. */
QK_FN qk_u32 qk_flat_set(const struct qk_flat_args *a, qk_u32 i)
{
    if (i < a->head)
        return a->first_set + (a->col_skip + i) / a->col_width;
    qk_u32 at = i - a->head, row = at / a->row_len, col = at - row * a->row_len;
    qk_u32 band = 0;
    if (row < a->head_rows) {
        band = (a->band_skip + row) / a->band_rows;
    } else {
        qk_u32 below = row - a->head_rows, period = below / a->period_rows;
        band = a->head_bands + period * a->period_bands +
               (below - period * a->period_rows) / a->band_rows;
    }
    return a->next_set + band * a->n_cols + col / a->col_width;
}

QK_FN qk_i32 qk_extend(qk_u32 code, qk_u32 sign)
{
    return (qk_i32)(code ^ sign) - (qk_i32)sign;
}

/* The place of a packed code in its row, and the byte that it is in. */
QK_FN qk_u32 qk_flat_packed(const struct qk_flat_args *a, qk_u32 i, qk_u32 *byte)
{
    qk_u32 col = a->phase + i;
    *byte = 0;
    if (a->odd_len) {
        qk_u32 row = col / a->odd_len;
        col -= row * a->odd_len;
        *byte = row * (a->odd_len / 2 + 1);
    }
    *byte += col / 2 - a->phase / 2;
    return col;
}

QK_FN qk_i32 qk_flat_code(const QK_GLOBAL qk_u8 *codes, const struct qk_flat_args *a, qk_u32 i)
{
    if (!a->packed)
        return qk_extend(codes[i], a->is_signed ? 128u : 0u);
    qk_u32 byte, col = qk_flat_packed(a, i, &byte);
    return qk_extend((qk_u32)codes[byte] >> 4 * (col & 1u) & 15u, a->is_signed ? 8u : 0u);
}

/* Whether the element is the last of a row of an odd length, and the spare nibble is not 0. */
QK_FN qk_u32 qk_flat_bad_pad(const QK_GLOBAL qk_u8 *codes, const struct qk_flat_args *a, qk_u32 i)
{
    qk_u32 byte, col;
    if (!a->odd_len)
        return 0;
    col = qk_flat_packed(a, i, &byte);
    return col + 1 == a->odd_len && codes[byte] >> 4 != 0;
}

/* Whether the codes of an octet are whole words. */
QK_FN qk_u32 qk_flat_words(const struct qk_flat_args *a)
{
    return !a->packed || (!a->odd_len && a->phase == 0);
}

/* The codes of the octet at i, as many as there are, each as the 8 or 4 bits that it has. */
QK_FN void qk_flat_octet(const QK_GLOBAL qk_u8 *codes, const struct qk_flat_args *a, qk_u32 i,
                         qk_i32 *code)
{
    qk_u32 low, high, sign = a->is_signed ? (a->packed ? 8u : 128u) : 0u;
    const QK_GLOBAL qk_u32 *from = (const QK_GLOBAL qk_u32 *)codes;
    if (i + 8 > a->n || !qk_flat_words(a)) {
        for (int k = 0; k < 8; k++)
            code[k] = i + (qk_u32)k < a->n ? qk_flat_code(codes, a, i + (qk_u32)k) : 0;
        return;
    }
    low = from[a->packed ? i / 8 : i / 4];
    high = a->packed ? low >> 16 : from[i / 4 + 1];
    for (int k = 0; k < 4; k++) {
        qk_u32 shift = (a->packed ? 4u : 8u) * (qk_u32)k, mask = a->packed ? 15u : 255u;
        code[k] = qk_extend(low >> shift & mask, sign);
        code[k + 4] = qk_extend(high >> shift & mask, sign);
    }
}

#endif
