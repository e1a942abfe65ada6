/*
 * test_op_learnable.c - the gradients of learnable fake quantize: sums in the order of the
 * contract, finite differences, threads and instruction sets, data that is not finite.
 */
#include "op_layout.h"

static uint64_t x[MOST], dout[MOST], scale[MOST], zero[MOST];

/* One result. */
struct result {
    uint64_t dinput[MOST], dscale[MOST], dzero[MOST];
};
static struct result got, other;

static void build(struct problem *p, const struct layout *l, enum qplan_storage data,
                  enum qplan_storage param, struct result *to, char name[64])
{
    char verb[64];
    *p = make("fake_quantize_learnable", l, verb);
    (void)snprintf(name, 64, "%.50s_backward", verb);
    p->op = name;
    set(p, "q_min", "-8");
    set(p, "q_max", "7");
    add(p, "dout", data, 3, l->shape, dout);
    add(p, "input", data, 3, l->shape, x);
    add(p, "scale", param, l->set_rank, l->sets, scale);
    add(p, "zero_point", param, l->set_rank, l->sets, zero);
    add(p, "dinput", data, 3, l->shape, to->dinput);
    add(p, "dscale", param, l->set_rank, l->sets, to->dscale);
    add(p, "dzero_point", param, l->set_rank, l->sets, to->dzero);
}

static void fill(uint64_t *seed, const struct layout *l, enum qplan_storage data,
                 enum qplan_storage param, bool special)
{
    for (size_t i = 0; i < l->n_sets; i++) {
        put(param, scale, i, 0.1 + fabs(random_signed(seed)));
        put(param, zero, i, random_signed(seed) * 9);
    }
    for (size_t i = 0; i < l->n; i++) {
        const double s = get(param, scale, set_of(l, i));
        const bool rare = special && random_below(seed, 30) == 0;
        put(data, x, i,
            !rare                   ? s * random_signed(seed) * 20
            : random_below(seed, 2) ? NAN
                                    : INFINITY * (random_signed(seed) > 0 ? 1 : -1));
        put(data, dout, i, random_signed(seed) * 2);
    }
}

static int32_t used_zero(enum qplan_storage param, size_t set)
{
    const double z = rint(get(param, zero, set));
    return (int32_t)(z < -8 ? -8 : z > 7 ? 7 : z);
}

/* ---- The formula ------------------------------------------------------------------------------
 */

/* The two terms of an element. */
static void terms_of(enum qplan_storage data, enum qplan_storage param, const struct layout *l,
                     size_t i, double *of_scale, double *of_zero)
{
    const size_t set = set_of(l, i);
    const double value = get(data, x, i), gradient = get(data, dout, i);
    const double s = get(param, scale, set), z = used_zero(param, set);
    const double r = rint(worked(data, value / s));
    *of_scale = *of_zero = 0;
    if (isnan(value))
        return;
    if (r >= -8 - z && r <= 7 - z) {
        *of_scale = gradient * (r - value / s);
        return;
    }
    *of_scale = gradient * (r < 0 ? -8 - z : 7 - z);
    *of_zero = -(gradient * s);
}

/* Sums of f32, f16 and bf16 data are plain sums in f64; of f64 data they are better than that. */
static void compare(enum qplan_storage data, enum qplan_storage param, const struct layout *l,
                    double factor)
{
    static long double sums[2][MOST];
    static double plain[2][MOST], size[2][MOST];
    memset(sums, 0, sizeof sums);
    memset(plain, 0, sizeof plain);
    memset(size, 0, sizeof size);
    for (size_t i = 0; i < l->n; i++) {
        double term[2];
        terms_of(data, param, l, i, &term[0], &term[1]);
        for (int k = 0; k < 2; k++) {
            sums[k][set_of(l, i)] += (long double)term[k];
            plain[k][set_of(l, i)] += term[k];
            size[k][set_of(l, i)] += fabs(term[k]);
        }
    }
    for (size_t i = 0; i < l->n_sets; i++) {
        for (int k = 0; k < 2; k++) {
            const double value = get(param, k ? got.dzero : got.dscale, i);
            if (data == QPLAN_STORAGE_F64 && param == QPLAN_STORAGE_F64)
                assert_true(fabsl((long double)value - sums[k][i] * (long double)factor) <=
                            0x1p-51L * fabsl(sums[k][i]) + 0x1p-62L * (long double)size[k][i]);
            else if (data != QPLAN_STORAGE_F64)
                assert_true(value == held(param, plain[k][i] * factor));
        }
    }
}

static void sums_are_the_formula(void **state)
{
    static const unsigned threads[] = {1, 2, 3, 7};
    uint64_t seed = 1;
    struct qplan_error err;
    (void)state;
    for (int i = 0; i < 600; i++) {
        const struct layout l = random_layout(&seed, i % GRANULARITIES);
        const enum qplan_storage data = floats[random_below(&seed, COUNT(floats))];
        enum qplan_storage param = floats[random_below(&seed, COUNT(floats))];
        param = data == QPLAN_STORAGE_F64 || param != QPLAN_STORAGE_F64 ? param : QPLAN_STORAGE_F32;
        char name[64];
        fill(&seed, &l, data, param, true);
        for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
            struct problem p;
            const bool first = isa == QPLAN_ISA_SCALAR;
            build(&p, &l, data, param, first ? &got : &other, name);
            set(&p, "grad_factor", i % 2 ? "1" : "0.3");
            p.preference.isa = isa;
            p.preference.threads = first ? 1 : threads[(size_t)i % COUNT(threads)];
            OK(run_op(&p, &err), &err);
        }
        compare(data, param, &l, i % 2 ? 1 : 0.3);
        if (qp_isa_detect() == QPLAN_ISA_SCALAR)
            continue;
        assert_memory_equal(got.dinput, other.dinput, l.n * size_of(data));
        assert_memory_equal(got.dscale, other.dscale, l.n_sets * size_of(param));
        assert_memory_equal(got.dzero, other.dzero, l.n_sets * size_of(param));
    }
}

/* ---- Finite differences -----------------------------------------------------------------------
 */

/* Fake quantize whose rounding is a constant shift, taken at the true scale and zero point. */
static double smooth(double value, double s, double z, double shift)
{
    const double u = value / s + shift + z;
    return s * ((u < -8 ? -8 : u > 7 ? 7 : u) - z);
}

/* The loss sum(dout * fake(x)) of one set, moved a little in the scale or the zero point. */
static long double loss(const struct layout *l, size_t set, double ds, double dz)
{
    const double s = get(QPLAN_STORAGE_F64, scale, set), z = used_zero(QPLAN_STORAGE_F64, set);
    long double sum = 0;
    for (size_t i = 0; i < l->n; i++) {
        const double value = get(QPLAN_STORAGE_F64, x, i);
        if (set_of(l, i) == set)
            sum += (long double)(get(QPLAN_STORAGE_F64, dout, i) *
                                 smooth(value, s + ds, z + dz, rint(value / s) - value / s));
    }
    return sum;
}

/* Away from where the slope changes, the sums are the slopes. */
static void sums_are_finite_differences(void **state)
{
    const double h = 0x1p-20;
    uint64_t seed = 2;
    struct qplan_error err;
    (void)state;
    for (int i = 0; i < 50; i++) {
        const struct layout l = random_layout(&seed, i % GRANULARITIES);
        struct problem p;
        char name[64];
        fill(&seed, &l, QPLAN_STORAGE_F64, QPLAN_STORAGE_F64, false);
        for (size_t k = 0; k < l.n; k++) { /* the ends themselves are kinks: keep off by 1/8 step */
            const size_t set = set_of(&l, k);
            const double s = get(QPLAN_STORAGE_F64, scale, set);
            const double z = used_zero(QPLAN_STORAGE_F64, set);
            const double r = rint(get(QPLAN_STORAGE_F64, x, k) / s) + z;
            if (r == -8 || r == 7)
                put(QPLAN_STORAGE_F64, x, k, s * (r + (r < 0 ? 3.125 : -3.125) - z));
        }
        build(&p, &l, QPLAN_STORAGE_F64, QPLAN_STORAGE_F64, &got, name);
        OK(run_op(&p, &err), &err);
        for (size_t set = 0; set < l.n_sets; set++) {
            const long double by_scale = (loss(&l, set, h, 0) - loss(&l, set, -h, 0)) / (2 * h);
            const long double by_zero = (loss(&l, set, 0, h) - loss(&l, set, 0, -h)) / (2 * h);
            assert_true(fabsl((long double)get(QPLAN_STORAGE_F64, got.dscale, set) - by_scale) <
                        1e-6L * (1 + fabsl(by_scale)));
            assert_true(fabsl((long double)get(QPLAN_STORAGE_F64, got.dzero, set) - by_zero) <
                        1e-6L * (1 + fabsl(by_zero)));
        }
    }
}

/* ---- Teams, edges -----------------------------------------------------------------------------
 */

/* Sets that many units share, and units that many sets share: the same bits for every team. */
static void teams_and_levels_agree(void **state)
{
    enum { R = 67, C = 1021, N = R * C };
    static float data[N], gradient[N], s[N], z[N], to[2][3][N];
    static const struct {
        const char *op;
        const char *field;
        int64_t value, sets[2];
    } cases[] = {{"per_tensor", NULL, 0, {1, 1}},        {"per_channel", "axis", 0, {R, 1}},
                 {"per_channel", "axis", 1, {C, 1}},     {"per_group", "group_size", 1021, {R, 1}},
                 {"per_group", "group_size", 1, {R, C}}, {"per_token", NULL, 0, {R, 1}}};
    uint64_t seed = 3;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        data[i] = (float)(random_signed(&seed) * 9);
        gradient[i] = (float)(random_signed(&seed) * 1e3);
        s[i] = (float)(0.3 + fabs(random_signed(&seed)));
    }
    for (size_t k = 0; k < COUNT(cases); k++) {
        char name[64];
        (void)snprintf(name, sizeof name, "fake_quantize_learnable_%s_backward", cases[k].op);
        const size_t n_sets = (size_t)(cases[k].sets[0] * cases[k].sets[1]);
        const unsigned rank = strcmp(cases[k].op, "per_group") == 0 ? 2 : 1;
        for (unsigned threads = 1; threads <= 7; threads += threads == 3 ? 4 : 1) {
            for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
                const int which = threads > 1 || isa != QPLAN_ISA_SCALAR;
                struct problem p = problem(name);
                if (cases[k].field)
                    set_number(&p, cases[k].field, cases[k].value);
                set(&p, "q_min", "-5");
                set(&p, "q_max", "6");
                add(&p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(R, C), gradient);
                add(&p, "input", QPLAN_STORAGE_F32, 2, SHAPE(R, C), data);
                add(&p, "scale", QPLAN_STORAGE_F32, rank, cases[k].sets, s);
                add(&p, "zero_point", QPLAN_STORAGE_F32, rank, cases[k].sets, z);
                add(&p, "dinput", QPLAN_STORAGE_F32, 2, SHAPE(R, C), to[which][0]);
                add(&p, "dscale", QPLAN_STORAGE_F32, rank, cases[k].sets, to[which][1]);
                add(&p, "dzero_point", QPLAN_STORAGE_F32, rank, cases[k].sets, to[which][2]);
                p.preference.threads = threads;
                p.preference.isa = isa;
                OK(run_op(&p, &err), &err);
                if (!which)
                    continue;
                assert_memory_equal(to[1][0], to[0][0], sizeof to[0][0]);
                assert_memory_equal(to[1][1], to[0][1], n_sets * sizeof(float));
                assert_memory_equal(to[1][2], to[0][2], n_sets * sizeof(float));
            }
        }
    }
}

/* The order shows: 2^60 swallows the ones behind it, and f64 data keeps them. */
static void sums_are_in_order_and_compensated(void **state)
{
    enum { N = 1025 };
    static double d64[N], x64[N];
    static float d32[N], x32[N];
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < N; i++) {
        x64[i] = x32[i] = 100; /* above: the term of the scale is dout * 1 */
        d64[i] = d32[i] = i == 0 ? 0x1p60f : i == N - 1 ? -0x1p60f : 1.0f;
    }
    for (int wide = 0; wide < 2; wide++) {
        const enum qplan_storage f = wide ? QPLAN_STORAGE_F64 : QPLAN_STORAGE_F32;
        float s = 1, z = 0, dscale, dzero;
        struct problem p = problem("fake_quantize_learnable_per_tensor_backward");
        set(&p, "q_min", "-1");
        set(&p, "q_max", "1");
        add(&p, "dout", f, 1, SHAPE(N), wide ? (void *)d64 : d32);
        add(&p, "input", f, 1, SHAPE(N), wide ? (void *)x64 : x32);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(1), &s);
        add(&p, "zero_point", QPLAN_STORAGE_F32, 1, SHAPE(1), &z);
        add(&p, "dinput", f, 1, SHAPE(N), got.dinput);
        add(&p, "dscale", QPLAN_STORAGE_F32, 1, SHAPE(1), &dscale);
        add(&p, "dzero_point", QPLAN_STORAGE_F32, 1, SHAPE(1), &dzero);
        OK(run_op(&p, &err), &err);
        assert_true(dscale == (wide ? N - 2 : 0));
        assert_true(dzero == -dscale);
    }
}

/* NaN data adds nothing, even where dout is NaN; infinite data is outside; dout is passed on. */
static void data_that_is_not_finite(void **state)
{
    float d[] = {NAN, 2, 3, 5}, value[] = {NAN, INFINITY, -INFINITY, 1};
    float s = 2, z = 0.5f, dinput[4], dscale, dzero;
    struct qplan_error err;
    (void)state;
    struct problem p = problem("fake_quantize_learnable_per_tensor_backward");
    set(&p, "q_min", "-8");
    set(&p, "q_max", "7");
    add(&p, "dout", QPLAN_STORAGE_F32, 1, SHAPE(4), d);
    add(&p, "input", QPLAN_STORAGE_F32, 1, SHAPE(4), value);
    add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(1), &s);
    add(&p, "zero_point", QPLAN_STORAGE_F32, 1, SHAPE(1), &z);
    add(&p, "dinput", QPLAN_STORAGE_F32, 1, SHAPE(4), dinput);
    add(&p, "dscale", QPLAN_STORAGE_F32, 1, SHAPE(1), &dscale);
    add(&p, "dzero_point", QPLAN_STORAGE_F32, 1, SHAPE(1), &dzero);
    OK(run_op(&p, &err), &err);
    assert_true(dinput[0] == 0 && dinput[1] == 0 && dinput[2] == 0 && dinput[3] == 5);
    assert_true(dscale == 2 * 7 + 3 * -8 + 5 * (0 - 0.5f)); /* z = rne(0.5) = 0, rne(1/2) = 0 */
    assert_true(dzero == -(2 + 3) * 2);
    d[3] = NAN;
    OK(run_op(&p, &err), &err);
    uint32_t bits;
    memcpy(&bits, &dscale, sizeof bits);
    assert_int_equal(bits, 0x7fc00000); /* one NaN for all instruction sets */
    z = INFINITY;
    dscale = 77;
    FAILS(run_op(&p, &err), QPLAN_ERR_VALUE, "'zero_point': not finite", &err);
    assert_true(dscale == 77);
}

/* Sums over nothing are 0, and are written; sums that do not fit are infinite and counted. */
static void empty_sets_and_large_sums(void **state)
{
    float s[3] = {1, 1, 1}, dscale[3] = {7, 7, 7}, dzero[3] = {7, 7, 7}, x1 = 1e30f, big = FLT_MAX;
    float dinput;
    struct qplan_error err;
    (void)state;
    for (int64_t n = 0; n < 2; n++) {
        struct problem p = problem("fake_quantize_learnable_per_channel_backward");
        add(&p, "dout", QPLAN_STORAGE_F32, 2, SHAPE(n ? 1 : 3, n), &big);
        add(&p, "input", QPLAN_STORAGE_F32, 2, SHAPE(n ? 1 : 3, n), &x1);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(n ? 1 : 3), s);
        add(&p, "dinput", QPLAN_STORAGE_F32, 2, SHAPE(n ? 1 : 3, n), &dinput);
        add(&p, "dscale", QPLAN_STORAGE_F32, 1, SHAPE(n ? 1 : 3), dscale);
        add(&p, "dzero_point", QPLAN_STORAGE_F32, 1, SHAPE(n ? 1 : 3), dzero);
        OK(run_op(&p, &err), &err);
        assert_int_equal(p.counts.overflow, n);
        assert_true(n ? isinf(dscale[0]) : dscale[0] == 0 && dscale[2] == 0 && dzero[2] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_formula),
        cmocka_unit_test(sums_are_finite_differences),
        cmocka_unit_test(teams_and_levels_agree),
        cmocka_unit_test(sums_are_in_order_and_compensated),
        cmocka_unit_test(data_that_is_not_finite),
        cmocka_unit_test(empty_sets_and_large_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
