/*
 * family.c - finds families by names and makes their members agree.
 *
 * The members of a family have one prefix: "model.layers.0.self_attn" for q_proj, k_proj and
 * v_proj, "model.layers.0.mlp.experts" for whatever is in an expert. Sorted by kind and prefix they
 * are neighbours, in whichever shards they are.
 */
#include "family.h"
#include "select.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <stdlib.h>
#include <string.h>

/* What vLLM and SGLang fuse. Of experts they compare all projections of all, so that a name between
 * the prefix and the end is not asked for. */
static const struct qp_kin_names kinds[] = {
    {{"q_proj", "k_proj", "v_proj"}, NULL},
    {{"query", "key", "value"}, NULL},
    {{"wq", "wk", "wv"}, NULL},
    {{"gate_proj", "up_proj"}, NULL},
    {{"w1", "w3"}, NULL},
    {{"q_a_proj", "kv_a_proj_with_mqa"}, NULL},
    {{"in_proj_qkv", "in_proj_z"}, NULL},
    {{"in_proj_b", "in_proj_a"}, NULL},
    {{NULL}, NULL}, /* behind the last; the kind of experts */
};
#define EXPERTS (sizeof kinds / sizeof kinds[0] - 1)

/* ---- Names -------------------------------------------------------------------------------------
 */

static bool has_name(const struct qp_kin_names *row, const char *name, size_t n)
{
    size_t i = 0;
    while (i < QP_MOST_KIN && row->names[i] && !qp_text_is(name, n, row->names[i]))
        i++;
    return i < QP_MOST_KIN && row->names[i];
}

/* Whether the first n bytes of a name end with a text. */
static bool ends_with(const char *name, size_t n, const char *end)
{
    const size_t n_end = strlen(end);
    return n >= n_end && qp_text_is(name + n - n_end, n_end, end);
}

/* The length of a tensor's name before ".weight", or 0 if that is not how it ends. */
static size_t stem_of(const struct qp_tensor *t)
{
    static const char suffix[] = ".weight";
    return t->rank >= 2 && qp_ends_with(t->name, suffix) ? t->name_len - (sizeof suffix - 1) : 0;
}

/* Where the last word of the first n bytes of a name begins. */
static size_t last_word(const char *name, size_t n)
{
    while (n > 0 && name[n - 1] != '.')
        n--;
    return n;
}

bool qp_find_kin_by(const struct qp_tensor *t, const struct qp_kin_names *rows, struct qp_kin *out)
{
    const size_t n = stem_of(t), at = last_word(t->name, n);
    *out = (struct qp_kin){.prefix = t->name, .n_prefix = at ? at - 1 : 0};
    for (const struct qp_kin_names *row = rows; row->names[0]; row++, out->kind++) {
        if (n > 0 && has_name(row, t->name + at, n - at) &&
            (!row->parent || ends_with(t->name, out->n_prefix, row->parent)))
            return true;
    }
    return false;
}

bool qp_find_joined(const struct qp_tensor *t, struct qp_kin *out)
{
    return qp_find_kin_by(t, kinds, out);
}

bool qp_find_kin(const struct qp_tensor *t, struct qp_kin *out)
{
    size_t begin, end;
    if (!qp_name_find(t->name, stem_of(t), ".experts.#.", &begin, &end))
        return qp_find_joined(t, out);
    const size_t at = last_word(t->name, end - 1); /* the number of the expert */
    *out = (struct qp_kin){.prefix = t->name, .n_prefix = at ? at - 1 : 0, .kind = EXPERTS};
    return true;
}

int qp_compare_kin(const struct qp_kin *a, const struct qp_kin *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return qp_compare_text(a->prefix, a->n_prefix, b->prefix, b->n_prefix);
}

static int by_family(const void *a, const void *b)
{
    const struct qp_member *x = a, *y = b;
    const int order = qp_compare_kin(&x->kin, &y->kin);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

enum qplan_status qp_families_visit(struct qplan_plan *plan, qp_family_fn visit, const void *ctx,
                                    struct qplan_error *err)
{
    struct qp_member *members = qp_alloc(plan->n_tensors, sizeof *members);
    enum qplan_status status = QPLAN_OK;
    size_t n = 0;
    if (!members)
        return qp_fail_memory(err, "plan", plan->n_tensors * sizeof *members);
    for (size_t i = 0; i < plan->n_tensors; i++) {
        members[n].tensor = &plan->tensors[i];
        n += qp_find_kin(plan->tensors[i].source, &members[n].kin);
    }
    qsort(members, n, sizeof *members, by_family);
    for (size_t i = 0, end; i < n && status == QPLAN_OK; i = end) {
        for (end = i + 1; end < n && qp_compare_kin(&members[i].kin, &members[end].kin) == 0;)
            end++;
        status = visit(plan, members + i, end - i, ctx, err);
    }
    qp_free(members);
    return status;
}

/* ---- Agreement ---------------------------------------------------------------------------------
 */

static bool is_alike(const struct qp_plan_tensor *a, const struct qp_plan_tensor *b)
{
    if (qp_is_quantized(a) != qp_is_quantized(b))
        return false;
    return !qp_is_quantized(a) || qp_scheme_equal(a->result.scheme, b->result.scheme);
}

static void put_decision(struct qplan_error *err, const struct qp_plan_tensor *t)
{
    char scheme[QPLAN_SCHEME_TEXT] = "kept", quoted[QP_QUOTED], rule[QP_QUOTED];
    const char *why = t->rule ? t->rule : "no rule";
    if (qp_is_quantized(t))
        qplan_scheme_format(t->result.scheme, scheme);
    qp_fail_more(err, "%s is %s by %s", qp_quote(quoted, t->source->name, t->source->name_len),
                 scheme, qp_quote(rule, why, strlen(why)));
}

/* Names the family as a pattern of its tensors, and two members that differ. */
static enum qplan_status fail_divided(const struct qplan_plan *plan, const struct qp_member *first,
                                      const struct qp_member *other, struct qplan_error *err)
{
    const char *const *names = kinds[first->kin.kind].names;
    char prefix[512];
    (void)qp_escape(prefix, sizeof prefix, first->kin.prefix, first->kin.n_prefix);
    qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown, "the family %s%s",
            prefix, first->kin.n_prefix ? "." : "");
    for (size_t i = 0; i < QP_MOST_KIN && names[i]; i++)
        qp_fail_more(err, "%s%s", i ? "," : "{", names[i]);
    qp_fail_more(err, "%s.weight is divided: ", names[0] ? "}" : "*");
    put_decision(err, first->tensor);
    qp_fail_more(err, ", ");
    put_decision(err, other->tensor);
    qp_hint(err, "engines load these tensors as one: give all of them one scheme, or keep all");
    return QPLAN_ERR_INVALID;
}

static enum qplan_status agree(struct qplan_plan *plan, const struct qp_member *members, size_t n,
                               const void *ctx, struct qplan_error *err)
{
    (void)ctx;
    const struct qp_plan_tensor *unfit = NULL;
    size_t other = 0; /* the first that differs from the first */
    for (size_t i = 0; i < n; i++) {
        const struct qp_plan_tensor *t = members[i].tensor;
        if (!unfit && (t->unfit || qp_unquantizable(t->source)))
            unfit = t;
        if (!other && !is_alike(members[0].tensor, t))
            other = i;
    }
    if (!other)
        return QPLAN_OK;
    if (!unfit)
        return fail_divided(plan, &members[0], &members[other], err);
    for (size_t i = 0; i < n; i++) {
        struct qp_plan_tensor *t = members[i].tensor;
        if (!qp_is_quantized(t))
            continue;
        qp_plan_keep(t, t->rule, unfit->reason);
        t->unfit = unfit->source;
    }
    return QPLAN_OK;
}

enum qplan_status qp_families_agree(struct qplan_plan *plan, struct qplan_error *err)
{
    return qp_families_visit(plan, agree, NULL, err);
}
