/*
 * registry.c - the table of layouts: one row for each folder of formats/ that the build has found.
 */
#include "format.h"

#include <string.h>

/* format_rows.h is made by the build: FORMAT(name) for each folder, in the order of names. */
#define FORMAT(name) extern const struct qp_format qp_format_##name;
#include "format_rows.h"
#undef FORMAT

static const struct qp_format *const formats[] = {
#define FORMAT(name) &qp_format_##name,
#include "format_rows.h"
#undef FORMAT
};

#define N_FORMATS (sizeof formats / sizeof formats[0])

const struct qp_format *qp_format_at(size_t i)
{
    return i < N_FORMATS ? formats[i] : NULL;
}

const struct qp_format *qp_format_find(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    }
    return NULL;
}

const char *qp_format_fit(const struct qp_format *format, struct qplan_scheme *scheme,
                          enum qplan_storage storage, const struct qp_format_options *options)
{
    if (scheme->nested && !format->has_nested)
        return "scales without scales of their own";
    return format->fit ? format->fit(scheme, storage, options) : NULL;
}

bool qplan_format_at(size_t i, struct qplan_format_facts *out)
{
    const struct qp_format *format = qp_format_at(i);
    if (format)
        *out = (struct qplan_format_facts){.name = format->name,
                                           .loaded_by = format->loaded_by,
                                           .schemes = format->schemes,
                                           .reads = format->reads,
                                           .is_folder = format->is_folder,
                                           .is_file = format->is_file,
                                           .is_read_only = format->is_read_only};
    return format != NULL;
}

bool qplan_format_scheme(const char *name, struct qplan_scheme *out)
{
    const struct qp_format *format = qp_format_find(name);
    if (!format || !format->scheme)
        return false;
    return qplan_scheme_parse(out, format->scheme, NULL) == QPLAN_OK;
}

const char *qplan_format_name(size_t i)
{
    return i < N_FORMATS ? formats[i]->name : NULL;
}

/* ---- Listings ----------------------------------------------------------------------------------
 */

/* How the name of an entry compares with a text of two halves. */
static int compare_halves(const struct qplan_entry *entry, const char *name, size_t n,
                          const char *suffix)
{
    if (entry->name_len < n)
        return qp_compare_text(entry->name, entry->name_len, name, n) > 0 ? 1 : -1;
    const int order = memcmp(entry->name, name, n);
    return order ? order
                 : qp_compare_text(entry->name + n, entry->name_len - n, suffix, strlen(suffix));
}

const struct qplan_entry *qp_listing_sibling(const struct qp_listing *listing, const char *name,
                                             size_t n, const char *suffix)
{
    size_t low = 0, high = listing->n_entries;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = compare_halves(&listing->entries[middle], name, n, suffix);
        if (order == 0)
            return &listing->entries[middle];
        if (order > 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const struct qplan_entry *qp_listing_find(const struct qp_listing *listing, const char *name,
                                          size_t n)
{
    return qp_entries_find(listing->entries, listing->n_entries, name, n);
}

const char *qp_listing_subject(char out[512], const struct qp_listing *listing,
                               const struct qplan_entry *entry)
{
    return qp_st_subject(out, &listing->files[entry->file], entry);
}

const struct qp_tree_value *qp_quantization_config(const struct qp_listing *listing)
{
    const struct qp_tree *config = listing->config;
    return config ? qp_tree_member(config, config->values, "quantization_config") : NULL;
}

const struct qp_tree_value *qp_description(const struct qp_listing *listing,
                                           const struct qp_tree **tree)
{
    *tree = listing->described ? listing->described : listing->config;
    return listing->described ? qp_tree_member(*tree, listing->described->values, "quantization")
                              : qp_quantization_config(listing);
}

bool qp_model_storage(const struct qp_listing *listing, enum qplan_storage *out)
{
    static const struct {
        const char *name;
        enum qplan_storage storage;
    } rows[] = {{"bfloat16", QPLAN_STORAGE_BF16},
                {"float16", QPLAN_STORAGE_F16},
                {"float32", QPLAN_STORAGE_F32},
                {"float64", QPLAN_STORAGE_F64}};
    const struct qp_tree *config = listing->config;
    const struct qp_tree_value *value =
        config ? qp_tree_member(config, config->values, "dtype") : NULL;
    if (config && !value)
        value = qp_tree_member(config, config->values, "torch_dtype");
    for (size_t i = 0; value && i < sizeof rows / sizeof rows[0]; i++) {
        if (qp_tree_is_string(config, value, rows[i].name)) {
            *out = rows[i].storage;
            return true;
        }
    }
    return false;
}

bool qp_is_quant_method(const struct qp_listing *listing, const char *method)
{
    const struct qp_tree_value *found = qp_quantization_config(listing);
    return found &&
           qp_tree_is_string(listing->config,
                             qp_tree_member(listing->config, found, "quant_method"), method);
}

/* ---- The type of a model -----------------------------------------------------------------------
 */

static const char *type_in(const struct qp_tree *tree, const struct qp_tree_value *object)
{
    return qp_tree_text(tree, qp_tree_member(tree, object, "model_type"));
}

/* Whether a word is one of some that are divided by blanks. */
static bool has_word(const char *words, const char *word)
{
    const size_t n = strlen(word);
    while (*words) {
        const size_t n_first = strcspn(words, " ");
        if (n > 0 && n_first == n && memcmp(words, word, n) == 0)
            return true;
        words += n_first + strspn(words + n_first, " ");
    }
    return false;
}

bool qp_is_model_type(const struct qp_listing *listing, const char *types)
{
    const struct qp_tree *tree = listing ? listing->config : NULL;
    if (!tree)
        return false;
    const char *whole = type_in(tree, tree->values);
    const char *text = type_in(tree, qp_tree_member(tree, tree->values, "text_config"));
    return (whole && has_word(types, whole)) || (text && has_word(types, text));
}

const char *qp_show_model_type(char out[QP_QUOTED], const struct qp_listing *listing)
{
    const char *type = listing->config ? type_in(listing->config, listing->config->values) : NULL;
    return type ? qp_quote(out, type, strlen(type)) : "none";
}
