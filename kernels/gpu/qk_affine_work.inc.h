/*
 * qk_affine_work.inc.h - parameters of sets, read or made from ranges, and numbers of codes, as a
 * template for one working precision. The specification is kernels/ops/affine.inc.h,
 * kernels/codes/linear.h, kernels/tiles/work.inc.h and lib/ops/quant_walk.c; each step here is the
 * same single operation.
 *
 * The including file has included qk_valued.inc.h; it defines IN(op), WORK, WORK_MAX, WHOLE, from
 * which magnitude on WORK has no fractions, FLOAT_AT(from, kind, i), PUT_FLOAT(to, kind, i, y),
 * which clips, PUT8_FLOATS, the same for eight, and SCALE_MOST(kind) and SCALE_UP(scale, kind).
 */

struct IN(params) {
    WORK scale, least, most; /* least and most: q_min - zero and q_max - zero, exact */
    qk_i32 zero;
    const struct qk_values *v;
    const QK_GLOBAL qk_u8 *block; /* that a table lies in */
};

/* Half to even, of any size; a zero is positive. Adding WHOLE leaves no bits for a fraction. */
QK_FN WORK IN(whole)(WORK x)
{
    WORK shift = x < 0 ? -(WHOLE) : (WHOLE), near = (x + shift) - shift;
    return x > -(WHOLE) && x < (WHOLE) ? near : x;
}

QK_FN WORK IN(clamp)(WORK x, WORK least, WORK most)
{
    x = x < least ? least : x;
    return x > most ? most : x;
}

QK_FN qk_i32 IN(zero_at)(const QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a, qk_u32 set)
{
    const QK_GLOBAL qk_u8 *zero = block + a->zero;
    if (a->zero_kind == QK_ZERO_NONE)
        return a->no_zero;
    if (a->zero_kind == QK_ZERO_I32)
        return ((const QK_GLOBAL qk_i32 *)zero)[set];
    if (a->zero_kind == QK_ZERO_U8)
        return (qk_i32)zero[set];
    if (a->zero_kind == QK_ZERO_I8)
        return (qk_i32)(zero[set] ^ 128u) - 128;
    /* Clamped first, to integers: that changes nothing, and what is converted fits. */
    return (qk_i32)IN(whole)(
        IN(clamp)(FLOAT_AT(zero, a->scale_kind, set), (WORK)a->q_min, (WORK)a->q_max));
}

QK_FN struct IN(params)
    IN(params_of)(const QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a, qk_u32 set)
{
    struct IN(params) p;
    p.v = &a->v;
    p.block = block;
    p.scale = FLOAT_AT(block + a->scale, a->scale_kind, set);
    p.zero = IN(zero_at)(block, a, set);
    p.least = (WORK)(a->q_min - p.zero);
    p.most = (WORK)(a->q_max - p.zero);
    return p;
}

/* ---- Parameters from ranges -------------------------------------------------------------------
 */

#include "qk_scale.inc.h"

/* A code in any case: where 0 is none, a set of zeros has the nearest one. */
QK_FN qk_i32 IN(zero_of)(const struct qk_affine_args *a, WORK lo, WORK hi, WORK scale)
{
    qk_i32 zero = 0;
    if (!a->asymmetric)
        return a->is_signed ? 0 : (a->q_min + a->q_max + 1) / 2;
    if (lo != hi) {
        WORK least = (WORK)(a->q_min - a->q_max), below = lo / scale;
        zero = a->q_min - (qk_i32)IN(whole)(below < least ? least : below);
    }
    return zero < a->q_min ? a->q_min : zero > a->q_max ? a->q_max : zero;
}

/* A thread does a set: joins the ranges of its parts, which hold 0. */
QK_KERNEL(IN(qk_params), struct qk_affine_args)
{
    const QK_GLOBAL WORK *lo = (const QK_GLOBAL WORK *)(block + a.lo);
    const QK_GLOBAL WORK *hi = (const QK_GLOBAL WORK *)(block + a.hi);
    qk_u32 begin = QK_GROUP * QK_SET_BLOCK, end = begin + qk_min(QK_SET_BLOCK, a.n_sets - begin);
    for (qk_u32 set = begin + QK_LID; set < end; set += QK_LSIZE) {
        WORK least = 0, most = 0;
        for (qk_u32 p = 0; p < a.parts; p++) {
            WORK l = lo[p * a.n_sets + set], h = hi[p * a.n_sets + set];
            least = l < least ? l : least;
            most = h > most ? h : most;
        }
        WORK scale = IN(exact_scale)(a.q_min, a.q_max, a.asymmetric, least, most);
        if (scale <= SCALE_MOST(a.scale_kind)) {
            scale = SCALE_UP(scale, a.scale_kind);
        } else {
            QK_ATOMIC_MIN((QK_GLOBAL qk_u32 *)(block + a.status) + QK_OP_FIRST_BAD, set);
            scale = 1;
        }
        PUT_FLOAT(block + a.scale, a.scale_kind, set, scale);
        if (a.zero_kind != QK_ZERO_NONE)
            ((QK_GLOBAL qk_i32 *)(block + a.zero))[set] = IN(zero_of)(&a, least, most, scale);
    }
}

/* ---- Numbers of codes -------------------------------------------------------------------------
 */

QK_FN WORK IN(decode)(const struct qk_affine_args *a, const struct IN(params) * p, qk_u32 code)
{
    qk_u32 sign = 1u << (a->bits - 1);
    qk_i32 q = a->is_signed ? (qk_i32)(code ^ sign) - (qk_i32)sign : (qk_i32)code;
    WORK steps = qk_is_valued(p->v) ? IN(value)(p->block, p->v, code) : (WORK)(q - p->zero);
    return IN(clamp)(p->scale * steps, -WORK_MAX, WORK_MAX);
}

/* A group does a chunk of elements. */
QK_KERNEL(IN(qk_decode), struct qk_affine_args)
{
    const QK_GLOBAL qk_u8 *codes = block + a.input;
    qk_u32 begin = QK_GROUP * QK_AFFINE_CHUNK, step = a.wide_codes ? 8 : 1;
    qk_u32 end = begin + qk_min(QK_AFFINE_CHUNK, a.n_elems - begin);
    for (qk_u32 i = begin + step * QK_LID; i < end; i += step * QK_LSIZE) {
        struct IN(params) p = IN(params_of)(block, &a, qk_set_of(&a, i));
        if (step == 8 && end - i >= 8) {
            WORK y[8];
            for (qk_u32 k = 0; k < 8; k++)
                y[k] = IN(decode)(&a, &p, qk_code_at(codes, &a, i + k));
            PUT8_FLOATS(block + a.output, a.float_kind, i, y);
            continue;
        }
        for (qk_u32 k = i; k < end && k < i + step; k++)
            PUT_FLOAT(block + a.output, a.float_kind, k,
                      IN(decode)(&a, &p, qk_code_at(codes, &a, k)));
    }
}

#undef IN
#undef WORK
#undef WORK_MAX
#undef WHOLE
#undef FLOAT_AT
#undef PUT_FLOAT
#undef PUT8_FLOATS
#undef SCALE_MOST
#undef SCALE_UP
