/*
 * mse_scales.c - the scales that are tried as they are: for codes that are floats or places in a
 * table, and for scales of few bits.
 *
 * A scale that may be any number is told by its share of the one that makes the largest value of a
 * set the largest of the codes. Floats want more, as the largest value is then not rounded worst;
 * a table whose halves differ may want the sign turned. Scales of few bits are the numbers beside
 * minmax's.
 */
#include "mse.h"

#include "kernels/dtypes/f8e4m3/f8e4m3.h"

#include <math.h>

struct window {
    double least, most;
};

/* By level: a wider one with more points. */
static const struct window tables[] = {{0.76, 1.26}, {0.70, 1.45}, {0.60, 1.80}};
static const struct window small_floats[] = {{0.56, 1.70}, {0.45, 2.00}, {0.35, 3.00}};
static const struct window floats[] = {{0.80, 2.00}, {0.70, 2.30}, {0.50, 3.90}};

/* The first part of each level, how many parts go over the window, and how many look nearer. */
static const struct {
    unsigned first, window, near;
} levels[] = {{0, 4, 1}, {QP_MSE_FAST_PARTS, 4, 2}, {QP_MSE_BEST_PARTS, 24, 2}};

static unsigned level_of(unsigned part)
{
    return part >= QP_MSE_BEST_PARTS ? 2 : part >= QP_MSE_FAST_PARTS;
}

/* ---- Few numbers -------------------------------------------------------------------------------
 */

/* Numbers at the side of minmax's that are tried first, and neighbouring zero points. */
#define FAST_POWERS 6
#define FAST_BYTES  15

static unsigned zeros_of(const struct qp_code_rule *rule)
{
    return rule->asymmetric ? 3 : 1;
}

static unsigned n_few(const struct qp_calibration *c, unsigned part)
{
    const bool is_power = c->rule->scale_dtype == QPLAN_E8M0;
    const unsigned n = (is_power ? FAST_POWERS : FAST_BYTES) * zeros_of(c->rule);
    if (part >= QP_MSE_FAST_PARTS)
        return is_power ? 0 : QP_TRIALS;
    return part * QP_TRIALS >= n              ? 0
           : n - part * QP_TRIALS < QP_TRIALS ? n - part * QP_TRIALS
                                              : QP_TRIALS;
}

/* The number that lies so many places from minmax's; 0 if there is none. */
static double beside(const struct qp_calibration *c, double scale, int places)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    uint8_t byte;
    if (c->rule->scale_dtype == QPLAN_E8M0) {
        const double power = ldexp(scale, places);
        return power < 0x1p-126 || power > 0x1p127 ? 0 : power;
    }
    qp_store_scales(f64, c->rule, 1, &scale, &byte);
    if (byte + places < 1 || byte + places > QP_F8E4M3_MOST_BITS)
        return 0;
    byte = (uint8_t)(byte + places);
    qp_load_scales(f64, c->rule, 1, &byte, &scale);
    return scale;
}

/* The zero point that goes with a scale, moved by -1 .. 1; false if that is no code. */
static bool zero_for(const struct qp_code_rule *rule, const struct qp_mse_known *known,
                     double scale, int move, int32_t *zero)
{
    *zero = known->last[0].zero;
    if (!rule->asymmetric)
        return true;
    const double at = rule->q_min - rint(known->lo / scale) + move;
    if (!(at >= rule->q_min && at <= rule->q_max))
        return false;
    *zero = (int32_t)at;
    return true;
}

/* 0, then by turns one more place below and above. */
static bool few(const struct qp_calibration *c, const struct qp_mse_known *known, unsigned part,
                unsigned k, struct qp_mse_scale *out)
{
    const unsigned n_zeros = zeros_of(c->rule);
    const bool is_later = part >= QP_MSE_FAST_PARTS;
    const unsigned i = is_later ? FAST_BYTES * n_zeros + (part - QP_MSE_FAST_PARTS) * QP_TRIALS + k
                                : part * QP_TRIALS + k;
    const int j = (int)(i / n_zeros), move = (int)(i % n_zeros);
    const double minmax = known->last[0].scale;
    const double scale = beside(c, minmax, j % 2 ? -(j + 1) / 2 : j / 2);
    *out = (struct qp_mse_scale){.params = known->last[0]};
    if (i == 0)
        return true;
    out->params.scale = scale;
    return qp_scale_is_near(scale, minmax) &&
           zero_for(c->rule, known, scale, move == 2 ? -1 : move, &out->params.zero);
}

/* ---- Any number --------------------------------------------------------------------------------
 */

static const struct window *window_of(const struct qp_code_rule *rule, unsigned level)
{
    return &(rule->kind == QP_CODES_BOOK ? tables
             : rule->type->bits < 8      ? small_floats
                                         : floats)[level];
}

/* Parts of a level that go over the window: of a table half of them with each sign. */
static unsigned n_any(const struct qp_calibration *c, unsigned part)
{
    const unsigned level = level_of(part), at = part - levels[level].first;
    const unsigned n_window = levels[level].window;
    if (c->rule->kind == QP_CODES_BOOK && qp_mse_is_positive(c) && at >= n_window / 2 &&
        at < n_window)
        return 0;
    return at < n_window + levels[level].near ? QP_TRIALS : 0;
}

/* Near the best so far, on both sides; in the place of the first is minmax's. */
static double near_best(const struct qp_mse_known *known, unsigned k, struct qp_mse_scale *out)
{
    out->spread = known->found.spread / 4;
    return known->found.share + out->spread * ((double)k - 4);
}

static double in_window(const struct qp_calibration *c, unsigned part, unsigned k,
                        struct qp_mse_scale *out)
{
    const unsigned level = level_of(part), at = part - levels[level].first;
    const unsigned n_signs = c->rule->kind == QP_CODES_BOOK ? 2 : 1;
    const unsigned n_parts = levels[level].window / n_signs;
    const struct window *w = window_of(c->rule, level);
    const unsigned i = at % n_parts * QP_TRIALS + k;
    out->spread = (w->most - w->least) / (n_parts * QP_TRIALS - 1);
    return (w->least + out->spread * i) * (at < n_parts ? 1 : -1);
}

static bool any(const struct qp_calibration *c, const struct qp_mse_known *known, unsigned part,
                unsigned k, struct qp_mse_scale *out)
{
    const unsigned level = level_of(part), at = part - levels[level].first;
    const bool is_near = at >= levels[level].window;
    const double most = -known->lo > known->hi ? -known->lo : known->hi;
    *out = (struct qp_mse_scale){.params = known->last[0], .share = 1};
    if (is_near && k == 0) {
        out->spread = known->found.spread;
        return true;
    }
    out->share = is_near ? near_best(known, k, out) : in_window(c, part, k, out);
    out->params.scale = qp_mse_stored(c, out->share * (most / c->rule->type->largest));
    return qp_mse_is_good(c, known, out->params.scale);
}

unsigned qp_mse_n_scales(const struct qp_calibration *c, unsigned part)
{
    return qp_mse_is_few(c->rule) ? n_few(c, part) : n_any(c, part);
}

bool qp_mse_scale(const struct qp_calibration *c, const struct qp_mse_known *known, unsigned part,
                  unsigned k, struct qp_mse_scale *out)
{
    if (known->lo == known->hi)
        return false;
    return qp_mse_is_few(c->rule) ? few(c, known, part, k, out) : any(c, known, part, k, out);
}
