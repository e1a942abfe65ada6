/*
 * quant.h - what the quantize family shares: fields, the checks of scale and zero_point, and the
 * walk over a chunk of elements tile by tile, with the parameters of each tile at hand.
 */
#ifndef QP_OPS_QUANT_H
#define QP_OPS_QUANT_H

#include "granularity.h"
#include "kernels/ops/affine.h"
#include "lib/model/tensor.h"

/* Zero points and codes beyond this do not add up exactly in f32. */
#define QP_QUANT_LIMIT (1 << 23)

/* ---- Tables -----------------------------------------------------------------------------------
 */

#define QP_FIELD_Q(NAME, DEFAULT)                                                                  \
    {                                                                                              \
        .name = (NAME), .type = QPLAN_FIELD_INT, .fallback = (DEFAULT), .least = -QP_QUANT_LIMIT,  \
        .most = QP_QUANT_LIMIT, .about = "an end of the codes"                                     \
    }
#define QP_FIELD_NONFINITE                                                                         \
    {                                                                                              \
        .name = "nonfinite", .type = QPLAN_FIELD_NAME, .fallback = "error",                        \
        .names = "error|saturate",                                                                 \
        .about =                                                                                   \
            "refuse NaN and infinite data, or saturate: infinities clip, NaN is the zero point"    \
    }
#define QP_FIELD_OUTPUT_CODE                                                                       \
    {                                                                                              \
        .name = "output_dtype", .type = QPLAN_FIELD_NAME, .fallback = "int8",                      \
        .names = QP_CODE_NAMES,                                                                    \
        .about = "of the codes; fewer than 8 bits are a dense stream of U8, low bits first, in "   \
                 "rows that begin a byte"                                                          \
    }
#define QP_INTEGER_NAMES                                                                           \
    "int8|uint8|int4|uint4|int16|uint16|int2|int3|int5|int6|int7|uint2|uint3|uint5|uint6|uint7"
#define QP_CODE_NAMES    QP_INTEGER_NAMES "|f8e4m3|f8e5m2|f4e2m1|nf4"
#define QP_CODE_STORAGES "I8|U8|F8_E4M3|F8_E5M2"

/* The same where a code type may be named. */
#define QP_FIELDS_CODE_OF(NAMES, ABOUT)                                                            \
    {.name = "code_dtype",                                                                         \
     .type = QPLAN_FIELD_NAME,                                                                     \
     .fallback = "(integers from q_min to q_max)",                                                 \
     .names = (NAMES),                                                                             \
     .about = "the codes that are meant; " ABOUT},                                                 \
        QP_FIELD_Q("q_min", "(that of code_dtype, else -128)"),                                    \
        QP_FIELD_Q("q_max", "(that of code_dtype, else 127)")
#define QP_FIELDS_CODE                                                                             \
    QP_FIELDS_CODE_OF(QP_CODE_NAMES, "those of floats and nf4 have no q_min and q_max")

/* Where zero points are trained. */
#define QP_FIELDS_INTEGER                                                                          \
    QP_FIELDS_CODE_OF(QP_INTEGER_NAMES, "not floats and nf4, which have no zero point to train")

/* Float data, which an output of its dtype and layout may overwrite. */
#define QP_ARGUMENT_DATA(NAME)                                                                     \
    {                                                                                              \
        .name = (NAME), .direction = QPLAN_OP_IN, .in_place = true, .dtypes = QP_FP,               \
        .shape = "[X]"                                                                             \
    }
#define QP_ARGUMENT_RESULT(NAME)                                                                   \
    {                                                                                              \
        .name = (NAME), .direction = QPLAN_OP_OUT, .dtypes = QP_FP, .shape = "[X]"                 \
    }

/* The two parameters as inputs; P is their shape in words. */
#define QP_ARGUMENT_SCALE(DTYPES, P)                                                               \
    {                                                                                              \
        .name = "scale", .direction = QPLAN_OP_IN, .dtypes = (DTYPES), .shape = (P)                \
    }
#define QP_ARGUMENT_ZERO_POINT(P)                                                                  \
    {                                                                                              \
        .name = "zero_point", .direction = QPLAN_OP_IN, .optional = true, .dtypes = "I32|I8|U8",   \
        .shape = (P)                                                                               \
    }
#define QP_ARGUMENT_FLOAT_ZERO_POINT(P)                                                            \
    {                                                                                              \
        .name = "zero_point", .direction = QPLAN_OP_IN, .optional = true, .dtypes = QP_FP,         \
        .shape = (P)                                                                               \
    }

/* A kernel on the buffers below, for the instruction set and the dtypes of the data. */
#define QP_QUANT_KERNEL(ISA, KEYS, VALIDATE, RUN)                                                  \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = (KEYS), .class = QP_OP_ELEMENTWISE,    \
        .workspace = qp_quant_workspace, .validate = (VALIDATE), .run = (RUN)                      \
    }

/* The data that the kernels of tiles have vector loops for. */
#define QP_QUANT_VECTOR_BITS (QP_FP_BITS & ~QP_BIT(QPLAN_STORAGE_F64))

/* The list of the five rows of a family. */
#define QP_GRANULARITY_ROWS                                                                        \
    {                                                                                              \
        &row_per_tensor, &row_per_channel, &row_per_group, &row_per_token, &row_per_block, NULL,   \
    }

/* ---- The problem ------------------------------------------------------------------------------
 */

/*
 * Begins the state of every row of the family. Where codes stand for values of their own, q_min and
 * q_max are the least and the largest value, in scales, all of which are integers.
 */
struct qp_quant {
    struct qp_op_geometry geometry;
    struct qp_code_rule rule;   /* type (if one is named), q_min, q_max; never bounded */
    int32_t zero_min, zero_max; /* what zero points may be */
    enum qplan_dtype code;      /* of the codes, if a type is named */
    bool packed;                /* codes have fewer than 8 bits */
    struct qp_place place;      /* of codes, in rows along the last axis */
    bool float_zero; /* zero points are floats, rounded and clamped to the codes; else integers */
};

/*
 * Checks scale and, where there is one, zero_point against the granularity for data of this shape,
 * and scale against the dtype of the data: F64 only with F64 data.
 */
enum qplan_status qp_quant_check(struct qplan_op *op, const uint64_t *shape, unsigned rank,
                                 struct qplan_error *err);
enum qplan_status qp_quant_check_scale_dtype(const struct qplan_op *op, enum qplan_storage data,
                                             struct qplan_error *err);

/* Whether codes stand for values of their own: they have no zero points. */
static inline bool qp_quant_is_valued(const struct qp_quant *quant)
{
    return quant->rule.type && qp_is_valued(quant->rule.type->kind);
}

/* For kernels that only take problems with such codes, or only the others. */
bool qp_quant_takes_values(const struct qplan_op *op);
bool qp_quant_takes_integers(const struct qplan_op *op);

/*
 * Sets code, packed and place. UNSUPPORTED for codes of 16 bits; INVALID for a zero point beside
 * codes that have none.
 */
enum qplan_status qp_quant_set_code(struct qplan_op *op, const char *field, enum qplan_dtype code,
                                    struct qplan_error *err);

/*
 * For operators that make codes of "input": the fields output_dtype, q_min and q_max, and the
 * output. INVALID for codes outside their dtype.
 */
enum qplan_status qp_quant_check_codes(struct qplan_op *op, struct qplan_error *err);

/*
 * For operators from float data to float data of the same dtype: the data, which is "input", "dout"
 * or both, the parameters, the range of codes if there are fields for it, and the output.
 */
enum qplan_status qp_quant_check_floats(struct qplan_op *op, const char *output,
                                        struct qplan_error *err);

/* For operators of that kind whose zero points are floats, of the dtype of scale. */
enum qplan_status qp_quant_check_learnable(struct qplan_op *op, const char *output,
                                           struct qplan_error *err);

/* ---- Values -----------------------------------------------------------------------------------
 */

/* VALUE for the first scale that is not finite and above 0, or zero point out of its range. */
enum qplan_status qp_quant_validate_params(const struct qp_op_call *call, struct qplan_error *err);

/* For kernels: the parameters alone; and, where the field nonfinite says so, the input too. */
enum qplan_status qp_quant_validate(struct qp_op_call *call, struct qplan_error *err);
enum qplan_status qp_quant_validate_all(struct qp_op_call *call, struct qplan_error *err);

/* How many of n elements are not finite. */
uint64_t qp_quant_nonfinite(const struct qp_source_kernels *source, const void *src, size_t n);

/* VALUE for the first code of "input" that is no number, with their count. */
enum qplan_status qp_quant_validate_codes(struct qp_op_call *call, struct qplan_error *err);

/* VALUE for the first element that is not finite, with their count. Uses the buffers below. */
enum qplan_status qp_quant_validate_finite(const struct qp_op_call *call, const char *argument,
                                           struct qplan_error *err);

/* ---- The walk ---------------------------------------------------------------------------------
 */

/* The buffers of a worker, of QP_OP_CHUNK elements each. */
struct qp_quant_worker {
    void *elems[2]; /* of 8 bytes: elements of strided tensors, decoded values */
    uint8_t *codes, *bytes;
    void *scale; /* the window of parameters, in working precision */
    int32_t *zero;
    void *stored, *narrow;  /* scales and zero points as they are stored */
    void *wide;             /* zero points that are floats, in working precision */
    uint64_t first, n_sets; /* what the window has; n_sets = 0: nothing */
    const void *at_scale;   /* of the window, or of the tensors themselves */
    const int32_t *at_zero;
};

/* The workspace of a kernel that uses these buffers, and those of one worker of a call. */
uint64_t qp_quant_workspace(const struct qplan_op *op);
struct qp_quant_worker qp_quant_worker(const struct qp_op_call *call, unsigned worker);

/* Codes that fill whole bytes, however many bits they have. */
#define QP_QUANT_GRAIN 8

/* A unit is so much short of a chunk: it may begin that early, so that no byte is cut. */
#define QP_QUANT_UNIT (QP_OP_CHUNK - (QP_QUANT_GRAIN - 1))

/* Units of a whole run, and where the u-th begins and ends. */
uint64_t qp_quant_units(const struct qp_quant *quant);
void qp_quant_unit(const struct qp_quant *quant, uint64_t u, uint64_t *begin, uint64_t *end);

/* A tile of a chunk, and its parameters: arrays with one element for each set of the tile. */
struct qp_quant_tile {
    struct qp_tile tile;
    size_t n; /* elements */
    const void *scale;
    const int32_t *zero;
};

/* The largest tile from elem on that ends at or before end. */
void qp_quant_next(const struct qp_op_call *call, struct qp_quant_worker *worker, uint64_t elem,
                   uint64_t end, struct qp_quant_tile *tile);

/* What an absent zero point means: 0, which floats clamp to the codes. */
int32_t qp_quant_absent_zero(const struct qp_quant *quant);

/* Zero points as they are stored, as integers. */
void qp_quant_load_zero(enum qplan_storage dtype, size_t n, const void *stored, int32_t *out);

/* The kernels of the working precision at the level that was picked. */
const struct qp_work_kernels *qp_quant_work(const struct qplan_op *op);

/* ---- Codes ------------------------------------------------------------------------------------
 */

/* n codes, one byte each, from flat element elem on: read from a tensor, packed or not. */
const uint8_t *qp_quant_get_codes(const struct qp_op_call *call, const struct qp_view *view,
                                  struct qp_quant_worker *worker, uint64_t elem, size_t n);

/* Where to write n codes, and bringing them to the tensor. */
uint8_t *qp_quant_code_room(const struct qp_op_call *call, const struct qp_view *view,
                            struct qp_quant_worker *worker, uint64_t elem, size_t n);
void qp_quant_put_codes(const struct qp_op_call *call, const struct qp_view *view,
                        struct qp_quant_worker *worker, uint64_t elem, size_t n,
                        const uint8_t *codes);

/* ---- Whole runs -------------------------------------------------------------------------------
 */

/* Codes of "input" with the parameters of the call, by the rule; counts what is not finite. */
void qp_quant_run_codes(struct qp_op_call *call, const struct qp_code_rule *rule);

/* What the codes of "input" stand for, in "output", where they stand for values of their own. */
void qp_quant_run_values(struct qp_op_call *call);

/* The kernels for the data of an op, and one of them over all of it; counts as its rows ask. */
const struct qp_affine_kernels *qp_quant_affine(const struct qplan_op *op);
void qp_quant_run_floats(struct qp_op_call *call, qp_affine_fn work, const char *output);

/* What a kernel of floats wants to know of a tile. */
struct qp_affine qp_quant_affine_tile(const struct qp_quant *quant,
                                      const struct qp_quant_tile *tile);

#endif
