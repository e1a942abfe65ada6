/*
 * decode.h - the codes of a flat range of a tensor back to values, a block at a time: small enough
 * that what is done to the values next finds them in the first-level cache.
 */
#ifndef QP_DECODE_H
#define QP_DECODE_H

#include "stored.h"

struct qp_decoder {
    const struct qp_source *source;
    const struct qp_tensor *tensor;
    bool rounds; /* values are as decoders of the layout have them: of biased codes each step is
                  * rounded; products are not yet divided by the largest code */
    const struct qp_work_kernels *work;
    const struct qp_quantizer *quantizer;
    struct qp_code_rule rule;
    struct qp_sets sets;
    uint64_t elem, n;              /* the range; elem is a multiple of QP_BLOCK */
    void *room;                    /* for its codes: QP_DECODE_ROOM(n) bytes */
    const uint8_t *codes;          /* of the range, one byte each */
    uint64_t bad_fill;             /* lines of codes whose filling bits are not 0 */
    void *y;                       /* room for QP_BLOCK values */
    struct qp_param_window window; /* the parameters in memory, room for window_sets */
    size_t window_sets;
    void *steps;       /* room for window_sets numbers, unless .rounds */
    const void *scale; /* what codes of the window are multiplied by: its scales, or steps */
    uint64_t window_set, window_end; /* its first set, and the element at which it ends */
    uint64_t at;                     /* what comes next */
};

/* A part of a block whose parameters are in the window. */
struct qp_decoded {
    uint64_t at, n; /* elements of the range */
    struct qp_tile tile;
    size_t set;      /* of the window: where the tile's first set is */
    size_t new_sets; /* > 0 = the window has just been read, and has so many */
    bool ends_block; /* y now has the whole block, or all of it that there is */
    void *y;         /* the values */
};

#define QP_DECODE_ROOM(n) QP_PART_ROOM(n, 1)

/* Rounds n decoded values, but not of biased codes, to the type that decoders of the layout work
 * in.
 */
void qp_decode_round(const struct qp_tensor *tensor, const struct qp_work_kernels *work, size_t n,
                     void *y);

/*
 * Reads the codes of the range. The caller has set source, tensor, work, elem, n, room, y, the
 * window with its room, and rounds or steps.
 */
enum qplan_status qp_decode_begin(struct qp_decoder *decoder, enum qplan_isa isa,
                                  struct qplan_error *err);

/* Reads parameters if need be and decodes the next part; found is false at the end of the range. */
enum qplan_status qp_decode_next(struct qp_decoder *decoder, struct qp_decoded *part, bool *found,
                                 struct qplan_error *err);

/* Decodes a part once more, as decoders of the layout do. */
void qp_decode_again(const struct qp_decoder *decoder, const struct qp_decoded *part);

#endif
