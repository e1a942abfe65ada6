/*
 * qk_affine.inc.h - fake quantizing and the gradients of quantizing, element by element, as a
 * template for one float dtype. The specification is kernels/ops/affine.inc.h. The file that
 * includes all for a dtype, qk_affine_dtype.inc.h, also takes back what it was told.
 *
 * The including file defines NAME(op), IN(op) of the working precision, WORK, WORK_MAX, RAW, GET8
 * and PUT8 of the bits, OF_RAW(bits), CLIP(y), the bits of a finite y, GRADIENT(y), and
 * HALF_WAY(y), whether a magnitude is infinite in the dtype.
 */

/* What a thread counts. */
struct NAME(counts) {
    qk_u32 nonfinite, overflow;
};

QK_FN qk_u32 NAME(is_finite)(WORK x)
{
    return x >= -WORK_MAX && x <= WORK_MAX;
}

QK_FN RAW NAME(put_gradient)(WORK y, WORK dout, struct NAME(counts) * counts)
{
    counts->overflow += HALF_WAY(y < 0 ? -y : y) && NAME(is_finite)(dout);
    return (RAW)GRADIENT(y);
}

/* Whether x is in range, as a code or, of codes with values, as it is. Not so for a NaN. */
QK_FN qk_u32 NAME(inside)(const struct IN(params) * p, WORK x)
{
    WORK t = x / p->scale, r = qk_is_valued(p->v) ? t : IN(whole)(t);
    return r >= p->least && r <= p->most;
}

/* What the code of x stands for, in scales; a NaN is taken for 0. */
QK_FN WORK NAME(steps)(const struct IN(params) * p, WORK x)
{
    if (qk_is_valued(p->v))
        return IN(value)(p->block, p->v,
                         IN(valued_code)(p->block, p->v, (x == x ? x : (WORK)0) / p->scale));
    return x == x ? IN(clamp)(IN(whole)(x / p->scale), p->least, p->most) : (WORK)0;
}

/* ---- Steps: the bits of a result from those of dout and x -------------------------------------
 */

QK_FN RAW NAME(fake)(const struct IN(params) * p, RAW dout, RAW from, struct NAME(counts) * counts)
{
    WORK x = OF_RAW(from);
    (void)dout;
    counts->nonfinite += !NAME(is_finite)(x);
    return (RAW)CLIP(IN(clamp)(p->scale * NAME(steps)(p, x), -WORK_MAX, WORK_MAX));
}

QK_FN RAW NAME(fake_backward)(const struct IN(params) * p, RAW dout, RAW x,
                              struct NAME(counts) * counts)
{
    (void)counts;
    return NAME(inside)(p, OF_RAW(x)) ? dout : (RAW)0;
}

QK_FN RAW NAME(quantize_backward)(const struct IN(params) * p, RAW dout, RAW x,
                                  struct NAME(counts) * counts)
{
    WORK y = OF_RAW(dout);
    if (!NAME(inside)(p, OF_RAW(x)))
        return (RAW)0;
    return NAME(put_gradient)(y / p->scale, y, counts);
}

QK_FN RAW NAME(dequantize_backward)(const struct IN(params) * p, RAW dout, RAW x,
                                    struct NAME(counts) * counts)
{
    WORK y = OF_RAW(dout);
    (void)x;
    return NAME(put_gradient)(y * p->scale, y, counts);
}

/* ---- Kernels: a group does a chunk of elements ------------------------------------------------
 */

/* A launch of a step that does not use dout or the input has the other one's offset in its place.
 */
#define QK_ELEMENTWISE(op)                                                                         \
    QK_KERNEL(NAME(qk_##op), struct qk_affine_args)                                                \
    {                                                                                              \
        const QK_GLOBAL RAW *dout = (const QK_GLOBAL RAW *)(block + a.dout);                       \
        const QK_GLOBAL RAW *input = (const QK_GLOBAL RAW *)(block + a.input);                     \
        QK_GLOBAL RAW *output = (QK_GLOBAL RAW *)(block + a.output);                               \
        qk_u32 begin = QK_GROUP * QK_AFFINE_CHUNK, step = a.wide ? 8 : 1;                          \
        qk_u32 end = begin + qk_min(QK_AFFINE_CHUNK, a.n_elems - begin);                           \
        struct NAME(counts) counts = {0, 0};                                                       \
        for (qk_u32 i = begin + step * QK_LID; i < end; i += step * QK_LSIZE) {                    \
            struct IN(params) p = IN(params_of)(block, &a, qk_set_of(&a, i));                      \
            if (step == 8 && end - i >= 8) {                                                       \
                RAW g[8], x[8];                                                                    \
                GET8(dout, i, g);                                                                  \
                GET8(input, i, x);                                                                 \
                for (int k = 0; k < 8; k++)                                                        \
                    x[k] = NAME(op)(&p, g[k], x[k], &counts);                                      \
                PUT8(output, i, x);                                                                \
                continue;                                                                          \
            }                                                                                      \
            for (qk_u32 k = i; k < end && k < i + step; k++)                                       \
                output[k] = NAME(op)(&p, dout[k], input[k], &counts);                              \
        }                                                                                          \
        qk_count(block, &a, QK_OP_NONFINITE, a.count ? counts.nonfinite : 0);                      \
        qk_count(block, &a, QK_OP_OVERFLOW, counts.overflow);                                      \
    }
QK_ELEMENTWISE(fake)
QK_ELEMENTWISE(fake_backward)
QK_ELEMENTWISE(quantize_backward)
QK_ELEMENTWISE(dequantize_backward)
#undef QK_ELEMENTWISE
