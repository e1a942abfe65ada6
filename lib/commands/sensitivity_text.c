/*
 * sensitivity_text.c - the table of candidates as text for people, and as the document
 * qplan-sensitivity/1.
 */
#include "sensitivity.h"

#include "lib/base/json.h"
#include "lib/base/pattern.h"

static uint64_t elements_of(const struct qp_tensor *t)
{
    uint64_t n = 0;
    (void)qp_shape_elements(t->shape, t->rank, &n); /* known not to overflow */
    return n;
}

static double bpw_of(uint64_t bytes, uint64_t n_elems)
{
    return n_elems ? 8 * (double)bytes / (double)n_elems : 0;
}

/* What a candidate alone comes to, in all tensors. */
static struct qp_mix total_of(const struct qplan_sensitivity *s, size_t candidate)
{
    const struct qp_budget budget = {
        .n_items = s->n_groups, .n_options = s->n_candidates, .options = s->of_groups};
    struct qp_mix mix = qp_budget_uniform(&budget, candidate, NULL);
    mix.bytes += s->fixed_bytes;
    return mix;
}

/* ---- Text --------------------------------------------------------------------------------------
 */

static const char *tensor_name(const void *ctx, size_t i, size_t *n)
{
    const struct qplan_sensitivity *s = ctx;
    *n = s->first->tensors[i].source->name_len;
    return s->first->tensors[i].source->name;
}

/* What has no candidate is left out of patterns, and so never alike. */
static bool tensors_alike(const void *ctx, size_t a, size_t b)
{
    const struct qplan_sensitivity *s = ctx;
    const struct qp_tensor *x = s->first->tensors[a].source, *y = s->first->tensors[b].source;
    if ((s->group[a] == QP_NO_GROUP) != (s->group[b] == QP_NO_GROUP) || x->storage != y->storage)
        return false;
    for (size_t i = 0; i < s->n_candidates; i++) {
        if (qp_cell_at(s, a, i)->is_there != qp_cell_at(s, b, i)->is_there)
            return false;
    }
    return qp_same_shape(x->shape, x->rank, y->shape, y->rank);
}

static bool never_alike(const void *ctx, size_t a, size_t b)
{
    (void)ctx;
    (void)a;
    (void)b;
    return false;
}

/* "int4:g128 0.0123 (4.31 bpw)". */
static void put_cell(struct qp_writer *w, const char *candidate, const struct qp_mix *mix,
                     uint64_t n_elems)
{
    qp_printf(w, "  %s %.4g (%.4g bpw)", candidate, mix->error, bpw_of(mix->bytes, n_elems));
}

/* The line of some tensors: what each candidate makes of all of them together. */
static void put_line(struct qp_writer *w, const struct qplan_sensitivity *s,
                     const struct qp_groups *groups, size_t which)
{
    const struct qp_group *group = &groups->groups[which];
    const struct qp_tensor *t = s->first->tensors[group->first].source;
    char shape[1536]; /* room for any: 64 numbers */
    qp_puts(w, "  ");
    if (group->count > 1)
        qp_printf(w, "%zu x ", group->count);
    qp_puts(w, qp_format_list(shape, sizeof shape, t->shape, t->rank));
    qp_printf(w, "  %s", qplan_storage_name((enum qplan_storage)t->storage));
    for (size_t i = 0; i < s->n_candidates; i++) {
        struct qp_mix mix = {0, 0};
        if (!qp_cell_at(s, group->first, i)->is_there)
            continue;
        for (size_t k = group->first; k < s->first->n_tensors; k++) {
            if (groups->of[k] != which)
                continue;
            mix.bytes += qp_cell_at(s, k, i)->bytes;
            mix.error += qp_cell_at(s, k, i)->error;
        }
        put_cell(w, s->candidates[i].text, &mix, group->count * elements_of(t));
    }
    qp_puts(w, "\n");
}

enum qplan_status qplan_sensitivity_write_text(const struct qplan_sensitivity *s, bool every_tensor,
                                               qplan_write_fn write, void *ctx,
                                               struct qplan_error *err)
{
    const struct qp_group_source source = {s, tensor_name,
                                           every_tensor ? never_alike : tensors_alike};
    struct qp_groups groups;
    struct qp_writer w;
    QP_TRY(qp_groups_make(&groups, &source, s->first->n_tensors, err));
    qp_writer_stream(&w, write, ctx);
    for (size_t i = 0; i < groups.n; i++) {
        if (s->group[groups.groups[i].first] == QP_NO_GROUP)
            continue;
        qp_put_pattern(&w, &groups.groups[i], &source);
        put_line(&w, s, &groups, i);
    }
    qp_groups_free(&groups);
    qp_puts(&w, "\ntotal, each alone:");
    for (size_t i = 0; i < s->n_candidates; i++) {
        const struct qp_mix mix = total_of(s, i);
        put_cell(&w, s->candidates[i].text, &mix, s->n_elems);
    }
    qp_puts(&w, "\n");
    const enum qplan_status status = qp_writer_finish(&w, "sensitivity", err);
    qp_writer_free(&w);
    return status;
}

/* ---- The document ------------------------------------------------------------------------------
 */

static void put_candidate(struct qp_writer *w, const char *candidate, const struct qp_mix *mix,
                          uint64_t n_elems)
{
    qp_json_open(w, '{');
    qp_json_key(w, "candidate");
    qp_json_put_str(w, candidate);
    qp_json_key(w, "bytes");
    qp_json_put_u64(w, mix->bytes);
    qp_json_key(w, "bpw");
    qp_json_put_f64(w, bpw_of(mix->bytes, n_elems));
    qp_json_key(w, "error");
    qp_json_put_f64(w, mix->error);
    qp_json_close(w, '}');
}

/* The first tensor that is calibrated as asked for: if data are known of some, one of these. */
static const struct qp_plan_tensor *calibrated(const struct qplan_sensitivity *s)
{
    const struct qp_plan_tensor *found = NULL;
    for (size_t i = 0; i < s->first->n_tensors; i++) {
        const struct qp_plan_tensor *t = &s->first->tensors[i];
        if (qp_is_quantized(t) && (!found || (t->has_importance && !found->has_importance)))
            found = t;
    }
    return found;
}

static void put_tensor(struct qp_writer *w, const struct qplan_sensitivity *s, size_t i)
{
    const struct qp_tensor *t = s->first->tensors[i].source;
    qp_json_open(w, '{');
    qp_json_key(w, "name");
    qp_json_put_string(w, t->name, t->name_len);
    qp_json_key(w, "dtype");
    qp_json_put_str(w, qplan_storage_name((enum qplan_storage)t->storage));
    qp_json_key(w, "shape");
    qp_json_open(w, '[');
    for (unsigned k = 0; k < t->rank; k++)
        qp_json_put_u64(w, t->shape[k]);
    qp_json_close(w, ']');
    qp_json_key(w, "elements");
    qp_json_put_u64(w, elements_of(t));
    qp_json_key(w, "group");
    qp_json_put_u64(w, s->group[i]);
    qp_json_key(w, "first");
    qp_json_put_bool(w, s->is_first[s->group[i]]);
    qp_json_key(w, "candidates");
    qp_json_open(w, '[');
    for (size_t k = 0; k < s->n_candidates; k++) {
        const struct qp_cell *cell = qp_cell_at(s, i, k);
        const struct qp_mix mix = {cell->bytes, cell->error};
        if (cell->is_there)
            put_candidate(w, s->candidates[k].text, &mix, elements_of(t));
    }
    qp_json_close(w, ']');
    qp_json_close(w, '}');
}

enum qplan_status qplan_sensitivity_write_json(const struct qplan_sensitivity *s,
                                               qplan_write_fn write, void *ctx,
                                               struct qplan_error *err)
{
    const struct qp_plan_tensor *t = calibrated(s); /* there is one in every candidate */
    struct qp_writer w;
    qp_writer_stream(&w, write, ctx);
    qp_json_open(&w, '{');
    qp_json_key(&w, "schema");
    qp_json_put_str(&w, "qplan-sensitivity/1");
    qp_json_key(&w, "numerics");
    qp_json_put_u64(&w, QPLAN_NUMERICS);
    qp_json_key(&w, "format");
    qp_json_put_str(&w, s->first->format->name);
    qp_json_key(&w, "calibrate");
    qp_json_put_str(&w, t->calibrator->name);
    qp_json_key(&w, "weighted");
    qp_json_put_bool(&w, t->has_importance);
    qp_json_key(&w, "totals");
    qp_json_open(&w, '[');
    for (size_t i = 0; i < s->n_candidates; i++) {
        const struct qp_mix mix = total_of(s, i);
        put_candidate(&w, s->candidates[i].text, &mix, s->n_elems);
    }
    qp_json_close(&w, ']');
    qp_json_key(&w, "tensors");
    qp_json_open(&w, '[');
    for (size_t i = 0; i < s->first->n_tensors; i++) {
        if (s->group[i] != QP_NO_GROUP)
            put_tensor(&w, s, i);
    }
    qp_json_close(&w, ']');
    qp_json_close(&w, '}');
    qp_puts(&w, "\n");
    const enum qplan_status status = qp_writer_finish(&w, "sensitivity", err);
    qp_writer_free(&w);
    return status;
}
