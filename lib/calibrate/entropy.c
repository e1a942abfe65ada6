/*
 * entropy.c - a range that leaves the largest values out, as TensorRT chooses it: entropy:BINS.
 *
 * The sizes of all values of a set are counted in bins of one width, from 0 to the largest size.
 * A cut behind i bins keeps their counts, P, where those behind it are added to the last bin. Q is
 * what codes make of these bins without the others: bin j belongs to level j * levels / i, rounded
 * down, and the count of a level is spread over those of its bins that are not empty. Of all cuts,
 * from as many bins as there are levels up to all bins, the one is taken whose P diverges least
 * from its Q; of equals the last. A cut whose last bin is empty diverges without end if any values
 * are behind it: Q is 0 there, and P is not.
 *
 * Divergences are whole numbers, n times the real ones in units of qp_log2, so that a machine's
 * logarithm has no say, and equal ones are equal. With n values in all, S and z the count and the
 * bins of a level, m values before the cut and r behind it, and L for the logarithm:
 *
 *     sum P L(P) - n L(n) - sum S (L(S) - L(z)) - r (L(S) - L(z) of the last level) + n L(m)
 *
 * in which n L(n) is the same for all cuts, and left out.
 */
#include "tile_values.h"

#include "lib/base/log2.h"

#include <math.h>
#include <string.h>

#define BINS_LEAST 64
#define BINS_USUAL 2048
#define BINS_MOST  8192

__extension__ typedef __int128 divergence;

struct known {
    double lo, hi;
};

bool qp_entropy_read(const char *text, struct qp_calibrator *out)
{
    uint64_t bins = 0;
    size_t n = 0;
    while (text[n] >= '0' && text[n] <= '9' && n < 4)
        bins = bins * 10 + (uint64_t)(text[n++] - '0');
    out->parameter = bins;
    out->state_bytes = (size_t)bins * sizeof(uint64_t);
    return text[n] == '\0' && text[0] != '0' && bins >= BINS_LEAST && bins <= BINS_MOST;
}

static bool makes(const struct qplan_scheme *scheme)
{
    return !qp_is_valued(qp_code_type(scheme->dtype)->kind) &&
           qp_float_bytes(scheme->scale_dtype) > 1;
}

static size_t bins_of(const struct qp_calibration *c)
{
    return (size_t)c->calibrator->parameter;
}

static double most_of(const struct known *known)
{
    return -known->lo > known->hi ? -known->lo : known->hi;
}

/* Between f64 and working precision, whatever the source has. */
static const struct qp_work_kernels *f64_kernels(void)
{
    return qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
}

/* ---- Counting ----------------------------------------------------------------------------------
 */

/* Values at a time. */
#define TOGETHER_COUNTED 256

/* Counts values by their size; those that are not finite are in no bin. */
static void count_values(const struct qp_calibration *c, const void *src, size_t n, double most,
                         uint64_t *counts)
{
    const size_t bins = bins_of(c);
    double values[TOGETHER_COUNTED];
    f64_kernels()->load(c->kernels->dtype, n, src, values);
    for (size_t i = 0; i < n; i++)
        values[i] = fabs(values[i]) / most;
    for (size_t i = 0; i < n; i++) {
        if (!(values[i] <= 1))
            continue;
        const size_t bin = (size_t)(values[i] * (double)bins);
        counts[bin < bins ? bin : bins - 1]++;
    }
}

/* The set that is counted. */
struct counting {
    const struct qp_calibration *c;
    double most;
    uint64_t *counts;
};

static void count_run(void *ctx, const void *elems, size_t n)
{
    const struct counting *counting = ctx;
    const size_t size = counting->c->kernels->elem_bytes;
    for (size_t i = 0, k; i < n && counting->most > 0; i += k) {
        k = n - i < TOGETHER_COUNTED ? n - i : TOGETHER_COUNTED;
        count_values(counting->c, (const char *)elems + i * size, k, counting->most,
                     counting->counts);
    }
}

/* Adds the values that a tile has of a set to its counts. */
static void count_set(const struct qp_calibration *c, const struct qp_tile *tile,
                      const struct qp_tile_set *set, const void *src, uint64_t *counts)
{
    struct counting counting = {c, most_of(&((const struct known *)c->known)[set->set]), counts};
    qp_elems_walk(tile, set, src, c->kernels->elem_bytes, count_run, &counting);
}

static uint64_t see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state)
{
    if (pass == 0)
        return qp_ranges_see(c, pass, tile, src, state);
    FOR_EACH_SET (tile, set)
        count_set(c, tile, &set, src, (uint64_t *)state + set.set * bins_of(c));
    return 0;
}

static void merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n)
{
    uint64_t *to = (uint64_t *)state + first * bins_of(c);
    const uint64_t *from = of_tile;
    if (pass == 0) {
        qp_ranges_merge(c, pass, state, n_all, first, of_tile, n);
        return;
    }
    for (size_t i = 0; i < n * bins_of(c); i++)
        to[i] += from[i];
}

/* ---- Cutting -----------------------------------------------------------------------------------
 */

/* Logarithms of the counts that are most common. */
#define LOGS 1024

struct logs {
    uint64_t of[LOGS];
};

static void fill_logs(struct logs *logs)
{
    logs->of[0] = 0;
    for (uint64_t i = 1; i < LOGS; i++)
        logs->of[i] = qp_log2(i);
}

static divergence log_of(const struct logs *logs, uint64_t n)
{
    return (divergence)(n < LOGS ? logs->of[n] : qp_log2(n));
}

/* The bins of a set, up to any of them. */
struct histogram {
    const struct logs *logs;
    const uint64_t *ends;           /* values up to the end of each bin */
    uint16_t filled[BINS_MOST + 1]; /* bins that have values, before each */
    size_t bins;
};

static uint64_t values_before(const struct histogram *h, size_t bin)
{
    return bin ? h->ends[bin - 1] : 0;
}

static void make_histogram(struct histogram *h, const struct logs *logs, uint64_t *counts,
                           size_t bins)
{
    h->logs = logs;
    h->ends = counts;
    h->bins = bins;
    h->filled[0] = 0;
    for (size_t i = 0; i < bins; i++) {
        h->filled[i + 1] = (uint16_t)(h->filled[i] + (counts[i] > 0));
        counts[i] += i ? counts[i - 1] : 0;
    }
}

/*
 * What the levels of a cut take off its divergence; there are 2^level_bits of them, and the last
 * one has values.
 */
static divergence of_levels(const struct histogram *h, size_t cut, unsigned level_bits)
{
    const size_t levels = (size_t)1 << level_bits;
    const uint64_t behind = values_before(h, h->bins) - values_before(h, cut);
    divergence sum = 0, mean = 0;
    for (size_t level = 0, begin = 0, end; level < levels; level++, begin = end) {
        end = ((level + 1) * cut + levels - 1) >> level_bits;
        const uint64_t n = values_before(h, end) - values_before(h, begin);
        if (n == 0)
            continue;
        mean = log_of(h->logs, n) - log_of(h->logs, (uint64_t)h->filled[end] - h->filled[begin]);
        sum += (divergence)n * mean;
    }
    return sum + (divergence)behind * mean;
}

/* The bins that are kept of a set with values: all, where there are no more than levels. */
static size_t best_cut(const struct histogram *h, unsigned level_bits)
{
    const uint64_t n = values_before(h, h->bins);
    divergence before = 0, least = 0; /* before: what bins add as long as none is the last */
    size_t best = 0;
    for (size_t cut = 1; cut <= h->bins; cut++) {
        const uint64_t m = values_before(h, cut), last = m - values_before(h, cut - 1);
        const uint64_t heaped = last + (n - m);
        if (last > 0 && cut >> level_bits > 0) {
            const divergence found = before + (divergence)heaped * log_of(h->logs, heaped) -
                                     of_levels(h, cut, level_bits) +
                                     (divergence)n * log_of(h->logs, m);
            best = best == 0 || found <= least ? cut : best;
            least = best == cut ? found : least;
        }
        before += (divergence)last * log_of(h->logs, last);
    }
    return best ? best : h->bins;
}

/* Levels for sizes: one bit of a code is its sign, but where zero points serve sets of one sign. */
static unsigned level_bits_of(const struct qp_code_rule *rule, const struct known *known)
{
    const bool has_one_sign = known->lo >= 0 || known->hi <= 0;
    return rule->asymmetric && has_one_sign ? rule->type->bits : rule->type->bits - 1u;
}

/* The range of a set, cut by its counts, which it uses up. */
static struct known cut_range(const struct qp_calibration *c, const struct logs *logs,
                              const struct known *known, uint64_t *counts)
{
    const double most = most_of(known);
    struct histogram h;
    if (!(most > 0))
        return *known;
    make_histogram(&h, logs, counts, bins_of(c));
    const size_t cut = best_cut(&h, level_bits_of(c->rule, known));
    const double end = most * ((double)cut / (double)h.bins);
    return (struct known){known->lo < -end ? -end : known->lo, known->hi > end ? end : known->hi};
}

/* ---- Parameters --------------------------------------------------------------------------------
 */

/* Keeps the ranges that a pass has found. */
static void keep_ranges(const struct qp_calibration *c, size_t n, void *state)
{
    const char *lo = state, *hi = qp_ranges_most(c, state, n);
    const size_t size = c->kernels->work_bytes;
    const enum qplan_dtype work = c->kernels->work->work;
    struct known *known = c->known;
    for (size_t i = 0; i < n; i++) {
        f64_kernels()->load(work, 1, lo + i * size, &known[i].lo);
        f64_kernels()->load(work, 1, hi + i * size, &known[i].hi);
    }
}

/* Scale and zero point of the i-th set; false if the scale does not fit its type. */
static bool put_params(const struct qp_calibration *c, const struct logs *logs, size_t i,
                       uint64_t *counts, void *scale, int32_t *zero)
{
    const struct known *known = c->known;
    const struct known kept = cut_range(c, logs, &known[i], counts);
    const enum qplan_dtype work = c->kernels->work->work;
    double lo, hi;
    f64_kernels()->store(work, 1, &kept.lo, &lo);
    f64_kernels()->store(work, 1, &kept.hi, &hi);
    return c->quantizer->params(c->rule, 1, &lo, &hi, (char *)scale + i * c->kernels->work_bytes,
                                zero + i) == 1;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    struct logs logs;
    size_t i = 0;
    if (pass == 0) {
        keep_ranges(c, n, state);
        return n;
    }
    fill_logs(&logs);
    while (i < n && put_params(c, &logs, i, (uint64_t *)state + i * bins_of(c), scale, zero))
        i++;
    return i;
}

/* Set after set, with the counts of one. */
static size_t choose(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                     void *state, struct qp_set_params *chosen)
{
    const size_t n = qp_tile_sets(tile);
    struct logs logs;
    memset(state, 0, 2 * n * c->kernels->work_bytes);
    chosen->n_others = qp_ranges_see(c, 0, tile, src, state);
    keep_ranges(c, n, state);
    fill_logs(&logs);
    FOR_EACH_SET (tile, set) {
        memset(state, 0, c->calibrator->state_bytes);
        count_set(c, tile, &set, src, state);
        if (!put_params(c, &logs, set.set, state, chosen->scale, chosen->zero))
            return set.set;
    }
    return n;
}

const struct qp_calibrator qp_calibrate_entropy = {
    .name = "entropy",
    .method = "entropy",
    .can_clip = true,
    .nearest = true,
    .from_source = true,
    .large_state = true,
    .wants_many = true,
    .parameter = BINS_USUAL,
    .passes = 2,
    .state_bytes = BINS_USUAL * sizeof(uint64_t),
    .known_bytes = sizeof(struct known),
    .see = see,
    .merge = merge,
    .finish = finish,
    .choose = choose,
    .makes = makes,
};
