/*
 * ct_config.c - what config.json says of a checkpoint in this layout: groups of modules with the
 * numbers of their weights, and the modules that are left as they are;
 * formats/modules.h says how modules are named.
 */
#include "ct.h"

#include "formats/modules.h"
#include "lib/base/alloc.h"
#include "lib/base/json.h"
#include "lib/model/dtype.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- Modules that are left ---------------------------------------------------------------------
 */

static void put_ignored(struct qp_writer *w, const struct qp_outline *o)
{
    struct qp_spans quantized = {.list = NULL}, parts = {.list = NULL}, names = {.list = NULL};
    struct qp_writer pattern;
    qp_writer_init(&pattern);
    for (size_t i = 0; i < o->n; i++) {
        if (o->tensors[i]->scheme)
            qp_add_components(&quantized, qp_module_of(o->tensors[i]));
    }
    qp_sort_spans(&quantized);
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_span module = qp_module_of(o->tensors[i]);
        const struct qp_span own = qp_own_component(&quantized, module);
        if (!o->tensors[i]->scheme && module.n > 0)
            qp_add_span(own.n ? &parts : &names, own.n ? own : qp_common_end(module));
    }
    qp_sort_spans(&parts);
    qp_sort_spans(&names);
    qp_json_open(w, '[');
    qp_json_put_str(w, "lm_head"); /* engines make one even where a file has none */
    for (size_t i = 0; i < parts.n; i++) {
        qp_puts(&pattern, "re:(.*[.])?");
        qp_put_escaped(&pattern, parts.list[i]);
        qp_puts(&pattern, "([.].*)?$");
        qp_put_module_pattern(w, &pattern);
    }
    for (size_t i = 0; i < names.n; i++) {
        qp_puts(&pattern, "re:(.*[.])?");
        qp_put_escaped(&pattern, names.list[i]);
        qp_puts(&pattern, "$");
        qp_put_module_pattern(w, &pattern);
    }
    qp_json_close(w, ']');
    if (quantized.failed || parts.failed || names.failed)
        w->error = ENOMEM;
    qp_writer_free(&pattern);
    qp_free(quantized.list);
    qp_free(parts.list);
    qp_free(names.list);
}

/* ---- Blocks of floats --------------------------------------------------------------------------
 */

const struct qp_ct_names qp_ct_names[QP_BLOCKS] = {
    [QP_NVFP4] = {"nvfp4-pack-quantized", "tensor_group", "torch.float8_e4m3fn"},
    [QP_MXFP4] = {"mxfp4-pack-quantized", "group", "torch.uint8"},
    [QP_MXFP8] = {"mxfp8-quantized", "group", "torch.uint8"},
};

static const struct qp_ct_names *names_of(const struct qplan_scheme *scheme)
{
    const struct qp_blocks_row *block = qp_blocks_of(scheme);
    return block ? &qp_ct_names[block - qp_blocks] : NULL;
}

/* ---- Groups ------------------------------------------------------------------------------------
 */

/*
 * Whether engines treat tensors of two schemes alike: of scales in the type of the weights they
 * take that as it comes.
 */
static bool is_same_group(const struct qplan_scheme *a, const struct qplan_scheme *b)
{
    struct qplan_scheme other = *b;
    if (!names_of(a))
        other.scale_dtype = a->scale_dtype;
    return qp_scheme_equal(a, &other);
}

/* The schemes that make groups, in the order of their first tensors. */
struct groups {
    const struct qplan_scheme **list;
    size_t n;
};

static bool find_groups(struct groups *groups, const struct qp_outline *o)
{
    for (size_t i = 0; i < o->n; i++) {
        const struct qplan_scheme *scheme = o->tensors[i]->scheme;
        size_t k = 0;
        while (scheme && k < groups->n && !is_same_group(groups->list[k], scheme))
            k++;
        if (!scheme || k < groups->n)
            continue;
        const struct qplan_scheme **grown =
            qp_realloc(groups->list, groups->n + 1, sizeof(struct qplan_scheme *));
        if (!grown)
            return false;
        groups->list = grown;
        groups->list[groups->n++] = scheme;
    }
    return true;
}

static void put_targets(struct qp_writer *w, const struct qp_outline *o,
                        const struct qplan_scheme *scheme)
{
    struct qp_writer pattern;
    qp_writer_init(&pattern);
    qp_json_open(w, '[');
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_tensor *t = o->tensors[i];
        if (!t->scheme || !is_same_group(t->scheme, scheme))
            continue;
        qp_puts(&pattern, "re:(.*[.])?");
        qp_put_escaped(&pattern, qp_common_end(qp_module_of(t)));
        qp_puts(&pattern, "$");
        qp_put_module_pattern(w, &pattern);
    }
    qp_json_close(w, ']');
    qp_writer_free(&pattern);
}

static void put_numbers(struct qp_writer *w, const struct qplan_scheme *scheme)
{
    static const char *const strategies[] = {[QPLAN_PER_TENSOR] = "tensor",
                                             [QPLAN_PER_CHANNEL] = "channel",
                                             [QPLAN_PER_GROUP] = "group",
                                             [QPLAN_PER_BLOCK] = "block"};
    const struct qp_ct_names *names = names_of(scheme);
    qp_json_open(w, '{');
    qp_json_key(w, "num_bits");
    qp_json_put_u64(w, qplan_dtype_bits(scheme->dtype));
    qp_json_key(w, "type");
    qp_json_put_str(w, qp_integer_bits(scheme->dtype) ? "int" : "float");
    qp_json_key(w, "symmetric");
    qp_json_put_bool(w, !scheme->asymmetric);
    qp_json_key(w, "strategy");
    qp_json_put_str(w, names ? names->strategy : strategies[scheme->granularity]);
    qp_json_key(w, "group_size");
    if (scheme->granularity == QPLAN_PER_GROUP)
        qp_json_put_u64(w, scheme->group);
    else
        qp_json_put_null(w);
    if (scheme->granularity == QPLAN_PER_BLOCK) {
        qp_json_key(w, "block_structure");
        qp_json_open(w, '[');
        qp_json_put_u64(w, scheme->block_rows);
        qp_json_put_u64(w, scheme->block_cols);
        qp_json_close(w, ']');
    }
    qp_json_key(w, "dynamic");
    qp_json_put_bool(w, false);
    qp_json_key(w, "actorder");
    qp_json_put_null(w);
    qp_json_key(w, "observer");
    qp_json_put_str(w, "minmax");
    if (names) {
        qp_json_key(w, "scale_dtype");
        qp_json_put_str(w, names->scale);
        qp_json_key(w, "zp_dtype");
        qp_json_put_null(w);
    }
    qp_json_close(w, '}');
}

/* Activations are quantized while the model runs, token by token, or where weights are in blocks in
 * groups as wide as those.
 */
static void put_activations(struct qp_writer *w, const struct qplan_scheme *scheme)
{
    const bool is_block = scheme->granularity == QPLAN_PER_BLOCK;
    qp_json_open(w, '{');
    qp_json_key(w, "num_bits");
    qp_json_put_u64(w, 8);
    qp_json_key(w, "type");
    qp_json_put_str(w, scheme->dtype == QPLAN_F8E4M3 ? "float" : "int");
    qp_json_key(w, "symmetric");
    qp_json_put_bool(w, true);
    qp_json_key(w, "strategy");
    qp_json_put_str(w, is_block ? "group" : "token");
    qp_json_key(w, "group_size");
    if (is_block)
        qp_json_put_u64(w, scheme->block_cols);
    else
        qp_json_put_null(w);
    qp_json_key(w, "dynamic");
    qp_json_put_bool(w, true);
    qp_json_key(w, "observer");
    qp_json_put_null(w);
    qp_json_close(w, '}');
}

/* What the library calls the way in which a group is stored. */
static const char *format_of(const struct qplan_scheme *scheme, const struct qp_outline *o)
{
    if (names_of(scheme))
        return names_of(scheme)->format;
    if (!qp_ct_is_dynamic(scheme, o->options))
        return scheme->dtype == QPLAN_F8E4M3 ? "naive-quantized" : "pack-quantized";
    return scheme->dtype == QPLAN_F8E4M3 ? "float-quantized" : "int-quantized";
}

static const char *format_of_all(const struct groups *groups, const struct qp_outline *o)
{
    const char *format = groups->n ? format_of(groups->list[0], o) : "pack-quantized";
    for (size_t i = 1; i < groups->n; i++) {
        if (strcmp(format_of(groups->list[i], o), format) != 0)
            return "mixed-precision";
    }
    return format;
}

static void put_group(struct qp_writer *w, const struct qp_outline *o, size_t number,
                      const struct qplan_scheme *scheme, bool is_only)
{
    char name[32];
    (void)snprintf(name, sizeof name, "group_%zu", number);
    qp_json_key(w, name);
    qp_json_open(w, '{');
    qp_json_key(w, "targets");
    if (is_only)
        qp_json_put_raw(w, "[\"Linear\"]", 10);
    else
        put_targets(w, o, scheme);
    qp_json_key(w, "weights");
    put_numbers(w, scheme);
    qp_json_key(w, "format");
    qp_json_put_str(w, format_of(scheme, o));
    qp_json_key(w, "input_activations");
    if (qp_ct_is_dynamic(scheme, o->options))
        put_activations(w, scheme);
    else
        qp_json_put_null(w);
    qp_json_key(w, "output_activations");
    qp_json_put_null(w);
    qp_json_close(w, '}');
}

void qp_ct_config(struct qp_writer *w, const struct qp_outline *o)
{
    struct groups groups = {.list = NULL};
    if (!find_groups(&groups, o))
        w->error = ENOMEM;
    qp_json_open(w, '{');
    qp_json_key(w, "quant_method");
    qp_json_put_str(w, "compressed-tensors");
    qp_json_key(w, "format");
    qp_json_put_str(w, format_of_all(&groups, o));
    qp_json_key(w, "quantization_status");
    qp_json_put_str(w, "compressed");
    qp_json_key(w, "config_groups");
    qp_json_open(w, '{');
    for (size_t i = 0; i < groups.n; i++)
        put_group(w, o, i, groups.list[i], groups.n == 1);
    qp_json_close(w, '}');
    qp_free(groups.list);
    qp_json_key(w, "ignore");
    put_ignored(w, o);
    qp_json_key(w, "kv_cache_scheme");
    qp_json_put_null(w);
    qp_json_key(w, "global_compression_ratio");
    qp_json_put_null(w);
    qp_json_close(w, '}');
}
