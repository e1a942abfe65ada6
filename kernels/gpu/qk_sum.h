/*
 * qk_sum.h - deterministic sums on a device, as kernels/ops/sum.h has them: terms of f32, f16 and
 * bf16 data are added in f64; sums of f64 data keep the rounding errors apart (TwoSum).
 */
#ifndef QK_SUM_H
#define QK_SUM_H

#include "qk_stores.h"

struct qk_sum {
    double hi, lo;
};

/* hi + x and, in lo, what that lost: exact unless it overflows. */
QK_FN void qk_sum_add(struct qk_sum *sum, double x)
{
    double total = sum->hi + x, part = total - sum->hi;
    sum->lo += (sum->hi - (total - part)) + (x - part);
    sum->hi = total;
}

QK_FN void qk_sum_add_plain(struct qk_sum *sum, double x)
{
    sum->hi += x;
}

/* With an infinity or NaN among the terms the errors mean nothing. */
QK_FN double qk_sum_value(const struct qk_sum *sum)
{
    return qk_is_finite(sum->hi) ? sum->hi + sum->lo : sum->hi;
}

QK_FN double qk_sum_value_plain(const struct qk_sum *sum)
{
    return sum->hi;
}

#endif
