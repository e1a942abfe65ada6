/*
 * table_gradient.h - the gradient of a table whose rows were used by index: embedding_backward and
 * embedding_bag_backward. An embedding is bags of one index each.
 */
#ifndef QP_OPS_TABLE_GRADIENT_H
#define QP_OPS_TABLE_GRADIENT_H

#include "rows_device.h"

#define QP_FIELD_NUM_EMBEDDINGS                                                                    \
    {                                                                                              \
        .name = "num_embeddings", .type = QPLAN_FIELD_INT, .least = 0,                             \
        .most = (int64_t)QP_OP_MAX_ELEMS, .about = "V, the rows of the table"                      \
    }

#define QP_FIELD_BY_FREQUENCY(ABOUT)                                                               \
    {                                                                                              \
        .name = "scale_grad_by_freq", .type = QPLAN_FIELD_BOOL, .fallback = "false",               \
        .about = (ABOUT)                                                                           \
    }

/* What .check makes of such a problem. dout has a row for each bag. */
struct qp_table_gradient {
    struct qp_bags bags;
    uint64_t n_rows, row_len;
    int64_t padding; /* -1 = none */
    bool by_frequency;
    bool mean; /* a bag is divided by its size */
};

/* Fields and outputs, once .bags and .row_len are known. */
enum qplan_status qp_table_gradient_check(struct qplan_op *op, struct qp_table_gradient *out,
                                          struct qplan_error *err);

/* Whether an index has a gradient: a row of the table, and not the padding. */
static inline bool qp_table_counts(const struct qp_table_gradient *state, int64_t index)
{
    return qp_index_ok(index, state->n_rows) && index != state->padding;
}

/* The functions of the deterministic kernels, which sum the rows of the table by owner. */
uint64_t qp_table_gradient_workspace(const struct qplan_op *op);
enum qplan_status qp_table_gradient_validate(struct qp_op_call *call, struct qplan_error *err);
void qp_table_gradient_run(struct qp_op_call *call);

/* The functions of the kernels for devices; the lists of rows are made on the host and copied. */
uint64_t qp_table_device_scratch(const struct qplan_op *op);
uint64_t qp_table_device_workspace(const struct qplan_op *op);
enum qplan_status qp_table_device_launch(struct qp_op_run *run, struct qplan_error *err);

/* The functions of both where each element of a bag has a row to go to: max_indices, in range. */
uint64_t qp_max_gradient_workspace(const struct qplan_op *op);
void qp_max_gradient_run(struct qp_op_call *call);
uint64_t qp_max_device_scratch(const struct qplan_op *op);
enum qplan_status qp_max_device_launch(struct qp_op_run *run, struct qplan_error *err);

/* The functions of the unordered kernels, which add to the table as terms come. */
uint64_t qp_table_scatter_workspace(const struct qplan_op *op);
void qp_table_scatter_run(struct qp_op_call *call);

/*
 * The kernels of sums over the problems that TAKES says. Scattering is slower than sorting and
 * rounds at each step, but it needs no lists: it is for limits of the workspace that those pass.
 */
#define QP_TABLE_SUM(ISA, TAKES)                                                                   \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = (ISA), .keys = QP_FP_BITS, .class = QP_OP_SUM,        \
        .takes = (TAKES), .workspace = qp_table_gradient_workspace,                                \
        .validate = qp_table_gradient_validate, .run = qp_table_gradient_run                       \
    }
#define QP_TABLE_KERNELS(TAKES)                                                                    \
    QP_TABLE_SUM(QPLAN_ISA_AVX2, TAKES), QP_TABLE_SUM(QPLAN_ISA_SCALAR, TAKES),                    \
    {                                                                                              \
        .backend = QPLAN_BACKEND_CPU, .isa = QPLAN_ISA_SCALAR,                                     \
        .keys = QP_BIT(QPLAN_STORAGE_F32) | QP_BIT(QPLAN_STORAGE_F64), .class = QP_OP_SUM,         \
        .unordered = true, .takes = (TAKES), .workspace = qp_table_scatter_workspace,              \
        .validate = qp_table_gradient_validate, .run = qp_table_scatter_run                        \
    }
#define QP_TABLE_DEVICE(TAKES)                                                                     \
    {                                                                                              \
        QP_ROWS_DEVICE(QP_OP_SUM, TAKES, qp_table_gradient_validate, qp_table_device_launch),      \
            .workspace = qp_table_device_workspace, .scratch = qp_table_device_scratch             \
    }

#endif
