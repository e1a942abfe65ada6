/*
 * mse_trials.c - what is tried next for a set, from what is known of it.
 *
 * A trial is told by its share c: the step between values is 1 / c of the least one that clips
 * nothing. The windows are where the best share of a group of weights lies; few codes want more of
 * the range clipped. Sets with far outliers have theirs beyond: then the grid finds its end best,
 * and the next pass goes on from there.
 */
#include "mse.h"

#include <math.h>

struct window {
    double least, most;
};

/* By bits of a code, from 2 on: of symmetric codes, and of others. */
static const struct window symmetric[] = {{0.80, 2.20}, {0.80, 1.60}, {0.85, 1.30}, {0.90, 1.20},
                                          {0.93, 1.13}, {0.96, 1.08}, {0.97, 1.05}};
static const struct window asymmetric[] = {{0.95, 2.40}, {0.95, 1.70}, {0.95, 1.35}, {0.97, 1.21},
                                           {0.98, 1.14}, {0.98, 1.08}, {0.99, 1.05}};

/* How much further each trial beyond the window goes. */
#define BEYOND 1.3

/* How much wider trials with neighbouring zero points spread than those near the best. */
#define ASIDE 2

/* What a batch of trials is made from. */
struct batch {
    const struct qp_code_rule *rule;
    const struct qp_mse_known *known;
    struct qp_mse_trials *trials;
};

static const struct window *window_of(const struct qp_code_rule *rule)
{
    return &(rule->asymmetric ? asymmetric : symmetric)[rule->type->bits - 2];
}

void qp_mse_limits(const struct qp_code_rule *rule, int32_t zero, int32_t *least, int32_t *most)
{
    const bool biased = rule->kind == QP_CODES_BIASED;
    *least = biased ? 0 : rule->q_min - zero;
    *most = biased ? rule->q_max : rule->q_max - zero;
}

/* The sign that gives the side that reaches further the code that is further away. */
static int natural_sign(const struct batch *b)
{
    return b->rule->asymmetric || -b->known->lo >= b->known->hi ? 1 : -1;
}

/* The largest step that clips nothing; of symmetric codes, that brings the larger end to the last.
 */
static double whole_step(const struct batch *b, int32_t zero)
{
    const double lo = -b->known->lo * b->known->unit, hi = b->known->hi * b->known->unit;
    int32_t least, most;
    qp_mse_limits(b->rule, zero, &least, &most);
    if (b->rule->kind == QP_CODES_BIASED)
        return most / (lo + hi);
    if (!b->rule->asymmetric)
        return -least / (lo > hi ? lo : hi);
    return lo * most > hi * -least ? -least / lo : most / hi;
}

/* ---- Shares that are the same for every set ----------------------------------------------------
 */

/* Every parts-th point of a window that has `parts` times as many as a batch, from the part on. */
static void set_window(struct qp_mse_trials *t, struct window w, unsigned part, unsigned parts)
{
    t->spread = (w.most - w.least) / (QP_TRIALS * parts - 1); /* shares are about 1 */
    for (unsigned i = 0; i < QP_TRIALS; i++)
        t->share[i] = w.least + t->spread * (part + i * parts);
}

void qp_mse_prepare(const struct qp_code_rule *rule, const struct qp_mse_pass *pass,
                    struct qp_mse_trials *t)
{
    const bool biased = rule->kind == QP_CODES_BIASED;
    const unsigned part = pass->part, half = QP_MSE_DENSE_PARTS / 2;
    const struct window w = *window_of(rule);
    const struct window wide = {w.least * 0.95, w.most * 1.1};
    const struct window widest = {w.least * 0.85, w.most * 1.25};
    if (pass->move == QP_MSE_FINE)
        set_window(t, w, part, 2);
    else if (pass->move == QP_MSE_OTHER && !biased && !rule->asymmetric)
        set_window(t, wide, part, 2);
    else if (pass->move == QP_MSE_OTHER)
        set_window(t, wide, 0, 1);
    else if (pass->move == QP_MSE_DENSE && (biased || rule->asymmetric))
        set_window(t, widest, part % 4, 4);
    else if (pass->move == QP_MSE_DENSE)
        set_window(t, widest, part % half, half);
    else
        set_window(t, w, 0, 1);
}

/* ---- Steps of a set ----------------------------------------------------------------------------
 */

/* No code is that far away, and integers hold more. */
#define MOST_STEPS 0x1p20

static float checked(double steps)
{
    return fabs(steps) <= MOST_STEPS ? (float)steps : 0;
}

/* Steps of the trials from `first` on, with one zero point. */
static void set_steps(struct batch *b, unsigned first, int32_t zero, int sign)
{
    struct qp_mse_trials *t = b->trials;
    const double whole = sign * whole_step(b, zero);
    int32_t least, most;
    qp_mse_limits(b->rule, zero, &least, &most);
    t->sign = sign;
    for (unsigned i = first; i < t->codes.n; i++) {
        t->codes.step[i] = checked(t->share[i] * whole);
        t->codes.least[i] = (float)least;
        t->codes.most[i] = (float)most;
        t->zero[i] = zero;
    }
    if (b->rule->kind != QP_CODES_BIASED)
        return;
    const double middle = (b->known->lo / 2 + b->known->hi / 2) * b->known->unit;
    const double shift = b->rule->q_max / 2.0 - zero / 4.0;
    for (unsigned i = first; i < t->codes.n; i++)
        t->codes.shift[i] = checked(shift - middle * (t->share[i] * whole));
}

/* n more trials around the best, so many of its spreads to both sides. */
static void add_near(struct batch *b, double wide, unsigned n, int32_t zero)
{
    const struct qp_mse_best *best = &b->known->best;
    struct qp_mse_trials *t = b->trials;
    const unsigned first = t->codes.n;
    for (unsigned i = 0; i < n; i++) {
        const double at = (2.0 * i + 1 - n) / n; /* -1 .. 1, without the ends */
        t->share[t->codes.n++] = best->share * (1 + best->spread * wide * at);
    }
    t->spread = best->spread * wide / n;
    set_steps(b, first, zero, best->sign);
}

/* The scale that is the best for the best codes makes new codes. */
static void set_polished(struct batch *b, unsigned at)
{
    const struct qp_mse_known *known = b->known;
    struct qp_mse_trials *t = b->trials;
    const double step = 1 / known->scale;
    t->codes.step[at] = checked(step);
    t->zero[at] = known->best.zero;
    t->share[at] = fabs(step) / whole_step(b, known->best.zero);
    t->sign = known->best.sign;
}

/* Of biased codes: steps beside that of the best scale, around the middle of the codes. */
static void polish_biased(struct batch *b)
{
    static const double beside[] = {0, -1, 1, -0.5};
    struct qp_mse_trials *t = b->trials;
    const double middle = b->rule->q_max / 2.0;
    const double step = 1 / b->known->scale, shift = -b->known->bias * step;
    t->codes.n = sizeof beside / sizeof *beside;
    t->spread = b->known->best.spread / 2;
    set_steps(b, 0, b->known->best.zero, 1);
    for (unsigned i = 0; i < t->codes.n; i++) {
        const double wider = 1 + beside[i] * t->spread;
        t->share[i] = b->known->best.share * wider;
        t->codes.step[i] = checked(step * wider);
        t->codes.shift[i] = checked(middle + (shift - middle) * wider);
    }
}

/* Near the best; in the middle is the best scale for its codes. */
static void polish(struct batch *b)
{
    struct qp_mse_trials *t = b->trials;
    t->codes.n = 0;
    if (b->rule->kind == QP_CODES_BIASED) {
        polish_biased(b);
        return;
    }
    add_near(b, 1, 3, b->known->best.zero);
    set_polished(b, t->codes.n / 2);
}

/* Whether a zero point is a code. */
static bool is_zero(const struct batch *b, int32_t zero)
{
    return zero >= b->rule->q_min && zero <= b->rule->q_max;
}

static void spread(struct batch *b)
{
    const struct qp_mse_best *best = &b->known->best;
    struct qp_mse_trials *t = b->trials;
    double share = window_of(b->rule)->most;
    if (b->rule->kind == QP_CODES_BIASED) {
        set_steps(b, 0, -1, 1);
        return;
    }
    if (best->share < share * (1 - 1e-9)) {
        polish(b);
        return;
    }
    for (unsigned i = 0; i < QP_TRIALS; i++)
        t->share[i] = share *= BEYOND;
    t->codes.n = QP_TRIALS;
    t->spread = BEYOND - 1;
    set_steps(b, 0, best->zero, best->sign);
}

static void zeros(struct batch *b)
{
    const struct qp_mse_best *best = &b->known->best;
    if (b->rule->kind == QP_CODES_BIASED) {
        set_steps(b, 0, 1, 1);
        return;
    }
    b->trials->codes.n = 0;
    for (int32_t zero = best->zero - 1; b->rule->asymmetric && zero <= best->zero + 1; zero += 2) {
        if (is_zero(b, zero))
            add_near(b, ASIDE, 4, zero);
    }
    if (!b->rule->asymmetric && best->spread >= BEYOND - 1)
        add_near(b, 1, QP_TRIALS, best->zero);
}

static void other(struct batch *b, unsigned part, bool positive)
{
    const int32_t zero = b->known->last[0].zero, beside = part ? zero + 1 : zero - 1;
    if (b->rule->kind == QP_CODES_BIASED)
        set_steps(b, 0, part ? 2 : -2, 1);
    else if (b->rule->asymmetric && is_zero(b, beside))
        set_steps(b, 0, beside, 1);
    else if (!b->rule->asymmetric && !positive)
        set_steps(b, 0, zero, -natural_sign(b));
    else
        b->trials->codes.n = 0;
}

static void dense(struct batch *b, unsigned part, bool positive)
{
    const unsigned half = QP_MSE_DENSE_PARTS / 2;
    const int32_t zero = b->known->last[0].zero, beside = zero - 2 + (int32_t)part / 4;
    if (b->rule->kind == QP_CODES_BIASED)
        set_steps(b, 0, (int32_t)part / 4 - 2, 1);
    else if (!b->rule->asymmetric && !(positive && part >= half))
        set_steps(b, 0, zero, part < half ? 1 : -1);
    else if (b->rule->asymmetric && beside <= zero + 2 && is_zero(b, beside))
        set_steps(b, 0, beside, 1);
    else
        b->trials->codes.n = 0;
}

void qp_mse_trials(const struct qp_code_rule *rule, bool positive, const struct qp_mse_pass *pass,
                   const struct qp_mse_known *known, struct qp_mse_trials *trials)
{
    struct batch b = {.rule = rule, .known = known, .trials = trials};
    const bool biased = rule->kind == QP_CODES_BIASED;
    const int32_t zero = biased ? 0 : known->last[0].zero;
    trials->codes.n = QP_TRIALS;
    if (known->lo == known->hi)
        trials->codes.n = 0;
    else if (pass->move == QP_MSE_GRID || pass->move == QP_MSE_FINE)
        set_steps(&b, 0, zero, positive ? 1 : natural_sign(&b));
    else if (pass->move == QP_MSE_OTHER)
        other(&b, pass->part, positive);
    else if (pass->move == QP_MSE_DENSE)
        dense(&b, pass->part, positive);
    else if (known->score == 0 || qp_mse_is_idle(rule, pass))
        trials->codes.n = 0;
    else if (pass->move == QP_MSE_SPREAD)
        spread(&b);
    else if (pass->move == QP_MSE_ZEROS)
        zeros(&b);
    else
        polish(&b);
}
