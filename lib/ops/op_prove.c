/*
 * op_prove.c - the problems that a device must solve as the scalar kernels do before an operator
 * may use it: the examples of the rows (op_example.c), on the device and on the CPU.
 */
#include "op_device.h"
#include "op_example.h"

#include "lib/base/alloc.h"

#include <string.h>

/* ---- One proof --------------------------------------------------------------------------------
 */

static enum qplan_status compare(const struct qplan_op *op, struct qp_op_example *device_s,
                                 struct qp_op_example *cpu_s, struct qplan_error *err)
{
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    struct qplan_op *scalar;
    preference.backend = QPLAN_BACKEND_CPU;
    preference.isa = QPLAN_ISA_SCALAR;
    preference.threads = 1;
    const struct qplan_op_desc desc = qp_op_example_desc(cpu_s, op->row);
    QP_TRY(qplan_op_select(&scalar, &desc, &preference, err));
    enum qplan_status status = qp_op_run_example(cpu_s, scalar, err);
    qplan_op_free(scalar);
    QP_TRY(status);
    QP_TRY(qp_op_run_example(device_s, op, err));
    return qp_op_same_results(cpu_s, device_s) ? QPLAN_OK : qp_op_fail_wrong(op, err);
}

/* What is to be proven, and how many examples have shown it. */
struct proof {
    struct qplan_device *device;
    const struct qp_op_row *row;
    const struct qp_op_kernel *kernel;
    enum qplan_storage key;
    size_t n_shown;
};

/* An example that another kernel takes says nothing. */
static enum qplan_status prove_example(struct proof *proof, struct qp_op_example *p,
                                       struct qplan_error *err)
{
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    const struct qplan_op_desc desc = qp_op_example_desc(p, proof->row);
    struct qp_op_example other = *p;
    struct qplan_op *op;
    preference.device = proof->device;
    QP_TRY(qplan_op_select(&op, &desc, &preference, err));
    enum qplan_status status = QPLAN_OK;
    if (op->kernel == proof->kernel && op->key == proof->key) {
        status = compare(op, p, &other, err);
        proof->n_shown++;
    }
    qplan_op_free(op);
    qp_op_free_tensors(&other, other.n_inputs);
    return status;
}

static enum qplan_status prove_examples(struct proof *proof, struct qp_op_example *p,
                                        struct qplan_error *err)
{
    const struct qp_op_row *row = proof->row;
    for (size_t i = 0; i < row->n_examples; i++) {
        *p = (struct qp_op_example){0};
        enum qplan_status status = qp_op_read_example(p, row, row->examples[i], proof->key, err);
        if (status == QPLAN_OK)
            status = prove_example(proof, p, err);
        qp_op_free_tensors(p, 0);
        QP_TRY(status);
    }
    return proof->n_shown > 0 ? QPLAN_OK : qp_op_fail_example(row, "none for a kernel", err);
}

static enum qplan_status run_proof(void *ctx, struct qplan_error *err)
{
    struct proof *proof = ctx;
    struct qp_op_example *p = qp_alloc(1, sizeof *p);
    if (!p)
        return qp_fail_memory(err, "device", sizeof *p);
    proof->device->proving = true;
    enum qplan_status status = prove_examples(proof, p, err);
    proof->device->proving = false;
    qp_free(p);
    return status;
}

enum qplan_status qp_op_prove(struct qplan_device *device, const struct qp_op_row *row,
                              const struct qp_op_kernel *kernel, enum qplan_storage key,
                              struct qplan_error *err)
{
    struct proof proof = {.device = device, .row = row, .kernel = kernel, .key = key};
    const uint32_t which = (uint32_t)(kernel - row->kernels) << 8 | (uint32_t)key;
    return qp_device_prove(device, (struct qp_device_proof){row, which}, run_proof, &proof, err);
}

/* Every key of a kernel that the device has what it takes for. */
static enum qplan_status prove_kernel(struct qplan_device *device, const struct qp_op_row *row,
                                      const struct qp_op_kernel *kernel, struct qplan_error *err)
{
    for (unsigned key = 0; key < QPLAN_STORAGE_COUNT; key++) {
        const enum qplan_storage storage = (enum qplan_storage)key;
        if ((kernel->keys & QP_BIT(key)) &&
            qp_op_device_has(device->gpu, kernel, qp_op_working(storage)))
            QP_TRY(qp_op_prove(device, row, kernel, storage, err));
    }
    return QPLAN_OK;
}

enum qplan_status qp_op_prove_all(struct qplan_device *device, const char *category,
                                  struct qplan_error *err)
{
    const struct qplan_op_info *info;
    for (size_t i = 0; (info = qplan_op_at(i)) != NULL; i++) {
        const struct qp_op_row *row = qp_op_row_of(info);
        const bool wanted = !category || strcmp(info->category, category) == 0;
        for (size_t k = 0; wanted && k < row->n_kernels; k++) {
            if (qp_op_is_for_devices(&row->kernels[k]))
                QP_TRY(prove_kernel(device, row, &row->kernels[k], err));
        }
    }
    return QPLAN_OK;
}
