/*
 * max_gradient.c - the gradient of a table whose rows were used element by element, as the maximum
 * of a bag does.
 *
 * A worker owns some columns. A stable counting sort gives each row of the table the gradients of
 * its elements in these columns, in ascending order of the bags, and the row adds them in that
 * order. So the bits depend neither on the workers nor on the columns that they take.
 */
#include "table_gradient.h"

#include "kernels/ops/sum.h"
#include "lib/base/carve.h"
#include "lib/base/check.h"

#include <stdatomic.h>
#include <string.h>

/* Columns of a unit: a line of the cache at least, and no more terms than this if that allows. */
#define LEAST_COLS 16
#define MOST_COLS  1024
#define MOST_TERMS (UINT64_C(1) << 20)

struct term {
    double x;
    uint64_t col; /* of the unit */
};

struct buffers {
    uint64_t *start;    /* where the terms of a row begin */
    struct term *terms; /* by row, then by bag */
    int64_t *where;     /* of one bag */
    double *hi, *lo;    /* sums of one row */
    bool *used;         /* the columns of one row that have terms */
    void *elems;        /* a gathered piece of a row */
    char *made;         /* the same piece as it will be */
};

struct job {
    const struct qplan_op *op;
    const struct qp_table_gradient *state;
    const struct qp_sum_kernels *sums;
    const struct qp_view *dout, *max_indices, *dweight;
    bool accumulate;
    char *workers;
    uint64_t worker_bytes, cols;
    atomic_uint_fast64_t overflow;
};

/* One unit: n columns from col on. */
struct strip {
    struct job *job;
    struct buffers buffers;
    uint64_t col;
    size_t n;
};

/* ---- Buffers ----------------------------------------------------------------------------------
 */

static uint64_t unit_cols(const struct qplan_op *op)
{
    const struct qp_table_gradient *state = op->state;
    const uint64_t share = qp_div_up(state->row_len, op->n_workers);
    const uint64_t most = MOST_TERMS / qp_max_u64(state->bags.n_bags, 1);
    const uint64_t cols = qp_min_u64(qp_min_u64(share, most), MOST_COLS);
    return qp_max_u64(cols / LEAST_COLS * LEAST_COLS, LEAST_COLS);
}

static struct buffers carve(const struct qplan_op *op, struct qp_carve *carve)
{
    const struct qp_table_gradient *state = op->state;
    const uint64_t cols = unit_cols(op);
    struct buffers b;
    b.start = qp_take(carve, (state->n_rows + 1) * sizeof *b.start);
    b.terms = qp_take(carve, state->bags.n_bags * cols * sizeof *b.terms);
    b.where = qp_take(carve, cols * sizeof *b.where);
    b.hi = qp_take(carve, cols * sizeof *b.hi);
    b.lo = qp_take(carve, cols * sizeof *b.lo);
    b.used = qp_take(carve, cols * sizeof *b.used);
    b.elems = qp_take(carve, cols * sizeof(double));
    b.made = qp_take(carve, cols * sizeof(double));
    return b;
}

static uint64_t worker_bytes(const struct qplan_op *op)
{
    struct qp_carve count = {0};
    (void)carve(op, &count);
    return count.used;
}

uint64_t qp_max_gradient_workspace(const struct qplan_op *op)
{
    return qp_op_tensor(op, "dweight")->n_elems > 0 ? op->n_workers * worker_bytes(op) : 0;
}

/* ---- Sorting ----------------------------------------------------------------------------------
 */

/* The rows that the elements of a bag go to. */
static const int64_t *rows_of(const struct strip *strip, uint64_t bag)
{
    const uint64_t at = bag * strip->job->state->row_len + strip->col;
    return qp_view_get(strip->job->max_indices, at, strip->n, strip->buffers.where);
}

static void count_bag(const struct strip *strip, uint64_t bag)
{
    const int64_t *rows = rows_of(strip, bag);
    for (size_t i = 0; i < strip->n; i++) {
        if (qp_table_counts(strip->job->state, rows[i]))
            strip->buffers.start[rows[i]]++;
    }
}

/* The gradients become f64 on the way: exact, and 0 + x is x but for the sign of a zero. */
static void place_bag(const struct strip *strip, uint64_t bag)
{
    const struct job *job = strip->job;
    const struct buffers *b = &strip->buffers;
    const uint64_t at = bag * job->state->row_len + strip->col;
    const int64_t *rows = rows_of(strip, bag);
    memset(b->hi, 0, strip->n * sizeof *b->hi);
    memset(b->lo, 0, strip->n * sizeof *b->lo);
    job->sums->add(strip->n, qp_view_get(job->dout, at, strip->n, b->elems), b->hi,
                   job->sums->keeps_errors ? b->lo : NULL);
    for (size_t i = 0; i < strip->n; i++) {
        if (qp_table_counts(job->state, rows[i]))
            b->terms[b->start[rows[i]]++] = (struct term){b->hi[i], i};
    }
}

/* As in table_gradient.c: placing moves each begin to its end, so the array moves up by one. */
static void sort_terms(const struct strip *strip)
{
    const struct qp_table_gradient *state = strip->job->state;
    uint64_t *start = strip->buffers.start, total = 0;
    memset(start, 0, (state->n_rows + 1) * sizeof *start);
    for (uint64_t bag = 0; bag < state->bags.n_bags; bag++)
        count_bag(strip, bag);
    for (uint64_t row = 0; row <= state->n_rows; row++) {
        const uint64_t n = start[row];
        start[row] = total;
        total += n;
    }
    for (uint64_t bag = 0; bag < state->bags.n_bags; bag++)
        place_bag(strip, bag);
    memmove(start + 1, start, state->n_rows * sizeof *start);
    start[0] = 0;
}

/* ---- Sums -------------------------------------------------------------------------------------
 */

static void add_terms(const struct strip *strip, uint64_t row)
{
    const struct buffers *b = &strip->buffers;
    const bool exact = strip->job->sums->keeps_errors;
    for (uint64_t i = b->start[row]; i < b->start[row + 1]; i++) {
        const struct term *term = &b->terms[i];
        struct qp_sum sum = {b->hi[term->col], b->lo[term->col]};
        if (exact)
            qp_sum_add(&sum, term->x);
        else
            sum.hi += term->x;
        b->hi[term->col] = sum.hi;
        b->lo[term->col] = sum.lo;
        b->used[term->col] = true;
    }
}

/* Elements without terms stay as they are, to the bit: how wide a unit is must not show. */
static void keep_unused(const struct strip *strip, const char *old)
{
    const struct buffers *b = &strip->buffers;
    const size_t size = strip->job->dweight->elem_bytes;
    for (size_t i = 0; i < strip->n; i++) {
        if (!b->used[i])
            memcpy(b->made + i * size, old + i * size, size);
    }
}

static void sum_row(const struct strip *strip, uint64_t row)
{
    struct job *job = strip->job;
    const struct buffers *b = &strip->buffers;
    const uint64_t at = row * job->state->row_len + strip->col;
    double *lo = job->sums->keeps_errors ? b->lo : NULL;
    memset(b->hi, 0, strip->n * sizeof *b->hi);
    memset(b->lo, 0, strip->n * sizeof *b->lo);
    memset(b->used, 0, strip->n * sizeof *b->used);
    add_terms(strip, row);
    const void *old = job->accumulate ? qp_view_get(job->dweight, at, strip->n, b->elems) : NULL;
    if (old)
        job->sums->add(strip->n, old, b->hi, lo);
    const uint64_t overflow = job->sums->finish(strip->n, b->hi, lo, b->made);
    if (old)
        keep_unused(strip, old);
    qp_view_put(job->dweight, at, strip->n, b->made);
    if (overflow)
        (void)atomic_fetch_add(&job->overflow, overflow);
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_table_gradient *state = job->state;
    struct qp_carve block = {.block = job->workers + worker * job->worker_bytes};
    struct strip strip = {.job = job, .buffers = carve(job->op, &block), .col = u * job->cols};
    strip.n = (size_t)qp_min_u64(job->cols, state->row_len - strip.col);
    sort_terms(&strip);
    for (uint64_t row = 0; row < state->n_rows; row++) {
        if (strip.buffers.start[row] < strip.buffers.start[row + 1])
            sum_row(&strip, row);
        else if (job->accumulate)
            qp_view_keep(job->dweight, row * state->row_len + strip.col, strip.n);
        else
            qp_view_zero(job->dweight, row * state->row_len + strip.col, strip.n);
    }
}

void qp_max_gradient_run(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_table_gradient *state = op->state;
    struct job job = {.op = op,
                      .state = state,
                      .sums = qp_sum_kernels(qp_op_float(op->key), op->isa),
                      .dout = qp_op_view(call, "dout"),
                      .max_indices = qp_op_view(call, "max_indices"),
                      .dweight = qp_op_view(call, "dweight"),
                      .accumulate = qp_op_number(op, "accumulate"),
                      .workers = call->workspace,
                      .worker_bytes = worker_bytes(op),
                      .cols = unit_cols(op)};
    qp_op_units(op, qp_div_up(state->row_len, job.cols), unit, &job);
    call->counts.overflow = job.overflow;
}

/* ---- On a device ------------------------------------------------------------------------------
 */

static struct qp_rows_table table_of(const struct qplan_op *op)
{
    const struct qp_table_gradient *state = op->state;
    return (struct qp_rows_table){state->n_rows, state->row_len, state->padding};
}

uint64_t qp_max_device_scratch(const struct qplan_op *op)
{
    const struct qp_rows_table table = table_of(op);
    return qp_rows_sums_bytes(op, &table);
}

enum qplan_status qp_max_device_launch(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_table_gradient *state = op->state;
    const struct qp_rows_table table = table_of(op);
    struct qk_rows_args a = qp_rows_args(run, &state->bags, &table);
    a.source = qp_op_at(run, "dout");
    a.target = qp_op_at(run, "dweight");
    a.max_indices = qp_op_at(run, "max_indices");
    a.accumulate = qp_op_number(op, "accumulate") != 0;
    a.sums = op->block.scratch;
    return qp_rows_launch_max_gradient(run, &a, err);
}
