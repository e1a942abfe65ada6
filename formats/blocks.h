/*
 * blocks.h - what several layouts call nvfp4, mxfp4 and mxfp8: blocks of floats, each with a scale
 * of one byte.
 */
#ifndef QP_FORMAT_BLOCKS_H
#define QP_FORMAT_BLOCKS_H

#include "format.h"

enum { QP_NVFP4, QP_MXFP4, QP_MXFP8, QP_BLOCKS };

struct qp_blocks_row {
    const char *name;
    enum qplan_dtype dtype, scale;
    uint64_t width;
};

extern const struct qp_blocks_row qp_blocks[QP_BLOCKS];

/* The row of a scheme, which may leave the type of the scales open; NULL if it has none. */
const struct qp_blocks_row *qp_blocks_of(const struct qplan_scheme *scheme);

/* The scheme of a row. */
struct qplan_scheme qp_blocks_scheme(const struct qp_blocks_row *row);

#endif
