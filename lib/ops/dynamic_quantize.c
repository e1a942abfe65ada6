/*
 * dynamic_quantize.c - dynamic_quantize_G: scales and zero points from the data, and its codes.
 *
 * The ranges and what follows from them are found while values are checked, in the workspace: a
 * scale that does not fit its dtype is refused before anything is written. Then the parameters are
 * written, and quantize_G runs with what was stored.
 */
#include "families.h"
#include "quant_device.h"

#include "lib/base/carve.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"
#include "lib/model/sets.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* What is known of all sets, in working precision. */
struct table {
    char *lo, *hi, *scale;
    int32_t *zero;
};

struct job {
    struct qp_op_call *call;
    const struct qp_quant *quant;
    const struct qp_source_kernels *source;
    const struct qp_quantizer *quantizer;
    const struct qp_view *input, *scale, *zero; /* zero: NULL where codes have none */
    uint64_t n_sets;                            /* also of a tensor without elements */
    struct table table;
    pthread_mutex_t lock; /* of lo and hi */
    atomic_uint_fast64_t nonfinite;
    atomic_uint_fast64_t bad_set; /* the lowest whose scale is too large */
};

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status set_scale_dtype(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_quant *quant = op->state;
    quant->rule.scale_dtype = op->work;
    if (qp_op_value(op, "scale_dtype")->given)
        quant->rule.scale_dtype = qp_op_dtype(op, "scale_dtype");
    if (quant->rule.scale_dtype != QPLAN_F64 || op->work == QPLAN_F64)
        return QPLAN_OK;
    return qp_op_fail_field(op, QPLAN_ERR_INVALID, "scale_dtype", err,
                            "expected f32, f16 or bf16 with %s data, found f64",
                            qplan_storage_name(op->key));
}

/* Values of such codes are around 0, and none is left out. */
static enum qplan_status check_values(struct qplan_op *op, struct qplan_error *err)
{
    const char *name = qplan_dtype_name(((const struct qp_quant *)op->state)->code);
    if (qp_op_is(op, "scheme", "asymmetric"))
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "scheme", err,
                                "%s codes have no zero point: expected symmetric, found asymmetric",
                                name);
    if (qp_op_number(op, "narrow_range"))
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "narrow_range", err,
                                "%s codes are no integers: expected false, found true", name);
    return QPLAN_OK;
}

/* What narrow_range makes of q_min, and whether the zero point of the scheme is a code. */
static enum qplan_status set_scheme(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_code_rule *rule = &((struct qp_quant *)op->state)->rule;
    if (qp_is_valued(rule->kind))
        return check_values(op, err);
    rule->asymmetric = qp_op_is(op, "scheme", "asymmetric");
    if (qp_op_number(op, "narrow_range") && ++rule->q_min > rule->q_max)
        return qp_op_fail_field(op, QPLAN_ERR_INVALID, "narrow_range", err,
                                "leaves no code: expected q_min below q_max, found both %" PRId32,
                                rule->q_max);
    const bool has_zero = rule->q_min <= 0 && rule->q_max >= 0;
    if (rule->asymmetric || !rule->type->is_signed || has_zero)
        return QPLAN_OK;
    return qp_op_fail_field(op, QPLAN_ERR_INVALID, rule->q_min > 0 ? "q_min" : "q_max", err,
                            "symmetric codes of a signed type are around 0: expected 0 from q_min "
                            "to q_max, found %" PRId32 " to %" PRId32,
                            rule->q_min, rule->q_max);
}

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct qp_quant *quant = op->state;
    const struct qp_op_geometry *geometry = &quant->geometry;
    const struct qp_op_tensor *input = qp_op_tensor(op, "input");
    QP_TRY(qp_op_geometry(op, input->shape, input->rank, &quant->geometry, err));
    QP_TRY(qp_quant_check_codes(op, err));
    QP_TRY(set_scheme(op, err));
    QP_TRY(set_scale_dtype(op, err));
    QP_TRY(qp_op_make_output(op, "scale", qp_dtype_storage(quant->rule.scale_dtype),
                             geometry->shape, geometry->rank, err));
    if (qp_quant_is_valued(quant))
        return QPLAN_OK;
    return qp_op_make_output(op, "zero_point", QPLAN_STORAGE_I32, geometry->shape, geometry->rank,
                             err);
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

static struct table carve(const struct qplan_op *op, struct qp_carve *carve)
{
    const uint64_t n = qp_op_tensor(op, "scale")->n_elems, size = qp_quant_work(op)->work_bytes;
    return (struct table){.lo = qp_take(carve, n * size),
                          .hi = qp_take(carve, n * size),
                          .scale = qp_take(carve, n * size),
                          .zero = qp_take(carve, n * sizeof(int32_t))};
}

static uint64_t workspace(const struct qplan_op *op)
{
    struct qp_carve count = {0};
    (void)carve(op, &count);
    return qp_quant_workspace(op) + count.used;
}

static void make_job(struct qp_op_call *call, struct job *job)
{
    struct qp_carve block = {.block = call->workspace + qp_quant_workspace(call->op)};
    const enum qplan_dtype dtype = qp_op_float(call->op->key);
    const struct qp_quant *quant = call->op->state;
    *job = (struct job){.call = call,
                        .quant = quant,
                        .source = qp_source_kernels(dtype, call->op->isa),
                        .quantizer = qp_quantizer(dtype, quant->rule.type->kind, call->op->isa),
                        .input = qp_op_view(call, "input"),
                        .scale = qp_op_view(call, "scale"),
                        .zero = qp_op_view(call, "zero_point"),
                        .n_sets = qp_op_tensor(call->op, "scale")->n_elems,
                        .table = carve(call->op, &block),
                        .lock = PTHREAD_MUTEX_INITIALIZER};
}

/* ---- Ranges and parameters --------------------------------------------------------------------
 */

/*
 * Joins the ranges of at most a chunk to those of its sets. They are the worker's first; joining is
 * exact, so the order does not matter.
 */
static void add_ranges(struct job *job, unsigned worker, uint64_t begin, size_t n)
{
    const struct qp_work_kernels *work = job->source->work;
    const struct qp_sets *sets = &job->quant->geometry.sets;
    const struct qp_quant_worker w = qp_quant_worker(job->call, worker);
    const size_t size = work->work_bytes;
    const char *src = qp_view_get(job->input, begin, n, w.elems[0]);
    for (size_t at = 0; at < n;) {
        struct qp_tile tile;
        uint64_t set;
        const uint64_t part = qp_tile_at(sets, begin + at, begin + n, QP_OP_CHUNK, &tile, &set);
        const size_t n_sets = qp_tile_sets(&tile);
        memset(w.scale, 0, n_sets * size);
        memset(w.stored, 0, n_sets * size);
        const uint64_t others =
            job->source->range(&tile, src + at * job->source->elem_bytes, w.scale, w.stored);
        if (others)
            (void)atomic_fetch_add(&job->nonfinite, others);
        (void)pthread_mutex_lock(&job->lock);
        work->merge(n_sets, job->table.lo + set * size, job->table.hi + set * size, w.scale,
                    w.stored);
        (void)pthread_mutex_unlock(&job->lock);
        at += (size_t)part;
    }
}

static void range_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    add_ranges(job, worker, u * QP_OP_CHUNK, qp_op_chunk(job->quant->geometry.sets.n_elems, u));
}

/* The parameters of n sets; returns how many of the first of them have a scale. */
static size_t make_params(struct job *job, uint64_t set, size_t n)
{
    const struct qp_code_rule *rule = &job->quant->rule;
    const size_t size = job->source->work_bytes;
    int32_t *zero = job->table.zero + set;
    const size_t done =
        job->quantizer->params(rule, n, job->table.lo + set * size, job->table.hi + set * size,
                               job->table.scale + set * size, zero);
    /* The kernels take 0 for a code; where it is none, a set of zeros has the nearest one. */
    for (size_t i = 0; rule->asymmetric && i < done; i++)
        zero[i] = zero[i] < rule->q_min   ? rule->q_min
                  : zero[i] > rule->q_max ? rule->q_max
                                          : zero[i];
    return done;
}

static void params_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    (void)worker;
    const uint64_t set = u * QP_OP_CHUNK;
    const size_t n = qp_op_chunk(job->n_sets, u), done = make_params(job, set, n);
    uint_fast64_t lowest = atomic_load(&job->bad_set);
    while (done < n && set + done < lowest &&
           !atomic_compare_exchange_weak(&job->bad_set, &lowest, set + done))
        continue;
}

static enum qplan_status fail_scale(const struct qplan_op *op, uint64_t set,
                                    struct qplan_error *err)
{
    const enum qplan_dtype dtype = ((const struct qp_quant *)op->state)->rule.scale_dtype;
    (void)qp_op_fail_value(op, "scale", set, err,
                           "too large for %s: expected a finite scale, found a range that has none",
                           qplan_dtype_name(dtype));
    if (dtype != op->work)
        qp_hint(err, "scale_dtype=%s has room for larger ones", qplan_dtype_name(op->work));
    return QPLAN_ERR_VALUE;
}

static enum qplan_status validate(struct qp_op_call *call, struct qplan_error *err)
{
    const struct qplan_op *op = call->op;
    struct job job;
    make_job(call, &job);
    atomic_init(&job.bad_set, UINT64_MAX);
    memset(job.table.lo, 0, job.n_sets * job.source->work_bytes);
    memset(job.table.hi, 0, job.n_sets * job.source->work_bytes);
    qp_op_units(op, qp_op_chunks(job.quant->geometry.sets.n_elems), range_unit, &job);
    if (job.nonfinite > 0 && qp_op_is(op, "nonfinite", "error"))
        return qp_quant_validate_finite(call, "input", err);
    qp_op_units(op, qp_op_chunks(job.n_sets), params_unit, &job);
    call->counts.nonfinite = job.nonfinite;
    return job.bad_set == UINT64_MAX ? QPLAN_OK : fail_scale(op, job.bad_set, err);
}

/* ---- The work ---------------------------------------------------------------------------------
 */

static void store(const struct job *job, unsigned worker, uint64_t set, size_t n)
{
    const struct qp_quant_worker w = qp_quant_worker(job->call, worker);
    const size_t size = job->source->work_bytes;
    void *room = qp_view_room(job->scale, set, n, w.elems[0]);
    job->source->work->store(job->quant->rule.scale_dtype, n, job->table.scale + set * size, room);
    qp_view_put(job->scale, set, n, room);
    if (job->zero)
        qp_view_put(job->zero, set, n, job->table.zero + set);
}

static void store_unit(void *ctx, unsigned worker, uint64_t u)
{
    const struct job *job = ctx;
    store(job, worker, u * QP_OP_CHUNK, qp_op_chunk(job->n_sets, u));
}

/* A row of a set, or all of one whose rows are whole. */
static void add_row(struct job *job, unsigned worker, uint64_t begin, uint64_t end)
{
    for (; begin < end; begin += QP_OP_CHUNK)
        add_ranges(job, worker, begin, (size_t)qp_min_u64(QP_OP_CHUNK, end - begin));
}

/* One set from its elements to its parameters: where only some are done, nobody has its range. */
static void set_unit(void *ctx, unsigned worker, uint64_t set)
{
    struct job *job = ctx;
    const struct qp_sets *sets = &job->quant->geometry.sets;
    const size_t size = job->source->work_bytes;
    memset(job->table.lo + set * size, 0, size);
    memset(job->table.hi + set * size, 0, size);
    memset(job->table.scale + set * size, 0, size); /* no scale, unless there is one */
    if (sets->n_elems > 0) {
        const uint64_t band = set / sets->n_cols, left = set % sets->n_cols * sets->col_width;
        const uint64_t right = qp_min_u64(left + sets->col_width, sets->row_len);
        const uint64_t row = qp_band_row(sets, band), end = row + qp_band_rows(sets, band);
        if (sets->n_cols == 1)
            add_row(job, worker, row * sets->row_len, end * sets->row_len);
        for (uint64_t r = row; sets->n_cols > 1 && r < end; r++)
            add_row(job, worker, r * sets->row_len + left, r * sets->row_len + right);
    }
    (void)make_params(job, set, 1);
    store(job, worker, set, 1);
}

/* Some of what a device made. What can be no scale or zero point makes no codes either. */
static void run_again(struct job *job)
{
    struct qp_op_call *call = job->call;
    qp_op_units(call->op, job->n_sets, set_unit, job);
    if (qp_quant_validate_params(call, NULL) == QPLAN_OK)
        qp_quant_run_codes(call, &job->quant->rule);
    else
        *job->scale->differs = true;
}

/* Of finite data no quotient passes the number of codes, since the scales were made of it. */
static void run(struct qp_op_call *call)
{
    struct job job;
    make_job(call, &job);
    if (call->op->checked) {
        run_again(&job);
        return;
    }
    qp_op_units(call->op, qp_op_chunks(job.n_sets), store_unit, &job);
    struct qp_code_rule rule = job.quant->rule;
    rule.bounded = call->counts.nonfinite == 0;
    qp_quant_run_codes(call, &rule);
}

/* On a device the values are looked at while it computes; nothing has been written yet. */
static enum qplan_status finish_on_device(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const uint32_t bad_set = run->status[QK_OP_FIRST_BAD];
    if (run->call->counts.nonfinite > 0 && qp_op_is(op, "nonfinite", "error"))
        return qp_quant_validate_finite(run->call, "input", err);
    return bad_set == QK_OP_NONE ? QPLAN_OK : fail_scale(op, bad_set, err);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

#define KERNEL(ISA, KEYS)                                                                          \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = (KEYS), .class = QP_OP_ELEMENTWISE,    \
        .workspace = workspace, .validate = validate, .run = run                                   \
    }

static const struct qp_op_kernel kernels[] = {
    KERNEL(QPLAN_ISA_AVX512, QP_QUANT_VECTOR_BITS),
    KERNEL(QPLAN_ISA_AVX2, QP_QUANT_VECTOR_BITS),
    KERNEL(QPLAN_ISA_SCALAR, QP_FP_BITS),
    {.isa = QPLAN_ISA_SCALAR,
     .keys = QP_FP_BITS,
     .class = QP_OP_ELEMENTWISE,
     .workspace = qp_quant_workspace,
     .scratch = qp_quant_dynamic_bytes,
     .launch = qp_quant_launch_dynamic,
     .finish = finish_on_device},
};

#define EXAMPLE(FIELDS, X, P)                                                                      \
    FIELDS " nonfinite=saturate; input " X " finite",                                              \
        FIELDS " output_dtype=uint4 scheme=asymmetric scale_dtype=bf16; input " X " finite",       \
        FIELDS " output_dtype=f8e4m3 nonfinite=saturate; input " X " any",                         \
        FIELDS " output_dtype=nf4 scale_dtype=bf16; input " X " finite",                           \
        FIELDS " output_dtype=int5; input " X " finite",

#define ROW(G, VARIANT, P)                                                                         \
    static const struct qplan_op_field_info fields_##G[] = {                                       \
        QP_FIELDS_##G QP_FIELD_OUTPUT_CODE,                                                        \
        QP_FIELD_Q("q_min", "(that of output_dtype)"),                                             \
        QP_FIELD_Q("q_max", "(that of output_dtype)"),                                             \
        {.name = "scheme",                                                                         \
         .type = QPLAN_FIELD_NAME,                                                                 \
         .fallback = "symmetric",                                                                  \
         .names = "symmetric|asymmetric",                                                          \
         .about = "the zero point in the middle of the codes, or where the data has it"},          \
        {.name = "narrow_range",                                                                   \
         .type = QPLAN_FIELD_BOOL,                                                                 \
         .fallback = "false",                                                                      \
         .about = "raise q_min by 1"},                                                             \
        {.name = "scale_dtype",                                                                    \
         .type = QPLAN_FIELD_NAME,                                                                 \
         .fallback = "(f32; f64 for F64 data)",                                                    \
         .names = "f32|f64|f16|bf16",                                                              \
         .about = "of the scales, which are rounded up; f64 for F64 data only"},                   \
        QP_FIELD_NONFINITE,                                                                        \
    };                                                                                             \
    static const struct qplan_op_argument_info arguments_##G[] = {                                 \
        {.name = "input", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = "[X]"},              \
        {.name = "output", .direction = QPLAN_OP_OUT, .dtypes = QP_CODE_STORAGES, .shape = "[X]"}, \
        {.name = "scale", .direction = QPLAN_OP_OUT, .dtypes = QP_FP, .shape = (P)},               \
        {.name = "zero_point", .direction = QPLAN_OP_OUT, .dtypes = "I32", .shape = (P)},          \
    };                                                                                             \
    QP_QUANT_EXAMPLES(G, EXAMPLE, )                                                                \
    static const struct qp_op_row row_##G = {                                                      \
        .info = {.name = "dynamic_quantize_" #G,                                                   \
                 .category = "quantize",                                                           \
                 .summary = "codes of data, with scales and zero points made from it",             \
                 .formula =                                                                        \
                     "lo, hi: least and largest finite value of a set and 0; symmetric: scale "    \
                     "= max(-lo, hi) / ((q_max - q_min) / 2), zero_point = 0 or the midpoint "     \
                     "of an unsigned type; asymmetric: scale = (hi - lo) / (q_max - q_min), "      \
                     "zero_point = clamp(q_min - rne(lo / scale), q_min, q_max); scale "           \
                     "rounded up to its dtype, 1 for a set of zeros; output = "                    \
                     "clamp(rne(input / scale) + zero_point, q_min, q_max); codes of floats and "  \
                     "nf4: scale = max(-lo, hi) / the largest value, no zero_point, output as "    \
                     "quantize has it",                                                            \
                 .oracle =                                                                         \
                     "torch choose_qparams_per_token is symmetric with narrow_range but for its "  \
                     "floor of 1e-5; MinMaxObserver: the same scales above its floor of 2^-23, "   \
                     "the same zero points for an even q_min off ties; "                           \
                     "choose_qparams_per_token_asymmetric picks the zero point from both ends",    \
                 QP_OP_LIST(fields, fields_##G),                                                   \
                 QP_OP_LIST(arguments, arguments_##G)},                                            \
        .variant = (VARIANT),                                                                      \
        QP_OP_LIST(kernels, kernels),                                                              \
        QP_OP_LIST(examples, examples_##G),                                                        \
        .state_bytes = sizeof(struct qp_quant),                                                    \
        .check = check,                                                                            \
    };
QP_EACH_GRANULARITY(ROW)

const struct qp_op_row *const qp_ops_dynamic_quantize[] = QP_GRANULARITY_ROWS;
