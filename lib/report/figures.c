/*
 * figures.c - the numbers of one tensor, and their sums over many.
 */
#include "report.h"

/* ---- One tensor -------------------------------------------------------------------------------
 */

static uint64_t entry_bytes(const struct qplan_entry *entry)
{
    return entry ? entry->end - entry->begin : 0;
}

struct qp_row_view qp_row_view(const struct qp_row *row)
{
    const struct qp_logical *t = &row->tested->tensor;
    return (struct qp_row_view){
        .name = t->entry->name,
        .name_len = t->entry->name_len,
        .shape = t->shape,
        .rank = t->rank,
        .source = t->source,
        .storage = (enum qplan_storage)t->entry->storage,
        .scheme = t->native ? &t->native->scheme : NULL,
        .calibrate = t->native ? t->native->calibrate : NULL,
    };
}

static void add_parts(struct qp_figures *f, const struct qp_logical *t)
{
    const struct qplan_entry *const *part = t->native->part;
    f->sets = qp_entry_elements(part[QP_SCALE]);
    f->source_bits = f->sums.elements * qplan_storage_bits(t->source);
    f->code_bits = f->sums.elements * qplan_dtype_bits(t->native->scheme.dtype);
    f->sums.source_bytes = f->sums.elements * (qplan_storage_bits(t->source) / 8);
    f->sums.code_bytes = entry_bytes(part[QP_CODES]);
    f->sums.param_bytes = entry_bytes(part[QP_SCALE]) + entry_bytes(part[QP_ZERO_POINT]);
}

struct qp_figures qp_row_figures(const struct qp_row *row)
{
    const struct qp_logical *t = &row->tested->tensor;
    struct qp_figures f = {.sums = {.tensors = 1, .elements = 1}};
    for (unsigned i = 0; i < t->rank; i++)
        f.sums.elements *= t->shape[i];
    f.sums.source_bytes = entry_bytes(t->entry);
    f.sums.quantized = t->native || row->restored;
    f.sums.kept = !f.sums.quantized;
    if (t->native)
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

/* ---- Sums --------------------------------------------------------------------------------------
 */

static double larger(double a, double b)
{
    return b > a ? b : a;
}

static void add_errors(struct qp_measure *total, const struct qp_measure *m)
{
    total->e2 += m->e2;
    total->x2 += m->x2;
    total->y2 += m->y2;
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
    total->source_bits += f->source_bits;
    total->code_bits += f->code_bits;
    total->compared += f->compared;
    if (f->has_facts) {
        total->facts.half_step = larger(total->facts.half_step, f->facts.half_step);
        total->facts.bound = larger(total->facts.bound, f->facts.bound);
    }
    if (f->has_errors)
        add_errors(&total->errors, &f->errors);
}
