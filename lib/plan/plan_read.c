/*
 * plan_read.c - the plan as a document, reading side: what its values mean. Those are in
 * json_tree.c.
 *
 * What a person may edit (action, scheme, calibrate) is taken; everything else must agree with the
 * checkpoint and with what the library computes.
 */
#include "lib/base/json_tree.h"
#include "plan.h"
#include "words.h"

#include "lib/base/alloc.h"
#include "lib/base/glob.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_KEYS       QP_TREE_MAX_KEYS
#define LONGEST_REASON 80

struct reader {
    const struct qplan_document *document;
    struct qp_tree tree;
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
                                  const char *what, const struct qp_tree_value *expected,
                                  const char *found)
{
    char subject[512], planned[QP_QUOTED];
    (void)qp_checkpoint_subject(subject, r->plan->checkpoint, t);
    return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
                   "the plan is for another checkpoint: %s of %s differs: expected %s, found %s",
                   what, subject, qp_tree_show(planned, &r->tree, expected), found);
}

static enum qplan_status find_tensor(const struct reader *r, const struct qp_tree_value *const *m,
                                     struct qp_plan_tensor **out)
{
    const struct qplan_plan *plan = r->plan;
    const char *name = qp_tree_text(&r->tree, m[T_NAME]);
    if (!name)
        return qp_tree_bad(&r->tree, "tensors", "a name for each", NULL);
    struct qp_plan_tensor *found = qp_plan_find(plan, name, strlen(name));
    if (!found)
        return qp_tree_bad(&r->tree, "the plan is for another checkpoint",
                           "only tensors that it has", name);
    bool *seen = &r->seen[found - plan->tensors];
    if (*seen)
        return qp_tree_bad(&r->tree, "tensors", "each tensor once", name);
    *seen = true;
    *out = found;
    return QPLAN_OK;
}

static enum qplan_status check_tensor(const struct reader *r, const struct qp_tree_value *const *m,
                                      const struct qp_tensor *t)
{
    const char *dtype = qplan_storage_name((enum qplan_storage)t->storage);
    const unsigned file = t->entry->file;
    char shape[256], number[16];
    (void)snprintf(number, sizeof number, "%u", file);
    if (m[T_FILE] && !qp_tree_is_number(m[T_FILE], file))
        return mismatch(r, t, "file", m[T_FILE], number);
    if (!qp_tree_is_string(&r->tree, m[T_DTYPE], dtype))
        return mismatch(r, t, "dtype", m[T_DTYPE], dtype);
    if (!qp_tree_is_shape(m[T_SHAPE], t->shape, t->rank))
        return mismatch(r, t, "shape", m[T_SHAPE],
                        qp_format_list(shape, sizeof shape, t->shape, t->rank));
    return QPLAN_OK;
}

static enum qplan_status read_scheme(const struct reader *r, const struct qp_tree_value *value,
                                     struct qp_plan_tensor *t)
{
    const char *text = qp_tree_text(&r->tree, value), *unfit = qp_unquantizable(t->source);
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

static enum qplan_status read_calibrator(const struct reader *r, const struct qp_tree_value *value,
                                         struct qp_plan_tensor *t)
{
    const char *name = qp_tree_text(&r->tree, value);
    if (!qp_tree_may_be_text(value))
        return qp_tree_bad(&r->tree, "calibrate", "a name", NULL);
    if (!r->plan->last_calibrator ||
        strcmp(name ? name : "minmax", r->plan->last_calibrator->name) != 0)
        QP_TRY(qp_calibrator_make(name ? name : "minmax", &r->plan->arena,
                                  &r->plan->last_calibrator, r->tree.err));
    t->calibrator = r->plan->last_calibrator;
    return t->calibrator ? QPLAN_OK
                         : qp_fail_name(r->tree.err, QPLAN_ERR_INVALID, r->tree.name, "calibrate",
                                        name, qplan_calibrator_name);
}

/* Whether a reason can be shown as it is: one line of plain text, as every reason of ours. */
static bool is_reason(const char *text)
{
    size_t n = 0;
    while (text && text[n] >= ' ' && text[n] <= '~')
        n++;
    return n > 0 && n <= LONGEST_REASON && !text[n];
}

/* A text of the document, for as long as the plan lives; NULL stays NULL. */
static enum qplan_status copy_text(const struct reader *r, const char *text, const char **out)
{
    *out = text ? qp_arena_join(&r->plan->arena, text, strlen(text), "") : NULL;
    return *out || !text ? QPLAN_OK : qp_fail_memory(r->tree.err, r->tree.name, strlen(text));
}

static enum qplan_status read_tensor(const struct reader *r, const struct qp_tree_value *value)
{
    static const char *const actions[] = {"keep", "quantize", NULL};
    const struct qp_tree_value *m[MAX_KEYS] = {NULL};
    struct qp_plan_tensor *t = NULL;
    int quantize;
    QP_TRY(qp_tree_members(&r->tree, value, "tensors", tensor_keys, m));
    QP_TRY(find_tensor(r, m, &t));
    QP_TRY(check_tensor(r, m, t->source));
    QP_TRY(qp_tree_word(&r->tree, m[T_ACTION], "action", actions, &quantize));
    if (!qp_tree_may_be_text(m[T_RULE]) || !qp_tree_may_be_text(m[T_REASON]))
        return qp_tree_bad(&r->tree, "rule and reason", "text or null", NULL);
    QP_TRY(copy_text(r, qp_tree_text(&r->tree, m[T_RULE]), &t->rule));
    if (!quantize) {
        const char *reason = qp_tree_text(&r->tree, m[T_REASON]);
        return copy_text(r, is_reason(reason) ? reason : "rule keep", &t->reason);
    }
    QP_TRY(read_scheme(r, m[T_SCHEME], t));
    return read_calibrator(r, m[T_CALIBRATE], t);
}

static enum qplan_status read_tensors(const struct reader *r, const struct qp_tree_value *tensors)
{
    char quoted[QP_QUOTED];
    if (!qp_tree_is_array(tensors))
        return qp_tree_bad(&r->tree, "tensors", "an array", NULL);
    const struct qp_tree_value *value = qp_tree_first(tensors);
    for (uint32_t i = 0; i < tensors->n; i++, value = qp_tree_next(value))
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
                                             const struct qp_tree_value *value,
                                             const struct qplan_entry *entry)
{
    static const char *const keys[] = {"name", "file", "dtype", "shape", "begin", "end", NULL};
    const char *dtype = qplan_storage_name((enum qplan_storage)entry->storage);
    const struct qp_tree_value *m[MAX_KEYS] = {NULL};
    QP_TRY(qp_tree_members(&r->tree, value, "outputs", keys, m));
    bool same = qp_tree_is_string(&r->tree, m[0], entry->name) &&
                qp_tree_is_number(m[1], entry->file) && qp_tree_is_string(&r->tree, m[2], dtype) &&
                qp_tree_is_shape(m[3], entry->shape, entry->rank) &&
                qp_tree_is_number(m[4], entry->begin) && qp_tree_is_number(m[5], entry->end);
    return same ? QPLAN_OK : stale(r, "an output tensor");
}

/* The outputs of one tensor, which read_tensor has found. */
static enum qplan_status check_outputs_of(const struct reader *r,
                                          const struct qp_tree_value *tensor)
{
    const struct qp_tree_value *outputs = qp_tree_member(&r->tree, tensor, "outputs");
    const char *name = qp_tree_text(&r->tree, qp_tree_member(&r->tree, tensor, "name"));
    if (!outputs)
        return QPLAN_OK;
    const struct qp_plan_tensor *t = qp_plan_find(r->plan, name, strlen(name));
    const unsigned n = qp_plan_n_outputs(t);
    if (!qp_tree_is_array(outputs) || outputs->n != n)
        return stale(r, "the number of output tensors");
    const struct qp_tree_value *output = qp_tree_first(outputs);
    for (unsigned i = 0; i < n; i++, output = qp_tree_next(output))
        QP_TRY(check_output_tensor(r, output, qp_plan_output(t, i)));
    return QPLAN_OK;
}

static enum qplan_status check_outputs(const struct reader *r, const struct qp_tree_value *tensors)
{
    const struct qp_tree_value *tensor = qp_tree_first(tensors);
    for (uint32_t i = 0; i < tensors->n; i++, tensor = qp_tree_next(tensor))
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
static enum qplan_status output_files(const struct reader *r, const struct qp_tree_value *output,
                                      const struct qp_tree_value **files,
                                      const struct qp_tree_value **total)
{
    static const char *const keys[] = {"files", "bytes", NULL};
    const struct qp_tree_value *o[MAX_KEYS] = {NULL};
    char expected[32];
    const size_t n_made = r->plan->news.n_files; /* 0 = that is not known yet */
    const size_t n = n_made ? n_made : r->plan->checkpoint->source.listing.n_files;
    QP_TRY(qp_tree_members(&r->tree, output, "output", keys, o));
    *files = o[0];
    *total = o[1];
    put_file_count(expected, n);
    return qp_tree_is_array(o[0]) && o[0]->n == n
               ? QPLAN_OK
               : qp_tree_bad(&r->tree, "output.files", expected, NULL);
}

/* The members of one of them; those that are absent stay NULL. */
static enum qplan_status output_file(const struct reader *r, const struct qp_tree_value *file,
                                     const struct qp_tree_value **m)
{
    static const char *const keys[] = {"file", "bytes", "header_bytes", NULL};
    return qp_tree_members(&r->tree, file, "output.files", keys, m);
}

/* The name of a file is that in the plan, if it has one; the shards of a folder have their own. */
static enum qplan_status read_output_name(const struct reader *r,
                                          const struct qp_tree_value *output)
{
    struct qplan_plan *plan = r->plan;
    const struct qp_tree_value *m[MAX_KEYS] = {NULL}, *files, *total;
    const char *name = NULL;
    if (output && !plan->checkpoint->source.is_folder) {
        QP_TRY(output_files(r, output, &files, &total));
        QP_TRY(output_file(r, qp_tree_first(files), m));
        name = qp_tree_text(&r->tree, m[O_FILE]);
    }
    if (m[O_FILE] &&
        (!name || !*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0))
        return qp_tree_bad(&r->tree, "output.files[0].file", "a bare file name", name);
    plan->output_name =
        name ? qp_arena_join(&plan->arena, name, strlen(name), "") : qp_plan_mixed_name(plan);
    return plan->output_name ? QPLAN_OK : qp_fail_memory(r->tree.err, r->tree.name, 0);
}

static enum qplan_status check_output_file(const struct reader *r, const struct qp_tree_value *file,
                                           size_t i)
{
    const struct qp_news *news = &r->plan->news;
    const struct qp_st_new *made = &news->files[i];
    const struct qp_tree_value *m[MAX_KEYS] = {NULL};
    QP_TRY(output_file(r, file, m));
    if (m[O_FILE] && !qp_tree_is_string(&r->tree, m[O_FILE], news->names[i]))
        return stale(r, "the name of a file of the output");
    if ((m[O_BYTES] && !qp_tree_is_number(m[O_BYTES], made->header_bytes + made->data_bytes)) ||
        (m[O_HEADER] && !qp_tree_is_number(m[O_HEADER], made->header_bytes)))
        return stale(r, "the size of the output");
    return QPLAN_OK;
}

static enum qplan_status check_output(const struct reader *r, const struct qp_tree_value *output)
{
    const struct qp_tree_value *files, *total;
    if (!output)
        return QPLAN_OK;
    QP_TRY(output_files(r, output, &files, &total));
    const struct qp_tree_value *file = qp_tree_first(files);
    for (uint32_t i = 0; i < files->n; i++, file = qp_tree_next(file))
        QP_TRY(check_output_file(r, file, i));
    return !total || qp_tree_is_number(total, qplan_plan_output_bytes(r->plan))
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
    P_ACTIVATIONS,
    P_ARITHMETIC,
    P_EXPERTS,
    P_POSITIVE,
    P_MAX_SHARD,
    P_COPY,
    P_INPUTS,
    P_SOURCE,
    P_OUTPUT,
    P_TENSORS
};
static const char *const plan_keys[] = {
    "schema",         "numerics",    "format",     "nonfinite", "indivisible",
    "zero_point",     "activations", "arithmetic", "experts",   "positive_scales",
    "max_shard_size", "copy",        "inputs",     "source",    "output",
    "tensors",        NULL};

/* The files of the source, in their order: their sizes tell another checkpoint. */
static enum qplan_status check_source(const struct reader *r, const struct qp_tree_value *source)
{
    static const char *const keys[] = {"file", "bytes", NULL};
    const struct qp_source *here = &r->plan->checkpoint->source;
    char expected[32];
    const size_t n = here->listing.n_files;
    put_file_count(expected, n);
    if (!qp_tree_is_array(source) || source->n != n)
        return qp_tree_bad(&r->tree, "source", expected, NULL);
    const struct qp_tree_value *value = qp_tree_first(source);
    for (size_t i = 0; i < n; i++, value = qp_tree_next(value)) {
        const struct qp_file *file = &here->files[i].file;
        const struct qp_tree_value *m[MAX_KEYS] = {NULL};
        QP_TRY(qp_tree_members(&r->tree, value, "source", keys, m));
        if (!qp_tree_is_number(m[1], file->size))
            return qp_fail(r->tree.err, QPLAN_ERR_INVALID, r->tree.name,
                           "the plan is for another checkpoint: expected %" PRIu64
                           " bytes, found %" PRIu64 " in %s",
                           qp_tree_number(m[1]), file->size, file->shown);
    }
    return QPLAN_OK;
}

static enum qplan_status read_settings(const struct reader *r, const struct qp_tree_value *const *m)
{
    const struct qp_tree *tree = &r->tree;
    int nonfinite, indivisible, zero_point, activations, arithmetic = QPLAN_ARITHMETIC_QPLAN;
    int experts = QPLAN_EXPERTS_KEEP;
    if (!qp_tree_is_string(tree, m[P_SCHEMA], QP_PLAN_SCHEMA))
        return qp_tree_bad(tree, "schema", QP_PLAN_SCHEMA, qp_tree_text(tree, m[P_SCHEMA]));
    if (!qp_tree_is_number(m[P_NUMERICS], QPLAN_NUMERICS))
        return qp_tree_bad(tree, "numerics", "1", NULL);
    const char *format = qp_tree_text(tree, m[P_FORMAT]);
    r->plan->format = format ? qp_format_find(format) : NULL;
    if (!r->plan->format)
        return qp_fail_name(tree->err, QPLAN_ERR_INVALID, tree->name, "format", format,
                            qplan_format_name);
    QP_TRY(qp_tree_word(tree, m[P_NONFINITE], "nonfinite", qp_nonfinite_words, &nonfinite));
    QP_TRY(qp_tree_word(tree, m[P_INDIVISIBLE], "indivisible", qp_indivisible_words, &indivisible));
    QP_TRY(qp_tree_word(tree, m[P_ZERO], "zero_point", qp_zero_point_words, &zero_point));
    if (m[P_ARITHMETIC])
        QP_TRY(qp_tree_word(tree, m[P_ARITHMETIC], "arithmetic", qp_arithmetic_words, &arithmetic));
    if (m[P_EXPERTS])
        QP_TRY(qp_tree_word(tree, m[P_EXPERTS], "experts", qp_experts_words, &experts));
    r->plan->experts = (enum qplan_experts)experts;
    r->plan->may_divide = r->plan->format->may_divide;
    r->plan->nonfinite = (enum qplan_nonfinite)nonfinite;
    r->plan->indivisible = (enum qplan_indivisible)indivisible;
    r->plan->options.zero_point = zero_point ? QPLAN_ZERO_POINT_ASYMMETRIC : QPLAN_ZERO_POINT_USUAL;
    if (m[P_ACTIVATIONS]) {
        QP_TRY(qp_tree_word(tree, m[P_ACTIVATIONS], "activations", qp_activations_words,
                            &activations));
        r->plan->options.activations = (enum qplan_activations)(activations + 1);
    }
    r->plan->positive_scales = m[P_POSITIVE] != NULL;
    if (m[P_POSITIVE] && !qp_tree_is_true(m[P_POSITIVE]))
        return qp_tree_bad(tree, "positive_scales", "true", NULL);
    r->plan->max_shard = qp_tree_number(m[P_MAX_SHARD]);
    if (m[P_MAX_SHARD] && r->plan->max_shard == 0)
        return qp_tree_bad(tree, "max_shard_size", "a whole number above 0", NULL);
    r->plan->options.arithmetic = (enum qplan_arithmetic)arithmetic;
    return qp_plan_check_settings(r->plan, tree->name, tree->err);
}

static enum qplan_status read_copy(const struct reader *r, const struct qp_tree_value *patterns)
{
    struct qplan_error detail;
    if (!patterns)
        return QPLAN_OK;
    if (!qp_tree_is_array(patterns))
        return qp_tree_bad(&r->tree, "copy", "an array of patterns", NULL);
    const struct qp_tree_value *value = qp_tree_first(patterns);
    for (uint32_t i = 0; i < patterns->n; i++, value = qp_tree_next(value)) {
        const char *text = qp_tree_text(&r->tree, value);
        if (!text || qp_glob_check(text, &detail) != QPLAN_OK)
            return qp_tree_bad(&r->tree, "copy", "an array of patterns", text);
        QP_TRY(qp_plan_add_copy(r->plan, text, r->tree.err));
    }
    return QPLAN_OK;
}

/* The data that tensors are made with: those that the document names, if it names any. */
static enum qplan_status take_inputs(const struct reader *r, const struct qp_tree_value *inputs)
{
    const struct qplan_document *d = r->document;
    struct qplan_plan *plan = r->plan;
    QP_TRY(qp_plan_read_inputs(&r->tree, inputs, &plan->arena, &plan->making));
    QP_TRY(qp_plan_weigh_document(plan, d->importance, d->n_importance, r->tree.err));
    QP_TRY(qp_plan_round_document(plan, d->hessian, d->hessian_damp, r->tree.err));
    qp_plan_settle_making(plan);
    return QPLAN_OK;
}

static enum qplan_status read_document(struct reader *r)
{
    const struct qp_tree_value *m[MAX_KEYS] = {NULL};
    QP_TRY(qp_tree_members(&r->tree, r->tree.values, "the plan", plan_keys, m));
    QP_TRY(read_settings(r, m));
    QP_TRY(check_source(r, m[P_SOURCE]));
    QP_TRY(qp_plan_take_tensors(r->plan, r->tree.err));
    r->seen = qp_alloc(r->plan->n_tensors, sizeof *r->seen);
    if (!r->seen)
        return qp_fail_memory(r->tree.err, r->tree.name, r->plan->n_tensors);
    QP_TRY(read_tensors(r, m[P_TENSORS]));
    QP_TRY(read_output_name(r, m[P_OUTPUT]));
    QP_TRY(qp_plan_check(r->plan, r->tree.err));
    QP_TRY(take_inputs(r, m[P_INPUTS]));
    QP_TRY(read_copy(r, m[P_COPY]));
    QP_TRY(qp_side_find(&r->plan->side, &r->plan->checkpoint->source, r->plan->copy,
                        r->plan->n_copy, &r->plan->arena, r->tree.err));
    QP_TRY(qp_plan_layout(r->plan, r->tree.err));
    QP_TRY(check_output(r, m[P_OUTPUT]));
    return check_outputs(r, m[P_TENSORS]);
}

enum qplan_status qplan_plan_read(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint,
                                  const struct qplan_document *document, struct qplan_error *err)
{
    const char *name = document->name;
    char shown[512];
    struct reader r = {
        .document = document,
        .tree = {.name = qp_escape(shown, sizeof shown, name, strlen(name)), .err = err}};
    *out = NULL;
    QP_TRY(qp_plan_check_source(checkpoint, err));
    QP_TRY(qp_plan_new(&r.plan, checkpoint, err));
    r.plan->is_document = r.plan->is_edited = true;
    r.plan->cancel = document->cancel;
    enum qplan_status status = qp_tree_read(&r.tree, document->text, document->n_bytes);
    if (status == QPLAN_OK)
        status = read_document(&r);
    qp_tree_free(&r.tree);
    qp_free(r.seen);
    if (status != QPLAN_OK) {
        qplan_plan_free(r.plan);
        return status;
    }
    *out = r.plan;
    return QPLAN_OK;
}
