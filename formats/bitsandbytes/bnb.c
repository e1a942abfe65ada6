/*
 * bnb.c - the row of the layout of bitsandbytes, and its weights of 8 bits. Such a weight M.weight
 * is its codes under that name, M.SCB, the value of the code 127 in each row, and M.weight_format,
 * the number of an order of codes: 0 is that of rows. No code is -128. A checkpoint has codes of 8
 * bits or of 4 (bnb_4bit.c).
 */
#include "bnb.h"

#include "formats/build.h"
#include "formats/modules.h"
#include "lib/base/alloc.h"

#include <string.h>

static const char weight[] = ".weight", scales[] = ".SCB", order[] = ".weight_format";

/* Old versions of the library store no order of codes, and mean that of rows. */
enum { USUAL, NO_ORDER };

/* ---- What is stored ----------------------------------------------------------------------------
 */

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    const bool is_row = scheme->granularity == QPLAN_PER_CHANNEL && scheme->axis == 0;
    const bool is_block = scheme->granularity == QPLAN_PER_GROUP && qp_bnb_has_group(scheme->group);
    const bool is_8bit = scheme->dtype == QPLAN_INT8 && !scheme->asymmetric && is_row;
    (void)storage;
    (void)options;
    if (scheme->scale_dtype != QPLAN_F32 || scheme->dtype == QPLAN_FP4 ||
        !(qp_bnb_is_4bit(scheme) ? is_block : is_8bit))
        return "nf4 with groups of a power of two from 32 to 4096, or int8:c0, with f32 scales";
    scheme->narrow = is_8bit;
    return NULL;
}

static const char *misfit(const struct qp_tensor *t)
{
    const char *reason = qp_plain_by_name(t, true);
    return !reason && qp_bnb_is_4bit(t->scheme) && !qp_bnb_dtype((enum qplan_storage)t->storage)
               ? "not F32, F16 or BF16"
               : reason;
}

static unsigned variant(const struct qp_tensor *t, const struct qp_format_options *options)
{
    (void)t;
    (void)options;
    return USUAL;
}

/*
 * transformers has the experts of a layer in one module, which it does not load quantized. The
 * other layer of latent attention gets an input of four axes, of which the library takes three.
 */
static const struct qp_keep keeps[] = {QP_KEEP(".experts."), QP_KEEP(".kv_b_proj."), {NULL, NULL}};

/* ---- Parts -------------------------------------------------------------------------------------
 */

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    if (qp_bnb_is_4bit(t->scheme))
        return qp_bnb_4bit_parts(t, arena, parts, entries);
    static const struct qp_place codes = {.bits = 8, .word_bytes = 1, .is_signed = true};
    static const char of_rows = 0;
    const uint64_t rows = t->shape[0], cols = t->shape[1];
    const bool is_named = qp_name_ends(t->name, t->name_len, weight); /* else nothing is found */
    const size_t n = t->name_len - (is_named ? sizeof weight - 1 : 0);
    const unsigned n_parts = t->variant == USUAL ? 3 : 2;
    const struct qp_entry_wish wishes[] = {
        {t->name, t->name_len, "", QPLAN_STORAGE_I8, 2, {rows, cols}},
        {t->name, n, scales, QPLAN_STORAGE_F32, 1, {rows}},
        {t->name, n, order, QPLAN_STORAGE_U8, 0, {0}},
    };
    const struct qp_part all[] = {
        {.role = QP_CODES, .place = &codes, .matrix = {rows, cols}},
        {.role = QP_SCALE,
         .place = qp_scale_place(QPLAN_F32),
         .matrix = {rows, 1},
         .of_largest = true},
        {.role = QP_CONSTANT, .bytes = &of_rows},
    };
    for (unsigned i = 0; i < n_parts; i++) {
        if (!qp_build_entry(&entries[i], &wishes[i], arena))
            return 0;
        parts[i] = all[i];
        parts[i].entry = &entries[i];
    }
    return n_parts;
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

/* Whether config.json says this of the checkpoint. */
static bool is_said(const struct qp_listing *listing, const char *key)
{
    return qp_tree_is_true(qp_tree_member(listing->config, qp_quantization_config(listing), key));
}

static bool is(const struct qp_listing *listing)
{
    return qp_is_quant_method(listing, "bitsandbytes") &&
           (is_said(listing, "load_in_8bit") || is_said(listing, "load_in_4bit"));
}

#define NOT_THERE " are not in the checkpoint"

static enum qplan_status refuse(const struct qp_listing *listing, const struct qplan_entry *entry,
                                const char *what, struct qplan_error *err)
{
    char subject[512];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, entry), "%s", what);
}

/* An order without scales is that of nothing. */
static enum qplan_status check_order(const struct qp_listing *listing,
                                     const struct qplan_entry *entry, struct qplan_error *err)
{
    const size_t n_module = entry->name_len - (sizeof order - 1);
    if (qp_listing_sibling(listing, entry->name, n_module, scales))
        return QPLAN_OK;
    return refuse(listing, entry,
                  qp_listing_sibling(listing, entry->name, n_module, weight)
                      ? "part of a quantized tensor, but its scales" NOT_THERE
                      : "part of a quantized tensor, but its codes" NOT_THERE,
                  err);
}

static enum qplan_status describe_module(const struct qp_listing *listing,
                                         const struct qplan_entry *entry,
                                         struct qp_tensor **tensors, size_t *n,
                                         struct qplan_error *err)
{
    static const struct qplan_scheme scheme = {.dtype = QPLAN_INT8,
                                               .granularity = QPLAN_PER_CHANNEL,
                                               .narrow = true,
                                               .scale_dtype = QPLAN_F32};
    const size_t n_module = entry->name_len - (sizeof scales - 1);
    const struct qplan_entry *codes = qp_listing_sibling(listing, entry->name, n_module, weight);
    if (!codes)
        return refuse(listing, entry, "part of a quantized tensor, but its codes" NOT_THERE, err);
    if (codes->rank != 2 || qp_entry_elements(codes) == 0)
        return refuse(listing, codes, "expected codes with two axes", err);
    const bool has_order = qp_listing_sibling(listing, entry->name, n_module, order) != NULL;
    const struct qp_tensor t = {.name = codes->name,
                                .name_len = codes->name_len,
                                .shape = codes->shape,
                                .rank = 2,
                                .storage = QPLAN_STORAGE_F32,
                                .variant = has_order ? USUAL : NO_ORDER,
                                .scheme = &scheme};
    return qp_add_tensor(tensors, n, &t) ? QPLAN_OK : qp_fail_memory(err, listing->shown, sizeof t);
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    if (is_said(listing, "load_in_4bit") && is_said(listing, "load_in_8bit"))
        return qp_fail(err, QPLAN_ERR_INVALID, listing->config->name,
                       "quantization_config: expected load_in_4bit or load_in_8bit, found both");
    if (is_said(listing, "load_in_4bit"))
        return qp_bnb_4bit_describe(listing, arena, tensors, n, err);
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        if (qp_name_ends(entry->name, entry->name_len, scales))
            QP_TRY(describe_module(listing, entry, tensors, n, err));
        else if (qp_name_ends(entry->name, entry->name_len, order))
            QP_TRY(check_order(listing, entry, err));
    }
    return QPLAN_OK;
}

const struct qp_format qp_format_bitsandbytes = {
    .name = "bitsandbytes",
    .loaded_by = "transformers, PEFT",
    .schemes = "nf4; nf4:double; int8:c0",
    .reads = "fp4",
    .scheme = "nf4",
    .is_folder = true,
    .select = "linear",
    .keeps = keeps,
    .recipe = "reference:bitsandbytes",
    .rank = 2,
    .rounds = true,
    .is_flat = true,
    .n_variants = 1,
    .has_one_scheme = true,
    .has_nested = true,
    .recall = qp_bnb_4bit_recall,
    .has_dtype = qp_bnb_is_4bit,
    .is = is,
    .describe = describe,
    .fit = fit,
    .misfit = misfit,
    .variant = variant,
    .parts = make_parts,
    .config = qp_bnb_config,
    .config_keys = qp_quantization_keys,
};
