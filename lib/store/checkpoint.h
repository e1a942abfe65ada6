/*
 * checkpoint.h - an open checkpoint, seen from inside the library: its files, its layout, and its
 * tensors as people think of them.
 */
#ifndef QP_CHECKPOINT_H
#define QP_CHECKPOINT_H

#include "formats/making.h"
#include "source.h"

struct qplan_checkpoint {
    struct qp_source source;
    const struct qp_format *format; /* NULL = nothing in it is quantized */
    struct qp_tensor *tensors;      /* plain and quantized ones, in byte-wise order of names */
    size_t n_tensors, n_quantized;
    struct qp_making making; /* how its quantized tensors were made */
    bool is_decoded;         /* quantized tensors are seen as plain ones (.encoded) */
    struct qp_arena arena;   /* what quantized tensors point to */
};

/* Takes over an open source, also on failure, and finds its tensors. */
enum qplan_status qp_checkpoint_make(struct qplan_checkpoint **out, struct qp_source *source,
                                     struct qplan_error *err);

/* The tensor with this name, or NULL. */
const struct qp_tensor *qp_checkpoint_find(const struct qplan_checkpoint *checkpoint,
                                           const char *name, size_t n);

/* "file.safetensors: 'tensor'" for messages. */
const char *qp_checkpoint_subject(char out[512], const struct qplan_checkpoint *checkpoint,
                                  const struct qp_tensor *tensor);

/* Bytes of a tensor in its files: of all its parts, or of those of one role. */
uint64_t qp_tensor_bytes(const struct qp_tensor *tensor);
uint64_t qp_role_bytes(const struct qp_tensor *tensor, enum qp_role role);

#endif
