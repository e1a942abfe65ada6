/*
 * plan_layout.c - from decisions to bytes: output tensors, their order and offsets, the metadata
 * and the finished header. So the size of the output is exact before any data is read.
 */
#include "plan.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/json.h"
#include "base/pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void qp_put_stem(struct qp_writer *w, const char *path)
{
    static const char extension[] = ".safetensors";
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    size_t n = strlen(name), n_extension = sizeof extension - 1;
    if (n > n_extension && strcmp(name + n - n_extension, extension) == 0)
        n -= n_extension;
    qp_put(w, name, n);
}

/* ---- Output tensors ----------------------------------------------------------------------------
 */

/* How many outputs each tensor has, and room for all: *second is for the second half of them. */
static enum qplan_status count_outputs(struct qplan_plan *plan, struct qplan_entry **second,
                                       struct qplan_error *err)
{
    size_t n_first = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        if (i == plan->n_tensors / 2)
            n_first = plan->n_outputs;
        t->n_outputs = t->quantize ? qp_native_count(&t->scheme, plan->zero_point) : 1;
        plan->n_outputs += t->n_outputs;
    }
    plan->outputs = qp_alloc(plan->n_outputs, sizeof *plan->outputs);
    if (!plan->outputs)
        return qp_fail_memory(err, "plan", plan->n_outputs * sizeof *plan->outputs);
    *second = plan->outputs + n_first;
    return QPLAN_OK;
}

/* Whether all outputs of one tensor come before those of the next; its sidecars come behind it. */
static bool are_in_order(const struct qp_plan_tensor *a, const struct qp_plan_tensor *b)
{
    return qp_st_before(&a->outputs[a->n_outputs - 1], &b->outputs[0]);
}

/* Those of the tensors from begin to end, one behind the other, and whether their names ascend. */
static enum qplan_status make_outputs(const struct qplan_plan *plan, size_t begin, size_t end,
                                      struct qplan_entry *outputs, struct qp_labels *labels,
                                      bool *ascend, struct qplan_error *err)
{
    *ascend = true;
    for (size_t i = begin; i < end; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        t->outputs = outputs;
        outputs += t->n_outputs;
        if (!t->quantize)
            *t->outputs = *t->source;
        else if (!qp_native_outputs(t->source, &t->scheme, plan->zero_point, labels, t->outputs))
            return qp_fail_memory(err, "plan", t->source->name_len);
        *ascend = *ascend && (i == begin || are_in_order(t - 1, t));
    }
    return QPLAN_OK;
}

static enum qplan_status check_length(const struct qplan_plan *plan,
                                      const struct qplan_entry *source, size_t n,
                                      struct qplan_error *err)
{
    char subject[512];
    if (n <= QP_ST_MAX_NAME)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, qp_st_subject(subject, &plan->checkpoint->st, source),
                   "name too long for its sidecars: expected at most %u bytes, found %zu",
                   QP_ST_MAX_NAME, n);
}

/*
 * A sidecar must not take the name of a tensor that the source has, nor may one that is left out: a
 * reader would take that tensor for it.
 */
static enum qplan_status check_free(const struct qplan_plan *plan, const struct qplan_entry *source,
                                    const struct qp_writer *sidecar, struct qplan_error *err)
{
    const struct qp_st *st = &plan->checkpoint->st;
    char name[QP_QUOTED], quoted[QP_QUOTED];
    if (!qp_st_find_near(st, source, sidecar->data, sidecar->n))
        return QPLAN_OK;
    qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
            "name collision: %s, a sidecar of %s, is already a tensor of the source",
            qp_quote(quoted, sidecar->data, sidecar->n),
            qp_quote(name, source->name, source->name_len));
    qp_hint(err, "--exclude keeps one of them as it is");
    return QPLAN_ERR_INVALID;
}

/* The sidecars of one tensor; scratch is for their names. */
static enum qplan_status check_sidecars(const struct qplan_plan *plan,
                                        const struct qplan_entry *source, bool may_collide,
                                        struct qp_writer *scratch, struct qplan_error *err)
{
    for (unsigned part = QP_SCALE; part < QP_NATIVE_PARTS; part++) {
        QP_TRY(check_length(plan, source, qp_native_name_bytes(source, (enum qp_native_part)part),
                            err));
        if (!may_collide)
            continue;
        scratch->n = 0;
        qp_native_put_name(scratch, source, (enum qp_native_part)part);
        QP_TRY(qp_writer_finish(scratch, "plan", err));
        QP_TRY(check_free(plan, source, scratch, err));
    }
    return QPLAN_OK;
}

/* Most sources have no tensor that ends like a sidecar: then no name needs to be looked for. */
static bool has_sidecar_names(const struct qp_st *st)
{
    for (size_t i = 0; i < st->n_entries; i++) {
        if (qp_native_is_sidecar_name(st->entries[i].name, st->entries[i].name_len))
            return true;
    }
    return false;
}

static enum qplan_status check_collisions(const struct qplan_plan *plan, struct qplan_error *err)
{
    const bool may_collide = has_sidecar_names(&plan->checkpoint->st);
    struct qp_writer scratch;
    enum qplan_status status = QPLAN_OK;
    qp_writer_init(&scratch);
    for (size_t i = 0; status == QPLAN_OK && i < plan->n_tensors; i++) {
        if (plan->tensors[i].quantize)
            status = check_sidecars(plan, plan->tensors[i].source, may_collide, &scratch, err);
    }
    qp_writer_free(&scratch);
    return status;
}

/* ---- Metadata ----------------------------------------------------------------------------------
 */

bool qp_plan_alike(const struct qp_plan_tensor *a, const struct qp_plan_tensor *b)
{
    return a->quantize && b->quantize && a->source->storage == b->source->storage &&
           a->calibrate == b->calibrate &&
           qp_same_shape(a->source->shape, a->source->rank, b->source->shape, b->source->rank) &&
           qp_scheme_equal(&a->scheme, &b->scheme);
}

/* A quote of JSON inside a JSON string. */
#define QUOTE "\\\""

/* The end of a member of qplan.tensors, behind its name; no word of a record needs an escape. */
static void make_record(struct qp_writer *record, const struct qp_plan_tensor *t)
{
    char scheme[QPLAN_SCHEME_TEXT];
    record->n = 0;
    qplan_scheme_format(&t->scheme, scheme);
    qp_puts(record, QUOTE ":" QUOTE);
    qp_native_put_record(record, t->source, scheme, t->calibrate);
    qp_puts(record, QUOTE);
}

/* A name as JSON inside a JSON string. */
static void put_name(struct qp_writer *w, const struct qplan_entry *entry, bool plain)
{
    struct qp_writer once;
    if (plain) {
        qp_put(w, entry->name, entry->name_len);
        return;
    }
    qp_writer_init(&once);
    qp_json_escape(&once, entry->name, entry->name_len);
    qp_json_escape(w, once.data, once.n);
    w->error = w->error ? w->error : once.error;
    qp_writer_free(&once);
}

/*
 * The value of qplan.tensors, a JSON object, as a JSON string: there may be very many members, and
 * so they get their form here and not when the header is written.
 */
static enum qplan_status put_records(const struct qplan_plan *plan, struct qp_writer *w,
                                     struct qplan_error *err)
{
    const struct qp_plan_tensor *last = NULL; /* whose record that is: most are alike */
    struct qp_writer record;
    qp_writer_init(&record);
    qp_puts(w, "\"{");
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (!t->quantize)
            continue;
        qp_puts(w, last ? "," QUOTE : QUOTE);
        put_name(w, t->source, plan->checkpoint->st.plain_names);
        if (!last || !qp_plan_alike(last, t))
            make_record(&record, t);
        qp_put(w, record.data, record.n);
        last = t;
    }
    qp_puts(w, "}\"");
    w->error = w->error ? w->error : record.error;
    qp_writer_free(&record);
    return qp_writer_finish(w, "plan", err);
}

static struct qp_st_pair pair_of(const char *key, const char *value, size_t n_value)
{
    return (struct qp_st_pair){key, value, (uint32_t)strlen(key), (uint32_t)n_value, false};
}

static int by_key(const void *a, const void *b)
{
    const struct qp_st_pair *x = a, *y = b;
    size_t n = x->key_len < y->key_len ? x->key_len : y->key_len;
    int order = memcmp(x->key, y->key, n);
    return order ? order : (x->key_len > y->key_len) - (x->key_len < y->key_len);
}

/* The source's pairs without ours, then ours, in key order. pairs has room for 4 more. */
static size_t join_metadata(const struct qp_st *st, const char *records, size_t n_records,
                            struct qp_st_pair *pairs)
{
    size_t n = 0;
    for (size_t i = 0; i < st->n_metadata; i++) {
        const struct qp_st_pair *pair = &st->metadata[i];
        if (!qp_native_owns_key(pair->key) && strcmp(pair->key, "format") != 0)
            pairs[n++] = *pair;
    }
    pairs[n++] = pair_of("format", "pt", 2);
    pairs[n++] = pair_of(QP_NATIVE_LAYOUT_KEY, QP_NATIVE_LAYOUT, strlen(QP_NATIVE_LAYOUT));
    pairs[n++] = pair_of(QP_NATIVE_NUMERICS_KEY, QP_NATIVE_NUMERICS, strlen(QP_NATIVE_NUMERICS));
    pairs[n] = pair_of(QP_NATIVE_TENSORS_KEY, records, n_records);
    pairs[n++].is_json = true;
    qsort(pairs, n, sizeof *pairs, by_key);
    return n;
}

static enum qplan_status make_metadata(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_st *st = &plan->checkpoint->st;
    struct qp_writer records;
    qp_writer_init(&records);
    enum qplan_status status = put_records(plan, &records, err);
    plan->records = records.data;
    QP_TRY(status);
    plan->metadata = qp_alloc(st->n_metadata + 4, sizeof *plan->metadata);
    if (!plan->metadata)
        return qp_fail_memory(err, "plan", st->n_metadata * sizeof *plan->metadata);
    plan->header.n_metadata = join_metadata(st, plan->records, records.n, plan->metadata);
    plan->header.metadata = plan->metadata;
    return QPLAN_OK;
}

/* ---- The header --------------------------------------------------------------------------------
 */

static enum qplan_status make_order(struct qplan_plan *plan, bool ascend, struct qplan_error *err)
{
    const char *subject = plan->checkpoint->st.file.shown;
    plan->order = qp_alloc(plan->n_outputs, sizeof *plan->order);
    if (!plan->order)
        return qp_fail_memory(err, "plan", plan->n_outputs * sizeof *plan->order);
    plan->header.entries = (const struct qplan_entry *const *)plan->order;
    plan->header.n_entries = plan->n_outputs;
    plan->header.plain_names = plan->checkpoint->st.plain_names; /* suffixes are plain too */
    if (ascend)
        return qp_st_layout_sorted(plan->outputs, plan->n_outputs, plan->order, &plan->data_bytes,
                                   subject, err);
    for (size_t i = 0; i < plan->n_outputs; i++)
        plan->order[i] = &plan->outputs[i];
    return qp_st_layout(plan->order, plan->n_outputs, &plan->data_bytes, subject, err);
}

/* A layout in steps that do not depend on each other, but for the order of what two have made. */
struct layout {
    struct qplan_plan *plan;
    struct qplan_entry *outputs[2]; /* where those of each half of the tensors go */
    atomic_uint n_made;             /* halves */
    bool ascend[2];                 /* the names in each */
};

static enum qplan_status metadata_step(void *ctx, struct qplan_error *err)
{
    const struct layout *l = ctx;
    QP_TRY(check_collisions(l->plan, err));
    return make_metadata(l->plan, err);
}

/* One half of the outputs; and whoever makes the last one goes on with their order. */
static enum qplan_status outputs_step(struct layout *l, unsigned half, struct qplan_error *err)
{
    struct qplan_plan *plan = l->plan;
    const size_t n = plan->n_tensors, begin = half ? n / 2 : 0, end = half ? n : n / 2;
    QP_TRY(make_outputs(plan, begin, end, l->outputs[half], &plan->labels[half], &l->ascend[half],
                        err));
    if (atomic_fetch_add(&l->n_made, 1) == 0)
        return QPLAN_OK;
    const struct qp_plan_tensor *middle = &plan->tensors[n / 2];
    const bool ascend = l->ascend[0] && l->ascend[1] && (n < 2 || are_in_order(middle - 1, middle));
    return make_order(plan, ascend, err);
}

static enum qplan_status first_step(void *ctx, struct qplan_error *err)
{
    return outputs_step(ctx, 0, err);
}

static enum qplan_status second_step(void *ctx, struct qplan_error *err)
{
    return outputs_step(ctx, 1, err);
}

/* With fewer tensors a second thread costs more than it saves. */
#define MANY_TENSORS 4096

/* A fault of a name explains one of the order, so it is the one to tell: it comes last. */
static enum qplan_status lay_out(struct qplan_plan *plan, unsigned threads, struct qplan_error *err)
{
    static const qp_step_fn steps[] = {first_step, second_step, metadata_step};
    struct layout l = {.plan = plan};
    QP_TRY(count_outputs(plan, &l.outputs[1], err));
    l.outputs[0] = plan->outputs;
    atomic_init(&l.n_made, 0);
    return qp_steps_run(plan->n_tensors < MANY_TENSORS ? 1 : threads, steps, 3, &l, err);
}

static enum qplan_status measure_header(struct qplan_plan *plan, struct qplan_error *err)
{
    char shown[512];
    (void)qp_escape(shown, sizeof shown, plan->output_name, strlen(plan->output_name));
    QP_TRY(qp_st_measure_header(&plan->header, shown, err));
    plan->header_bytes = plan->header.n_bytes;
    return QPLAN_OK;
}

/* ---- Warnings ----------------------------------------------------------------------------------
 */

static enum qplan_status add_warnings(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_st *st = &plan->checkpoint->st;
    if (plan->n_quantized == 0)
        QP_TRY(qp_warn(&plan->warnings, &plan->arena, "nothing-quantized", st->file.path,
                       "no tensor is quantized: the output is a copy", err));
    if (plan->header_bytes - 8 > QP_ST_WARN_HEADER)
        QP_TRY(qp_warn(
            &plan->warnings, &plan->arena, "header-over-25MB", st->file.path,
            "the header of the output passes 25,000,000 bytes, which some readers refuse", err));
    return QPLAN_OK;
}

enum qplan_status qp_plan_layout(struct qplan_plan *plan, unsigned threads, struct qplan_error *err)
{
    QP_TRY(lay_out(plan, threads, err));
    QP_TRY(measure_header(plan, err));
    return add_warnings(plan, err);
}

/* ---- What a plan says --------------------------------------------------------------------------
 */

const char *qplan_plan_output_name(const struct qplan_plan *plan)
{
    return plan->output_name;
}

uint64_t qplan_plan_output_bytes(const struct qplan_plan *plan)
{
    return plan->header_bytes + plan->data_bytes;
}

size_t qplan_plan_warning_count(const struct qplan_plan *plan)
{
    return plan->warnings.n;
}

const char *qplan_plan_warning(const struct qplan_plan *plan, size_t i)
{
    return i < plan->warnings.n ? plan->warnings.list[i].text : NULL;
}
