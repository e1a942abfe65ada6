/*
 * fp8.c - the layout of fp8 checkpoints with a scale for each block of 128 by 128, as DeepSeek
 * published them and as transformers writes them.
 *
 * A weight M.weight is its codes under that name, and M.weight_scale_inv, which in spite of its
 * name is what codes are multiplied with.
 *
 * Other tools also store scales as BF16 or F16, and, where config.json says "scale_fmt": "ue8m0",
 * as exponents in bytes. Such are read, and not written. With that "scale_fmt" scales are meant to
 * be powers of two, but not all are in folders that engines load: any scale is read.
 */
#include "formats/build.h"
#include "formats/modules.h"
#include "formats/record.h"
#include "lib/base/json.h"

#define BLOCK 128

/* How scales are stored: the first as qplan writes them. */
static const struct scales {
    enum qplan_storage storage;
    struct qplan_scheme scheme;
} scales[] = {
#define SCALES(storage, type)                                                                      \
    {                                                                                              \
        storage,                                                                                   \
        {                                                                                          \
            .dtype = QPLAN_F8E4M3, .granularity = QPLAN_PER_BLOCK, .block_rows = BLOCK,            \
            .block_cols = BLOCK, .scale_dtype = (type)                                             \
        }                                                                                          \
    }
    SCALES(QPLAN_STORAGE_F32, QPLAN_F32),      SCALES(QPLAN_STORAGE_BF16, QPLAN_BF16),
    SCALES(QPLAN_STORAGE_F16, QPLAN_F16),      SCALES(QPLAN_STORAGE_U8, QPLAN_E8M0),
    SCALES(QPLAN_STORAGE_F8_E8M0, QPLAN_E8M0),
#undef SCALES
};

#define N_SCALES (sizeof scales / sizeof scales[0])

static const char scale_suffix[] = "_scale_inv";

/* ---- What is stored ----------------------------------------------------------------------------
 */

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    (void)storage;
    (void)options;
    return scheme->dtype == QPLAN_F8E4M3 && scheme->granularity == QPLAN_PER_BLOCK &&
                   scheme->block_rows == BLOCK && scheme->block_cols == BLOCK &&
                   scheme->scale_dtype == QPLAN_F32
               ? NULL
               : "fp8:b128x128, with f32 scales";
}

/* Engines that load several weights as one, or share one out, want whole blocks of each. */
static const char *misfit(const struct qp_tensor *t)
{
    const char *reason = qp_plain_by_name(t, true);
    const bool is_ragged = t->shape[0] % BLOCK != 0 || t->shape[1] % BLOCK != 0;
    return !reason && is_ragged ? "ragged blocks" : reason;
}

static unsigned variant(const struct qp_tensor *t, const struct qp_format_options *options)
{
    (void)t;
    (void)options;
    return 0;
}

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    static const struct qp_place codes = {.bits = 8, .word_bytes = 1};
    const uint64_t rows = t->shape[0], cols = t->shape[1];
    const struct qp_matrix sets = qp_row_sets(t->scheme, t->shape);
    const struct qp_entry_wish wishes[] = {
        {t->name, t->name_len, "", QPLAN_STORAGE_F8_E4M3, 2, {rows, cols}},
        {t->name, t->name_len, scale_suffix, scales[t->variant].storage, 2, {sets.rows, sets.cols}},
    };
    if (!qp_build_entry(&entries[0], &wishes[0], arena) ||
        !qp_build_entry(&entries[1], &wishes[1], arena))
        return 0;
    parts[0] = (struct qp_part){
        .role = QP_CODES, .place = &codes, .matrix = {rows, cols}, .entry = &entries[0]};
    parts[1] = (struct qp_part){.role = QP_SCALE,
                                .place = qp_scale_place(t->scheme->scale_dtype),
                                .matrix = sets,
                                .entry = &entries[1]};
    return 2;
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

static bool is(const struct qp_listing *listing)
{
    return qp_is_quant_method(listing, "fp8");
}

/* Whether scales may be exponents. Those that qplan writes, and records, are floats. */
static enum qplan_status read_scale_fmt(const struct qp_listing *listing, bool *exponents,
                                        struct qplan_error *err)
{
    const struct qp_tree *tree = listing->config;
    const struct qp_tree_value *fmt =
        qp_tree_member(tree, qp_quantization_config(listing), "scale_fmt");
    const bool recorded = qp_has_records(listing);
    char shown[QP_QUOTED];
    *exponents = fmt && qp_tree_is_string(tree, fmt, "ue8m0");
    if (!fmt || (*exponents && !recorded) || qp_tree_is_string(tree, fmt, "float"))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, tree->name, "scale_fmt: expected %s, found %s",
                   recorded ? "float, as the scales are that are recorded" : "float or ue8m0",
                   qp_tree_show(shown, tree, fmt));
}

/* How the scales of a weight are stored, which their type tells: as floats of 32 bits, if it is
 * none of those that they may have. */
static unsigned scales_of(const struct qp_listing *listing, const struct qplan_entry *codes,
                          bool exponents)
{
    const struct qplan_entry *entry =
        qp_listing_sibling(listing, codes->name, codes->name_len, scale_suffix);
    for (unsigned i = 0; entry && i < N_SCALES; i++) {
        if (entry->storage == scales[i].storage &&
            (exponents || scales[i].scheme.scale_dtype != QPLAN_E8M0))
            return i;
    }
    return 0;
}

static enum qplan_status check_config(const struct qp_listing *listing, struct qplan_error *err)
{
    const struct qp_tree *tree = listing->config;
    const struct qp_tree_value *config = qp_quantization_config(listing);
    const struct qp_tree_value *block = qp_tree_member(tree, config, "weight_block_size");
    const struct qp_tree_value *fmt = qp_tree_member(tree, config, "fmt");
    char shown[QP_QUOTED];
    if (!qp_tree_is_shape(block, (uint64_t[]){BLOCK, BLOCK}, 2))
        return qp_fail(err, QPLAN_ERR_INVALID, tree->name,
                       "weight_block_size: expected [128,128], found %s",
                       block ? qp_tree_show(shown, tree, block) : "none");
    if (fmt && !qp_tree_is_string(tree, fmt, "e4m3"))
        return qp_fail(err, QPLAN_ERR_INVALID, tree->name, "fmt: expected e4m3, found %s",
                       qp_tree_show(shown, tree, fmt));
    return QPLAN_OK;
}

static enum qplan_status refuse(const struct qp_listing *listing, const struct qplan_entry *entry,
                                const char *what, struct qplan_error *err)
{
    char subject[512];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, entry), "%s", what);
}

static bool are_codes(const struct qplan_entry *entry)
{
    return entry && entry->storage == QPLAN_STORAGE_F8_E4M3;
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    bool exponents;
    enum qplan_storage storage = QPLAN_STORAGE_F32;
    (void)arena; /* all that a tensor points to is in the listing */
    QP_TRY(check_config(listing, err));
    QP_TRY(read_scale_fmt(listing, &exponents, err));
    (void)qp_model_storage(listing, &storage);
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        const size_t n_codes = entry->name_len - (sizeof scale_suffix - 1);
        if (qp_name_ends(entry->name, entry->name_len, scale_suffix) &&
            !are_codes(qp_listing_find(listing, entry->name, n_codes)))
            return refuse(listing, entry,
                          "scales of quantized weights that are not there as F8_E4M3", err);
        if (!are_codes(entry))
            continue;
        if (entry->rank != 2 || qp_entry_elements(entry) == 0)
            return refuse(listing, entry, "expected codes with two axes", err);
        const unsigned kind = scales_of(listing, entry, exponents);
        const struct qp_tensor t = {.name = entry->name,
                                    .name_len = entry->name_len,
                                    .shape = entry->shape,
                                    .rank = 2,
                                    .storage = (uint8_t)storage,
                                    .variant = (uint8_t)kind,
                                    .scheme = &scales[kind].scheme};
        if (!qp_add_tensor(tensors, n, &t))
            return qp_fail_memory(err, listing->shown, sizeof t);
    }
    return QPLAN_OK;
}

/* ---- config.json -------------------------------------------------------------------------------
 */

static void put_config(struct qp_writer *w, const struct qp_outline *o)
{
    qp_json_open(w, '{');
    qp_json_key(w, "quant_method");
    qp_json_put_str(w, "fp8");
    qp_json_key(w, "fmt");
    qp_json_put_str(w, "e4m3");
    qp_json_key(w, "activation_scheme");
    qp_json_put_str(w, "dynamic");
    qp_json_key(w, "weight_block_size");
    qp_json_open(w, '[');
    qp_json_put_u64(w, BLOCK);
    qp_json_put_u64(w, BLOCK);
    qp_json_close(w, ']');
    qp_json_key(w, "modules_to_not_convert");
    qp_put_left_modules(w, o);
    qp_json_close(w, '}');
}

static const char *const inputs[] = {".activation_scale", ".input_scale", NULL};

const struct qp_format qp_format_fp8 = {
    .name = "fp8",
    .loaded_by = "vLLM, SGLang, transformers",
    .schemes = "fp8:b128x128",
    .reads = "scales of BF16 and F16, or powers of two",
    .scheme = "fp8:b128x128",
    .is_folder = true,
    .is_always_active = true,
    .select = "linear",
    .recipe = "reference:transformers",
    .rank = 2,
    .inputs = inputs,
    .n_variants = 1,
    .has_one_scheme = true,
    .is = is,
    .describe = describe,
    .fit = fit,
    .misfit = misfit,
    .variant = variant,
    .parts = make_parts,
    .config = put_config,
    .config_keys = qp_quantization_keys,
};
