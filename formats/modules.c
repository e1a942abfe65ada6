/*
 * modules.c - names of modules, taken apart and put together.
 */
#include "modules.h"

#include "build.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void qp_add_span(struct qp_spans *spans, struct qp_span span)
{
    if (spans->n == spans->cap && !spans->failed) {
        const size_t cap = spans->cap ? 2 * spans->cap : 64;
        struct qp_span *grown = qp_realloc(spans->list, cap, sizeof *grown);
        spans->failed = !grown;
        spans->list = grown ? grown : spans->list;
        spans->cap = grown ? cap : spans->cap;
    }
    if (!spans->failed)
        spans->list[spans->n++] = span;
}

static int by_text(const void *a, const void *b)
{
    const struct qp_span *x = a, *y = b;
    return qp_compare_text(x->text, x->n, y->text, y->n);
}

void qp_sort_spans(struct qp_spans *spans)
{
    size_t n = 0;
    if (spans->n > 0)
        qsort(spans->list, spans->n, sizeof *spans->list, by_text);
    for (size_t i = 0; i < spans->n; i++) {
        if (n == 0 || by_text(&spans->list[n - 1], &spans->list[i]) != 0)
            spans->list[n++] = spans->list[i];
    }
    spans->n = n;
}

bool qp_has_span(const struct qp_spans *spans, struct qp_span span)
{
    return spans->n > 0 && bsearch(&span, spans->list, spans->n, sizeof span, by_text) != NULL;
}

/* ---- Names of modules --------------------------------------------------------------------------
 */

/* The module of experts that are in one tensor without a name of its own, as M.experts.down_proj:
 * M.experts. Engines look for that name. */
static struct qp_span experts_of(const struct qp_tensor *t)
{
    static const char experts[] = ".experts.";
    const char *found = t->rank == 3 ? strstr(t->name, experts) : NULL;
    return found ? (struct qp_span){t->name, (size_t)(found - t->name) + sizeof experts - 2}
                 : (struct qp_span){NULL, 0};
}

struct qp_span qp_module_of(const struct qp_tensor *t)
{
    static const char suffix[] = ".weight";
    return t->rank >= 2 && qp_name_ends(t->name, t->name_len, suffix)
               ? (struct qp_span){t->name, t->name_len - (sizeof suffix - 1)}
               : experts_of(t);
}

bool qp_next_component(struct qp_span *rest, struct qp_span *component)
{
    if (!rest->text)
        return false;
    const char *dot = memchr(rest->text, '.', rest->n);
    *component = (struct qp_span){rest->text, dot ? (size_t)(dot - rest->text) : rest->n};
    *rest = dot ? (struct qp_span){dot + 1, rest->n - component->n - 1} : (struct qp_span){NULL, 0};
    return true;
}

static bool is_number(struct qp_span span)
{
    for (size_t i = 0; i < span.n; i++) {
        if (span.text[i] < '0' || span.text[i] > '9')
            return false;
    }
    return span.n > 0;
}

void qp_put_escaped(struct qp_writer *w, struct qp_span span)
{
    static const char special[] = "\\^$*+?()[]{}|";
    for (size_t i = 0; i < span.n; i++) {
        if (span.text[i] == '.')
            qp_puts(w, "[.]");
        else if (memchr(special, span.text[i], sizeof special - 1))
            qp_printf(w, "\\%c", span.text[i]);
        else
            qp_put(w, &span.text[i], 1);
    }
}

void qp_put_module_pattern(struct qp_writer *w, struct qp_writer *pattern)
{
    qp_json_put_string(w, pattern->data, pattern->n);
    w->error = w->error ? w->error : pattern->error;
    pattern->n = 0;
}

void qp_add_components(struct qp_spans *spans, struct qp_span module)
{
    struct qp_span component;
    while (qp_next_component(&module, &component)) {
        if (!is_number(component))
            qp_add_span(spans, component);
    }
}

struct qp_span qp_own_component(const struct qp_spans *quantized, struct qp_span module)
{
    struct qp_span component;
    while (qp_next_component(&module, &component)) {
        if (component.n > 0 && !is_number(component) && !qp_has_span(quantized, component))
            return component;
    }
    return (struct qp_span){NULL, 0};
}

struct qp_span qp_common_end(struct qp_span module)
{
    struct qp_span rest = module, before = module, component;
    while (qp_next_component(&rest, &component)) {
        if (is_number(component))
            return (struct qp_span){before.text, module.n - (size_t)(before.text - module.text)};
        before = component;
    }
    return module;
}

struct qp_span qp_name_in_block(struct qp_span module)
{
    struct qp_span rest = module, component;
    while (qp_next_component(&rest, &component)) {
        if (is_number(component))
            return rest;
    }
    return (struct qp_span){NULL, 0};
}

/* The last component of the name of a tensor's module. */
static struct qp_span last_component(const struct qp_tensor *t)
{
    struct qp_span rest = qp_module_of(t), last = {"", 0};
    while (qp_next_component(&rest, &last)) {
    }
    return last;
}

bool qp_is_embedding(const struct qp_tensor *t)
{
    static const char word[] = "embed";
    const struct qp_span last = last_component(t);
    for (size_t at = 0; at + sizeof word - 1 <= last.n; at++) {
        if (memcmp(last.text + at, word, sizeof word - 1) == 0)
            return true;
    }
    return qp_compare_text(last.text, last.n, "wte", 3) == 0 ||
           qp_compare_text(last.text, last.n, "wpe", 3) == 0;
}

const char *qp_plain_by_name(const struct qp_tensor *t, bool with_head)
{
    static const char *const heads[] = {"lm_head.weight", "cls.predictions.decoder.weight"};
    if (!qp_name_ends(t->name, t->name_len, ".weight"))
        return "not named .weight";
    if (qp_is_embedding(t))
        return "an embedding: engines load it plain";
    for (size_t i = 0; with_head && i < sizeof heads / sizeof heads[0]; i++) {
        if (qp_name_ends(t->name, t->name_len, heads[i]))
            return "a head: config.json lists it as plain";
    }
    return NULL;
}

void qp_put_left_modules(struct qp_writer *w, const struct qp_outline *o)
{
    struct qp_spans names = {.list = NULL};
    qp_add_span(&names, (struct qp_span){"lm_head", 7});
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_span module = qp_module_of(o->tensors[i]);
        if (!o->tensors[i]->scheme && module.n > 0)
            qp_add_span(&names, module);
    }
    qp_sort_spans(&names);
    qp_json_open(w, '[');
    for (size_t i = 0; i < names.n; i++)
        qp_json_put_string(w, names.list[i].text, names.list[i].n);
    qp_json_close(w, ']');
    if (names.failed)
        w->error = ENOMEM;
    qp_free(names.list);
}
