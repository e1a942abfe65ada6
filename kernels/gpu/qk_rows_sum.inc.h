/*
 * qk_rows_sum.inc.h - rows that are sums of rows, as a template for one float dtype. A thread owns
 * its sums and adds their terms in the order of the lists. The specification is row_sums.c,
 * embedding_bag.c and max_gradient.c in lib/ops.
 *
 * The including file defines NAME(op), TYPED(op) and RAW of the bits, OF_RAW(bits), ADD(sum, x),
 * VALUE(sum), RESULT(x, overflow), and KEEPS, whether sums have errors.
 */

QK_FN void NAME(add_row)(const QK_GLOBAL RAW *source, const struct qk_rows_args *a,
                         const struct qk_octet *o, qk_u32 row, struct qk_sum *sums)
{
    RAW x[8];
    TYPED(qk_row_get)(source, a, o, row, x);
    for (int k = 0; k < 8; k++)
        ADD(&sums[k], (double)OF_RAW(x[k]));
}

QK_FN void NAME(add_over)(const QK_GLOBAL RAW *source, const struct qk_rows_args *a,
                          const struct qk_octet *o, qk_u32 row, double divisor, struct qk_sum *sums)
{
    RAW x[8];
    TYPED(qk_row_get)(source, a, o, row, x);
    for (int k = 0; k < 8; k++)
        ADD(&sums[k], (double)OF_RAW(x[k]) / divisor);
}

QK_FN void NAME(divide)(qk_u32 n, struct qk_sum *sums)
{
    for (int k = 0; k < 8; k++) {
        sums[k].hi = VALUE(&sums[k]) / (double)n;
        sums[k].lo = 0;
    }
}

/* Rounds and stores; the sums behind the last column are 0. Returns what became infinite. */
QK_FN qk_u32 NAME(finish)(QK_GLOBAL RAW *target, const struct qk_rows_args *a,
                          const struct qk_octet *o, const struct qk_sum *sums)
{
    RAW x[8];
    qk_u32 overflow = 0;
    for (int k = 0; k < 8; k++)
        x[k] = RESULT(VALUE(&sums[k]), &overflow);
    TYPED(qk_row_put)(target, a, o, x);
    return overflow;
}

/* An item is an octet of a bag's row. */
QK_KERNEL(NAME(qk_bag_sum), struct qk_rows_args)
{
    const QK_GLOBAL RAW *source = (const QK_GLOBAL RAW *)(block + a.source);
    qk_u32 begin = QK_GROUP * QK_ROWS_ITEMS, end = begin + qk_min(QK_ROWS_ITEMS, a.n_items - begin);
    qk_u32 overflow = 0;
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE) {
        struct qk_octet o = qk_octet_of(&a, i);
        qk_u32 place = qk_bag_begin(block, &a, o.row), stop = qk_bag_begin(block, &a, o.row + 1);
        struct qk_sum sums[8] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}};
        qk_u32 n = 0;
        for (; place < stop; place++) {
            qk_u32 row = qk_row_at(block, &a, place);
            if (row == QK_NO_ROW)
                continue;
            NAME(add_row)(source, &a, &o, row, sums);
            n++;
        }
        if (a.by_count && n > 1)
            NAME(divide)(n, sums);
        overflow += NAME(finish)((QK_GLOBAL RAW *)(block + a.target), &a, &o, sums);
    }
    qk_count_overflow(block, &a, overflow);
}

/* An item is an octet of a row of the table. A row without terms is 0 or stays as it is. */
QK_KERNEL(NAME(qk_table_sum), struct qk_rows_args)
{
    const QK_GLOBAL RAW *source = (const QK_GLOBAL RAW *)(block + a.source);
    QK_GLOBAL RAW *target = (QK_GLOBAL RAW *)(block + a.target);
    const QK_GLOBAL qk_u64 *start = (const QK_GLOBAL qk_u64 *)(block + a.start);
    const QK_GLOBAL qk_u64 *list = (const QK_GLOBAL qk_u64 *)(block + a.list);
    const QK_GLOBAL double *sizes = (const QK_GLOBAL double *)(block + a.sizes);
    qk_u32 begin = QK_GROUP * QK_ROWS_ITEMS, end = begin + qk_min(QK_ROWS_ITEMS, a.n_items - begin);
    qk_u32 overflow = 0;
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE) {
        struct qk_octet o = qk_octet_of(&a, i);
        struct qk_sum sums[8] = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}};
        qk_u32 first = (qk_u32)start[o.row], stop = (qk_u32)start[o.row + 1];
        if (first == stop && a.accumulate)
            continue;
        for (qk_u32 k = first; k < stop; k++) {
            qk_u32 row = (qk_u32)list[k];
            if (row == QK_NO_ROW) /* counts, and adds nothing */
                continue;
            if (a.has_sizes)
                NAME(add_over)(source, &a, &o, row, sizes[row], sums);
            else
                NAME(add_row)(source, &a, &o, row, sums);
        }
        if (a.by_count && stop - first > 1)
            NAME(divide)(stop - first, sums);
        if (a.accumulate)
            NAME(add_row)((const QK_GLOBAL RAW *)target, &a, &o, o.row, sums);
        overflow += NAME(finish)(target, &a, &o, sums);
    }
    qk_count_overflow(block, &a, overflow);
}

/*
 * An item is a column of a range of rows. Its thread reads where each bag's element of this column
 * went, and keeps the sums of all elements of the range: so none has two owners. No sum is -0, as
 * all begin with +0: that stands for one without terms.
 */
QK_KERNEL(NAME(qk_max_gradient), struct qk_rows_args)
{
    const QK_GLOBAL RAW *source = (const QK_GLOBAL RAW *)(block + a.source);
    const QK_GLOBAL qk_u64 *where = (const QK_GLOBAL qk_u64 *)(block + a.max_indices);
    QK_GLOBAL RAW *target = (QK_GLOBAL RAW *)(block + a.target);
    QK_GLOBAL double *hi = (QK_GLOBAL double *)(block + a.sums), *lo = hi + a.n_rows * a.row_len;
    qk_u32 begin = QK_GROUP * QK_ROWS_ITEMS, end = begin + qk_min(QK_ROWS_ITEMS, a.n_items - begin);
    qk_u32 overflow = 0;
    for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE) {
        qk_u32 range = i / a.row_len, col = i - range * a.row_len;
        qk_u32 first = range * a.range_rows, n = qk_min(a.range_rows, a.n_rows - first);
        for (qk_u32 row = first; row < first + n; row++) {
            hi[row * a.row_len + col] = -0.0;
            if (KEEPS)
                lo[row * a.row_len + col] = 0;
        }
        for (qk_u32 bag = 0; bag < a.n_bags; bag++) {
            qk_u32 row = (qk_u32)where[bag * a.row_len + col], at = row * a.row_len + col;
            if (row - first >= n || row == a.padding)
                continue;
            struct qk_sum sum = {hi[at] + 0.0, KEEPS ? lo[at] : 0}; /* -0 + 0 is +0 */
            ADD(&sum, (double)OF_RAW(source[bag * a.row_len + col]));
            hi[at] = sum.hi;
            if (KEEPS)
                lo[at] = sum.lo;
        }
        for (qk_u32 row = first; row < first + n; row++) {
            qk_u32 at = row * a.row_len + col, none = QK_U64(hi[at]) == (qk_u64)1 << 63;
            struct qk_sum sum = {hi[at] + 0.0, KEEPS ? lo[at] : 0};
            if (none && a.accumulate)
                continue;
            if (a.accumulate)
                ADD(&sum, (double)OF_RAW(target[at]));
            target[at] = RESULT(VALUE(&sum), &overflow);
        }
    }
    qk_count_overflow(block, &a, overflow);
}

#undef NAME
#undef TYPED
#undef RAW
#undef OF_RAW
#undef ADD
#undef VALUE
#undef RESULT
#undef KEEPS
