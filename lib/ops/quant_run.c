/*
 * quant_run.c - the work of the quantize family on the team: codes of data, and float data of float
 * data. A unit depends on its elements and their sets alone, so neither threads nor strides can
 * change a result.
 */
#include "quant.h"

#include <stdatomic.h>

struct job {
    struct qp_op_call *call;
    const struct qp_source_kernels *source;
    const struct qp_quantizer *quantizer; /* codes */
    const struct qp_quantizer *decoder;   /* the same in working precision */
    const struct qp_code_rule *rule;
    qp_affine_fn work;
    const struct qp_view *dout, *input, *output;
    bool count; /* elements of the input that are not finite */
    atomic_uint_fast64_t nonfinite, overflow;
};

static struct job make_job(struct qp_op_call *call, const char *output)
{
    return (struct job){.call = call,
                        .source = qp_source_kernels(qp_op_float(call->op->key), call->op->isa),
                        .dout = qp_op_view(call, "dout"),
                        .input = qp_op_view(call, "input"),
                        .output = qp_op_view(call, output),
                        .count = qp_op_is(call->op, "nonfinite", "saturate")};
}

static void run_job(struct job *job, qp_op_unit_fn unit)
{
    qp_op_units(job->call->op, qp_quant_units(job->call->op->state), unit, job);
    job->call->counts.nonfinite = job->nonfinite;
    job->call->counts.overflow = job->overflow;
}

static void count_nonfinite(struct job *job, const void *src, size_t n)
{
    if (job->count)
        (void)atomic_fetch_add(&job->nonfinite, qp_quant_nonfinite(job->source, src, n));
}

/* ---- Codes ------------------------------------------------------------------------------------
 */

static void code_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    struct qp_quant_worker w = qp_quant_worker(job->call, worker);
    uint64_t begin, end;
    qp_quant_unit(job->call->op->state, u, &begin, &end);
    const size_t n = (size_t)(end - begin), size = job->source->elem_bytes;
    const char *src = qp_view_get(job->input, begin, n, w.elems[0]);
    uint8_t *codes = qp_quant_code_room(job->call, job->output, &w, begin, n);
    struct qp_quant_tile t;
    count_nonfinite(job, src, n);
    for (size_t at = 0; at < n; at += t.n) {
        qp_quant_next(job->call, &w, begin + at, end, &t);
        job->quantizer->quantize(&t.tile, src + at * size, job->rule, t.scale, t.zero, codes + at);
    }
    qp_quant_put_codes(job->call, job->output, &w, begin, n, codes);
}

void qp_quant_run_codes(struct qp_op_call *call, const struct qp_code_rule *rule)
{
    struct job job = make_job(call, "output");
    job.rule = rule;
    job.quantizer = qp_quantizer(qp_op_float(call->op->key), rule->type->kind, call->op->isa);
    run_job(&job, code_unit);
}

/* ---- Values of codes --------------------------------------------------------------------------
 */

/* A result may take the place of its input, so a tile is encoded before it is decoded. */
static void value_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_work_kernels *work = job->source->work;
    struct qp_quant_worker w = qp_quant_worker(job->call, worker);
    uint64_t begin, end;
    qp_quant_unit(job->call->op->state, u, &begin, &end);
    const size_t n = (size_t)(end - begin), size = job->source->elem_bytes;
    const char *x = qp_view_get(job->input, begin, n, w.elems[0]);
    char *out = qp_view_room(job->output, begin, n, w.elems[0]);
    char *y = job->source->dtype == work->work ? out : w.elems[1];
    struct qp_quant_tile t;
    count_nonfinite(job, x, n);
    for (size_t at = 0; at < n; at += t.n) {
        qp_quant_next(job->call, &w, begin + at, end, &t);
        job->quantizer->quantize(&t.tile, x + at * size, job->rule, t.scale, t.zero, w.codes);
        job->decoder->dequantize(&t.tile, w.codes, job->rule, t.scale, t.zero,
                                 y + at * work->work_bytes);
    }
    if (y != out)
        work->store(job->source->dtype, n, y, out);
    qp_view_put(job->output, begin, n, out);
}

void qp_quant_run_values(struct qp_op_call *call)
{
    const struct qp_quant *quant = call->op->state;
    struct job job = make_job(call, "output");
    job.rule = &quant->rule;
    job.quantizer = qp_quantizer(qp_op_float(call->op->key), quant->rule.kind, call->op->isa);
    job.decoder = qp_quantizer(call->op->work, quant->rule.kind, call->op->isa);
    run_job(&job, value_unit);
}

/* ---- Floats -----------------------------------------------------------------------------------
 */

const struct qp_affine_kernels *qp_quant_affine(const struct qplan_op *op)
{
    return qp_affine_kernels(qp_op_float(op->key), op->isa);
}

struct qp_affine qp_quant_affine_tile(const struct qp_quant *quant,
                                      const struct qp_quant_tile *tile)
{
    return (struct qp_affine){&tile->tile, quant->rule.q_min, quant->rule.q_max, tile->scale,
                              tile->zero};
}

/* A result may take the place of what it is made of, so it needs no buffer of its own. */
static void float_unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_quant *quant = job->call->op->state;
    struct qp_quant_worker w = qp_quant_worker(job->call, worker);
    uint64_t begin, end, overflow = 0;
    qp_quant_unit(quant, u, &begin, &end);
    const size_t n = (size_t)(end - begin), size = job->source->elem_bytes;
    const char *x = job->input ? qp_view_get(job->input, begin, n, w.elems[0]) : NULL;
    const char *dout = job->dout ? qp_view_get(job->dout, begin, n, w.elems[1]) : x;
    x = x ? x : dout;
    char *out = qp_view_room(job->output, begin, n, w.elems[0]);
    struct qp_quant_tile t;
    count_nonfinite(job, x, n);
    for (size_t at = 0; at < n; at += t.n) {
        qp_quant_next(job->call, &w, begin + at, end, &t);
        const struct qp_affine affine = qp_quant_affine_tile(quant, &t);
        overflow += job->work(&affine, dout + at * size, x + at * size, out + at * size);
    }
    qp_view_put(job->output, begin, n, out);
    if (overflow)
        (void)atomic_fetch_add(&job->overflow, overflow);
}

void qp_quant_run_floats(struct qp_op_call *call, qp_affine_fn work, const char *output)
{
    struct job job = make_job(call, output);
    job.work = work;
    run_job(&job, float_unit);
}
