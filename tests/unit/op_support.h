/*
 * op_support.h - what the tests of operators share: tensors in memory, made and run in one call.
 */
#ifndef TESTS_OP_SUPPORT_H
#define TESTS_OP_SUPPORT_H

#include "support.h"

#define MAX_TENSORS 8

/* A problem and its buffers. Tensors are contiguous until a test changes them. */
struct problem {
    const char *op;
    struct qplan_op_field fields[12];
    size_t n_fields;
    struct qplan_tensor tensors[MAX_TENSORS];
    int64_t shapes[MAX_TENSORS][5];
    size_t n_tensors;
    struct qplan_op_preference preference;
    struct qplan_op_counts counts;
};

static inline struct problem problem(const char *op)
{
    return (struct problem){.op = op, .preference = QPLAN_OP_PREFERENCE_DEFAULT};
}

static inline void set(struct problem *p, const char *field, const char *text)
{
    p->fields[p->n_fields++] = (struct qplan_op_field){.name = field, .text = text};
}

static inline void set_number(struct problem *p, const char *field, int64_t number)
{
    p->fields[p->n_fields++] = (struct qplan_op_field){.name = field, .number = number};
}

/* Adds a tensor with a buffer that just fits. shape: up to 5 extents. */
static inline struct qplan_tensor *add(struct problem *p, const char *name,
                                       enum qplan_storage dtype, unsigned rank,
                                       const int64_t *shape, void *data)
{
    uint64_t n = qplan_storage_bits(dtype) / 8;
    for (unsigned i = 0; i < rank; i++) {
        p->shapes[p->n_tensors][i] = shape[i];
        n *= (uint64_t)shape[i];
    }
    struct qplan_tensor *tensor = &p->tensors[p->n_tensors];
    *tensor =
        (struct qplan_tensor){name, dtype, rank, p->shapes[p->n_tensors], NULL, data, data ? n : 0};
    p->n_tensors++;
    return tensor;
}

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

static inline enum qplan_status select_op(struct problem *p, struct qplan_op **op,
                                          struct qplan_error *err)
{
    const struct qplan_op_desc desc = {p->op, p->fields, p->n_fields, p->tensors, p->n_tensors};
    return qplan_op_select(op, &desc, &p->preference, err);
}

/* Selects and runs with a workspace of exactly the size that is asked for, at an odd address. */
static inline enum qplan_status run_op(struct problem *p, struct qplan_error *err)
{
    struct qplan_op *op;
    enum qplan_status status = select_op(p, &op, err);
    if (status != QPLAN_OK)
        return status;
    const uint64_t n = qplan_op_workspace_size(op);
    char *workspace = malloc(n + 1);
    assert_non_null(workspace);
    const struct qplan_op_args args = {p->tensors, p->n_tensors, &p->counts};
    status = qplan_op_run(op, NULL, workspace + 1, n, &args, err);
    free(workspace);
    qplan_op_free(op);
    return status;
}

/* The call fails with this status, and the message has this part. */
#define FAILS(call, wanted, part, err)                                                             \
    do {                                                                                           \
        assert_int_equal(call, wanted);                                                            \
        char whole[4700];                                                                          \
        (void)snprintf(whole, sizeof whole, "%s: %s", (err)->subject, (err)->message);             \
        if (!strstr(whole, part))                                                                  \
            fail_msg("expected '%s' in: %s", part, whole);                                         \
    } while (0)

#endif
