/*
 * comfyui.h - what the files of this layout share.
 */
#ifndef QP_FORMAT_COMFYUI_H
#define QP_FORMAT_COMFYUI_H

#include "formats/format.h"

/*
 * How a tensor is stored: the first is written. Marks are tensors, or all in the header; scales are
 * of the first type of their kind, or of the other. Old scales have no axis, or one.
 */
enum {
    QP_COMFY_USUAL,
    QP_COMFY_OTHER_SCALES,
    QP_COMFY_IN_HEADER,
    QP_COMFY_IN_HEADER_OTHER_SCALES,
    QP_COMFY_OLD,
    QP_COMFY_OLD_WITH_AXIS
};

/* The key of the metadata that have the marks of layers. */
#define QP_COMFY_CLAIM "_quantization_metadata"

/* A layer L, and the object that names its format. */
struct qp_comfy_layer {
    const char *subject; /* of messages */
    const char *name;
    size_t name_len;
    const struct qp_tree *tree;
    const struct qp_tree_value *mark;
    bool in_header;
};

/* Appends the tensor of a layer. */
enum qplan_status qp_comfy_describe_layer(const struct qp_listing *listing, struct qp_arena *arena,
                                          const struct qp_comfy_layer *layer,
                                          struct qp_tensor **tensors, size_t *n,
                                          struct qplan_error *err);

/* Whether the header of a file has marks of layers, and the tensors of these layers. */
bool qp_comfy_has_claim(const struct qp_listing *listing);
enum qplan_status qp_comfy_header_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                           struct qp_tensor **tensors, size_t *n,
                                           struct qplan_error *err);

#define QP_COMFY_OLD_SCALE ".scale_weight"

/* Whether an entry is the mark of all old layers of a prefix; *dtype is what their codes are. */
bool qp_comfy_is_old_mark(const struct qplan_entry *entry, enum qplan_dtype *dtype);

/* Rows of struct qp_format, and what describes the layer of an old scale. */
bool qp_comfy_is_note(const struct qp_listing *listing, const struct qplan_entry *entry,
                      const struct qp_tensor *tensors, size_t n);
unsigned qp_comfy_old_parts(const struct qp_tensor *t, struct qp_arena *arena,
                            struct qp_part *parts, struct qplan_entry *entries);
enum qplan_status qp_comfy_old_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                        const struct qplan_entry *scale, struct qp_tensor **tensors,
                                        size_t *n, struct qplan_error *err);

#endif
