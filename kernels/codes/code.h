/*
 * code.h - what codes are. A code type is a row of the table in code.c. A code is one byte in
 * memory, whatever it is in a file.
 */
#ifndef QP_KERNELS_CODE_H
#define QP_KERNELS_CODE_H

#include "lib/model/scheme.h"

/* How a code stands for a value: what kernels that encode and decode are made for. */
enum qp_code_kind {
    QP_CODES_LINEAR, /* an integer q, which stands for scale * (q - zero point) */
    QP_CODES_BIASED, /* an integer q from 0 on, which stands for scale * q + bias */
    QP_CODES_FLOAT,  /* a small float v, which stands for scale * v */
    QP_CODES_BOOK,   /* the place of v in a table of ascending values: scale * v */
};

/* A small float is a sign, an exponent and a mantissa; the exponent 0 has no hidden bit. */
struct qp_float_grid {
    uint8_t sign;     /* the bit of the sign in a code */
    uint8_t man_bits; /* of the mantissa */
    int8_t least_exp; /* of the least value with a hidden bit */
    uint8_t top;      /* the code of the largest value: those above it, as far as the sign, are no
                       * numbers */
};

struct qp_code_type {
    const char *name;
    enum qplan_dtype dtype;
    enum qp_code_kind kind;
    int32_t least, most; /* codes of integers */
    const float *book;   /* of a table: 1 << bits values; the largest may be there twice */
    double largest;      /* value in scales, of floats and tables: the least is as far from 0 */
    /*
     * The largest error, in scales, of the nearest code to a value between the least and the most:
     * what bounds allow. It has at most 29 bits, so that its product with an f32 is exact in f64.
     */
    double reach;
    uint8_t span; /* no code stands for more than 2^span scales */
    uint8_t bits;
    bool is_signed;            /* a byte of it is two's complement */
    bool only_read;            /* no scheme makes such codes, and no device has them */
    struct qp_float_grid grid; /* of floats */
};

/* All rows, ended by one without a name. */
extern const struct qp_code_type qp_code_types[];

/* The row of a dtype, or NULL if it is none of codes. */
const struct qp_code_type *qp_code_type(enum qplan_dtype dtype);

/* Whether codes of a kind stand for values of their own, without zero point or bias. */
static inline bool qp_is_valued(enum qp_code_kind kind)
{
    return kind == QP_CODES_FLOAT || kind == QP_CODES_BOOK;
}

/* How codes are made from a range. */
struct qp_code_rule {
    const struct qp_code_type *type;
    enum qp_code_kind kind; /* of the type, or biased if the scheme has a bias */
    int32_t q_min, q_max;   /* the integers that are used: not all of the type if narrow */
    bool asymmetric;
    enum qplan_dtype scale_dtype; /* what the scale is rounded up to, and a bias down */
    bool of_largest; /* a stored scale is the value of q_max (largest.h); kernels get the step */
    /*
     * Scales of the type f8e4m3 are stored for all sets of a tensor under one factor, which is 1
     * where a layout has none. A scale is the stored number times the factor or, where the factor
     * divides, the quotient of the two: a single operation in f32.
     */
    float factor;
    bool divides;
    bool rounds; /* of biased codes: decoding rounds scale * q and the sum to scale_dtype */
    /*
     * A promise to quantize, which may save it some checks: every value is finite, and no quotient
     * of a value and its scale passes 512 in size, or of floats comes to what is half way between
     * the largest value and one that would follow it, or passes the largest of a table by more than
     * roundings do. It is the caller's to give, and true where the
     * scale was made from these very values, none of them was left outside the codes on purpose,
     * and a value that is not finite ends the run.
     */
    bool bounded;
};

/* The rule that a scheme makes codes by, without a promise and with a factor of 1. */
struct qp_code_rule qp_code_rule(const struct qplan_scheme *scheme);

/*
 * The size of values, in scales, that the largest value of a set is brought to; and that up to
 * which a value is as near to the last code of floats as it would be between two.
 */
static inline double qp_code_top(const struct qp_code_rule *rule)
{
    return qp_is_valued(rule->kind) ? rule->type->largest : (double)(rule->q_max - rule->q_min) / 2;
}

static inline double qp_code_end(const struct qp_code_rule *rule)
{
    return rule->kind == QP_CODES_FLOAT ? rule->type->largest + rule->type->reach
                                        : qp_code_top(rule);
}

/* The scale that a stored one of the type f8e4m3 stands for. */
static inline float qp_with_factor(const struct qp_code_rule *rule, float stored)
{
    return rule->divides ? stored / rule->factor : stored * rule->factor;
}

#endif
