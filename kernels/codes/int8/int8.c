/*
 * int8.c - the row of int8: integers of 8 bits with a sign.
 */
#include "kernels/codes/code.h"

const struct qp_code_type qp_code_int8 = {
    .dtype = QPLAN_INT8,
    .name = "int8",
    .bits = 8,
    .kind = QP_CODES_LINEAR,
    .is_signed = true,
    .least = -128,
    .most = 127,
    .reach = 0.5,
};
