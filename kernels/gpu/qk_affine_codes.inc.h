/*
 * qk_affine_codes.inc.h - codes of float data, and the ranges of sets, as a template for one float
 * dtype. The specification is kernels/tiles/element.inc.h.
 *
 * The including file defines NAME(op), IN(op) of the working precision, WORK, WORK_MAX, RAW, GET8
 * and OF_RAW, as for qk_affine.inc.h, behind which it includes this.
 */

/* ---- Codes ------------------------------------------------------------------------------------
 */

/*
 * Of integers the clamp comes first, to what the type holds exactly; NaN takes the zero point. Of
 * values NaN is taken for 0.
 */
QK_FN qk_u32 NAME(encode)(const struct IN(params) * p, RAW from, struct NAME(counts) * counts)
{
    WORK x = OF_RAW(from), number = x == x ? x : (WORK)0, t = number / p->scale;
    counts->nonfinite += !NAME(is_finite)(x);
    if (qk_is_valued(p->v))
        return IN(valued_code)(p->block, p->v, t);
    return (qk_u32)((qk_i32)IN(whole)(IN(clamp)(t, p->least, p->most)) + p->zero);
}

QK_FN qk_u32 NAME(encode_at)(const QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a,
                             qk_u32 elem, struct NAME(counts) * counts)
{
    struct IN(params) p = IN(params_of)(block, a, qk_set_of(a, elem));
    return NAME(encode)(&p, ((const QK_GLOBAL RAW *)(block + a->input))[elem], counts) &
           ((1u << a->bits) - 1);
}

/* One byte: all codes of a row that have bits in it. Each is counted in its first byte. */
QK_FN qk_u32 NAME(encode_byte)(const QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a,
                               qk_u32 byte, struct NAME(counts) * counts)
{
    if (a->bits == 8)
        return NAME(encode_at)(block, a, byte, counts);
    struct NAME(counts) before = {0, 0};
    qk_u32 row = byte / a->row_bytes, in_row = byte - row * a->row_bytes, made = 0;
    qk_u32 octet = in_row / a->bits * 8, first = in_row % a->bits * 8; /* whole bytes, and a bit */
    qk_u32 n = qk_min(8, a->last_len - octet);
    for (qk_u32 k = first / a->bits; k < n && k * a->bits < first + 8; k++) {
        qk_u32 at = k * a->bits, begins = at >= first;
        qk_u32 code =
            NAME(encode_at)(block, a, row * a->last_len + octet + k, begins ? counts : &before);
        made |= begins ? code << (at - first) : code >> (first - at);
    }
    return made & 255u;
}

/* Eight codes of one set, which fill as many bytes as a code has bits. */
QK_FN void NAME(encode_octet)(QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a, qk_u32 elem,
                              struct NAME(counts) * counts)
{
    struct IN(params) p = IN(params_of)(block, a, qk_set_of(a, elem));
    QK_GLOBAL qk_u8 *to = block + a->output + elem / 8 * a->bits;
    qk_u32 low = 0, high = 0, mask = (1u << a->bits) - 1; /* four codes each */
    RAW x[8];
    GET8((const QK_GLOBAL RAW *)(block + a->input), elem, x);
    for (qk_u32 k = 0; k < 4; k++) {
        low |= (NAME(encode)(&p, x[k], counts) & mask) << a->bits * k;
        high |= (NAME(encode)(&p, x[k + 4], counts) & mask) << a->bits * k;
    }
    if (a->bits == 8) {
        ((QK_GLOBAL qk_u32 *)to)[0] = low;
        ((QK_GLOBAL qk_u32 *)to)[1] = high;
    } else if (a->bits == 4) {
        ((QK_GLOBAL qk_u32 *)to)[0] = low | high << 16;
    } else {
        qk_u64 all = low | (qk_u64)high << 4 * a->bits;
        for (qk_u32 k = 0; k < a->bits; k++)
            to[k] = (qk_u8)(all >> 8 * k);
    }
}

/* A group makes the bytes of a chunk of codes. */
QK_KERNEL(NAME(qk_encode), struct qk_affine_args)
{
    qk_u32 chunk = qk_code_chunk(&a), begin = QK_GROUP * chunk;
    qk_u32 end = begin + qk_min(chunk, a.n_bytes - begin), step = a.wide_codes ? a.bits : 1;
    struct NAME(counts) counts = {0, 0};
    for (qk_u32 i = begin + step * QK_LID; i < end; i += step * QK_LSIZE) {
        if (a.wide_codes && end - i >= step) {
            NAME(encode_octet)(block, &a, i / step * 8, &counts);
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
