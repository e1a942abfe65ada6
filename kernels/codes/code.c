/*
 * code.c - the table of code types, and what a scheme makes of one.
 */
#include "code.h"

#include <stddef.h>

/* Integers, which stand for steps: between two of them nothing is further off than half a step. */
#define SIGNED(BITS)                                                                               \
    {                                                                                              \
        .dtype = QPLAN_INT##BITS, .name = "int" #BITS, .bits = (BITS), .kind = QP_CODES_LINEAR,    \
        .is_signed = true, .least = -(1 << ((BITS)-1)), .most = (1 << ((BITS)-1)) - 1,             \
        .reach = 0.5, .span = (BITS)                                                               \
    }

#define UNSIGNED(BITS)                                                                             \
    {                                                                                              \
        .dtype = QPLAN_UINT##BITS, .name = "uint" #BITS, .bits = (BITS), .kind = QP_CODES_LINEAR,  \
        .most = (1 << (BITS)) - 1, .reach = 0.5, .span = (BITS)                                    \
    }

/* The quantiles of a normal distribution that QLoRA made a type of, as bitsandbytes has them. */
static const float nf4[16] = {
    -0x1p+0f,        -0x1.647362p-1f, -0x1.0cd66p-1f,  -0x1.946540p-2f,
    -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0,
    0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
    0x1.c34970p-2f,  0x1.200f56p-1f,  0x1.722766p-1f,  0x1p+0f,
};

/*
 * The values that bitsandbytes calls fp4, ascending, with a single 0: its codes are in another
 * order, which places undo.
 */
static const float fp4[16] = {
    -0x1p+0f,       -0x1.555556p-1f, -0x1p-1f,        -0x1.555556p-2f,
    -0x1p-2f,       -0x1.555556p-3f, -0x1.555556p-8f, 0,
    0x1.555556p-8f, 0x1.555556p-3f,  0x1p-2f,         0x1.555556p-2f,
    0x1p-1f,        0x1.555556p-1f,  0x1p+0f,         0x1p+0f,
};

const struct qp_code_type qp_code_types[] = {
    SIGNED(2),
    SIGNED(3),
    SIGNED(4),
    SIGNED(5),
    SIGNED(6),
    SIGNED(7),
    SIGNED(8),
    UNSIGNED(2),
    UNSIGNED(3),
    UNSIGNED(4),
    UNSIGNED(5),
    UNSIGNED(6),
    UNSIGNED(7),
    UNSIGNED(8),
    {
        .dtype = QPLAN_F8E4M3,
        .name = "f8e4m3",
        .bits = 8,
        .kind = QP_CODES_FLOAT,
        .grid = {.sign = 0x80, .man_bits = 3, .least_exp = -6, .top = 0x7e},
        .largest = 448,
        .reach = 16,
        .span = 9,
    },
    {
        .dtype = QPLAN_F8E5M2,
        .name = "f8e5m2",
        .bits = 8,
        .kind = QP_CODES_FLOAT,
        .grid = {.sign = 0x80, .man_bits = 2, .least_exp = -14, .top = 0x7b},
        .largest = 57344,
        .reach = 4096,
        .span = 16,
    },
    {
        .dtype = QPLAN_F4E2M1,
        .name = "f4e2m1",
        .bits = 4,
        .kind = QP_CODES_FLOAT,
        .grid = {.sign = 0x8, .man_bits = 1, .least_exp = 0, .top = 0x7},
        .largest = 6,
        .reach = 1,
        .span = 3,
    },
    {
        .dtype = QPLAN_NF4,
        .name = "nf4",
        .bits = 4,
        .kind = QP_CODES_BOOK,
        .book = nf4,
        .largest = 1,
        .reach = 0x1.37193cp-3,
    },
    {
        .dtype = QPLAN_FP4,
        .name = "fp4",
        .bits = 4,
        .kind = QP_CODES_BOOK,
        .book = fp4,
        .only_read = true,
        .largest = 1,
        .reach = 0x1.555554p-3,
    },
    {.name = NULL},
};

const struct qp_code_type *qp_code_type(enum qplan_dtype dtype)
{
    const struct qp_code_type *row = qp_code_types;
    while (row->name && row->dtype != dtype)
        row++;
    return row->name ? row : NULL;
}

struct qp_code_rule qp_code_rule(const struct qplan_scheme *scheme)
{
    struct qp_code_rule rule = {
        .type = qp_code_type(scheme->dtype),
        .kind = scheme->bias ? QP_CODES_BIASED : qp_code_type(scheme->dtype)->kind,
        .asymmetric = scheme->asymmetric,
        .scale_dtype = scheme->scale_dtype,
        .factor = 1,
    };
    if (!qp_is_valued(rule.kind))
        qp_scheme_range(scheme, &rule.q_min, &rule.q_max);
    return rule;
}
