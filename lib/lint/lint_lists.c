/*
 * lint_lists.c - rules on the lists of modules that AWQ, bitsandbytes and GPTQ have in config.json:
 * which layers engines leave plain, and which they take for quantized.
 *
 * An entry of a skip list, which the first two have, is a text that transformers finds at the end
 * of a module's name, or a regular expression of Python that it finds at the begin, up to a dot;
 * vLLM leaves each module whose name has the text anywhere. One of GPTQ's list is how the names of
 * quantized modules end.
 */
#include "lint.h"
#include "python_re.h"

#include "formats/modules.h"
#include "lib/base/alloc.h"

#include <stdio.h>

#define GPTQ_LIST "modules_in_block_to_quantize"

/* ---- Skip lists --------------------------------------------------------------------------------
 */

static bool is_awq(const struct qp_lint *l)
{
    return strcmp(l->format->name, "awq") == 0;
}

static const char *list_key(const struct qp_lint *l)
{
    return is_awq(l) ? "modules_to_not_convert" : "llm_int8_skip_modules";
}

/* The list, or NULL if there is none. */
static const struct qp_tree_value *list_of(const struct qp_lint *l)
{
    const struct qp_tree_value *list = qp_tree_member(l->tree, l->quantized, list_key(l));
    return qp_tree_is_array(list) ? list : NULL;
}

struct entry {
    const char *text;
    struct qp_python_re re; /* of whole names: what the text matches up to a dot, and the rest */
};

static void read_entry(struct entry *e, const char *text)
{
    char pattern[QP_PYTHON_RE_MOST + 32];
    const char *rest = qp_ends_with(text, ".") ? "" : "([.].*)?$";
    const int n = snprintf(pattern, sizeof pattern, "(?:%s)%s", text, rest);
    e->text = text;
    qp_python_re_make(&e->re, (size_t)n < sizeof pattern ? pattern : text);
}

/* Whether transformers leaves a module for this entry. */
static bool leaves(const struct entry *e, const char *module)
{
    return qp_ends_with(module, e->text) || qp_python_re_match(&e->re, module);
}

/* Whether it may do so under a name that the module has there. */
static bool may_leave(const struct entry *e, const char *module)
{
    static const char prefix[] = "model.";
    char longer[QP_LINT_MOST_NAME + sizeof prefix];
    const size_t n = sizeof prefix - 1;
    memcpy(longer, prefix, n);
    memcpy(longer + n, module, strlen(module) + 1);
    return !e->re.is_understood || leaves(e, module) || leaves(e, longer) ||
           (strncmp(module, prefix, n) == 0 && leaves(e, module + n));
}

static bool is_inside(const struct entry *e, const char *module)
{
    return strstr(module, e->text) != NULL;
}

/* Marks each tensor of a module that an entry of the list names. */
static enum qplan_status mark(struct qp_lint *l, bool (*names)(const struct entry *e, const char *),
                              bool **marks)
{
    const struct qp_tree_value *list = list_of(l);
    const struct qp_tree_value *value = list ? qp_tree_first(list) : NULL;
    char module[QP_LINT_MOST_NAME];
    struct entry e;
    *marks = qp_arena_alloc(&l->found->arena, l->file->n_tensors, sizeof **marks);
    if (!*marks)
        return qp_fail_memory(l->err, "findings", l->file->n_tensors);
    for (uint32_t i = 0; value && i < list->n; i++, value = qp_tree_next(value)) {
        const char *text = qp_tree_text(l->tree, value);
        if (!text)
            continue;
        QP_TRY(qp_lint_go_on(l));
        read_entry(&e, text);
        for (size_t k = 0; k < l->file->n_tensors; k++)
            (*marks)[k] |= qp_lint_module(&l->file->tensors[k], module) && names(&e, module);
        qp_python_re_free(&e.re);
    }
    return QPLAN_OK;
}

/* Routers are no linear layers in transformers. */
static bool is_linear(const struct qp_lint *l, const struct qp_tensor *t)
{
    char module[QP_LINT_MOST_NAME];
    return qp_lint_module(t, module) && qp_lint_is_linear(l, t) && !qp_lint_has(t, ".gate.") &&
           !qp_lint_has(t, "router");
}

/* transformers has experts in a module that bitsandbytes does not know. */
static bool is_other_expert(const struct qp_lint *l, const struct qp_tensor *t)
{
    return !is_awq(l) && qp_lint_has(t, ".experts.");
}

enum qplan_status qp_lint_skip_kept(struct qp_lint *l)
{
    bool *left;
    QP_TRY(mark(l, may_leave, &left));
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (is_linear(l, t) && !left[i] && !is_other_expert(l, t))
            QP_TRY(qp_lint_find_tensor(
                l, t, "a plain linear layer that %s of config.json does not name", list_key(l)));
    }
    return QPLAN_OK;
}

/* Adds a finding for each quantized tensor that is marked: what is said of it names the list. */
static enum qplan_status QP_PRINTF(3, 0)
    find_marked(struct qp_lint *l, const bool *marks, const char *what)
{
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        if (l->file->tensors[i].scheme && marks[i])
            QP_TRY(qp_lint_find_tensor(l, &l->file->tensors[i], what, list_key(l)));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_skip_quantized(struct qp_lint *l)
{
    bool *left;
    QP_TRY(mark(l, leaves, &left));
    return find_marked(l, left,
                       "quantized, but in %s of config.json: engines look for plain weights");
}

enum qplan_status qp_lint_awq_inside(struct qp_lint *l)
{
    bool *found;
    QP_TRY(mark(l, is_inside, &found));
    return find_marked(l, found,
                       "quantized, but its name has an entry of %s in it: vLLM looks for plain "
                       "weights");
}

static enum qplan_status find_unknown(struct qp_lint *l)
{
    const struct qp_tree_value *list = list_of(l);
    const struct qp_tree_value *value = list ? qp_tree_first(list) : NULL;
    struct entry e;
    for (uint32_t i = 0; value && i < list->n; i++, value = qp_tree_next(value)) {
        const char *text = qp_tree_text(l->tree, value);
        if (!text)
            continue;
        read_entry(&e, text);
        const bool is_known = e.re.is_understood;
        qp_python_re_free(&e.re);
        if (!is_known)
            QP_TRY(qp_lint_find_pattern(l, text));
    }
    return QPLAN_OK;
}

enum qplan_status qp_lint_pattern(struct qp_lint *l)
{
    return strcmp(l->format->name, "compressed-tensors") == 0 ? qp_lint_ct_pattern(l)
                                                              : find_unknown(l);
}

/* Whether transformers may leave a head: without a list it leaves all. */
static bool leaves_head(const struct qp_lint *l, const char *head)
{
    const struct qp_tree_value *list = list_of(l);
    const struct qp_tree_value *value = list ? qp_tree_first(list) : NULL;
    bool is_left = !list;
    struct entry e;
    for (uint32_t i = 0; value && i < list->n; i++, value = qp_tree_next(value)) {
        const char *text = qp_tree_text(l->tree, value);
        if (!text)
            continue;
        read_entry(&e, text);
        is_left |= may_leave(&e, head);
        qp_python_re_free(&e.re);
    }
    return is_left;
}

enum qplan_status qp_lint_bnb_head(struct qp_lint *l)
{
    for (size_t i = 0; i < QP_LINT_HEADS; i++) {
        if (qp_lint_has_plain_head(l, i) && !leaves_head(l, qp_lint_heads[i]))
            QP_TRY(qp_lint_find(l, NULL, 0,
                                "config.json: %s does not list %s, which is not quantized: "
                                "transformers makes that layer even where the file has none",
                                list_key(l), qp_lint_heads[i]));
    }
    return QPLAN_OK;
}

/* ---- GPTQ --------------------------------------------------------------------------------------
 */

/* What a name has before its first number: the list of blocks that its module is in. */
static struct qp_span blocks_of(const struct qp_tensor *t)
{
    const struct qp_span module = qp_module_of(t), in = qp_name_in_block(module);
    return (struct qp_span){module.text, in.n > 0 ? (size_t)(in.text - module.text) : 0};
}

/* Whether an array of arrays has a text that a module's name ends with; all, where it has none. */
static bool is_listed(const struct qp_lint *l, const struct qp_tree_value *lists,
                      const char *module)
{
    if (!qp_tree_is_array(lists))
        return true;
    const struct qp_tree_value *list = qp_tree_first(lists);
    for (uint32_t i = 0; i < lists->n; i++, list = qp_tree_next(list)) {
        const struct qp_tree_value *value = qp_tree_is_array(list) ? qp_tree_first(list) : NULL;
        for (uint32_t k = 0; value && k < list->n; k++, value = qp_tree_next(value)) {
            const char *text = qp_tree_text(l->tree, value);
            if (text && qp_ends_with(module, text))
                return true;
        }
    }
    return false;
}

/* Prefixes of blocks that have quantized layers: up to the number, which is not the same. */
static size_t n_before_number(struct qp_span blocks)
{
    size_t n = blocks.n > 0 ? blocks.n - 1 : 0; /* without the dot behind the number */
    while (n > 0 && blocks.text[n - 1] != '.')
        n--;
    return n;
}

static bool find_blocks(const struct qp_lint *l, struct qp_spans *out)
{
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        const struct qp_span blocks = blocks_of(t);
        if (t->scheme && blocks.n > 0)
            qp_add_span(out, (struct qp_span){blocks.text, n_before_number(blocks)});
    }
    qp_sort_spans(out);
    return !out->failed;
}

static enum qplan_status check_listed(struct qp_lint *l, const struct qp_spans *blocks,
                                      const struct qp_tensor *t)
{
    const struct qp_tree_value *lists = qp_tree_member(l->tree, l->quantized, GPTQ_LIST);
    const struct qp_span own = blocks_of(t);
    char module[QP_LINT_MOST_NAME];
    if (own.n == 0 || !qp_lint_module(t, module) ||
        !qp_has_span(blocks, (struct qp_span){own.text, n_before_number(own)}))
        return QPLAN_OK;
    const bool is_taken = is_listed(l, lists, module);
    if (t->scheme)
        return is_taken ? QPLAN_OK
                        : qp_lint_find_tensor(l, t,
                                              "quantized, but not in " GPTQ_LIST
                                              " of config.json: transformers looks for plain "
                                              "weights");
    return is_taken && is_linear(l, t)
               ? qp_lint_find_tensor(l, t,
                                     "plain in a block with quantized layers: transformers "
                                     "takes it for quantized, unless " GPTQ_LIST
                                     " of config.json leaves it out")
               : QPLAN_OK;
}

enum qplan_status qp_lint_gptq_blocks(struct qp_lint *l)
{
    struct qp_spans blocks = {.list = NULL};
    enum qplan_status status =
        find_blocks(l, &blocks) ? QPLAN_OK : qp_fail_memory(l->err, "findings", 0);
    for (size_t i = 0; status == QPLAN_OK && i < l->file->n_tensors; i++)
        status = check_listed(l, &blocks, &l->file->tensors[i]);
    qp_free(blocks.list);
    return status;
}

enum qplan_status qp_lint_gptq_head(struct qp_lint *l)
{
    const bool told = qp_tree_is_true(qp_tree_member(l->tree, l->quantized, "lm_head"));
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        char module[QP_LINT_MOST_NAME];
        if (qp_lint_module(t, module) && qp_ends_with(module, "lm_head") &&
            (t->scheme != NULL) != told)
            QP_TRY(qp_lint_find_tensor(l, t, "%s, but lm_head of config.json is %s",
                                       t->scheme ? "quantized" : "plain", told ? "true" : "false"));
    }
    return QPLAN_OK;
}

/* ---- MLX ---------------------------------------------------------------------------------------
 */

/* Why mlx-lm does not load a model with such a tensor, or NULL. */
static const char *refusal_of(const struct qp_lint *l, const struct qp_tensor *t)
{
    for (const struct qp_refusal *r = l->format->refusals; r->pattern; r++) {
        if ((!r->types || qp_is_model_type(l->listing, r->types)) && qp_lint_has(t, r->pattern))
            return r->reason;
    }
    return NULL;
}

/* Of plain tensors experts alone are looked at: mlx-lm drops those of a tower by itself. */
static enum qplan_status find_refused(struct qp_lint *l, const struct qp_tensor *t)
{
    const bool is_fused = t->rank == 3 && qp_lint_has(t, ".experts.");
    const char *reason = t->scheme || is_fused ? refusal_of(l, t) : NULL;
    if (!reason && t->scheme)
        reason = l->format->misfit(t);
    return reason ? qp_lint_find_tensor(l, t, "%s: it is not loaded%s", reason,
                                        t->scheme ? " quantized" : "")
                  : QPLAN_OK;
}

enum qplan_status qp_lint_mlx_refused(struct qp_lint *l)
{
    for (size_t i = 0; i < l->file->n_tensors; i++)
        QP_TRY(find_refused(l, &l->file->tensors[i]));
    return QPLAN_OK;
}

enum qplan_status qp_lint_mlx_rope(struct qp_lint *l)
{
    const struct qp_tree_value *root = l->tree ? l->tree->values : NULL;
    return qp_tree_member(l->tree, root, "rope_parameters") &&
                   !qp_tree_member(l->tree, root, "rope_theta")
               ? qp_lint_find(
                     l, NULL, 0,
                     "config.json: rope_parameters without a rope_theta beside them, which "
                     "several models of mlx-lm ask for")
               : QPLAN_OK;
}
