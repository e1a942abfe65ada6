/*
 * figures.c - the numbers of one tensor, and their sums over many.
 */
#include "report.h"

/* ---- One tensor -------------------------------------------------------------------------------
 */

static void add_parts(struct qp_figures *f, const struct qp_tensor *t)
{
    const unsigned bits = qplan_storage_bits((enum qplan_storage)t->storage);
    const struct qp_matrix sets = qp_tensor_part(t, QP_SCALE)->matrix;
    f->sets = sets.rows * sets.cols;
    f->source_bits = f->sums.elements * bits;
    f->code_bits = f->sums.elements * qplan_dtype_bits(t->scheme->dtype);
    f->sums.source_bytes = f->sums.elements * (bits / 8);
    f->sums.code_bytes = qp_role_bytes(t, QP_CODES);
    f->sums.param_bytes = qp_tensor_bytes(t) - f->sums.code_bytes; /* of all other parts */
}

struct qp_figures qp_row_figures(const struct qp_row *row)
{
    const struct qp_tensor *t = row->tested->tensor;
    struct qp_figures f = {.sums = {.tensors = 1, .elements = 1}};
    for (unsigned i = 0; i < t->rank; i++)
        f.sums.elements *= t->shape[i];
    f.sums.source_bytes = qp_tensor_bytes(t);
    f.sums.quantized = t->scheme || row->restored;
    f.sums.kept = !f.sums.quantized;
    if (t->scheme)
        add_parts(&f, t);
    else if (row->restored)
        f.sums.code_bytes = f.sums.source_bytes;
    else
        f.sums.kept_bytes = f.sums.source_bytes;
    f.sums.data_bytes = f.sums.code_bytes + f.sums.param_bytes + f.sums.kept_bytes;
    f.has_facts = row->facts != NULL;
    if (row->facts)
        f.facts = *row->facts;
    f.has_errors = row->tested->measure != NULL;
    if (f.has_errors) {
        f.errors = *row->tested->measure;
        f.compared = f.sums.elements;
    }
    return f;
}

const char *qp_report_recipe(const struct qplan_report *report)
{
    for (size_t i = 0; i < report->n_rows; i++) {
        const char *name = report->rows[i].tested->tensor->calibrate;
        if (qp_is_recipe(name))
            return name;
    }
    return NULL;
}

bool qp_report_is_unknown(const struct qplan_report *report)
{
    bool found = false;
    for (size_t i = 0; i < report->n_rows && !found; i++) {
        const struct qp_tensor *t = report->rows[i].tested->tensor;
        found = t->scheme && !t->calibrate;
    }
    return found;
}

bool qp_report_is_rounded(const struct qplan_report *report)
{
    struct qp_calibrator made;
    bool found = false;
    for (size_t i = 0; i < report->n_rows && !found; i++) {
        const struct qp_tensor *t = report->rows[i].tested->tensor;
        found = qp_calibrator_recorded(t->calibrate, t->scheme, &made) && made.rounds;
    }
    return found;
}

bool qp_report_is_unweighted(const struct qplan_report *report)
{
    struct qp_calibrator made;
    bool found = false;
    for (size_t i = 0; i < report->n_rows && !found; i++) {
        const struct qp_tensor *t = report->rows[i].tested->tensor;
        found = qp_calibrator_recorded(t->calibrate, t->scheme, &made) && made.takes_weights &&
                !made.weighted;
    }
    return found;
}

/* ---- Sums --------------------------------------------------------------------------------------
 */

static double larger(double a, double b)
{
    return b > a ? b : a;
}

/* In one unit for all tensors. */
static void add_weighted(struct qp_measure *total, const struct qp_measure *m)
{
    struct qp_weighted_sums sums = m->weighted;
    sums.e2.value *= m->weight_unit;
    sums.x2.value *= m->weight_unit;
    qp_weighted_add(&total->weighted, sums);
    total->weight_unit = 1;
}

static void add_errors(struct qp_measure *total, const struct qp_measure *m)
{
    qp_wide_add(&total->sums, &m->sums);
    if (m->weight_unit > 0)
        add_weighted(total, m);
    total->max_abs = larger(total->max_abs, m->max_abs);
    total->clipped += m->clipped;
    total->nonfinite += m->nonfinite;
    total->max_clip = larger(total->max_clip, m->max_clip);
}

void qp_figures_add(struct qp_figures *total, const struct qp_figures *f)
{
    struct qplan_totals *sums = &total->sums;
    sums->tensors += f->sums.tensors;
    sums->quantized += f->sums.quantized;
    sums->kept += f->sums.kept;
    sums->elements += f->sums.elements;
    sums->source_bytes += f->sums.source_bytes;
    sums->code_bytes += f->sums.code_bytes;
    sums->param_bytes += f->sums.param_bytes;
    sums->kept_bytes += f->sums.kept_bytes;
    sums->data_bytes += f->sums.data_bytes;
    total->sets += f->sets;
    total->source_bits += f->source_bits;
    total->code_bits += f->code_bits;
    total->compared += f->compared;
    if (f->has_facts) {
        total->facts.negative += f->facts.negative;
        total->facts.half_step = larger(total->facts.half_step, f->facts.half_step);
        total->facts.bound = larger(total->facts.bound, f->facts.bound);
    }
    if (f->has_errors)
        add_errors(&total->errors, &f->errors);
}
