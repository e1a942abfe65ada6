/*
 * op_table.c - the table of all operators: the lists of the files in lib/ops, one behind the other.
 */
#include "families.h"

#include "lib/base/text.h"

#include <stddef.h>
#include <string.h>

#define ENTRY(name) qp_ops_##name,
static const struct qp_op_row *const *const families[] = {QP_OP_FAMILIES(ENTRY)};
#undef ENTRY

static const struct qp_op_row *row_at(size_t i)
{
    for (size_t f = 0; f < QP_COUNT(families); f++) {
        for (const struct qp_op_row *const *row = families[f]; *row; row++) {
            if (i-- == 0)
                return *row;
        }
    }
    return NULL;
}

static const struct qp_op_row *find(const char *name)
{
    const struct qp_op_row *row = NULL;
    for (size_t i = 0; (row = row_at(i)) != NULL; i++) {
        if (strcmp(row->info.name, name) == 0)
            break;
    }
    return row;
}

enum qplan_status qp_op_find_row(const char *name, const struct qp_op_row **out,
                                 struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    *out = find(name);
    if (*out)
        return QPLAN_OK;
    (void)qp_fail(err, QPLAN_ERR_USAGE, "op", "unknown operator %s",
                  qp_quote(quoted, name, strlen(name)));
    qp_advise(err, QPLAN_ADVICE_OPERATORS);
    return QPLAN_ERR_USAGE;
}

_Static_assert(offsetof(struct qp_op_row, info) == 0, "a description is the begin of its row");

const struct qp_op_row *qp_op_row_of(const struct qplan_op_info *info)
{
    return (const struct qp_op_row *)(const void *)info;
}

const struct qplan_op_info *qplan_op_at(size_t i)
{
    const struct qp_op_row *row = row_at(i);
    return row ? &row->info : NULL;
}

const struct qplan_op_info *qplan_op_find(const char *name)
{
    const struct qp_op_row *row = find(name);
    return row ? &row->info : NULL;
}
