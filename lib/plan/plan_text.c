/*
 * plan_text.c - a plan as a table for people, for --dry-run.
 */
#include "plan.h"

#include "lib/base/pattern.h"

#include <inttypes.h>
#include <string.h>

static const char *tensor_name(const void *ctx, size_t i, size_t *n)
{
    const struct qplan_plan *plan = ctx;
    *n = plan->tensors[i].source->name_len;
    return plan->tensors[i].source->name;
}

static bool tensors_alike(const void *ctx, size_t a, size_t b)
{
    const struct qplan_plan *plan = ctx;
    const struct qp_plan_tensor *x = &plan->tensors[a], *y = &plan->tensors[b];
    if (qp_is_quantized(x) != qp_is_quantized(y) || x->source->storage != y->source->storage)
        return false;
    if (!qp_is_quantized(x) && strcmp(x->reason, y->reason) != 0)
        return false;
    if (qp_is_quantized(x) && !qp_scheme_equal(x->result.scheme, y->result.scheme))
        return false;
    return qp_same_shape(x->source->shape, x->source->rank, y->source->shape, y->source->rank);
}

static void put_line(struct qp_writer *w, const struct qp_plan_tensor *t, size_t count)
{
    char scheme[QPLAN_SCHEME_TEXT], shape[1536]; /* room for any: 64 numbers */
    qp_puts(w, "  ");
    if (count > 1)
        qp_printf(w, "%zu x ", count);
    qp_puts(w, qp_format_list(shape, sizeof shape, t->source->shape, t->source->rank));
    qp_printf(w, "  %s  ", qplan_storage_name((enum qplan_storage)t->source->storage));
    if (qp_is_quantized(t)) {
        qplan_scheme_format(t->result.scheme, scheme);
        qp_printf(w, "%s %s\n", scheme, t->calibrator->name);
    } else {
        qp_printf(w, "keep: %s\n", t->reason);
    }
}

enum qplan_status qplan_plan_write_text(const struct qplan_plan *plan, qplan_write_fn write,
                                        void *ctx, struct qplan_error *err)
{
    const struct qp_group_source source = {plan, tensor_name, tensors_alike};
    struct qp_groups groups;
    struct qp_writer w;
    char shown[512], size[QP_F64_TEXT];
    QP_TRY(qp_groups_make(&groups, &source, plan->n_tensors, err));
    qp_writer_stream(&w, write, ctx);
    for (size_t i = 0; i < groups.n; i++) {
        qp_put_pattern(&w, &groups.groups[i], &source);
        put_line(&w, &plan->tensors[groups.groups[i].first], groups.groups[i].count);
    }
    qp_groups_free(&groups);
    uint64_t bytes = qplan_plan_output_bytes(plan);
    qp_printf(&w, "\n%s: %" PRIu64 " bytes (%s) from %" PRIu64 ", %zu quantized, %zu kept\n",
              qp_escape(shown, sizeof shown, plan->output_name, strlen(plan->output_name)), bytes,
              qp_format_bytes(size, bytes), plan->checkpoint->source.n_bytes, plan->n_quantized,
              plan->n_tensors - plan->n_quantized);
    enum qplan_status status = qp_writer_finish(&w, "plan", err);
    qp_writer_free(&w);
    return status;
}
