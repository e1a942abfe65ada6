/*
 * lint_tensors.c - rules on files, names and families, whatever the layout.
 */
#include "lint.h"

#include "formats/build.h"
#include "formats/modules.h"
#include "lib/base/alloc.h"
#include "lib/plan/family.h"
#include "lib/store/config.h"

#include <stdlib.h>

/* ---- Files -------------------------------------------------------------------------------------
 */

enum qplan_status qp_lint_warnings(struct qp_lint *l)
{
    for (size_t i = 0; i < l->source->warnings.n; i++)
        QP_TRY(qp_lint_find(l, NULL, 0, "%s", l->source->warnings.list[i].text));
    return QPLAN_OK;
}

/* The file that says how the tensors are quantized. */
static const char *said_in(const struct qp_lint *l)
{
    return l->listing->described && l->format ? l->format->described_in : QP_CONFIG_NAME;
}

enum qplan_status qp_lint_other_files(struct qp_lint *l)
{
    static const char *const others[] = {"quantize_config.json", "hf_quant_config.json",
                                         "quant_config.json"};
    struct qp_arena arena = {NULL};
    struct qp_names names = {.n = 0};
    enum qplan_status status = QPLAN_OK;
    if (l->source->is_folder)
        status = qp_list_names(l->source->path, &arena, &names, l->err);
    for (size_t i = 0; status == QPLAN_OK && i < names.n; i++) {
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
            if (status == QPLAN_OK && strcmp(names.list[i], others[k]) == 0 &&
                strcmp(said_in(l), others[k]) != 0)
                status = qp_lint_find(l, NULL, 0,
                                      "%s: some tools read this instead of config.json: remove it, "
                                      "unless it says the same",
                                      others[k]);
        }
    }
    qp_arena_free(&arena);
    return status;
}

/* ---- Left over ---------------------------------------------------------------------------------
 */

enum qplan_status qp_lint_plain_beside(struct qp_lint *l)
{
    static const char *const codes[] = {".weight_packed", ".qweight"};
    for (size_t i = 0; i < l->listing->n_entries; i++) {
        const struct qplan_entry *entry = &l->listing->entries[i];
        for (size_t k = 0; k < sizeof codes / sizeof codes[0]; k++) {
            if (qp_name_ends(entry->name, entry->name_len, codes[k]) &&
                qp_listing_sibling(l->listing, entry->name, entry->name_len - strlen(codes[k]),
                                   ".weight"))
                QP_TRY(qp_lint_find(l, entry->name, entry->name_len,
                                    "the plain .weight is stored beside it: engines load the one "
                                    "or the other"));
        }
    }
    return QPLAN_OK;
}

/* Names that only parts have. A tensor of its own that is called so was left by some tool. */
enum qplan_status qp_lint_left_parts(struct qp_lint *l)
{
    static const char *const parts[] = {".weight_packed",
                                        ".weight_scale",
                                        ".weight_zero_point",
                                        ".weight_shape",
                                        ".weight_g_idx",
                                        ".qweight",
                                        ".qzeros",
                                        ".g_idx",
                                        ".SCB",
                                        ".comfy_quant",
                                        ".weight_scale_2",
                                        ".weight_scale_inv",
                                        ".weight_global_scale",
                                        ".scale_weight"};
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        bool is_part = false;
        for (size_t k = 0; !t->scheme && k < sizeof parts / sizeof parts[0]; k++)
            is_part |= qp_name_ends(t->name, t->name_len, parts[k]);
        if (is_part)
            QP_TRY(qp_lint_find_tensor(l, t, "belongs to no quantized tensor"));
    }
    return QPLAN_OK;
}

/* ---- Models ------------------------------------------------------------------------------------
 */

struct member {
    struct qp_kin kin;
    const struct qp_tensor *tensor;
};

static int by_family(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    const int order = qp_compare_kin(&x->kin, &y->kin);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static bool is_alike(const struct qp_tensor *a, const struct qp_tensor *b)
{
    return a->scheme && b->scheme ? qp_scheme_equal(a->scheme, b->scheme) : a->scheme == b->scheme;
}

static const char *scheme_text(const struct qp_tensor *t, char out[QPLAN_SCHEME_TEXT])
{
    if (!t->scheme)
        return "plain";
    (void)qplan_scheme_format(t->scheme, out);
    return out;
}

/* One finding for a family: its first member, and the first that differs from it. */
static enum qplan_status check_family(struct qp_lint *l, const struct member *members, size_t n)
{
    const struct qp_tensor *first = members[0].tensor;
    char mine[QPLAN_SCHEME_TEXT], other[QPLAN_SCHEME_TEXT], quoted[QP_QUOTED];
    size_t i = 1;
    while (i < n && is_alike(first, members[i].tensor))
        i++;
    if (i == n)
        return QPLAN_OK;
    const struct qp_tensor *t = members[i].tensor;
    return qp_lint_find_tensor(l, first, "is %s, and %s, which engines load as one with it, is %s",
                               scheme_text(first, mine), qp_quote(quoted, t->name, t->name_len),
                               scheme_text(t, other));
}

static enum qplan_status check_factors(struct qp_lint *l, const struct member *members, size_t n)
{
    const struct qp_tensor *first = members[0].tensor;
    char mine[QP_F64_TEXT], other[QP_F64_TEXT], quoted[QP_QUOTED];
    size_t i = 1;
    if (!qp_tensor_part(first, QP_FACTOR))
        return QPLAN_OK;
    while (i < n && members[i].tensor->factor == first->factor)
        i++;
    if (i == n)
        return QPLAN_OK;
    const struct qp_tensor *t = members[i].tensor;
    qp_format_f64(mine, (double)first->factor);
    qp_format_f64(other, (double)t->factor);
    return qp_lint_find_tensor(l, first,
                               "its scales have the factor %s, and those of %s, which engines load "
                               "as one with it, %s: engines take one for all",
                               mine, qp_quote(quoted, t->name, t->name_len), other);
}

/* How members of families are known, and what is wrong with those of one. */
struct family_rule {
    bool (*find)(const struct qp_tensor *tensor, struct qp_kin *out);
    bool with_factors; /* only tensors that have one */
    enum qplan_status (*check)(struct qp_lint *l, const struct member *members, size_t n);
};

static size_t find_members(const struct qp_lint *l, const struct family_rule *rule,
                           struct member *members)
{
    size_t n = 0;
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (rule->with_factors && !(t->scheme && qp_tensor_part(t, QP_FACTOR)))
            continue;
        members[n].tensor = t;
        n += rule->find(t, &members[n].kin);
    }
    if (n > 0)
        qsort(members, n, sizeof *members, by_family);
    return n;
}

static enum qplan_status for_each_family(struct qp_lint *l, const struct family_rule *rule)
{
    const size_t n_tensors = l->file->n_tensors;
    struct member *members = qp_alloc(n_tensors, sizeof *members);
    enum qplan_status status = QPLAN_OK;
    if (!members)
        return qp_fail_memory(l->err, "findings", n_tensors * sizeof *members);
    const size_t n = find_members(l, rule, members);
    for (size_t i = 0, end; i < n && status == QPLAN_OK; i = end) {
        for (end = i + 1; end < n && qp_compare_kin(&members[i].kin, &members[end].kin) == 0;)
            end++;
        status = rule->check(l, members + i, end - i);
    }
    qp_free(members);
    return status;
}

enum qplan_status qp_lint_families(struct qp_lint *l)
{
    return for_each_family(l, &(struct family_rule){qp_find_kin, false, check_family});
}

enum qplan_status qp_lint_factors(struct qp_lint *l)
{
    return for_each_family(l, &(struct family_rule){qp_find_joined, true, check_factors});
}

enum qplan_status qp_lint_embeddings(struct qp_lint *l)
{
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (t->scheme && qp_is_embedding(t))
            QP_TRY(qp_lint_find_tensor(l, t, "a quantized embedding: engines load it plain"));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_conv1d(struct qp_lint *l)
{
    static const char *const layers[] = {".h.#.attn.c_", ".h.#.crossattention.", ".h.#.mlp.c_"};
    if (!qp_is_model_type(&l->file->source.listing, QP_CONV1D_TYPES))
        return QPLAN_OK;
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        for (size_t k = 0; t->scheme && k < sizeof layers / sizeof layers[0]; k++) {
            if (qp_lint_has(t, layers[k]))
                QP_TRY(qp_lint_find_tensor(
                    l, t,
                    "a Conv1D of GPT-2, stored [in,out]: engines load no such quantized layer"));
        }
    }
    return QPLAN_OK;
}

/* ---- KV caches ---------------------------------------------------------------------------------
 */

/* What config.json says of a quantized KV cache, under the key of either layout, or NULL. */
static const struct qp_tree_value *kv_cache(const struct qp_lint *l)
{
    static const char *const keys[] = {"kv_cache_scheme", "kv_cache_quant_algo"};
    const struct qp_tree_value *found = NULL;
    for (size_t i = 0; l->quantized && i < sizeof keys / sizeof keys[0]; i++) {
        const struct qp_tree_value *value = qp_tree_member(l->tree, l->quantized, keys[i]);
        if (value && !qp_tree_is_null(value))
            found = value;
    }
    return found;
}

static bool is_kv_scale(const struct qp_tensor *t)
{
    static const char *const ends[] = {".k_scale", ".v_scale", ".kv_scale", ".k_proj.output_scale",
                                       ".v_proj.output_scale"};
    bool is_scale = false;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        is_scale |= qp_name_ends(t->name, t->name_len, ends[i]);
    return is_scale;
}

enum qplan_status qp_lint_kv_scales(struct qp_lint *l)
{
    const struct qp_tree_value *told = kv_cache(l);
    const bool is_dynamic =
        qp_tree_is_object(told) && qp_tree_is_true(qp_tree_member(l->tree, told, "dynamic"));
    bool is_there = false;
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        is_there |= is_kv_scale(t);
        if (is_kv_scale(t) && !told)
            QP_TRY(qp_lint_find_tensor(l, t,
                                       "a scale of a KV cache, of which %s says nothing: engines "
                                       "ignore it, or stop at it",
                                       said_in(l)));
    }
    return !told || is_dynamic || is_there
               ? QPLAN_OK
               : qp_lint_find(l, NULL, 0,
                              "%s: a KV cache is quantized, but no scale of it is stored: engines "
                              "take 1",
                              said_in(l));
}
