/*
 * mse.c - the least squared error: trials of scales, judged by the real quantizer.
 */
#include "mse.h"

#include "kernels/codes/biased.h"
#include "kernels/tiles/runs.h"
#include "tile_values.h"

#include <math.h>
#include <string.h>

/* A tile that is being seen. */
struct seeing {
    const struct qp_calibration *c;
    struct qp_mse_pass pass;
    const struct qp_trial_kernels *kernels;
    const struct qp_quantizer *quantizer; /* from working precision */
    struct qp_mse_state *states;
};

/* ---- The passes of a level ---------------------------------------------------------------------
 */

static const struct qp_mse_pass passes[] = {
    {QP_MSE_RANGE, QP_MSE_FAST, 0},  {QP_MSE_GRID, QP_MSE_FAST, 0},
    {QP_MSE_SPREAD, QP_MSE_FAST, 0}, {QP_MSE_ZEROS, QP_MSE_FAST, 0},
    {QP_MSE_POLISH, QP_MSE_FAST, 0}, {QP_MSE_POLISH, QP_MSE_FAST, 1},
    {QP_MSE_FINE, QP_MSE_BEST, 0},   {QP_MSE_FINE, QP_MSE_BEST, 1},
    {QP_MSE_OTHER, QP_MSE_BEST, 0},  {QP_MSE_OTHER, QP_MSE_BEST, 1},
    {QP_MSE_POLISH, QP_MSE_BEST, 0}, {QP_MSE_POLISH, QP_MSE_BEST, 0},
};

#define COUNT(array) ((unsigned)(sizeof(array) / sizeof(array)[0]))
#define FAST_PASSES  QP_MSE_FAST_PASSES
#define BEST_PASSES  (COUNT(passes) + 1)
#define EXACT_PASSES (COUNT(passes) + QP_MSE_DENSE_PARTS + 3)

static struct qp_mse_pass pass_of(enum qp_mse_level level, unsigned pass)
{
    const unsigned n_passes = level == QP_MSE_FAST   ? FAST_PASSES
                              : level == QP_MSE_BEST ? BEST_PASSES
                                                     : EXACT_PASSES;
    if (pass + 1 == n_passes)
        return (struct qp_mse_pass){QP_MSE_JUDGE, level, 0};
    if (pass < COUNT(passes))
        return passes[pass];
    pass -= COUNT(passes);
    if (pass < QP_MSE_DENSE_PARTS)
        return (struct qp_mse_pass){QP_MSE_DENSE, QP_MSE_EXACT, pass};
    return (struct qp_mse_pass){QP_MSE_POLISH, QP_MSE_EXACT, 0};
}

static struct qp_mse_known *known_of(const struct qp_calibration *c)
{
    return c->known;
}

/* A scale that is stored as the value of the largest code is above 0. */
static bool is_positive(const struct qp_calibration *c)
{
    return !c->calibrator->either_sign || c->rule->of_largest;
}

/* ---- Trials ------------------------------------------------------------------------------------
 */

static void set_trials(const struct qp_calibration *c, const struct qp_mse_trial *from, unsigned n,
                       struct qp_trials *to)
{
    to->n = n;
    to->shifted = c->rule->kind == QP_CODES_BIASED;
    for (unsigned k = 0; k < n; k++) {
        int32_t least, most;
        qp_mse_limits(c->rule, from[k].zero, &least, &most);
        to->step[k] = (float)from[k].step;
        to->shift[k] = (float)from[k].shift;
        to->least[k] = (float)least;
        to->most[k] = (float)most;
    }
}

/* The least power of 2 that is not below the elements of any set, by its exponent. */
static int elems_bits(const struct qp_calibration *c)
{
    int bits = 0;
    while (bits < 63 && c->set_elems >> bits > 1)
        bits++;
    return bits + 1;
}

/* Bits behind the point of sums, so that those of all values of a set fit. */
static struct qp_trial_bits bits_of(const struct qp_calibration *c)
{
    const int n = elems_bits(c);
    if (!c->weights)
        return (struct qp_trial_bits){QP_TRIAL_BITS, 0};
    return (struct qp_trial_bits){n < 12 ? 40 : 52 - n, n < 12 ? 34 : 46 - n};
}

/* Values relative to the unit of their set. */
static void relate(const struct seeing *s, const void *values, size_t at, size_t n, double unit,
                   float out[QP_TRIAL_RUN])
{
    const double *f64 = (const double *)values + at;
    const float *f32 = (const float *)values + at;
    const float narrow = (float)unit;
    if (s->c->kernels->work_bytes == sizeof(double)) {
        for (size_t i = 0; i < n; i++)
            out[i] = (float)(f64[i] * unit);
    } else {
        for (size_t i = 0; i < n; i++)
            out[i] = f32[i] * narrow;
    }
}

static void try_run(void *ctx, const struct qp_values_run *run)
{
    const struct seeing *s = ctx;
    const bool positive = is_positive(s->c);
    struct qp_mse_trial list[QP_TRIALS];
    struct qp_trials trials;
    float x[QP_TRIAL_RUN];
    FOR_EACH_RUN (&run->tile, part) {
        const size_t set = run->set + part.set;
        const struct qp_mse_known *known = &known_of(s->c)[set];
        s->states[set].n += part.n;
        set_trials(s->c, list, qp_mse_trials(s->c->rule, positive, &s->pass, known, list), &trials);
        for (size_t i = 0, n; trials.n && i < part.n; i += n) {
            n = part.n - i < QP_TRIAL_RUN ? part.n - i : QP_TRIAL_RUN;
            relate(s, run->values, part.at + i, n, known->unit, x);
            if (run->weights)
                s->kernels->weighted_sums(n, x, run->weights + part.at + i, &trials, bits_of(s->c),
                                          &s->states[set].sums);
            else
                s->kernels->sums(n, x, &trials, &s->states[set].sums);
        }
    }
}

/* What is best for codes that were tried: the scale, and the bias of biased ones. */
struct solution {
    double scale, bias, score;
};

/* The units of sums: of those with a value in them, and of the others. */
struct units {
    double x, q;
};

static struct solution solve(const struct qp_calibration *c, const struct qp_mse_state *state,
                             unsigned k, const struct units *unit)
{
    const struct qp_trial_sums *sums = &state->sums;
    const double xq = (double)sums->xq[k] * unit->x, qq = (double)sums->qq[k] * unit->q;
    struct solution s = {0};
    if (c->rule->kind != QP_CODES_BIASED) {
        if (qq > 0)
            s = (struct solution){.scale = xq / qq, .score = xq * xq / qq};
        return s;
    }
    const double n = c->weights ? (double)sums->weight * unit->q : (double)state->n;
    const double x = (double)sums->x * unit->x, q = (double)sums->q[k] * unit->q;
    const double spread = n * qq - q * q;
    if (spread > 0) {
        s.scale = (n * xq - x * q) / spread;
        s.bias = (x - s.scale * q) / n;
        s.score = s.scale * xq + s.bias * x;
    }
    return s;
}

static void take_trials(const struct qp_calibration *c, const struct qp_mse_pass *pass,
                        const struct qp_mse_state *state, struct qp_mse_known *known)
{
    struct qp_mse_trial trials[QP_TRIALS];
    const unsigned n = qp_mse_trials(c->rule, is_positive(c), pass, known, trials);
    const struct qp_trial_bits bits = bits_of(c);
    const struct units unit = {ldexp(1, -bits.x), ldexp(1, -bits.q)};
    struct solution best = {.score = known->score};
    unsigned at = n;
    for (unsigned k = 0; k < n; k++) {
        const struct solution s = solve(c, state, k, &unit);
        if (s.score > best.score && s.scale * trials[k].sign > 0) {
            best = s;
            at = k;
        }
    }
    if (at == n)
        return;
    known->score = best.score;
    known->scale = best.scale;
    known->bias = best.bias;
    known->best = trials[at];
}

/* ---- Parameters as they are stored -------------------------------------------------------------
 */

/* A number in the type of stored scales. */
static double stored(const struct qp_calibration *c, double x)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    uint64_t room;
    double y;
    f64->store(c->rule->scale_dtype, 1, &x, &room);
    f64->load(c->rule->scale_dtype, 1, &room, &y);
    return y;
}

/* The best parameters so far; minmax's where a type cannot hold them. */
static struct qp_mse_params best_params(const struct qp_calibration *c,
                                        const struct qp_mse_known *known)
{
    const double scale = stored(c, known->scale / known->unit);
    const double bias = stored(c, known->bias / known->unit);
    const double most = fabs(scale) * (1 << c->rule->type->bits);
    const double limit = c->kernels->work_bytes == sizeof(double) ? DBL_MAX : FLT_MAX;
    const bool is_good = fabs(scale) > 0 && most <= limit && fabs(bias) <= limit;
    if (!is_good || known->score == 0)
        return known->last[0];
    return (struct qp_mse_params){
        scale, c->rule->kind == QP_CODES_BIASED ? qp_bias_bits((float)bias) : known->best.zero};
}

/* ---- The real quantizer ------------------------------------------------------------------------
 */

/* Bits behind the point of an error, so that the sum of those of a set fits. */
static int error_bits(const struct qp_calibration *c)
{
    const int n = elems_bits(c);
    return n < 12 ? 46 : 58 - n;
}

/* Room for the values of a run. */
struct judged {
    double scale[QP_VALUES_RUN], decoded[QP_VALUES_RUN];
    int32_t zero[QP_VALUES_RUN];
    uint8_t codes[QP_VALUES_RUN];
};

static void quantize_run(const struct seeing *s, const struct qp_values_run *run, unsigned which,
                         struct judged *j)
{
    const struct qp_mse_known *known = known_of(s->c) + run->set;
    const bool is_f64 = s->c->kernels->work_bytes == sizeof(double);
    for (size_t i = 0; i < qp_tile_sets(&run->tile); i++) {
        if (is_f64)
            j->scale[i] = known[i].last[which].scale;
        else
            ((float *)j->scale)[i] = (float)known[i].last[which].scale;
        j->zero[i] = known[i].last[which].zero;
    }
    s->quantizer->quantize(&run->tile, run->values, s->c->rule, j->scale, j->zero, j->codes);
    s->quantizer->dequantize(&run->tile, j->codes, s->c->rule, j->scale, j->zero, j->decoded);
}

static int64_t error_of(const struct seeing *s, const struct qp_values_run *run,
                        const void *decoded, size_t at, size_t n, const struct qp_mse_known *known)
{
    const int bits = error_bits(s->c);
    const float *weights = run->weights ? run->weights + at : NULL;
    const void *values = run->values;
    if (s->c->kernels->work_bytes == sizeof(double))
        return s->kernels->errors_f64(n, (const double *)values + at, (const double *)decoded + at,
                                      weights, known->unit, bits);
    return s->kernels->errors_f32(n, (const float *)values + at, (const float *)decoded + at,
                                  weights, known->unit, bits);
}

static void judge_run(void *ctx, const struct qp_values_run *run)
{
    const struct seeing *s = ctx;
    struct judged j;
    for (unsigned which = 0; which <= s->c->calibrator->level; which++) {
        quantize_run(s, run, which, &j);
        FOR_EACH_RUN (&run->tile, part) {
            const size_t set = run->set + part.set;
            s->states[set].errors[which] +=
                error_of(s, run, j.decoded, part.at, part.n, &known_of(s->c)[set]);
        }
    }
}

/* ---- The row -----------------------------------------------------------------------------------
 */

static uint64_t see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state)
{
    const enum qp_mse_level level = (enum qp_mse_level)c->calibrator->level;
    struct seeing s = {.c = c,
                       .pass = pass_of(level, pass),
                       .kernels = qp_trial_kernels(c->kernels->isa),
                       .quantizer =
                           qp_quantizer(c->kernels->work->work, c->rule->kind, c->quantizer->isa),
                       .states = state};
    if (s.pass.move == QP_MSE_RANGE)
        return qp_ranges_see(c, pass, tile, src, state);
    if (s.pass.move == QP_MSE_POLISH && s.pass.part > 0 && c->rule->kind != QP_CODES_BIASED)
        return 0; /* what follows on an offset is found slowly, other codes soon */
    qp_values_walk(c, tile, src, s.pass.move == QP_MSE_JUDGE ? judge_run : try_run, &s);
    return 0;
}

static void merge(const struct qp_calibration *c, unsigned pass, void *state, size_t n_all,
                  size_t first, const void *of_tile, size_t n)
{
    int64_t *to = state;
    const int64_t *from = of_tile;
    const size_t words = sizeof(struct qp_mse_state) / sizeof *to;
    if (pass == 0) {
        qp_ranges_merge(c, pass, state, n_all, first, of_tile, n);
        return;
    }
    for (size_t i = 0; i < n * words; i++)
        to[first * words + i] += from[i];
}

/* Minmax's parameters, and the unit. Returns n, or the first set that has none. */
static size_t begin(const struct qp_calibration *c, size_t n, void *state, void *scale,
                    int32_t *zero)
{
    const size_t size = c->kernels->work_bytes;
    const int least = size == sizeof(double) ? -1022 : -126; /* of exponents */
    const char *lo = state, *hi = qp_ranges_most(c, state, n);
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    const size_t good = c->quantizer->params(c->rule, n, lo, hi, scale, zero);
    for (size_t i = 0; i < good; i++) {
        struct qp_mse_known known = {.score = 0};
        f64->load(c->kernels->work->work, 1, lo + i * size, &known.lo);
        f64->load(c->kernels->work->work, 1, hi + i * size, &known.hi);
        f64->load(c->kernels->work->work, 1, (char *)scale + i * size, &known.last[0].scale);
        const double most = -known.lo > known.hi ? -known.lo : known.hi;
        const int exponent = most > 0 ? ilogb(most) : 0;
        known.unit = ldexp(1, exponent < least ? -least : -exponent);
        known.last[0].zero = zero[i];
        known_of(c)[i] = known;
    }
    return good;
}

/* The least error wins; of equal ones minmax, then the lower level. */
static void end(const struct qp_calibration *c, const struct qp_mse_state *state,
                const struct qp_mse_known *known, size_t i, void *scale, int32_t *zero)
{
    unsigned best = 0;
    for (unsigned which = 1; which <= c->calibrator->level; which++)
        best = state->errors[which] < state->errors[best] ? which : best;
    if (c->kernels->work_bytes == sizeof(double))
        ((double *)scale)[i] = known->last[best].scale;
    else
        ((float *)scale)[i] = (float)known->last[best].scale;
    zero[i] = known->last[best].zero;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    const enum qp_mse_level level = (enum qp_mse_level)c->calibrator->level;
    const struct qp_mse_pass at = pass_of(level, pass), next = pass_of(level, pass + 1);
    const struct qp_mse_state *states = state;
    if (at.move == QP_MSE_RANGE)
        return begin(c, n, state, scale, zero);
    for (size_t i = 0; i < n; i++) {
        struct qp_mse_known *known = &known_of(c)[i];
        if (at.move == QP_MSE_JUDGE) {
            end(c, &states[i], known, i, scale, zero);
            continue;
        }
        take_trials(c, &at, &states[i], known);
        if (next.level != at.level || next.move == QP_MSE_JUDGE)
            known->last[at.level] = best_params(c, known);
    }
    return n;
}

#define ROW(LEVEL, NAME, PASSES)                                                                   \
    {                                                                                              \
        .name = (NAME), .method = (NAME), .can_clip = true, .nearest = true, .from_source = true,  \
        .either_sign = true, .takes_weights = true, .level = (LEVEL), .passes = (PASSES),          \
        .state_bytes = sizeof(struct qp_mse_state), .known_bytes = sizeof(struct qp_mse_known),    \
        .see = see, .merge = merge, .finish = finish                                               \
    }

const struct qp_calibrator qp_calibrate_mse[] = {
    ROW(QP_MSE_FAST, "mse:fast", FAST_PASSES),
    ROW(QP_MSE_BEST, "mse:best", BEST_PASSES),
    ROW(QP_MSE_EXACT, "mse:exact", EXACT_PASSES),
};
