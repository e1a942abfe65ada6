/*
 * lint_floats.c - rules on codes of floats: fp8, and blocks that share a scale of one byte.
 */
#include "lint.h"

#include "formats/blocks.h"
#include "formats/build.h"

/* ---- compressed-tensors: config.json and stored tensors -----------------------------------------
 */

static bool is_float_group(const struct qp_lint *l, const struct qp_tree_value *weights)
{
    return qp_tree_is_string(l->tree, qp_tree_member(l->tree, weights, "type"), "float");
}

enum qplan_status qp_lint_ct_mx_scale(struct qp_lint *l, const char *name,
                                      const struct qp_tree_value *group)
{
    const struct qp_tree_value *weights = qp_tree_member(l->tree, group, "weights");
    const struct qp_tree_value *scale = qp_tree_member(l->tree, weights, "scale_dtype");
    const struct qp_blocks_row *block = &qp_blocks[QP_MXFP8];
    char quoted[QP_QUOTED], shown[QP_QUOTED];
    if (!is_float_group(l, weights) ||
        !qp_tree_is_number(qp_tree_member(l->tree, weights, "num_bits"), 8) ||
        !qp_tree_is_number(qp_tree_member(l->tree, weights, "group_size"), block->width) ||
        qp_tree_is_string(l->tree, scale, "torch.uint8"))
        return QPLAN_OK;
    return qp_lint_find(l, NULL, 0,
                        "config group %s: scale_dtype: expected \"torch.uint8\", by which engines "
                        "know mxfp8, found %s",
                        qp_quote(quoted, name, strlen(name)),
                        scale ? qp_tree_show(shown, l->tree, scale) : "none");
}

enum qplan_status qp_lint_ct_alone(struct qp_lint *l, const char *name, const char *format,
                                   const struct qp_tree_value *group)
{
    char quoted[QP_QUOTED];
    const bool is_active = qp_tree_is_object(qp_tree_member(l->tree, group, "input_activations"));
    if (!is_float_group(l, qp_tree_member(l->tree, group, "weights")) ||
        strcmp(format, is_active ? "naive-quantized" : "float-quantized") != 0)
        return QPLAN_OK;
    return qp_lint_find(l, NULL, 0,
                        "config group %s: %s %s input_activations: compressed-tensors calls that "
                        "%s-quantized",
                        qp_quote(quoted, name, strlen(name)), format,
                        is_active ? "with" : "without", is_active ? "float" : "naive");
}

enum qplan_status qp_lint_ct_factor_shape(struct qp_lint *l)
{
    for (size_t i = 0; i < l->listing->n_entries; i++) {
        const struct qplan_entry *entry = &l->listing->entries[i];
        char found[256];
        if (!qp_name_ends(entry->name, entry->name_len, ".weight_global_scale") ||
            (entry->storage == QPLAN_STORAGE_F32 && entry->rank == 1 && entry->shape[0] == 1))
            continue;
        QP_TRY(qp_lint_find(l, entry->name, entry->name_len,
                            "transformers refuses a global scale of other than F32 [1]: found %s "
                            "%s",
                            qplan_storage_name((enum qplan_storage)entry->storage),
                            qp_format_list(found, sizeof found, entry->shape, entry->rank)));
    }
    return QPLAN_OK;
}

/* ---- Tensors -----------------------------------------------------------------------------------
 */

enum qplan_status qp_lint_nvfp4_experts(struct qp_lint *l)
{
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (t->scheme && qp_tensor_part(t, QP_FACTOR) && qp_lint_has(t, ".experts.#."))
            QP_TRY(qp_lint_find_tensor(l, t,
                                       "an expert of nvfp4: transformers 5.23 loads it without its "
                                       "global scale, without an error"));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_ct_ragged(struct qp_lint *l)
{
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (t->scheme && t->scheme->granularity == QPLAN_PER_BLOCK &&
            (t->shape[0] % t->scheme->block_rows != 0 || t->shape[1] % t->scheme->block_cols != 0))
            QP_TRY(qp_lint_find_tensor(l, t,
                                       "its row length or its output channels are no multiple of "
                                       "the blocks: engines that load it with others as one, or "
                                       "share it out, refuse it"));
    }
    return QPLAN_OK;
}
