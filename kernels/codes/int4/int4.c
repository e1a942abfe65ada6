/*
 * int4.c - the row of int4: integers of 4 bits with a sign.
 */
#include "kernels/codes/code.h"

const struct qp_code_type qp_code_int4 = {
    .dtype = QPLAN_INT4,
    .name = "int4",
    .bits = 4,
    .kind = QP_CODES_LINEAR,
    .is_signed = true,
    .least = -8,
    .most = 7,
    .reach = 0.5,
};
