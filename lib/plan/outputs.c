/*
 * outputs.c - from decisions to bytes: output tensors, their order and offsets, the metadata
 * and the finished header. So the size of the output is exact before any data is read.
 */
#include "plan.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/json.h"

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

/* Room for the outputs of all tensors, and where those of each begin. */
static enum qplan_status count_outputs(struct qplan_plan *plan, struct qplan_error *err)
{
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        t->n_outputs = t->quantize ? qp_native_count(&t->scheme, plan->zero_point) : 1;
        plan->n_outputs += t->n_outputs;
    }
    plan->outputs = qp_alloc(plan->n_outputs, sizeof *plan->outputs);
    if (!plan->outputs)
        return qp_fail_memory(err, "plan", plan->n_outputs * sizeof *plan->outputs);
    return QPLAN_OK;
}

static enum qplan_status make_outputs(struct qplan_plan *plan, struct qplan_error *err)
{
    struct qplan_entry *outputs;
    QP_TRY(count_outputs(plan, err));
    outputs = plan->outputs;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct qp_plan_tensor *t = &plan->tensors[i];
        t->outputs = outputs;
        outputs += t->n_outputs;
        if (!t->quantize)
            *t->outputs = *t->source;
        else if (!qp_native_outputs(t->source, &t->scheme, plan->zero_point, &plan->labels,
                                    t->outputs))
            return qp_fail_memory(err, "plan", t->source->name_len);
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
    if (!qp_st_find(st, sidecar->data, sidecar->n))
        return QPLAN_OK;
    qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
            "name collision: %s, a sidecar of %s, is already a tensor of the source",
            qp_quote(quoted, sidecar->data, sidecar->n),
            qp_quote(name, source->name, source->name_len));
    qp_advise(err, QPLAN_ADVICE_EXCLUDE_ONE);
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

/* The value of qplan.tensors: a JSON object with a record for each quantized tensor. */
static enum qplan_status put_records(const struct qplan_plan *plan, struct qp_writer *w,
                                     struct qplan_error *err)
{
    struct qp_writer record;
    qp_writer_init(&record);
    qp_json_open(w, '{');
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        char scheme[QPLAN_SCHEME_TEXT];
        if (!t->quantize)
            continue;
        record.n = 0;
        qplan_scheme_format(&t->scheme, scheme);
        qp_native_put_record(&record, t->source, scheme, t->calibrate);
        qp_json_key_n(w, t->source->name, t->source->name_len);
        qp_json_put_string(w, record.data, record.n);
    }
    qp_json_close(w, '}');
    w->error = w->error ? w->error : record.error;
    qp_writer_free(&record);
    return qp_writer_finish(w, "plan", err);
}

static struct qp_st_pair pair_of(const char *key, const char *value, size_t n_value)
{
    return (struct qp_st_pair){key, value, (uint32_t)strlen(key), (uint32_t)n_value};
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
    pairs[n++] = pair_of(QP_NATIVE_TENSORS_KEY, records, n_records);
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

static enum qplan_status make_order(struct qplan_plan *plan, struct qplan_error *err)
{
    plan->order = qp_alloc(plan->n_outputs, sizeof *plan->order);
    if (!plan->order)
        return qp_fail_memory(err, "plan", plan->n_outputs * sizeof *plan->order);
    for (size_t i = 0; i < plan->n_outputs; i++)
        plan->order[i] = &plan->outputs[i];
    plan->header.entries = (const struct qplan_entry *const *)plan->order;
    plan->header.n_entries = plan->n_outputs;
    return qp_st_layout(plan->order, plan->n_outputs, &plan->data_bytes,
                        plan->checkpoint->st.file.shown, err);
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

enum qplan_status qp_plan_layout(struct qplan_plan *plan, struct qplan_error *err)
{
    QP_TRY(make_outputs(plan, err));
    QP_TRY(
        check_collisions(plan, err)); /* it explains two equal names better than the order does */
    QP_TRY(make_order(plan, err));
    QP_TRY(make_metadata(plan, err));
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
