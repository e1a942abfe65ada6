/*
 * rows_device.c - the launches of embeddings and bags. What is decided here, such as how rows are
 * cut into items, changes no bit of a result.
 */
#include "rows_device.h"

#include "lib/base/check.h"
#include "lib/device/lane.h"

#define GROUP_SIZE 256

/* ---- Arguments --------------------------------------------------------------------------------
 */

/* The block holds all elements, and with no columns there is no work: so these numbers fit. */
struct qk_rows_args qp_rows_args(const struct qp_op_run *run, const struct qp_bags *bags,
                                 const struct qp_rows_table *table)
{
    const struct qplan_op *op = run->call->op;
    return (struct qk_rows_args){
        .n_rows = (qk_u32)table->n_rows,
        .row_len = (qk_u32)table->row_len,
        .wide = table->row_len % 8 == 0,
        .padding = table->padding < 0 ? QK_NO_ROW : (qk_u32)table->padding,
        .n_bags = (qk_u32)bags->n_bags,
        .n_indices = (qk_u32)bags->n_indices,
        .per_bag = (qk_u32)bags->per_bag,
        .has_offsets = bags->has_offsets,
        .has_end = bags->has_end,
        .is_i64 = qp_op_tensor(op, "indices")->dtype == QPLAN_STORAGE_I64,
        .status = op->block.status,
        .indices = qp_op_at(run, "indices"),
        .offsets = bags->has_offsets ? qp_op_at(run, "offsets") : 0,
    };
}

/* ---- Launches ---------------------------------------------------------------------------------
 */

static enum qplan_status launch(struct qp_op_run *run, enum qk_kernel kernel,
                                const struct qk_rows_args *args, qk_u32 items_of_group,
                                struct qplan_error *err)
{
    const struct qp_launch what = {kernel, (uint32_t)qp_div_up(args->n_items, items_of_group),
                                   GROUP_SIZE, args, sizeof *args};
    return qp_lane_launch(run->lane, &what, err);
}

/* The bits in the widest units that rows are made of. */
enum qplan_status qp_rows_launch_copy(struct qp_op_run *run, const struct qk_rows_args *args,
                                      struct qplan_error *err)
{
    static const struct width {
        qk_u32 n_bytes;
        enum qk_kernel kernel;
    } widths[] = {{16, qk_gather_x4_id}, {4, qk_gather_u32_id}, {2, qk_gather_u16_id}};
    struct qk_rows_args a = *args;
    const qk_u32 row_bytes = a.row_len * qplan_storage_bits(run->call->op->key) / 8;
    const struct width *width = widths;
    while (row_bytes % width->n_bytes != 0)
        width++;
    a.row_len = row_bytes / width->n_bytes;
    a.n_items = a.n_indices * a.row_len;
    return launch(run, width->kernel, &a, QK_ROWS_UNITS, err);
}

static size_t dtype_place(const struct qplan_op *op)
{
    static const enum qplan_dtype dtypes[] = {QPLAN_F32, QPLAN_F16, QPLAN_BF16, QPLAN_F64};
    size_t i = 0;
    while (dtypes[i] != qp_op_float(op->key))
        i++;
    return i;
}

#define OF_DTYPES(name)                                                                            \
    {                                                                                              \
        name##_f32_id, name##_f16_id, name##_bf16_id, name##_f64_id                                \
    }

enum qplan_status qp_rows_launch(struct qp_op_run *run, enum qp_rows_kernel kernel,
                                 const struct qk_rows_args *args, uint64_t n_rows,
                                 struct qplan_error *err)
{
    static const enum qk_kernel kernels[][4] = {
        [QP_ROWS_BAG_MAX] = OF_DTYPES(qk_bag_max),
        [QP_ROWS_BAG_SUM] = OF_DTYPES(qk_bag_sum),
        [QP_ROWS_TABLE_SUM] = OF_DTYPES(qk_table_sum),
    };
    struct qk_rows_args a = *args;
    a.n_items = (qk_u32)(n_rows * qp_div_up(a.row_len, 8));
    return launch(run, kernels[kernel][dtype_place(run->call->op)], &a, QK_ROWS_ITEMS, err);
}

/* ---- Maxima -----------------------------------------------------------------------------------
 */

uint64_t qp_rows_sums_bytes(const struct qplan_op *op, const struct qp_rows_table *table)
{
    const uint64_t sum_bytes = sizeof(double) * (op->key == QPLAN_STORAGE_F64 ? 2 : 1);
    return table->n_rows * table->row_len * sum_bytes;
}

/*
 * Every item reads where all bags went, so there are no more ranges of rows than give the device
 * enough to do.
 */
#define ENOUGH_ITEMS 16384
#define MOST_RANGES  64

enum qplan_status qp_rows_launch_max_gradient(struct qp_op_run *run,
                                              const struct qk_rows_args *args,
                                              struct qplan_error *err)
{
    static const enum qk_kernel kernels[] = OF_DTYPES(qk_max_gradient);
    struct qk_rows_args a = *args;
    const uint64_t wanted = qp_div_up(ENOUGH_ITEMS, a.row_len);
    a.range_rows = (qk_u32)qp_div_up(a.n_rows, qp_min_u64(wanted, MOST_RANGES));
    a.n_items = (qk_u32)qp_div_up(a.n_rows, a.range_rows) * a.row_len;
    return launch(run, kernels[dtype_place(run->call->op)], &a, QK_ROWS_ITEMS, err);
}
