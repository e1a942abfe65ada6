/*
 * qk_affine_learn.inc.h - the gradients of fake quantize for data, scales and zero points, as a
 * template for one float dtype. The specification is kernels/ops/affine_learn.inc.h.
 *
 * A sum has one owner, who adds its terms in ascending order of the elements: the terms are made by
 * all threads of a group, the two sums of the set by one thread each.
 *
 * The including file defines NAME(op), IN(op), WORK, RAW and OF_RAW, as for qk_affine.inc.h, behind
 * which it includes this, and ADD(sum, term).
 */

struct NAME(terms) {
    double scale, zero;
};

/* What an element adds to the sums of its set; writes its own gradient. */
QK_FN struct NAME(terms) NAME(learn)(QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a,
                                     const struct IN(params) * p, qk_u32 elem)
{
    RAW from = ((const QK_GLOBAL RAW *)(block + a->dout))[elem];
    WORK x = OF_RAW(((const QK_GLOBAL RAW *)(block + a->input))[elem]), dout = OF_RAW(from);
    WORK steps = NAME(steps)(p, x);
    qk_u32 inside = NAME(inside)(p, x);
    double scale = (double)p->scale, quotient = (double)x / scale;
    struct NAME(terms) t = {0, 0};
    ((QK_GLOBAL RAW *)(block + a->output))[elem] = inside ? from : (RAW)0;
    if (x == x) {
        t.scale = (double)dout * (inside ? (double)steps - quotient : (double)steps);
        t.zero = inside ? 0.0 : -((double)dout * scale);
    }
    return t;
}

/* Multiplies a sum by the factor and stores it, rounded once. */
QK_FN void NAME(put_sum)(QK_GLOBAL qk_u8 *block, const struct qk_affine_args *a, qk_u32 to,
                         qk_u32 set, struct qk_sum sum)
{
    double factor = QK_F64((qk_u64)a->factor_high << 32 | a->factor_low);
    double value = sum.hi >= -QK_WIDE_MAX && sum.hi <= QK_WIDE_MAX ? sum.hi + sum.lo : sum.hi;
    double product = value * factor;
    qk_u32 finite = value >= -QK_WIDE_MAX && value <= QK_WIDE_MAX;
    qk_u32 overflow = finite && (product > QK_WIDE_MAX || product < -QK_WIDE_MAX);
    overflow += qk_put_gradient(block + to, a->float_kind, set, product);
    qk_count(block, a, QK_OP_OVERFLOW, overflow);
}

/* A group does a set, a tile of it at a time. */
QK_KERNEL(NAME(qk_learn_sets), struct qk_affine_args)
{
    QK_SHARED double scale_terms[QK_LEARN_TILE];
    QK_SHARED double zero_terms[QK_LEARN_TILE];
    struct qk_rows rows = qk_rows_of(&a, QK_GROUP);
    struct IN(params) p = IN(params_of)(block, &a, QK_GROUP);
    struct qk_sum scale = {0, 0}, zero = {0, 0};
    qk_u32 n = rows.n_rows * rows.width, zero_owner = QK_LSIZE > 1 ? 1 : 0;
    for (qk_u32 begin = 0; begin < n; begin += QK_LEARN_TILE) {
        qk_u32 len = qk_min(QK_LEARN_TILE, n - begin);
        for (qk_u32 i = QK_LID; i < len; i += QK_LSIZE) {
            struct NAME(terms) t = NAME(learn)(block, &a, &p, qk_elem_of(&a, &rows, begin + i));
            scale_terms[i] = t.scale;
            zero_terms[i] = t.zero;
        }
        QK_BARRIER;
        for (qk_u32 i = 0; QK_LID == 0 && i < len; i++)
            ADD(&scale, scale_terms[i]);
        for (qk_u32 i = 0; QK_LID == zero_owner && i < len; i++)
            ADD(&zero, zero_terms[i]);
        QK_BARRIER;
    }
    if (QK_LID == 0)
        NAME(put_sum)(block, &a, a.dscale, QK_GROUP, scale);
    if (QK_LID == zero_owner)
        NAME(put_sum)(block, &a, a.dzero, QK_GROUP, zero);
}

/* A thread does a set, and its neighbours do the sets beside it. */
QK_KERNEL(NAME(qk_learn_lanes), struct qk_affine_args)
{
    qk_u32 begin = QK_GROUP * QK_SET_BLOCK, end = begin + qk_min(QK_SET_BLOCK, a.n_sets - begin);
    for (qk_u32 set = begin + QK_LID; set < end; set += QK_LSIZE) {
        struct qk_rows rows = qk_rows_of(&a, set);
        struct IN(params) p = IN(params_of)(block, &a, set);
        struct qk_sum scale = {0, 0}, zero = {0, 0};
        qk_u32 n = rows.n_rows * rows.width;
        for (qk_u32 i = 0; i < n; i++) {
            struct NAME(terms) t = NAME(learn)(block, &a, &p, qk_elem_of(&a, &rows, i));
            ADD(&scale, t.scale);
            ADD(&zero, t.zero);
        }
        NAME(put_sum)(block, &a, a.dscale, set, scale);
        NAME(put_sum)(block, &a, a.dzero, set, zero);
    }
}
