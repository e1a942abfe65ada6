/*
 * qk_ops.h - what the kernels of all operators share: the words of a run's status. They begin as 0
 * but for QK_OP_FIRST_BAD, which begins as QK_OP_NONE.
 */
#ifndef QK_OPS_H
#define QK_OPS_H

#include "qk_platform.h"

#define QK_OP_STATUS    16
#define QK_OP_NONFINITE 0 /* elements that were saturated */
#define QK_OP_SKIPPED   1 /* indices that were left out */
#define QK_OP_OVERFLOW  2 /* finite results that are stored as infinity */
#define QK_OP_FIRST_BAD 3 /* the lowest of what must not be, for the kernel that looks for it */
#define QK_OP_NONE      0xffffffffu

#endif
