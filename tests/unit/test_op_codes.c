/*
 * test_op_codes.c - codes of floats and nf4 in operators: random problems against the nearest value
 * among all that there are, laws between operators, and what is refused.
 */
#include "op_layout.h"

#include "kernels/codes/code.h"
#include "lib/model/dtype.h"

/* ---- What codes stand for ---------------------------------------------------------------------
 */

static const struct code {
    const char *name;
    enum qplan_storage stored;
    int n; /* codes without a sign that are numbers; of nf4 all */
    enum qplan_dtype dtype;
    double largest;
} codes[] = {
    {"f8e4m3", QPLAN_STORAGE_F8_E4M3, 127, QPLAN_F8E4M3, 448},
    {"f8e5m2", QPLAN_STORAGE_F8_E5M2, 124, QPLAN_F8E5M2, 57344},
    {"f4e2m1", QPLAN_STORAGE_U8, 8, QPLAN_F4E2M1, 6},
    {"nf4", QPLAN_STORAGE_U8, 16, QPLAN_NF4, 1},
};

static bool is_table(const struct code *code)
{
    return code->dtype == QPLAN_NF4;
}

static bool is_packed(const struct code *code)
{
    return code->stored == QPLAN_STORAGE_U8;
}

static double value_of(const struct code *code, int q)
{
    return value_of_bits(code->dtype, (uint64_t)q);
}

/* The code of a quotient: the nearest value; of two the even one, of a table the lower. */
static int code_of(const struct code *code, double t)
{
    const double size = is_table(code) ? t : fmin(fabs(t), code->largest);
    int best = 0;
    if (isnan(t))
        return is_table(code) ? 7 : 0;
    for (int q = 1; q < code->n; q++) {
        const double far = fabs(value_of(code, q) - size), near = fabs(value_of(code, best) - size);
        if (is_table(code) ? (float)t > (float)(((double)nf4[q - 1] + (double)nf4[q]) / 2)
                           : far < near || (far == near && q % 2 == 0))
            best = q;
    }
    return best | (!is_table(code) && signbit(t) ? (is_packed(code) ? 8 : 128) : 0);
}

static int stored_code(const struct layout *l, const struct code *code, const uint8_t *out,
                       size_t elem)
{
    if (!is_packed(code))
        return out[elem];
    const size_t row = elem / (size_t)l->shape[2], col = elem % (size_t)l->shape[2];
    return out[row * (size_t)up(l->shape[2], 2) + col / 2] >> 4 * (col % 2) & 15;
}

/* ---- Random problems --------------------------------------------------------------------------
 */

static float x[MOST], s[MOST], y[MOST], dout[MOST], dx[MOST];
static uint8_t q[MOST];

static void random_data(uint64_t *seed, const struct layout *l, const struct code *code)
{
    for (size_t i = 0; i < l->n_sets; i++)
        s[i] = (float)ldexp(1 + random_signed(seed) / 2, (int)random_below(seed, 20) - 10);
    for (size_t i = 0; i < l->n; i++) {
        const double scale = (double)s[set_of(l, i)];
        const double near = value_of(code, (int)random_below(seed, (uint64_t)code->n));
        x[i] = (float)(scale * near * (1 + random_signed(seed) / 8));
        if (random_below(seed, 16) == 0)
            x[i] = (float)random_datum(seed, scale);
        dout[i] = (float)random_signed(seed);
    }
}

/* The operator on x, and on dout where it is a gradient; its only output goes to `to`. */
static void run_on_data(const char *verb, const char *tail, const struct layout *l,
                        const struct code *code, enum qplan_isa isa, void *to)
{
    char name[64];
    struct problem p = make(verb, l, name);
    struct qplan_error err;
    const bool encodes = to == q, decodes = strcmp(verb, "dequantize") == 0;
    const int64_t width = is_packed(code) ? up(l->shape[2], 2) : l->shape[2];
    (void)strncat(name, tail, 63 - strlen(name));
    set(&p, decodes ? "input_dtype" : encodes ? "output_dtype" : "code_dtype", code->name);
    if (*tail)
        add(&p, "dout", QPLAN_STORAGE_F32, 3, l->shape, dout);
    else if (!decodes)
        set(&p, "nonfinite", "saturate");
    if (decodes && is_packed(code))
        set_number(&p, "row_len", l->shape[2]);
    if (decodes)
        add(&p, "input", code->stored, 3, SHAPE(l->shape[0], l->shape[1], width), q);
    else
        add(&p, "input", QPLAN_STORAGE_F32, 3, l->shape, x);
    add(&p, "scale", QPLAN_STORAGE_F32, l->set_rank, l->sets, s);
    if (encodes)
        add(&p, "output", code->stored, 3, SHAPE(l->shape[0], l->shape[1], width), to);
    else
        add(&p, *tail ? "dinput" : "output", QPLAN_STORAGE_F32, 3, l->shape, to);
    p.preference.isa = isa;
    p.preference.threads = 1 + (unsigned)isa % 3;
    OK(run_op(&p, &err), &err);
}

static void check_elements(const struct layout *l, const struct code *code)
{
    for (size_t i = 0; i < l->n; i++) {
        const float scale = s[set_of(l, i)];
        const int want = code_of(code, (double)(x[i] / scale)), got = stored_code(l, code, q, i);
        if (got != want)
            fail_msg("%s of %a / %a: expected %d, found %d", code->name, (double)x[i],
                     (double)scale, want, got);
        const float value = (float)((double)scale * value_of(code, want));
        const float most = copysignf(FLT_MAX, value);
        assert_true(y[i] == (isinf(value) ? most : value));
    }
}

/* dout where |x / s| is in range, for the gradient of codes divided by the scale. */
static void check_gradient(const struct layout *l, const struct code *code, bool divided)
{
    for (size_t i = 0; i < l->n; i++) {
        const float scale = s[set_of(l, i)], want = divided ? dout[i] / scale : dout[i];
        const bool inside = fabs((double)(x[i] / scale)) <= code->largest;
        assert_true(dx[i] == (inside ? want : 0));
    }
}

static void random_problems(void **state)
{
    static float again[MOST];
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 200; i++) {
        const struct code *code = &codes[i % 4];
        const struct layout l = random_layout(&seed, i / 4 % GRANULARITIES);
        random_data(&seed, &l, code);
        for (enum qplan_isa isa = QPLAN_ISA_SCALAR; isa <= qp_isa_detect(); isa++) {
            run_on_data("quantize", "", &l, code, isa, q);
            run_on_data("dequantize", "", &l, code, isa, y);
            check_elements(&l, code);
            run_on_data("fake_quantize", "", &l, code, isa, again);
            assert_memory_equal(again, y, l.n * sizeof *y);
            run_on_data("fake_quantize", "_backward", &l, code, isa, dx);
            check_gradient(&l, code, false);
            run_on_data("quantize", "_backward", &l, code, isa, dx);
            check_gradient(&l, code, true);
        }
    }
}

/* ---- Ends, sampled one by one -----------------------------------------------------------------
 */

/* At the largest value the gradient passes, one step further it does not. */
static void gradient_ends_with_the_range(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(codes); k++) {
        const float end = (float)codes[k].largest, past = nextafterf(end, INFINITY);
        const float in[] = {end, past, -end, -past, NAN, INFINITY, -INFINITY, 0};
        const float want[] = {3, 0, 3, 0, 0, 0, 0, 3};
        const struct layout l = {
            .shape = {1, 1, COUNT(in)}, .sets = {1}, .set_rank = 1, .n = COUNT(in), .n_sets = 1};
        memcpy(x, in, sizeof in);
        s[0] = 1;
        for (size_t i = 0; i < COUNT(in); i++)
            dout[i] = 3;
        run_on_data("fake_quantize", "_backward", &l, &codes[k], QPLAN_ISA_BEST, dx);
        for (size_t i = 0; i < COUNT(in); i++)
            assert_true(dx[i] == want[i]);
    }
}

/* An output in the place of the input, in every dtype. */
static void fake_quantize_in_place(void **state)
{
    enum { N = 20000 };
    static double data[N], other[N];
    uint64_t seed = 5;
    struct qplan_error err;
    (void)state;
    for (size_t k = 0; k < COUNT(codes) * COUNT(floats); k++) {
        const enum qplan_storage dtype = floats[k / COUNT(codes)];
        struct problem p = problem("fake_quantize_per_tensor");
        float scale = 0.37f;
        for (size_t i = 0; i < N; i++)
            put(dtype, data, i, random_signed(&seed));
        set(&p, "code_dtype", codes[k % COUNT(codes)].name);
        add(&p, "input", dtype, 1, SHAPE(N), data);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(1), &scale);
        add(&p, "output", dtype, 1, SHAPE(N), other);
        OK(run_op(&p, &err), &err);
        p.tensors[2].data = data;
        OK(run_op(&p, &err), &err);
        assert_memory_equal(data, other, N * size_of(dtype));
    }
}

/* ---- What is told of a kernel -----------------------------------------------------------------
 */

/* Vector kernels take them, but for F64, and say so. */
static void sku_and_guarantee(void **state)
{
    static const char *const verbs[] = {"quantize", "fake_quantize"};
    static double data[4];
    (void)state;
    for (size_t i = 0; i < COUNT(verbs) * COUNT(floats) * (1 + (size_t)qp_isa_detect()); i++) {
        const struct layout l = {.shape = {1, 1, 4}, .sets = {1}, .set_rank = 1};
        const enum qplan_storage dtype = floats[i / COUNT(verbs) % COUNT(floats)];
        const enum qplan_isa isa = (enum qplan_isa)(1 + i / COUNT(verbs) / COUNT(floats));
        const bool fake = i % COUNT(verbs);
        char name[64];
        struct problem p = make(verbs[i % COUNT(verbs)], &l, name);
        struct qplan_error err;
        struct qplan_op *op;
        if (isa > qp_isa_detect())
            continue;
        set(&p, fake ? "code_dtype" : "output_dtype", "nf4");
        add(&p, "input", dtype, 3, l.shape, data);
        add(&p, "scale", QPLAN_STORAGE_F32, 1, SHAPE(1), s);
        p.preference.isa = isa;
        OK(select_op(&p, &op, &err), &err);
        const struct qplan_op_guarantee *g = qplan_op_precision_guarantee(op);
        const enum qplan_dtype work = dtype == QPLAN_STORAGE_F64 ? QPLAN_F64 : QPLAN_F32;
        const struct qp_quantizer *kernels =
            qp_quantizer(qp_storage_row(dtype)->dtype, QP_CODES_BOOK, isa);
        assert_string_equal(qplan_op_sku(op)->arch, qplan_isa_name(kernels->isa));
        assert_string_equal(g->math_precision, qplan_dtype_name(work));
        assert_true(g->bit_stable && g->thread_invariant && g->deterministic);
        qplan_op_free(op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_problems),
        cmocka_unit_test(gradient_ends_with_the_range),
        cmocka_unit_test(fake_quantize_in_place),
        cmocka_unit_test(sku_and_guarantee),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
