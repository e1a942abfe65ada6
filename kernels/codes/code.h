/*
 * code.h - what codes are. A code type is a row: kernels/codes/NAME/NAME.c defines qp_code_NAME,
 * and the build lists the folders. A code is one byte in memory, whatever it is in a file.
 */
#ifndef QP_KERNELS_CODE_H
#define QP_KERNELS_CODE_H

#include "lib/model/scheme.h"

/* How a code stands for a value: what kernels that encode and decode are made for. */
enum qp_code_kind {
    QP_CODES_LINEAR, /* an integer q, which stands for scale * (q - zero point) */
};

struct qp_code_type {
    enum qplan_dtype dtype;
    const char *name;
    uint8_t bits;
    enum qp_code_kind kind;
    bool is_signed;      /* a byte of it is two's complement */
    int32_t least, most; /* codes */
    /*
     * The largest error, in scales, of the nearest code to a value between the least and the most:
     * what bounds allow. It has at most 29 bits, so that its product with an f32 is exact in f64.
     */
    double reach;
};

/* All rows, ended by NULL. */
extern const struct qp_code_type *const qp_code_types[];

/* The row of a dtype, or NULL if it is none of codes. */
const struct qp_code_type *qp_code_type(enum qplan_dtype dtype);

/* How codes are made from a range. */
struct qp_code_rule {
    const struct qp_code_type *type;
    int32_t q_min, q_max; /* the codes of the type that are used: not all of them if narrow */
    bool asymmetric;
    enum qplan_dtype scale_dtype; /* what the scale is rounded up to */
    /*
     * A promise to quantize, which may save it some checks: every value is finite, and no quotient
     * of a value and its scale passes 512 in size. It is the caller's to give, and true where the
     * scale was made from these very values, none of them was left outside the codes on purpose,
     * and a value that is not finite ends the run.
     */
    bool bounded;
};

/* The rule that a scheme makes codes by, without a promise. */
struct qp_code_rule qp_code_rule(const struct qplan_scheme *scheme);

#endif
