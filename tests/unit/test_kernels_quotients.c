/*
 * test_kernels_quotients.c - the quotients at which a kernel that does not divide could err, all of
 * them, for every row of the table.
 *
 * A code changes where x / s, rounded to f32, passes a tie T = k + 1/2: at the middle m between T
 * and the next f32 above or below. kernels/README.md shows that a kernel may only be wrong where
 * the significands M of m (25 bits) and S of s (24 bits) have a product that is within 6 of a
 * multiple of 2^24. As M is 1 beside a multiple of 2^a, S is then within 6 of a multiple of 2^a:
 * few enough to try every one, with both f32 x beside m * s. On which side of m * s an x lies says
 * its code without a division.
 */
#include "kernel_cases.h"

#define NEAR      16 /* further than needed */
#define MOST_TIES 255

/* Elements that wait for the kernel, each a set of its own. */
struct batch {
    const struct qp_source_kernels *row;
    float x[4096], scale[4096];
    uint8_t expected[4096];
    size_t n;
    uint64_t total;
};

static struct batch batch;

static void run_batch_as(const struct qp_tile *tile, const int32_t *zero,
                         const struct qp_code_rule *rule)
{
    static uint8_t codes[COUNT(batch.x)];
    quantizer_of(batch.row)->quantize(tile, batch.x, rule, batch.scale, zero, codes);
    for (size_t i = 0; i < batch.n; i++) {
        if (codes[i] != batch.expected[i])
            fail_msg("%s: %a / %a: expected %d, found %d", qplan_isa_name(batch.row->isa),
                     (double)batch.x[i], (double)batch.scale[i], batch.expected[i], codes[i]);
    }
}

/*
 * As columns and as runs, with what a kernel may be told and without; the values and then the
 * scales above and below zero. A quotient below zero is taken away from the zero point.
 */
static void run_batch(void)
{
    static int32_t zero[COUNT(batch.x)];
    struct qp_code_rule rule = rule_of(QPLAN_UINT8, true);
    const struct qp_tile columns = {1, batch.n, 1, 1, 0}, rows = {batch.n, 1, 1, 1, 0};
    for (int turn = 0; turn < 4; turn++) {
        for (int bounded = 0; bounded < 2; bounded++) {
            rule.bounded = bounded;
            run_batch_as(&columns, zero, &rule);
            run_batch_as(&rows, zero, &rule);
        }
        for (size_t i = 0; i < batch.n; i++) {
            if (turn % 2)
                batch.scale[i] = -batch.scale[i];
            else
                batch.x[i] = -batch.x[i];
            batch.expected[i] = (uint8_t)(255 - batch.expected[i]);
            zero[i] = 255 - zero[i];
        }
    }
    batch.total += batch.n;
    batch.n = 0;
}

static void add(float x, float scale, int expected)
{
    batch.x[batch.n] = x;
    batch.scale[batch.n] = scale;
    batch.expected[batch.n++] = (uint8_t)expected;
    if (batch.n == COUNT(batch.x))
        run_batch();
}

/*
 * Both f32 beside m * s, whose product is exact in f64, if their quotients are nearer to m than the
 * tie is. Between m and the tie a quotient is rounded to the tie, which goes to the even code, and
 * beyond m to the next f32, which is no tie.
 */
static void try_pair(int k, double m, double s)
{
    const double product = m * s, tie = k + 0.5, reach = fabs(m - tie) * s;
    const float near = (float)product;
    const float down = (double)near < product ? near : nextafterf(near, 0);
    const float up = nextafterf(down, INFINITY);
    const int even = k + k % 2;
    assert_true((double)down < product && product < (double)up);
    if (product - (double)down < reach)
        add(down, (float)s, m < tie ? k : even);
    if ((double)up - product < reach)
        add(up, (float)s, m < tie ? even : k + 1);
}

static void try_scales(int k, double m, int a, int exponent)
{
    const int64_t step = (int64_t)1 << a, least = 1 << 23, most = 1 << 24;
    for (int64_t middle = least - least % step; middle <= most; middle += step) {
        for (int64_t s = middle - NEAR; s <= middle + NEAR; s++) {
            if (s >= least && s < most)
                try_pair(k, m, ldexp((double)s, exponent - 23));
        }
    }
}

static void try_ties(const struct qp_source_kernels *row)
{
    static const int exponents[] = {0, -7, -64, -65, 63, 64};
    if (row->dtype != QPLAN_F32)
        return; /* what these load is an f32 as well */
    batch.row = row;
    batch.total = 0;
    for (size_t i = 0; i < COUNT(exponents); i++) {
        for (int k = 0; k < MOST_TIES; k++) {
            const double tie = k + 0.5;
            const int bits = bit_length((unsigned)(2 * k + 1)), a = 25 - bits;
            const double up = nextafterf((float)tie, INFINITY), down = nextafterf((float)tie, 0);
            try_scales(k, (tie + up) / 2, a, exponents[i]);
            try_scales(k, (tie + down) / 2, a, exponents[i]);
        }
    }
    run_batch();
    assert_true(batch.total > 1000000);
}

static void no_quotient_beside_a_tie_has_another_code(void **state)
{
    (void)state;
    for_each_row(try_ties);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_quotient_beside_a_tie_has_another_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
