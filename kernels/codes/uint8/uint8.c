/*
 * uint8.c - the row of uint8: integers of 8 bits from 0 on.
 */
#include "kernels/codes/code.h"

const struct qp_code_type qp_code_uint8 = {
    .dtype = QPLAN_UINT8,
    .name = "uint8",
    .bits = 8,
    .kind = QP_CODES_LINEAR,
    .is_signed = false,
    .least = 0,
    .most = 255,
    .reach = 0.5,
};
