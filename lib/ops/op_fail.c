/*
 * op_fail.c - how operators refuse: who, which field or argument, what was expected and found.
 */
#include "op.h"

#include "lib/base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static enum qplan_status fail(const struct qplan_op *op, enum qplan_status status,
                              const char *quote, const char *name, struct qplan_error *err,
                              const char *fmt, va_list args)
{
    char subject[128];
    (void)snprintf(subject, sizeof subject, "%s: %s%s%s", op->row->info.name, quote, name, quote);
    (void)qp_fail(err, status, subject, "%s", "");
    if (err)
        (void)vsnprintf(err->message, sizeof err->message, fmt, args);
    return status;
}

enum qplan_status qp_op_fail_field(const struct qplan_op *op, enum qplan_status status,
                                   const char *field, struct qplan_error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)fail(op, status, "", field, err, fmt, args);
    va_end(args);
    return status;
}

enum qplan_status qp_op_fail_tensor(const struct qplan_op *op, enum qplan_status status,
                                    const char *argument, struct qplan_error *err, const char *fmt,
                                    ...)
{
    va_list args;
    va_start(args, fmt);
    (void)fail(op, status, "'", argument, err, fmt, args);
    va_end(args);
    return status;
}

enum qplan_status qp_op_fail_value(const struct qplan_op *op, const char *argument, uint64_t elem,
                                   struct qplan_error *err, const char *fmt, ...)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(op, argument);
    char at[256];
    va_list args;
    va_start(args, fmt);
    (void)fail(op, QPLAN_ERR_VALUE, "'", argument, err, fmt, args);
    va_end(args);
    qp_fail_more(err, " at %s, flat index %" PRIu64,
                 qp_format_coordinates(at, sizeof at, tensor->shape, tensor->rank, elem), elem);
    return QPLAN_ERR_VALUE;
}

/* ---- Checks that many rows make ----------------------------------------------------------------
 */

enum qplan_status qp_op_check_rank(const struct qplan_op *op, const char *argument, unsigned rank,
                                   struct qplan_error *err)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(op, argument);
    if (tensor->rank == rank)
        return QPLAN_OK;
    return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, argument, err,
                             "wrong rank: expected %u, found %u", rank, tensor->rank);
}

enum qplan_status qp_op_check_shape(const struct qplan_op *op, const char *argument,
                                    const uint64_t *shape, unsigned rank, const char *what,
                                    struct qplan_error *err)
{
    const struct qp_op_tensor *tensor = qp_op_tensor(op, argument);
    bool same = tensor->rank == rank;
    for (unsigned i = 0; same && i < rank; i++)
        same = tensor->shape[i] == shape[i];
    if (same)
        return QPLAN_OK;
    char wanted[256], found[256];
    return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, argument, err,
                             "wrong shape: expected %s, %s, found %s",
                             qp_format_list(wanted, sizeof wanted, shape, rank), what,
                             qp_format_list(found, sizeof found, tensor->shape, tensor->rank));
}

enum qplan_status qp_op_check_same_dtype(const struct qplan_op *op, const char *argument,
                                         const char *other, struct qplan_error *err)
{
    const struct qp_op_tensor *a = qp_op_tensor(op, argument), *b = qp_op_tensor(op, other);
    if (a->dtype == b->dtype)
        return QPLAN_OK;
    return qp_op_fail_tensor(op, QPLAN_ERR_INVALID, argument, err,
                             "wrong dtype: expected %s, that of '%s', found %s",
                             qplan_storage_name(b->dtype), other, qplan_storage_name(a->dtype));
}
