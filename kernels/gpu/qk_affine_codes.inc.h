/*
 * qk_affine_codes.inc.h - codes of float data, and the ranges of sets, as a template for one float
 * dtype. The specification is kernels/tiles/element.inc.h.
 *
 * The including file defines NAME(op), IN(op) of the working precision, WORK, WORK_MAX, RAW, GET8
 * and OF_RAW, as for qk_affine.inc.h, behind which it includes this.
 */

/* ---- Codes ------------------------------------------------------------------------------------
 */

/* The clamp comes first, to integers that the type holds exactly; NaN takes the zero point. */
QK_FN qk_u32 NAME(encode)(const struct IN(params) * p, RAW from, struct NAME(counts) * counts)
{
    WORK x = OF_RAW(from), t = IN(clamp)(x / p->scale, p->least, p->most);
    counts->nonfinite += !NAME(is_finite)(x);
    return (qk_u32)((qk_i32)IN(whole)(x == x ? t : (WORK)0) + p->zero) & 255u;
}

QK_FN qk_u32 NAME(encode_at)(const QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a,
                             qk_u32 elem, struct NAME(counts) * counts)
{
    struct IN(params) p = IN(params_of)(block, a, qk_set_of(a, elem));
    return NAME(encode)(&p, ((const QK_GLOBAL RAW *)(block + a->input))[elem], counts);
}

/* One byte: a code, or two that are neighbours in a row. */
QK_FN qk_u32 NAME(encode_byte)(const QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a,
                               qk_u32 byte, struct NAME(counts) * counts)
{
    if (!a->packed)
        return NAME(encode_at)(block, a, byte, counts);
    qk_u32 row = byte / a->row_bytes, in_row = 2 * (byte - row * a->row_bytes);
    qk_u32 elem = row * a->last_len + in_row;
    qk_u32 both = NAME(encode_at)(block, a, elem, counts) & 15u;
    if (in_row + 1 < a->last_len)
        both |= (NAME(encode_at)(block, a, elem + 1, counts) & 15u) << 4;
    return both;
}

/* Eight codes of one set to an aligned place. */
QK_FN void NAME(encode_octet)(QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a, qk_u32 elem,
                              struct NAME(counts) * counts)
{
    struct IN(params) p = IN(params_of)(block, a, qk_set_of(a, elem));
    QK_GLOBAL qk_u32 *to = (QK_GLOBAL qk_u32 *)(block + a->output);
    qk_u32 low = 0, high = 0;
    RAW x[8];
    GET8((const QK_GLOBAL RAW *)(block + a->input), elem, x);
    if (a->packed) {
        for (int k = 0; k < 8; k++)
            low |= (NAME(encode)(&p, x[k], counts) & 15u) << 4 * k;
        to[elem / 8] = low;
        return;
    }
    for (int k = 0; k < 4; k++) {
        low |= NAME(encode)(&p, x[k], counts) << 8 * k;
        high |= NAME(encode)(&p, x[k + 4], counts) << 8 * k;
    }
    to[elem / 4] = low;
    to[elem / 4 + 1] = high;
}

/* A group makes a chunk of bytes. */
QK_KERNEL(NAME(qk_encode), struct qk_affine_args)
{
    qk_u32 begin = QK_GROUP * QK_AFFINE_CHUNK;
    qk_u32 end = begin + qk_min(QK_AFFINE_CHUNK, a.n_bytes - begin);
    qk_u32 per_byte = a.packed ? 2 : 1, step = a.wide_codes ? 8 / per_byte : 1;
    struct NAME(counts) counts = {0, 0};
    for (qk_u32 i = begin + step * QK_LID; i < end; i += step * QK_LSIZE) {
        if (a.wide_codes && end - i >= step) {
            NAME(encode_octet)(block, &a, i * per_byte, &counts);
            continue;
        }
        for (qk_u32 k = i; k < end && k < i + step; k++)
            block[a.output + k] = (qk_u8)NAME(encode_byte)(block, &a, k, &counts);
    }
    qk_count(block, &a, QK_OP_NONFINITE, a.count ? counts.nonfinite : 0);
}

/* ---- Ranges -----------------------------------------------------------------------------------
 */

struct NAME(reach) {
    WORK lo, hi;
    qk_u32 nonfinite;
};

/* Least and largest are exact in any order, and start from +0, so no order shows in the sign. */
QK_FN void NAME(reach_to)(struct NAME(reach) * reach, WORK x)
{
    if (!NAME(is_finite)(x)) {
        reach->nonfinite++;
        return;
    }
    reach->lo = x < reach->lo ? x : reach->lo;
    reach->hi = x > reach->hi ? x : reach->hi;
}

/* Every step-th octet of a part of a set, or element where sets are not made of octets. */
QK_FN void NAME(reach_part)(struct NAME(reach) * reach, const QK_GLOBAL qk_u8 *block,
                            const struct qk_affine_args *a, qk_u32 set, qk_u32 part, qk_u32 first,
                            qk_u32 step)
{
    const QK_GLOBAL RAW *input = (const QK_GLOBAL RAW *)(block + a->input);
    struct qk_rows rows = qk_rows_of(a, set);
    qk_u32 n = rows.n_rows * rows.width, begin = qk_min(part * a->part_len, n);
    qk_u32 end = begin + qk_min(a->part_len, n - begin), len = a->wide ? 8 : 1;
    for (qk_u32 i = begin + len * first; i < end; i += len * step) {
        qk_u32 elem = qk_elem_of(a, &rows, i);
        if (len == 8 && end - i >= 8) {
            RAW x[8];
            GET8(input, elem, x);
            for (int k = 0; k < 8; k++)
                NAME(reach_to)(reach, OF_RAW(x[k]));
            continue;
        }
        for (qk_u32 k = 0; k < len && k < end - i; k++)
            NAME(reach_to)(reach, OF_RAW(input[elem + k]));
    }
}

QK_FN void NAME(put_reach)(QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a, qk_u32 at,
                           WORK lo, WORK hi)
{
    ((QK_GLOBAL WORK *)(block + a->lo))[at] = lo;
    ((QK_GLOBAL WORK *)(block + a->hi))[at] = hi;
}

/* A group does a part of a set. */
QK_KERNEL(NAME(qk_range_sets), struct qk_affine_args)
{
    QK_SHARED WORK lo[QK_GROUP_MOST];
    QK_SHARED WORK hi[QK_GROUP_MOST];
    qk_u32 part = QK_GROUP / a.n_sets, me = QK_LID;
    struct NAME(reach) reach = {0, 0, 0};
    NAME(reach_part)(&reach, block, &a, QK_GROUP - part * a.n_sets, part, me, QK_LSIZE);
    qk_count(block, &a, QK_OP_NONFINITE, reach.nonfinite);
    lo[me] = reach.lo;
    hi[me] = reach.hi;
    QK_BARRIER;
    for (qk_u32 n = QK_LSIZE; n > 1; n = (n + 1) / 2) { /* the upper ones join the lower */
        qk_u32 middle = (n + 1) / 2;
        if (me < n - middle) {
            lo[me] = lo[me + middle] < lo[me] ? lo[me + middle] : lo[me];
            hi[me] = hi[me + middle] > hi[me] ? hi[me + middle] : hi[me];
        }
        QK_BARRIER;
    }
    if (me == 0)
        NAME(put_reach)(block, &a, QK_GROUP, lo[0], hi[0]);
}

/* A thread does a part of a set, and its neighbours do the sets beside it. */
QK_KERNEL(NAME(qk_range_lanes), struct qk_affine_args)
{
    qk_u32 blocks = (a.n_sets - 1) / QK_SET_BLOCK + 1, part = QK_GROUP / blocks;
    qk_u32 first = (QK_GROUP - part * blocks) * QK_SET_BLOCK;
    qk_u32 end = first + qk_min(QK_SET_BLOCK, a.n_sets - first), nonfinite = 0;
    for (qk_u32 set = first + QK_LID; set < end; set += QK_LSIZE) {
        struct NAME(reach) reach = {0, 0, 0};
        NAME(reach_part)(&reach, block, &a, set, part, 0, 1);
        NAME(put_reach)(block, &a, part * a.n_sets + set, reach.lo, reach.hi);
        nonfinite += reach.nonfinite;
    }
    qk_count(block, &a, QK_OP_NONFINITE, nonfinite);
}
