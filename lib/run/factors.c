/*
 * factors.c - a job over the values of all tensors whose scales have a factor. It keeps one number
 * for each factor, the largest size of a value so far: an order does not matter to it.
 */
#include "factors.h"

#include "job.h"
#include "kernels/dtypes/f32/f32.h"
#include "kernels/dtypes/f8e4m3/f8e4m3.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/plan/family.h"
#include "source_values.h"

#include <float.h>
#include <stdlib.h>

/* The product of a factor with the least stored scale, or its quotient, is normal in f32. */
#define LEAST_FACTOR 0x1p-117
#define MOST_DIVISOR 0x1p117

/* A tensor whose scales have a factor. */
struct item {
    const struct qp_plan_tensor *tensor;
    size_t group; /* the item that has the number for all that share the factor */
    bool is_joined;
    struct qp_kin kin; /* where it is */
};

struct engine {
    struct qp_job job; /* first: a step gets the job and means the engine */
    const struct qplan_plan *plan;
    struct item *items; /* in the order of names */
    size_t n_items;
    double *most; /* by group: the largest size of a value */
    struct qp_flat flat;
};

struct buffers {
    void *tile;
    struct qp_value_room values;
};

_Static_assert(sizeof(struct buffers) <= sizeof(union qp_any_buffers), "the buffers fit");

static enum qplan_dtype dtype_of(const struct item *item)
{
    return qp_storage_row((enum qplan_storage)item->tensor->source->storage)->dtype;
}

/* ---- The largest values ------------------------------------------------------------------------
 */

static void carve(struct qp_carve *carve, size_t tile_bytes, const struct qp_job *job,
                  void *buffers)
{
    const struct engine *e = (const struct engine *)job;
    struct buffers *b = buffers;
    b->tile = qp_take(carve, tile_bytes + QP_IO_SPARE);
    if (e->plan->checkpoint->is_decoded)
        qp_values_carve(carve, tile_bytes, &b->values);
}

/* Units of whole blocks, as ranges that are decoded begin with one. */
static uint64_t length(const void *ctx, size_t item, uint64_t *unit_length)
{
    const struct engine *e = ctx;
    const struct qp_tensor *source = e->items[item].tensor->source;
    uint64_t n;
    (void)qp_shape_elements(source->shape, source->rank, &n); /* known not to overflow */
    *unit_length = e->job.tile_bytes / sizeof(double) / QP_BLOCK * QP_BLOCK;
    return n;
}

static enum qplan_status see(struct engine *e, const struct qp_flat_unit *unit,
                             const struct buffers *b, struct qplan_error *err)
{
    const struct item *item = &e->items[unit->item];
    const struct qp_tensor *source = item->tensor->source;
    const struct qp_source_kernels *k = qp_source_kernels(dtype_of(item), e->job.run->isa);
    const struct qp_values values = {&e->plan->checkpoint->source, source, e->job.run->isa,
                                     &b->values};
    const size_t n = (size_t)unit->n;
    const struct qp_tile tile = {.rows = 1, .cols = n, .band_rows = 1, .col_width = n};
    void *src = qp_source_room(values.source, source->entry, unit->pos * k->elem_bytes, b->tile);
    double f64[2] = {0, 0};
    float f32[2] = {0, 0};
    const bool is_f64 = k->work->work == QPLAN_F64;
    QP_TRY(qp_values_read(&values, unit->pos, unit->n, src, err));
    if (is_f64)
        (void)k->range(&tile, src, &f64[0], &f64[1]);
    else
        (void)k->range(&tile, src, &f32[0], &f32[1]);
    const double least = is_f64 ? f64[0] : (double)f32[0], most = is_f64 ? f64[1] : (double)f32[1];
    const double size = -least > most ? -least : most;
    (void)pthread_mutex_lock(&e->job.lock);
    if (size > e->most[item->group])
        e->most[item->group] = size;
    (void)pthread_mutex_unlock(&e->job.lock);
    qp_job_advance(&e->job, unit->n * k->elem_bytes);
    return QPLAN_OK;
}

static bool step(struct qp_job *job, void *buffers, struct qplan_error *err)
{
    struct engine *e = (struct engine *)job;
    struct qp_flat_unit unit;
    if (!qp_flat_claim(job, &e->flat, &unit))
        return false;
    if (see(e, &unit, buffers, err) != QPLAN_OK)
        qp_job_fail(job, unit.number, err);
    return true;
}

/* ---- Factors -----------------------------------------------------------------------------------
 */

/*
 * The set with the largest value gets the largest scale of f8e4m3: a factor is that value over 448
 * times the largest size of a code, or one over that. Of zeros alone it is 1. No rounding may make
 * that scale smaller than the set needs. False if that scale is not finite in f32.
 */
static bool factor_of(const struct item *item, double most, float *factor)
{
    struct qp_code_rule rule = qp_code_rule(item->tensor->result.scheme);
    const float all = QP_F8E4M3_MOST * (float)qp_code_top(&rule);
    const struct qp_calibrator *recipe = item->tensor->calibrator;
    double found = 1;
    if (recipe->factor) {
        *factor = recipe->factor(dtype_of(item), (float)most);
        return *factor > 0 && *factor <= FLT_MAX;
    }
    rule.divides = qp_tensor_part(&item->tensor->result, QP_FACTOR)->divides;
    if (most > 0 && dtype_of(item) == QPLAN_F64)
        found = rule.divides ? (double)all / most : most / (double)all;
    else if (most > 0)
        found = (double)(rule.divides ? all / (float)most : (float)most / all);
    if (!rule.divides && found > (double)FLT_MAX)
        return false;
    if (rule.divides && found > MOST_DIVISOR)
        found = MOST_DIVISOR;
    if (!rule.divides && found < LEAST_FACTOR)
        found = LEAST_FACTOR;
    rule.factor = (float)found;
    while ((double)qp_with_factor(&rule, QP_F8E4M3_MOST) * qp_code_end(&rule) < most)
        rule.factor = nextafterf(rule.factor, rule.divides ? 0 : INFINITY);
    *factor = rule.factor;
    return qp_with_factor(&rule, QP_F8E4M3_MOST) <= FLT_MAX;
}

static enum qplan_status fail_factor(const struct item *item, double most, const char *subject,
                                     struct qplan_error *err)
{
    const struct qp_calibrator *calibrator = item->tensor->calibrator;
    if (calibrator->factor)
        qp_fail(err, QPLAN_ERR_VALUE, subject,
                "%s makes no factor of its scales: its values are %s", calibrator->name,
                most > 0 ? "too large or too small" : "all 0");
    else
        qp_fail(err, QPLAN_ERR_VALUE, subject, "the largest of its scales is too large for f32");
    qp_advise(err, QPLAN_ADVICE_EXCLUDE);
    return QPLAN_ERR_VALUE;
}

static enum qplan_status set_factors(const struct engine *e, float *factors,
                                     struct qplan_error *err)
{
    char subject[512];
    for (size_t i = 0; i < e->n_items; i++) {
        const struct item *item = &e->items[i];
        if (factor_of(item, e->most[item->group], &factors[item->tensor - e->plan->tensors]))
            continue;
        (void)qp_checkpoint_subject(subject, e->plan->checkpoint, item->tensor->source);
        return fail_factor(item, e->most[item->group], subject, err);
    }
    return QPLAN_OK;
}

static enum qplan_status run_job(struct engine *e, const struct qplan_run *run,
                                 struct qplan_error *err)
{
    static const struct qp_job_ops ops = {
        .buffers_size = sizeof(struct buffers), .carve = carve, .step = step};
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < e->n_items; i++)
        n_bytes += qp_tensor_bytes(e->items[i].tensor->source);
    e->flat = (struct qp_flat){.ctx = e, .n_items = e->n_items, .length = length};
    return qp_job_run(&e->job, &ops, run, n_bytes, err);
}

/* ---- Tensors -----------------------------------------------------------------------------------
 */

/* Whether the layout wants one factor for a tensor and others, or its recipe has one for them. */
static bool find_kin(const struct qp_plan_tensor *t, struct qp_kin *kin)
{
    const struct qp_kin_names *rows = t->calibrator->kin;
    return rows ? qp_find_kin_by(t->source, rows, kin) : qp_find_joined(t->source, kin);
}

static void add_items(struct engine *e)
{
    const bool shared = e->plan->format && e->plan->format->has_shared_factors;
    for (size_t i = 0; i < e->plan->n_tensors + e->plan->n_seen; i++) {
        const struct qp_plan_tensor *t = &e->plan->tensors[i];
        struct item *item = &e->items[e->n_items];
        if (!qp_is_quantized(t) || !qp_tensor_part(&t->result, QP_FACTOR))
            continue;
        *item = (struct item){.tensor = t, .group = e->n_items++};
        item->is_joined = shared && find_kin(t, &item->kin);
    }
}

/* Behind each other those that share a factor, in the order of the plan. */
static int by_factor(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    const int order = x->is_joined != y->is_joined ? x->is_joined - y->is_joined
                      : x->is_joined               ? qp_compare_kin(&x->kin, &y->kin)
                                                   : 0;
    return order ? order : (x > y) - (x < y);
}

static bool are_joined(const struct item *a, const struct item *b)
{
    return a->is_joined && b->is_joined &&
           a->tensor->calibrator->kin == b->tensor->calibrator->kin &&
           qp_compare_kin(&a->kin, &b->kin) == 0;
}

/* Tools join the members of a family where all of them are there; engines join those that are. */
static bool is_complete(const struct item *first, size_t n)
{
    const struct qp_kin_names *rows = first->tensor->calibrator->kin;
    size_t wanted = 0;
    while (first->is_joined && rows && wanted < QP_MOST_KIN && rows[first->kin.kind].names[wanted])
        wanted++;
    return wanted == 0 || n == wanted;
}

static enum qplan_status join_items(struct engine *e, struct qplan_error *err)
{
    struct item **sorted = qp_alloc(e->n_items, sizeof *sorted);
    if (!sorted)
        return qp_fail_memory(err, "factors", e->n_items * sizeof *sorted);
    for (size_t i = 0; i < e->n_items; i++)
        sorted[i] = &e->items[i];
    qsort(sorted, e->n_items, sizeof *sorted, by_factor);
    for (size_t i = 0, end; i < e->n_items; i = end) {
        for (end = i + 1; end < e->n_items && are_joined(sorted[i], sorted[end]);)
            end++;
        for (size_t k = i; k < end && is_complete(sorted[i], end - i); k++)
            sorted[k]->group = sorted[i]->group;
    }
    qp_free(sorted);
    return QPLAN_OK;
}

static enum qplan_status find(struct engine *e, float **factors, const double *most,
                              const struct qplan_run *run, struct qplan_error *err)
{
    const size_t n = e->plan->n_tensors + e->plan->n_seen;
    add_items(e);
    if (e->n_items == 0)
        return QPLAN_OK;
    *factors = qp_alloc(n, sizeof **factors);
    if (!*factors)
        return qp_fail_memory(err, "factors", n * sizeof **factors);
    QP_TRY(join_items(e, err));
    for (size_t i = 0; most && i < e->n_items; i++) {
        const struct item *item = &e->items[i];
        const double size = most[item->tensor - e->plan->tensors];
        e->most[item->group] = size > e->most[item->group] ? size : e->most[item->group];
    }
    if (!most)
        QP_TRY(run_job(e, run, err));
    return set_factors(e, *factors, err);
}

enum qplan_status qp_find_factors(float **factors, const struct qplan_plan *plan,
                                  const double *most, const struct qplan_run *run,
                                  struct qplan_error *err)
{
    const size_t n = plan->n_tensors + plan->n_seen;
    struct engine *e = qp_alloc(1, sizeof *e);
    *factors = NULL;
    if (!e)
        return qp_fail_memory(err, "factors", sizeof *e);
    e->plan = plan;
    e->items = qp_alloc(n, sizeof *e->items);
    e->most = qp_alloc(n, sizeof *e->most);
    const enum qplan_status status = e->items && e->most
                                         ? find(e, factors, most, run, err)
                                         : qp_fail_memory(err, "factors", n * sizeof *e->items);
    qp_free(e->items);
    qp_free(e->most);
    qp_free(e);
    if (status != QPLAN_OK) {
        qp_free(*factors);
        *factors = NULL;
    }
    return status;
}

enum qplan_status qp_write_factors(const float *factors, const struct qplan_plan *plan,
                                   const struct qp_outs *outs, struct qplan_error *err)
{
    unsigned char bytes[sizeof(float)];
    for (size_t i = 0; factors && i < plan->n_tensors; i++) {
        const struct qp_tensor *t = &plan->tensors[i].result;
        const struct qp_part *part = t->scheme ? qp_tensor_part(t, QP_FACTOR) : NULL;
        if (!part)
            continue;
        qp_store_f32_in_f32(bytes, factors[i]);
        QP_TRY(qp_outs_write(outs, part->entry, 0, bytes, sizeof bytes, err));
    }
    return QPLAN_OK;
}
