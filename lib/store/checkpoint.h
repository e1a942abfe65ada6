/*
 * checkpoint.h - an open checkpoint, seen from inside the library.
 */
#ifndef QP_CHECKPOINT_H
#define QP_CHECKPOINT_H

#include "formats/qplan/native.h"

struct qplan_checkpoint {
    struct qp_st st;
    bool is_native;
    struct qp_native_tensor *native; /* the quantized tensors of a native file, in name order */
    size_t n_native;
    bool *is_sidecar; /* by entry: whether it belongs to a quantized tensor; NULL = none does */
    struct qp_labels labels; /* of these */
};

/* The same checks for a descriptor that stays the caller's: an output that has no name yet. */
enum qplan_status qp_checkpoint_open_fd(struct qplan_checkpoint **out, int fd, const char *path,
                                        struct qplan_error *err);

/*
 * One tensor as people think of it: a quantized one with its parts, or a plain one. Sidecars do not
 * show up.
 */
struct qp_logical {
    const struct qp_native_tensor *native; /* NULL = plain */
    const struct qplan_entry *entry;       /* the plain tensor, or the codes; both have the name */
    const uint64_t *shape;                 /* shape and dtype before quantization */
    unsigned rank;
    enum qplan_storage source;
};

/* Whether an entry is the scale or the zero points of a quantized tensor. */
bool qp_is_sidecar(const struct qplan_checkpoint *checkpoint, const struct qplan_entry *entry);

/* Walks the logical tensors in name order; false at the end. Start with a zeroed cursor. */
struct qp_logical_cursor {
    size_t entry, native;
};
bool qp_logical_next(const struct qplan_checkpoint *checkpoint, struct qp_logical_cursor *cursor,
                     struct qp_logical *out);

#endif
