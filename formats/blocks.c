/*
 * blocks.c - the table of blocks.
 */
#include "blocks.h"

const struct qp_blocks_row qp_blocks[QP_BLOCKS] = {
    [QP_NVFP4] = {"nvfp4", QPLAN_F4E2M1, QPLAN_F8E4M3, 16},
    [QP_MXFP4] = {"mxfp4", QPLAN_F4E2M1, QPLAN_E8M0, 32},
    [QP_MXFP8] = {"mxfp8", QPLAN_F8E4M3, QPLAN_E8M0, 32},
};

const struct qp_blocks_row *qp_blocks_of(const struct qplan_scheme *scheme)
{
    for (int i = 0; i < QP_BLOCKS; i++) {
        const struct qp_blocks_row *row = &qp_blocks[i];
        if (scheme->dtype == row->dtype && scheme->granularity == QPLAN_PER_GROUP &&
            scheme->group == row->width &&
            (!scheme->scale_given || scheme->scale_dtype == row->scale))
            return row;
    }
    return NULL;
}

struct qplan_scheme qp_blocks_scheme(const struct qp_blocks_row *row)
{
    return (struct qplan_scheme){.dtype = row->dtype,
                                 .granularity = QPLAN_PER_GROUP,
                                 .group = row->width,
                                 .scale_dtype = row->scale};
}
