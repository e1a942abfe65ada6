/*
 * embedding_bag.c - bags of rows of a table: their sum, mean or maximum.
 *
 * Each bag gets the list of its indices that count, without padding and skipped ones. Sum and mean
 * are sums by these lists; the length of a list is the mean's divisor.
 */
#include "families.h"

#include "kernels/ops/max.h"
#include "lib/base/carve.h"
#include "lib/base/check.h"
#include "row_sums.h"
#include "rows_device.h"

#include <string.h>

struct state {
    struct qp_bags bags;
    uint64_t n_rows, row_len; /* of the table */
    int64_t padding;
};

/* ---- The problem ------------------------------------------------------------------------------
 */

static enum qplan_status check(struct qplan_op *op, struct qplan_error *err)
{
    struct state *state = op->state;
    const struct qp_op_tensor *weight = qp_op_tensor(op, "weight");
    QP_TRY(qp_op_check_rank(op, "weight", 2, err));
    state->n_rows = weight->shape[0];
    state->row_len = weight->shape[1];
    QP_TRY(qp_index_padding(op, state->n_rows, &state->padding, err));
    QP_TRY(qp_bags_check(op, &state->bags, err));
    const uint64_t shape[] = {state->bags.n_bags, state->row_len};
    QP_TRY(qp_op_make_output(op, "output", weight->dtype, shape, 2, err));
    if (qp_op_is(op, "mode", "max"))
        return qp_op_make_output(op, "max_indices", QPLAN_STORAGE_I64, shape, 2, err);
    return QPLAN_OK;
}

static bool is_max(const struct qplan_op *op)
{
    return qp_op_is(op, "mode", "max");
}

static bool is_sum(const struct qplan_op *op)
{
    return !is_max(op);
}

static enum qplan_status validate(struct qp_op_call *call, struct qplan_error *err)
{
    const struct state *state = call->op->state;
    QP_TRY(qp_bags_validate(call, &state->bags, err));
    return qp_index_validate(call, "indices", state->n_rows, err);
}

/* ---- Lists ------------------------------------------------------------------------------------
 */

/* What a worker finds maxima in: a piece of a row as it is, its sources, numbers, and the next. */
#define COLS         QP_ROW_SUMS_COLS
#define COLUMN_BYTES (COLS * sizeof(double))
#define MAX_BYTES    (4 * COLUMN_BYTES)

struct buffers {
    struct qp_row_lists lists;
    char *workers;
};

static struct buffers carve(const struct qplan_op *op, struct qp_carve *carve)
{
    const struct qp_bags *bags = &((const struct state *)op->state)->bags;
    struct buffers b;
    b.lists.start = qp_take(carve, (bags->n_bags + 1) * sizeof *b.lists.start);
    b.lists.list = qp_take(carve, bags->n_indices * sizeof *b.lists.list);
    b.workers = qp_take(carve, op->n_workers * (is_max(op) ? MAX_BYTES : QP_ROW_SUMS_BYTES));
    return b;
}

static uint64_t workspace(const struct qplan_op *op)
{
    struct qp_carve count = {0};
    if (qp_op_tensor(op, "output")->n_elems > 0)
        (void)carve(op, &count);
    return count.used;
}

struct lister {
    const struct state *state;
    uint64_t *next;
};

static void list_one(void *ctx, uint64_t place, int64_t index)
{
    struct lister *lister = ctx;
    (void)place;
    if (qp_index_ok(index, lister->state->n_rows) && index != lister->state->padding)
        *lister->next++ = (uint64_t)index;
}

static void make_lists(const struct qp_op_call *call, const struct qp_row_lists *lists)
{
    const struct state *state = call->op->state;
    const struct qp_indices indices = qp_indices_of(call, "indices");
    const struct qp_indices offsets = qp_indices_of(call, "offsets");
    struct lister lister = {state, lists->list};
    for (uint64_t b = 0; b < state->bags.n_bags; b++) {
        const struct qp_bag bag = qp_bag_at(&state->bags, &offsets, b);
        lists->start[b] = (uint64_t)(lister.next - lists->list);
        qp_index_each(&indices, bag.begin, bag.end - bag.begin, list_one, &lister);
    }
    lists->start[state->bags.n_bags] = (uint64_t)(lister.next - lists->list);
}

/* ---- Sums and means ---------------------------------------------------------------------------
 */

static void run_sum(struct qp_op_call *call)
{
    const struct state *state = call->op->state;
    struct qp_carve block = {.block = call->workspace};
    const struct buffers b = carve(call->op, &block);
    make_lists(call, &b.lists);
    const struct qp_row_sums sums = {.source = qp_op_view(call, "weight"),
                                     .target = qp_op_view(call, "output"),
                                     .n_rows = state->bags.n_bags,
                                     .row_len = state->row_len,
                                     .lists = b.lists,
                                     .by_count = qp_op_is(call->op, "mode", "mean"),
                                     .workers = b.workers};
    call->counts.overflow = qp_row_sums_run(call->op, &sums);
}

/* ---- Maxima -----------------------------------------------------------------------------------
 */

struct max_job {
    const struct state *state;
    const struct qp_view *weight, *output, *max_indices;
    struct buffers buffers;
    qp_max_fn max;
    uint64_t across; /* units of a bag */
};

/* Some columns of a bag: the largest so far, where they came from, and a worker's buffers. */
struct max_piece {
    uint64_t col;
    size_t n;
    void *best;
    int64_t *where;
    void *numbers, *elems;
};

/* The number of a column, as wide as elements are. */
static uint64_t number_at(const void *numbers, size_t i, size_t elem_bytes)
{
    if (elem_bytes == sizeof(uint16_t))
        return ((const uint16_t *)numbers)[i];
    if (elem_bytes == sizeof(uint32_t))
        return ((const uint32_t *)numbers)[i];
    return ((const uint64_t *)numbers)[i];
}

/* Rows of the list, no more than can be numbered. */
static void max_rows(const struct max_job *job, const struct max_piece *piece, const uint64_t *list,
                     size_t n_list)
{
    const size_t elem_bytes = job->weight->elem_bytes;
    memset(piece->numbers, 0, piece->n * elem_bytes);
    for (size_t i = 0; i < n_list; i++) {
        const uint64_t at = list[i] * job->state->row_len + piece->col;
        job->max(piece->n, qp_view_get(job->weight, at, piece->n, piece->elems), (uint16_t)(i + 1),
                 piece->best, piece->numbers);
    }
    for (size_t i = 0; i < piece->n; i++) {
        const uint64_t number = number_at(piece->numbers, i, elem_bytes);
        if (number > 0)
            piece->where[i] = (int64_t)list[number - 1];
    }
}

static void max_bag(const struct max_job *job, const struct max_piece *piece, const uint64_t *list,
                    uint64_t n_list)
{
    const size_t n = piece->n, elem_bytes = job->weight->elem_bytes;
    if (n_list == 0) {
        memset(piece->best, 0, n * elem_bytes);
        memset(piece->where, 0xff, n * sizeof *piece->where); /* -1 */
        return;
    }
    const uint64_t at = list[0] * job->state->row_len + piece->col;
    memcpy(piece->best, qp_view_get(job->weight, at, n, piece->elems), n * elem_bytes);
    for (size_t i = 0; i < n; i++)
        piece->where[i] = (int64_t)list[0];
    for (uint64_t i = 1; i < n_list; i += QP_MAX_ROWS)
        max_rows(job, piece, list + i, (size_t)qp_min_u64(QP_MAX_ROWS, n_list - i));
}

static void max_unit(void *ctx, unsigned worker, uint64_t u)
{
    const struct max_job *job = ctx;
    const uint64_t bag = u / job->across, begin = job->buffers.lists.start[bag];
    char *buffers = job->buffers.workers + worker * MAX_BYTES;
    struct max_piece piece = {.col = u % job->across * COLS};
    piece.n = (size_t)qp_min_u64(COLS, job->state->row_len - piece.col);
    const uint64_t at = bag * job->state->row_len + piece.col;
    piece.best = qp_view_room(job->output, at, piece.n, buffers);
    piece.where = qp_view_room(job->max_indices, at, piece.n, buffers + COLUMN_BYTES);
    piece.numbers = buffers + 2 * COLUMN_BYTES;
    piece.elems = buffers + 3 * COLUMN_BYTES;
    max_bag(job, &piece, job->buffers.lists.list + begin,
            job->buffers.lists.start[bag + 1] - begin);
    qp_view_put(job->output, at, piece.n, piece.best);
    qp_view_put(job->max_indices, at, piece.n, piece.where);
}

static void run_max(struct qp_op_call *call)
{
    const struct state *state = call->op->state;
    struct qp_carve block = {.block = call->workspace};
    struct max_job job = {.state = state,
                          .weight = qp_op_view(call, "weight"),
                          .output = qp_op_view(call, "output"),
                          .max_indices = qp_op_view(call, "max_indices"),
                          .buffers = carve(call->op, &block),
                          .max = qp_max_kernel(qp_op_float(call->op->key)),
                          .across = qp_div_up(state->row_len, COLS)};
    make_lists(call, &job.buffers.lists);
    qp_op_units(call->op, state->bags.n_bags * job.across, max_unit, &job);
}

/* ---- On a device ------------------------------------------------------------------------------
 */

/* Bags are read as they are given: there, no lists are needed. */
static enum qplan_status launch(struct qp_op_run *run, struct qplan_error *err)
{
    const struct qplan_op *op = run->call->op;
    const struct state *state = op->state;
    const struct qp_rows_table table = {state->n_rows, state->row_len, state->padding};
    struct qk_rows_args a = qp_rows_args(run, &state->bags, &table);
    a.source = qp_op_at(run, "weight");
    a.target = qp_op_at(run, "output");
    a.max_indices = is_max(op) ? qp_op_at(run, "max_indices") : 0;
    a.by_count = qp_op_is(op, "mode", "mean");
    return qp_rows_launch(run, is_max(op) ? QP_ROWS_BAG_MAX : QP_ROWS_BAG_SUM, &a,
                          state->bags.n_bags, err);
}

/* ---- The row ----------------------------------------------------------------------------------
 */

#define KERNEL(ISA, CLASS, TAKES, RUN)                                                             \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = QP_FP_BITS, .class = (CLASS),          \
        .takes = (TAKES), .workspace = workspace, .validate = validate, .run = (RUN)               \
    }

static const struct qp_op_kernel kernels[] = {
    KERNEL(QPLAN_ISA_AVX2, QP_OP_SUM, is_sum, run_sum),
    KERNEL(QPLAN_ISA_SCALAR, QP_OP_SUM, is_sum, run_sum),
    KERNEL(QPLAN_ISA_SCALAR, QP_OP_COPY, is_max, run_max),
    {QP_ROWS_DEVICE(QP_OP_SUM, is_sum, validate, launch)},
    {QP_ROWS_DEVICE(QP_OP_COPY, is_max, validate, launch)},
};

/* Bags by offsets, with and without their end, and by rows; rows of whole octets and not. */
static const char *const examples[] = {
    "padding_idx=2; weight 9,13 any; indices 90 index 9; offsets 21 offset 90",
    ("mode=mean index_policy=skip include_last_offset=true; weight 6,40 finite; "
     "indices:I64 300 index 7; offsets:I64 70 offset 200"),
    "mode=mean; weight 30,3 any; indices 200,5 index 30",
    "mode=max padding_idx=-1; weight 9,13 any; indices 90 index 9; offsets 21 offset 90",
    ("mode=max index_policy=skip include_last_offset=true; weight 6,40 finite; "
     "indices:I64 300 index 7; offsets:I64 70 offset 200"),
    "mode=max; weight 30,3 any; indices 200,5 index 30",
};

static const struct qplan_op_field_info fields[] = {
    QP_FIELD_BAG_MODE,
    QP_FIELD_PADDING_IDX,
    QP_FIELD_LAST_OFFSET,
    QP_FIELD_INDEX_POLICY,
};

static const struct qplan_op_argument_info arguments[] = {
    {.name = "weight", .direction = QPLAN_OP_IN, .dtypes = QP_FP, .shape = "[V,D]"},
    QP_ARGUMENT_INDICES("[N] with offsets, or [B,L]"),
    QP_ARGUMENT_OFFSETS,
    {.name = "output", .direction = QPLAN_OP_OUT, .dtypes = QP_FP, .shape = "[B,D]"},
    {.name = "max_indices",
     .direction = QPLAN_OP_OUT,
     .optional = true,
     .dtypes = "I64",
     .shape = "[B,D]"},
};

static const struct qp_op_row row = {
    .info = {.name = "embedding_bag",
             .category = "embedding",
             .summary = "sums, means or maxima of rows of a table",
             .formula =
                 "output[b] = sum, mean or max of weight[i] over the indices i of bag b, without "
                 "padding and skipped ones; 0 for an empty bag; max: the first maximum, and "
                 "max_indices its row, -1 for an empty bag; a NaN wins only in first place",
             .oracle = "torch F.embedding_bag: f32 to 1e-6, f16 and bf16 to 1 ulp, max the same "
                       "bits; it does not check that offsets do not decrease",
             QP_OP_LIST(fields, fields),
             QP_OP_LIST(arguments, arguments)},
    QP_OP_LIST(kernels, kernels),
    QP_OP_LIST(examples, examples),
    .state_bytes = sizeof(struct state),
    .check = check,
};

const struct qp_op_row *const qp_ops_embedding_bag[] = {&row, NULL};
