/*
 * qk_measure.inc.h - decoded values against their source, as a template for one source dtype. The
 * specification is check and sums of kernels/tiles/element.inc.h.
 *
 * A group does a block, in stages: its threads decode and judge elements in any order and keep them
 * in local memory; then each sum of each lane goes on where it was, in the order of the elements.
 * So the order of every sum is that of the CPU, for any size of the group.
 *
 * The including file defines NAME(op), IN(op) of the working precision, AT and OCTET of the dtype,
 * WORK, WORK_MAX and ROUNDINGS, which those of a quotient and a product are less than.
 */

/* What is allowed in a set. */
struct NAME(ends) {
    const QK_GLOBAL qk_u8 *block;
    const struct qk_values *v;
    WORK scale, least, most;
    double bound;
};

QK_FN struct NAME(ends)
    NAME(ends_at)(const QK_GLOBAL qk_u8 *block, const struct qk_flat_args *a, qk_u32 i)
{
    struct NAME(ends) ends;
    qk_u32 set = qk_flat_set(a, i);
    WORK scale = ((const QK_GLOBAL WORK *)(block + a->scale))[set];
    qk_i32 zero = ((const QK_GLOBAL qk_i32 *)(block + a->zero))[set];
    WORK largest = (WORK)QK_F32(a->v.largest);
    qk_u32 valued = qk_is_valued(&a->v);
    WORK first = scale * (valued ? -largest : (WORK)(a->q_min - zero));
    WORK last = scale * (valued ? largest : (WORK)(a->q_max - zero));
    ends.block = block;
    ends.v = &a->v;
    ends.scale = scale;
    ends.least = scale < 0 ? last : first;
    ends.most = scale < 0 ? first : last;
    ends.least = ends.least < -WORK_MAX ? -WORK_MAX : ends.least;
    ends.most = ends.most > WORK_MAX ? WORK_MAX : ends.most;
    ends.bound = ((const QK_GLOBAL double *)(block + a->bound))[set];
    return ends;
}

/* The error that is allowed to x: of linear codes in all of a set, else by the code of y. */
QK_FN double NAME(bound_of)(const struct NAME(ends) * ends, WORK x, WORK y)
{
    const struct qk_values *v = ends->v;
    WORK scale = ends->scale, reach;
    if (!qk_is_valued(v))
        return ends->bound;
    WORK t = scale == 0 ? (WORK)0 : y / scale;
    qk_u32 up = (x > y) == (scale > 0), outwards = (x > y) == (y > 0);
    if (v->kind == QK_CODES_BOOK) {
        const QK_GLOBAL float *book = IN(book_of)(ends->block, v);
        reach = IN(book_reach)(book, IN(book_code)(book, t), up);
    } else {
        reach = IN(float_reach)(v, IN(float_near)(v, t), outwards);
    }
    double size = (double)(scale < 0 ? -scale : scale) * (double)reach;
    double value = (double)(y < 0 ? -y : y);
    return size + (size + value) * ROUNDINGS + 0x1p-149;
}

/* Whether a value that is outside its bound is what the ends make of it. */
QK_FN qk_u32 NAME(clips)(const struct NAME(ends) * ends, WORK x, WORK y, double bound)
{
    double past = (double)x - (double)ends->most, before = (double)ends->least - (double)x;
    return (past > bound && y == ends->most) || (before > bound && y == ends->least);
}

/* Judges one element, the at-th of its block; x is finite. */
QK_FN void NAME(judge)(struct qk_found *f, const struct NAME(ends) * ends, WORK x, WORK y,
                       qk_u32 at)
{
    double e = (double)x - (double)y, error = (e < 0 ? -e : e) + 0.0; /* never -0 */
    if (error > f->max_error) {
        f->max_error = error;
        f->max_at = at;
    }
    double bound = ends->bound >= 0 ? NAME(bound_of)(ends, x, y) : ends->bound;
    if (ends->bound >= 0 && error <= bound)
        return;
    if (ends->bound >= 0 && NAME(clips)(ends, x, y, bound)) {
        f->max_clip = error > f->max_clip ? error : f->max_clip;
        f->first_clipped = f->clipped++ == 0 ? at : f->first_clipped;
    } else {
        f->first_offence = f->offences++ == 0 ? at : f->first_offence;
    }
}

QK_FN void NAME(judge_nonfinite)(struct qk_found *f, const struct NAME(ends) * ends, WORK x, WORK y,
                                 qk_u32 at)
{
    WORK wanted = x > 0 ? ends->most : x < 0 ? ends->least : (WORK)0;
    f->nonfinite++;
    if (!(ends->bound >= 0 && y == wanted))
        f->first_offence = f->offences++ == 0 ? at : f->first_offence;
}

/* Elements and values of the octet at i, to where the group keeps them. */
QK_FN void NAME(keep)(const QK_GLOBAL qk_u8 *block, const struct qk_flat_args *a, qk_u32 i,
                      QK_LOCAL WORK *xs, QK_LOCAL WORK *ys)
{
    WORK v[8];
    if (i + 8 <= a->n) {
        OCTET(block + a->src, i, v);
        for (int k = 0; k < 8; k++)
            xs[k] = v[k];
    } else {
        for (qk_u32 k = 0; k < a->n - i; k++)
            xs[k] = AT(block + a->src, i + k);
    }
    IN(decode_octet)(block, a, i, v);
    for (int k = 0; k < 8; k++)
        ys[k] = v[k];
}

/* This thread's octets of the elements begin .. end: kept for the sums, and judged. */
QK_FN void NAME(stage)(const QK_GLOBAL qk_u8 *block, const struct qk_flat_args *a, qk_u32 begin,
                       qk_u32 end, QK_LOCAL WORK *xs, QK_LOCAL WORK *ys, struct qk_found *f)
{
    for (qk_u32 i = begin + 8 * QK_LID; i < end; i += 8 * QK_LSIZE) {
        struct NAME(ends) ends = NAME(ends_at)(block, a, i);
        qk_u32 n = qk_min(end - i, 8);
        QK_LOCAL WORK *x = xs + (i - begin), *y = ys + (i - begin);
        NAME(keep)(block, a, i, x, y);
        for (qk_u32 k = 0; k < n; k++) {
            if (k > 0 && !a->even_sets)
                ends = NAME(ends_at)(block, a, i + k);
            f->bad_pads += qk_flat_bad_pad(block + a->codes, a, i + k);
            if (x[k] >= -WORK_MAX && x[k] <= WORK_MAX) {
                NAME(judge)(f, &ends, x[k], y[k], (i + k) % QK_BLOCK);
                continue;
            }
            NAME(judge_nonfinite)(f, &ends, x[k], y[k], (i + k) % QK_BLOCK);
            /* Adds +0 to sums, none of which is ever -0: the same as being left out. */
            x[k] = 0;
            y[k] = 0;
        }
    }
}

/* Goes on with the sums of all lanes over n elements that are kept. */
QK_FN void NAME(add)(QK_LOCAL double *lanes, const QK_LOCAL WORK *xs, const QK_LOCAL WORK *ys,
                     qk_u32 n)
{
    for (qk_u32 c = QK_LID; c < 3 * QK_LANES; c += QK_LSIZE) {
        qk_u32 kind = c / QK_LANES;
        double sum = lanes[c];
        for (qk_u32 i = c % QK_LANES; i < n; i += QK_LANES) {
            double x = (double)xs[i], y = (double)ys[i], e = x - y;
            double term = kind == QK_SUM_E2 ? e : kind == QK_SUM_X2 ? x : y;
            sum = sum + term * term;
        }
        lanes[c] = sum;
    }
}

QK_KERNEL(NAME(qk_measure), struct qk_flat_args)
{
    QK_SHARED WORK xs[QK_STAGE];
    QK_SHARED WORK ys[QK_STAGE];
    QK_SHARED double lanes[3 * QK_LANES];
    QK_SHARED struct qk_found found[QK_GROUP_MOST];
    qk_u32 end = qk_min((QK_GROUP + 1) * QK_BLOCK, a.n);
    struct qk_found mine = qk_found_none();
    for (qk_u32 c = QK_LID; c < 3 * QK_LANES; c += QK_LSIZE)
        lanes[c] = 0;
    for (qk_u32 begin = QK_GROUP * QK_BLOCK; begin < end; begin += QK_STAGE) {
        qk_u32 stage_end = qk_min(begin + QK_STAGE, end);
        NAME(stage)(block, &a, begin, stage_end, xs, ys, &mine);
        QK_BARRIER;
        NAME(add)(lanes, xs, ys, stage_end - begin);
        QK_BARRIER;
    }
    found[QK_LID] = mine;
    qk_found_join_group(found);
    if (QK_LID == 0)
        qk_found_store(block, &a, QK_GROUP, lanes, found);
}

#undef NAME
#undef AT
#undef OCTET
