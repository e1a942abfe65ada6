/*
 * params_from_statistics.c - scales and zero points from the least and largest values of sets, and
 * the bound of the error that they can make. The formulas are those of statistics.c.
 */
#include "families.h"

#include "lib/base/check.h"
#include "lib/base/text.h"
#include "lib/params/params.h"

#include <string.h>

/* Sets that are read at a time. */
#define STEP 256

/* ---- The problem ------------------------------------------------------------------------------
 */

static bool is_logarithmic(const struct qplan_op *op)
{
    return qp_op_is(op, "scheme", "logarithmic");
}

static bool is_linear(const struct qplan_op *op)
{
    return !is_logarithmic(op);
}

static enum qplan_status check_block_size(const struct qplan_op *op, struct qplan_error *err)
{
    const bool given = qp_op_value(op, "block_size")->given;
    const bool wanted = qp_op_is(op, "scheme", "block_wise");
    if (wanted && !given)
        return qp_op_fail_field(op, QPLAN_ERR_USAGE, "block_size", err,
                                "required with block_wise: expected a value, found none");
    if (given && !wanted)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "block_size", err,
                                "not of this scheme: expected it with block_wise only");
    return QPLAN_OK;
}

/* The state is the kind of parameters, without numbers. */
static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct qplan_params *kind = op->state;
    const struct qp_op_tensor *min = qp_op_tensor(op, "min");
    QP_TRY(check_block_size(op, err));
    *kind = (struct qplan_params){.dtype = qp_op_dtype(op, "dtype"),
                                  .scheme = (enum qplan_param_scheme)qp_op_number(op, "scheme"),
                                  .narrow_range = qp_op_number(op, "narrow_range"),
                                  .scale_dtype = op->work,
                                  .n_sets = 1,
                                  .block_size = (size_t)qp_op_number(op, "block_size")};
    if (kind->narrow_range && !qplan_dtype_is_signed(kind->dtype))
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "narrow_range", err,
                                "not of this dtype: expected a signed one, found %s",
                                qplan_dtype_name(kind->dtype));
    QP_TRY(qp_params_check_kind(kind, err));
    QP_TRY(qp_op_check_rank(op, "min", 1, err));
    QP_TRY(qp_op_check_same_dtype(op, "max", "min", err));
    QP_TRY(qp_op_check_shape(op, "max", min->shape, 1, "that of min", err));
    if (min->n_elems == 0)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, "min", err,
                                 "no sets: expected at least 1, found 0");
    QP_TRY(qp_op_make_output(op, "scale", min->dtype, min->shape, 1, err));
    QP_TRY(qp_op_make_output(op, "zero_point", QPLAN_STORAGE_I32, min->shape, 1, err));
    return qp_op_make_output(op, "error_bound", QPLAN_STORAGE_F64, min->shape, 1, err);
}

/* ---- Sets -------------------------------------------------------------------------------------
 */

/* Some sets at a time: statistics in, numbers out. */
struct sets {
    double min[STEP], max[STEP];
    double scale[STEP], bound[STEP];
    int32_t zero[STEP];
};

/* n numbers of an argument from flat index at on, as f64. */
static void load(const struct qp_op_call *call, const char *argument, uint64_t at, size_t n,
                 double *out)
{
    double gathered[STEP];
    const void *from = qp_view_get(qp_op_view(call, argument), at, n, gathered);
    if (call->op->work == QPLAN_F64) {
        memcpy(out, from, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (double)((const float *)from)[i];
}

/* Makes n sets from at on. */
static void make_sets(const struct qp_op_call *call, uint64_t at, size_t n, struct sets *sets)
{
    struct qplan_params params = *(const struct qplan_params *)call->op->state;
    double min[STEP], max[STEP]; /* as the parameters keep them */
    params.n_sets = n;
    params.scale = sets->scale;
    params.zero_point = sets->zero;
    params.min_val = min;
    params.max_val = max;
    load(call, "min", at, n, sets->min);
    load(call, "max", at, n, sets->max);
    qp_params_set(&params, sets->min, sets->max, n);
    qp_params_bounds(&params, n, sets->bound);
}

static enum qplan_status fail_set(const struct qp_op_call *call, uint64_t set,
                                  const struct qp_params_fault *fault, struct qplan_error *err)
{
    char found[QP_F64_TEXT];
    (void)qp_format_f64(found, fault->found);
    if (fault->member == QP_PARAMS_ZERO_POINT)
        return qp_op_fail_value(call->op, "min", set, err, "its zero point: expected %s, found %s",
                                fault->expected, found);
    return qp_op_fail_value(call->op, fault->member == QP_PARAMS_MIN ? "min" : "max", set, err,
                            "no range of numbers: expected %s, found %s", fault->expected, found);
}

static enum qplan_status validate(struct qp_op_call *call, struct qplan_error *err)
{
    const uint64_t n_sets = qp_op_tensor(call->op, "min")->n_elems;
    struct qp_params_fault fault;
    struct sets sets;
    for (uint64_t at = 0; at < n_sets; at += STEP) {
        const size_t n = (size_t)qp_min_u64(STEP, n_sets - at);
        load(call, "min", at, n, sets.min);
        load(call, "max", at, n, sets.max);
        const size_t bad = qp_params_check_ranges(call->op->state, sets.min, sets.max, n, &fault);
        if (bad < n)
            return fail_set(call, at + bad, &fault, err);
    }
    return QPLAN_OK;
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    const struct qp_op_call *call = ctx;
    const uint64_t at = u * STEP;
    const size_t n = (size_t)qp_min_u64(STEP, qp_op_tensor(call->op, "min")->n_elems - at);
    struct sets sets;
    float narrow[STEP];
    (void)worker;
    make_sets(call, at, n, &sets);
    for (size_t i = 0; i < n; i++)
        narrow[i] = (float)sets.scale[i];
    qp_view_put(qp_op_view(call, "scale"), at, n,
                call->op->work == QPLAN_F64 ? (const void *)sets.scale : (const void *)narrow);
    qp_view_put(qp_op_view(call, "zero_point"), at, n, sets.zero);
    qp_view_put(qp_op_view(call, "error_bound"), at, n, sets.bound);
}

static void run(struct qp_op_call *call)
{
    const uint64_t n_sets = qp_op_tensor(call->op, "min")->n_elems;
    qp_op_units(call->op, qp_div_up(n_sets, STEP), unit, call);
}

/* ---- The row ----------------------------------------------------------------------------------
 */

/* The logarithm is the host's, and may differ in its last bit elsewhere. */
#define KERNEL(TAKES, HOST)                                                                        \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = QPLAN_ISA_SCALAR,                                     \
        .keys = QP_BIT(QPLAN_STORAGE_F32) | QP_BIT(QPLAN_STORAGE_F64), .class = QP_OP_ELEMENTWISE, \
        .host_math = (HOST), .takes = (TAKES), .validate = validate, .run = run                    \
    }

static const struct qp_op_kernel kernels[] = {
    KERNEL(is_linear, false),
    KERNEL(is_logarithmic, true),
};

/* The schemes in the order of enum qplan_param_scheme. */
static const struct qplan_op_field_info fields[] = {
    {.name = "dtype",
     .type = QPLAN_FIELD_NAME,
     .names = "int8|uint8|int4|uint4|int16|uint16",
     .about = "of the codes"},
    {.name = "scheme",
     .type = QPLAN_FIELD_NAME,
     .names = "symmetric|asymmetric|linear|logarithmic|channel_wise|block_wise",
     .about = "the formula; linear, channel_wise and block_wise are asymmetric for each set"},
    {.name = "narrow_range",
     .type = QPLAN_FIELD_BOOL,
     .fallback = "false",
     .about = "leave out the least code; signed dtypes only"},
    {.name = "block_size",
     .type = QPLAN_FIELD_INT,
     .fallback = "(none; block_wise needs it)",
     .least = 1,
     .most = (int64_t)QP_OP_MAX_ELEMS,
     .about = "elements of a block"},
};

#define STATISTIC(NAME)                                                                            \
    {                                                                                              \
        .name = (NAME), .direction = QPLAN_OP_IN, .dtypes = "F32|F64", .shape = "[P]"              \
    }
#define RESULT(NAME, DTYPES)                                                                       \
    {                                                                                              \
        .name = (NAME), .direction = QPLAN_OP_OUT, .dtypes = (DTYPES), .shape = "[P]"              \
    }

static const struct qplan_op_argument_info arguments[] = {
    STATISTIC("min"),
    STATISTIC("max"),
    RESULT("scale", "F32|F64"),
    RESULT("zero_point", "I32"),
    RESULT("error_bound", "F64"),
};

static const struct qp_op_row row = {
    .info = {.name = "params_from_statistics",
             .category = "parameters",
             .summary = "scales and zero points from the ranges of sets",
             .formula =
                 "lo = min(min, 0), hi = max(max, 0); symmetric: scale = max(-lo, hi) / ((q_max - "
                 "q_min) / 2), zero_point 0 or the midpoint; else scale = (hi - lo) / (q_max - "
                 "q_min), zero_point = clamp(q_min - rne(lo / scale)); logarithmic: the same on ln "
                 "min and ln max, not widened, not clamped; error_bound = max(scale / 2, clipping) "
                 "and the rounding, rounded up",
             .oracle = "torch MinMaxObserver: the same scale above its floor 2^-23",
             QP_OP_LIST(fields, fields),
             QP_OP_LIST(arguments, arguments)},
    QP_OP_LIST(kernels, kernels),
    .state_bytes = sizeof(struct qplan_params),
    .on_host = true,
    .check = check,
};

const struct qp_op_row *const qp_ops_params_from_statistics[] = {&row, NULL};
