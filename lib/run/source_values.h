/*
 * source_values.h - the elements of a tensor as a plain tensor has them: the bytes of its file, or
 * decoded on the way.
 */
#ifndef QP_RUN_SOURCE_VALUES_H
#define QP_RUN_SOURCE_VALUES_H

#include "decode.h"
#include "lib/base/carve.h"

/* What decoding needs: a worker has one of these. */
struct qp_value_room {
    void *block; /* values in working precision */
    void *codes; /* of n_elems elements */
    size_t n_elems;
    struct qp_param_window window;
    void *hold; /* turned parts of what is read at once, or NULL */
    size_t hold_bytes;
};

/* Takes the room for decoding tile_bytes / 8 elements at a time, without one for a hold. */
void qp_values_carve(struct qp_carve *carve, size_t tile_bytes, struct qp_value_room *room);

/* Whether a plain tensor is decoded from codes that go down its columns: held, they are read once.
 */
bool qp_values_need_hold(const struct qp_tensor *tensor);

/* Takes the room to hold turned parts, as packed as they are, of what a tile is read from. */
void qp_values_carve_hold(struct qp_carve *carve, size_t tile_bytes, struct qp_value_room *room);

/* Where values come from, and how they are made. */
struct qp_values {
    const struct qp_source *source;
    const struct qp_tensor *tensor;
    enum qplan_isa isa;
    const struct qp_value_room *room; /* not used for a tensor that is not decoded */
};

/* The values of n elements of a quantized tensor, from elem on, as dtype. */
enum qplan_status qp_values_decode(const struct qp_values *values, uint64_t elem, uint64_t n,
                                   enum qplan_dtype dtype, void *out, struct qplan_error *err);

/* The n elements of a plain tensor from elem on, in its type; they have whole bytes. */
enum qplan_status qp_values_read(const struct qp_values *values, uint64_t elem, uint64_t n,
                                 void *out, struct qplan_error *err);

/* What fills the lines of packed codes stands for nothing: INVALID if some of it is not 0. */
enum qplan_status qp_check_fill(const struct qp_source *source, const struct qp_tensor *tensor,
                                uint64_t n_bad, struct qplan_error *err);

#endif
