/*
 * bnb_config.c - what config.json says of a checkpoint in the layout of bitsandbytes: how linear
 * layers are stored, and the modules that are left as they are.
 */
#include "bnb.h"

#include "formats/modules.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"

#include <errno.h>

/* What is known of modules: components of quantized ones, and how those that are left are named. */
struct left {
    struct qp_spans quantized;
    struct qp_spans components; /* that only modules that are left have */
    struct qp_spans names;
};

/*
 * transformers leaves a module if a text of the list is the end of its name or, as a regular
 * expression, its begin up to a dot. So modules are left by a component that is their own, or else
 * by what all their names end with; and by the whole name, which versions before 5 go by.
 */
static void find_left(struct left *left, const struct qp_outline *o)
{
    for (size_t i = 0; i < o->n; i++) {
        if (o->tensors[i]->scheme)
            qp_add_components(&left->quantized, qp_module_of(o->tensors[i]));
    }
    qp_sort_spans(&left->quantized);
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_span module = qp_module_of(o->tensors[i]);
        const struct qp_span own = qp_own_component(&left->quantized, module);
        if (o->tensors[i]->scheme || module.n == 0)
            continue;
        if (own.n > 0) {
            qp_add_span(&left->components, own);
        } else {
            qp_add_span(&left->names, module);
            qp_add_span(&left->names, qp_common_end(module));
        }
    }
    qp_sort_spans(&left->components);
    qp_sort_spans(&left->names);
}

static void put_left(struct qp_writer *w, const struct qp_outline *o)
{
    struct left left = {.quantized = {.list = NULL}};
    struct qp_writer pattern;
    qp_writer_init(&pattern);
    find_left(&left, o);
    qp_json_open(w, '[');
    qp_json_put_str(w, "lm_head"); /* engines make these two even where a file has none */
    qp_json_put_str(w, "cls.predictions.decoder");
    for (size_t i = 0; i < left.components.n; i++) {
        qp_puts(&pattern, "(.*[.])?");
        qp_put_escaped(&pattern, left.components.list[i]);
        qp_put_module_pattern(w, &pattern);
    }
    for (size_t i = 0; i < left.names.n; i++)
        qp_json_put_string(w, left.names.list[i].text, left.names.list[i].n);
    qp_json_close(w, ']');
    if (left.quantized.failed || left.components.failed || left.names.failed)
        w->error = ENOMEM;
    qp_writer_free(&pattern);
    qp_free(left.quantized.list);
    qp_free(left.components.list);
    qp_free(left.names.list);
}

/* The first tensor that is quantized: there is one. */
static const struct qp_tensor *first_of(const struct qp_outline *o)
{
    size_t i = 0;
    while (!o->tensors[i]->scheme)
        i++;
    return o->tensors[i];
}

static void put_text(struct qp_writer *w, const char *key, const char *text)
{
    qp_json_key(w, key);
    qp_json_put_str(w, text);
}

static void put_bool(struct qp_writer *w, const char *key, bool value)
{
    qp_json_key(w, key);
    qp_json_put_bool(w, value);
}

/* What is said of codes of 4 bits: engines work in the type that the weights had. */
static void put_4bit(struct qp_writer *w, const struct qp_tensor *t)
{
    put_text(w, "bnb_4bit_quant_type", qplan_dtype_name(t->scheme->dtype));
    put_bool(w, "bnb_4bit_use_double_quant", t->scheme->nested);
    put_text(w, "bnb_4bit_compute_dtype", qp_bnb_dtype((enum qplan_storage)t->storage));
    put_text(w, "bnb_4bit_quant_storage", "uint8");
}

void qp_bnb_config(struct qp_writer *w, const struct qp_outline *o)
{
    const struct qp_tensor *first = first_of(o);
    const bool is_4bit = qp_bnb_is_4bit(first->scheme);
    qp_json_open(w, '{');
    put_text(w, "quant_method", "bitsandbytes");
    put_bool(w, "load_in_8bit", !is_4bit);
    put_bool(w, "load_in_4bit", is_4bit);
    if (is_4bit)
        put_4bit(w, first);
    qp_json_key(w, "llm_int8_skip_modules");
    put_left(w, o);
    qp_json_key(w, "llm_int8_threshold");
    qp_json_put_raw(w, "6.0", 3);
    put_bool(w, "llm_int8_enable_fp32_cpu_offload", false);
    put_bool(w, "llm_int8_has_fp16_weight", false);
    qp_json_close(w, '}');
}
