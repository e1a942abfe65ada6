/*
 * kept.c - what is said of tensors that stay plain: warnings where they make an output larger than
 * its user may expect, and the refusal where all of them do.
 */
#include "plan.h"

#include "formats/experts.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *reason_of(const struct qp_plan_tensor *t)
{
    return t->reason ? t->reason : "kept";
}

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
    const char *why = reason_of(first);
    char text[768], quoted[QP_QUOTED], reason[128];
    (void)snprintf(text, sizeof text,
                   "%" PRIu64 " quantized tensor%s decoded and not quantized again, the first is "
                   "%s (%s): %" PRIu64 " bytes of values",
                   n, n == 1 ? " is" : "s are",
                   qp_quote(quoted, first->source->name, first->source->name_len),
                   qp_escape(reason, sizeof reason, why, strlen(why)), n_bytes);
    return qp_warn(&plan->warnings, &plan->arena, "decoded-kept", plan->checkpoint->source.path,
                   text, err);
}

/* Whether a tensor has all experts of a layer, which engines would load one by one. */
static bool may_be_split(const struct qp_listing *listing, const struct qp_tensor *source)
{
    struct qp_fused_experts how;
    return !qp_unsplit_experts(listing) && qp_find_fused_experts(listing, source, &how);
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
            !may_be_split(&plan->checkpoint->source.listing, t->source))
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

/* How many reasons are told. */
#define MOST_REASONS 8u

/* How many tensors are kept for a reason. */
static size_t count_reason(const struct qplan_plan *plan, const char *reason)
{
    size_t n = 0;
    for (size_t i = 0; i < plan->n_tensors; i++)
        n += strcmp(reason_of(&plan->tensors[i]), reason) == 0;
    return n;
}

enum qplan_status qp_plan_fail_kept(const struct qplan_plan *plan, struct qplan_error *err)
{
    const char *told[MOST_REASONS];
    char shown[128];
    unsigned n_told = 0;
    qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
            "nothing can be quantized in the layout %s: every tensor is kept", plan->format->name);
    for (size_t i = 0; i < plan->n_tensors && n_told < MOST_REASONS; i++) {
        const char *reason = reason_of(&plan->tensors[i]);
        unsigned k = 0;
        while (k < n_told && strcmp(told[k], reason) != 0)
            k++;
        if (k < n_told)
            continue;
        told[n_told++] = reason;
        qp_fail_more(err, "%s%s (%zu)", k > 0 ? ", " : ": ",
                     qp_escape(shown, sizeof shown, reason, strlen(reason)),
                     count_reason(plan, reason));
    }
    return QPLAN_ERR_INVALID;
}
