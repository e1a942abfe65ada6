/*
 * plan_read.c - the plan as a document, reading side.
 *
 * The text passes the strict tokenizer first; only then cJSON builds the tree, whose laxness cannot
 * matter any more. What a person may edit (action, scheme, calibrate) is taken; everything else
 * must agree with the checkpoint and with what the library computes.
 */
#include "plan.h"
#include "words.h"

#include "lib/base/alloc.h"
#include "lib/base/json.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_KEYS 12

struct reader {
    const char *name; /* of the document, for messages */
    struct qplan_plan *plan;
    bool *seen; /* by tensor */
    struct qplan_error *err;
};

static enum qplan_status bad(const struct reader *r, const char *what, const char *expected,
                             const char *found)
{
    char quoted[QP_QUOTED];
    if (!found)
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->name, "%s: expected %s", what, expected);
    return qp_fail(r->err, QPLAN_ERR_INVALID, r->name, "%s: expected %s, found %s", what, expected,
                   qp_quote(quoted, found, strlen(found)));
}

/* ---- The strict pass ---------------------------------------------------------------------------
 */

/* Doubles hold integers up to here exactly; no size or offset of a file comes near. */
#define MAX_INTEGER ((uint64_t)1 << 53)

static enum qplan_status check_text(const struct reader *r, char *text, size_t n)
{
    struct qp_json json;
    struct qp_json_token token;
    qp_json_init(&json, text, n, 0, 8, r->name);
    do {
        uint64_t value;
        bool too_large;
        QP_TRY(qp_json_next(&json, &token, r->err));
        if (token.type == QP_JSON_NUMBER &&
            (!qp_json_u64(&token, &value, &too_large) || value > MAX_INTEGER))
            return qp_fail_at(r->err, QPLAN_ERR_INVALID, r->name, token.at,
                              "not a number of a plan: expected a whole number up to 2^53");
        if ((token.type == QP_JSON_STRING || token.type == QP_JSON_KEY) &&
            memchr(token.text, 0, token.n))
            return qp_fail_at(r->err, QPLAN_ERR_INVALID, r->name, token.at,
                              "a string contains U+0000");
    } while (token.type != QP_JSON_END);
    return QPLAN_OK;
}

static enum qplan_status parse_tree(const struct reader *r, const char *text, size_t n, cJSON **out)
{
    char *copy = qp_strndup(text, n);
    if (!copy)
        return qp_fail_memory(r->err, r->name, n);
    enum qplan_status status = check_text(r, copy, n);
    qp_free(copy);
    if (status != QPLAN_OK)
        return status;
    *out = cJSON_ParseWithLength(text, n);
    return *out ? QPLAN_OK : qp_fail_memory(r->err, r->name, n);
}

/* ---- Members -----------------------------------------------------------------------------------
 */

/* Sorts the members of an object into out by key. Unknown and repeated keys are refused. */
static enum qplan_status members(const struct reader *r, const cJSON *object, const char *where,
                                 const char *const *keys, const cJSON **out)
{
    for (size_t i = 0; keys[i]; i++)
        out[i] = NULL;
    if (!cJSON_IsObject(object))
        return bad(r, where, "an object", NULL);
    for (const cJSON *item = object->child; item; item = item->next) {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], item->string) != 0)
            i++;
        if (!keys[i])
            return bad(r, where, "no unknown key", item->string);
        if (out[i])
            return bad(r, where, "each key once", item->string);
        out[i] = item;
    }
    return QPLAN_OK;
}

static enum qplan_status word_of(const struct reader *r, const cJSON *item, const char *key,
                                 const char *const *words, int *out)
{
    char expected[96] = "";
    for (int i = 0; words[i]; i++) {
        if (cJSON_IsString(item) && strcmp(item->valuestring, words[i]) == 0) {
            *out = i;
            return QPLAN_OK;
        }
        size_t used = strlen(expected);
        (void)snprintf(expected + used, sizeof expected - used, "%s%s", i ? " or " : "", words[i]);
    }
    return bad(r, key, expected, cJSON_IsString(item) ? item->valuestring : NULL);
}

static bool is_number(const cJSON *item, uint64_t value)
{
    return cJSON_IsNumber(item) && item->valuedouble == (double)value;
}

static bool is_string(const cJSON *item, const char *value)
{
    return cJSON_IsString(item) && strcmp(item->valuestring, value) == 0;
}

static bool is_shape(const cJSON *item, const uint64_t *shape, unsigned rank)
{
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != (int)rank)
        return false;
    const cJSON *extent = item->child;
    for (unsigned i = 0; i < rank; i++, extent = extent->next) {
        if (!is_number(extent, shape[i]))
            return false;
    }
    return true;
}

static bool is_text_or_null(const cJSON *item)
{
    return !item || cJSON_IsNull(item) || cJSON_IsString(item);
}

static const char *keep_string(struct qplan_plan *plan, const cJSON *item)
{
    return cJSON_IsString(item)
               ? qp_arena_join(&plan->arena, item->valuestring, strlen(item->valuestring), "")
               : NULL;
}

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

/* A value that the document gives a tensor, as text, cut and safe to print. */
static const char *show_item(char out[QP_QUOTED], const cJSON *item)
{
    char *text = item ? cJSON_PrintUnformatted(item) : NULL;
    size_t n = text ? strlen(text) : 0;
    (void)qp_quote(out, text ? text : "", n < 60 ? n : 60);
    cJSON_free(text);
    return out;
}

static enum qplan_status mismatch(const struct reader *r, const struct qp_tensor *t,
                                  const char *what, const cJSON *expected, const char *found)
{
    char subject[512], planned[QP_QUOTED];
    (void)qp_checkpoint_subject(subject, r->plan->checkpoint, t);
    return qp_fail(r->err, QPLAN_ERR_INVALID, r->name,
                   "the plan is for another checkpoint: %s of %s differs: expected %s, found %s",
                   what, subject, show_item(planned, expected), found);
}

static enum qplan_status find_tensor(const struct reader *r, const cJSON *const *m,
                                     struct qp_plan_tensor **out)
{
    const struct qplan_plan *plan = r->plan;
    if (!cJSON_IsString(m[T_NAME]))
        return bad(r, "tensors", "a name for each", NULL);
    const char *name = m[T_NAME]->valuestring;
    const struct qp_tensor *found = qp_checkpoint_find(plan->checkpoint, name, strlen(name));
    if (!found)
        return bad(r, "the plan is for another checkpoint", "only tensors that it has", name);
    size_t i = (size_t)(found - plan->checkpoint->tensors);
    if (r->seen[i])
        return bad(r, "tensors", "each tensor once", name);
    r->seen[i] = true;
    *out = &plan->tensors[i];
    return QPLAN_OK;
}

static enum qplan_status check_tensor(const struct reader *r, const cJSON *const *m,
                                      const struct qp_tensor *t)
{
    const char *dtype = qplan_storage_name((enum qplan_storage)t->storage);
    const unsigned file = t->entry->file;
    char shape[256], number[16];
    (void)snprintf(number, sizeof number, "%u", file);
    if (m[T_FILE] && !is_number(m[T_FILE], file))
        return mismatch(r, t, "file", m[T_FILE], number);
    if (!is_string(m[T_DTYPE], dtype))
        return mismatch(r, t, "dtype", m[T_DTYPE], dtype);
    if (!is_shape(m[T_SHAPE], t->shape, t->rank))
        return mismatch(r, t, "shape", m[T_SHAPE],
                        qp_format_list(shape, sizeof shape, t->shape, t->rank));
    return QPLAN_OK;
}

static enum qplan_status read_quantize(const struct reader *r, const cJSON *const *m,
                                       struct qp_plan_tensor *t)
{
    char where[QP_QUOTED];
    (void)qp_quote(where, t->source->name, t->source->name_len);
    const char *unfit = qp_unquantizable(t->source);
    if (unfit)
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->name, "%s cannot be quantized: %s (%s)", where,
                       unfit, qplan_storage_name((enum qplan_storage)t->source->storage));
    if (!cJSON_IsString(m[T_SCHEME]))
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->name,
                       "%s: action quantize needs a scheme, for example \"int8:c0\"", where);
    struct qplan_scheme scheme;
    struct qplan_error detail;
    if (qplan_scheme_parse(&scheme, m[T_SCHEME]->valuestring, &detail) != QPLAN_OK)
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->name, "%s: %s: %s", where, detail.subject,
                       detail.message);
    QP_TRY(qp_plan_set_scheme(r->plan, t, &scheme, r->err));
    if (!is_text_or_null(m[T_CALIBRATE]))
        return bad(r, "calibrate", "a name", NULL);
    const char *calibrate = cJSON_GetStringValue(m[T_CALIBRATE]);
    t->calibrator = qp_calibrator_find(calibrate ? calibrate : "minmax");
    return t->calibrator ? QPLAN_OK
                         : qp_fail_name(r->err, QPLAN_ERR_INVALID, r->name, "calibrate", calibrate,
                                        qplan_calibrator_name);
}

/* Reasons are for people: one that does not fit an edited action any more is replaced. */
static const char *known_reason(const cJSON *item)
{
    for (size_t i = 0; cJSON_IsString(item) && qp_reasons[i]; i++) {
        if (strcmp(qp_reasons[i], item->valuestring) == 0)
            return qp_reasons[i];
    }
    return "rule keep";
}

static enum qplan_status read_tensor(const struct reader *r, const cJSON *item)
{
    static const char *const actions[] = {"keep", "quantize", NULL};
    const cJSON *m[MAX_KEYS];
    struct qp_plan_tensor *t = NULL;
    int quantize;
    QP_TRY(members(r, item, "tensors", tensor_keys, m));
    QP_TRY(find_tensor(r, m, &t));
    QP_TRY(check_tensor(r, m, t->source));
    QP_TRY(word_of(r, m[T_ACTION], "action", actions, &quantize));
    if (!is_text_or_null(m[T_RULE]) || !is_text_or_null(m[T_REASON]))
        return bad(r, "rule and reason", "text or null", NULL);
    t->rule = keep_string(r->plan, m[T_RULE]);
    if (quantize)
        return read_quantize(r, m, t);
    t->reason = known_reason(m[T_REASON]);
    return QPLAN_OK;
}

/* ---- What must agree after the layout ----------------------------------------------------------
 */

static enum qplan_status stale(const struct reader *r, const char *what)
{
    qp_fail(r->err, QPLAN_ERR_INVALID, r->name,
            "%s in the plan is not what its actions and schemes give", what);
    qp_hint(r->err, "after an edit drop what is computed: jq 'del(.output, .tensors[].outputs)'");
    return QPLAN_ERR_INVALID;
}

static enum qplan_status check_output_tensor(const struct reader *r, const cJSON *item,
                                             const struct qplan_entry *entry)
{
    static const char *const keys[] = {"name", "file", "dtype", "shape", "begin", "end", NULL};
    const cJSON *m[MAX_KEYS];
    QP_TRY(members(r, item, "outputs", keys, m));
    bool same = is_string(m[0], entry->name) && is_number(m[1], entry->file) &&
                is_string(m[2], qplan_storage_name((enum qplan_storage)entry->storage)) &&
                is_shape(m[3], entry->shape, entry->rank) && is_number(m[4], entry->begin) &&
                is_number(m[5], entry->end);
    return same ? QPLAN_OK : stale(r, "an output tensor");
}

static enum qplan_status check_outputs(const struct reader *r, const cJSON *tensors)
{
    for (const cJSON *item = tensors->child; item; item = item->next) {
        const cJSON *outputs = cJSON_GetObjectItemCaseSensitive(item, "outputs");
        if (!outputs)
            continue;
        const char *name = cJSON_GetObjectItemCaseSensitive(item, "name")->valuestring;
        const struct qplan_checkpoint *checkpoint = r->plan->checkpoint;
        const struct qp_tensor *source = qp_checkpoint_find(checkpoint, name, strlen(name));
        const struct qp_tensor *result = &r->plan->tensors[source - checkpoint->tensors].result;
        const unsigned n = result->scheme ? result->n_parts : 1;
        if (!cJSON_IsArray(outputs) || cJSON_GetArraySize(outputs) != (int)n)
            return stale(r, "the number of output tensors");
        const cJSON *output = outputs->child;
        for (unsigned i = 0; i < n; i++, output = output->next)
            QP_TRY(check_output_tensor(r, output,
                                       result->scheme ? result->parts[i].entry : result->entry));
    }
    return QPLAN_OK;
}

enum { O_FILE, O_BYTES, O_HEADER };

/* The one file of .output; members that are absent stay NULL. */
static enum qplan_status output_file(const struct reader *r, const cJSON *output, const cJSON **m,
                                     const cJSON **total)
{
    static const char *const keys[] = {"files", "bytes", NULL};
    static const char *const file_keys[] = {"file", "bytes", "header_bytes", NULL};
    const cJSON *o[MAX_KEYS];
    QP_TRY(members(r, output, "output", keys, o));
    *total = o[1];
    if (!cJSON_IsArray(o[0]) || cJSON_GetArraySize(o[0]) != 1)
        return bad(r, "output.files", "one file", NULL);
    return members(r, o[0]->child, "output.files", file_keys, m);
}

static enum qplan_status read_output_name(const struct reader *r, const cJSON *output)
{
    struct qplan_plan *plan = r->plan;
    struct qp_writer w;
    const cJSON *m[MAX_KEYS] = {NULL}, *total;
    if (output)
        QP_TRY(output_file(r, output, m, &total));
    if (m[O_FILE] && !cJSON_IsString(m[O_FILE]))
        return bad(r, "output.files[0].file", "a bare file name", NULL);
    if (m[O_FILE]) {
        const char *name = m[O_FILE]->valuestring;
        if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            return bad(r, "output.files[0].file", "a bare file name", name);
        plan->output_name = qp_arena_join(&plan->arena, name, strlen(name), "");
    } else {
        qp_writer_init(&w);
        qp_put_stem(&w, plan->checkpoint->source.path);
        qp_puts(&w, ".quantized.safetensors");
        plan->output_name = w.error ? NULL : qp_arena_join(&plan->arena, w.data, w.n, "");
        qp_writer_free(&w);
    }
    return plan->output_name ? QPLAN_OK : qp_fail_memory(r->err, r->name, 0);
}

static enum qplan_status check_output(const struct reader *r, const cJSON *output)
{
    const struct qplan_plan *plan = r->plan;
    const cJSON *m[MAX_KEYS], *total;
    if (!output)
        return QPLAN_OK;
    QP_TRY(output_file(r, output, m, &total));
    uint64_t bytes = qplan_plan_output_bytes(plan);
    bool same = (!m[O_BYTES] || is_number(m[O_BYTES], bytes)) &&
                (!total || is_number(total, bytes)) &&
                (!m[O_HEADER] || is_number(m[O_HEADER], plan->files[0].header_bytes));
    return same ? QPLAN_OK : stale(r, "the size of the output");
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

static enum qplan_status check_source(const struct reader *r, const cJSON *source)
{
    static const char *const keys[] = {"file", "bytes", NULL};
    const struct qp_file *file = &r->plan->checkpoint->source.files[0].file;
    const cJSON *m[MAX_KEYS];
    if (!cJSON_IsArray(source) || cJSON_GetArraySize(source) != 1)
        return bad(r, "source", "one file", NULL);
    QP_TRY(members(r, source->child, "source", keys, m));
    if (!is_number(m[1], file->size))
        return qp_fail(r->err, QPLAN_ERR_INVALID, r->name,
                       "the plan is for another checkpoint: expected %.0f bytes, found %" PRIu64
                       " in %s",
                       cJSON_IsNumber(m[1]) ? m[1]->valuedouble : 0.0, file->size, file->shown);
    return QPLAN_OK;
}

static enum qplan_status read_settings(const struct reader *r, const cJSON *const *m)
{
    int nonfinite, indivisible, zero_point;
    if (!is_string(m[P_SCHEMA], QP_PLAN_SCHEMA))
        return bad(r, "schema", QP_PLAN_SCHEMA,
                   cJSON_IsString(m[P_SCHEMA]) ? m[P_SCHEMA]->valuestring : NULL);
    if (!is_number(m[P_NUMERICS], QPLAN_NUMERICS))
        return bad(r, "numerics", "1", NULL);
    const char *format = cJSON_GetStringValue(m[P_FORMAT]);
    r->plan->format = format ? qp_format_find(format) : NULL;
    if (!r->plan->format)
        return qp_fail_name(r->err, QPLAN_ERR_INVALID, r->name, "format", format,
                            qplan_format_name);
    QP_TRY(word_of(r, m[P_NONFINITE], "nonfinite", qp_nonfinite_words, &nonfinite));
    QP_TRY(word_of(r, m[P_INDIVISIBLE], "indivisible", qp_indivisible_words, &indivisible));
    QP_TRY(word_of(r, m[P_ZERO], "zero_point", qp_zero_point_words, &zero_point));
    r->plan->nonfinite = (enum qplan_nonfinite)nonfinite;
    r->plan->indivisible = (enum qplan_indivisible)indivisible;
    r->plan->options.zero_point = (enum qplan_zero_point)zero_point;
    return QPLAN_OK;
}

static enum qplan_status read_tensors(const struct reader *r, const cJSON *tensors)
{
    char quoted[QP_QUOTED];
    if (!cJSON_IsArray(tensors))
        return bad(r, "tensors", "an array", NULL);
    for (const cJSON *item = tensors->child; item; item = item->next)
        QP_TRY(read_tensor(r, item));
    for (size_t i = 0; i < r->plan->n_tensors; i++) {
        const struct qp_tensor *t = r->plan->tensors[i].source;
        if (!r->seen[i])
            return qp_fail(r->err, QPLAN_ERR_INVALID, r->name,
                           "the plan is for another checkpoint: tensor %s is missing in it",
                           qp_quote(quoted, t->name, t->name_len));
    }
    return QPLAN_OK;
}

static enum qplan_status read_document(const struct reader *r, const cJSON *tree)
{
    const cJSON *m[MAX_KEYS];
    QP_TRY(members(r, tree, "the plan", plan_keys, m));
    QP_TRY(read_settings(r, m));
    QP_TRY(check_source(r, m[P_SOURCE]));
    QP_TRY(read_tensors(r, m[P_TENSORS]));
    QP_TRY(read_output_name(r, m[P_OUTPUT]));
    QP_TRY(qp_plan_check(r->plan, r->err));
    QP_TRY(qp_plan_layout(r->plan, r->err));
    QP_TRY(check_output(r, m[P_OUTPUT]));
    return check_outputs(r, m[P_TENSORS]);
}

enum qplan_status qplan_plan_read(struct qplan_plan **out,
                                  const struct qplan_checkpoint *checkpoint, const char *name,
                                  const char *text, size_t n_bytes, struct qplan_error *err)
{
    char shown[512];
    struct reader r = {.name = qp_escape(shown, sizeof shown, name, strlen(name)), .err = err};
    cJSON *tree = NULL;
    *out = NULL;
    QP_TRY(qp_plan_check_source(checkpoint, err));
    QP_TRY(qp_plan_new(&r.plan, checkpoint, err));
    r.seen = qp_alloc(r.plan->n_tensors, sizeof *r.seen);
    enum qplan_status status = QPLAN_OK;
    if (!r.seen)
        status = qp_fail_memory(err, r.name, r.plan->n_tensors);
    if (status == QPLAN_OK)
        status = parse_tree(&r, text, n_bytes, &tree);
    if (status == QPLAN_OK)
        status = read_document(&r, tree);
    cJSON_Delete(tree);
    qp_free(r.seen);
    if (status != QPLAN_OK) {
        qplan_plan_free(r.plan);
        return status;
    }
    *out = r.plan;
    return QPLAN_OK;
}
