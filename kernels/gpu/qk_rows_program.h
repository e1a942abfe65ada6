/*
 * qk_rows_program.h - the kernels of embeddings and bags, in the order in which they are compiled.
 */
#include "qk_platform.h"

#include "qk_rows_args.h"

#ifdef QK_FP64
#include "qk_sum.h"
#endif

/* ---- Copies ---------------------------------------------------------------------------------- */

QK_FN qk_u32x4 qk_zero_x4(void)
{
    qk_u32x4 v;
    v.x = v.y = v.z = v.w = 0;
    return v;
}

/* An item is a unit of a row of the result: rows by index, 0 for an index that was skipped. */
#define QK_GATHER(name, UNIT, ZERO)                                                                \
    QK_KERNEL(name, struct qk_rows_args)                                                           \
    {                                                                                              \
        const QK_GLOBAL UNIT *source = (const QK_GLOBAL UNIT *)(block + a.source);                 \
        QK_GLOBAL UNIT *target = (QK_GLOBAL UNIT *)(block + a.target);                             \
        qk_u32 begin = QK_GROUP * QK_ROWS_UNITS;                                                   \
        qk_u32 end = begin + qk_min(QK_ROWS_UNITS, a.n_items - begin);                             \
        for (qk_u32 i = begin + QK_LID; i < end; i += QK_LSIZE) {                                  \
            qk_u32 place = i / a.row_len, row = qk_row_at(block, &a, place);                       \
            UNIT v = ZERO;                                                                         \
            if (row != QK_NO_ROW)                                                                  \
                v = source[row * a.row_len + (i - place * a.row_len)];                             \
            target[i] = v;                                                                         \
        }                                                                                          \
    }
QK_GATHER(qk_gather_u16, qk_u16, 0)
QK_GATHER(qk_gather_u32, qk_u32, 0)
QK_GATHER(qk_gather_x4, qk_u32x4, qk_zero_x4())
#undef QK_GATHER

/* ---- Maxima ---------------------------------------------------------------------------------- */

#define NAME(op)  op##_f32
#define TYPED(op) op##_u32
#define RAW       qk_u32
#define SIGN      0x80000000u
#define INFINITE  0x7f800000u
#include "qk_rows_max.inc.h"

#define NAME(op)  op##_f16
#define TYPED(op) op##_u16
#define RAW       qk_u16
#define SIGN      0x8000u
#define INFINITE  0x7c00u
#include "qk_rows_max.inc.h"

#define NAME(op)  op##_bf16
#define TYPED(op) op##_u16
#define RAW       qk_u16
#define SIGN      0x8000u
#define INFINITE  0x7f80u
#include "qk_rows_max.inc.h"

#define NAME(op)  op##_f64
#define TYPED(op) op##_u64
#define RAW       qk_u64
#define SIGN      ((qk_u64)0x80000000u << 32)
#define INFINITE  ((qk_u64)0x7ff00000u << 32)
#include "qk_rows_max.inc.h"

/* ---- Sums ------------------------------------------------------------------------------------ */

#ifdef QK_FP64

QK_FN void qk_count_overflow(QK_GLOBAL qk_u8 *block, const struct qk_rows_args *a, qk_u32 n)
{
    if (n)
        QK_ATOMIC_ADD((QK_GLOBAL qk_u32 *)(block + a->status) + QK_OP_OVERFLOW, n);
}

#define NAME(op)  op##_f32
#define TYPED(op) op##_u32
#define RAW       qk_u32
#define OF_RAW    QK_F32
#define ADD       qk_sum_add_plain
#define VALUE     qk_sum_value_plain
#define RESULT    qk_result_f32
#define KEEPS     0
#include "qk_rows_sum.inc.h"

#define NAME(op)  op##_f16
#define TYPED(op) op##_u16
#define RAW       qk_u16
#define OF_RAW    qk_from_f16
#define ADD       qk_sum_add_plain
#define VALUE     qk_sum_value_plain
#define RESULT    qk_result_f16
#define KEEPS     0
#include "qk_rows_sum.inc.h"

#define NAME(op)  op##_bf16
#define TYPED(op) op##_u16
#define RAW       qk_u16
#define OF_RAW    qk_from_bf16
#define ADD       qk_sum_add_plain
#define VALUE     qk_sum_value_plain
#define RESULT    qk_result_bf16
#define KEEPS     0
#include "qk_rows_sum.inc.h"

#define NAME(op)  op##_f64
#define TYPED(op) op##_u64
#define RAW       qk_u64
#define OF_RAW    QK_F64
#define ADD       qk_sum_add
#define VALUE     qk_sum_value
#define RESULT    qk_result_f64
#define KEEPS     1
#include "qk_rows_sum.inc.h"

#endif
