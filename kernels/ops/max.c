/*
 * max.c - maxima by comparison: numbers are compared, bits are copied.
 */
#include "max.h"

#include "../dtypes/bf16/codec.h"
#include "../dtypes/f16/codec.h"
#include "../dtypes/f32/codec.h"
#include "../dtypes/f64/codec.h"

#define MAX(NAME, BYTES)                                                                           \
    static void max_##NAME(size_t n, const void *src, int64_t row, void *best, int64_t *where)     \
    {                                                                                              \
        const unsigned char *from = src;                                                           \
        unsigned char *to = best;                                                                  \
        for (size_t i = 0; i < n; i++, from += (BYTES), to += (BYTES)) {                           \
            if (!(qp_load_##NAME(from) > qp_load_##NAME(to)))                                      \
                continue;                                                                          \
            memcpy(to, from, BYTES);                                                               \
            where[i] = row;                                                                        \
        }                                                                                          \
    }

MAX(f64, 8)
MAX(f32, 4)
MAX(f16, 2)
MAX(bf16, 2)

qp_max_fn qp_max_kernel(enum qplan_dtype dtype)
{
    switch (dtype) {
    case QPLAN_F64:
        return max_f64;
    case QPLAN_F32:
        return max_f32;
    case QPLAN_F16:
        return max_f16;
    default:
        return max_bf16;
    }
}
