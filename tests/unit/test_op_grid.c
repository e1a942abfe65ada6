/*
 * test_op_grid.c - grid samples and affine grids by value: known results, coordinates of every
 * kind, the adjoint, differences, and the short way for inner points against the long one.
 */
#include "grid_support.h"

#include "kernels/ops/grid_kernels.h"

/* ---- Known values -----------------------------------------------------------------------------
 */

/* An image of 2 x 3 at seven points, made by PyTorch in f64 and rounded. */
static const double image[] = {1, 2, 3, 4, 5, 6};
static const double known_points[] = {-1, -1, 0, 0, .5, -.25, 1, 1, -1.4, .3, 1.7, -1.6, 3.1, -2.9};
static const struct {
    unsigned mode, padding;
    double out[2][7]; /* without and with align_corners */
} known[] = {
    {0, 0, {{.25, 3.5, 3.5, 1.5, 0, 0, 0}, {1, 3.5, 3.625, 6, 1.77, .63, 0}}},
    {0, 1, {{1, 3.5, 3.5, 6, 3.4, 3, 3}, {1, 3.5, 3.625, 6, 2.95, 3, 3}}},
    {0, 2, {{1, 3.5, 3.5, 6, 3.5, 2.75, 4}, {1, 3.5, 3.625, 6, 3.35, 3.2, 3.95}}},
    {1, 0, {{1, 2, 3, 0, 0, 0, 0}, {1, 2, 3, 6, 4, 0, 0}}},
    {1, 1, {{1, 2, 3, 6, 4, 3, 3}, {1, 2, 3, 6, 4, 3, 3}}},
    {1, 2, {{1, 2, 3, 6, 4, 2, 4}, {1, 2, 3, 6, 4, 2, 4}}},
    {2,
     0,
     {{.0625, 4.15625, 4.432419, 1.6875, -.23571, .015224, 0},
      {1, 4.15625, 4.779068, 6, 2.018346, .545265, 0}}},
    {2,
     1,
     {{.625, 3.5, 3.488281, 6.375, 3.472, 3, 3},
      {1, 3.5, 3.674805, 6, 2.893187, 2.7165, 2.994656}}},
    {2,
     2,
     {{.25, 3.5, 3.488281, 6.75, 3.54725, 2.791906, 4.369375},
      {1, 3.5, 3.636719, 6, 3.36275, 3.0845, 3.99275}}},
};

static void values_are_known(void **state)
{
    static const enum qplan_storage dtypes[] = {QPLAN_STORAGE_F64, QPLAN_STORAGE_F32};
    uint64_t seed = 1;
    (void)state;
    for (size_t d = 0; d < COUNT(dtypes); d++) {
        struct sample s = sample_make(2, dtypes[d], 1, 1, SHAPE(2, 3), SHAPE(1, 7), &seed);
        for (size_t i = 0; i < 6; i++)
            put_value(s.dtype, s.data[INPUT], i, image[i]);
        for (size_t i = 0; i < 14; i++)
            put_value(s.dtype, s.data[GRID], i, known_points[i]);
        for (size_t k = 0; k < COUNT(known) * 2; k++) {
            s.mode = known[k / 2].mode;
            s.padding = known[k / 2].padding;
            s.align = k % 2;
            forward(&s);
            for (size_t i = 0; i < 7; i++)
                assert_true(fabs(get_value(s.dtype, s.data[OUTPUT], i) -
                                 known[k / 2].out[k % 2][i]) < 4e-6);
        }
        sample_free(&s);
    }
}

/* The gradient by the grid for dout = 1. */
static void slopes_are_known(void **state)
{
    static const struct {
        unsigned mode, padding;
        bool align;
        double at[2], want[2];
    } cases[] = {
        {0, 0, false, {.5, -.25}, {1.5, 3}}, {2, 0, false, {.5, -.25}, {0.475982666, 5.369201660}},
        {0, 1, true, {1, 1}, {0, 0}}, /* the edge counts as outside */
        {0, 0, true, {1, 1}, {-6, -3}},      {1, 0, false, {.5, -.25}, {0, 0}},
    };
    uint64_t seed = 1;
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct sample s = sample_make(2, QPLAN_STORAGE_F64, 1, 1, SHAPE(2, 3), SHAPE(1, 1), &seed);
        memcpy(s.data[INPUT], image, sizeof image);
        memcpy(s.data[GRID], cases[i].at, sizeof cases[i].at);
        *(double *)s.data[DOUT] = 1;
        s.mode = cases[i].mode;
        s.padding = cases[i].padding;
        s.align = cases[i].align;
        backward(&s);
        for (size_t a = 0; a < 2; a++)
            assert_true(fabs(((double *)s.data[DGRID])[a] - cases[i].want[a]) < 1e-9);
        sample_free(&s);
    }
}

/* ---- Coordinates of every kind ----------------------------------------------------------------
 */

/* The pixel that x alone selects in a row of five, or 0 for none; y is in the middle of its one. */
static double pixel_at(struct sample *s, double x)
{
    const double y = 0;
    for (size_t i = 0; i < 5; i++)
        put_value(s->dtype, s->data[INPUT], i, (double)i + 1);
    put_value(s->dtype, s->data[GRID], 0, x);
    put_value(s->dtype, s->data[GRID], 1, y);
    put_value(s->dtype, s->data[DOUT], 0, 1);
    forward(s);
    backward(s);
    return get_value(s->dtype, s->data[OUTPUT], 0);
}

static bool all_zero(const struct sample *s, int role)
{
    for (size_t i = 0; i < s->n[role]; i++) {
        if (get_value(s->dtype, s->data[role], i) != 0)
            return false;
    }
    return true;
}

static void coordinates_that_are_not_finite_read_nothing(void **state)
{
    static const double odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    uint64_t seed = 2;
    (void)state;
    for (unsigned d = 0; d < 2; d++) {
        struct sample s = sample_make(2, d ? QPLAN_STORAGE_F64 : QPLAN_STORAGE_F32, 1, 1,
                                      SHAPE(1, 5), SHAPE(1, 1), &seed);
        for (unsigned k = 0; set_rule(&s, k); k++) {
            for (size_t i = 0; i < COUNT(odd); i++) {
                const double got = pixel_at(&s, odd[i]);
                const bool clips = isinf(odd[i]) && s.padding == 1 && s.mode != 2;
                assert_true(got == (clips ? odd[i] > 0 ? 5 : 1 : 0));
                assert_true(all_zero(&s, DGRID));
                assert_int_equal(all_zero(&s, DINPUT), !clips);
            }
        }
        sample_free(&s);
    }
}

/* With x infinite under border padding, y still counts. */
static void an_infinite_axis_leaves_the_other(void **state)
{
    uint64_t seed = 3;
    struct sample s = sample_make(2, QPLAN_STORAGE_F64, 1, 1, SHAPE(2, 1), SHAPE(1, 1), &seed);
    double *in = s.data[INPUT], *at = s.data[GRID], *slope = s.data[DGRID];
    (void)state;
    in[0] = 10;
    in[1] = 20;
    at[0] = -INFINITY; /* one pixel wide and aligned: (x + 1) / 2 * 0 would be NaN */
    at[1] = 0;
    *(double *)s.data[DOUT] = 1;
    s.padding = 1;
    s.align = true;
    forward(&s);
    backward(&s);
    assert_true(*(double *)s.data[OUTPUT] == 15);
    assert_true(slope[0] == 0 && slope[1] == 5);
    at[1] = NAN;
    forward(&s);
    backward(&s);
    assert_true(*(double *)s.data[OUTPUT] == 0 && slope[0] == 0 && slope[1] == 0);
    sample_free(&s);
}

static void coordinates_of_any_size_have_a_pixel(void **state)
{
    static const double sizes[] = {1e5, 3e9, 1e20, 3e38, -1e5, -3e9, -1e20, -3e38};
    uint64_t seed = 4;
    (void)state;
    for (unsigned d = 0; d < 2; d++) {
        struct sample s = sample_make(2, d ? QPLAN_STORAGE_F64 : QPLAN_STORAGE_F32, 1, 1,
                                      SHAPE(1, 5), SHAPE(1, 1), &seed);
        for (unsigned k = 0; set_rule(&s, k); k++) {
            for (size_t i = 0; i < COUNT(sizes) + 2 * d; i++) {
                const double x = i < COUNT(sizes) ? sizes[i] : i % 2 ? 1.7e308 : -1.7e308;
                const double got = pixel_at(&s, x);
                if (s.padding == 0)
                    assert_true(got == 0 && all_zero(&s, DINPUT));
                else if (s.padding == 1)
                    assert_true(got == (x > 0 ? 5 : 1));
                else
                    assert_true(got >= 1 && got <= 5 && !all_zero(&s, DINPUT));
            }
        }
        sample_free(&s);
    }
}

/* 10 pixels to and fro is where it began: p = 2.5 x + 2, low = -.5, twice the span is 10. */
static void reflection_has_a_period(void **state)
{
    uint64_t seed = 5;
    struct sample s = sample_make(2, QPLAN_STORAGE_F64, 1, 1, SHAPE(1, 5), SHAPE(1, 1), &seed);
    (void)state;
    s.padding = 2;
    for (s.mode = 0; s.mode < 3; s.mode++) {
        for (int i = 0; i < 40; i++) {
            const double x = -1 + i / 16., here = pixel_at(&s, x);
            assert_true(pixel_at(&s, x + 4) == here);
            assert_true(pixel_at(&s, x + 0x1p40) == here);
            assert_true(fabs(pixel_at(&s, 2 - x) - here) < 1e-14);
        }
    }
    sample_free(&s);
}

/* Ties of nearest go to the even pixel. */
static void nearest_ties_are_even(void **state)
{
    uint64_t seed = 6;
    struct sample s = sample_make(2, QPLAN_STORAGE_F32, 1, 1, SHAPE(1, 5), SHAPE(1, 1), &seed);
    (void)state;
    s.mode = 1;
    s.align = true; /* p = 2 x + 2 */
    for (int i = 0; i < 4; i++) {
        const double p = i + .5;
        assert_true(pixel_at(&s, (p - 2) / 2) == (i % 2 ? i + 2 : i + 1));
    }
    sample_free(&s);
}

/* ---- Properties -------------------------------------------------------------------------------
 */

static double dot(const struct sample *s, int a, int b)
{
    double sum = 0;
    for (size_t i = 0; i < s->n[a]; i++)
        sum += ((double *)s->data[a])[i] * ((double *)s->data[b])[i];
    return sum;
}

/* The sample is linear in its image, so <dout, F(x)> = <dinput, x>. */
static void dinput_is_the_adjoint(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (unsigned n_axes = 2; n_axes <= 3; n_axes++) {
        const int64_t in[] = {3, 5, 4}, out[] = {4, 3, 5};
        struct sample s = sample_make(n_axes, QPLAN_STORAGE_F64, 2, 11, in, out, &seed);
        for (unsigned k = 0; set_rule(&s, k); k++) {
            forward(&s);
            backward(&s);
            const double a = dot(&s, DOUT, OUTPUT), b = dot(&s, DINPUT, INPUT);
            assert_true(fabs(a) > 1e-3 && fabs(a - b) < 1e-12 * (double)s.n[OUTPUT]);
        }
        sample_free(&s);
    }
}

/* Whether a coordinate is away from every kink: pixels and edges, by 1e-3 of a pixel. */
static bool is_smooth(double g, double size, bool align)
{
    const double p = align ? (g + 1) / 2 * (size - 1) : ((g + 1) * size - 1) / 2;
    return fabs(2 * p - nearbyint(2 * p)) > 2e-3;
}

static void dgrid_is_the_difference(void **state)
{
    const double h = 1e-6;
    uint64_t seed = 8;
    (void)state;
    for (unsigned n_axes = 2; n_axes <= 3; n_axes++) {
        const int64_t in[] = {3, 5, 4}, out[] = {4, 3, 5};
        struct sample s = sample_make(n_axes, QPLAN_STORAGE_F64, 1, 9, in, out, &seed);
        double *g = s.data[GRID], *slope = s.data[DGRID];
        for (unsigned k = 0; set_rule(&s, k); k++) {
            size_t tried = 0;
            backward(&s);
            for (size_t i = 0; i < s.n[GRID]; i++) {
                const double old = g[i], size = (double)in[n_axes - 1 - i % n_axes];
                if (!is_smooth(old, size, s.align))
                    continue;
                tried++;
                g[i] = old + h;
                forward(&s);
                const double above = dot(&s, DOUT, OUTPUT);
                g[i] = old - h;
                forward(&s);
                const double below = dot(&s, DOUT, OUTPUT);
                g[i] = old;
                assert_true(fabs((above - below) / (2 * h) - slope[i]) < 1e-6);
            }
            assert_true(tried > s.n[GRID] / 2);
        }
        sample_free(&s);
    }
}

/* With extents of 2^k + 1 the base is exact, and each point is a pixel. */
static void the_identity_gives_the_image(void **state)
{
    static const double theta_2d[] = {1, 0, 0, 0, 1, 0};
    static const double theta_3d[] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0};
    const int64_t extents[] = {3, 9, 5};
    uint64_t seed = 9;
    (void)state;
    for (unsigned n_axes = 2; n_axes <= 3; n_axes++) {
        struct qplan_error err;
        struct sample s = sample_make(n_axes, QPLAN_STORAGE_F64, 1, 10, extents, extents, &seed);
        struct problem p = problem(n_axes == 2 ? "affine_grid_2d" : "affine_grid_3d");
        set(&p, "align_corners", "true");
        if (n_axes == 3)
            set_number(&p, "out_d", extents[0]);
        set_number(&p, "out_h", extents[n_axes - 2]);
        set_number(&p, "out_w", extents[n_axes - 1]);
        add(&p, "theta", QPLAN_STORAGE_F64, 3, SHAPE(1, n_axes, n_axes + 1),
            (void *)(n_axes == 2 ? theta_2d : theta_3d));
        add(&p, "output", QPLAN_STORAGE_F64, n_axes + 2, s.shape[GRID], s.data[GRID]);
        OK(run_op(&p, &err), &err);
        s.align = true;
        for (s.mode = 0; s.mode < (n_axes == 2 ? 3 : 2); s.mode++) {
            forward(&s);
            assert_memory_equal(s.data[OUTPUT], s.data[INPUT], s.n_bytes[INPUT]);
        }
        sample_free(&s);
    }
}

/* Sums have more bits than their terms: 2^60, 1 and -2^60 at one pixel make 1. */
static void sums_keep_their_errors(void **state)
{
    static const double terms[] = {0x1p60, 1, -0x1p60};
    uint64_t seed = 10;
    struct sample s = sample_make(2, QPLAN_STORAGE_F64, 1, 1, SHAPE(1, 1), SHAPE(1, 3), &seed);
    double old = 0x1p-60;
    (void)state;
    s.mode = 1;
    s.padding = 1;
    memcpy(s.data[DOUT], terms, sizeof terms);
    backward(&s);
    assert_true(*(double *)s.data[DINPUT] == 1);
    s.accumulate = true;
    ((double *)s.data[DOUT])[1] = 0;
    *(double *)s.data[DINPUT] = old;
    for (size_t i = 0; i < s.n[DGRID]; i++)
        ((double *)s.data[DGRID])[i] = 3;
    backward(&s);
    assert_true(*(double *)s.data[DINPUT] == old);
    assert_true(*(double *)s.data[DGRID] == 3); /* of nearest: what it was */
    sample_free(&s);
}

/* ---- The short way ----------------------------------------------------------------------------
 */

#define SHORT_WAY(WORK, SUFFIX, DTYPE)                                                             \
    static void short_way_##SUFFIX(enum qplan_isa isa, const struct qp_grid_rule *rule,            \
                                   bool slopes, uint64_t *seed)                                    \
    {                                                                                              \
        enum { N = 200 };                                                                          \
        static WORK g[N * 3], weight[2][N * 48], factor[2][N * 3];                                 \
        static int64_t place[2][N * 16];                                                           \
        static uint32_t count[2][N];                                                               \
        struct qp_grid_axis_##SUFFIX axes[3];                                                      \
        struct qp_grid_taps taps[2];                                                               \
        for (size_t i = 0; i < N * 3; i++)                                                         \
            g[i] = (WORK)(random_signed(seed) * 1.1);                                              \
        g[1] = (WORK)NAN;                                                                          \
        g[40] = (WORK)INFINITY;                                                                    \
        g[90] = -1;                                                                                \
        g[93] = 1;                                                                                 \
        for (int k = 0; k < 2; k++) {                                                              \
            taps[k] = (struct qp_grid_taps){N, slopes, count[k], place[k], weight[k], factor[k]};  \
            axes[k] = qp_grid_axis_##SUFFIX(rule->size[k], rule->align_corners);                   \
        }                                                                                          \
        axes[2] = qp_grid_axis_##SUFFIX(rule->size[2], rule->align_corners);                       \
        qp_grid_kernels(DTYPE, isa)->points(rule, N, g, &taps[0]);                                 \
        for (size_t p = 0; p < N; p++)                                                             \
            qp_grid_point_##SUFFIX(rule, axes, g + p * rule->n_axes, &taps[1], p);                 \
        assert_memory_equal(count[0], count[1], sizeof count[0]);                                  \
        for (size_t p = 0; p < N; p++) {                                                           \
            const unsigned weights = slopes ? rule->n_axes : 1;                                    \
            for (size_t t = 0; t < count[0][p]; t++)                                               \
                assert_int_equal(place[0][t * N + p], place[1][t * N + p]);                        \
            for (size_t t = 0; t < (size_t)count[0][p] * weights; t++)                             \
                assert_true(weight[0][t * N + p] == weight[1][t * N + p]);                         \
            for (size_t a = 0; slopes && a < rule->n_axes; a++)                                    \
                assert_true(factor[0][p * rule->n_axes + a] == factor[1][p * rule->n_axes + a]);   \
        }                                                                                          \
    }

SHORT_WAY(float, f32, QPLAN_F32)
SHORT_WAY(double, f64, QPLAN_F64)

static void the_short_way_is_the_long_one(void **state)
{
    uint64_t seed = 11;
    (void)state;
    for (unsigned k = 0; k < 2 * 2 * 3 * 2 * 2; k++) {
        const struct qp_grid_rule rule = {
            .mode = QP_GRID_BILINEAR,
            .padding = (enum qp_grid_padding)(k / 4 % 3),
            .align_corners = k & 1,
            .n_axes = k & 2 ? 3 : 2,
            .size = {7, 1 + (int64_t)random_below(&seed, 9), k & 2 ? 4 : 1},
        };
        const enum qplan_isa isa = k / 12 % 2 ? QPLAN_ISA_BEST : QPLAN_ISA_SCALAR;
        short_way_f32(isa, &rule, k / 24, &seed);
        short_way_f64(isa, &rule, k / 24, &seed);
    }
}

/* An axis so long that f32 rounds its last pixel has taps on it only. */
static void long_axes_stay_inside(void **state)
{
    static const float ends[] = {-3, -1, 0, 0.999999f, 1, 3};
    (void)state;
    for (unsigned k = 0; k < 3 * 3 * 2; k++) {
        for (int64_t size = (1 << 24) - 1; size < (1 << 24) + 9; size++) {
            const struct qp_grid_rule rule = {.mode = (enum qp_grid_mode)(k % 3),
                                              .padding = (enum qp_grid_padding)(k / 3 % 3),
                                              .align_corners = k / 9,
                                              .n_axes = 2,
                                              .size = {size, 1, 1}};
            for (size_t i = 0; i < COUNT(ends); i++) {
                const float g[2] = {ends[i], 0};
                uint32_t count;
                int64_t place[16];
                float weight[16];
                const struct qp_grid_taps taps = {1, false, &count, place, weight, NULL};
                qp_grid_kernels(QPLAN_F32, QPLAN_ISA_BEST)->points(&rule, 1, g, &taps);
                for (uint32_t t = 0; t < count; t++)
                    assert_true(place[t] >= 0 && place[t] < size);
                assert_true(count > 0 || rule.padding == QP_GRID_ZEROS);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_known),
        cmocka_unit_test(slopes_are_known),
        cmocka_unit_test(coordinates_that_are_not_finite_read_nothing),
        cmocka_unit_test(an_infinite_axis_leaves_the_other),
        cmocka_unit_test(coordinates_of_any_size_have_a_pixel),
        cmocka_unit_test(reflection_has_a_period),
        cmocka_unit_test(nearest_ties_are_even),
        cmocka_unit_test(dinput_is_the_adjoint),
        cmocka_unit_test(dgrid_is_the_difference),
        cmocka_unit_test(the_identity_gives_the_image),
        cmocka_unit_test(sums_keep_their_errors),
        cmocka_unit_test(the_short_way_is_the_long_one),
        cmocka_unit_test(long_axes_stay_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
