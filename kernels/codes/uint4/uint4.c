/*
 * uint4.c - the row of uint4: integers of 4 bits from 0 on.
 */
#include "kernels/codes/code.h"

const struct qp_code_type qp_code_uint4 = {
    .dtype = QPLAN_UINT4,
    .name = "uint4",
    .bits = 4,
    .kind = QP_CODES_LINEAR,
    .is_signed = false,
    .least = 0,
    .most = 15,
    .reach = 0.5,
};
