/*
 * plan_read.c - the plan as a document, reading side: what its values mean. Those are in
 * plan_tree.c.
 *
 * What a person may edit (action, scheme, calibrate) is taken; everything else must agree with the
 * checkpoint and with what the library computes.
 */
#include "plan.h"
#include "plan_tree.h"
#include "words.h"

#include "lib/base/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_KEYS QP_PLAN_MAX_KEYS

struct reader {
    struct qp_plan_tree tree;
    struct qplan_plan *plan;
    bool *seen; /* by tensor */
};

/* ---- One tensor --------------------------------------------------------------------------------
 */

enum {
    T_NAME,
    T_FILE,
    T_DTYPE,
    T_SHAPE,
    T_ACTION,
    T_SCHEME,
    T_CALIBRATE,
    T_RULE,
    T_REASON,
    T_OUTPUTS
};
static const char *const tensor_keys[] = {"name",   "file",    "dtype",     "shape",
                                          "action", "scheme",  "calibrate", "rule",
                                          "reason", "outputs", NULL};

static enum qplan_status mismatch(const struct reader *r, const struct qp_tensor *t,
                                  const char *what, const struct qp_plan_value *expected,
                                  const char *found)
{
    char subject[512], planned[QP_QUOTED];
    (void)qp_checkpoint_subject(subject, r->plan->checkpoint, t);
    return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
                   "the plan is for another checkpoint: %s of %s differs: expected %s, found %s",
                   what, subject, qp_plan_show(planned, &r->tree, expected), found);
}

static enum qplan_status find_tensor(const struct reader *r, const struct qp_plan_value *const *m,
                                     struct qp_plan_tensor **out)
{
    const struct qplan_plan *plan = r->plan;
    const char *name = qp_plan_text(&r->tree, m[T_NAME]);
    if (!name)
        return qp_plan_bad(&r->tree, "tensors", "a name for each", NULL);
    const struct qp_tensor *found = qp_checkpoint_find(plan->checkpoint, name, strlen(name));
    if (!found)
        return qp_plan_bad(&r->tree, "the plan is for another checkpoint",
                           "only tensors that it has", name);
    size_t i = (size_t)(found - plan->checkpoint->tensors);
    if (r->seen[i])
        return qp_plan_bad(&r->tree, "tensors", "each tensor once", name);
    r->seen[i] = true;
    *out = &plan->tensors[i];
    return QPLAN_OK;
}

static enum qplan_status check_tensor(const struct reader *r, const struct qp_plan_value *const *m,
                                      const struct qp_tensor *t)
{
    const char *dtype = qplan_storage_name((enum qplan_storage)t->storage);
    const unsigned file = t->entry->file;
    char shape[256], number[16];
    (void)snprintf(number, sizeof number, "%u", file);
    if (m[T_FILE] && !qp_plan_is_number(m[T_FILE], file))
        return mismatch(r, t, "file", m[T_FILE], number);
    if (!qp_plan_is_string(&r->tree, m[T_DTYPE], dtype))
        return mismatch(r, t, "dtype", m[T_DTYPE], dtype);
    if (!qp_plan_is_shape(m[T_SHAPE], t->shape, t->rank))
        return mismatch(r, t, "shape", m[T_SHAPE],
                        qp_format_list(shape, sizeof shape, t->shape, t->rank));
    return QPLAN_OK;
}

static enum qplan_status read_scheme(const struct reader *r, const struct qp_plan_value *value,
                                     struct qp_plan_tensor *t)
{
    const char *text = qp_plan_text(&r->tree, value), *unfit = qp_unquantizable(t->source);
    struct qplan_scheme scheme;
    struct qplan_error detail;
    char where[QP_QUOTED];
    (void)qp_quote(where, t->source->name, t->source->name_len);
    if (unfit)
        return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
                       "%s cannot be quantized: %s (%s)", where, unfit,
                       qplan_storage_name((enum qplan_storage)t->source->storage));
    if (!text)
        return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
                       "%s: action quantize needs a scheme, for example \"int8:c0\"", where);
    if (qplan_scheme_parse(&scheme, text, &detail) != QPLAN_OK)
        return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name, "%s: %s: %s", where,
                       detail.subject, detail.message);
    return qp_plan_set_scheme(r->plan, t, &scheme, r->tree.err);
}

static enum qplan_status read_calibrator(const struct reader *r, const struct qp_plan_value *value,
                                         struct qp_plan_tensor *t)
{
    const char *name = qp_plan_text(&r->tree, value);
    if (!qp_plan_may_be_text(value))
        return qp_plan_bad(&r->tree, "calibrate", "a name", NULL);
    t->calibrator = qp_calibrator_find(name ? name : "minmax");
    return t->calibrator ? QPLAN_OK
                         : qp_fail_name(r->tree.err, QPLAN_ERR_INVALID, r->tree.name, "calibrate",
                                        name, qplan_calibrator_name);
}

/* Reasons are for people: one that does not fit an edited action any more is replaced. */
static const char *known_reason(const char *text)
{
    for (size_t i = 0; text && qp_reasons[i]; i++) {
        if (strcmp(qp_reasons[i], text) == 0)
            return qp_reasons[i];
    }
    return "rule keep";
}

static enum qplan_status read_tensor(const struct reader *r, const struct qp_plan_value *value)
{
    static const char *const actions[] = {"keep", "quantize", NULL};
    const struct qp_plan_value *m[MAX_KEYS] = {NULL};
    struct qp_plan_tensor *t = NULL;
    int quantize;
    QP_TRY(qp_plan_members(&r->tree, value, "tensors", tensor_keys, m));
    QP_TRY(find_tensor(r, m, &t));
    QP_TRY(check_tensor(r, m, t->source));
    QP_TRY(qp_plan_word(&r->tree, m[T_ACTION], "action", actions, &quantize));
    if (!qp_plan_may_be_text(m[T_RULE]) || !qp_plan_may_be_text(m[T_REASON]))
        return qp_plan_bad(&r->tree, "rule and reason", "text or null", NULL);
    const char *rule = qp_plan_text(&r->tree, m[T_RULE]);
    if (rule)
        t->rule = qp_arena_join(&r->plan->arena, rule, strlen(rule), "");
    if (!quantize) {
        t->reason = known_reason(qp_plan_text(&r->tree, m[T_REASON]));
        return QPLAN_OK;
    }
    QP_TRY(read_scheme(r, m[T_SCHEME], t));
    return read_calibrator(r, m[T_CALIBRATE], t);
}

static enum qplan_status read_tensors(const struct reader *r, const struct qp_plan_value *tensors)
{
    char quoted[QP_QUOTED];
    if (!qp_plan_is_array(tensors))
        return qp_plan_bad(&r->tree, "tensors", "an array", NULL);
    const struct qp_plan_value *value = qp_plan_first(tensors);
    for (uint32_t i = 0; i < tensors->n; i++, value = qp_plan_next(value))
        QP_TRY(read_tensor(r, value));
    for (size_t i = 0; i < r->plan->n_tensors; i++) {
        const struct qp_tensor *t = r->plan->tensors[i].source;
        if (!r->seen[i])
            return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
                           "the plan is for another checkpoint: tensor %s is missing in it",
                           qp_quote(quoted, t->name, t->name_len));
    }
    return QPLAN_OK;
}

/* ---- What must agree after the layout ----------------------------------------------------------
 */

static enum qplan_status stale(const struct reader *r, const char *what)
{
    qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
            "%s in the plan is not what its actions and schemes give", what);
    qp_hint(r->tree.err,
            "after an edit drop what is computed: jq 'del(.output, .tensors[].outputs)'");
    return QPLAN_ERR_INVALID;
}

static enum qplan_status check_output_tensor(const struct reader *r,
                                             const struct qp_plan_value *value,
                                             const struct qplan_entry *entry)
{
    static const char *const keys[] = {"name", "file", "dtype", "shape", "begin", "end", NULL};
    const char *dtype = qplan_storage_name((enum qplan_storage)entry->storage);
    const struct qp_plan_value *m[MAX_KEYS] = {NULL};
    QP_TRY(qp_plan_members(&r->tree, value, "outputs", keys, m));
    bool same = qp_plan_is_string(&r->tree, m[0], entry->name) &&
                qp_plan_is_number(m[1], entry->file) && qp_plan_is_string(&r->tree, m[2], dtype) &&
                qp_plan_is_shape(m[3], entry->shape, entry->rank) &&
                qp_plan_is_number(m[4], entry->begin) && qp_plan_is_number(m[5], entry->end);
    return same ? QPLAN_OK : stale(r, "an output tensor");
}

/* The outputs of one tensor, which read_tensor has found. */
static enum qplan_status check_outputs_of(const struct reader *r,
                                          const struct qp_plan_value *tensor)
{
    const struct qp_plan_value *outputs = qp_plan_member(&r->tree, tensor, "outputs");
    const char *name = qp_plan_text(&r->tree, qp_plan_member(&r->tree, tensor, "name"));
    const struct qplan_checkpoint *checkpoint = r->plan->checkpoint;
    if (!outputs)
        return QPLAN_OK;
    const struct qp_tensor *source = qp_checkpoint_find(checkpoint, name, strlen(name));
    const struct qp_tensor *result = &r->plan->tensors[source - checkpoint->tensors].result;
    const unsigned n = result->scheme ? result->n_parts : 1;
    if (!qp_plan_is_array(outputs) || outputs->n != n)
        return stale(r, "the number of output tensors");
    const struct qp_plan_value *output = qp_plan_first(outputs);
    for (unsigned i = 0; i < n; i++, output = qp_plan_next(output))
        QP_TRY(check_output_tensor(r, output,
                                   result->scheme ? result->parts[i].entry : result->entry));
    return QPLAN_OK;
}

static enum qplan_status check_outputs(const struct reader *r, const struct qp_plan_value *tensors)
{
    const struct qp_plan_value *tensor = qp_plan_first(tensors);
    for (uint32_t i = 0; i < tensors->n; i++, tensor = qp_plan_next(tensor))
        QP_TRY(check_outputs_of(r, tensor));
    return QPLAN_OK;
}

static void put_file_count(char out[32], size_t n)
{
    if (n == 1)
        (void)snprintf(out, 32, "one file");
    else
        (void)snprintf(out, 32, "%zu files", n);
}

enum { O_FILE, O_BYTES, O_HEADER };

/* The files of .output, as many as the source has, and the bytes of all. */
static enum qplan_status output_files(const struct reader *r, const struct qp_plan_value *output,
                                      const struct qp_plan_value **files,
                                      const struct qp_plan_value **total)
{
    static const char *const keys[] = {"files", "bytes", NULL};
    const struct qp_plan_value *o[MAX_KEYS] = {NULL};
    char expected[32];
    const size_t n = r->plan->checkpoint->source.listing.n_files;
    QP_TRY(qp_plan_members(&r->tree, output, "output", keys, o));
    *files = o[0];
    *total = o[1];
    put_file_count(expected, n);
    return qp_plan_is_array(o[0]) && o[0]->n == n
               ? QPLAN_OK
               : qp_plan_bad(&r->tree, "output.files", expected, NULL);
}

/* The members of one of them; those that are absent stay NULL. */
static enum qplan_status output_file(const struct reader *r, const struct qp_plan_value *file,
                                     const struct qp_plan_value **m)
{
    static const char *const keys[] = {"file", "bytes", "header_bytes", NULL};
    return qp_plan_members(&r->tree, file, "output.files", keys, m);
}

static char *default_name(struct qplan_plan *plan)
{
    const struct qp_source *source = &plan->checkpoint->source;
    struct qp_writer w;
    qp_writer_init(&w);
    qp_put_stem(&w, source);
    qp_puts(&w, source->is_folder ? "-quantized" : ".quantized" QP_CHECKPOINT_SUFFIX);
    char *name = w.error ? NULL : qp_arena_join(&plan->arena, w.data, w.n, "");
    qp_writer_free(&w);
    return name;
}

/* The name of a file is that in the plan, if it has one; the shards of a folder have their own. */
static enum qplan_status read_output_name(const struct reader *r,
                                          const struct qp_plan_value *output)
{
    struct qplan_plan *plan = r->plan;
    const struct qp_plan_value *m[MAX_KEYS] = {NULL}, *files, *total;
    const char *name = NULL;
    if (output && !plan->checkpoint->source.is_folder) {
        QP_TRY(output_files(r, output, &files, &total));
        QP_TRY(output_file(r, qp_plan_first(files), m));
        name = qp_plan_text(&r->tree, m[O_FILE]);
    }
    if (m[O_FILE] &&
        (!name || !*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
        return qp_plan_bad(&r->tree, "output.files[0].file", "a bare file name", name);
    plan->output_name =
        name ? qp_arena_join(&plan->arena, name, strlen(name), "") : default_name(plan);
    return plan->output_name ? QPLAN_OK : qp_fail_memory(r->tree.err, r->tree.name, 0);
}

static enum qplan_status check_output_file(const struct reader *r, const struct qp_plan_value *file,
                                           size_t i)
{
    const struct qp_news *news = &r->plan->news;
    const struct qp_st_new *made = &news->files[i];
    const struct qp_plan_value *m[MAX_KEYS] = {NULL};
    QP_TRY(output_file(r, file, m));
    if (m[O_FILE] && !qp_plan_is_string(&r->tree, m[O_FILE], news->names[i]))
        return stale(r, "the name of a file of the output");
    if ((m[O_BYTES] && !qp_plan_is_number(m[O_BYTES], made->header_bytes + made->data_bytes)) ||
        (m[O_HEADER] && !qp_plan_is_number(m[O_HEADER], made->header_bytes)))
        return stale(r, "the size of the output");
    return QPLAN_OK;
}

static enum qplan_status check_output(const struct reader *r, const struct qp_plan_value *output)
{
    const struct qp_plan_value *files, *total;
    if (!output)
        return QPLAN_OK;
    QP_TRY(output_files(r, output, &files, &total));
    const struct qp_plan_value *file = qp_plan_first(files);
    for (uint32_t i = 0; i < files->n; i++, file = qp_plan_next(file))
        QP_TRY(check_output_file(r, file, i));
    return !total || qp_plan_is_number(total, qplan_plan_output_bytes(r->plan))
               ? QPLAN_OK
               : stale(r, "the size of the output");
}

/* ---- The document ------------------------------------------------------------------------------
 */

enum {
    P_SCHEMA,
    P_NUMERICS,
    P_FORMAT,
    P_NONFINITE,
    P_INDIVISIBLE,
    P_ZERO,
    P_SOURCE,
    P_OUTPUT,
    P_TENSORS
};
static const char *const plan_keys[] = {"schema",      "numerics",   "format", "nonfinite",
                                        "indivisible", "zero_point", "source", "output",
                                        "tensors",     NULL};

/* The files of the source, in their order: their sizes tell another checkpoint. */
static enum qplan_status check_source(const struct reader *r, const struct qp_plan_value *source)
{
    static const char *const keys[] = {"file", "bytes", NULL};
    const struct qp_source *here = &r->plan->checkpoint->source;
    char expected[32];
    const size_t n = here->listing.n_files;
    put_file_count(expected, n);
    if (!qp_plan_is_array(source) || source->n != n)
        return qp_plan_bad(&r->tree, "source", expected, NULL);
    const struct qp_plan_value *value = qp_plan_first(source);
    for (size_t i = 0; i < n; i++, value = qp_plan_next(value)) {
        const struct qp_file *file = &here->files[i].file;
        const struct qp_plan_value *m[MAX_KEYS] = {NULL};
        QP_TRY(qp_plan_members(&r->tree, value, "source", keys, m));
        if (!qp_plan_is_number(m[1], file->size))
            return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
                           "the plan is for another checkpoint: expected %" PRIu64
                           " bytes, found %" PRIu64 " in %s",
                           qp_plan_number(m[1]), file->size, file->shown);
    }
    return QPLAN_OK;
}

static enum qplan_status read_settings(const struct reader *r, const struct qp_plan_value *const *m)
{
    const struct qp_plan_tree *tree = &r->tree;
    int nonfinite, indivisible, zero_point;
    if (!qp_plan_is_string(tree, m[P_SCHEMA], QP_PLAN_SCHEMA))
        return qp_plan_bad(tree, "schema", QP_PLAN_SCHEMA, qp_plan_text(tree, m[P_SCHEMA]));
    if (!qp_plan_is_number(m[P_NUMERICS], QPLAN_NUMERICS))
        return qp_plan_bad(tree, "numerics", "1", NULL);
    const char *format = qp_plan_text(tree, m[P_FORMAT]);
    r->plan->format = format ? qp_format_find(format) : NULL;
    if (!r->plan->format)
        return qp_fail_name(tree->err, QPLAN_ERR_INVALID, tree->name, "format", format,
                            qplan_format_name);
    QP_TRY(qp_plan_word(tree, m[P_NONFINITE], "nonfinite", qp_nonfinite_words, &nonfinite));
    QP_TRY(qp_plan_word(tree, m[P_INDIVISIBLE], "indivisible", qp_indivisible_words, &indivisible));
    QP_TRY(qp_plan_word(tree, m[P_ZERO], "zero_point", qp_zero_point_words, &zero_point));
    r->plan->nonfinite = (enum qplan_nonfinite)nonfinite;
    r->plan->indivisible = (enum qplan_indivisible)indivisible;
    r->plan->options.zero_point = (enum qplan_zero_point)zero_point;
    return QPLAN_OK;
}

static enum qplan_status read_document(const struct reader *r)
{
    const struct qp_plan_value *m[MAX_KEYS] = {NULL};
    QP_TRY(qp_plan_members(&r->tree, r->tree.values, "the plan", plan_keys, m));
    QP_TRY(read_settings(r, m));
    QP_TRY(check_source(r, m[P_SOURCE]));
    QP_TRY(read_tensors(r, m[P_TENSORS]));
    QP_TRY(read_output_name(r, m[P_OUTPUT]));
    QP_TRY(qp_plan_check(r->plan, r->tree.err));
    QP_TRY(qp_side_find(&r->plan->side, &r->plan->checkpoint->source, NULL, 0, &r->plan->arena,
                        r->tree.err));
    QP_TRY(qp_plan_layout(r->plan, r->tree.err));
    QP_TRY(check_output(r, m[P_OUTPUT]));
    return check_outputs(r, m[P_TENSORS]);
}

enum qplan_status qplan_plan_read(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint, const char *name,
                                  const char *text, size_t n_bytes, struct qplan_error *err)
{
    char shown[512];
    struct reader r = {
        .tree = {.name = qp_escape(shown, sizeof shown, name, strlen(name)), .err = err}};
    *out = NULL;
    QP_TRY(qp_plan_check_source(checkpoint, err));
    QP_TRY(qp_plan_new(&r.plan, checkpoint, err));
    r.seen = qp_alloc(r.plan->n_tensors, sizeof *r.seen);
    enum qplan_status status = QPLAN_OK;
    if (!r.seen)
        status = qp_fail_memory(err, r.tree.name, r.plan->n_tensors);
    if (status == QPLAN_OK)
        status = qp_plan_tree_read(&r.tree, text, n_bytes);
    if (status == QPLAN_OK)
        status = read_document(&r);
    qp_plan_tree_free(&r.tree);
    qp_free(r.seen);
    if (status != QPLAN_OK) {
        qplan_plan_free(r.plan);
        return status;
    }
    *out = r.plan;
    return QPLAN_OK;
}
