/*
 * mse.c - the least squared error, pass by pass.
 *
 * Sets that lie whole in a run of values are searched in one go, while their values are in the
 * first-level cache; larger ones pass by pass. All sums are of integers, so both find the same.
 */
#include "mse.h"

#include "kernels/codes/biased.h"

#include <float.h>
#include <math.h>
#include <string.h>

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

_Static_assert(QP_MSE_BEST_PARTS == BEST_PASSES - 1, "a part for each pass but the first");
_Static_assert(QP_MSE_EXACT_PARTS == EXACT_PASSES - 1, "a part for each pass but the first");

static unsigned n_passes(const struct qp_calibration *c)
{
    static const unsigned n[] = {0, FAST_PASSES, BEST_PASSES, EXACT_PASSES};
    return n[c->calibrator->level];
}

static struct qp_mse_pass pass_of(const struct qp_calibration *c, unsigned pass)
{
    const enum qp_mse_level level = (enum qp_mse_level)c->calibrator->level;
    if (pass > 0 && qp_mse_tries_scales(c->rule))
        return (struct qp_mse_pass){QP_MSE_SCALES, level, pass - 1};
    if (pass + 1 == n_passes(c))
        return (struct qp_mse_pass){QP_MSE_JUDGE, level, 0};
    if (pass < COUNT(passes))
        return passes[pass];
    pass -= COUNT(passes);
    if (pass < QP_MSE_DENSE_PARTS)
        return (struct qp_mse_pass){QP_MSE_DENSE, QP_MSE_EXACT, pass};
    return (struct qp_mse_pass){QP_MSE_POLISH, QP_MSE_EXACT, 0};
}

/* Whether a pass runs the real quantizer. */
static bool is_judging(const struct qp_mse_pass *pass)
{
    return pass->move == QP_MSE_JUDGE || pass->move == QP_MSE_SCALES;
}

static bool is_idle(const struct qp_calibration *c, const struct qp_mse_pass *pass)
{
    return pass->move == QP_MSE_SCALES ? qp_mse_n_scales(c, pass->part) == 0
                                       : qp_mse_is_idle(c->rule, pass);
}

/* Whether a pass is the last one before the best of its level is kept. */
static bool ends_level(const struct qp_mse_pass *pass, const struct qp_mse_pass *next)
{
    return next->level != pass->level || next->move == QP_MSE_JUDGE;
}

bool qp_mse_is_positive(const struct qp_calibration *c)
{
    return !c->calibrator->either_sign || qp_mse_is_few(c->rule) ||
           (c->rule->of_largest && !qp_is_valued(c->rule->kind));
}

/* ---- Trials ------------------------------------------------------------------------------------
 */

/* Bits behind the point of sums, so that those of all values of a set fit. */
static struct qp_trial_bits bits_of(const struct qp_calibration *c)
{
    const int n = qp_mse_elems_bits(c);
    if (!c->weights)
        return (struct qp_trial_bits){QP_TRIAL_BITS, 0};
    return (struct qp_trial_bits){n < 12 ? 40 : 52 - n, n < 12 ? 34 : 46 - n};
}

/* The values of a run as trials want them. */
struct room {
    float x[QP_VALUES_RUN];
    int16_t fixed[QP_VALUES_RUN];
};

static void relate_run(const struct qp_mse_seeing *s, const struct qp_values_run *run,
                       struct room *room)
{
    FOR_EACH_RUN (&run->tile, part) {
        const double unit = qp_mse_known_of(s->c)[run->set + part.set].unit;
        float *x = room->x + part.at;
        int16_t *fixed = room->fixed + part.at;
        if (s->c->kernels->work_bytes == sizeof(double))
            s->kernels->relate_f64(part.n, (const double *)run->values + part.at, unit, x, fixed);
        else
            s->kernels->relate_f32(part.n, (const float *)run->values + part.at, unit, x, fixed);
    }
}

/* Values of one set. */
struct related {
    size_t n;
    const float *x, *weights;
    const int16_t *fixed;
};

static struct related related_of(const struct qp_values_run *run, const struct room *room,
                                 size_t at, size_t n)
{
    return (struct related){n, room->x + at, run->weights ? run->weights + at : NULL,
                            room->fixed + at};
}

static void add_sums(const struct qp_mse_seeing *s, const struct related *r,
                     struct qp_trial_sums *sums)
{
    const struct qp_trials *trials = &s->trials.codes;
    for (size_t i = 0, n; i < r->n; i += n) {
        n = r->n - i < QP_TRIAL_RUN ? r->n - i : QP_TRIAL_RUN;
        if (r->weights)
            s->kernels->weighted_sums(n, r->x + i, r->weights + i, trials, s->bits, sums);
        else
            s->kernels->sums(n, r->x + i, r->fixed + i, trials, sums);
    }
}

static void try_run(struct qp_mse_seeing *s, const struct qp_values_run *run)
{
    struct room room;
    relate_run(s, run, &room);
    FOR_EACH_RUN (&run->tile, part) {
        const size_t set = run->set + part.set;
        const struct related related = related_of(run, &room, part.at, part.n);
        s->states[set].n += part.n;
        qp_mse_trials(s->c->rule, s->positive, &s->pass, &qp_mse_known_of(s->c)[set], &s->trials);
        if (s->trials.codes.n > 0)
            add_sums(s, &related, &s->states[set].sums);
    }
}

/* What is best for codes that were tried: the scale, and the bias of biased ones. */
struct solution {
    double scale, bias, score;
};

static struct solution solve_biased(const struct qp_mse_seeing *s, const struct qp_mse_state *state,
                                    unsigned k)
{
    const struct qp_trial_sums *sums = &state->sums;
    const double xq = (double)sums->xq[k] * s->x_unit, qq = (double)sums->qq[k] * s->q_unit;
    const double n = s->c->weights ? (double)sums->weight * s->q_unit : (double)state->n;
    const double x = (double)sums->x * s->x_unit, q = (double)sums->q[k] * s->q_unit;
    const double spread = n * qq - q * q;
    struct solution found = {0};
    if (spread > 0) {
        found.scale = (n * xq - x * q) / spread;
        found.bias = (x - found.scale * q) / n;
        found.score = found.scale * xq + found.bias * x;
    }
    return found;
}

/* The best of all trials, or their number if none is better than what is known. */
static unsigned best_biased(const struct qp_mse_seeing *s, const struct qp_mse_state *state,
                            struct solution *best)
{
    const unsigned n = s->trials.codes.n;
    unsigned at = n;
    for (unsigned k = 0; k < n; k++) {
        const struct solution found = solve_biased(s, state, k);
        if (found.score > best->score && found.scale * s->trials.sign > 0) {
            *best = found;
            at = k;
        }
    }
    return at;
}

/* The same of integers around a zero point; quotients are compared by products. */
static unsigned best_linear(const struct qp_mse_seeing *s, const struct qp_mse_state *state,
                            struct solution *best)
{
    const unsigned n = s->trials.codes.n;
    double most = best->score, part = 1;
    unsigned at = n;
    for (unsigned k = 0; k < n; k++) {
        const double xq = (double)state->sums.xq[k] * s->x_unit * s->trials.sign;
        const double qq = (double)state->sums.qq[k] * s->q_unit;
        if (xq > 0 && xq * xq * part > most * qq) {
            most = xq * xq;
            part = qq;
            at = k;
        }
    }
    if (at < n) {
        const double xq = (double)state->sums.xq[at] * s->x_unit;
        *best = (struct solution){.scale = xq / part, .score = most / part};
    }
    return at;
}

static void take_trials(const struct qp_mse_seeing *s, const struct qp_mse_state *state,
                        struct qp_mse_known *known)
{
    const struct qp_mse_trials *trials = &s->trials;
    const bool biased = s->c->rule->kind == QP_CODES_BIASED;
    struct solution best = {.score = known->score};
    const unsigned at = (biased ? best_biased : best_linear)(s, state, &best);
    if (at == trials->codes.n)
        return;
    known->score = best.score;
    known->scale = best.scale;
    known->bias = best.bias;
    known->best =
        (struct qp_mse_best){trials->share[at], trials->spread, trials->zero[at], trials->sign};
}

/* The scale with the least error; of equal ones the first. */
static void take_scales(const struct qp_calibration *c, unsigned part,
                        const struct qp_mse_state *state, struct qp_mse_known *known)
{
    const struct qp_mse_known before = *known;
    struct qp_mse_scale scale;
    for (unsigned k = 0, n = qp_mse_n_scales(c, part); k < n; k++) {
        if (state->errors[k] < known->error && qp_mse_scale(c, &before, part, k, &scale)) {
            known->error = state->errors[k];
            known->found = scale;
        }
    }
}

/* ---- Parameters as they are stored -------------------------------------------------------------
 */

double qp_mse_stored(const struct qp_calibration *c, double x)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    uint64_t room;
    double y;
    f64->store(c->rule->scale_dtype, 1, &x, &room);
    f64->load(c->rule->scale_dtype, 1, &room, &y);
    return y;
}

bool qp_mse_is_good(const struct qp_calibration *c, const struct qp_mse_known *known, double scale)
{
    const double limit = c->kernels->work_bytes == sizeof(double) ? DBL_MAX : FLT_MAX;
    return fabs(scale) > 0 && fabs(scale) * (1 << c->rule->type->span) <= limit &&
           (!c->calibrator->weighted || qp_scale_is_near(scale, known->last[0].scale));
}

/* The best parameters so far; minmax's where a type cannot hold them, or nothing could prove them.
 */
static struct qp_mse_params best_params(const struct qp_calibration *c,
                                        const struct qp_mse_known *known)
{
    const double scale = qp_mse_stored(c, known->scale / known->unit);
    const double bias = known->bias == 0 ? 0 : qp_mse_stored(c, known->bias / known->unit);
    const double limit = c->kernels->work_bytes == sizeof(double) ? DBL_MAX : FLT_MAX;
    if (known->score == 0 || !qp_mse_is_good(c, known, scale) || !(fabs(bias) <= limit))
        return known->last[0];
    return (struct qp_mse_params){
        scale, c->rule->kind == QP_CODES_BIASED ? qp_bias_bits((float)bias) : known->best.zero};
}

/* ---- Passes ------------------------------------------------------------------------------------
 */

static struct qp_mse_seeing seeing_of(const struct qp_calibration *c, void *states)
{
    struct qp_mse_seeing s = {
        .c = c,
        .kernels = qp_trial_kernels(c->kernels->isa),
        .quantizer = qp_quantizer(c->kernels->work->work, c->rule->kind, c->quantizer->isa),
        .states = states,
        .positive = qp_mse_is_positive(c),
        .bits = bits_of(c),
        .trials = {.codes = {.shifted = c->rule->kind == QP_CODES_BIASED}},
    };
    s.x_unit = ldexp(1, -s.bits.x);
    s.q_unit = ldexp(1, -s.bits.q);
    return s;
}

static void begin_pass(struct qp_mse_seeing *s, unsigned pass)
{
    s->pass = pass_of(s->c, pass);
    if (!is_judging(&s->pass))
        qp_mse_prepare(s->c->rule, &s->pass, &s->trials);
}

static void see_run(void *ctx, const struct qp_values_run *run)
{
    struct qp_mse_seeing *s = ctx;
    if (is_judging(&s->pass))
        qp_mse_judge(s, run);
    else
        try_run(s, run);
}

static uint64_t see(const struct qp_calibration *c, unsigned pass, const struct qp_tile *tile,
                    const void *src, void *state)
{
    if (pass == 0)
        return qp_ranges_see(c, pass, tile, src, state);
    struct qp_mse_seeing s = seeing_of(c, state);
    begin_pass(&s, pass);
    if (!is_idle(c, &s.pass))
        qp_values_walk(c, tile, src, see_run, &s);
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

static double value_at(const struct qp_calibration *c, const void *values, size_t i)
{
    return c->kernels->work_bytes == sizeof(double) ? ((const double *)values)[i]
                                                    : (double)((const float *)values)[i];
}

/* One over the power of 2 in a size, or in the least one that is normal. */
static double unit_of(double size, int least)
{
    const int exponent = (int)(qp_bits_f64(size) >> 52) - 1023;
    if (size == 0)
        return 1;
    if (exponent == 1023)
        return 0x1p-1023;
    return qp_of_bits_f64((uint64_t)(1023 - (exponent < least ? least : exponent)) << 52);
}

/*
 * What is known of a set when its range and minmax's parameters are. This and clear_sums are member
 * by member: a compiler clears a large struct by a string instruction, whose start would take a
 * tenth of the time of a small set.
 */
static void know_range(const struct qp_calibration *c, double lo, double hi,
                       struct qp_mse_params minmax, struct qp_mse_known *known)
{
    const int least = c->kernels->work_bytes == sizeof(double) ? -1022 : -126; /* of exponents */
    const double unit = unit_of(-lo > hi ? -lo : hi, least);
    known->lo = lo;
    known->hi = hi;
    known->unit = unit;
    known->score = known->scale = known->bias = 0;
    known->best = (struct qp_mse_best){0};
    known->found = (struct qp_mse_scale){0};
    known->error = INT64_MAX;
    for (unsigned i = 0; i < QP_MSE_LEVELS; i++)
        known->last[i] = minmax;
}

/* Minmax's parameters of n sets with known ranges. Returns n, or the first set that has none. */
static size_t begin(const struct qp_calibration *c, size_t n, void *state, void *scale,
                    int32_t *zero)
{
    const char *lo = state, *hi = qp_ranges_most(c, state, n);
    const size_t good = c->quantizer->params(c->rule, n, lo, hi, scale, zero);
    for (size_t i = 0; i < good; i++)
        know_range(c, value_at(c, lo, i), value_at(c, hi, i),
                   (struct qp_mse_params){value_at(c, scale, i), zero[i]}, &qp_mse_known_of(c)[i]);
    return good;
}

/* The least error wins; of equal ones minmax, then the lower level. */
static struct qp_mse_params judged(const struct qp_calibration *c, const struct qp_mse_state *state,
                                   const struct qp_mse_known *known)
{
    unsigned best = 0;
    for (unsigned which = 1; which <= c->calibrator->level; which++)
        best = state->errors[which] < state->errors[best] ? which : best;
    return known->last[best];
}

/* Ends a pass of trials, which are those of the set. */
static void end_trials(const struct qp_mse_seeing *s, const struct qp_mse_pass *next,
                       const struct qp_mse_state *state, struct qp_mse_known *known)
{
    if (s->trials.codes.n > 0)
        take_trials(s, state, known);
    if (ends_level(&s->pass, next))
        known->last[s->pass.level] = best_params(s->c, known);
}

/* Ends a pass of the real quantizer. */
static void end_judging(const struct qp_mse_seeing *s, const struct qp_mse_state *state,
                        struct qp_mse_known *known)
{
    if (s->pass.move == QP_MSE_SCALES) {
        take_scales(s->c, s->pass.part, state, known);
        return;
    }
    known->found.params = judged(s->c, state, known);
    known->error = 0;
}

static void put_params(const struct qp_calibration *c, size_t i, void *scale, int32_t *zero)
{
    const struct qp_mse_known *known = &qp_mse_known_of(c)[i];
    const struct qp_mse_params params =
        known->error == INT64_MAX ? known->last[0] : known->found.params;
    if (c->kernels->work_bytes == sizeof(double))
        ((double *)scale)[i] = params.scale;
    else
        ((float *)scale)[i] = (float)params.scale;
    zero[i] = params.zero;
}

static size_t finish(const struct qp_calibration *c, unsigned pass, size_t n, void *state,
                     void *scale, int32_t *zero)
{
    struct qp_mse_seeing s = seeing_of(c, state);
    const struct qp_mse_pass next = pass_of(c, pass + 1);
    if (pass == 0)
        return begin(c, n, state, scale, zero);
    begin_pass(&s, pass);
    for (size_t i = 0; i < n; i++) {
        struct qp_mse_known *known = &qp_mse_known_of(c)[i];
        if (is_judging(&s.pass)) {
            end_judging(&s, &s.states[i], known);
        } else {
            qp_mse_trials(c->rule, s.positive, &s.pass, known, &s.trials);
            end_trials(&s, &next, &s.states[i], known);
        }
        if (pass + 1 == n_passes(c))
            put_params(c, i, scale, zero);
    }
    return n;
}

/* ---- Whole sets --------------------------------------------------------------------------------
 */

/*
 * A search of whole sets. What is known of the sets of a run, and their states, is in the same room
 * for each run, so that it stays in the cache: there these sets begin at 0.
 */
struct search {
    struct qp_mse_seeing s;
    const struct qp_set_params *out;
};

/* Ends the pass of all sets of a run whose errors are known. */
static void judge_whole(const struct qp_mse_seeing *s, const struct qp_values_run *run)
{
    const size_t n = qp_tile_sets(&run->tile);
    memset(s->states, 0, n * sizeof *s->states);
    qp_mse_judge(s, run);
    for (size_t i = 0; i < n; i++)
        end_judging(s, &s->states[i], &qp_mse_known_of(s->c)[i]);
}

static void clear_sums(struct qp_trial_sums *sums)
{
    memset(sums->xq, 0, sizeof sums->xq);
    memset(sums->qq, 0, sizeof sums->qq);
    memset(sums->q, 0, sizeof sums->q);
    sums->x = sums->weight = 0;
}

static void try_whole(struct qp_mse_seeing *s, const struct qp_values_run *run,
                      const struct room *room, const struct qp_mse_pass *next)
{
    const size_t cols = run->tile.cols, width = run->tile.col_width;
    struct qp_mse_known *known = qp_mse_known_of(s->c);
    for (size_t at = 0; at < cols; at += width, known++) {
        const size_t n = cols - at < width ? cols - at : width;
        const struct related related = related_of(run, room, at, n);
        struct qp_mse_state state;
        qp_mse_trials(s->c->rule, s->positive, &s->pass, known, &s->trials);
        if (s->trials.codes.n > 0) {
            clear_sums(&state.sums);
            state.n = n;
            add_sums(s, &related, &state.sums);
        }
        end_trials(s, next, &state, known);
    }
}

/* The ranges of a run's sets; minmax's parameters are known of all sets from `first` on. */
static void begin_whole(const struct search *search, const struct qp_values_run *run, size_t first)
{
    const struct qp_calibration *c = search->s.c;
    const size_t n = qp_tile_sets(&run->tile);
    void *lo = search->s.states, *hi = qp_ranges_most(c, lo, n);
    memset(lo, 0, 2 * n * c->kernels->work_bytes);
    (void)qp_source_kernels(c->kernels->work->work, c->kernels->isa)
        ->range(&run->tile, run->values, lo, hi);
    for (size_t i = 0; i < n; i++)
        know_range(c, value_at(c, lo, i), value_at(c, hi, i),
                   (struct qp_mse_params){value_at(c, search->out->scale, first + i),
                                          search->out->zero[first + i]},
                   &qp_mse_known_of(c)[i]);
}

/* All passes behind the first. */
static void go_through_passes(struct qp_mse_seeing *s, const struct qp_values_run *run)
{
    struct room room;
    if (!qp_mse_tries_scales(s->c->rule))
        relate_run(s, run, &room);
    for (unsigned pass = 1; pass < n_passes(s->c); pass++) {
        const struct qp_mse_pass next = pass_of(s->c, pass + 1);
        begin_pass(s, pass);
        if (is_idle(s->c, &s->pass) && !ends_level(&s->pass, &next))
            continue;
        if (is_judging(&s->pass))
            judge_whole(s, run);
        else
            try_whole(s, run, &room, &next);
    }
}

static void search_run(void *ctx, const struct qp_values_run *run)
{
    struct search *search = ctx;
    struct qp_values_run at_hand = *run;
    const struct qp_calibration *c = search->s.c;
    const struct qp_set_params *out = search->out;
    at_hand.set = 0;
    begin_whole(search, &at_hand, run->set);
    go_through_passes(&search->s, &at_hand);
    for (size_t i = 0; i < qp_tile_sets(&run->tile); i++)
        put_params(c, i, (char *)out->scale + run->set * c->kernels->work_bytes,
                   out->zero + run->set);
}

/* Whether each set of a tile, of which it has all values, lies in one run. */
static bool are_in_runs(const struct qp_tile *tile)
{
    const size_t width = tile->col_width < tile->cols ? tile->col_width : tile->cols;
    const size_t rows = tile->band_rows < tile->rows ? tile->band_rows : tile->rows;
    return qp_values_are_gathered(tile) ? rows <= QP_VALUES_RUN / width
                                        : tile->band_rows == 1 && width <= QP_VALUES_RUN;
}

static size_t choose(const struct qp_calibration *c, const struct qp_tile *tile, const void *src,
                     void *state, struct qp_set_params *chosen)
{
    const size_t n = qp_tile_sets(tile);
    struct search search = {.s = seeing_of(c, state), .out = chosen};
    void *lo = state, *hi = qp_ranges_most(c, state, n);
    memset(state, 0, 2 * n * c->kernels->work_bytes);
    chosen->n_others = see(c, 0, tile, src, state);
    if (!are_in_runs(tile)) {
        const size_t good = begin(c, n, state, chosen->scale, chosen->zero);
        return good == n ? qp_calibrator_go(c, 1, tile, src, state, chosen) : good;
    }
    const size_t good = c->quantizer->params(c->rule, n, lo, hi, chosen->scale, chosen->zero);
    if (good == n)
        qp_values_walk(c, tile, src, search_run, &search);
    return good;
}

#define ROW(LEVEL, NAME, PASSES)                                                                   \
    {                                                                                              \
        .name = (NAME), .method = (NAME), .can_clip = true, .nearest = true, .from_source = true,  \
        .either_sign = true, .takes_weights = true, .level = (LEVEL), .passes = (PASSES),          \
        .state_bytes = sizeof(struct qp_mse_state), .known_bytes = sizeof(struct qp_mse_known),    \
        .see = see, .merge = merge, .finish = finish, .choose = choose                             \
    }

const struct qp_calibrator qp_calibrate_mse[] = {
    ROW(QP_MSE_FAST, "mse:fast", FAST_PASSES),
    ROW(QP_MSE_BEST, "mse:best", BEST_PASSES),
    ROW(QP_MSE_EXACT, "mse:exact", EXACT_PASSES),
};
