/*
 * lint_ct_config.c - rules of compressed-tensors on what config.json says, by itself and of the
 * stored tensors.
 */
#include "lint.h"

#include "formats/build.h"
#include "lib/model/dtype.h"

static const struct qp_tree_value *member(const struct qp_lint *l,
                                          const struct qp_tree_value *object, const char *key)
{
    return qp_tree_member(l->tree, object, key);
}

static const struct qp_tree_value *groups_of(const struct qp_lint *l)
{
    const struct qp_tree_value *groups = member(l, l->quantized, "config_groups");
    return qp_tree_is_object(groups) ? groups : NULL;
}

/* Calls check with each group; each has its name in config_groups. */
typedef enum qplan_status (*group_fn)(struct qp_lint *l, const char *name,
                                      const struct qp_tree_value *group);

static enum qplan_status for_each_group(struct qp_lint *l, group_fn check)
{
    const struct qp_tree_value *groups = groups_of(l);
    const struct qp_tree_value *group = groups ? qp_tree_first(groups) : NULL;
    for (uint32_t i = 0; groups && i < groups->n; i++, group = qp_tree_next(group))
        QP_TRY(check(l, qp_tree_key(l->tree, group), group));
    return QPLAN_OK;
}

/* The format of a group: its own, or that of all. */
static const char *format_of(const struct qp_lint *l, const struct qp_tree_value *group)
{
    const char *own = qp_tree_text(l->tree, member(l, group, "format"));
    const char *all = qp_tree_text(l->tree, member(l, l->quantized, "format"));
    return own ? own : all ? all : "";
}

/* ---- config.json by itself ---------------------------------------------------------------------
 */

enum qplan_status qp_lint_ct_status(struct qp_lint *l)
{
    const struct qp_tree_value *status = member(l, l->quantized, "quantization_status");
    char shown[QP_QUOTED];
    if (qp_tree_is_string(l->tree, status, "compressed"))
        return QPLAN_OK;
    return qp_lint_find(l, NULL, 0,
                        "config.json: quantization_status: expected \"compressed\", found %s: "
                        "transformers would take the codes for weights that are still to come",
                        status ? qp_tree_show(shown, l->tree, status) : "none");
}

static enum qplan_status check_bare_int(struct qp_lint *l, const char *name,
                                        const struct qp_tree_value *group)
{
    const char *format = format_of(l, group);
    const struct qp_tree_value *weights = member(l, group, "weights");
    const struct qp_tree_value *type = member(l, weights, "type");
    char quoted[QP_QUOTED];
    if ((strcmp(format, "int-quantized") != 0 && strcmp(format, "naive-quantized") != 0) ||
        qp_tree_is_object(member(l, group, "input_activations")) ||
        (type && !qp_tree_is_string(l->tree, type, "int")))
        return QPLAN_OK;
    return qp_lint_find(l, NULL, 0,
                        "config group %s: %s weights without input_activations: vLLM and SGLang "
                        "load integers without them as pack-quantized only",
                        qp_quote(quoted, name, strlen(name)), format);
}

enum qplan_status qp_lint_ct_bare_int(struct qp_lint *l)
{
    return for_each_group(l, check_bare_int);
}

static enum qplan_status check_keys(struct qp_lint *l, const char *where,
                                    const struct qp_tree_value *object, const char *const *known)
{
    const struct qp_tree_value *value = qp_tree_is_object(object) ? qp_tree_first(object) : NULL;
    char quoted[QP_QUOTED], shown[QP_QUOTED];
    for (uint32_t i = 0; value && i < object->n; i++, value = qp_tree_next(value)) {
        const char *key = qp_tree_key(l->tree, value);
        size_t k = 0;
        while (known[k] && strcmp(known[k], key) != 0)
            k++;
        if (!known[k])
            QP_TRY(qp_lint_find(l, NULL, 0,
                                "config group %s: unknown key %s: compressed-tensors refuses the "
                                "folder",
                                qp_quote(shown, where, strlen(where)),
                                qp_quote(quoted, key, strlen(key))));
    }
    return QPLAN_OK;
}

static enum qplan_status check_group_keys(struct qp_lint *l, const char *name,
                                          const struct qp_tree_value *group)
{
    static const char *const scheme[] = {
        "targets", "weights", "input_activations", "output_activations", "format", NULL};
    static const char *const numbers[] = {
        "num_bits",        "type",     "symmetric", "group_size", "strategy",
        "block_structure", "dynamic",  "actorder",  "observer",   "observer_kwargs",
        "scale_dtype",     "zp_dtype", NULL};
    QP_TRY(check_keys(l, name, group, scheme));
    for (size_t i = 1; i < 4; i++)
        QP_TRY(check_keys(l, name, member(l, group, scheme[i]), numbers));
    return QPLAN_OK;
}

enum qplan_status qp_lint_ct_keys(struct qp_lint *l)
{
    return for_each_group(l, check_group_keys);
}

static enum qplan_status check_order(struct qp_lint *l, const char *name,
                                     const struct qp_tree_value *group)
{
    const struct qp_tree_value *weights = member(l, group, "weights");
    char quoted[QP_QUOTED];
    return qp_tree_is_string(l->tree, member(l, weights, "actorder"), "group")
               ? qp_lint_find(l, NULL, 0,
                              "config group %s: actorder \"group\": compressed-tensors 0.19 and "
                              "later refuse it",
                              qp_quote(quoted, name, strlen(name)))
               : QPLAN_OK;
}

enum qplan_status qp_lint_ct_order(struct qp_lint *l)
{
    return for_each_group(l, check_order);
}

enum qplan_status qp_lint_ct_mxfp8(struct qp_lint *l)
{
    return for_each_group(l, qp_lint_ct_mx_scale);
}

static enum qplan_status check_alone(struct qp_lint *l, const char *name,
                                     const struct qp_tree_value *group)
{
    return qp_lint_ct_alone(l, name, format_of(l, group), group);
}

enum qplan_status qp_lint_ct_bare_float(struct qp_lint *l)
{
    return for_each_group(l, check_alone);
}

/* ---- Stored tensors ----------------------------------------------------------------------------
 */

/* How many groups have weights, and how many of them are asymmetric, packed, plain bytes. */
struct summary {
    unsigned n, n_asymmetric, n_packed, n_bytes;
};

static struct summary summarize(const struct qp_lint *l)
{
    const struct qp_tree_value *groups = groups_of(l);
    const struct qp_tree_value *group = groups ? qp_tree_first(groups) : NULL;
    struct summary s = {0};
    for (uint32_t i = 0; groups && i < groups->n; i++, group = qp_tree_next(group)) {
        const struct qp_tree_value *weights = member(l, group, "weights");
        const struct qp_tree_value *symmetric = member(l, weights, "symmetric");
        const char *format = format_of(l, group);
        if (!qp_tree_is_object(weights))
            continue;
        s.n++;
        s.n_asymmetric += symmetric && !qp_tree_is_true(symmetric);
        s.n_packed += strcmp(format, "pack-quantized") == 0;
        s.n_bytes += strcmp(format, "int-quantized") == 0;
    }
    return s;
}

/* Whether a stored tensor holds codes, of which *n_name bytes are the name of the weight. */
static bool is_codes(const struct qp_lint *l, const struct qplan_entry *entry, bool *is_packed,
                     size_t *n_name)
{
    *is_packed = qp_name_ends(entry->name, entry->name_len, ".weight_packed");
    *n_name = entry->name_len - (*is_packed ? strlen("_packed") : 0);
    return *is_packed || (entry->storage == QPLAN_STORAGE_I8 &&
                          qp_name_ends(entry->name, entry->name_len, ".weight") &&
                          qp_listing_sibling(l->listing, entry->name, *n_name, "_scale"));
}

enum qplan_status qp_lint_ct_format(struct qp_lint *l)
{
    const struct summary s = summarize(l);
    for (size_t i = 0; i < l->listing->n_entries; i++) {
        const struct qplan_entry *entry = &l->listing->entries[i];
        bool is_packed;
        size_t n;
        if (is_codes(l, entry, &is_packed, &n) && s.n > 0 &&
            (is_packed ? s.n_bytes : s.n_packed) == s.n)
            QP_TRY(qp_lint_find(l, entry->name, entry->name_len,
                                "stored as %s, but config.json says %s",
                                is_packed ? "packed codes" : "bytes",
                                is_packed ? "int-quantized" : "pack-quantized"));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_ct_stray_zero(struct qp_lint *l)
{
    const struct summary s = summarize(l);
    for (size_t i = 0; i < l->listing->n_entries && s.n_asymmetric == 0; i++) {
        const struct qplan_entry *entry = &l->listing->entries[i];
        if (qp_name_ends(entry->name, entry->name_len, ".weight_zero_point"))
            QP_TRY(qp_lint_find(l, entry->name, entry->name_len,
                                "config.json says symmetric: vLLM refuses such a tensor"));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_ct_no_zero(struct qp_lint *l)
{
    const struct summary s = summarize(l);
    for (size_t i = 0; i < l->listing->n_entries && s.n > 0 && s.n_asymmetric == s.n; i++) {
        const struct qplan_entry *entry = &l->listing->entries[i];
        bool is_packed;
        size_t n;
        if (is_codes(l, entry, &is_packed, &n) &&
            !qp_listing_sibling(l->listing, entry->name, n, "_zero_point"))
            QP_TRY(qp_lint_find(l, entry->name, n,
                                "config.json says asymmetric, and there is no weight_zero_point"));
    }
    return QPLAN_OK;
}

static enum qplan_status check_shape(struct qp_lint *l, const struct qplan_entry *codes, size_t n)
{
    const struct qplan_entry *shape = qp_listing_sibling(l->listing, codes->name, n, "_shape");
    int64_t stored[2];
    if (!shape)
        return qp_lint_find(l, codes->name, n, "there is no weight_shape beside the packed codes");
    if (shape->storage != QPLAN_STORAGE_I64 || shape->rank != 1 || shape->shape[0] != 2)
        return qp_lint_find(l, shape->name, shape->name_len, "expected type I64 and shape [2]");
    QP_TRY(l->listing->read(l->listing, shape, 0, stored, sizeof stored, l->err));
    return codes->rank == 2 && stored[0] >= 0 && (uint64_t)stored[0] == codes->shape[0]
               ? QPLAN_OK
               : qp_lint_find(l, shape->name, shape->name_len,
                              "its rows are not those of the packed codes");
}

enum qplan_status qp_lint_ct_shape(struct qp_lint *l)
{
    for (size_t i = 0; i < l->listing->n_entries; i++) {
        const struct qplan_entry *entry = &l->listing->entries[i];
        bool is_packed;
        size_t n;
        if (entry->storage == QPLAN_STORAGE_I32 && is_codes(l, entry, &is_packed, &n) && is_packed)
            QP_TRY(check_shape(l, entry, n));
    }
    return QPLAN_OK;
}

/* ---- Tensors -----------------------------------------------------------------------------------
 */

enum qplan_status qp_lint_ct_bits(struct qp_lint *l)
{
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        const unsigned bits = t->scheme ? qplan_dtype_bits(t->scheme->dtype) : 8;
        if (bits != 2 && bits != 4 && bits != 8)
            QP_TRY(qp_lint_find_tensor(
                l, t,
                "codes of %u bits: readers before compressed-tensors 0.17 unpack them wrongly",
                bits));
    }
    return QPLAN_OK;
}

/* Scales that decoders work in: those of one byte are of blocks, which have their own type. */
static bool has_work_scales(const struct qp_tensor *t)
{
    return t->scheme && qplan_dtype_bits(t->scheme->scale_dtype) > 8;
}

enum qplan_status qp_lint_ct_scale_type(struct qp_lint *l)
{
    enum qplan_storage storage;
    const bool is_known = qp_model_storage(l->listing, &storage);
    for (size_t i = 0; is_known && i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (has_work_scales(t) && t->scheme->scale_dtype != qp_storage_row(storage)->dtype)
            QP_TRY(qp_lint_find_tensor(
                l, t, "scales of type %s in a model of %s: transformers rounds them while loading",
                qplan_dtype_name(t->scheme->scale_dtype),
                qplan_dtype_name(qp_storage_row(storage)->dtype)));
    }
    return QPLAN_OK;
}
