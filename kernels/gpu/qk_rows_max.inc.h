/*
 * qk_rows_max.inc.h - the largest of the rows of a bag, element by element, as a template for one
 * float dtype. Numbers are compared by their bits, so that f64 needs no 64-bit floats. The
 * specification is kernels/ops/max.c and embedding_bag.c.
 *
 * The including file defines NAME(op), TYPED(op) and RAW of the bits, SIGN, the bit of the sign,
 * and INFINITE, the magnitude of infinity.
 */

/* a > b, which is false for NaN: those lie beyond the infinity. Both zeros are SIGN. */
QK_FN qk_u32 NAME(greater)(RAW a, RAW b)
{
    RAW a_size = (RAW)(a & ~SIGN), b_size = (RAW)(b & ~SIGN);
    RAW a_place = (RAW)(a & SIGN ? SIGN - a_size : SIGN + a_size);
    RAW b_place = (RAW)(b & SIGN ? SIGN - b_size : SIGN + b_size);
    return a_size <= INFINITE && b_size <= INFINITE && a_place > b_place;
}

/* An item is an octet of a bag's row. The first of equals stays, and nothing replaces a NaN. */
QK_KERNEL(NAME(qk_bag_max), struct qk_rows_args)
{
    const QK_GLOBAL RAW *source = (const QK_GLOBAL RAW *)(block + a.source);
    qk_u32 begin = QK_GROUP * QK_ROWS_ITEMS, end = begin + qk_min(QK_ROWS_ITEMS, a.n_items - begin);
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE) {
        struct qk_octet o = qk_octet_of(&a, i);
        qk_u32 place = qk_bag_begin(block, &a, o.row), stop = qk_bag_begin(block, &a, o.row + 1);
        RAW best[8] = {0, 0, 0, 0, 0, 0, 0, 0}, x[8];
        qk_u64 none = ~(qk_u64)0, where[8] = {none, none, none, none, none, none, none, none};
        for (; place < stop; place++) {
            qk_u32 row = qk_row_at(block, &a, place);
            if (row == QK_NO_ROW)
                continue;
            TYPED(qk_row_get)(source, &a, &o, row, x);
            for (int k = 0; k < 8; k++) {
                qk_u32 wins = where[k] == none || NAME(greater)(x[k], best[k]);
                best[k] = wins ? x[k] : best[k];
                where[k] = wins ? row : where[k];
            }
        }
        TYPED(qk_row_put)((QK_GLOBAL RAW *)(block + a.target), &a, &o, best);
        qk_row_put_u64((QK_GLOBAL qk_u64 *)(block + a.max_indices), &a, &o, where);
    }
}

#undef NAME
#undef TYPED
#undef RAW
#undef SIGN
#undef INFINITE
