/*
 * metrics.c - the one list of metrics, and how each is computed. To add one, add a row.
 */
#include "metrics.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values -----------------------------------------------------------------------------------
 */

static const struct qp_value unknown = {.known = false};

/* What decoded values that are NaN leave of a figure is no number. */
static struct qp_value number(double value)
{
    return (struct qp_value){.known = !isnan(value), .number = value};
}

static struct qp_value count(uint64_t n)
{
    return (struct qp_value){.known = true, .number = (double)n, .count = n};
}

/* Figures that there is nothing of are below 0. */
static struct qp_value not_negative(double value)
{
    return (struct qp_value){.known = value >= 0, .number = value};
}

static struct qp_value ratio(double a, double b)
{
    return b == 0 ? unknown : number(a / b);
}

/* Elements that were measured; those that are not finite have no error. */
static uint64_t measured(const struct qp_figures *f)
{
    return f->compared - f->errors.nonfinite;
}

#define VALUE(name, value)                                                                         \
    static struct qp_value name(const struct qp_figures *f)                                        \
    {                                                                                              \
        return value;                                                                              \
    }

VALUE(of_tensors, count(f->sums.tensors))
VALUE(of_quantized, count(f->sums.quantized))
VALUE(of_kept, count(f->sums.kept))
VALUE(of_elements, count(f->sums.elements))
VALUE(of_sets, count(f->sets))
VALUE(of_source_bytes, count(f->sums.source_bytes))
VALUE(of_code_bytes, count(f->sums.code_bytes))
VALUE(of_param_bytes, count(f->sums.param_bytes))
VALUE(of_kept_bytes, count(f->sums.kept_bytes))
VALUE(of_data_bytes, count(f->sums.data_bytes))
VALUE(of_ratio_ideal, ratio((double)f->source_bits, (double)f->code_bits))
VALUE(of_ratio, ratio((double)f->sums.source_bytes, (double)f->sums.data_bytes))
VALUE(of_bpw, ratio(8.0 * (double)f->sums.data_bytes, (double)f->sums.elements))
VALUE(of_scale_min, number(f->facts.scale_min))
VALUE(of_scale_max, number(f->facts.scale_max))
VALUE(of_negative, count(f->facts.negative))
VALUE(of_negative_percent, ratio(100.0 * (double)f->facts.negative, (double)f->sets))
VALUE(of_half_step, not_negative(f->facts.half_step))
VALUE(of_bound, not_negative(f->facts.bound))
VALUE(of_max_abs, not_negative(f->errors.max_abs))
VALUE(of_clipped, count(f->errors.clipped))
VALUE(of_max_clip, measured(f) ? number(f->errors.max_clip) : unknown)
VALUE(of_nonfinite, count(f->errors.nonfinite))
VALUE(of_bytes, count(f->sums.file_bytes))
VALUE(of_kept_percent, ratio(100.0 * (double)f->sums.kept_bytes, (double)f->sums.data_bytes))
VALUE(of_missing, count(f->missing))

static struct qp_value of_max_at(const struct qp_figures *f)
{
    return f->errors.max_abs < 0 ? unknown : count(f->errors.max_at);
}

static struct qp_value of_rms(const struct qp_figures *f)
{
    const struct qp_scaled e2 = f->errors.sums.e2;
    struct qp_value mean = ratio(e2.value, (double)measured(f));
    mean.number = ldexp(sqrt(mean.number), e2.exponent / 2);
    return mean;
}

#define LOG10_2 0.30102999566398119521

static double log10_of(struct qp_scaled a)
{
    if (abs(a.exponent) < DBL_MAX_EXP - 1)
        return log10(ldexp(a.value, a.exponent));
    return log10(a.value) + a.exponent * LOG10_2;
}

/* No error at all is the best ratio there is, but an error without any signal has none. */
static struct qp_value decibels(const struct qp_figures *f, struct qp_scaled x2,
                                struct qp_scaled e2)
{
    if (measured(f) && e2.value == 0)
        return number(INFINITY);
    return x2.value == 0 ? unknown : number(10 * log10_of(qp_scaled_ratio(x2, e2)));
}

VALUE(of_sqnr_db, decibels(f, f->errors.sums.x2, f->errors.sums.e2))
VALUE(of_weighted_sqnr_db, decibels(f, f->errors.weighted.x2, f->errors.weighted.e2))

/* The sum of x x': (x - x')^2 = x^2 - 2 x x' + x'^2 gives it where that keeps its bits. */
static struct qp_scaled products(const struct qp_wide_sums *sums)
{
    const struct qp_scaled e2 = {-sums->e2.value, sums->e2.exponent};
    struct qp_scaled twice = qp_scaled_sum(qp_scaled_sum(sums->x2, sums->y2), e2);
    if (abs(qp_scaled_ratio(sums->x2, sums->y2).exponent) > QP_WIDE_PROPORTION)
        return sums->xy;
    twice.exponent--;
    return twice;
}

static struct qp_value of_cosine(const struct qp_figures *f)
{
    const struct qp_scaled x2 = f->errors.sums.x2, y2 = f->errors.sums.y2;
    const struct qp_scaled norms = {sqrt(x2.value) * sqrt(y2.value),
                                    (x2.exponent + y2.exponent) / 2};
    if (norms.value == 0)
        return unknown;
    const struct qp_scaled cosine = qp_scaled_ratio(products(&f->errors.sums), norms);
    return number(ldexp(cosine.value, cosine.exponent));
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

#define TENSORS QP_IN_TENSORS
#define TOTALS  QP_IN_TOTALS
#define JSON    (TENSORS | TOTALS)
#define SUMMARY (JSON | QP_IN_SUMMARY)
#define ALL     (SUMMARY | QP_IN_LINES)
#define NO_GATE QP_SCOPE_NONE, false
#define WORST   QP_SCOPE_WORST
#define LARGE   QP_SCOPE_LARGE
#define TOTAL   QP_SCOPE_TOTAL
#define LOW     true
#define HIGH    false
#define ALWAYS  QP_NEEDS_NOTHING
#define FACTS   QP_NEEDS_FACTS
#define SOURCE  QP_NEEDS_SOURCE
#define WEIGHTS QP_NEEDS_WEIGHTS

/* Columns: name, kind, needs, shown, scope and bad end, value, unit, help. */
/* clang-format off */
const struct qp_metric qp_metrics[] = {
    {"tensors",      QP_COUNT,   ALWAYS, TOTALS,  NO_GATE,     of_tensors,      NULL, NULL},
    {"quantized",    QP_COUNT,   ALWAYS, TOTALS,  TOTAL, LOW,  of_quantized,
     "tensors",  "how many tensors are quantized"},
    {"kept",         QP_COUNT,   ALWAYS, TOTALS,  NO_GATE,     of_kept,         NULL, NULL},
    {"elements",     QP_COUNT,   ALWAYS, JSON,    NO_GATE,     of_elements,     NULL, NULL},
    {"sets",         QP_COUNT,   ALWAYS, TENSORS, NO_GATE,     of_sets,         NULL, NULL},
    {"source_bytes", QP_COUNT,   ALWAYS, JSON,    NO_GATE,     of_source_bytes, NULL, NULL},
    {"code_bytes",   QP_COUNT,   ALWAYS, JSON,    NO_GATE,     of_code_bytes,   NULL, NULL},
    {"param_bytes",  QP_COUNT,   ALWAYS, JSON,    NO_GATE,     of_param_bytes,  NULL, NULL},
    {"kept_bytes",   QP_COUNT,   ALWAYS, TOTALS,  TOTAL, HIGH, of_kept_bytes,
     "bytes",    "size of the tensors that were not quantized"},
    {"data_bytes",   QP_COUNT,   ALWAYS, TOTALS,  NO_GATE,     of_data_bytes,   NULL, NULL},
    {"ratio_ideal",  QP_NUMBER,  FACTS,  JSON,    TOTAL, LOW,  of_ratio_ideal,
     "-",        "source bits over code bits of the quantized tensors"},
    {"ratio",        QP_NUMBER,  FACTS,  JSON,    TOTAL, LOW,  of_ratio,
     "-",        "source bytes over data bytes"},
    {"bpw",          QP_NUMBER,  FACTS,  ALL,     TOTAL, HIGH, of_bpw,
     "bits",     "bits per weight"},
    {"scale_min",    QP_NUMBER,  FACTS,  TENSORS, NO_GATE,     of_scale_min,    NULL, NULL},
    {"scale_max",    QP_NUMBER,  FACTS,  TENSORS, NO_GATE,     of_scale_max,    NULL, NULL},
    {"negative_scales", QP_COUNT, FACTS, JSON,    NO_GATE,     of_negative,     NULL, NULL},
    {"negative_percent", QP_NUMBER, FACTS, SUMMARY | QP_IF_ANY, NO_GATE, of_negative_percent,
     NULL, NULL},
    {"half_step",    QP_NUMBER,  FACTS,  JSON,    WORST, HIGH, of_half_step,
     "value",    "half of the largest step between two codes"},
    {"bound",        QP_NUMBER,  FACTS,  ALL,     WORST, HIGH, of_bound,
     "value",    "the proven error bound"},
    {"max_abs",      QP_NUMBER,  SOURCE, ALL,     WORST, HIGH, of_max_abs,
     "value",    "the largest absolute error"},
    {"max_at",       QP_ELEMENT, SOURCE, TENSORS, NO_GATE,     of_max_at,       NULL, NULL},
    {"rms",          QP_NUMBER,  SOURCE, SUMMARY, WORST, HIGH, of_rms,
     "value",    "the root of the mean squared error"},
    {"sqnr_db",      QP_NUMBER,  SOURCE, ALL,     LARGE, LOW,  of_sqnr_db,
     "dB",       "signal to quantization noise; infinite without any error"},
    {"weighted_sqnr_db", QP_NUMBER, WEIGHTS, ALL,  WORST, LOW, of_weighted_sqnr_db,
     "dB",       "likewise, weighted by importance or Hessians"},
    {"cosine",       QP_NUMBER,  SOURCE, SUMMARY, LARGE, LOW,  of_cosine,
     "-",        "the cosine between source and result"},
    {"clipped",      QP_COUNT,   SOURCE, SUMMARY, WORST, HIGH, of_clipped,
     "elements", "elements outside of the range of their codes"},
    {"max_clip",     QP_NUMBER,  SOURCE, SUMMARY | QP_IF_ANY, WORST, HIGH, of_max_clip,
     "value",    "the largest error of a clipped element"},
    {"nonfinite",    QP_COUNT,   SOURCE, SUMMARY, WORST, HIGH, of_nonfinite,
     "elements", "NaN and infinite elements"},
    {"bytes",        QP_COUNT,   ALWAYS, 0,       TOTAL, HIGH, of_bytes,
     "bytes",    "size of the file"},
    {"kept_percent", QP_NUMBER,  ALWAYS, 0,       TOTAL, HIGH, of_kept_percent,
     "percent",  "kept_bytes in percent of all data"},
    {"missing",      QP_COUNT,   SOURCE, 0,       TOTAL, HIGH, of_missing,
     "tensors",  "tensors of the source that the file lacks"},
};
/* clang-format on */

const size_t qp_n_metrics = sizeof qp_metrics / sizeof qp_metrics[0];

const struct qp_metric *qp_metric_find(const char *name, size_t n)
{
    for (size_t i = 0; i < qp_n_metrics; i++) {
        if (strlen(qp_metrics[i].name) == n && memcmp(qp_metrics[i].name, name, n) == 0)
            return &qp_metrics[i];
    }
    return NULL;
}

struct qp_value qp_metric_value(const struct qp_metric *metric, const struct qp_figures *figures)
{
    const bool has_weights = figures->has_errors && figures->errors.weight_unit > 0;
    const bool there = metric->needs == QP_NEEDS_FACTS     ? figures->has_facts
                       : metric->needs == QP_NEEDS_SOURCE  ? figures->has_errors
                       : metric->needs == QP_NEEDS_WEIGHTS ? has_weights
                                                           : true;
    return there ? metric->of(figures) : unknown;
}

bool qplan_metric_at(size_t i, struct qplan_metric *out)
{
    for (size_t k = 0; k < qp_n_metrics; k++) {
        const struct qp_metric *m = &qp_metrics[k];
        if (m->scope == QP_SCOPE_NONE || i-- != 0)
            continue;
        *out = (struct qplan_metric){
            .name = m->name,
            .unit = m->unit,
            .scope = m->scope == QP_SCOPE_TOTAL ? "total" : "worst",
            .help = m->help,
            .of_tensors = m->shown & QP_IN_TENSORS,
            .needs_source = m->needs >= QP_NEEDS_SOURCE,
        };
        return true;
    }
    return false;
}
