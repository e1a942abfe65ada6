/*
 * lint_ct_names.c - rules of compressed-tensors on the names in config.json: which layers its
 * targets mean, and which its ignore list leaves out.
 *
 * An entry is the name of a module, the class Linear, or "re:" and a regular expression of Python.
 * One of those that is not understood is a finding of its own; nothing is said then that a match
 * would make wrong.
 */
#include "lint.h"
#include "python_re.h"

#include "lib/base/alloc.h"

#define NO_GROUP UINT16_MAX

/* What the entries say of a module. */
struct mark {
    bool is_ignored;    /* under its name in the file */
    bool maybe_ignored; /* under a name that it may have in an engine */
    uint16_t group;     /* of the first target that names it, else of the class, else NO_GROUP */
};

struct qp_ct_names {
    struct mark *marks; /* by tensor of the file */
    struct mark heads[QP_LINT_HEADS];
    bool unknown_ignore, unknown_target; /* an entry is not understood */
};

/* ---- Entries -----------------------------------------------------------------------------------
 */

struct entry {
    const char *text;
    bool is_class, is_re;
    struct qp_python_re re;
};

static void read_entry(struct entry *e, const char *text)
{
    *e = (struct entry){.text = text,
                        .is_class = strcmp(text, "Linear") == 0,
                        .is_re = strncmp(text, "re:", 3) == 0};
    if (e->is_re)
        qp_python_re_make(&e->re, text + 3);
}

static bool names(const struct entry *e, const char *module)
{
    return e->is_re ? qp_python_re_match(&e->re, module) : strcmp(e->text, module) == 0;
}

/* Whether an entry names a module in an engine, where it may have another prefix. */
static bool may_name(const struct entry *e, const char *module)
{
    static const char prefix[] = "model.";
    char longer[QP_LINT_MOST_NAME + sizeof prefix];
    const size_t n = sizeof prefix - 1;
    memcpy(longer, prefix, n);
    memcpy(longer + n, module, strlen(module) + 1);
    return names(e, module) || names(e, longer) ||
           (strncmp(module, prefix, n) == 0 && names(e, module + n));
}

/* Takes down what an entry of a group, or of ignore (NO_GROUP), says of one module. */
static void mark_module(const struct entry *e, uint16_t group, const char *module,
                        struct mark *mark)
{
    if (group == NO_GROUP) {
        mark->is_ignored |= names(e, module);
        mark->maybe_ignored |= may_name(e, module);
    } else if (mark->group == NO_GROUP && (e->is_class || may_name(e, module))) {
        mark->group = group;
    }
}

static void mark_all(const struct qp_lint *l, struct qp_ct_names *n, const struct entry *e,
                     uint16_t group)
{
    char module[QP_LINT_MOST_NAME];
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        if (qp_lint_module(&l->file->tensors[i], module))
            mark_module(e, group, module, &n->marks[i]);
    }
    for (size_t i = 0; i < QP_LINT_HEADS; i++)
        mark_module(e, group, qp_lint_heads[i], &n->heads[i]);
}

/* The entries of a list: names first and classes later, as readers of the config look for them. */
static enum qplan_status mark_list(const struct qp_lint *l, struct qp_ct_names *n,
                                   const struct qp_tree_value *list, uint16_t group, bool classes)
{
    const struct qp_tree_value *value = qp_tree_is_array(list) ? qp_tree_first(list) : NULL;
    struct entry e;
    for (uint32_t i = 0; value && i < list->n; i++, value = qp_tree_next(value)) {
        const char *text = qp_tree_text(l->tree, value);
        if (!text)
            continue;
        QP_TRY(qp_lint_go_on(l));
        read_entry(&e, text);
        bool *unknown = group == NO_GROUP ? &n->unknown_ignore : &n->unknown_target;
        *unknown |= e.is_re && !e.re.is_understood;
        if (e.is_class == classes)
            mark_all(l, n, &e, group);
        qp_python_re_free(&e.re);
    }
    return QPLAN_OK;
}

static const struct qp_tree_value *group_at(const struct qp_lint *l, uint32_t number)
{
    const struct qp_tree_value *groups = qp_tree_member(l->tree, l->quantized, "config_groups");
    if (!qp_tree_is_object(groups) || number >= groups->n)
        return NULL;
    const struct qp_tree_value *group = qp_tree_first(groups);
    while (number-- > 0)
        group = qp_tree_next(group);
    return group;
}

static enum qplan_status mark_names(struct qp_lint *l)
{
    struct qp_arena *arena = &l->found->arena;
    const struct qp_tree_value *group;
    if (l->ct)
        return QPLAN_OK;
    struct qp_ct_names *n = qp_arena_alloc(arena, 1, sizeof *n);
    struct mark *marks = qp_arena_alloc(arena, l->file->n_tensors, sizeof *marks);
    if (!n || !marks)
        return qp_fail_memory(l->err, "findings", l->file->n_tensors * sizeof *marks);
    n->marks = marks;
    for (size_t i = 0; i < l->file->n_tensors; i++)
        marks[i].group = NO_GROUP;
    for (size_t i = 0; i < QP_LINT_HEADS; i++)
        n->heads[i].group = NO_GROUP;
    QP_TRY(mark_list(l, n, qp_tree_member(l->tree, l->quantized, "ignore"), NO_GROUP, false));
    for (unsigned classes = 0; classes < 2; classes++) {
        for (uint32_t i = 0; i < NO_GROUP && (group = group_at(l, i)) != NULL; i++)
            QP_TRY(
                mark_list(l, n, qp_tree_member(l->tree, group, "targets"), (uint16_t)i, classes));
    }
    l->ct = n;
    return QPLAN_OK;
}

/* ---- Rules -------------------------------------------------------------------------------------
 */

enum qplan_status qp_lint_ct_head(struct qp_lint *l)
{
    QP_TRY(mark_names(l));
    for (size_t i = 0; i < QP_LINT_HEADS; i++) {
        const struct mark *mark = &l->ct->heads[i];
        if (mark->group != NO_GROUP && !mark->maybe_ignored && !l->ct->unknown_ignore &&
            qp_lint_has_plain_head(l, i))
            QP_TRY(qp_lint_find(l, NULL, 0,
                                "config.json: ignore does not list %s, which is not quantized: "
                                "engines make that layer even where the file has none",
                                qp_lint_heads[i]));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_ct_kept(struct qp_lint *l)
{
    char module[QP_LINT_MOST_NAME];
    QP_TRY(mark_names(l));
    for (size_t i = 0; i < l->file->n_tensors && !l->ct->unknown_ignore; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        const struct mark *mark = &l->ct->marks[i];
        if (qp_lint_module(t, module) && qp_lint_is_linear(l, t) && mark->group != NO_GROUP &&
            !mark->maybe_ignored)
            QP_TRY(qp_lint_find_tensor(
                l, t, "a plain linear layer that config.json targets and does not ignore"));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_ct_ignored(struct qp_lint *l)
{
    QP_TRY(mark_names(l));
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (t->scheme && l->ct->marks[i].is_ignored)
            QP_TRY(qp_lint_find_tensor(
                l, t,
                "quantized, but in the ignore list of config.json: engines look for plain "
                "weights"));
    }
    return QPLAN_OK;
}

/* Whether the numbers of a group are those of a scheme. */
static bool is_as_group(const struct qp_lint *l, const struct qp_tree_value *group,
                        const struct qplan_scheme *scheme)
{
    const struct qp_tree_value *weights = qp_tree_member(l->tree, group, "weights");
    const struct qp_tree_value *bits = qp_tree_member(l->tree, weights, "num_bits");
    const struct qp_tree_value *symmetric = qp_tree_member(l->tree, weights, "symmetric");
    const struct qp_tree_value *width = qp_tree_member(l->tree, weights, "group_size");
    const bool asymmetric = symmetric && !qp_tree_is_true(symmetric);
    const uint64_t group_size = scheme->granularity == QPLAN_PER_GROUP ? scheme->group : 0;
    return (bits ? qp_tree_number(bits) : 8) == qplan_dtype_bits(scheme->dtype) &&
           asymmetric == scheme->asymmetric && qp_tree_number(width) == group_size;
}

enum qplan_status qp_lint_ct_target(struct qp_lint *l)
{
    QP_TRY(mark_names(l));
    for (size_t i = 0; i < l->file->n_tensors && !l->ct->unknown_target; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        const uint16_t group = l->ct->marks[i].group;
        if (t->scheme && group == NO_GROUP)
            QP_TRY(qp_lint_find_tensor(l, t, "quantized, but no target of config.json means it"));
        else if (t->scheme && !is_as_group(l, group_at(l, group), t->scheme))
            QP_TRY(qp_lint_find_tensor(
                l, t,
                "the group of config.json that targets it has other numbers than its tensors"));
    }
    return QPLAN_OK;
}

static enum qplan_status find_unknown(struct qp_lint *l, const struct qp_tree_value *list)
{
    const struct qp_tree_value *value = qp_tree_is_array(list) ? qp_tree_first(list) : NULL;
    struct entry e;
    for (uint32_t i = 0; value && i < list->n; i++, value = qp_tree_next(value)) {
        const char *text = qp_tree_text(l->tree, value);
        if (!text)
            continue;
        read_entry(&e, text);
        const bool is_known = !e.is_re || e.re.is_understood;
        qp_python_re_free(&e.re);
        if (!is_known)
            QP_TRY(qp_lint_find_pattern(l, text));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_ct_pattern(struct qp_lint *l)
{
    const struct qp_tree_value *group;
    QP_TRY(find_unknown(l, qp_tree_member(l->tree, l->quantized, "ignore")));
    for (uint32_t i = 0; i < NO_GROUP && (group = group_at(l, i)) != NULL; i++)
        QP_TRY(find_unknown(l, qp_tree_member(l->tree, group, "targets")));
    return QPLAN_OK;
}
