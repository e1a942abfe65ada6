/*
 * qk_affine_work.inc.h - the parameters of a set, as a template for one working precision. The
 * specification is kernels/ops/affine.inc.h and lib/ops/quant_walk.c.
 *
 * The including file defines IN(op), WORK, WHOLE, from which magnitude on WORK has no fractions,
 * and FLOAT_AT(from, kind, i).
 */

struct IN(params) {
    WORK scale, least, most; /* least and most: q_min - zero and q_max - zero, exact */
    qk_i32 zero;
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
    p.scale = FLOAT_AT(block + a->scale, a->scale_kind, set);
    p.zero = IN(zero_at)(block, a, set);
    p.least = (WORK)(a->q_min - p.zero);
    p.most = (WORK)(a->q_max - p.zero);
    return p;
}

#undef IN
#undef WORK
#undef WHOLE
#undef FLOAT_AT
