/*
 * qk_quantize.inc.h - ranges and codes of a tile, as a template for one source dtype. The
 * specification is kernels/tiles/element.inc.h.
 *
 * Groups count sets, parts of sets, or pieces of a row: never elements. Where the range of a set is
 * found in parts, lo and hi have a row for each part, which the kernels of qk_params.inc.h join.
 * Least and largest are exact in any order, and start from +0, so no order shows in the sign of 0.
 *
 * The including file defines NAME(op), IN(op) of the working precision, AT and OCTET of the dtype,
 * WORK, WORK_MAX and FUSED_ELEMS.
 */

struct NAME(seen) {
    WORK lo, hi;
    qk_u32 nonfinite;
};

QK_FN void NAME(see)(struct NAME(seen) * seen, WORK x)
{
    if (!(x >= -WORK_MAX && x <= WORK_MAX)) {
        seen->nonfinite++;
        return;
    }
    seen->lo = x < seen->lo ? x : seen->lo;
    seen->hi = x > seen->hi ? x : seen->hi;
}

QK_FN void NAME(count)(QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a, qk_u32 nonfinite)
{
    QK_GLOBAL qk_u32 *status = (QK_GLOBAL qk_u32 *)(block + a->status);
    if (nonfinite)
        QK_ATOMIC_ADD(status + QK_STATUS_NONFINITE, nonfinite);
}

/* Sees what this thread has of the elements begin .. end of a set. */
QK_FN void NAME(see_set)(struct NAME(seen) * seen, const QK_GLOBAL qk_u8 *src,
                         const struct qk_tile_args *a, const struct qk_set *s, qk_u32 begin,
                         qk_u32 end)
{
    if (!a->wide) {
        for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE)
            NAME(see)(seen, AT(src, qk_set_elem(a, s, i)));
        return;
    }
    for (qk_u32 i = begin + 8 * QK_LID; i < end; i += 8 * QK_LSIZE) {
        WORK x[8];
        OCTET(src, qk_set_elem(a, s, i), x);
        for (int k = 0; k < 8; k++)
            NAME(see)(seen, x[k]);
    }
}

/* A group finds the range of one part of one set. */
QK_KERNEL(NAME(qk_range_sets), struct qk_tile_args)
{
    QK_SHARED WORK lo[QK_GROUP_MOST];
    QK_SHARED WORK hi[QK_GROUP_MOST];
    qk_u32 part = QK_GROUP / a.n_sets, set = QK_GROUP - part * a.n_sets;
    struct qk_set s = qk_set_at(&a, set);
    struct NAME(seen) seen = {0, 0, 0};
    qk_u32 n = s.n_rows * s.width, begin = qk_min(part * a.part_len, n);
    NAME(see_set)(&seen, block + a.src, &a, &s, begin, qk_min(begin + a.part_len, n));
    NAME(count)(block, &a, seen.nonfinite);
    lo[QK_LID] = seen.lo;
    hi[QK_LID] = seen.hi;
    IN(join_group)(lo, hi);
    if (QK_LID == 0) {
        ((QK_GLOBAL WORK *)(block + a.lo))[QK_GROUP] = lo[0];
        ((QK_GLOBAL WORK *)(block + a.hi))[QK_GROUP] = hi[0];
    }
}

/*
 * A thread finds the range of one part of a narrow set: neighbouring threads have neighbouring
 * sets, so that together they read whole rows. A group takes a block of sets.
 */
QK_KERNEL(NAME(qk_range_lanes), struct qk_tile_args)
{
    qk_u32 blocks = (a.n_sets - 1) / QK_SET_BLOCK + 1;
    qk_u32 part = QK_GROUP / blocks, first = (QK_GROUP - part * blocks) * QK_SET_BLOCK;
    qk_u32 end = qk_min(first + QK_SET_BLOCK, a.n_sets);
    struct NAME(seen) seen = {0, 0, 0};
    for (qk_u32 set = first + QK_LID; set < end; set += QK_LSIZE) {
        struct qk_set s = qk_set_at(&a, set);
        qk_u32 row = qk_min(part * a.part_len, s.n_rows);
        qk_u32 end_row = qk_min(row + a.part_len, s.n_rows);
        seen.lo = seen.hi = 0;
        for (; row < end_row; row++) {
            qk_u32 from = (s.row + row) * a.cols + s.col;
            for (qk_u32 i = from; i < from + s.width; i++)
                NAME(see)(&seen, AT(block + a.src, i));
        }
        ((QK_GLOBAL WORK *)(block + a.lo))[part * a.n_sets + set] = seen.lo;
        ((QK_GLOBAL WORK *)(block + a.hi))[part * a.n_sets + set] = seen.hi;
    }
    NAME(count)(block, &a, seen.nonfinite);
}

/* ---- Codes ----------------------------------------------------------------------------------- */

/* What the codes of a set are made with. */
struct NAME(coder) {
    const QK_GLOBAL qk_u8 *block;
    const struct qk_values *v;
    WORK scale, bias, least, most;
    qk_i32 zero;
};

QK_FN struct NAME(coder) NAME(coder_of)(const QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a,
                                        WORK scale, qk_i32 stored)
{
    struct NAME(coder) coder;
    qk_u32 biased = a->v.kind == QK_CODES_BIASED;
    coder.block = block;
    coder.v = &a->v;
    coder.scale = scale;
    coder.bias = biased ? (WORK)QK_F32((qk_u32)stored) : (WORK)0;
    coder.zero = biased ? 0 : stored;
    coder.least = (WORK)(a->q_min - coder.zero);
    coder.most = (WORK)(a->q_max - coder.zero);
    return coder;
}

/*
 * The code as a byte; the clamp comes first, to integers that the type holds exactly. NaN is taken
 * for 0, which without a bias has the zero point; such a bias of 0 changes no value.
 */
QK_FN qk_u32 NAME(code)(const struct NAME(coder) * coder, WORK x)
{
    WORK number = x == x ? x : (WORK)0;
    if (qk_is_valued(coder->v))
        return IN(valued_code)(coder->block, coder->v, number / coder->scale);
    WORK t = (number - coder->bias) / coder->scale;
    t = t < coder->least ? coder->least : t;
    t = t > coder->most ? coder->most : t;
    return (qk_u32)((qk_i32)IN(rne)(t) + coder->zero) & 255u;
}

/* Eight codes to an aligned place. at: the first of them in the tile, whose rows have no pads. */
QK_FN void NAME(put_octet)(QK_GLOBAL qk_u8 *codes, const struct qk_tile_args *a, qk_u32 at,
                           const struct NAME(coder) * coder, const WORK *x)
{
    qk_u32 low = 0, high = 0;
    QK_GLOBAL qk_u32 *to = (QK_GLOBAL qk_u32 *)codes;
    if (a->packed) {
        for (int k = 0; k < 8; k++)
            low |= (NAME(code)(coder, x[k]) & 15u) << 4 * k;
        to[at / 8] = low;
        return;
    }
    for (int k = 0; k < 4; k++) {
        low |= NAME(code)(coder, x[k]) << 8 * k;
        high |= NAME(code)(coder, x[k + 4]) << 8 * k;
    }
    to[at / 4] = low;
    to[at / 4 + 1] = high;
}

QK_FN struct NAME(coder) NAME(coder_at)(const QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a,
                                        qk_u32 row, qk_u32 col)
{
    qk_u32 set = row / a->band_rows * a->set_cols + (a->col_skip + col) / a->col_width;
    return NAME(coder_of)(block, a, ((const QK_GLOBAL WORK *)(block + a->scale))[set],
                          ((const QK_GLOBAL qk_i32 *)(block + a->zero))[set]);
}

QK_FN qk_u32 NAME(code_at)(const QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a, qk_u32 row,
                           qk_u32 col)
{
    struct NAME(coder) coder = NAME(coder_at)(block, a, row, col);
    return NAME(code)(&coder, AT(block + a->src, row * a->cols + col));
}

/* One byte of the codes of a row. */
QK_FN qk_u32 NAME(byte_at)(const QK_GLOBAL qk_u8 *block, const struct qk_tile_args *a, qk_u32 row,
                           qk_u32 byte)
{
    qk_u32 has_second;
    if (!a->packed)
        return NAME(code_at)(block, a, row, byte);
    qk_u32 col = qk_packed_col(a, byte, &has_second);
    qk_u32 both = NAME(code_at)(block, a, row, col) & 15u;
    if (has_second)
        both |= (NAME(code_at)(block, a, row, col + 1) & 15u) << 4;
    return both;
}

/* A group makes one chunk of the codes of one row. */
QK_KERNEL(NAME(qk_codes), struct qk_tile_args)
{
    qk_u32 row = QK_GROUP / a.row_chunks, chunk = QK_GROUP - row * a.row_chunks;
    qk_u32 begin = chunk * QK_CHUNK, end = qk_min(begin + QK_CHUNK, a.row_bytes);
    qk_u32 step = a.wide ? (a.packed ? 4 : 8) : 1;
    for (qk_u32 byte = begin + step * QK_LID; byte < end; byte += step * QK_LSIZE) {
        if (a.wide) {
            WORK x[8];
            qk_u32 col = a.packed ? 2 * byte : byte, at = row * a.cols + col;
            struct NAME(coder) coder = NAME(coder_at)(block, &a, row, col);
            OCTET(block + a.src, at, x);
            NAME(put_octet)(block + a.codes, &a, at, &coder, x);
        } else {
            block[a.codes + row * a.row_bytes + byte] = (qk_u8)NAME(byte_at)(block, &a, row, byte);
        }
    }
}

/* ---- Range, parameters and codes in one ------------------------------------------------------ */

/* Sees the elements of a set that this thread has, and keeps them for the group. */
QK_FN void NAME(see_and_keep)(struct NAME(seen) * seen, QK_LOCAL WORK *kept,
                              const QK_GLOBAL qk_u8 *src, const struct qk_tile_args *a,
                              const struct qk_set *s)
{
    qk_u32 n = s->n_rows * s->width;
    if (!a->wide) {
        for (qk_u32 i = QK_LID; i < n; i += QK_LSIZE) {
            kept[i] = AT(src, qk_set_elem(a, s, i));
            NAME(see)(seen, kept[i]);
        }
        return;
    }
    for (qk_u32 i = 8 * QK_LID; i < n; i += 8 * QK_LSIZE) {
        WORK x[8];
        OCTET(src, qk_set_elem(a, s, i), x);
        for (int k = 0; k < 8; k++) {
            kept[i + (qk_u32)k] = x[k];
            NAME(see)(seen, x[k]);
        }
    }
}

/* Codes of a set that a group keeps. Packed, the set and its rows begin at bytes and end there. */
QK_FN void NAME(put_kept)(QK_GLOBAL qk_u8 *codes, const struct qk_tile_args *a,
                          const struct qk_set *s, const struct NAME(coder) * coder,
                          const QK_LOCAL WORK *kept)
{
    qk_u32 n = s->n_rows * s->width, step = a->wide ? 8 : a->packed ? 2 : 1;
    for (qk_u32 i = step * QK_LID; i < n; i += step * QK_LSIZE) {
        qk_u32 at = qk_set_elem(a, s, i);
        if (a->wide) {
            WORK x[8];
            for (int k = 0; k < 8; k++)
                x[k] = kept[i + (qk_u32)k];
            NAME(put_octet)(codes, a, at, coder, x);
        } else if (a->packed) {
            qk_u32 low = NAME(code)(coder, kept[i]) & 15u, high = NAME(code)(coder, kept[i + 1]);
            codes[at / 2] = (qk_u8)(low | (high & 15u) << 4);
        } else {
            codes[at] = (qk_u8)NAME(code)(coder, kept[i]);
        }
    }
}

/* A group does one set and reads it once. */
QK_KERNEL(NAME(qk_fused), struct qk_tile_args)
{
    QK_SHARED WORK kept[FUSED_ELEMS];
    QK_SHARED WORK lo[QK_GROUP_MOST];
    QK_SHARED WORK hi[QK_GROUP_MOST];
    struct qk_set s = qk_set_at(&a, QK_GROUP);
    struct NAME(seen) seen = {0, 0, 0};
    qk_i32 zero;
    NAME(see_and_keep)(&seen, kept, block + a.src, &a, &s);
    NAME(count)(block, &a, seen.nonfinite);
    lo[QK_LID] = seen.lo;
    hi[QK_LID] = seen.hi;
    IN(join_group)(lo, hi);
    /* Every thread finds the same parameters; one stores them. */
    WORK scale = IN(find_params)(block, &a, QK_GROUP, lo[0], hi[0], &zero);
    if (QK_LID == 0)
        IN(store_params)(block, &a, QK_GROUP, scale, zero);
    struct NAME(coder) coder = NAME(coder_of)(block, &a, scale, zero);
    NAME(put_kept)(block + a.codes, &a, &s, &coder, kept);
}

#undef NAME
#undef AT
#undef OCTET
