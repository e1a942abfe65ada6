/*
 * comfyui_header.c - marks of layers in the metadata of a file; they are only read:
 *
 *     "_quantization_metadata": {"format_version": "1.0", "layers": {"L": {"format": "nvfp4"}}}
 *
 * ComfyUI takes each for the mark L.comfy_quant, which such a layer has not. It does not look at
 * the version, which may be absent.
 */
#include "comfyui.h"

#include <stdio.h>

/* A layer that is named twice is no concern of this file: then its tensors are claimed twice. */
static enum qplan_status describe_layers(const struct qp_listing *listing, struct qp_arena *arena,
                                         const struct qp_tree *tree,
                                         const struct qp_tree_value *layers,
                                         struct qp_tensor **tensors, size_t *n)
{
    char subject[1024], quoted[QP_QUOTED];
    const struct qp_tree_value *mark = qp_tree_first(layers);
    for (uint32_t i = 0; i < layers->n; i++, mark = qp_tree_next(mark)) {
        const char *name = qp_tree_key(tree, mark);
        const struct qp_comfy_layer layer = {.subject = subject,
                                             .name = name,
                                             .name_len = strlen(name),
                                             .tree = tree,
                                             .mark = mark,
                                             .in_header = true};
        (void)snprintf(subject, sizeof subject, "%s: %s", tree->name,
                       qp_quote(quoted, name, layer.name_len));
        QP_TRY(qp_comfy_describe_layer(listing, arena, &layer, tensors, n, tree->err));
    }
    return QPLAN_OK;
}

static enum qplan_status describe_file(const struct qp_listing *listing, struct qp_arena *arena,
                                       const struct qp_tree *tree, struct qp_tensor **tensors,
                                       size_t *n)
{
    static const char *const keys[] = {"format_version", "layers", NULL};
    const struct qp_tree_value *members[QP_TREE_MAX_KEYS];
    char shown[QP_QUOTED];
    QP_TRY(qp_tree_members(tree, tree->values, "value", keys, members));
    if (members[0] && !qp_tree_is_string(tree, members[0], "1.0"))
        return qp_fail(tree->err, QPLAN_ERR_INVALID, tree->name,
                       "format_version: expected \"1.0\", found %s",
                       qp_tree_show(shown, tree, members[0]));
    if (!qp_tree_is_object(members[1]))
        return qp_tree_bad(tree, "layers", "an object", NULL);
    return describe_layers(listing, arena, tree, members[1], tensors, n);
}

bool qp_comfy_has_claim(const struct qp_listing *listing)
{
    bool found = false;
    for (size_t i = 0; i < listing->n_files && !found; i++)
        found = qp_st_metadata(&listing->files[i], QP_COMFY_CLAIM) != NULL;
    return found;
}

enum qplan_status qp_comfy_header_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                           struct qp_tensor **tensors, size_t *n,
                                           struct qplan_error *err)
{
    char name[576];
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; i < listing->n_files && status == QPLAN_OK; i++) {
        const struct qp_st *st = &listing->files[i];
        const struct qp_st_pair *pair = qp_st_metadata(st, QP_COMFY_CLAIM);
        struct qp_tree tree = {.name = name, .err = err, .any_numbers = true};
        if (!pair)
            continue;
        (void)snprintf(name, sizeof name, "%s: metadata " QP_COMFY_CLAIM, st->file.shown);
        status = qp_tree_read(&tree, pair->value, pair->value_len);
        if (status == QPLAN_OK)
            status = describe_file(listing, arena, &tree, tensors, n);
        qp_tree_free(&tree);
    }
    return status;
}
