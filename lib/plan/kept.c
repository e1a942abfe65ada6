/*
 * kept.c - warnings of what stays plain and makes an output larger than its user may expect.
 */
#include "lib/base/text.h"
#include "lib/store/arrange.h"
#include "plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Whether the values of a source are decoded from codes. */
static bool is_decoded(const struct qp_tensor *source)
{
    while (source->excerpt)
        source = source->excerpt->of[0];
    return source->encoded;
}

enum qplan_status qp_plan_warn_decoded(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_plan_tensor *first = NULL;
    uint64_t n = 0, n_bytes = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (qp_is_quantized(t) || !is_decoded(t->source))
            continue;
        first = first ? first : t;
        n++;
        n_bytes += qp_tensor_bytes(t->source);
    }
    if (!first)
        return QPLAN_OK;
    const char *why = first->reason ? first->reason : "kept";
    char text[768], quoted[QP_QUOTED], reason[128];
    (void)snprintf(text, sizeof text,
                   "%" PRIu64 " quantized tensor%s decoded and not quantized again, the first is "
                   "%s (%s): %" PRIu64 " bytes of values",
                   n, n == 1 ? " is" : "s are",
                   qp_quote(quoted, first->source->name, first->source->name_len),
                   qp_escape(reason, sizeof reason, why, strlen(why)), n_bytes);
    return qp_warn(&plan->warnings, &plan->arena, "decoded-kept",
                   plan->checkpoint->source.listing.shown, text, err);
}

enum qplan_status qp_plan_warn_experts(struct qplan_plan *plan, struct qplan_error *err)
{
    const struct qp_tensor *first = NULL;
    char message[512], quoted[QP_QUOTED];
    uint64_t n_bytes = 0;
    size_t n = 0;
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_plan_tensor *t = &plan->tensors[i];
        if (!t->reason || strcmp(t->reason, "3-D experts") != 0 ||
            !qp_may_split(plan->checkpoint, t->source))
            continue;
        first = first ? first : t->source;
        n_bytes += qp_tensor_bytes(t->source);
        n++;
    }
    if (n == 0)
        return QPLAN_OK;
    (void)snprintf(message, sizeof message,
                   "%zu tensors with all experts of a layer are kept, the first is %s: they have "
                   "%" PRIu64 " of %" PRIu64
                   " bytes; with experts split, each becomes a tensor that is quantized",
                   n, qp_quote(quoted, first->name, first->name_len), n_bytes,
                   plan->checkpoint->source.data_bytes);
    return qp_warn(&plan->warnings, &plan->arena, "experts-kept", plan->checkpoint->source.path,
                   message, err);
}
