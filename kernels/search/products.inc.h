/*
 * products.inc.h - the loops of products, once for every level: over vectors of the compiler, of as
 * many bytes as the level has. The including file defines ISA, VECTOR_BYTES and PRODUCTS, the name
 * of the row.
 */

#define DEFINE_SUBTRACT(SUFFIX, T)                                                                 \
    typedef T real_##SUFFIX;                                                                       \
    typedef T lanes_##SUFFIX __attribute__((vector_size(VECTOR_BYTES)));                           \
                                                                                                   \
    /* Two vectors of rows, whose QP_PANEL columns stay in registers. */                           \
    static void subtract_rows_##SUFFIX(size_t n_terms, size_t stride, const real_##SUFFIX *a,      \
                                       const real_##SUFFIX *b, size_t b_stride, real_##SUFFIX *c)  \
    {                                                                                              \
        lanes_##SUFFIX *c0 = (void *)c, *c1 = (void *)(c + stride);                                \
        lanes_##SUFFIX *c2 = (void *)(c + 2 * stride), *c3 = (void *)(c + 3 * stride);             \
        lanes_##SUFFIX s00 = c0[0], s01 = c0[1], s10 = c1[0], s11 = c1[1];                         \
        lanes_##SUFFIX s20 = c2[0], s21 = c2[1], s30 = c3[0], s31 = c3[1];                         \
        for (size_t k = 0; k < n_terms; k++, a += stride, b += b_stride) {                         \
            const lanes_##SUFFIX *from = (const void *)a;                                          \
            const lanes_##SUFFIX x0 = from[0], x1 = from[1];                                       \
            s00 -= x0 * b[0];                                                                      \
            s01 -= x1 * b[0];                                                                      \
            s10 -= x0 * b[1];                                                                      \
            s11 -= x1 * b[1];                                                                      \
            s20 -= x0 * b[2];                                                                      \
            s21 -= x1 * b[2];                                                                      \
            s30 -= x0 * b[3];                                                                      \
            s31 -= x1 * b[3];                                                                      \
        }                                                                                          \
        c0[0] = s00;                                                                               \
        c0[1] = s01;                                                                               \
        c1[0] = s10;                                                                               \
        c1[1] = s11;                                                                               \
        c2[0] = s20;                                                                               \
        c2[1] = s21;                                                                               \
        c3[0] = s30;                                                                               \
        c3[1] = s31;                                                                               \
    }                                                                                              \
                                                                                                   \
    static void subtract_##SUFFIX(size_t n_terms, size_t n_rows, size_t stride,                    \
                                  const real_##SUFFIX *a, const real_##SUFFIX *b, size_t b_stride, \
                                  real_##SUFFIX *c)                                                \
    {                                                                                              \
        for (size_t i = 0; i < n_rows; i += 2 * VECTOR_BYTES / sizeof(T))                          \
            subtract_rows_##SUFFIX(n_terms, stride, a + i, b, b_stride, c + i);                    \
    }

DEFINE_SUBTRACT(f32, float)
DEFINE_SUBTRACT(f64, double)

#undef DEFINE_SUBTRACT

const struct qp_product_kernels PRODUCTS = {ISA, subtract_f32, subtract_f64};
