/*
 * lint.c - the checkpoint is opened step by step, as far as it can be, and the rules of each step
 * look at it.
 */
#include "lint.h"

#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/plan/select.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- Findings ----------------------------------------------------------------------------------
 */

static enum qplan_status add(struct qp_lint *l, const char *name, size_t n_name, const char *fmt,
                             va_list args)
{
    struct qplan_findings *found = l->found;
    char message[1024];
    (void)vsnprintf(message, sizeof message, fmt, args);
    struct qp_finding *list =
        qp_arena_grow(&found->arena, found->list, found->n, sizeof *found->list);
    char *copy = qp_arena_join(&found->arena, message, strlen(message), "");
    char *of = name ? qp_arena_join(&found->arena, name, n_name, "") : NULL;
    if (!list || !copy || (name && !of))
        return qp_fail_memory(l->err, "findings", sizeof *list);
    found->list = list;
    list[found->n++] = (struct qp_finding){l->rule, of, n_name, copy};
    return QPLAN_OK;
}

enum qplan_status qp_lint_find(struct qp_lint *l, const char *name, size_t n_name, const char *fmt,
                               ...)
{
    va_list args;
    va_start(args, fmt);
    const enum qplan_status status = add(l, name, n_name, fmt, args);
    va_end(args);
    return status;
}

enum qplan_status qp_lint_find_tensor(struct qp_lint *l, const struct qp_tensor *t, const char *fmt,
                                      ...)
{
    va_list args;
    va_start(args, fmt);
    const enum qplan_status status = add(l, t->name, t->name_len, fmt, args);
    va_end(args);
    return status;
}

enum qplan_status qp_lint_find_pattern(struct qp_lint *l, const char *pattern)
{
    char quoted[QP_QUOTED];
    return qp_lint_find(l, NULL, 0,
                        "config.json: %s is not understood here, so names are checked only as far "
                        "as it does not matter",
                        qp_quote(quoted, pattern, strlen(pattern)));
}

enum qplan_status qp_lint_go_on(const struct qp_lint *l)
{
    return l->options && l->options->cancel && *l->options->cancel
               ? qp_fail(l->err, QPLAN_ERR_CANCELLED, l->found->path, "stopped")
               : QPLAN_OK;
}

bool qp_lint_has(const struct qp_tensor *t, const char *pattern)
{
    size_t begin, end;
    return qp_name_find(t->name, t->name_len, pattern, &begin, &end);
}

bool qp_lint_module(const struct qp_tensor *t, char out[QP_LINT_MOST_NAME])
{
    static const char suffix[] = ".weight";
    const size_t n = t->name_len - (sizeof suffix - 1);
    if (t->rank != 2 || t->name_len < sizeof suffix || t->name_len >= QP_LINT_MOST_NAME ||
        strlen(t->name) != t->name_len || !qp_ends_with(t->name, suffix))
        return false;
    memcpy(out, t->name, n);
    out[n] = '\0';
    return true;
}

bool qp_lint_is_linear(const struct qp_lint *l, const struct qp_tensor *t)
{
    static const char *const others[] = {"norm",      "embed",   "conv",     ".wte.",
                                         ".wpe.",     "rotary",  ".shared.", "A_log",
                                         "relative_", "lm_head", "position", "token_type"};
    if (qp_is_model_type(l->listing, QP_CONV1D_TYPES))
        return false;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (qp_lint_has(t, others[i]))
            return false;
    }
    return !t->scheme;
}

const char *const qp_lint_heads[QP_LINT_HEADS] = {"lm_head", "cls.predictions.decoder"};

bool qp_lint_has_plain_head(const struct qp_lint *l, size_t head)
{
    /* Patterns of struct qp_keep, which occur in the name of some tensor of such a model. */
    static const char *const signs[QP_LINT_HEADS] = {"embed_tokens.", ".cls.predictions."};
    bool is_there = false, is_quantized = false;
    char module[QP_LINT_MOST_NAME];
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        const bool is_head = qp_lint_module(t, module) && strcmp(module, qp_lint_heads[head]) == 0;
        is_there |= is_head || qp_lint_has(t, signs[head]);
        is_quantized |= is_head && t->scheme;
    }
    return is_there && !is_quantized;
}

/* A failure that is itself what was looked for; any other one stays one. */
static enum qplan_status find_failure(struct qp_lint *l, const struct qp_lint_rule *rule,
                                      enum qplan_status status)
{
    if (status != QPLAN_ERR_INVALID)
        return status;
    l->rule = &rule->facts;
    return qp_lint_find(l, NULL, 0, "%s: %s", l->err->subject, l->err->message);
}

/* ---- Rules -------------------------------------------------------------------------------------
 */

static const char *const engines[] = {"vllm", "sglang", "transformers", "mlx", "comfyui", NULL};

const char *qplan_engine_name(size_t i)
{
    return i < sizeof engines / sizeof engines[0] ? engines[i] : NULL;
}

/* Whether a list of names with blanks between has one; no list has all. */
static bool concerns(const char *names, const char *name)
{
    const size_t n = name ? strlen(name) : 0;
    for (const char *at = names; at && n > 0; at = strchr(at, ' ')) {
        at += strspn(at, " ");
        if (strncmp(at, name, n) == 0 && (at[n] == ' ' || at[n] == '\0'))
            return true;
    }
    return names == NULL;
}

static enum qplan_status check_rules(struct qp_lint *l, bool with_tensors)
{
    for (const struct qp_lint_rule *rule = qp_lint_rules; rule->facts.id; rule++) {
        if (!rule->check || rule->needs_tensors != with_tensors ||
            !concerns(rule->facts.layouts, l->format ? l->format->name : NULL) ||
            !concerns(rule->facts.engines, l->found->engine))
            continue;
        l->rule = &rule->facts;
        QP_TRY(qp_lint_go_on(l));
        QP_TRY(rule->check(l));
    }
    return QPLAN_OK;
}

bool qplan_lint_rule_at(size_t i, struct qplan_lint_rule *out)
{
    size_t n = 0;
    while (n < i && qp_lint_rules[n].facts.id)
        n++;
    *out = qp_lint_rules[n].facts;
    return out->id != NULL;
}

#define NAME_FOLDER "name the folder that it is in: config.json says what engines do with it"

/* ---- Steps -------------------------------------------------------------------------------------
 */

static void look_at(struct qp_lint *l, const struct qp_source *source)
{
    l->source = source;
    l->listing = &source->listing;
    l->quantized = qp_description(l->listing, &l->tree);
}

static enum qplan_status check_quantized(struct qp_lint *l)
{
    const struct qplan_entry *found = NULL;
    if (l->format || qp_has_records(l->listing))
        return QPLAN_OK;
    QP_TRY(qp_find_quantized(l->listing, NULL, &found, l->err));
    char subject[512];
    if (!found)
        return qp_fail(l->err, QPLAN_ERR_INVALID, l->listing->shown, "nothing in it is quantized");
    (void)qp_fail(l->err, QPLAN_ERR_INVALID, qp_listing_subject(subject, l->listing, found),
                  "quantized in a layout that is not known");
    if (!l->source->is_folder)
        qp_hint(l->err, NAME_FOLDER);
    return QPLAN_ERR_INVALID;
}

/* A file of a folder says nothing of what config.json tells engines. */
static enum qplan_status check_folder(const struct qp_lint *l)
{
    if (l->source->is_folder || !l->format->is_folder)
        return QPLAN_OK;
    (void)qp_fail(l->err, QPLAN_ERR_INVALID, l->listing->shown,
                  "a file of the layout %s without the config.json of its folder", l->format->name);
    qp_hint(l->err, NAME_FOLDER);
    return QPLAN_ERR_INVALID;
}

/* What the reader refuses is told where no rule has found more about it. */
static enum qplan_status check_tensors(struct qp_lint *l, struct qp_source *source)
{
    struct qplan_checkpoint *file;
    enum qplan_status status = qp_checkpoint_make(&file, source, l->err);
    if (status != QPLAN_OK)
        return qplan_findings_count(l->found, true) > 0 && status == QPLAN_ERR_INVALID
                   ? QPLAN_OK
                   : find_failure(l, &qp_lint_rules[1], status);
    look_at(l, &file->source);
    l->file = file;
    l->format = file->format;
    l->found->format = file->format->name;
    status = check_folder(l);
    if (status == QPLAN_OK)
        status = check_rules(l, true);
    qplan_checkpoint_close(file);
    return status;
}

/* A folder in which nothing is a checkpoint was named wrongly; one whose files do not fit is bad.
 */
static enum qplan_status check_all(struct qp_lint *l, struct qp_source *source)
{
    struct qp_folder folder;
    bool is_folder;
    QP_TRY(qp_folder_find(&folder, l->found->path, &is_folder, l->err));
    qp_folder_free(&folder);
    enum qplan_status status = qp_source_open(source, l->found->path, l->err);
    if (status != QPLAN_OK)
        return is_folder ? find_failure(l, &qp_lint_rules[0], status) : status;
    look_at(l, source);
    l->format = qp_format_of_config(l->listing);
    l->found->format = l->format ? l->format->name : NULL;
    status = check_quantized(l);
    if (status == QPLAN_OK)
        status = check_rules(l, false);
    if (status == QPLAN_OK)
        return check_tensors(l, source);
    qp_source_close(source);
    return status;
}

static enum qplan_status check_engine(const char *engine, struct qplan_error *err)
{
    for (size_t i = 0; engine && engines[i]; i++) {
        if (strcmp(engines[i], engine) == 0)
            return QPLAN_OK;
    }
    return engine ? qp_fail_name(err, QPLAN_ERR_USAGE, "engine", "unknown engine", engine,
                                 qplan_engine_name)
                  : QPLAN_OK;
}

enum qplan_status qplan_lint(struct qplan_findings **out, const char *path,
                             const struct qplan_lint_options *options, struct qplan_error *err)
{
    struct qplan_error own;
    struct qp_source source;
    *out = NULL;
    QP_TRY(check_engine(options ? options->engine : NULL, err));
    struct qplan_findings *found = qp_alloc(1, sizeof *found);
    if (!found)
        return qp_fail_memory(err, "findings", sizeof *found);
    found->path = qp_arena_join(&found->arena, path, strlen(path), "");
    found->engine = options ? options->engine : NULL;
    struct qp_lint l = {.found = found, .options = options, .err = err ? err : &own};
    const enum qplan_status status =
        found->path ? check_all(&l, &source) : qp_fail_memory(err, "findings", strlen(path));
    if (status != QPLAN_OK) {
        qplan_findings_free(found);
        return status;
    }
    *l.err = (struct qplan_error){.status = QPLAN_OK};
    *out = found;
    return QPLAN_OK;
}

void qplan_findings_free(struct qplan_findings *findings)
{
    if (!findings)
        return;
    qp_arena_free(&findings->arena);
    qp_free(findings);
}
