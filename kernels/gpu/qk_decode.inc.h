/*
 * qk_decode.inc.h - values from codes, as a template for one working precision. The specification
 * is kernels/tiles/work.inc.h: scale * (code - zero point), or scale * value, clipped to the finite
 * range, and then rounded to the dtype that is written.
 *
 * The including file defines IN(op), WORK, WORK_MAX and STORE_OCTET(out, as, i, n, y).
 */

QK_FN WORK IN(decode)(const QK_GLOBAL qk_u8 *block, const struct qk_flat_args *a, WORK scale,
                      qk_i32 zero, qk_i32 code)
{
    WORK y =
        scale * (qk_is_valued(&a->v) ? IN(value)(block, &a->v, (qk_u32)code) : (WORK)(code - zero));
    y = y > WORK_MAX ? WORK_MAX : y;
    return y < -WORK_MAX ? -WORK_MAX : y;
}

/* The values of the octet at i; past the end of the range they have no meaning. */
QK_FN void IN(decode_octet)(const QK_GLOBAL qk_u8 *block, const struct qk_flat_args *a, qk_u32 i,
                            WORK *y)
{
    const QK_GLOBAL WORK *scales = (const QK_GLOBAL WORK *)(block + a->scale);
    const QK_GLOBAL qk_i32 *zeros = (const QK_GLOBAL qk_i32 *)(block + a->zero);
    qk_u32 set = qk_flat_set(a, i);
    WORK scale = scales[set];
    qk_i32 zero = zeros[set], code[8];
    qk_flat_octet(block + a->codes, a, i, code);
    y[0] = IN(decode)(block, a, scale, zero, code[0]);
    for (int k = 1; k < 8; k++) {
        if (!a->even_sets && i + (qk_u32)k < a->n) {
            set = qk_flat_set(a, i + (qk_u32)k);
            scale = scales[set];
            zero = zeros[set];
        }
        y[k] = IN(decode)(block, a, scale, zero, code[k]);
    }
}

/* A group does a block. */
QK_KERNEL(IN(qk_decode), struct qk_flat_args)
{
    qk_u32 begin = QK_GROUP * QK_BLOCK, end = qk_min(begin + QK_BLOCK, a.n);
    for (qk_u32 i = begin + 8 * QK_LID; i < end; i += 8 * QK_LSIZE) {
        WORK y[8];
        IN(decode_octet)(block, &a, i, y);
        STORE_OCTET(block + a.out, a.as, i, qk_min(end - i, 8), y);
    }
}

#undef STORE_OCTET
