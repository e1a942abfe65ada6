/*
 * gptq_config.c - what config.json says of a checkpoint in the layout of GPTQ: the numbers of all
 * tensors, of modules that have others, and, where blocks are quantized in part, which modules are.
 */
#include "gptq.h"

#include "formats/modules.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"

#include <errno.h>

/* ---- Modules with numbers of their own ---------------------------------------------------------
 */

static void put_numbers(struct qp_writer *w, const struct qplan_scheme *scheme)
{
    qp_json_key(w, "bits");
    qp_json_put_u64(w, qplan_dtype_bits(scheme->dtype));
    qp_json_key(w, "group_size");
    if (scheme->granularity == QPLAN_PER_GROUP)
        qp_json_put_u64(w, scheme->group);
    else
        qp_json_put_raw(w, "-1", 2);
}

static bool has_same_numbers(const struct qplan_scheme *a, const struct qplan_scheme *b)
{
    struct qplan_scheme other = *b;
    other.asymmetric = a->asymmetric;
    return qp_scheme_equal(a, &other);
}

/* Patterns, which match a module of any prefix, with the numbers that it has. */
static void put_others(struct qp_writer *w, const struct qp_outline *o,
                       const struct qplan_scheme *usual)
{
    struct qp_writer pattern;
    bool is_open = false;
    qp_writer_init(&pattern);
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_tensor *t = o->tensors[i];
        if (!t->scheme || has_same_numbers(t->scheme, usual))
            continue;
        if (!is_open) {
            qp_json_key(w, "dynamic");
            qp_json_open(w, '{');
            is_open = true;
        }
        qp_puts(&pattern, "+:(.*[.])?");
        qp_put_escaped(&pattern, qp_common_end(qp_module_of(t)));
        qp_puts(&pattern, "$");
        qp_json_key_n(w, pattern.data, pattern.n);
        pattern.n = 0;
        qp_json_open(w, '{');
        put_numbers(w, t->scheme);
        qp_json_close(w, '}');
    }
    if (is_open)
        qp_json_close(w, '}');
    w->error = w->error ? w->error : pattern.error;
    qp_writer_free(&pattern);
}

/* ---- Blocks that are quantized in part ---------------------------------------------------------
 */

/* All ends of a name that begin with a component. */
static void add_ends(struct qp_spans *ends, struct qp_span module)
{
    struct qp_span component;
    while (module.text) {
        qp_add_span(ends, module);
        (void)qp_next_component(&module, &component);
    }
}

/*
 * Engines quantize all linear layers of blocks unless a list names those that are, by how their
 * names end: in all blocks alike, or one by one where another block keeps a layer of that name.
 */
static void put_modules(struct qp_writer *w, const struct qp_outline *o)
{
    struct qp_spans kept = {.list = NULL}, names = {.list = NULL};
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_span module = qp_module_of(o->tensors[i]);
        if (!o->tensors[i]->scheme && qp_name_in_block(module).n > 0)
            add_ends(&kept, module);
    }
    qp_sort_spans(&kept);
    for (size_t i = 0; kept.n > 0 && i < o->n; i++) {
        const struct qp_span module = qp_module_of(o->tensors[i]), in = qp_name_in_block(module);
        if (o->tensors[i]->scheme)
            qp_add_span(&names, in.n > 0 && !qp_has_span(&kept, in) ? in : qp_common_end(module));
    }
    qp_sort_spans(&names);
    if (names.n > 0) {
        qp_json_key(w, "modules_in_block_to_quantize");
        qp_json_open(w, '[');
        qp_json_open(w, '[');
        for (size_t i = 0; i < names.n; i++)
            qp_json_put_string(w, names.list[i].text, names.list[i].n);
        qp_json_close(w, ']');
        qp_json_close(w, ']');
    }
    if (kept.failed || names.failed)
        w->error = ENOMEM;
    qp_free(kept.list);
    qp_free(names.list);
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

static bool is_head(const struct qp_tensor *t)
{
    struct qp_span rest = qp_module_of(t), component = {"", 0};
    while (qp_next_component(&rest, &component)) {
    }
    return t->scheme && qp_compare_text(component.text, component.n, "lm_head", 7) == 0;
}

void qp_gptq_config(struct qp_writer *w, const struct qp_outline *o, const char *stored)
{
    static const struct qplan_scheme none = {.granularity = QPLAN_PER_GROUP};
    const struct qplan_scheme *usual = &none; /* of the first tensor, for there is one */
    bool symmetric = true, has_head = false;
    for (size_t i = 0; i < o->n; i++) {
        const struct qplan_scheme *scheme = o->tensors[i]->scheme;
        usual = usual == &none && scheme ? scheme : usual;
        symmetric &= !scheme || !scheme->asymmetric;
        has_head |= is_head(o->tensors[i]);
    }
    qp_json_open(w, '{');
    qp_json_key(w, "quant_method");
    qp_json_put_str(w, "gptq");
    put_numbers(w, usual);
    qp_json_key(w, "desc_act");
    qp_json_put_bool(w, false);
    qp_json_key(w, "sym");
    qp_json_put_bool(w, symmetric);
    qp_json_key(w, "checkpoint_format");
    qp_json_put_str(w, stored);
    qp_json_key(w, "lm_head");
    qp_json_put_bool(w, has_head);
    put_others(w, o, usual);
    put_modules(w, o);
    qp_json_key(w, "true_sequential");
    qp_json_put_bool(w, true);
    qp_json_key(w, "damp_percent");
    qp_json_put_f64(w, 0.1);
    qp_json_key(w, "static_groups");
    qp_json_put_bool(w, false);
    qp_json_key(w, "meta");
    qp_json_put_raw(w, "{\"quantizer\":[\"qplan:" QPLAN_VERSION "\"]}",
                    sizeof "{\"quantizer\":[\"qplan:" QPLAN_VERSION "\"]}" - 1);
    qp_json_close(w, '}');
}
