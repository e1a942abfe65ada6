/*
 * test_op_dynamic.c - dynamic_quantize_G: parameters by the formulas of the contract, codes by
 * quantize_G, for every dtype, scheme, range, granularity, team and instruction set.
 */
#include "op_layout.h"

static uint64_t x[MOST], scale[MOST];
static int32_t zero[MOST];
static uint8_t out[MOST + 1], again[MOST + 1];

static const struct {
    const char *name;
    int32_t least, most;
} codes[] = {{"int8", -128, 127}, {"uint8", 0, 255}, {"int4", -8, 7}, {"uint4", 0, 15}};

/* What a test asks for. */
struct wish {
    size_t code;
    int32_t least, most; /* before narrow_range */
    bool asymmetric, narrow, given;
    enum qplan_storage data, param;
};

static struct wish random_wish(uint64_t *seed)
{
    struct wish w = {.code = random_below(seed, COUNT(codes)),
                     .asymmetric = random_below(seed, 2),
                     .narrow = random_below(seed, 3) == 0,
                     .given = random_below(seed, 2),
                     .data = floats[random_below(seed, COUNT(floats))],
                     .param = floats[random_below(seed, COUNT(floats))]};
    w.least = codes[w.code].least;
    w.most = codes[w.code].most;
    if (w.given) { /* few codes, and some that lack 0 */
        const bool free = w.asymmetric || w.least == 0;
        w.least += (int32_t)random_below(seed, free ? 12 : 7);
        w.most -= (int32_t)random_below(seed, free && w.most == 15 ? 2 : 4);
        if (random_below(seed, 4) == 0)
            w.most = w.least + 2 > 0 || free ? w.least + 2 : w.most;
        w.most = w.most > w.least + 2 ? w.most : w.least + 2; /* one code has no scale */
    }
    if (w.param == QPLAN_STORAGE_F64 && w.data != QPLAN_STORAGE_F64)
        w.param = QPLAN_STORAGE_F32;
    return w;
}

/* ---- The formulas -----------------------------------------------------------------------------
 */

/* The least value of the dtype that is not below s, and at least its smallest normal. */
static double rounded_up(enum qplan_storage dtype, double s)
{
    const double least = dtype == QPLAN_STORAGE_F64   ? DBL_MIN
                         : dtype == QPLAN_STORAGE_F16 ? 0x1p-14
                                                      : (double)FLT_MIN;
    const double near = held(dtype, s);
    if (s <= least)
        return least;
    if (near >= s)
        return near;
    uint64_t room = 0;
    put(dtype, &room, 0, s); /* of positive floats the next one has the next bits */
    room++;
    return get(dtype, &room, 0);
}

static void expect_params(const struct wish *w, double lo, double hi, double *s, int32_t *z)
{
    const enum qplan_storage d = w->data;
    const int32_t least = w->least + w->narrow, most = w->most;
    const double steps = most - least;
    const int32_t middle = (least + most + 1) / 2;
    *z = codes[w->code].least == 0 ? middle : 0;
    *s = 1;
    if (w->asymmetric)
        *z = least > 0 ? least : most < 0 ? most : 0;
    if (lo == hi)
        return;
    if (!w->asymmetric) {
        *s = rounded_up(w->param, worked(d, fmax(-lo, hi) / (steps / 2)));
        return;
    }
    const double width = worked(d, hi - lo);
    *s = rounded_up(w->param, worked(d, isinf(width) ? worked(d, hi / 2 - lo / 2) / (steps / 2)
                                                     : width / steps));
    const double r = rint(worked(d, lo / *s));
    *z = (int32_t)fmin(fmax(least - r, least), most);
}

/* ---- Against them -----------------------------------------------------------------------------
 */

static void fill(uint64_t *seed, const struct layout *l, enum qplan_storage data)
{
    static double size[MOST];
    for (size_t i = 0; i < l->n_sets; i++)
        size[i] = random_below(seed, 6) ? ldexp(1, (int)random_below(seed, 12)) : 0;
    for (size_t i = 0; i < l->n; i++)
        put(data, x, i,
            random_below(seed, 40)  ? random_signed(seed) * size[set_of(l, i)] + size[0] / 3
            : random_below(seed, 2) ? NAN
                                    : -INFINITY);
}

static void build(struct problem *p, const struct layout *l, const struct wish *w, char name[64])
{
    *p = make("dynamic_quantize", l, name);
    set(p, "output_dtype", codes[w->code].name);
    set(p, "scheme", w->asymmetric ? "asymmetric" : "symmetric");
    set(p, "nonfinite", "saturate");
    if (w->narrow)
        set(p, "narrow_range", "true");
    if (w->given) {
        set_number(p, "q_min", w->least);
        set_number(p, "q_max", w->most);
    }
}

static void compare_params(const struct layout *l, const struct wish *w)
{
    static double lo[MOST], hi[MOST];
    memset(lo, 0, sizeof lo);
    memset(hi, 0, sizeof hi);
    for (size_t i = 0; i < l->n; i++) {
        const double value = get(w->data, x, i);
        const size_t set = set_of(l, i);
        if (isfinite(value)) {
            lo[set] = fmin(lo[set], value);
            hi[set] = fmax(hi[set], value);
        }
    }
    for (size_t i = 0; i < l->n_sets; i++) {
        double s;
        int32_t z;
        expect_params(w, lo[i], hi[i], &s, &z);
        if (get(w->param, scale, i) != s || zero[i] != z)
            fail_msg("set %zu of %s: (%a, %d), expected (%a, %d) for %a to %a", i,
                     codes[w->code].name, get(w->param, scale, i), zero[i], s, z, lo[i], hi[i]);
    }
}

/* quantize_G, which has tests of its own, with the parameters that were written. */
static void quantize_again(const struct layout *l, const struct wish *w, const int64_t *stored)
{
    char name[64];
    struct qplan_error err;
    struct problem p = make("quantize", l, name);
    set(&p, "output_dtype", codes[w->code].name);
    set(&p, "nonfinite", "saturate");
    set_number(&p, "q_min", w->least + w->narrow);
    set_number(&p, "q_max", w->most);
    add(&p, "input", w->data, 3, l->shape, x);
    add(&p, "scale", w->param, l->set_rank, l->sets, scale);
    add(&p, "zero_point", QPLAN_STORAGE_I32, l->set_rank, l->sets, zero);
    add(&p, "output", w->code == 0 ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8, 3, stored, again);
    OK(run_op(&p, &err), &err);
}

static void parameters_and_codes_are_the_formulas(void **state)
{
    static const char *const names[] = {[QPLAN_STORAGE_F64] = "f64",
                                        [QPLAN_STORAGE_F32] = "f32",
                                        [QPLAN_STORAGE_F16] = "f16",
                                        [QPLAN_STORAGE_BF16] = "bf16"};
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 1000; i++) {
        const struct layout l = random_layout(&seed, i % GRANULARITIES);
        const struct wish w = random_wish(&seed);
        const int64_t stored[3] = {l.shape[0], l.shape[1],
                                   w.code < 2 ? l.shape[2] : up(l.shape[2], 2)};
        const size_t n_bytes = (size_t)(stored[0] * stored[1] * stored[2]);
        fill(&seed, &l, w.data);
        for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
            char name[64];
            struct problem p;
            struct qplan_error err;
            build(&p, &l, &w, name);
            set(&p, "scale_dtype", names[w.param]);
            add(&p, "input", w.data, 3, l.shape, x);
            add(&p, "output", w.code == 0 ? QPLAN_STORAGE_I8 : QPLAN_STORAGE_U8, 3, stored, out);
            add(&p, "scale", w.param, l.set_rank, l.sets, scale);
            add(&p, "zero_point", QPLAN_STORAGE_I32, l.set_rank, l.sets, zero);
            p.preference.isa = isa;
            p.preference.threads = 1 + (unsigned)i % 3;
            OK(run_op(&p, &err), &err);
            uint64_t nonfinite = 0;
            for (size_t k = 0; k < l.n; k++)
                nonfinite += isfinite(get(w.data, x, k)) ? 0 : 1;
            assert_int_equal(p.counts.nonfinite, nonfinite);
            compare_params(&l, &w);
            quantize_again(&l, &w, stored);
            assert_memory_equal(out, again, n_bytes);
        }
    }
}

/* Many chunks share a set, and many sets a chunk. */
static void teams_and_levels_agree(void **state)
{
    enum { R = 67, C = 1021, N = R * C };
    static float data[N], s[2][N];
    static int32_t z[2][N];
    static int8_t q[2][N];
    static const struct {
        const char *op, *field;
        int64_t value, sets[2];
    } cases[] = {{"per_tensor", NULL, 0, {1, 1}},
                 {"per_channel", "axis", 1, {C, 1}},
                 {"per_group", "group_size", 1, {R, C}},
                 {"per_token", NULL, 0, {R, 1}}};
    uint64_t seed = 2;
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < N; i++)
        data[i] = (float)(random_signed(&seed) * 9);
    for (size_t k = 0; k < COUNT(cases); k++) {
        char name[64];
        const unsigned rank = cases[k].field && cases[k].value == 1 && cases[k].sets[1] > 1 ? 2 : 1;
        const size_t n_sets = (size_t)(cases[k].sets[0] * cases[k].sets[1]);
        (void)snprintf(name, sizeof name, "dynamic_quantize_%s", cases[k].op);
        for (unsigned threads = 1; threads <= 7; threads += threads == 3 ? 4 : 1) {
            for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
                const int which = threads > 1 || isa != QPLAN_ISA_SCALAR;
                struct problem p = problem(name);
                if (cases[k].field)
                    set_number(&p, cases[k].field, cases[k].value);
                set(&p, "scheme", "asymmetric");
                add(&p, "input", QPLAN_STORAGE_F32, 2, SHAPE(R, C), data);
                add(&p, "output", QPLAN_STORAGE_I8, 2, SHAPE(R, C), q[which]);
                add(&p, "scale", QPLAN_STORAGE_F32, rank, cases[k].sets, s[which]);
                add(&p, "zero_point", QPLAN_STORAGE_I32, rank, cases[k].sets, z[which]);
                p.preference.threads = threads;
                p.preference.isa = isa;
                OK(run_op(&p, &err), &err);
                if (!which)
                    continue;
                assert_memory_equal(q[1], q[0], sizeof q[0]);
                assert_memory_equal(s[1], s[0], n_sets * sizeof(float));
                assert_memory_equal(z[1], z[0], n_sets * sizeof(int32_t));
            }
        }
    }
}

/* ---- Edges ------------------------------------------------------------------------------------
 */

struct small {
    struct problem p;
    float data[9], s[9];
    int32_t z[9];
    int8_t q[9];
};

/* A tensor of nine, with outputs that show whether they were written. */
static void make_small(struct small *small, const char *op, const int64_t *shape, int64_t n_sets)
{
    small->p = problem(op);
    for (int i = 0; i < 9; i++) {
        small->data[i] = (float)i;
        small->s[i] = 77;
        small->z[i] = 77;
        small->q[i] = 77;
    }
    add(&small->p, "input", QPLAN_STORAGE_F32, 2, shape, small->data);
    add(&small->p, "output", QPLAN_STORAGE_I8, 2, shape, small->q);
    add(&small->p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(n_sets), small->s);
    add(&small->p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(n_sets), small->z);
}

static void nothing_is_written_on_refusal(void **state)
{
    struct small small;
    struct qplan_error err;
    (void)state;
    make_small(&small, "dynamic_quantize_per_tensor", SHAPE(3, 3), 1);
    small.data[7] = INFINITY;
    FAILS(run_op(&small.p, &err), QPLAN_ERR_VALUE, "found +Inf at [2,1], flat index 7", &err);
    /* A scale that f16 cannot hold. */
    make_small(&small, "dynamic_quantize_per_token", SHAPE(3, 3), 3);
    small.data[5] = 1e8f;
    set(&small.p, "scale_dtype", "f16");
    small.p.tensors[2].dtype = QPLAN_STORAGE_F16;
    FAILS(run_op(&small.p, &err), QPLAN_ERR_VALUE, "'scale': too large for f16", &err);
    assert_non_null(strstr(err.message, "at [1]"));
    /* Two codes: the largest values give an infinite scale, at any level and place. */
    for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
        make_small(&small, "dynamic_quantize_per_channel", SHAPE(9, 1), 9);
        small.data[3] = FLT_MAX;
        small.p.preference.isa = isa;
        set(&small.p, "q_min", "0");
        set(&small.p, "q_max", "1");
        FAILS(run_op(&small.p, &err), QPLAN_ERR_VALUE, "at [3]", &err);
        for (int i = 0; i < 9; i++)
            assert_true(small.q[i] == 77 && small.s[i] == 77 && small.z[i] == 77);
    }
}

static void fields_that_clash(void **state)
{
    struct small small;
    struct qplan_error err;
    (void)state;
    make_small(&small, "dynamic_quantize_per_tensor", SHAPE(3, 3), 1);
    set(&small.p, "scale_dtype", "f64");
    FAILS(run_op(&small.p, &err), QPLAN_ERR_INVALID, "scale_dtype", &err);
    make_small(&small, "dynamic_quantize_per_tensor", SHAPE(3, 3), 1);
    set(&small.p, "q_min", "5");
    FAILS(run_op(&small.p, &err), QPLAN_ERR_INVALID, "q_min: symmetric codes", &err);
    make_small(&small, "dynamic_quantize_per_tensor", SHAPE(3, 3), 1);
    set(&small.p, "q_min", "127");
    set(&small.p, "narrow_range", "true");
    FAILS(run_op(&small.p, &err), QPLAN_ERR_INVALID, "leaves no code", &err);
    make_small(&small, "dynamic_quantize_per_tensor", SHAPE(3, 3), 1);
    set(&small.p, "q_max", "128");
    FAILS(run_op(&small.p, &err), QPLAN_ERR_INVALID, "outside int8", &err);
    make_small(&small, "dynamic_quantize_per_tensor", SHAPE(3, 3), 1);
    set(&small.p, "arithmetic", "torch");
    FAILS(run_op(&small.p, &err), QPLAN_ERR_USAGE, "unknown field", &err);
}

/* Sets without a finite value count as zeros; tensors without elements have their parameters. */
static void sets_without_values(void **state)
{
    struct small small;
    struct qplan_error err;
    (void)state;
    make_small(&small, "dynamic_quantize_per_token", SHAPE(3, 3), 3);
    small.data[3] = small.data[4] = NAN;
    small.data[5] = INFINITY;
    set(&small.p, "nonfinite", "saturate");
    OK(run_op(&small.p, &err), &err);
    assert_int_equal(small.p.counts.nonfinite, 3);
    assert_true(small.s[1] == 1 && small.z[1] == 0);
    assert_true(small.q[3] == 0 && small.q[4] == 0 && small.q[5] == 127);
    make_small(&small, "dynamic_quantize_per_channel", SHAPE(2, 0), 2);
    OK(run_op(&small.p, &err), &err);
    assert_true(small.s[0] == 1 && small.s[1] == 1 && small.z[0] == 0 && small.s[2] == 77);
    /* An unsigned type decodes 0 at its middle, also when all is 0. */
    make_small(&small, "dynamic_quantize_per_tensor", SHAPE(0, 3), 1);
    small.p.tensors[1].dtype = QPLAN_STORAGE_U8;
    set(&small.p, "output_dtype", "uint8");
    OK(run_op(&small.p, &err), &err);
    assert_true(small.s[0] == 1 && small.z[0] == 128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_and_codes_are_the_formulas),
        cmocka_unit_test(teams_and_levels_agree),
        cmocka_unit_test(nothing_is_written_on_refusal),
        cmocka_unit_test(fields_that_clash),
        cmocka_unit_test(sets_without_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
