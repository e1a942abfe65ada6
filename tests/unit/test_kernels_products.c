/*
 * test_kernels_products.c - sums of products at every level, against sums that are written out term
 * by term: the same bits for any number of terms and rows, and nothing beside them is touched.
 */
#include "support.h"

#include "kernels/search/products.h"

#define MOST_TERMS 67
#define STRIDE     128
#define GUARD      (STRIDE * QP_PANEL)

#define DEFINE_CASE(T, SUFFIX)                                                                     \
    struct SUFFIX##_case {                                                                         \
        _Alignas(64) T a[MOST_TERMS * STRIDE];                                                     \
        _Alignas(64) T c[2 * GUARD], expected[2 * GUARD];                                          \
        T b[MOST_TERMS * 7];                                                                       \
    };                                                                                             \
                                                                                                   \
    static void SUFFIX##_expect(struct SUFFIX##_case *p, size_t n_terms, size_t n_rows,            \
                                size_t b_stride)                                                   \
    {                                                                                              \
        for (size_t j = 0; j < QP_PANEL; j++) {                                                    \
            for (size_t i = 0; i < n_rows; i++) {                                                  \
                T sum = p->c[j * STRIDE + i];                                                      \
                for (size_t k = 0; k < n_terms; k++) {                                             \
                    const T product = p->a[k * STRIDE + i] * p->b[k * b_stride + j];               \
                    sum = sum - product;                                                           \
                }                                                                                  \
                p->expected[j * STRIDE + i] = sum;                                                 \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void SUFFIX##_check(const struct qp_product_kernels *row, size_t n_terms,               \
                               size_t n_rows, size_t b_stride)                                     \
    {                                                                                              \
        static struct SUFFIX##_case p;                                                             \
        uint64_t seed = n_terms * 1000 + n_rows + b_stride;                                        \
        for (size_t i = 0; i < COUNT(p.a); i++)                                                    \
            p.a[i] = (T)random_signed(&seed);                                                      \
        for (size_t i = 0; i < COUNT(p.b); i++)                                                    \
            p.b[i] = (T)random_signed(&seed);                                                      \
        for (size_t i = 0; i < COUNT(p.c); i++)                                                    \
            p.expected[i] = p.c[i] = (T)random_signed(&seed);                                      \
        SUFFIX##_expect(&p, n_terms, n_rows, b_stride);                                            \
        row->subtract_##SUFFIX(n_terms, n_rows, STRIDE, p.a, p.b, b_stride, p.c);                  \
        assert_memory_equal(p.c, p.expected, sizeof p.c);                                          \
    }

DEFINE_CASE(float, f32)
DEFINE_CASE(double, f64)

static void every_level_has_the_bits_of_the_sums(void **state)
{
    static const enum qplan_isa levels[] = {QPLAN_ISA_SCALAR, QPLAN_ISA_AVX2, QPLAN_ISA_AVX512,
                                            QPLAN_ISA_BEST};
    static const size_t n_terms[] = {0, 1, 4, MOST_TERMS};
    (void)state;
    for (size_t i = 0; i < COUNT(levels); i++) {
        const enum qplan_isa isa = levels[i] > qp_isa_detect() ? QPLAN_ISA_BEST : levels[i];
        const struct qp_product_kernels *row = qp_product_kernels(isa);
        for (size_t k = 0; k < COUNT(n_terms); k++) {
            for (size_t rows = QP_PRODUCT_ROWS; rows <= STRIDE; rows += QP_PRODUCT_ROWS) {
                f32_check(row, n_terms[k], rows, QP_PANEL);
                f32_check(row, n_terms[k], rows, 7);
                f64_check(row, n_terms[k], rows, QP_PANEL);
                f64_check(row, n_terms[k], rows, 7);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_has_the_bits_of_the_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
