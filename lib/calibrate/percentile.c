/*
 * percentile.c - a range that leaves some values out at both ends: percentile:P keeps P percent.
 *
 * Of n values in their order the ends are those with k before them and with k behind them, where k
 * is (100 - P) / 200 of n - 1, rounded down. They are found by their digits: floats sort like their
 * bits, if those of negative ones are inverted and the sign of others is set. A pass counts which
 * digits of four bits follow on those that are known, and thereby finds the next. Nothing is
 * sampled, and a set may be as large as it likes. One that is in memory is gone over for each bit,
 * which takes less than finding digits.
 */
#include "tile_values.h"

#include "kernels/dtypes/bits.h"

#include <string.h>

#define DIGIT_BITS 4
#define DIGITS     (1 << DIGIT_BITS)

/* Parts of a percent that P is told in, and in which what is left out of all is told. */
#define PARTS ((uint64_t)1000000)

enum { LOW, HIGH, ENDS };

/* How often each digit follows on what is known of an end. */
struct counts {
    uint64_t of[ENDS][DIGITS];
};

struct known {
    uint64_t digits[ENDS]; /* of the key of an end, as far as they are known */
    uint64_t before[ENDS]; /* values that begin with these digits and come before the end */
};

bool qp_percentile_read(const char *text, struct qp_calibrator *out)
{
    uint64_t whole = 0, part = 0, unit = PARTS;
    size_t n = 0;
    while (text[n] >= '0' && text[n] <= '9' && n < 3)
        whole = whole * 10 + (uint64_t)(text[n++] - '0');
    if (n == 0 || text[0] == '0' || (text[n] == '.' && text[n + 1] == '\0'))
        return false;
    if (text[n] == '.')
        n++;
    for (; text[n] >= '0' && text[n] <= '9' && unit > 1; n++)
        part += (uint64_t)(text[n] - '0') * (unit /= 10);
    out->parameter = whole * PARTS + part;
    return text[n] == '\0' && out->parameter > 50 * PARTS && out->parameter <= 100 * PARTS;
}

/* ---- Counting ----------------------------------------------------------------------------------
 */

/* What an element is for the order. */
struct element {
    size_t bytes;
    unsigned bits;
    uint64_t sign, infinity;
};

static struct element element_of(const struct qp_calibration *c)
{
    const size_t bytes = c->kernels->elem_bytes;
    const unsigned bits = (unsigned)bytes * 8;
    struct element e = {bytes, bits, (uint64_t)1 << (bits - 1), 0};
    e.infinity = c->kernels->dtype == QPLAN_F64    ? 0x7ff0000000000000
                 : c->kernels->dtype == QPLAN_F32  ? 0x7f800000
                 : c->kernels->dtype == QPLAN_BF16 ? 0x7f80
                                                   : 0x7c00;
    return e;
}

static uint64_t bits_of(const struct element *e, uint64_t key)
{
    return key & e->sign ? key ^ e->sign : key ^ (e->sign | (e->sign - 1));
}

/* Values at a time: so many that eight bits count them. */
#define TOGETHER_COUNTED 240

/* A digit that is none: the value is not finite, or does not begin with the digits of the end. */
#define NO_DIGIT 255

/*
 * The next digits of some values, of those that begin with what is known of an end; one loop for
 * each size of an element. Returns how many values are not finite.
 */
#define DEFINE_DIGITS(N, GET)                                                                      \
    static uint64_t digits_##N(const struct element *e, unsigned shift, const unsigned char *src,  \
                               size_t n, uint64_t known, bool is_first, uint8_t *digits)           \
    {                                                                                              \
        const uint##N##_t infinity = (uint##N##_t)e->infinity, sign = (uint##N##_t)e->sign;        \
        const uint##N##_t all = (uint##N##_t)(sign | (sign - 1)), wanted = (uint##N##_t)known;     \
        uint##N##_t others = 0;                                                                    \
        for (size_t i = 0; i < n; i++) {                                                           \
            const uint##N##_t bits = GET(src + i * sizeof bits);                                   \
            const uint##N##_t key = (uint##N##_t)(bits ^ (bits & sign ? all : sign));              \
            const uint##N##_t begun = (uint##N##_t)(key >> shift);                                 \
            const bool is_other = (bits & infinity) == infinity;                                   \
            const bool is_in = is_first || begun >> DIGIT_BITS == wanted;                          \
            others = (uint##N##_t)(others + is_other);                                             \
            digits[i] = is_in && !is_other ? begun % DIGITS : NO_DIGIT;                            \
        }                                                                                          \
        return others;                                                                             \
    }

DEFINE_DIGITS(16, qp_get16)
DEFINE_DIGITS(32, qp_get32)
DEFINE_DIGITS(64, qp_get64)

#undef DEFINE_DIGITS

static unsigned count_digit(size_t n, const uint8_t *digits, uint8_t digit)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + (digits[i] == digit));
    return sum;
}

static void count_digits(size_t n, const uint8_t *digits, uint64_t counts[DIGITS])
{
    if (count_digit(n, digits, NO_DIGIT) == n)
        return;
    for (unsigned digit = 0; digit < DIGITS; digit++)
        counts[digit] += count_digit(n, digits, (uint8_t)digit);
}

/* The set whose digits are counted. */
struct counting {
    struct element e;
    unsigned pass;
    const struct known *known;
    struct counts *counts;
    uint64_t n_others; /* values that are not finite, of all sets */
};

/* Counts the digits of a run: before any is known, those of both ends are the same. */
static void count_run(void *ctx, const void *elems, size_t n)
{
    struct counting *c = ctx;
    const struct element *e = &c->e;
    const unsigned shift = e->bits - DIGIT_BITS * (c->pass + 1), n_ends = c->pass ? ENDS : 1;
    uint64_t (*const digits_of)(const struct element *, unsigned, const unsigned char *, size_t,
                                uint64_t, bool, uint8_t *) = e->bytes == 2   ? digits_16
                                                             : e->bytes == 4 ? digits_32
                                                                             : digits_64;
    const unsigned char *src = elems;
    uint8_t digits[TOGETHER_COUNTED];
    for (size_t i = 0, k; i < n; i += k, src += k * e->bytes) {
        k = n - i < TOGETHER_COUNTED ? n - i : TOGETHER_COUNTED;
        for (unsigned end = LOW; end < n_ends; end++) {
            const uint64_t known = c->pass ? c->known->digits[end] : 0;
            const uint64_t others = digits_of(e, shift, src, k, known, c->pass == 0, digits);
            c->n_others += end == LOW ? others : 0;
            count_digits(k, digits, c->counts->of[end]);
        }
    }
}

static uint64_t see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state)
{
    struct counting counting = {.e = element_of(c), .pass = pass};
    FOR_EACH_SET (tile, set) {
        counting.known = (const struct known *)c->known + set.set;
        counting.counts = (struct counts *)state + set.set;
        qp_elems_walk(tile, &set, src, counting.e.bytes, count_run, &counting);
    }
    return counting.n_others;
}

static void merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n)
{
    const size_t words = sizeof(struct counts) / sizeof(uint64_t);
    uint64_t *to = (uint64_t *)state + first * words;
    const uint64_t *from = of_tile;
    (void)c;
    (void)pass;
    (void)n_all;
    for (size_t i = 0; i < n * words; i++)
        to[i] += from[i];
}

/* ---- The ends ----------------------------------------------------------------------------------
 */

static uint64_t sum_of(const uint64_t counts[DIGITS])
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < DIGITS; i++)
        sum += counts[i];
    return sum;
}

/* How many of n values are left out at each end. */
static uint64_t left_out(const struct qp_calibration *c, uint64_t n)
{
    const uint64_t share = 100 * PARTS - c->calibrator->parameter, whole = 200 * PARTS;
    return n == 0 ? 0 : (n - 1) / whole * share + (n - 1) % whole * share / whole;
}

static void begin(const struct qp_calibration *c, const struct counts *counts, struct known *known)
{
    const uint64_t n = sum_of(counts->of[LOW]), k = left_out(c, n);
    *known = (struct known){.before = {k, n ? n - 1 - k : 0}};
}

/* Finds the next digit of an end. */
static void advance(const uint64_t counts[DIGITS], struct known *known, unsigned end)
{
    unsigned digit = 0;
    while (digit + 1 < DIGITS && known->before[end] >= counts[digit])
        known->before[end] -= counts[digit++];
    known->digits[end] = known->digits[end] << DIGIT_BITS | digit;
}

/*
 * The value of an end in working precision; 0 is always in the range. A set without values has
 * found the last digit in every pass, which is no number.
 */
static void put_end(const struct qp_calibration *c, uint64_t key, unsigned end, void *out)
{
    const struct element e = element_of(c);
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    unsigned char bytes[8];
    double value;
    qp_put64(bytes, bits_of(&e, key));
    f64->load(c->kernels->dtype, 1, bytes, &value);
    if (!(end == LOW ? value < 0 : value > 0))
        value = 0;
    f64->store(c->kernels->work->work, 1, &value, out);
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const struct counts *counts = state;
    const size_t size = c->kernels->work_bytes;
    const bool is_last = pass + 1 == qp_calibrator_passes(c->calibrator, c->kernels->elem_bytes);
    struct known *known = c->known;
    for (size_t i = 0; i < n; i++) {
        double range[ENDS];
        if (pass == 0)
            begin(c, &counts[i], &known[i]);
        for (unsigned end = LOW; end < ENDS; end++) {
            advance(counts[i].of[pass ? end : LOW], &known[i], end);
            if (is_last)
                put_end(c, known[i].digits[end], end, &range[end]);
        }
        if (is_last && c->quantizer->params(c->rule, 1, &range[LOW], &range[HIGH],
                                            (char *)scale + i * size, zero + i) == 0)
            return i;
    }
    return n;
}

/* ---- Whole sets --------------------------------------------------------------------------------
 */

/*
 * How many of some values have keys below each of two; one loop for each size of an element. The
 * values are so few that an integer of their size counts them.
 */
#define DEFINE_BELOW(N, GET)                                                                       \
    static void below_##N(const struct element *e, const unsigned char *src, size_t n,             \
                          const uint64_t keys[ENDS], uint64_t counts[ENDS])                        \
    {                                                                                              \
        const uint##N##_t sign = (uint##N##_t)e->sign, all = (uint##N##_t)(sign | (sign - 1));     \
        const uint##N##_t low = (uint##N##_t)keys[LOW], high = (uint##N##_t)keys[HIGH];            \
        uint##N##_t n_low = 0, n_high = 0;                                                         \
        for (size_t i = 0; i < n; i++) {                                                           \
            const uint##N##_t bits = GET(src + i * sizeof bits);                                   \
            const uint##N##_t key = (uint##N##_t)(bits ^ (bits & sign ? all : sign));              \
            n_low = (uint##N##_t)(n_low + (key < low));                                            \
            n_high = (uint##N##_t)(n_high + (key < high));                                         \
        }                                                                                          \
        counts[LOW] += n_low;                                                                      \
        counts[HIGH] += n_high;                                                                    \
    }

DEFINE_BELOW(16, qp_get16)
DEFINE_BELOW(32, qp_get32)
DEFINE_BELOW(64, qp_get64)

#undef DEFINE_BELOW

/* Values at a time. */
#define TOGETHER_BELOW 32768

/* The keys that are tried, and how many of the values of a set are below. */
struct trial {
    const struct element *e;
    uint64_t keys[ENDS], counts[ENDS];
};

static void count_below(void *ctx, const void *elems, size_t n)
{
    struct trial *t = ctx;
    const unsigned char *src = elems;
    const size_t bytes = t->e->bytes;
    for (size_t i = 0, k; i < n; i += k, src += k * bytes) {
        k = n - i < TOGETHER_BELOW ? n - i : TOGETHER_BELOW;
        (bytes == 2   ? below_16
         : bytes == 4 ? below_32
                      : below_64)(t->e, src, k, t->keys, t->counts);
    }
}

/* The keys of the ends of a set of finite values, bit by bit. */
static void find_ends(const struct qp_calibration *c, const struct element *e,
                      const struct qp_tile *tile, const struct qp_tile_set *set, const void *src,
                      uint64_t keys[ENDS])
{
    const uint64_t n = (uint64_t)set->n_rows * set->n_cols, k = left_out(c, n);
    const uint64_t before[ENDS] = {k, n - 1 - k};
    keys[LOW] = keys[HIGH] = 0;
    for (uint64_t bit = e->sign; bit; bit >>= 1) {
        struct trial t = {e, {keys[LOW] | bit, keys[HIGH] | bit}, {0, 0}};
        qp_elems_walk(tile, set, src, e->bytes, count_below, &t);
        for (unsigned end = LOW; end < ENDS; end++)
            keys[end] = t.counts[end] <= before[end] ? t.keys[end] : keys[end];
    }
}

/*
 * All sets of a tile, one by one, while each is in the cache. Where nothing is left out, its ends
 * are those of the range.
 */
static size_t choose(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                     void *state, struct qp_set_params *chosen)
{
    const struct element e = element_of(c);
    const size_t n = qp_tile_sets(tile), size = c->kernels->work_bytes;
    const bool is_range = left_out(c, c->set_elems) == 0;
    char *lo = state, *hi = qp_ranges_most(c, state, n);
    memset(state, 0, 2 * n * size);
    chosen->n_others = qp_ranges_see(c, 0, tile, src, state);
    if (chosen->n_others > 0 || (!is_range && qp_values_are_gathered(tile)))
        return qp_calibrator_go(c, 0, tile, src, state, chosen);
    FOR_EACH_SET (tile, set) {
        uint64_t keys[ENDS];
        if (is_range)
            break;
        find_ends(c, &e, tile, &set, src, keys);
        put_end(c, keys[LOW], LOW, lo + set.set * size);
        put_end(c, keys[HIGH], HIGH, hi + set.set * size);
    }
    return c->quantizer->params(c->rule, n, lo, hi, chosen->scale, chosen->zero);
}

const struct qp_calibrator qp_calibrate_percentile = {
    .name = "percentile",
    .method = "percentile",
    .can_clip = true,
    .nearest = true,
    .from_source = true,
    .bits = DIGIT_BITS,
    .state_bytes = sizeof(struct counts),
    .known_bytes = sizeof(struct known),
    .see = see,
    .merge = merge,
    .finish = finish,
    .choose = choose,
};
