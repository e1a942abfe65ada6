/*
 * table_scatter.c - the gradient of a table without lists: every worker takes bags and adds their
 * gradient to the rows that they used, each addition atomic in the dtype of the table. The order is
 * that of the threads, so two runs may differ in the last bits; the guarantee says so.
 */
#include "table_gradient.h"

#include "lib/base/check.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Elements of a row that are gathered at a time. */
#define PIECE 512

/* Bags that a worker takes at a time. */
#define UNIT_BAGS 16

struct job {
    const struct qp_table_gradient *state;
    struct qp_indices indices, offsets;
    const struct qp_view *dout, *dweight;
    uint64_t *frequency; /* NULL = not divided by it */
    bool (*add)(void *to, const void *term, double divisor);
    atomic_uint_fast64_t overflow;
};

/* ---- Adding -----------------------------------------------------------------------------------
 */

/*
 * Adds the quotient of a term. Whether two finite numbers made an infinite one, which happens to a
 * result once at most.
 */
static bool add_f32(void *to, const void *term, double divisor)
{
    const float x = (float)((double)*(const float *)term / divisor);
    float old, sum, *at = to;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do
        sum = old + x;
    while (!__atomic_compare_exchange(at, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return isinf(sum) && isfinite(old) && isfinite(x);
}

static bool add_f64(void *to, const void *term, double divisor)
{
    const double x = *(const double *)term / divisor;
    double old, sum, *at = to;
    __atomic_load(at, &old, __ATOMIC_RELAXED);
    do
        sum = old + x;
    while (!__atomic_compare_exchange(at, &old, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return isinf(sum) && isfinite(old) && isfinite(x);
}

/* n terms of dout from one flat index on go to dweight from another on. */
static uint64_t add_piece(const struct job *job, uint64_t from, uint64_t to, size_t n,
                          double divisor)
{
    const size_t size = job->dweight->elem_bytes;
    double buffer[PIECE];
    const char *terms = qp_view_get(job->dout, from, n, buffer);
    char *row = qp_view_at(job->dweight, to, n);
    uint64_t overflow = 0;
    for (size_t i = 0; i < n; i++) {
        void *at = row ? row + i * size : qp_view_at(job->dweight, to + i, 1);
        overflow += job->add(at, terms + i * size, divisor);
    }
    return overflow;
}

/* ---- Bags -------------------------------------------------------------------------------------
 */

/* One bag, as its indices are visited. */
struct walk {
    struct job *job;
    uint64_t bag;
    double size;
    uint64_t overflow;
};

static void count_one(void *ctx, uint64_t place, int64_t index)
{
    struct walk *walk = ctx;
    (void)place;
    walk->size += qp_table_counts(walk->job->state, index);
}

static void add_row(void *ctx, uint64_t place, int64_t index)
{
    struct walk *walk = ctx;
    struct job *job = walk->job;
    const uint64_t row_len = job->state->row_len;
    (void)place;
    if (!qp_table_counts(job->state, index))
        return;
    const double divisor = walk->size * (job->frequency ? (double)job->frequency[index] : 1);
    for (uint64_t col = 0; col < row_len; col += PIECE)
        walk->overflow += add_piece(job, walk->bag * row_len + col, (uint64_t)index * row_len + col,
                                    (size_t)qp_min_u64(PIECE, row_len - col), divisor);
}

static void unit(void *ctx, unsigned worker, uint64_t u)
{
    struct job *job = ctx;
    const struct qp_bags *bags = &job->state->bags;
    struct walk walk = {.job = job};
    const uint64_t end = qp_min_u64((u + 1) * UNIT_BAGS, bags->n_bags);
    (void)worker;
    for (walk.bag = u * UNIT_BAGS; walk.bag < end; walk.bag++) {
        const struct qp_bag bag = qp_bag_at(bags, &job->offsets, walk.bag);
        walk.size = job->state->mean ? 0 : 1;
        if (job->state->mean)
            qp_index_each(&job->indices, bag.begin, bag.end - bag.begin, count_one, &walk);
        qp_index_each(&job->indices, bag.begin, bag.end - bag.begin, add_row, &walk);
    }
    if (walk.overflow)
        (void)atomic_fetch_add(&job->overflow, walk.overflow);
}

/* ---- The whole --------------------------------------------------------------------------------
 */

static void zero_chunk(void *ctx, unsigned worker, uint64_t u)
{
    const struct qp_view *dweight = ((const struct job *)ctx)->dweight;
    (void)worker;
    qp_view_zero(dweight, u * QP_OP_CHUNK, qp_op_chunk(dweight->n_elems, u));
}

static void count_use(void *ctx, uint64_t place, int64_t index)
{
    const struct job *job = ctx;
    (void)place;
    if (qp_table_counts(job->state, index))
        job->frequency[index]++;
}

uint64_t qp_table_scatter_workspace(const struct qplan_op *op)
{
    const struct qp_table_gradient *state = op->state;
    const uint64_t n_bytes = state->n_rows * sizeof(uint64_t);
    const bool counts = state->by_frequency && qp_op_tensor(op, "dweight")->n_elems > 0;
    return counts ? qp_div_up(n_bytes, 64) * 64 : 0;
}

void qp_table_scatter_run(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_table_gradient *state = op->state;
    struct job job = {.state = state,
                      .indices = qp_indices_of(call, "indices"),
                      .offsets = qp_indices_of(call, "offsets"),
                      .dout = qp_op_view(call, "dout"),
                      .dweight = qp_op_view(call, "dweight"),
                      .add = op->key == QPLAN_STORAGE_F64 ? add_f64 : add_f32};
    if (state->by_frequency) {
        job.frequency = (uint64_t *)(void *)call->workspace;
        memset(job.frequency, 0, state->n_rows * sizeof *job.frequency);
        qp_index_each(&job.indices, 0, state->bags.n_indices, count_use, &job);
    }
    if (!qp_op_number(op, "accumulate"))
        qp_op_units(op, qp_op_chunks(job.dweight->n_elems), zero_chunk, &job);
    qp_op_units(op, qp_div_up(state->bags.n_bags, UNIT_BAGS), unit, &job);
    call->counts.overflow = job.overflow;
}
