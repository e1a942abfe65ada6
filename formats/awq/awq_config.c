/*
 * awq_config.c - what config.json says of a checkpoint in the layout of AWQ: the numbers of all
 * tensors, and the modules that are left as they are.
 */
#include "awq.h"

#include "formats/modules.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"

#include <errno.h>

/* ---- Modules that are left ---------------------------------------------------------------------
 */

/* Whether one text is somewhere in another. */
static bool is_inside(struct qp_span part, struct qp_span whole)
{
    for (size_t at = 0; at + part.n <= whole.n; at++) {
        if (memcmp(whole.text + at, part.text, part.n) == 0)
            return true;
    }
    return false;
}

static bool is_inside_any(struct qp_span part, const struct qp_spans *spans)
{
    for (size_t i = 0; i < spans->n; i++) {
        if (is_inside(part, spans->list[i]))
            return true;
    }
    return false;
}

/* Whether a text of a sorted list begins with another. */
static bool begins_any(struct qp_span part, const struct qp_spans *spans)
{
    size_t low = 0, high = spans->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct qp_span *s = &spans->list[middle];
        if (qp_compare_text(s->text, s->n, part.text, part.n) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < spans->n && spans->list[low].n >= part.n &&
           memcmp(spans->list[low].text, part.text, part.n) == 0;
}

/* What is known of modules: components and ends of quantized ones, and names of those left. */
struct left {
    struct qp_spans components, ends;
    struct qp_spans names, patterns;
};

/*
 * Some engines leave a module if a name of the list is anywhere in its own, others if a name is at
 * the end of its own, or a pattern matches the beginning of it up to a dot. A name that is in a
 * quantized module's name, too, is written as a pattern, which the former find nowhere: they take
 * such modules from what is stored. A component inside of names is written both ways.
 */
static void add_left(struct left *left, struct qp_span module)
{
    const struct qp_span own = qp_own_component(&left->components, module);
    const struct qp_span end = qp_common_end(module);
    if (own.n > 0 && !is_inside_any(own, &left->components)) {
        qp_add_span(&left->names, own);
        if (own.text + own.n != module.text + module.n)
            qp_add_span(&left->patterns, own);
    } else {
        qp_add_span(begins_any(end, &left->ends) ? &left->patterns : &left->names, end);
    }
}

static void find_left(struct left *left, const struct qp_outline *o)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_span module = qp_module_of(o->tensors[i]);
        if (o->tensors[i]->scheme) {
            qp_add_components(&left->components, module);
            qp_add_span(&left->ends, qp_common_end(module));
        }
    }
    qp_sort_spans(&left->components);
    qp_sort_spans(&left->ends);
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_span module = qp_module_of(o->tensors[i]);
        if (!o->tensors[i]->scheme && module.n > 0)
            add_left(left, module);
    }
    qp_sort_spans(&left->names);
    qp_sort_spans(&left->patterns);
}

static void put_left(struct qp_writer *w, const struct qp_outline *o)
{
    struct left left = {.names = {.list = NULL}};
    struct qp_writer pattern;
    qp_writer_init(&pattern);
    find_left(&left, o);
    if (left.names.n + left.patterns.n == 0)
        qp_json_put_null(w);
    else
        qp_json_open(w, '[');
    for (size_t i = 0; i < left.names.n; i++)
        qp_json_put_string(w, left.names.list[i].text, left.names.list[i].n);
    for (size_t i = 0; i < left.patterns.n; i++) {
        qp_puts(&pattern, "(.*[.])?");
        qp_put_escaped(&pattern, left.patterns.list[i]);
        qp_put_module_pattern(w, &pattern);
    }
    if (left.names.n + left.patterns.n > 0)
        qp_json_close(w, ']');
    if (left.components.failed || left.ends.failed || left.names.failed || left.patterns.failed)
        w->error = ENOMEM;
    qp_writer_free(&pattern);
    qp_free(left.components.list);
    qp_free(left.ends.list);
    qp_free(left.names.list);
    qp_free(left.patterns.list);
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

void qp_awq_config(struct qp_writer *w, const struct qp_outline *o)
{
    uint64_t group = 0;
    for (size_t i = 0; group == 0 && i < o->n; i++)
        group = o->tensors[i]->scheme ? o->tensors[i]->scheme->group : 0;
    qp_json_open(w, '{');
    qp_json_key(w, "quant_method");
    qp_json_put_str(w, "awq");
    qp_json_key(w, "bits");
    qp_json_put_u64(w, 4);
    qp_json_key(w, "group_size");
    qp_json_put_u64(w, group);
    qp_json_key(w, "zero_point");
    qp_json_put_bool(w, true);
    qp_json_key(w, "version");
    qp_json_put_str(w, "gemm");
    qp_json_key(w, "modules_to_not_convert");
    put_left(w, o);
    qp_json_close(w, '}');
}
