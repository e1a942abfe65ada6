/*
 * ct_read.c - which tensors of a checkpoint are quantized, by the groups of its config.json and the
 * shapes of its stored tensors, whichever tool has written it.
 *
 * Which group a module belongs to is a question of classes and regular expressions that only
 * engines can answer. Shapes answer it as well: a module belongs to the first group whose numbers
 * fit its stored tensors.
 */
#include "ct.h"

#include "formats/build.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <string.h>

/* ---- Groups ------------------------------------------------------------------------------------
 */

/* More groups than any engine is given. */
#define MOST_GROUPS 64

struct config {
    const struct qp_listing *listing;
    struct qplan_scheme groups[MOST_GROUPS]; /* of their weights; but for blocks of floats without
                                              * the type of scales, which is that of the weights */
    const struct qp_tree_value *formats[MOST_GROUPS]; /* how they say that they are stored */
    const struct qp_tree_value *format;               /* how all are, or NULL */
    size_t n;
    const struct qplan_scheme *scheme; /* the last one: most tensors share theirs */
    struct qp_arena *arena;
    struct qplan_error *err;
};

static enum qplan_status bad_group(const struct config *c, const char *name, const char *what,
                                   const char *expected, const struct qp_tree_value *found)
{
    char shown[QP_QUOTED], quoted[QP_QUOTED];
    return qp_fail(c->err, QPLAN_ERR_INVALID, c->listing->config->name,
                   "config group %s: %s: expected %s, found %s",
                   qp_quote(quoted, name, strlen(name)), what, expected,
                   found ? qp_tree_show(shown, c->listing->config, found) : "none");
}

/* The numbers of a group: integers of some bits, or floats of 8. */
static enum qplan_status read_numbers(const struct config *c, const char *name,
                                      const struct qp_tree_value *weights,
                                      struct qplan_scheme *scheme)
{
    const struct qp_tree *tree = c->listing->config;
    const struct qp_tree_value *bits = qp_tree_member(tree, weights, "num_bits");
    const struct qp_tree_value *type = qp_tree_member(tree, weights, "type");
    const struct qp_tree_value *symmetric = qp_tree_member(tree, weights, "symmetric");
    const unsigned n_bits = bits ? (unsigned)qp_min_u64(qp_tree_number(bits), 64) : 8;
    const bool is_float = qp_tree_is_string(tree, type, "float");
    if (type && !is_float && !qp_tree_is_string(tree, type, "int"))
        return bad_group(c, name, "type", "int or float", type);
    if (is_float ? n_bits != 8 : n_bits < 2 || n_bits > 8)
        return bad_group(c, name, "num_bits", is_float ? "8" : "2 to 8", bits);
    if (symmetric && !qp_tree_is_bool(symmetric))
        return bad_group(c, name, "symmetric", "true or false", symmetric);
    scheme->asymmetric = symmetric && !qp_tree_is_true(symmetric);
    if (is_float && scheme->asymmetric)
        return bad_group(c, name, "symmetric", "true for floats", symmetric);
    scheme->dtype = is_float ? QPLAN_F8E4M3 : qp_integer_type(n_bits, true);
    return QPLAN_OK;
}

/* A list of two extents, of rows and of columns. */
static bool read_block(const struct qp_tree_value *list, struct qplan_scheme *scheme)
{
    if (!list || list->type != QP_JSON_ARRAY || list->n != 2)
        return false;
    const struct qp_tree_value *rows = qp_tree_first(list);
    scheme->block_rows = qp_tree_number(rows);
    scheme->block_cols = qp_tree_number(qp_tree_next(rows));
    return scheme->block_rows > 0 && scheme->block_cols > 0;
}

/* The sets of a group. Where no strategy is named, a group size says that there are groups. */
static enum qplan_status read_sets(const struct config *c, const char *name,
                                   const struct qp_tree_value *weights, struct qplan_scheme *scheme)
{
    static const char *const strategies[] = {[QPLAN_PER_TENSOR] = "tensor",
                                             [QPLAN_PER_CHANNEL] = "channel",
                                             [QPLAN_PER_GROUP] = "group",
                                             [QPLAN_PER_BLOCK] = "block"};
    const struct qp_tree *tree = c->listing->config;
    const struct qp_tree_value *strategy = qp_tree_member(tree, weights, "strategy");
    const struct qp_tree_value *width = qp_tree_member(tree, weights, "group_size");
    const struct qp_tree_value *block = qp_tree_member(tree, weights, "block_structure");
    const struct qp_tree_value *order = qp_tree_member(tree, weights, "actorder");
    unsigned i = qp_tree_number(width) > 0 ? QPLAN_PER_GROUP : QPLAN_PER_CHANNEL;
    if (qp_tree_is_string(tree, order, "group"))
        return bad_group(c, name, "actorder", "none, or an order that is stored in no tensor",
                         order);
    if (strategy) {
        for (i = 0; i <= QPLAN_PER_BLOCK && !qp_tree_is_string(tree, strategy, strategies[i]);)
            i++;
    }
    if (i > QPLAN_PER_BLOCK)
        return bad_group(c, name, "strategy", "tensor, channel, group or block", strategy);
    scheme->granularity = (enum qplan_granularity)i;
    if (i == QPLAN_PER_BLOCK && !read_block(block, scheme))
        return bad_group(c, name, "block_structure", "two whole numbers", block);
    scheme->group = i == QPLAN_PER_GROUP ? qp_tree_number(width) : 0;
    if (i == QPLAN_PER_GROUP && scheme->group == 0)
        return bad_group(c, name, "group_size", "a whole number", width);
    return QPLAN_OK;
}

/* The blocks of floats that the weights of a group are, or NULL. */
static const struct qp_blocks_row *blocks_told(const struct qp_tree *tree,
                                               const struct qp_tree_value *weights)
{
    const struct qp_tree_value *bits = qp_tree_member(tree, weights, "num_bits");
    const struct qp_tree_value *strategy = qp_tree_member(tree, weights, "strategy");
    const struct qp_tree_value *width = qp_tree_member(tree, weights, "group_size");
    const bool is_float = qp_tree_is_string(tree, qp_tree_member(tree, weights, "type"), "float");
    for (int i = 0; is_float && i < QP_BLOCKS; i++) {
        if (qp_tree_number(bits) == qplan_dtype_bits(qp_blocks[i].dtype) &&
            qp_tree_is_string(tree, strategy, qp_ct_names[i].strategy) &&
            qp_tree_number(width) == qp_blocks[i].width)
            return &qp_blocks[i];
    }
    return NULL;
}

/*
 * What says of which modules a group is, and that its weights are quantized once and for all. Names
 * and expressions are for engines to match; a group of convolutions alone is of no stored tensor.
 */
static enum qplan_status check_group(const struct config *c, const struct qp_tree_value *group)
{
    static const char *const activations[] = {"input_activations", "output_activations"};
    const struct qp_tree *tree = c->listing->config;
    const char *name = qp_tree_key(tree, group);
    const struct qp_tree_value *targets = qp_tree_member(tree, group, "targets");
    const struct qp_tree_value *dynamic =
        qp_tree_member(tree, qp_tree_member(tree, group, "weights"), "dynamic");
    const struct qp_tree_value *target = qp_tree_is_array(targets) ? qp_tree_first(targets) : NULL;
    bool is_of_some = !targets;
    for (uint32_t i = 0; target && i < targets->n; i++, target = qp_tree_next(target)) {
        const char *text = qp_tree_text(tree, target);
        if (!text)
            return bad_group(c, name, "targets", "names of modules", target);
        is_of_some |= strncmp(text, "Conv", strlen("Conv")) != 0;
    }
    if (!is_of_some)
        return bad_group(c, name, "targets", "names of linear layers", targets);
    if (dynamic && !qp_tree_is_null(dynamic) &&
        (!qp_tree_is_bool(dynamic) || qp_tree_is_true(dynamic)))
        return bad_group(c, name, "dynamic", "false for weights", dynamic);
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++) {
        const struct qp_tree_value *value = qp_tree_member(tree, group, activations[i]);
        if (value && !qp_tree_is_null(value) && !qp_tree_is_object(value))
            return bad_group(c, name, activations[i], "an object or null", value);
    }
    return QPLAN_OK;
}

static enum qplan_status read_weights(struct config *c, const struct qp_tree_value *group,
                                      const struct qp_tree_value *weights)
{
    const char *name = qp_tree_key(c->listing->config, group);
    const struct qp_tree_value *format = qp_tree_member(c->listing->config, group, "format");
    QP_TRY(check_group(c, group));
    c->formats[c->n] = qp_tree_is_null(format) ? NULL : format;
    struct qplan_scheme *scheme = &c->groups[c->n++];
    const struct qp_blocks_row *block = blocks_told(c->listing->config, weights);
    if (block) {
        *scheme = qp_blocks_scheme(block);
        return QPLAN_OK;
    }
    QP_TRY(read_numbers(c, name, weights, scheme));
    return read_sets(c, name, weights, scheme);
}

static enum qplan_status read_groups(struct config *c)
{
    const struct qp_tree *tree = c->listing->config;
    const struct qp_tree_value *config = qp_quantization_config(c->listing);
    const struct qp_tree_value *groups = qp_tree_member(tree, config, "config_groups");
    if (!qp_tree_is_object(groups) || groups->n == 0 || groups->n > MOST_GROUPS)
        return qp_fail(c->err, QPLAN_ERR_INVALID, tree->name,
                       "quantization_config: expected 1 to %d config_groups", MOST_GROUPS);
    c->format = qp_tree_member(tree, config, "format");
    const struct qp_tree_value *group = qp_tree_first(groups);
    for (uint32_t i = 0; i < groups->n; i++, group = qp_tree_next(group)) {
        const struct qp_tree_value *weights = qp_tree_member(tree, group, "weights");
        if (qp_tree_is_object(weights)) /* else the group is about activations alone */
            QP_TRY(read_weights(c, group, weights));
    }
    return QPLAN_OK;
}

bool qp_ct_is_active(const struct qp_listing *listing)
{
    const struct qp_tree *tree = listing->config;
    const struct qp_tree_value *groups =
        qp_tree_member(tree, qp_quantization_config(listing), "config_groups");
    if (!qp_tree_is_object(groups))
        return false;
    const struct qp_tree_value *group = qp_tree_first(groups);
    for (uint32_t i = 0; i < groups->n; i++, group = qp_tree_next(group)) {
        if (qp_tree_is_object(qp_tree_member(tree, group, "input_activations")) ||
            qp_tree_is_object(qp_tree_member(tree, group, "output_activations")))
            return true;
    }
    return false;
}

/* ---- Tensors -----------------------------------------------------------------------------------
 */

/* A module with quantized weights, as its stored tensors show it. */
struct module {
    const char *name; /* of M.weight */
    uint32_t n;
    bool is_packed;
    bool is_block; /* of floats that share a scale of one byte */
    const struct qplan_entry *codes, *scale, *zero, *shape;
    uint64_t rows, cols;
};

/* Whether codes and scales have the types of blocks of floats. */
static bool has_types_of(const struct module *m, const struct qp_blocks_row *block)
{
    return m->is_packed == (qplan_dtype_bits(block->dtype) < 8) &&
           m->codes->storage == (uint8_t)qp_dtype_storage(block->dtype) &&
           m->scale->storage == (uint8_t)qp_dtype_storage(block->scale);
}

static bool has_codes_of(const struct module *m, enum qplan_dtype dtype)
{
    const unsigned bits = qplan_dtype_bits(dtype);
    const struct qp_place packed = {.bits = (uint8_t)bits, .word_bytes = 4};
    if (!m->is_packed)
        return bits == 8 && m->codes->storage == qp_dtype_storage(dtype);
    return dtype != QPLAN_F8E4M3 &&
           m->codes->shape[1] == qp_place_line_bytes(&packed, m->cols) / packed.word_bytes;
}

static bool has_scales_of(const struct module *m, const struct qplan_scheme *scheme)
{
    const struct qplan_entry *scale = m->scale;
    const struct qp_matrix sets = qp_row_sets(scheme, (uint64_t[]){m->rows, m->cols});
    if (scheme->granularity == QPLAN_PER_TENSOR)
        return scale->rank == 1 && scale->shape[0] == 1;
    return scale->rank == 2 && scale->shape[0] == sets.rows && scale->shape[1] == sets.cols &&
           (scheme->granularity != QPLAN_PER_GROUP || m->cols % scheme->group == 0);
}

/* What the library calls the ways in which a module is stored: one, or two of which tools write
 * either. */
static void formats_of(const struct module *m, const struct qplan_scheme *scheme,
                       const char *out[2])
{
    const struct qp_blocks_row *block = qp_blocks_of(scheme);
    out[1] = "naive-quantized";
    if (block)
        out[0] = out[1] = qp_ct_names[block - qp_blocks].format;
    else if (m->is_packed)
        out[0] = out[1] = "pack-quantized";
    else
        out[0] = scheme->dtype == QPLAN_F8E4M3 ? "float-quantized" : "int-quantized";
}

/*
 * The names of formats say how a module of a group is stored. That of the group counts, where it
 * has one; that of all is the same then, or says that groups differ.
 */
static enum qplan_status check_formats(const struct config *c, const struct module *m, size_t group)
{
    const struct qp_tree *tree = c->listing->config;
    const struct qp_tree_value *own = c->formats[group];
    const struct qp_tree_value *told[] = {
        own, own && qp_tree_is_string(tree, c->format, "mixed-precision") ? NULL : c->format};
    const char *formats[2];
    char shown[QP_QUOTED], quoted[QP_QUOTED];
    formats_of(m, &c->groups[group], formats);
    for (size_t i = 0; i < 2; i++) {
        if (told[i] && !qp_tree_is_string(tree, told[i], formats[0]) &&
            !qp_tree_is_string(tree, told[i], formats[1]))
            return qp_fail(c->err, QPLAN_ERR_INVALID, tree->name,
                           "quantization_config: format: expected %s, as %s is stored, found %s",
                           formats[0], qp_quote(quoted, m->codes->name, m->codes->name_len),
                           qp_tree_show(shown, tree, told[i]));
    }
    return QPLAN_OK;
}

/* The group whose numbers fit the stored tensors of a module, or NULL. */
static const struct qplan_scheme *group_of(const struct config *c, const struct module *m)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct qplan_scheme *scheme = &c->groups[i];
        const struct qp_blocks_row *block = qp_blocks_of(scheme);
        if (!block != !m->is_block)
            continue;
        if ((block ? has_types_of(m, block) : has_codes_of(m, scheme->dtype)) &&
            has_scales_of(m, scheme) && (m->zero != NULL) == scheme->asymmetric)
            return scheme;
    }
    return NULL;
}

static enum qplan_status fail_module(const struct config *c, const struct qplan_entry *entry,
                                     const char *what)
{
    char subject[512];
    return qp_fail(c->err, QPLAN_ERR_INVALID, qp_listing_subject(subject, c->listing, entry), "%s",
                   what);
}

/* Rows and columns: of packed codes only M.weight_shape knows where a row ends. */
static enum qplan_status read_shape(const struct config *c, struct module *m)
{
    int64_t shape[2];
    if (m->codes->rank != 2)
        return fail_module(c, m->codes, "expected two axes");
    m->rows = m->codes->shape[0];
    m->cols = m->codes->shape[1];
    if (m->is_block && m->is_packed && !qp_mul_u64(m->cols, 2, &m->cols))
        return fail_module(c, m->codes, "too many columns");
    if (!m->is_packed || m->is_block)
        return QPLAN_OK;
    if (!m->shape || m->shape->storage != QPLAN_STORAGE_I64 || m->shape->rank != 1 ||
        m->shape->shape[0] != 2)
        return fail_module(c, m->codes, "expected a tensor _shape of type I64 [2] beside it");
    QP_TRY(c->listing->read(c->listing, m->shape, 0, shape, sizeof shape, c->err));
    if (shape[0] < 0 || (uint64_t)shape[0] != m->rows || shape[1] < 0)
        return fail_module(c, m->shape, "expected the rows of the packed codes, and their columns");
    m->cols = (uint64_t)shape[1];
    return QPLAN_OK;
}

/* The scheme of a group for a module, shared with the tensor before if it is the same. */
static const struct qplan_scheme *scheme_of(struct config *c, const struct qplan_scheme *group,
                                            const struct module *m)
{
    struct qplan_scheme scheme = *group;
    if (!m->is_block)
        scheme.scale_dtype = qp_storage_row((enum qplan_storage)m->scale->storage)->dtype;
    if (!c->scheme || !qp_scheme_equal(c->scheme, &scheme))
        c->scheme = qp_arena_copy(c->arena, &scheme, 1, sizeof scheme);
    return c->scheme;
}

static enum qplan_status describe_module(struct config *c, struct module *m,
                                         struct qp_tensor **tensors, size_t *n)
{
    QP_TRY(read_shape(c, m));
    const struct qp_storage_row *scale = qp_storage_row((enum qplan_storage)m->scale->storage);
    if (!m->is_block && (!scale->is_source || scale->dtype == QPLAN_F64))
        return fail_module(c, m->scale, "expected scales of type F32, F16 or BF16");
    uint64_t elems;
    if (!qp_shape_elements((uint64_t[]){m->rows, m->cols}, 2, &elems) || elems == 0)
        return fail_module(c, m->codes, "expected codes");
    const struct qplan_scheme *group = group_of(c, m);
    if (!group)
        return fail_module(c, m->codes, "its type and shape fit no group of config.json");
    QP_TRY(check_formats(c, m, (size_t)(group - c->groups)));
    const uint64_t shape[2] = {m->rows, m->cols};
    enum qplan_storage storage = QPLAN_STORAGE_BF16; /* of blocks nothing else says it */
    (void)qp_model_storage(c->listing, &storage);
    const struct qp_tensor t = {.name = qp_arena_join(c->arena, m->name, m->n, ""),
                                .name_len = m->n,
                                .shape = qp_arena_copy(c->arena, shape, 2, sizeof *shape),
                                .rank = 2,
                                .storage = m->is_block ? (uint8_t)storage : m->scale->storage,
                                .scheme = scheme_of(c, group, m)};
    return t.name && t.shape && t.scheme && qp_add_tensor(tensors, n, &t)
               ? QPLAN_OK
               : qp_fail_memory(c->err, c->listing->shown, sizeof t);
}

/* Codes that are stored byte by byte under the name of the weights. */
static bool is_bytes(const struct qplan_entry *entry)
{
    return entry->storage == QPLAN_STORAGE_I8 || entry->storage == QPLAN_STORAGE_F8_E4M3;
}

/* Whether a stored tensor holds the codes of a module, with its scales beside it. */
static bool is_module(const struct config *c, const struct qplan_entry *entry, struct module *m)
{
    static const char packed[] = "_packed";
    const bool is_packed = qp_name_ends(entry->name, entry->name_len, ".weight_packed");
    if (!is_packed && (!is_bytes(entry) || !qp_name_ends(entry->name, entry->name_len, ".weight")))
        return false;
    *m = (struct module){.name = entry->name, .is_packed = is_packed, .codes = entry};
    m->n = entry->name_len - (is_packed ? (uint32_t)sizeof packed - 1 : 0);
    m->scale = qp_listing_sibling(c->listing, m->name, m->n, "_scale");
    m->zero = qp_listing_sibling(c->listing, m->name, m->n, "_zero_point");
    m->shape = qp_listing_sibling(c->listing, m->name, m->n, "_shape");
    m->is_block = m->scale && (m->scale->storage == QPLAN_STORAGE_U8 ||
                               m->scale->storage == QPLAN_STORAGE_F8_E4M3);
    return m->scale != NULL;
}

/* Whether a stored tensor is called a part of weights of which codes or scales are not there. */
static bool is_orphan(const struct config *c, const struct qplan_entry *entry)
{
    static const char *const parts[] = {".weight_packed", ".weight_scale", ".weight_shape",
                                        ".weight_zero_point", ".weight_global_scale"};
    const size_t n_weight = strlen(".weight");
    if (is_bytes(entry) && qp_name_ends(entry->name, entry->name_len, ".weight"))
        return true; /* it would be that of a module, if it had scales */
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!qp_name_ends(entry->name, entry->name_len, parts[i]))
            continue;
        const size_t n = entry->name_len - strlen(parts[i]) + n_weight;
        const struct qplan_entry *bytes = qp_listing_find(c->listing, entry->name, n);
        return !qp_listing_sibling(c->listing, entry->name, n, "_scale") ||
               (!qp_listing_sibling(c->listing, entry->name, n, "_packed") &&
                (!bytes || !is_bytes(bytes)));
    }
    return false;
}

enum qplan_status qp_ct_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                 struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    struct config c = {.listing = listing, .arena = arena, .err = err};
    struct module m;
    QP_TRY(read_groups(&c));
    for (size_t i = 0; i < listing->n_entries; i++) {
        if (is_module(&c, &listing->entries[i], &m))
            QP_TRY(describe_module(&c, &m, tensors, n));
        else if (is_orphan(&c, &listing->entries[i]))
            return fail_module(&c, &listing->entries[i],
                               "part of quantized weights whose codes or scales are not there");
    }
    return QPLAN_OK;
}
