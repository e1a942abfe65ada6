/*
 * valued.h - codes that stand for values of their own, floats and tables alike: a code stands for
 * scale * value, both in the working precision.
 *
 * A quotient t = x / scale is one IEEE division; its code is that of the nearest value, and the
 * largest one of its sign if t lies beyond it.
 */
#ifndef QP_KERNELS_VALUED_H
#define QP_KERNELS_VALUED_H

#include "book.h"
#include "floats.h"

#include <math.h>

/*
 * is_book is a constant where these are called in loops. SHIFT: roundings of quotient and product
 * are less than 2^-SHIFT of a value.
 *
 *   qp_valued_of_*     a code type in the working precision
 *   qp_value_*         what a code that is a number stands for, in scales
 *   qp_valued_code_*   the code of a quotient, which is not NaN
 *   qp_valued_near_*   the value of that code
 *   qp_valued_scale_*  the scale before it is rounded to its stored dtype, given lo <= 0 <= hi,
 * both finite; 1 for a set of zeros qp_valued_bound_*  the largest error of an element x whose code
 * decodes to y, if no other code is nearer
 */
#define QP_DEFINE_VALUED(SUFFIX, T, SHIFT)                                                         \
    struct qp_valued_##SUFFIX {                                                                    \
        const struct qp_code_type *type;                                                           \
        T largest;                                                                                 \
        T limits[QP_BOOK_SIZE - 1]; /* of a table */                                               \
    };                                                                                             \
                                                                                                   \
    static inline struct qp_valued_##SUFFIX qp_valued_of_##SUFFIX(                                 \
        const struct qp_code_type *type) {                                                         \
        struct qp_valued_##SUFFIX v = {.type = type, .largest = (T)type->largest};                 \
        if (type->kind == QP_CODES_BOOK)                                                           \
            qp_book_limits_##SUFFIX(type->book, v.limits);                                         \
        return v;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static inline T qp_value_##SUFFIX(uint8_t code, const struct qp_code_type *type, bool is_book) \
    {                                                                                              \
        return (T)(is_book ? type->book[code] : qp_float_value(code, &type->grid));                \
    }                                                                                              \
                                                                                                   \
    static inline uint8_t qp_valued_code_##SUFFIX(T t, const struct qp_valued_##SUFFIX *v,         \
                                                  bool is_book)                                    \
    {                                                                                              \
        return is_book ? qp_book_code_##SUFFIX(t, v->limits)                                       \
                       : qp_float_code_##SUFFIX(t, &v->type->grid, v->largest);                    \
    }                                                                                              \
                                                                                                   \
    static inline T qp_valued_near_##SUFFIX(T t, const struct qp_valued_##SUFFIX *v, bool is_book) \
    {                                                                                              \
        return is_book ? (T)v->type->book[qp_book_code_##SUFFIX(t, v->limits)]                     \
                       : qp_float_near_##SUFFIX(t, &v->type->grid, v->largest);                    \
    }                                                                                              \
                                                                                                   \
    static inline T qp_valued_scale_##SUFFIX(T lo, T hi, T largest)                                \
    {                                                                                              \
        return lo == hi ? 1 : (-lo > hi ? -lo : hi) / largest;                                     \
    }                                                                                              \
                                                                                                   \
    static inline double qp_valued_bound_##SUFFIX(T x, T y, T scale,                               \
                                                  const struct qp_valued_##SUFFIX *v)              \
    {                                                                                              \
        const T t = scale == 0 ? 0 : y / scale; /* a scale of 0 leaves no other value */           \
        const bool up = (x > y) == (scale > 0), outwards = (x > y) == (y > 0);                     \
        const T reach =                                                                            \
            v->type->kind == QP_CODES_BOOK                                                         \
                ? qp_book_reach_##SUFFIX(qp_book_code_##SUFFIX(t, v->limits), up, v->type->book)   \
                : qp_float_reach_##SUFFIX(qp_float_near_##SUFFIX(t, &v->type->grid, v->largest),   \
                                          outwards, &v->type->grid);                               \
        const double size = fabs((double)scale) * (double)reach;                                   \
        return size + (size + fabs((double)y)) * (SHIFT) + 0x1p-149;                               \
    }

QP_DEFINE_VALUED(f32, float, 0x1p-21)
QP_DEFINE_VALUED(f64, double, 0x1p-50)

#undef QP_DEFINE_VALUED

#endif
