/*
 * op_args.c - the tensors of a problem: names, dtypes and shapes from the descriptor, and the
 * outputs that a row makes. Never sees data.
 */
#include "op.h"

#include "formats/safetensors/safetensors.h"
#include "lib/base/text.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <string.h>

/* ---- Finding ----------------------------------------------------------------------------------
 */

size_t qp_op_place(const struct qplan_op *op, const char *argument)
{
    const struct qplan_op_info *info = &op->row->info;
    size_t i = 0;
    while (i < info->n_arguments && strcmp(info->arguments[i].name, argument) != 0)
        i++;
    return i;
}

const struct qp_op_tensor *qp_op_tensor(const struct qplan_op *op, const char *argument)
{
    const size_t place = qp_op_place(op, argument);
    const struct qp_op_tensor *tensor = &op->tensors[place];
    bool has = place < op->row->info.n_arguments && (tensor->read || tensor->written);
    return has ? tensor : NULL;
}

const struct qp_view *qp_op_view(const struct qp_op_call *call, const char *argument)
{
    return qp_op_tensor(call->op, argument) ? &call->views[qp_op_place(call->op, argument)] : NULL;
}

enum qplan_dtype qp_op_float(enum qplan_storage storage)
{
    return qp_storage_row(storage)->dtype;
}

enum qplan_dtype qp_op_working(enum qplan_storage storage)
{
    return storage == QPLAN_STORAGE_F64 ? QPLAN_F64 : QPLAN_F32;
}

/* ---- The descriptor ---------------------------------------------------------------------------
 */

static enum qplan_status fail_unknown(const struct qplan_op *op, const char *name,
                                      struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    char quoted[QP_QUOTED];
    (void)qp_fail(err, QPLAN_ERR_INVALID, info->name, "unknown tensor %s: expected ",
                  qp_quote(quoted, name, strlen(name)));
    for (size_t i = 0; i < info->n_arguments; i++)
        qp_fail_more(err, "%s%s", i ? ", " : "", info->arguments[i].name);
    return QPLAN_ERR_INVALID;
}

/* Whether a list such as F32|F64 has this storage type. */
static bool has_dtype(const char *list, enum qplan_storage dtype)
{
    const char *name = qplan_storage_name(dtype);
    size_t n = name ? strlen(name) : 0;
    for (const char *at = list; n; at++) {
        if (strncmp(at, name, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return true;
        at = strchr(at, '|');
        if (!at)
            break;
    }
    return false;
}

/* The elements of a tensor that a file can hold and that no product of the operators overflows. */
static enum qplan_status count_elements(const struct qplan_op *op, const char *argument,
                                        enum qplan_storage dtype, const uint64_t *shape,
                                        unsigned rank, uint64_t *out, struct qplan_error *err)
{
    if (qp_shape_elements(shape, rank, out) && *out <= QP_OP_MAX_ELEMS &&
        qp_shape_fits(dtype, shape, rank))
        return QPLAN_OK;
    return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, argument, err,
                             "too large: expected at most 2^58 elements and, extents of zero left "
                             "out, 2^63 bits");
}

static enum qplan_status read_shape(const struct qplan_op *op, const struct qplan_tensor *from,
                                    struct qp_op_tensor *to, struct qplan_error *err)
{
    if (from->rank > QPLAN_MAX_RANK)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, from->name, err,
                                 "rank too high: expected at most %d, found %u", QPLAN_MAX_RANK,
                                 from->rank);
    to->rank = from->rank;
    for (unsigned i = 0; i < from->rank; i++) {
        if (from->shape[i] < 0)
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, from->name, err,
                                     "negative extent: axis %u has %" PRId64, i, from->shape[i]);
        to->shape[i] = (uint64_t)from->shape[i];
    }
    return count_elements(op, from->name, from->dtype, to->shape, to->rank, &to->n_elems, err);
}

static enum qplan_status read_tensor(struct qplan_op *op, const struct qplan_tensor *from,
                                     struct qplan_error *err)
{
    const size_t place = qp_op_place(op, from->name);
    if (place == op->row->info.n_arguments)
        return fail_unknown(op, from->name, err);
    const struct qplan_op_argument_info *info = &op->row->info.arguments[place];
    struct qp_op_tensor *to = &op->tensors[place];
    if (to->given)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, from->name, err, "given more than once");
    const char *name = qplan_storage_name(from->dtype);
    if (!has_dtype(info->dtypes, from->dtype))
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, from->name, err,
                                 "wrong dtype: expected %s, found %s", info->dtypes,
                                 name ? name : "none");
    to->given = true;
    to->read = info->direction == QPLAN_OP_IN;
    to->dtype = from->dtype;
    return read_shape(op, from, to, err);
}

enum qplan_status qp_op_read_tensors(struct qplan_op *op, const struct qplan_op_desc *desc,
                                     struct qplan_error *err)
{
    const struct qplan_op_info *info = &op->row->info;
    for (size_t i = 0; i < desc->n_tensors; i++)
        QP_TRY(read_tensor(op, &desc->tensors[i], err));
    for (size_t i = 0; i < info->n_arguments; i++) {
        const struct qplan_op_argument_info *argument = &info->arguments[i];
        if (argument->direction == QPLAN_OP_IN && !argument->optional && !op->tensors[i].given)
            return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, argument->name, err,
                                     "missing: expected %s %s, found no such tensor",
                                     argument->dtypes, argument->shape);
    }
    return QPLAN_OK;
}

/* ---- Outputs ----------------------------------------------------------------------------------
 */

static void set_shape(struct qp_op_tensor *tensor, const uint64_t *shape, unsigned rank)
{
    tensor->rank = rank;
    for (unsigned i = 0; i < rank; i++) {
        tensor->shape[i] = shape[i];
        tensor->public_shape[i] = (int64_t)shape[i];
    }
}

/* What the descriptor says of an output must be so. */
static enum qplan_status check_given(const struct qplan_op *op, const char *argument,
                                     enum qplan_storage dtype, const uint64_t *shape, unsigned rank,
                                     struct qplan_error *err)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(op, argument);
    if (tensor->dtype != dtype)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, argument, err,
                                 "wrong dtype: expected %s, found %s", qplan_storage_name(dtype),
                                 qplan_storage_name(tensor->dtype));
    return qp_op_check_shape(op, argument, shape, rank, "as the inputs have it", err);
}

enum qplan_status qp_op_make_output(struct qplan_op *op, const char *argument,
                                    enum qplan_storage dtype, const uint64_t *shape, unsigned rank,
                                    struct qplan_error *err)
{
    const size_t place = qp_op_place(op, argument);
    struct qp_op_tensor *tensor = &op->tensors[place];
    uint64_t n_elems;
    QP_TRY(count_elements(op, argument, dtype, shape, rank, &n_elems, err));
    tensor->written = true;
    tensor->read = op->row->info.arguments[place].direction == QPLAN_OP_UPDATE &&
                   qp_op_number(op, "accumulate") != 0;
    if (tensor->given)
        QP_TRY(check_given(op, argument, dtype, shape, rank, err));
    else if (tensor->read)
        return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, argument, err,
                                 "missing: with accumulate it is an input, found no such tensor");
    tensor->dtype = dtype;
    tensor->n_elems = n_elems;
    set_shape(tensor, shape, rank);
    return QPLAN_OK;
}

bool qplan_op_output(const struct qplan_op *op, size_t i, struct qplan_tensor *out)
{
    for (size_t place = 0; place < op->row->info.n_arguments; place++) {
        const struct qp_op_tensor *tensor = &op->tensors[place];
        if (!tensor->written || i-- > 0)
            continue;
        *out = (struct qplan_tensor){.name = op->row->info.arguments[place].name,
                                     .dtype = tensor->dtype,
                                     .rank = tensor->rank,
                                     .shape = tensor->public_shape};
        return true;
    }
    return false;
}
