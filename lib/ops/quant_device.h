/*
 * quant_device.h - the quantize family on devices: kernels of rows, and the examples that a device
 * is proven on.
 */
#ifndef QP_OPS_QUANT_DEVICE_H
#define QP_OPS_QUANT_DEVICE_H

#include "op_device.h"
#include "quant.h"

/* A kernel for devices; values are checked as the CPU's kernels check them. */
#define QP_QUANT_DEVICE(KEYS, VALIDATE, LAUNCH)                                                    \
    {                                                                                              \
        .isa = QPLAN_ISA_SCALAR, .keys = (KEYS), .class = QP_OP_ELEMENTWISE,                       \
        .workspace = qp_quant_workspace, .validate = (VALIDATE), .scratch = qp_quant_book_bytes,   \
        .launch = (LAUNCH)                                                                         \
    }

/* The scratch: room for the values of codes that are places in a table. */
uint64_t qp_quant_book_bytes(const struct qplan_op *op);

/*
 * Problems of each granularity, E(fields, shape of the data, shape of the parameters): of sets that
 * are odd in every way, and of whole octets in more than one chunk.
 */
#define QP_EXAMPLES_per_tensor(E) E("", "-", "1") E("", "3,2731", "1")
#define QP_EXAMPLES_per_channel(E)                                                                 \
    E("axis=1", "3,7,5", "7") E("axis=0", "5,1000", "5") E("axis=1", "9,8,64", "8")
#define QP_EXAMPLES_per_group(E)                                                                   \
    E("group_size=5 ragged=true", "3,17", "3,4")                                                   \
    E("group_size=3 axis=1 ragged=true", "2,7,5", "2,3,5") E("group_size=32", "35,128", "35,4")
#define QP_EXAMPLES_per_token(E) E("", "13,3,7", "13,3") E("", "9,1000", "9")
#define QP_EXAMPLES_per_block(E)                                                                   \
    E("block_rows=3 block_cols=5 ragged=true", "2,7,11", "2,3,3")                                  \
    E("block_rows=8 block_cols=16", "2,32,128", "2,4,8")

/*
 * The list of a row: EXAMPLE(fields, data, parameters) gives texts with a comma behind each; more
 * of them may follow.
 */
#define QP_QUANT_EXAMPLES(G, EXAMPLE, ...)                                                         \
    static const char *const examples_##G[] = {QP_EXAMPLES_##G(EXAMPLE) __VA_ARGS__};

/* Float data of float data on a device; which of the elementwise kernels. */
enum qp_quant_step {
    QP_QUANT_FAKE,
    QP_QUANT_FAKE_BACKWARD,
    QP_QUANT_QUANTIZE_BACKWARD,
    QP_QUANT_DEQUANTIZE_BACKWARD
};
enum qplan_status qp_quant_launch_floats(struct qp_op_run *run, enum qp_quant_step step,
                                         const char *output, struct qplan_error *err);

/* Codes of "input" with the parameters of the call; and numbers of codes. */
enum qplan_status qp_quant_launch_codes(struct qp_op_run *run, struct qplan_error *err);
enum qplan_status qp_quant_launch_decode(struct qp_op_run *run, struct qplan_error *err);

/* fake_quantize_learnable_G_backward. */
enum qplan_status qp_quant_launch_learn(struct qp_op_run *run, struct qplan_error *err);

/*
 * dynamic_quantize_G: ranges, which the scratch has room for too, parameters, codes. The status
 * then has the count of what is not finite and the first set whose scale is too large.
 */
uint64_t qp_quant_dynamic_bytes(const struct qplan_op *op);
enum qplan_status qp_quant_launch_dynamic(struct qp_op_run *run, struct qplan_error *err);

#endif
