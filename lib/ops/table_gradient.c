/*
 * table_gradient.c - the gradient of a table by owner: a stable counting sort gives each row of the
 * table the list of bags that used it, in ascending order of the places; row_sums.c adds.
 */
#include "table_gradient.h"

#include "lib/base/carve.h"
#include "row_sums.h"

#include <string.h>

/* ---- The problem ------------------------------------------------------------------------------
 */

enum qplan_status qp_table_gradient_check(struct qplan_op *op, struct qp_table_gradient *out,
                                          struct qplan_error *err)
{
    out->n_rows = (uint64_t)qp_op_number(op, "num_embeddings");
    out->by_frequency = qp_op_number(op, "scale_grad_by_freq");
    QP_TRY(qp_index_padding(op, out->n_rows, &out->padding, err));
    const uint64_t shape[] = {out->n_rows, out->row_len};
    return qp_op_make_output(op, "dweight", qp_op_tensor(op, "dout")->dtype, shape, 2, err);
}

enum qplan_status qp_table_gradient_validate(struct qp_op_call *call, struct qplan_error *err)
{
    const struct qp_table_gradient *state = call->op->state;
    QP_TRY(qp_bags_validate(call, &state->bags, err));
    return qp_index_validate(call, "indices", state->n_rows, err);
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

struct buffers {
    struct qp_row_lists lists;
    double *sizes; /* of the bags, for their mean */
    char *workers;
};

static struct buffers carve_lists(const struct qplan_op *op, struct qp_carve *carve)
{
    const struct qp_table_gradient *state = op->state;
    struct buffers b = {.sizes = NULL};
    b.lists.start = qp_take(carve, (state->n_rows + 1) * sizeof *b.lists.start);
    b.lists.list = qp_take(carve, state->bags.n_indices * sizeof *b.lists.list);
    if (state->mean)
        b.sizes = qp_take(carve, state->bags.n_bags * sizeof *b.sizes);
    return b;
}

static struct buffers carve(const struct qplan_op *op, struct qp_carve *carve)
{
    struct buffers b = carve_lists(op, carve);
    b.workers = qp_take(carve, op->n_workers * QP_ROW_SUMS_BYTES);
    return b;
}

uint64_t qp_table_gradient_workspace(const struct qplan_op *op)
{
    struct qp_carve count = {0};
    if (qp_op_tensor(op, "dweight")->n_elems > 0)
        (void)carve(op, &count);
    return count.used;
}

/* ---- Lists ------------------------------------------------------------------------------------
 */

struct sorter {
    const struct qp_table_gradient *state;
    struct qp_indices indices, offsets;
    struct buffers buffers;
    uint64_t bag; /* of the places that are visited, where there are offsets */
};

static void count_one(void *ctx, uint64_t place, int64_t index)
{
    const struct sorter *sorter = ctx;
    (void)place;
    if (qp_table_counts(sorter->state, index))
        sorter->buffers.lists.start[index]++;
}

static void list_one(void *ctx, uint64_t place, int64_t index)
{
    const struct sorter *sorter = ctx;
    const struct qp_bags *bags = &sorter->state->bags;
    const struct buffers *b = &sorter->buffers;
    const uint64_t bag = bags->has_offsets ? sorter->bag : place / bags->per_bag;
    if (!qp_table_counts(sorter->state, index))
        return;
    b->lists.list[b->lists.start[index]++] = bag;
    if (b->sizes && bag != QP_NO_ROW)
        b->sizes[bag]++;
}

/* Places behind the last bag are in the lists too: they count in the frequency of their row. */
static void list_all(struct sorter *sorter)
{
    const struct qp_bags *bags = &sorter->state->bags;
    const uint64_t end = bags->has_offsets ? qp_bags_end(bags, &sorter->offsets) : 0;
    for (uint64_t b = 0; bags->has_offsets && b < bags->n_bags; b++) {
        const struct qp_bag bag = qp_bag_at(bags, &sorter->offsets, b);
        sorter->bag = b;
        qp_index_each(&sorter->indices, bag.begin, bag.end - bag.begin, list_one, sorter);
    }
    sorter->bag = QP_NO_ROW;
    qp_index_each(&sorter->indices, end, bags->n_indices - end, list_one, sorter);
}

/*
 * Counts, begins, places. While placing, the begin of a list moves to its end, which is where the
 * next one begins: so the array moves up by one afterwards.
 */
static void make_lists(struct sorter *sorter)
{
    const uint64_t n_rows = sorter->state->n_rows;
    const struct qp_bags *bags = &sorter->state->bags;
    uint64_t *start = sorter->buffers.lists.start, total = 0;
    memset(start, 0, (n_rows + 1) * sizeof *start);
    if (sorter->buffers.sizes)
        memset(sorter->buffers.sizes, 0, bags->n_bags * sizeof *sorter->buffers.sizes);
    qp_index_each(&sorter->indices, 0, bags->n_indices, count_one, sorter);
    for (uint64_t row = 0; row <= n_rows; row++) {
        const uint64_t n = start[row];
        start[row] = total;
        total += n;
    }
    list_all(sorter);
    memmove(start + 1, start, n_rows * sizeof *start);
    start[0] = 0;
}

void qp_table_gradient_run(struct qp_op_call *call)
{
    const struct qplan_op *op = call->op;
    const struct qp_table_gradient *state = op->state;
    struct qp_carve block = {.block = call->workspace};
    struct sorter sorter = {.state = state,
                            .indices = qp_indices_of(call, "indices"),
                            .offsets = qp_indices_of(call, "offsets"),
                            .buffers = carve(op, &block)};
    make_lists(&sorter);
    const struct qp_row_sums sums = {.source = qp_op_view(call, "dout"),
                                     .target = qp_op_view(call, "dweight"),
                                     .n_rows = state->n_rows,
                                     .row_len = state->row_len,
                                     .lists = sorter.buffers.lists,
                                     .divisors = sorter.buffers.sizes,
                                     .by_count = state->by_frequency,
                                     .accumulate = qp_op_number(op, "accumulate"),
                                     .workers = sorter.buffers.workers};
    call->counts.overflow = qp_row_sums_run(op, &sums);
}

/* ---- On a device ------------------------------------------------------------------------------
 * Lists are indices alone, and few beside the rows: they are made as for the CPU, behind what the
 * run stages, and lie in the scratch as they do here.
 */

uint64_t qp_table_device_scratch(const struct qplan_op *op)
{
    struct qp_carve count = {0};
    if (qp_op_tensor(op, "dweight")->n_elems > 0)
        (void)carve_lists(op, &count);
    return count.used;
}

uint64_t qp_table_device_workspace(const struct qplan_op *op)
{
    return qp_op_staging_bytes(op) + qp_table_device_scratch(op);
}

static struct qk_rows_args make_args(const struct qp_op_run *run, const struct buffers *lists,
                                     const char *begin)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_table_gradient *state = op->state;
    const struct qp_rows_table table = {state->n_rows, state->row_len, state->padding};
    struct qk_rows_args a = qp_rows_args(run, &state->bags, &table);
    a.source = qp_op_at(run, "dout");
    a.target = qp_op_at(run, "dweight");
    a.by_count = state->by_frequency;
    a.accumulate = qp_op_number(op, "accumulate") != 0;
    a.start = op->block.scratch + (qk_u32)((const char *)lists->lists.start - begin);
    a.list = op->block.scratch + (qk_u32)((const char *)lists->lists.list - begin);
    a.has_sizes = lists->sizes != NULL;
    a.sizes = a.start;
    if (lists->sizes)
        a.sizes = op->block.scratch + (qk_u32)((const char *)lists->sizes - begin);
    return a;
}

enum qplan_status qp_table_device_launch(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct qp_table_gradient *state = op->state;
    char *begin = run->call->workspace + qp_op_staging_bytes(op);
    struct qp_carve block = {.block = begin};
    struct sorter sorter = {.state = state,
                            .indices = qp_indices_of(run->call, "indices"),
                            .offsets = qp_indices_of(run->call, "offsets"),
                            .buffers = carve_lists(op, &block)};
    const struct qp_span span = {op->block.scratch, block.used};
    make_lists(&sorter);
    QP_TRY(run->lane->gpu->backend->copy(run->lane, QP_COPY_IN, span, begin, err));
    const struct qk_rows_args a = make_args(run, &sorter.buffers, begin);
    return qp_rows_launch(run, QP_ROWS_TABLE_SUM, &a, state->n_rows, err);
}
