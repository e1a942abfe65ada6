/*
 * modelopt.c - the layout of NVIDIA ModelOpt for nvfp4, which TensorRT-LLM and vLLM load.
 *
 * A weight M.weight of a linear layer is M.weight, two codes in a byte, M.weight_scale and
 * M.weight_scale_2, the factor of the scales, which tensors that are loaded as one share.
 *
 * Folders say so in config.json, or, as ModelOpt first wrote them, in hf_quant_config.json alone,
 * under other keys but with the same names and numbers.
 */
#include "formats/blocks.h"
#include "formats/build.h"
#include "formats/modules.h"
#include "lib/base/check.h"
#include "lib/base/json.h"

#include <inttypes.h>
#include <string.h>

#define BLOCK (&qp_blocks[QP_NVFP4])

/* What ModelOpt calls weights of nvfp4: with activations as they are, and with quantized ones. */
#define WEIGHT_ONLY "W4A16_NVFP4"
#define WITH_INPUTS "NVFP4"

static const char suffix[] = ".weight", scale_suffix[] = "_scale", factor_suffix[] = "_scale_2";

/* ---- What is stored ----------------------------------------------------------------------------
 */

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    (void)storage;
    (void)options;
    if (qp_blocks_of(scheme) != BLOCK)
        return "nvfp4";
    scheme->scale_dtype = BLOCK->scale;
    return NULL;
}

static const char *misfit(const struct qp_tensor *t)
{
    return qp_plain_by_name(t, true);
}

static unsigned variant(const struct qp_tensor *t, const struct qp_format_options *options)
{
    (void)t;
    (void)options;
    return 0;
}

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    static const struct qp_place nibbles = {.bits = 4, .word_bytes = 1};
    const uint64_t rows = t->shape[0], cols = t->shape[1];
    const struct qp_matrix sets = qp_row_sets(t->scheme, t->shape);
    const struct qp_entry_wish wishes[] = {
        {t->name, t->name_len, "", QPLAN_STORAGE_U8, 2, {rows, qp_div_up(cols, 2)}},
        {t->name, t->name_len, scale_suffix, QPLAN_STORAGE_F8_E4M3, 2, {sets.rows, sets.cols}},
        {t->name, t->name_len, factor_suffix, QPLAN_STORAGE_F32, 0, {0}},
    };
    for (unsigned i = 0; i < 3; i++) {
        if (!qp_build_entry(&entries[i], &wishes[i], arena))
            return 0;
    }
    parts[0] = (struct qp_part){
        .role = QP_CODES, .place = &nibbles, .matrix = {rows, cols}, .entry = &entries[0]};
    parts[1] = (struct qp_part){.role = QP_SCALE,
                                .place = qp_scale_place(BLOCK->scale),
                                .matrix = sets,
                                .entry = &entries[1]};
    parts[2] = qp_factor_part(&entries[2], false);
    return 3;
}

/* ---- config.json -------------------------------------------------------------------------------
 */

static void put_config(struct qp_writer *w, const struct qp_outline *o)
{
    static const char groups[] =
        "{\"group_0\":{\"input_activations\":null,\"weights\":{\"dynamic\":false,\"num_bits\":4,"
        "\"type\":\"float\",\"group_size\":16},\"targets\":[\"Linear\"]}}";
    qp_json_open(w, '{');
    qp_json_key(w, "quant_method");
    qp_json_put_str(w, "modelopt");
    qp_json_key(w, "quant_algo");
    qp_json_put_str(w, WEIGHT_ONLY);
    qp_json_key(w, "group_size");
    qp_json_put_u64(w, BLOCK->width);
    qp_json_key(w, "config_groups");
    qp_json_put_raw(w, groups, sizeof groups - 1);
    qp_json_key(w, "ignore");
    qp_put_left_modules(w, o);
    qp_json_key(w, "producer");
    qp_json_put_raw(w, "{\"name\":\"modelopt\"}", 19);
    qp_json_close(w, '}');
}

static bool is(const struct qp_listing *listing)
{
    const struct qp_tree *tree;
    const struct qp_tree_value *said = qp_description(listing, &tree);
    const struct qp_tree_value *algo = said ? qp_tree_member(tree, said, "quant_algo") : NULL;
    if (tree == listing->config)
        return qp_is_quant_method(listing, "modelopt");
    return said && !(algo && qp_tree_is_null(algo)); /* of a KV cache alone */
}

/* A number of config.json, which may be left out, is that of nvfp4. */
static enum qplan_status check_number(const struct qp_tree *tree,
                                      const struct qp_tree_value *object, const char *key,
                                      uint64_t wanted, struct qplan_error *err)
{
    const struct qp_tree_value *found = qp_tree_member(tree, object, key);
    char shown[QP_QUOTED];
    if (!found || qp_tree_is_number(found, wanted))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, tree->name, "%s: expected %" PRIu64 ", found %s", key,
                   wanted, qp_tree_show(shown, tree, found));
}

/* A group of modules, which may say how weights are stored. */
static enum qplan_status check_group(const struct qp_tree *tree, const struct qp_tree_value *group,
                                     struct qplan_error *err)
{
    const struct qp_tree_value *weights = qp_tree_member(tree, group, "weights");
    const struct qp_tree_value *type = qp_tree_member(tree, weights, "type");
    char shown[QP_QUOTED];
    if (!qp_tree_is_object(weights))
        return qp_fail(err, QPLAN_ERR_INVALID, tree->name,
                       "config_groups: expected groups with weights, found %s",
                       qp_tree_show(shown, tree, weights ? weights : group));
    QP_TRY(check_number(tree, weights, "num_bits", 4, err));
    QP_TRY(check_number(tree, weights, "group_size", BLOCK->width, err));
    if (!type || qp_tree_is_string(tree, type, "float"))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, tree->name, "type: expected float, found %s",
                   qp_tree_show(shown, tree, type));
}

static enum qplan_status check_groups(const struct qp_tree *tree,
                                      const struct qp_tree_value *groups, struct qplan_error *err)
{
    char shown[QP_QUOTED];
    if (!groups)
        return QPLAN_OK;
    if (!qp_tree_is_object(groups))
        return qp_fail(err, QPLAN_ERR_INVALID, tree->name,
                       "config_groups: expected an object, found %s",
                       qp_tree_show(shown, tree, groups));
    const struct qp_tree_value *group = qp_tree_first(groups);
    for (uint32_t i = 0; i < groups->n; i++, group = qp_tree_next(group))
        QP_TRY(check_group(tree, group, err));
    return QPLAN_OK;
}

static enum qplan_status check_config(const struct qp_listing *listing, struct qplan_error *err)
{
    const struct qp_tree *tree;
    const struct qp_tree_value *config = qp_description(listing, &tree);
    const struct qp_tree_value *algo = qp_tree_member(tree, config, "quant_algo");
    char shown[QP_QUOTED];
    if (!qp_tree_is_string(tree, algo, WEIGHT_ONLY) && !qp_tree_is_string(tree, algo, WITH_INPUTS))
        return qp_fail(err, QPLAN_ERR_INVALID, tree->name,
                       "quant_algo: expected " WEIGHT_ONLY " or " WITH_INPUTS ", found %s",
                       algo ? qp_tree_show(shown, tree, algo) : "none");
    QP_TRY(check_number(tree, config, "group_size", BLOCK->width, err));
    return check_groups(tree, qp_tree_member(tree, config, "config_groups"), err);
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

/* Extents of the weight whose codes and scales these are; false if they do not go together. */
static bool find_shape(const struct qplan_entry *codes, const struct qplan_entry *scale,
                       uint64_t shape[2])
{
    uint64_t elems;
    if (codes->rank != 2 || scale->rank != 2 || !qp_mul_u64(codes->shape[1], 2, &shape[1]))
        return false;
    shape[0] = codes->shape[0];
    return shape[1] % BLOCK->width == 0 && scale->shape[1] == shape[1] / BLOCK->width &&
           qp_shape_elements(shape, 2, &elems) && elems > 0;
}

static enum qplan_status describe_module(const struct qp_listing *listing,
                                         const struct qplan_entry *codes,
                                         const struct qplan_entry *scale,
                                         const struct qplan_scheme *scheme, struct qp_arena *arena,
                                         struct qp_tensor **tensors, size_t *n,
                                         struct qplan_error *err)
{
    enum qplan_storage storage = QPLAN_STORAGE_F32; /* that of the decoder */
    uint64_t shape[2];
    char subject[512];
    (void)qp_model_storage(listing, &storage);
    if (!find_shape(codes, scale, shape))
        return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, codes),
                       "its shape and that of its scales do not fit blocks of 16");
    const struct qp_tensor t = {.name = codes->name,
                                .name_len = codes->name_len,
                                .shape = qp_arena_copy(arena, shape, 2, sizeof *shape),
                                .rank = 2,
                                .storage = (uint8_t)storage,
                                .scheme = scheme};
    return t.shape && qp_add_tensor(tensors, n, &t) ? QPLAN_OK
                                                    : qp_fail_memory(err, listing->shown, sizeof t);
}

static bool are_codes(const struct qplan_entry *entry)
{
    return entry && entry->storage == QPLAN_STORAGE_U8 &&
           qp_name_ends(entry->name, entry->name_len, suffix);
}

/* What has the name of scales, or of a factor, stands beside codes that have scales. */
static enum qplan_status check_part(const struct qp_listing *listing,
                                    const struct qplan_entry *entry, const char *part,
                                    struct qplan_error *err)
{
    char subject[512];
    if (!qp_name_ends(entry->name, entry->name_len, part))
        return QPLAN_OK;
    const size_t n = entry->name_len - strlen(part);
    if (!qp_name_ends(entry->name, n, suffix) ||
        (are_codes(qp_listing_find(listing, entry->name, n)) &&
         qp_listing_sibling(listing, entry->name, n, scale_suffix)))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, entry),
                   "part of a quantized weight: expected codes of type U8 and their scales beside "
                   "it");
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    const struct qplan_scheme made = qp_blocks_scheme(BLOCK);
    const struct qplan_scheme *scheme = qp_arena_copy(arena, &made, 1, sizeof made);
    QP_TRY(check_config(listing, err));
    if (!scheme)
        return qp_fail_memory(err, listing->shown, sizeof made);
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i], *scale;
        QP_TRY(check_part(listing, entry, scale_suffix, err));
        QP_TRY(check_part(listing, entry, factor_suffix, err));
        if (!are_codes(entry))
            continue;
        scale = qp_listing_sibling(listing, entry->name, entry->name_len, scale_suffix);
        if (scale)
            QP_TRY(describe_module(listing, entry, scale, scheme, arena, tensors, n, err));
    }
    return QPLAN_OK;
}

static const char *const inputs[] = {".input_scale", NULL};

const struct qp_format qp_format_modelopt = {
    .name = "modelopt",
    .loaded_by = "TensorRT-LLM, vLLM",
    .schemes = "nvfp4",
    .reads = "folders described in hf_quant_config.json alone",
    .scheme = "nvfp4",
    .is_folder = true,
    .select = "linear",
    .recipe = "reference:modelopt",
    .rank = 2,
    .has_shared_factors = true,
    .has_one_scheme = true,
    .described_in = "hf_quant_config.json",
    .inputs = inputs,
    .n_variants = 1,
    .is = is,
    .describe = describe,
    .fit = fit,
    .misfit = misfit,
    .variant = variant,
    .parts = make_parts,
    .config = put_config,
    .config_keys = qp_quantization_keys,
};
