/*
 * comfyui.c - the layout of quantized files that ComfyUI loads: one file, without a config.json.
 *
 * A weight L.weight is its codes under that name, L.weight_scale, and L.comfy_quant, bytes of JSON
 * that name the format of the layer: {"format":"float8_e4m3fn"}. A scale is for the tensor, with no
 * axis, or, of integers, for each row, [rows, 1].
 */
#include "formats/build.h"

#include "lib/base/alloc.h"
#include "lib/model/dtype.h"

#include <string.h>

#define MOST_MARK 4096 /* bytes of JSON that are read */

static const char weight[] = ".weight", mark[] = ".comfy_quant";

/* The formats of layers, by what their codes are. */
static const struct kind {
    enum qplan_dtype dtype;
    bool has_rows; /* scales may be for each row */
    const char *format;
    const char *mark;
} kinds[] = {
    {QPLAN_F8E4M3, false, "float8_e4m3fn", "{\"format\":\"float8_e4m3fn\"}"},
    {QPLAN_F8E5M2, false, "float8_e5m2", "{\"format\":\"float8_e5m2\"}"},
    {QPLAN_INT8, true, "int8_tensorwise", "{\"format\":\"int8_tensorwise\"}"},
};

#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* The format of layers with such codes, or NULL. */
static const struct kind *kind_of(enum qplan_dtype dtype)
{
    size_t i = 0;
    while (i < N_KINDS && kinds[i].dtype != dtype)
        i++;
    return i < N_KINDS ? &kinds[i] : NULL;
}

/* ---- What is stored ----------------------------------------------------------------------------
 */

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    const struct kind *kind = kind_of(scheme->dtype);
    const bool is_row = scheme->granularity == QPLAN_PER_CHANNEL && scheme->axis == 0;
    (void)storage;
    (void)options;
    return kind && (scheme->granularity == QPLAN_PER_TENSOR || (is_row && kind->has_rows)) &&
                   !scheme->asymmetric && !scheme->narrow && scheme->scale_dtype == QPLAN_F32
               ? NULL
               : "fp8:t, f8e5m2:t, int8:t or int8:c0, with f32 scales";
}

static const char *misfit(const struct qp_tensor *t)
{
    return qp_name_ends(t->name, t->name_len, weight) ? NULL : "not named .weight";
}

static unsigned variant(const struct qp_tensor *t, const struct qp_format_options *options)
{
    (void)t;
    (void)options;
    return 0;
}

/* Besides the usual names: what modulates the blocks of a diffusion model, and what is at its ends.
 */
static const struct qp_keep keeps[] = {QP_KEEP("modulation"),
                                       QP_KEEP(".img_mod."),
                                       QP_KEEP(".txt_mod."),
                                       QP_KEEP(".img_in."),
                                       QP_KEEP(".txt_in."),
                                       QP_KEEP(".time_in."),
                                       QP_KEEP("_embedder"),
                                       QP_KEEP(".vector_in."),
                                       QP_KEEP(".guidance_in."),
                                       QP_KEEP(".final_layer."),
                                       {NULL, NULL}};

/* ---- Parts -------------------------------------------------------------------------------------
 */

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    static const struct qp_place codes = {.bits = 8, .word_bytes = 1, .is_signed = true};
    const bool is_tensor = t->scheme->granularity == QPLAN_PER_TENSOR;
    const uint64_t rows = t->shape[0], cols = t->shape[1];
    const struct kind *kind = kind_of(t->scheme->dtype);
    const bool is_named = qp_name_ends(t->name, t->name_len, weight); /* else nothing is found */
    const size_t n_layer = t->name_len - (is_named ? sizeof weight - 1 : 0);
    const struct qp_entry_wish wishes[] = {
        {t->name, t->name_len, "", qp_dtype_storage(kind->dtype), 2, {rows, cols}},
        {t->name, t->name_len, "_scale", QPLAN_STORAGE_F32, is_tensor ? 0 : 2, {rows, 1}},
        {t->name, n_layer, mark, QPLAN_STORAGE_U8, 1, {strlen(kind->mark)}},
    };
    bool made = true;
    for (unsigned i = 0; i < 3 && made; i++)
        made = qp_build_entry(&entries[i], &wishes[i], arena);
    if (!made)
        return 0;
    parts[0] = (struct qp_part){
        .role = QP_CODES, .place = &codes, .matrix = {rows, cols}, .entry = &entries[0]};
    parts[1] = (struct qp_part){.role = QP_SCALE,
                                .place = qp_scale_place(QPLAN_F32),
                                .matrix = {is_tensor ? 1 : rows, 1},
                                .entry = &entries[1]};
    parts[2] = (struct qp_part){
        .role = QP_CONSTANT, .entry = &entries[2], .bytes = kind->mark, .is_text = true};
    return 3;
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

static bool is(const struct qp_listing *listing)
{
    for (size_t i = 0; i < listing->n_entries; i++) {
        if (qp_name_ends(listing->entries[i].name, listing->entries[i].name_len, mark))
            return true;
    }
    return false;
}

static enum qplan_status refuse(const struct qp_listing *listing, const struct qplan_entry *entry,
                                const char *what, struct qplan_error *err)
{
    char subject[512];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, entry), "%s", what);
}

/* The format that the mark of a layer names; besides it a mark may say how a layer is computed. */
static enum qplan_status read_mark(const struct qp_listing *listing,
                                   const struct qplan_entry *entry, const struct kind **out,
                                   struct qplan_error *err)
{
    char text[MOST_MARK], subject[512], shown[QP_QUOTED];
    struct qp_tree tree = {
        .name = qp_listing_subject(subject, listing, entry), .err = err, .any_numbers = true};
    const uint64_t n = entry->end - entry->begin;
    if (entry->storage != QPLAN_STORAGE_U8 || entry->rank != 1 || n > sizeof text)
        return refuse(listing, entry, "expected JSON in bytes of type U8", err);
    QP_TRY(listing->read(listing, entry, 0, text, (size_t)n, err));
    enum qplan_status status = qp_tree_read(&tree, text, (size_t)n);
    if (status == QPLAN_OK) {
        const struct qp_tree_value *format = qp_tree_member(&tree, tree.values, "format");
        const struct qp_tree_value *computed =
            qp_tree_member(&tree, tree.values, "full_precision_matrix_mult");
        size_t i = 0;
        while (i < N_KINDS && !qp_tree_is_string(&tree, format, kinds[i].format))
            i++;
        *out = i < N_KINDS ? &kinds[i] : NULL;
        if (!*out || tree.n_values != 2u + (computed != NULL))
            status =
                qp_fail(err, QPLAN_ERR_INVALID, subject,
                        "not a format that is supported: expected float8_e4m3fn, float8_e5m2 or "
                        "int8_tensorwise and nothing that changes values, found %s",
                        qp_quote(shown, text, (size_t)n));
    }
    qp_tree_free(&tree);
    return status;
}

/* The scheme of a layer by its scales: one for all, or one for each row. */
static const struct qplan_scheme *scheme_of(const struct kind *kind,
                                            const struct qplan_entry *scale)
{
    static const struct qplan_scheme of_tensors[] = {
        {.dtype = QPLAN_F8E4M3, .granularity = QPLAN_PER_TENSOR, .scale_dtype = QPLAN_F32},
        {.dtype = QPLAN_F8E5M2, .granularity = QPLAN_PER_TENSOR, .scale_dtype = QPLAN_F32},
        {.dtype = QPLAN_INT8, .granularity = QPLAN_PER_TENSOR, .scale_dtype = QPLAN_F32}};
    static const struct qplan_scheme of_rows = {
        .dtype = QPLAN_INT8, .granularity = QPLAN_PER_CHANNEL, .scale_dtype = QPLAN_F32};
    return kind->has_rows && scale->rank != 0 ? &of_rows : &of_tensors[kind - kinds];
}

static enum qplan_status describe_layer(const struct qp_listing *listing,
                                        const struct qplan_entry *entry, struct qp_tensor **tensors,
                                        size_t *n, struct qplan_error *err)
{
    const size_t n_layer = entry->name_len - (sizeof mark - 1);
    const struct qplan_entry *codes = qp_listing_sibling(listing, entry->name, n_layer, weight);
    const struct qplan_entry *scale =
        qp_listing_sibling(listing, entry->name, n_layer, ".weight_scale");
    const struct kind *kind;
    QP_TRY(read_mark(listing, entry, &kind, err));
    if (!codes || !scale || codes->rank != 2 || qp_entry_elements(codes) == 0)
        return refuse(listing, entry, "expected a weight of two axes and its scale beside it", err);
    const struct qp_tensor t = {.name = codes->name,
                                .name_len = codes->name_len,
                                .shape = codes->shape,
                                .rank = 2,
                                .storage = QPLAN_STORAGE_F32,
                                .scheme = scheme_of(kind, scale)};
    return qp_add_tensor(tensors, n, &t) ? QPLAN_OK : qp_fail_memory(err, listing->shown, sizeof t);
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    (void)arena; /* all that a tensor points to is in the listing */
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        if (qp_name_ends(entry->name, entry->name_len, mark))
            QP_TRY(describe_layer(listing, entry, tensors, n, err));
    }
    return QPLAN_OK;
}

const struct qp_format qp_format_comfyui = {
    .name = "comfyui",
    .loaded_by = "ComfyUI",
    .schemes = "fp8:t; f8e5m2:t; int8:t, c0",
    .scheme = "fp8:t",
    .is_file = true,
    .select = "linear",
    .keeps = keeps,
    .rank = 2,
    .n_variants = 1,
    .is = is,
    .describe = describe,
    .fit = fit,
    .misfit = misfit,
    .variant = variant,
    .parts = make_parts,
};
