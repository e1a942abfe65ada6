/*
 * book.h - the arithmetic of codes that are places in a table of ascending values.
 *
 * The limit between two neighbours is their midpoint in the working precision, and belongs to the
 * lower one.
 */
#ifndef QP_KERNELS_BOOK_H
#define QP_KERNELS_BOOK_H

#include <stdbool.h>
#include <stdint.h>

#define QP_BOOK_SIZE 16

/*
 *   qp_book_limits_*  all limits of a table
 *   qp_book_code_*    the code of t, which is not NaN: the number of limits below it
 *   qp_book_reach_*   how far from its value a code may be the nearest: half of the gap to the next
 *                     one, up or down; at an end that of its only neighbour
 */
#define QP_DEFINE_BOOK(SUFFIX, T)                                                                  \
    static inline void qp_book_limits_##SUFFIX(const float *book, T limits[QP_BOOK_SIZE - 1])      \
    {                                                                                              \
        for (int i = 0; i < QP_BOOK_SIZE - 1; i++)                                                 \
            limits[i] = ((T)book[i] + (T)book[i + 1]) / 2;                                         \
    }                                                                                              \
                                                                                                   \
    static inline uint8_t qp_book_code_##SUFFIX(T t, const T limits[QP_BOOK_SIZE - 1])             \
    {                                                                                              \
        unsigned code = 0;                                                                         \
        for (int i = 0; i < QP_BOOK_SIZE - 1; i++)                                                 \
            code += t > limits[i];                                                                 \
        return (uint8_t)code;                                                                      \
    }                                                                                              \
                                                                                                   \
    static inline T qp_book_reach_##SUFFIX(uint8_t code, bool up, const float *book)               \
    {                                                                                              \
        const unsigned lower = up ? code : code - 1u;                                              \
        const unsigned at = code == 0 ? 0 : lower < QP_BOOK_SIZE - 1 ? lower : QP_BOOK_SIZE - 2;   \
        return ((T)book[at + 1] - (T)book[at]) / 2;                                                \
    }

QP_DEFINE_BOOK(f32, float)
QP_DEFINE_BOOK(f64, double)

#undef QP_DEFINE_BOOK

#endif
