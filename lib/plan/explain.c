/*
 * explain.c - why tensors become what they become: who won, who lost, and what is written. Who lost
 * is not in a plan: what was asked is asked again, of the tensors that are explained.
 */
#include "choose.h"

#include "lib/base/glob.h"
#include "lib/base/json.h"

#include <inttypes.h>

#define EXPLAIN_SCHEMA "qplan-explain/1"

/* ---- Votes -------------------------------------------------------------------------------------
 */

/* What one of those who are asked would do with a tensor. */
struct vote {
    const char *rule;
    size_t line;                       /* of the rules, or 0 */
    const char *reason;                /* why it is kept; NULL = it is quantized */
    const struct qplan_scheme *scheme; /* if the vote says so */
    const struct qp_calibrator *calibrator;
};

static bool matches(const struct qp_choice *choice, const struct qp_tensor *t)
{
    return qp_glob_match(choice->glob, t->name, t->name_len);
}

static bool is_included(const struct qp_chooser *chooser, const struct qp_tensor *t)
{
    bool found = chooser->n_includes == 0;
    for (size_t i = 0; i < chooser->n_choices && !found; i++)
        found = chooser->choices[i].kind == QP_INCLUDE && matches(&chooser->choices[i], t);
    return found;
}

static const char *reason_of(const struct qp_choice *choice)
{
    if (choice->kind == QP_EXCLUDE)
        return "excluded";
    return choice->kind == QP_LINE && !choice->scheme ? "rule keep" : NULL;
}

/* The votes of a tensor are those of the choices, that of what does not include it, and that of the
 * selection. */
#define VOTES_BESIDES 2

/* False if the voter at that place says nothing of the tensor. */
static bool vote_at(const struct qp_chooser *chooser, const struct qp_tensor *t, size_t i,
                    struct vote *out)
{
    if (i < chooser->n_choices) {
        const struct qp_choice *choice = &chooser->choices[i];
        *out = (struct vote){choice->rule, choice->line, reason_of(choice), choice->scheme,
                             choice->calibrator};
        return matches(choice, t);
    }
    if (i == chooser->n_choices) {
        *out = (struct vote){.rule = "include", .reason = "not selected"};
        return !is_included(chooser, t);
    }
    const char *unfit = qp_unquantizable(t);
    *out = (struct vote){
        .rule = chooser->selection->rule,
        .reason =
            unfit ? unfit : chooser->selection->keeps(t, chooser->format, chooser->is_conv1d)};
    if (!out->reason) {
        out->scheme = chooser->scheme;
        out->calibrator = chooser->calibrator;
    }
    return !chooser->has_rules;
}

/* ---- One tensor --------------------------------------------------------------------------------
 */

struct explainer {
    struct qp_writer w;
    const struct qplan_plan *plan;
    const struct qp_chooser *chooser; /* NULL: what was asked is not known */
    void (*put)(struct explainer *e, const struct qp_plan_tensor *t);
};

/* A walk over the votes that did not win. */
struct losers {
    size_t next;
    bool has_won; /* the first vote of the rule that won is behind: others of its name lost to it */
};

/* The next of them; false if there is none. */
static bool next_lost(const struct explainer *e, const struct qp_plan_tensor *t,
                      struct losers *walk, struct vote *out)
{
    const size_t n = e->chooser ? e->chooser->n_choices + VOTES_BESIDES : 0;
    while (walk->next < n) {
        if (!vote_at(e->chooser, t->source, walk->next++, out))
            continue;
        if (walk->has_won || !t->rule || strcmp(out->rule, t->rule) != 0)
            return true;
        walk->has_won = true;
    }
    return false;
}

/* The line that won, or 0 if none did. */
static size_t winning_line(const struct explainer *e, const struct qp_plan_tensor *t)
{
    for (size_t i = 0; e->chooser && t->rule && i < e->chooser->n_choices; i++) {
        const struct qp_choice *choice = &e->chooser->choices[i];
        if (choice->line && strcmp(choice->rule, t->rule) == 0)
            return choice->line;
    }
    return 0;
}

static void put_escaped(struct qp_writer *w, const char *text, size_t n)
{
    char shown[4096];
    qp_puts(w, qp_escape(shown, sizeof shown, text, n));
}

static void put_stored(struct qp_writer *w, const struct qplan_entry *entry)
{
    char shape[1536]; /* room for any: 64 numbers */
    put_escaped(w, entry->name, entry->name_len);
    qp_printf(w, "  %s  %s  %" PRIu64 " bytes\n",
              qp_format_list(shape, sizeof shape, entry->shape, entry->rank),
              qplan_storage_name((enum qplan_storage)entry->storage), entry->end - entry->begin);
}

/* "quantize int8:c0 minmax", "quantize" or "keep: excluded". */
static void put_verdict(struct qp_writer *w, const struct vote *vote)
{
    char scheme[QPLAN_SCHEME_TEXT];
    qp_puts(w, vote->reason ? "keep: " : "quantize");
    if (vote->reason)
        qp_puts(w, vote->reason);
    if (!vote->scheme)
        return;
    qplan_scheme_format(vote->scheme, scheme);
    qp_printf(w, " %s %s", scheme, vote->calibrator->name);
}

static void put_rule(struct qp_writer *w, const struct vote *vote)
{
    put_escaped(w, vote->rule, strlen(vote->rule));
    if (vote->line)
        qp_printf(w, " (line %zu)", vote->line);
}

static void put_text(struct explainer *e, const struct qp_plan_tensor *t)
{
    struct qp_writer *w = &e->w;
    const struct vote won = {.rule = t->rule,
                             .line = winning_line(e, t),
                             .reason = t->reason,
                             .scheme = t->result.scheme,
                             .calibrator = t->calibrator};
    struct vote lost;
    put_stored(w, t->source->entry);
    qp_puts(w, "  ");
    put_verdict(w, &won);
    if (t->unfit && t->unfit != t->source) {
        qp_puts(w, " in ");
        put_escaped(w, t->unfit->name, t->unfit->name_len);
    }
    if (won.rule) {
        qp_puts(w, ", by ");
        put_rule(w, &won);
    }
    qp_puts(w, "\n");
    for (struct losers walk = {.next = 0}; next_lost(e, t, &walk, &lost);) {
        qp_puts(w, "  lost: ");
        put_rule(w, &lost);
        qp_puts(w, ": ");
        put_verdict(w, &lost);
        qp_puts(w, "\n");
    }
    for (unsigned i = 0; i < qp_plan_n_outputs(t); i++) {
        qp_puts(w, "  writes: ");
        put_stored(w, qp_plan_output(t, i));
    }
    qp_printf(w, "  size: %" PRIu64 " bytes from %" PRIu64 "\n", qp_tensor_bytes(&t->result),
              qp_tensor_bytes(t->source));
}

static void put_line_number(struct qp_writer *w, size_t line)
{
    qp_json_key(w, "line");
    if (line)
        qp_json_put_u64(w, line);
    else
        qp_json_put_null(w);
}

static void put_vote(struct qp_writer *w, const struct vote *vote)
{
    char scheme[QPLAN_SCHEME_TEXT];
    if (vote->scheme)
        qplan_scheme_format(vote->scheme, scheme);
    qp_json_open(w, '{');
    qp_json_key(w, "rule");
    qp_json_put_str(w, vote->rule);
    put_line_number(w, vote->line);
    qp_json_key(w, "action");
    qp_json_put_str(w, vote->reason ? "keep" : "quantize");
    qp_json_key(w, "scheme");
    qp_json_put_str(w, vote->scheme ? scheme : NULL);
    qp_json_key(w, "calibrate");
    qp_json_put_str(w, vote->scheme ? vote->calibrator->name : NULL);
    qp_json_key(w, "reason");
    qp_json_put_str(w, vote->reason);
    qp_json_close(w, '}');
}

static void put_json(struct explainer *e, const struct qp_plan_tensor *t)
{
    struct qp_writer *w = &e->w;
    struct vote lost;
    qp_json_open(w, '{');
    qp_plan_put_members(w, t);
    put_line_number(w, winning_line(e, t));
    qp_json_key(w, "unfit");
    if (t->unfit)
        qp_json_put_string(w, t->unfit->name, t->unfit->name_len);
    else
        qp_json_put_null(w);
    qp_json_key(w, "lost");
    qp_json_open(w, '[');
    for (struct losers walk = {.next = 0}; next_lost(e, t, &walk, &lost);)
        put_vote(w, &lost);
    qp_json_close(w, ']');
    qp_json_key(w, "source_bytes");
    qp_json_put_u64(w, qp_tensor_bytes(t->source));
    qp_json_key(w, "bytes");
    qp_json_put_u64(w, qp_tensor_bytes(&t->result));
    qp_json_close(w, '}');
}

/* ---- All tensors -------------------------------------------------------------------------------
 */

static bool is_asked_for(const struct qplan_explain_options *options, const struct qp_tensor *t)
{
    bool found = options->n_patterns == 0;
    for (size_t i = 0; i < options->n_patterns && !found; i++)
        found = qp_glob_match(options->patterns[i], t->name, t->name_len);
    return found;
}

static enum qplan_status check_pattern(const struct qplan_plan *plan, const char *pattern,
                                       struct qplan_error *err)
{
    char quoted[QP_QUOTED];
    QP_TRY(qp_glob_check(pattern, err));
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct qp_tensor *t = plan->tensors[i].source;
        if (qp_glob_match(pattern, t->name, t->name_len))
            return QPLAN_OK;
    }
    return qp_fail(err, QPLAN_ERR_INVALID, plan->checkpoint->source.listing.shown,
                   "pattern %s matches no tensor", qp_quote(quoted, pattern, strlen(pattern)));
}

static void put_tensors(struct explainer *e, const struct qplan_explain_options *options)
{
    for (size_t i = 0; i < e->plan->n_tensors; i++) {
        if (is_asked_for(options, e->plan->tensors[i].source))
            e->put(e, &e->plan->tensors[i]);
    }
}

static void put_document(struct explainer *e, const struct qplan_explain_options *options)
{
    qp_json_open(&e->w, '{');
    qp_json_key(&e->w, "schema");
    qp_json_put_str(&e->w, EXPLAIN_SCHEMA);
    qp_json_key(&e->w, "format");
    qp_json_put_str(&e->w, e->plan->format->name);
    qp_json_key(&e->w, "tensors");
    qp_json_open(&e->w, '[');
    put_tensors(e, options);
    qp_json_close(&e->w, ']');
    qp_json_close(&e->w, '}');
    qp_puts(&e->w, "\n");
}

enum qplan_status qplan_plan_explain(const struct qplan_plan *plan,
                                     const struct qplan_explain_options *options,
                                     qplan_write_fn write, void *ctx, struct qplan_error *err)
{
    struct explainer e = {.plan = plan, .put = options->json ? put_json : put_text};
    struct qp_arena arena = {NULL};
    struct qp_chooser chooser;
    enum qplan_status status = QPLAN_OK;
    for (size_t i = 0; i < options->n_patterns; i++)
        QP_TRY(check_pattern(plan, options->patterns[i], err));
    if (options->asked) {
        status = qp_chooser_make(&chooser, options->asked, plan->format,
                                 &plan->checkpoint->source.listing, &arena, err);
        e.chooser = &chooser;
    }
    if (status == QPLAN_OK) {
        qp_writer_stream(&e.w, write, ctx);
        if (options->json)
            put_document(&e, options);
        else
            put_tensors(&e, options);
        status = qp_writer_finish(&e.w, "explanation", err);
        qp_writer_free(&e.w);
    }
    qp_arena_free(&arena);
    return status;
}
