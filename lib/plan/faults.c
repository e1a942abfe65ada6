/*
 * faults.c - tensors that share a fault.
 */
#include "faults.h"

#include "lib/base/text.h"

#define LISTED 20

void qp_faults_add(struct qp_faults *faults, const struct qp_tensor *tensor)
{
    char quoted[QP_QUOTED], shape[256];
    if (faults->n++ < LISTED)
        qp_fail_more(faults->err, "%s%s %s", faults->n > 1 ? ", " : "",
                     qp_quote(quoted, tensor->name, tensor->name_len),
                     qp_format_list(shape, sizeof shape, tensor->shape, tensor->rank));
}

enum qplan_status qp_faults_end(const struct qp_faults *faults)
{
    if (faults->n > LISTED)
        qp_fail_more(faults->err, " and %zu more", faults->n - LISTED);
    return faults->n ? QPLAN_ERR_INVALID : QPLAN_OK;
}
