/*
 * qk_params.inc.h - scale and zero point of a set from its range, as a template for one working
 * precision. The specification is kernels/codes/linear.h, kernels/tiles/work.inc.h and
 * valued_work.inc.h beside it; each step here is the same single operation.
 *
 * The including file defines IN(op), WORK, WORK_MAX, RNE_SHIFT, TO_F32_UP(x), TO_F8E4M3(x) and
 * POWER(x).
 */

#include "qk_scale.inc.h"

/* Half to even, for |x| far below the shift. */
QK_FN WORK IN(rne)(WORK x)
{
    return (x + (RNE_SHIFT)) - (RNE_SHIFT);
}

QK_FN qk_i32 IN(zero_point)(const struct qk_tile_args *a, WORK lo, WORK hi, WORK scale)
{
    if (qk_is_valued(&a->v))
        return 0;
    if (!a->asymmetric)
        return a->is_signed ? 0 : (a->q_min + a->q_max + 1) / 2;
    if (lo == hi)
        return 0;
    WORK least = (WORK)(a->q_min - a->q_max), below = lo / scale;
    return a->q_min - (qk_i32)IN(rne)(below < least ? least : below);
}

/*
 * Under a factor: the stored scale that is nearest, or the first behind it that is enough for
 * values of this size; 1 for a set of zeros.
 */
QK_FN WORK IN(scale_with_factor)(const struct qk_tile_args *a, WORK scale, WORK size)
{
    WORK factor = (WORK)QK_F32(a->factor), end = (WORK)QK_F32(a->v.end);
    WORK enough = size == 0 ? (WORK)0 : a->v.kind == QK_CODES_FLOAT ? size / end : scale;
    qk_u32 code =
        size == 0 ? QK_F8E4M3_ONE : TO_F8E4M3(a->divides ? scale * factor : scale / factor);
    code = code ? code : 1; /* the least above 0 */
    while ((WORK)qk_with_factor(a, qk_from_f8e4m3(code)) < enough && code < QK_F8E4M3_MOST)
        code++;
    WORK found = (WORK)qk_with_factor(a, qk_from_f8e4m3(code));
    return found < enough ? (WORK)QK_INFINITY : found;
}

/* The power of two that makes the largest size the leading power of the largest code, or so. */
QK_FN WORK IN(power_scale)(const struct qk_values *v, WORK size)
{
    qk_i32 power = POWER(size) - ((qk_i32)(v->largest >> 23) - 127);
    power = power < -126 ? -126 : power;
    return power > 127 ? (WORK)QK_INFINITY : (WORK)QK_F32((qk_u32)(power + 127) << 23);
}

/* The scale as it is stored; infinity if it is too large for that. */
QK_FN WORK IN(scale_of_set)(const struct qk_tile_args *a, WORK lo, WORK hi)
{
    WORK size = hi > -lo ? hi : -lo;
    WORK wanted = !qk_is_valued(&a->v) ? IN(exact_scale)(a->q_min, a->q_max, a->asymmetric, lo, hi)
                  : lo == hi           ? (WORK)1
                                       : size / (WORK)QK_F32(a->v.largest);
    if (a->scale_kind == QK_SCALE_F8E4M3)
        return IN(scale_with_factor)(a, wanted, size);
    if (a->scale_kind == QK_SCALE_E8M0 && a->v.kind == QK_CODES_FLOAT && size > 0)
        return IN(power_scale)(&a->v, size);
    return wanted <= (WORK)qk_scale_most(a->scale_kind)
               ? (WORK)qk_scale_up(TO_F32_UP(wanted), a->scale_kind)
               : (WORK)QK_INFINITY;
}

/* The scale that quantizes and its zero point; a scale that is too large is reported and is 1. */
QK_FN WORK IN(find_params)(QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a, qk_u32 set,
                           WORK lo, WORK hi, qk_i32 *zero)
{
    WORK scale = IN(scale_of_set)(a, lo, hi);
    if (!(scale <= WORK_MAX)) {
        QK_GLOBAL qk_u32 *status = (QK_GLOBAL qk_u32 *)(block + a->status);
        QK_ATOMIC_MIN(status + QK_STATUS_BAD_SET, set);
        scale = 1;
    }
    *zero = IN(zero_point)(a, lo, hi, scale);
    return scale;
}

QK_FN void IN(store_params)(QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a, qk_u32 set,
                            WORK scale, qk_i32 zero)
{
    qk_scale_store(block, a, set, (float)scale);
    block[a->stored_zero + set] = (qk_u8)zero;
}

/* The range of a set over all its parts goes to where the first part was. */
QK_FN void IN(merge_parts)(QK_GLOBAL WORK *lo, QK_GLOBAL WORK *hi, const struct qk_tile_args *a,
                           qk_u32 set)
{
    WORK least = lo[set], most = hi[set];
    for (qk_u32 p = 1; p < a->parts; p++) {
        WORK l = lo[p * a->n_sets + set], h = hi[p * a->n_sets + set];
        least = l < least ? l : least;
        most = h > most ? h : most;
    }
    lo[set] = least;
    hi[set] = most;
}

/* A group takes a block of sets. */
QK_KERNEL(IN(qk_merge), struct qk_tile_args)
{
    QK_GLOBAL WORK *lo = (QK_GLOBAL WORK *)(block + a.lo), *hi = (QK_GLOBAL WORK *)(block + a.hi);
    qk_u32 end = qk_min((QK_GROUP + 1) * QK_SET_BLOCK, a.n_sets);
    for (qk_u32 set = QK_GROUP * QK_SET_BLOCK + QK_LID; set < end; set += QK_LSIZE)
        IN(merge_parts)(lo, hi, &a, set);
}

QK_KERNEL(IN(qk_params), struct qk_tile_args)
{
    QK_GLOBAL WORK *lo = (QK_GLOBAL WORK *)(block + a.lo), *hi = (QK_GLOBAL WORK *)(block + a.hi);
    qk_u32 end = qk_min((QK_GROUP + 1) * QK_SET_BLOCK, a.n_sets);
    for (qk_u32 set = QK_GROUP * QK_SET_BLOCK + QK_LID; set < end; set += QK_LSIZE) {
        qk_i32 zero;
        IN(merge_parts)(lo, hi, &a, set);
        WORK scale = IN(find_params)(block, &a, set, lo[set], hi[set], &zero);
        ((QK_GLOBAL WORK *)(block + a.scale))[set] = scale;
        ((QK_GLOBAL qk_i32 *)(block + a.zero))[set] = zero;
        IN(store_params)(block, &a, set, scale, zero);
    }
}

/* ---- What the threads of a group found, joined ----------------------------------------------- */

/* Afterwards lo[0] and hi[0] hold for the whole group, for any size of it. */
QK_FN void IN(join_group)(QK_LOCAL WORK *lo, QK_LOCAL WORK *hi)
{
    qk_u32 n = QK_LSIZE, me = QK_LID;
    QK_BARRIER;
    while (n > 1) {
        qk_u32 middle = (n + 1) / 2;
        if (me < n - middle) {
            lo[me] = lo[me + middle] < lo[me] ? lo[me + middle] : lo[me];
            hi[me] = hi[me + middle] > hi[me] ? hi[me + middle] : hi[me];
        }
        QK_BARRIER;
        n = middle;
    }
}

#undef RNE_SHIFT
#undef TO_F32_UP
#undef TO_F8E4M3
#undef POWER
