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

/* What a batch of trials is made from. */
struct batch {
    const struct qp_code_rule *rule;
    const struct qp_mse_known *known;
    struct window window;
    struct qp_mse_trial *trials;
    unsigned n;
    double whole; /* step of the last trial, that clips nothing */
    int32_t whole_zero;
};

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

static void add(struct batch *b, double share, int32_t zero, int sign, double spread)
{
    const double middle = (b->known->lo / 2 + b->known->hi / 2) * b->known->unit;
    struct qp_mse_trial *t = &b->trials[b->n++];
    if (b->n == 1 || zero != b->whole_zero) /* trials of one zero point follow each other */
        b->whole = whole_step(b, zero);
    b->whole_zero = zero;
    *t = (struct qp_mse_trial){.step = sign * share * b->whole,
                               .share = share,
                               .zero = zero,
                               .sign = sign,
                               .spread = spread};
    if (b->rule->kind == QP_CODES_BIASED)
        t->shift = b->rule->q_max / 2.0 - zero / 4.0 - middle * t->step;
}

/* Every parts-th point of a window that has `parts` times as many as a batch, from the part on. */
static void add_window(struct batch *b, struct window w, unsigned part, unsigned parts,
                       int32_t zero, int sign)
{
    const double gap = (w.most - w.least) / (QP_TRIALS * parts - 1);
    for (unsigned i = 0; i < QP_TRIALS; i++) {
        const double share = w.least + gap * (part + i * parts);
        add(b, share, zero, sign, gap); /* shares are about 1 */
    }
}

/* n trials around a share, up to its neighbours on both sides. */
static void add_near(struct batch *b, double share, double spread, unsigned n, int32_t zero,
                     int sign)
{
    for (unsigned i = 0; i < n; i++) {
        const double at = (2.0 * i + 1 - n) / n; /* -1 .. 1, without the ends and the middle */
        add(b, share * (1 + spread * at), zero, sign, spread / n);
    }
}

static void add_near_best(struct batch *b, unsigned n)
{
    const struct qp_mse_trial *best = &b->known->best;
    add_near(b, best->share, best->spread, n, best->zero, best->sign);
}

/* Whether a zero point is a code. */
static bool is_zero(const struct batch *b, int32_t zero)
{
    return zero >= b->rule->q_min && zero <= b->rule->q_max;
}

static void spread(struct batch *b)
{
    const struct qp_mse_trial *best = &b->known->best;
    const double end = b->window.most * (1 - 1e-9);
    double share = b->window.most;
    if (b->rule->kind == QP_CODES_BIASED) {
        add_window(b, b->window, 0, 1, -1, 1);
        return;
    }
    if (best->share < end) {
        add_near_best(b, 4);
        return;
    }
    for (unsigned i = 0; i < QP_TRIALS; i++)
        add(b, share *= BEYOND, best->zero, best->sign, BEYOND - 1);
}

static void zeros(struct batch *b)
{
    const struct qp_mse_trial *best = &b->known->best;
    if (b->rule->kind == QP_CODES_BIASED) {
        add_window(b, b->window, 0, 1, 1, 1);
        return;
    }
    if (!b->rule->asymmetric) {
        add_near_best(b, 4);
        return;
    }
    for (int32_t zero = best->zero - 1; zero <= best->zero + 1; zero += 2) {
        if (is_zero(b, zero))
            add_near(b, best->share, best->spread * 2, 4, zero, 1);
    }
}

/* The scale that is the best for the best codes makes new codes; beside it are some neighbours. */
static void polish(struct batch *b)
{
    const struct qp_mse_known *known = b->known;
    struct qp_mse_trial next = known->best;
    next.step = 1 / known->scale;
    next.shift = -known->bias * next.step;
    next.share = fabs(next.step) / whole_step(b, next.zero);
    b->trials[b->n++] = next;
    if (b->rule->kind != QP_CODES_BIASED)
        add_near_best(b, 4);
}

static void other(struct batch *b, unsigned part, bool positive)
{
    const struct window wide = {b->window.least * 0.95, b->window.most * 1.1};
    const int32_t zero = b->known->last[0].zero, beside = part ? zero + 1 : zero - 1;
    if (b->rule->kind == QP_CODES_BIASED)
        add_window(b, wide, 0, 1, part ? 2 : -2, 1);
    else if (b->rule->asymmetric && is_zero(b, beside))
        add_window(b, wide, 0, 1, beside, 1);
    else if (!b->rule->asymmetric && !positive)
        add_window(b, wide, part, 2, zero, -natural_sign(b));
}

static void dense(struct batch *b, unsigned part, bool positive)
{
    const struct window wide = {b->window.least * 0.85, b->window.most * 1.25};
    const unsigned half = QP_MSE_DENSE_PARTS / 2;
    const int32_t zero = b->known->last[0].zero, beside = zero - 2 + (int32_t)part / 4;
    if (b->rule->kind == QP_CODES_BIASED)
        add_window(b, wide, part % 4, 4, (int32_t)part / 4 - 2, 1);
    else if (!b->rule->asymmetric && positive)
        add_window(b, wide, part, QP_MSE_DENSE_PARTS, zero, 1);
    else if (!b->rule->asymmetric)
        add_window(b, wide, part % half, half, zero, part < half ? 1 : -1);
    else if (beside <= zero + 2 && is_zero(b, beside))
        add_window(b, wide, part % 4, 4, beside, 1);
}

unsigned qp_mse_trials(const struct qp_code_rule *rule, bool positive,
                       const struct qp_mse_pass *pass, const struct qp_mse_known *known,
                       struct qp_mse_trial trials[QP_TRIALS])
{
    struct batch b = {.rule = rule, .known = known, .trials = trials};
    const bool biased = rule->kind == QP_CODES_BIASED;
    const int32_t zero = biased ? 0 : known->last[0].zero;
    const int sign = positive ? 1 : natural_sign(&b);
    b.window = (rule->asymmetric ? asymmetric : symmetric)[rule->type->bits - 2];
    if (known->lo == known->hi)
        return 0;
    if (pass->move == QP_MSE_GRID)
        add_window(&b, b.window, 0, 1, zero, sign);
    else if (pass->move == QP_MSE_FINE)
        add_window(&b, b.window, pass->part, 2, zero, sign);
    else if (pass->move == QP_MSE_OTHER)
        other(&b, pass->part, positive);
    else if (pass->move == QP_MSE_DENSE)
        dense(&b, pass->part, positive);
    else if (known->score == 0 || (pass->part > 0 && !biased))
        return 0;
    else if (pass->move == QP_MSE_SPREAD)
        spread(&b);
    else if (pass->move == QP_MSE_ZEROS)
        zeros(&b);
    else if (pass->move == QP_MSE_POLISH)
        polish(&b);
    return b.n;
}
