/*
 * test_op_floats.c - fake quantize and the backward operators of the quantize family against the
 * formulas, element by element, and the laws between them and quantize_G.
 */
#include "op_layout.h"

enum { FAKE, FAKE_BACKWARD, QUANTIZE_BACKWARD, DEQUANTIZE_BACKWARD, LEARNABLE, KINDS };

static const struct {
    const char *verb, *suffix;
    bool dout, input, zero;
} kinds[] = {
    [FAKE] = {"fake_quantize", "", false, true, true},
    [FAKE_BACKWARD] = {"fake_quantize", "_backward", true, true, true},
    [QUANTIZE_BACKWARD] = {"quantize", "_backward", true, true, true},
    [DEQUANTIZE_BACKWARD] = {"dequantize", "_backward", true, false, false},
    [LEARNABLE] = {"fake_quantize_learnable", "", false, true, true},
};

/* All buffers have room for the widest dtype, twice, so that strides can spread them. */
static uint64_t x[2 * MOST], dout[2 * MOST], out[2 * MOST], scale[2 * MOST], zero[2 * MOST];

struct fields {
    int32_t least, most;
};

/* Ranges of common codes, a single code, and the widest. */
static struct fields random_range(uint64_t *seed)
{
    static const struct fields ranges[] = {{-128, 127}, {0, 255}, {-8, 7},   {-2, 3},
                                           {5, 5},      {3, 90},  {-70, -3}, {-(1 << 23), 1 << 23}};
    return ranges[random_below(seed, COUNT(ranges))];
}

/* ---- The formulas -----------------------------------------------------------------------------
 */

/* What the element i should become; *overflow grows where a finite dout becomes infinite. */
static double expected(int kind, enum qplan_storage data, const struct fields *f, size_t i,
                       double s, int32_t z, uint64_t *overflow)
{
    const double value = get(data, x, i), gradient = get(data, dout, i);
    const double r = rint(worked(data, value / s));
    const double least = f->least - z, most = f->most - z;
    const bool inside = r >= least && r <= most;
    const double steps = isnan(value) ? 0 : r < least ? least : r > most ? most : r + 0.0;
    double y = 0;
    if (kind == FAKE || kind == LEARNABLE) {
        y = held(data, worked(data, s * (steps == 0 ? 0 : steps)));
        return y > largest(data) ? largest(data) : y < -largest(data) ? -largest(data) : y;
    }
    if (kind == FAKE_BACKWARD)
        return inside ? gradient : 0;
    if (kind == DEQUANTIZE_BACKWARD)
        y = held(data, worked(data, gradient * s));
    else
        y = inside ? held(data, worked(data, gradient / s)) : 0;
    *overflow += isinf(y) && isfinite(gradient);
    return y;
}

static double random_zero(uint64_t *seed, int kind, const struct fields *f)
{
    const double span = (double)f->most - f->least;
    if (kind != LEARNABLE)
        return f->least + (double)random_below(seed, (uint64_t)span + 1);
    return (double)(float)(f->least + span * (random_signed(seed) * 0.7 + 0.5));
}

/* A zero point that is a float takes part as an integer. */
static int32_t used_zero(int kind, enum qplan_storage dtype, const struct fields *f, size_t set)
{
    if (kind == DEQUANTIZE_BACKWARD)
        return 0;
    if (kind != LEARNABLE)
        return ((const int32_t *)zero)[set];
    const double z = rint(get(dtype, zero, set));
    return (int32_t)(z < f->least ? f->least : z > f->most ? f->most : z);
}

static void fill(uint64_t *seed, int kind, const struct layout *l, enum qplan_storage data,
                 enum qplan_storage param, const struct fields *f)
{
    for (size_t i = 0; i < l->n_sets; i++) {
        double s = held(param, random_scale(seed));
        s = s > 0 && isfinite(s) ? s : held(param, 0.375);
        put(param, scale, i, s);
        if (kind == LEARNABLE)
            put(param, zero, i, fmin(fmax(random_zero(seed, kind, f), -65504), 65504));
        else
            ((int32_t *)zero)[i] = (int32_t)random_zero(seed, kind, f);
    }
    for (size_t i = 0; i < l->n; i++) {
        put(data, x, i, random_datum(seed, get(param, scale, set_of(l, i))));
        put(data, dout, i,
            random_below(seed, 20)  ? random_signed(seed) * 3000
            : random_below(seed, 2) ? NAN
                                    : INFINITY);
    }
}

/* Shapes are kept in the problem, so it is made where it stays. */
static void build(struct problem *p, int kind, const struct layout *l, enum qplan_storage data,
                  enum qplan_storage param, const struct fields *f, char name[64])
{
    char verb[64];
    *p = make(kinds[kind].verb, l, verb);
    (void)snprintf(name, 64, "%.40s%s", verb, kinds[kind].suffix);
    p->op = name;
    if (kind != DEQUANTIZE_BACKWARD) {
        set_number(p, "q_min", f->least);
        set_number(p, "q_max", f->most);
    }
    if (!kinds[kind].dout)
        set(p, "nonfinite", "saturate");
    add(p, kinds[kind].dout ? "dinput" : "output", data, 3, l->shape, out);
    if (kinds[kind].input)
        add(p, "input", data, 3, l->shape, x);
    add(p, "scale", param, l->set_rank, l->sets, scale);
    if (kinds[kind].dout)
        add(p, "dout", data, 3, l->shape, dout);
    if (kinds[kind].zero)
        add(p, "zero_point", kind == LEARNABLE ? param : QPLAN_STORAGE_I32, l->set_rank, l->sets,
            zero);
}

static void compare(int kind, const struct layout *l, enum qplan_storage data,
                    enum qplan_storage param, const struct fields *f, const struct problem *p)
{
    uint64_t overflow = 0, nonfinite = 0;
    for (size_t i = 0; i < l->n; i++) {
        const size_t set = set_of(l, i);
        const double want = expected(kind, data, f, i, get(param, scale, set),
                                     used_zero(kind, param, f, set), &overflow);
        if (!same(get(data, out, i), want))
            fail_msg("%s: element %zu: x %a, dout %a, s %a: %a, expected %a", p->op, i,
                     get(data, x, i), get(data, dout, i), get(param, scale, set), get(data, out, i),
                     want);
        nonfinite += isfinite(get(data, x, i)) ? 0 : 1;
    }
    assert_int_equal(p->counts.overflow, overflow);
    assert_int_equal(p->counts.nonfinite, kinds[kind].dout ? 0 : nonfinite);
    assert_int_equal(((unsigned char *)out)[l->n * size_of(data)], 0xa5);
}

static void every_operator_is_its_formula(void **state)
{
    static const unsigned threads[] = {1, 2, 3, 7};
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 1200; i++) {
        const int kind = i % KINDS;
        const struct layout l = random_layout(&seed, (int)random_below(&seed, GRANULARITIES));
        const enum qplan_storage data = floats[random_below(&seed, COUNT(floats))];
        enum qplan_storage param = floats[random_below(&seed, COUNT(floats))];
        param = data == QPLAN_STORAGE_F64 || param != QPLAN_STORAGE_F64 ? param : QPLAN_STORAGE_F32;
        const struct fields f = random_range(&seed);
        fill(&seed, kind, &l, data, param, &f);
        for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
            char name[64];
            struct qplan_error err;
            struct problem p;
            build(&p, kind, &l, data, param, &f, name);
            p.preference.isa = isa;
            p.preference.threads = threads[(size_t)i % COUNT(threads)];
            memset(out, 0xa5, sizeof out);
            OK(run_op(&p, &err), &err);
            compare(kind, &l, data, param, &f, &p);
        }
    }
}

/* ---- Views, teams, in place -------------------------------------------------------------------
 */

/* Every second element: the data of the tensor moves apart, from the end on. */
static void spread(void *data, size_t n, size_t size)
{
    unsigned char *p = data;
    for (size_t i = n; i-- > 0;)
        memmove(p + 2 * i * size, p + i * size, size);
}

static void strided_is_contiguous(void **state)
{
    uint64_t seed = 2;
    (void)state;
    for (int i = 0; i < 200; i++) {
        const int kind = i % KINDS;
        const struct layout l = random_layout(&seed, (int)random_below(&seed, GRANULARITIES));
        const enum qplan_storage data = floats[random_below(&seed, COUNT(floats))];
        const struct fields f = {-8, 7};
        static uint64_t plain[MOST];
        char name[64];
        struct qplan_error err;
        fill(&seed, kind, &l, data, QPLAN_STORAGE_F16, &f);
        struct problem p;
        build(&p, kind, &l, data, QPLAN_STORAGE_F16, &f, name);
        OK(run_op(&p, &err), &err);
        memcpy(plain, out, l.n * size_of(data));
        int64_t stride[MAX_TENSORS][4];
        for (size_t t = 0; t < p.n_tensors; t++) {
            struct qplan_tensor *tensor = &p.tensors[t];
            int64_t step = 2;
            uint64_t n = 1;
            for (unsigned k = tensor->rank; k-- > 0; step *= tensor->shape[k]) {
                stride[t][k] = step;
                n *= (uint64_t)tensor->shape[k];
            }
            spread(tensor->data, n, size_of(tensor->dtype));
            tensor->stride = stride[t];
            tensor->n_bytes = (2 * n - 1) * size_of(tensor->dtype);
        }
        memset(out, 0xa5, sizeof out);
        p.preference.threads = 2;
        OK(run_op(&p, &err), &err);
        const size_t size = size_of(data);
        for (size_t k = 0; k < l.n; k++) {
            const unsigned char *got = (unsigned char *)out + 2 * k * size;
            assert_memory_equal(got, (unsigned char *)plain + k * size, size);
            assert_int_equal(got[size], 0xa5);
        }
    }
}

/* The result over the data it is made of, whichever, has the same bits; half of it is refused. */
static void results_in_place(void **state)
{
    uint64_t seed = 3;
    (void)state;
    for (int i = 0; i < 100; i++) {
        const int kind = i % KINDS;
        const struct layout l = random_layout(&seed, (int)random_below(&seed, GRANULARITIES));
        const enum qplan_storage data = floats[random_below(&seed, COUNT(floats))];
        const struct fields f = {-128, 127};
        static uint64_t plain[MOST], saved[MOST];
        char name[64];
        struct qplan_error err;
        fill(&seed, kind, &l, data, QPLAN_STORAGE_F32, &f);
        struct problem p;
        build(&p, kind, &l, data, QPLAN_STORAGE_F32, &f, name);
        OK(run_op(&p, &err), &err);
        memcpy(plain, out, l.n * size_of(data));
        for (int over = 0; over < 2; over++) {
            uint64_t *place = over ? dout : x;
            if (!(over ? kinds[kind].dout : kinds[kind].input))
                continue;
            memcpy(saved, place, sizeof saved);
            p.tensors[0].data = place;
            OK(run_op(&p, &err), &err);
            assert_memory_equal(place, plain, l.n * size_of(data));
            memcpy(place, saved, sizeof saved);
            p.tensors[0].data = (char *)place + size_of(data);
            if (l.n > 1)
                FAILS(run_op(&p, &err), QPLAN_ERR_INVALID, "overlaps", &err);
            assert_memory_equal(place, saved, sizeof saved);
        }
    }
}

/* Tensors of many units: the bits of one thread without vectors, for every team and level. */
static void teams_and_levels_agree(void **state)
{
    enum { R = 61, C = 997 };
    static uint64_t big_x[R * C], big_d[R * C], first[R * C], again[R * C];
    uint64_t seed = 4;
    struct qplan_error err;
    (void)state;
    for (int i = 0; i < KINDS * GRANULARITIES * (int)COUNT(floats); i++) {
        const int kind = i % KINDS, granularity = i / KINDS % GRANULARITIES;
        const enum qplan_storage data = floats[i / KINDS / GRANULARITIES];
        const struct layout l = {.granularity = granularity,
                                 .shape = {1, R, C},
                                 .axis = 1 + i % 2,
                                 .group = 7,
                                 .rows = 5,
                                 .cols = 100,
                                 .set_rank = granularity < GROUP    ? 1
                                             : granularity == TOKEN ? 2
                                                                    : 3};
        struct layout whole = l;
        memcpy(whole.sets,
               granularity == TENSOR    ? SHAPE(1, 1, 1)
               : granularity == CHANNEL ? SHAPE(l.shape[l.axis], 1, 1)
               : granularity == TOKEN   ? SHAPE(1, R, 1)
               : granularity == BLOCK   ? SHAPE(1, up(R, 5), up(C, 100))
               : l.axis == 1            ? SHAPE(1, up(R, 7), C)
                                        : SHAPE(1, R, up(C, 7)),
               sizeof whole.sets);
        const struct fields f = {-8, 7};
        const size_t n_sets = (size_t)(whole.sets[0] * whole.sets[1] * whole.sets[2]);
        for (size_t k = 0; k < n_sets; k++) {
            put(QPLAN_STORAGE_BF16, scale, k, 0.25 + (double)random_below(&seed, 8) / 8);
            const double z = (double)random_below(&seed, 15) - 7;
            if (kind == LEARNABLE)
                put(QPLAN_STORAGE_BF16, zero, k, z);
            else
                ((int32_t *)zero)[k] = (int32_t)z;
        }
        for (size_t k = 0; k < R * C; k++) {
            put(data, big_x, k, random_below(&seed, 99) ? random_signed(&seed) * 9 : NAN);
            put(data, big_d, k, random_signed(&seed));
        }
        char name[64];
        for (unsigned threads = 1; threads <= 7; threads += threads == 3 ? 4 : 1) {
            for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
                const bool is_first = threads == 1 && isa == QPLAN_ISA_SCALAR;
                struct problem p;
                build(&p, kind, &whole, data, QPLAN_STORAGE_BF16, &f, name);
                for (size_t t = 0; t < p.n_tensors; t++) {
                    void *from = p.tensors[t].data;
                    p.tensors[t].data = from == x      ? big_x
                                        : from == dout ? big_d
                                        : from != out  ? from
                                        : is_first     ? first
                                                       : again;
                }
                p.preference.threads = threads;
                p.preference.isa = isa;
                OK(run_op(&p, &err), &err);
                if (!is_first)
                    assert_memory_equal(first, again, R * C * size_of(data));
            }
        }
    }
}

/* Not one byte outside of any buffer is touched, at odd lengths. */
static void buffers_between_guard_pages(void **state)
{
    enum { N = 1003 };
    struct qplan_error err;
    (void)state;
    for (int i = 0; i < KINDS * (int)COUNT(floats) * 2; i++) {
        const int kind = i % KINDS, end = i / KINDS % 2;
        const enum qplan_storage data = floats[i / KINDS / 2];
        const size_t n = N * size_of(data);
        struct guarded g[3] = {guarded_make(n), guarded_make(n), guarded_make(n)};
        const struct layout l = {.granularity = CHANNEL,
                                 .shape = {1, 1, N},
                                 .axis = 2,
                                 .sets = {N, 1, 1},
                                 .set_rank = 1};
        const struct fields f = {-8, 7};
        char name[64];
        memset(zero, 0, sizeof zero);
        for (size_t k = 0; k < N; k++)
            put(QPLAN_STORAGE_F32, scale, k, 1);
        struct problem p;
        build(&p, kind, &l, data, QPLAN_STORAGE_F32, &f, name);
        for (size_t t = 0, k = 0; t < p.n_tensors; t++) {
            if (p.tensors[t].rank == 3) {
                p.tensors[t].data = end ? g[k].end - n : g[k].begin;
                memset(p.tensors[t].data, 0, n);
                k++;
            }
        }
        OK(run_op(&p, &err), &err);
        for (int k = 0; k < 3; k++)
            guarded_free(&g[k]);
    }
}

/* ---- Laws -------------------------------------------------------------------------------------
 */

/* per_token, per_group of a whole row and per_channel of rows are one thing. */
static void three_names_of_one_thing(void **state)
{
    enum { R = 7, C = 83 };
    static uint64_t results[3][R * C];
    uint64_t seed = 5;
    struct qplan_error err;
    (void)state;
    for (int i = 0; i < KINDS * (int)COUNT(floats); i++) {
        const int kind = i % KINDS;
        const enum qplan_storage data = floats[i / KINDS];
        const struct fields f = {-8, 7};
        struct layout l = {.granularity = TOKEN,
                           .shape = {1, R, C},
                           .sets = {1, R, 1},
                           .set_rank = 2,
                           .n = R * C,
                           .n_sets = R,
                           .axis = 2,
                           .group = C};
        fill(&seed, kind, &l, data, QPLAN_STORAGE_F32, &f);
        for (int k = 0; k < 3; k++) {
            char name[64];
            l.granularity = k == 0 ? TOKEN : k == 1 ? GROUP : CHANNEL;
            l.set_rank = k == 0 ? 2 : k == 1 ? 3 : 1;
            l.axis = k == 2 ? 1 : 2;
            memcpy(l.sets, k == 2 ? SHAPE(R, 1, 1) : SHAPE(1, R, 1), sizeof l.sets);
            struct problem p;
            build(&p, kind, &l, data, QPLAN_STORAGE_F32, &f, name);
            p.tensors[0].data = results[k];
            OK(run_op(&p, &err), &err);
            assert_memory_equal(results[k], results[0], R * C * size_of(data));
        }
    }
}

/* Data that is as near to the edges of rounding as floats come. */
static void fill_near_ties(uint64_t *seed, float *data, size_t n, float s)
{
    for (size_t i = 0; i < n; i++) {
        float at = s * ((float)random_below(seed, 40) - 20.5f);
        for (uint64_t k = random_below(seed, 4); k > 0; k--)
            at = nextafterf(at, random_below(seed, 2) ? INFINITY : -INFINITY);
        data[i] = at;
    }
}

/*
 * With one code more at each end, the code says whether the true one was clamped: exactly there the
 * gradient is 0. And fake quantize is dequantize of quantize.
 */
static void masks_agree_with_codes(void **state)
{
    enum { N = 4001, LEAST = -7, MOST_CODE = 6 };
    static float data[N], ones[N], mask[N], faked[N], decoded[N];
    static int8_t code[N], wider[N];
    uint64_t seed = 6;
    struct qplan_error err;
    (void)state;
    for (int i = 0; i < 60; i++) {
        float s = (float)(0.01 + fabs(random_signed(&seed)));
        int32_t z = (int32_t)random_below(&seed, 14) - 7;
        fill_near_ties(&seed, data, N, s);
        for (size_t k = 0; k < N; k++)
            ones[k] = 1;
        static const struct {
            const char *op, *result;
            enum qplan_storage dtype;
            int more;
        } runs[] = {{"quantize_per_tensor", "output", QPLAN_STORAGE_I8, 0},
                    {"quantize_per_tensor", "output", QPLAN_STORAGE_I8, 1},
                    {"fake_quantize_per_tensor", "output", QPLAN_STORAGE_F32, 0},
                    {"fake_quantize_per_tensor_backward", "dinput", QPLAN_STORAGE_F32, 0}};
        void *const results[] = {code, wider, faked, mask};
        for (size_t k = 0; k < COUNT(runs); k++) {
            struct problem p = problem(runs[k].op);
            set_number(&p, "q_min", LEAST - runs[k].more);
            set_number(&p, "q_max", MOST_CODE + runs[k].more);
            add(&p, "input", QPLAN_STORAGE_F32, 1, SHAPE(N), data);
            add(&p, "scale", QPLAN_STORAGE_F32, 0, NULL, &s)->n_bytes = sizeof s;
            add(&p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(1), &z);
            add(&p, runs[k].result, runs[k].dtype, 1, SHAPE(N), results[k]);
            if (k == 3)
                add(&p, "dout", QPLAN_STORAGE_F32, 1, SHAPE(N), ones);
            OK(run_op(&p, &err), &err);
        }
        struct problem p = problem("dequantize_per_tensor");
        add(&p, "input", QPLAN_STORAGE_I8, 1, SHAPE(N), code);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(1), &s);
        add(&p, "zero_point", QPLAN_STORAGE_I32, 1, SHAPE(1), &z);
        add(&p, "output", QPLAN_STORAGE_F32, 1, SHAPE(N), decoded);
        OK(run_op(&p, &err), &err);
        assert_memory_equal(decoded, faked, sizeof faked);
        for (size_t k = 0; k < N; k++)
            assert_true(mask[k] == (wider[k] >= LEAST && wider[k] <= MOST_CODE ? 1.0f : 0.0f));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operator_is_its_formula),
        cmocka_unit_test(strided_is_contiguous),
        cmocka_unit_test(results_in_place),
        cmocka_unit_test(teams_and_levels_agree),
        cmocka_unit_test(buffers_between_guard_pages),
        cmocka_unit_test(three_names_of_one_thing),
        cmocka_unit_test(masks_agree_with_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
