/*
 * comfyui.c - the layout of quantized files that ComfyUI loads: one file, without a config.json.
 *
 * A weight L.weight is its codes under that name, L.weight_scale, and L.comfy_quant, bytes of JSON
 * that name the format of the layer: {"format": "float8_e4m3fn"}. A scale is for the tensor, with
 * no axis, or, of integers, for each row, [rows, 1].
 *
 * Of nvfp4 and mxfp8 scales are bytes for blocks of a row, swizzled in whole tiles as GPUs read
 * them; nvfp4 has two codes in a byte, the first in its high half, and L.weight_scale_2, the factor
 * of its scales.
 *
 * The marks of all layers may be in the metadata instead (comfyui_header.c), and older files of fp8
 * have no such marks (comfyui_old.c): both are only read.
 */
#include "comfyui.h"

#include "formats/blocks.h"
#include "formats/build.h"

#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <string.h>

#define TILE_ROWS 128 /* of swizzled scales */
#define TILE_COLS 4
#define MOST_MARK 4096 /* bytes of JSON that are read */

static const char weight[] = ".weight", mark[] = ".comfy_quant";

/* The formats of layers, by what their codes are and how many share a scale. */
static const struct kind {
    enum qplan_dtype dtype, scale;
    uint64_t group;               /* codes of a row that share a scale; 0 = those of a tensor */
    uint64_t multiple;            /* of rows and of columns: engines fill up others */
    bool has_rows;                /* scales may be for each row */
    enum qplan_storage scales[2]; /* types that they are stored in, the first as qplan does it */
    const char *format;
    const char *mark;
} kinds[] = {
#define NAMED(name) name, "{\"format\": \"" name "\"}"
#define F32_SCALES                                                                                 \
    {                                                                                              \
        QPLAN_STORAGE_F32, QPLAN_STORAGE_F32                                                       \
    }
    {QPLAN_F8E4M3, QPLAN_F32, 0, 1, false, F32_SCALES, NAMED("float8_e4m3fn")},
    {QPLAN_F8E5M2, QPLAN_F32, 0, 1, false, F32_SCALES, NAMED("float8_e5m2")},
    {QPLAN_INT8, QPLAN_F32, 0, 1, true, F32_SCALES, NAMED("int8_tensorwise")},
    {QPLAN_F8E4M3,
     QPLAN_E8M0,
     32,
     32,
     false,
     {QPLAN_STORAGE_U8, QPLAN_STORAGE_F8_E8M0},
     NAMED("mxfp8")},
    {QPLAN_F4E2M1,
     QPLAN_F8E4M3,
     16,
     16,
     false,
     {QPLAN_STORAGE_F8_E4M3, QPLAN_STORAGE_U8},
     NAMED("nvfp4")},
#undef F32_SCALES
#undef NAMED
};

#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* The format of layers with such a scheme, whatever its scales are, or NULL. */
static const struct kind *kind_of(const struct qplan_scheme *scheme)
{
    const uint64_t group = scheme->granularity == QPLAN_PER_GROUP ? scheme->group : 0;
    size_t i = 0;
    while (i < N_KINDS && (kinds[i].dtype != scheme->dtype || kinds[i].group != group))
        i++;
    return i < N_KINDS ? &kinds[i] : NULL;
}

/* ---- What is stored ----------------------------------------------------------------------------
 */

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    const struct kind *kind = kind_of(scheme);
    const bool is_row = scheme->granularity == QPLAN_PER_CHANNEL && scheme->axis == 0;
    (void)storage;
    (void)options;
    if (qp_blocks_of(scheme) && kind) {
        scheme->scale_dtype = kind->scale;
        return NULL;
    }
    return kind && (scheme->granularity == QPLAN_PER_TENSOR || (is_row && kind->has_rows)) &&
                   !scheme->asymmetric && !scheme->narrow && scheme->scale_dtype == QPLAN_F32
               ? NULL
               : "nvfp4, mxfp8; or fp8:t, f8e5m2:t, int8:t or int8:c0, with f32 scales";
}

static const char *misfit(const struct qp_tensor *t)
{
    const struct kind *kind = kind_of(t->scheme);
    const uint64_t multiple = kind ? kind->multiple : 1;
    if (!qp_name_ends(t->name, t->name_len, weight))
        return "not named .weight";
    return t->shape[0] % multiple != 0 || t->shape[1] % multiple != 0
               ? "row length or output channels not a multiple of the block"
               : NULL;
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

static uint64_t up_to(uint64_t n, uint64_t multiple)
{
    return qp_div_up(n, multiple) * multiple;
}

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    static const struct qp_place bytes = {.bits = 8, .word_bytes = 1, .is_signed = true};
    static const struct qp_place nibbles = {
        .bits = 4, .word_bytes = 1, .n_order = 2, .order = {1, 0}};
    static const struct qp_place tiles = {.bits = 8, .word_bytes = 1, .swizzled = true};
    if (t->variant >= QP_COMFY_OLD)
        return qp_comfy_old_parts(t, arena, parts, entries);
    const struct kind *kind = kind_of(t->scheme);
    const bool is_tensor = t->scheme->granularity == QPLAN_PER_TENSOR;
    const bool is_packed = kind->dtype == QPLAN_F4E2M1;
    const uint64_t rows = t->shape[0], cols = t->shape[1];
    const struct qp_matrix sets = qp_row_sets(t->scheme, t->shape);
    const bool is_named = qp_name_ends(t->name, t->name_len, weight); /* else nothing is found */
    const size_t n_layer = t->name_len - (is_named ? sizeof weight - 1 : 0);
    const struct qp_entry_wish wishes[] = {
        {t->name,
         t->name_len,
         "",
         qp_dtype_storage(kind->dtype),
         2,
         {rows, is_packed ? qp_div_up(cols, 2) : cols}},
        {t->name,
         t->name_len,
         "_scale",
         kind->scales[t->variant % 2],
         is_tensor ? 0 : 2,
         {kind->group ? up_to(sets.rows, TILE_ROWS) : sets.rows,
          kind->group ? up_to(sets.cols, TILE_COLS) : sets.cols}},
        {t->name, n_layer, mark, QPLAN_STORAGE_U8, 1, {strlen(kind->mark)}},
        {t->name, t->name_len, "_scale_2", QPLAN_STORAGE_F32, 0, {0}},
    };
    const unsigned n = is_packed ? 4 : 3;
    for (unsigned i = 0; i < n; i++) {
        if (!qp_build_entry(&entries[i], &wishes[i], arena))
            return 0;
    }
    parts[0] = (struct qp_part){.role = QP_CODES,
                                .place = is_packed ? &nibbles : &bytes,
                                .matrix = {rows, cols},
                                .entry = &entries[0]};
    parts[1] = (struct qp_part){.role = QP_SCALE,
                                .place = kind->group ? &tiles : qp_scale_place(kind->scale),
                                .matrix = sets,
                                .entry = &entries[1]};
    parts[2] = (struct qp_part){
        .role = QP_CONSTANT, .entry = &entries[2], .bytes = kind->mark, .is_text = true};
    parts[3] = qp_factor_part(&entries[3], false);
    if (t->variant < QP_COMFY_IN_HEADER)
        return n;
    parts[2] = parts[3];
    return n - 1;
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

/* A mark of old layers alone, with no scale of any, is of nothing. */
static bool is(const struct qp_listing *listing)
{
    bool has_old_mark = false, has_old_scale = false;
    enum qplan_dtype dtype;
    if (qp_comfy_has_claim(listing))
        return true;
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        if (qp_name_ends(entry->name, entry->name_len, mark))
            return true;
        has_old_mark = has_old_mark || qp_comfy_is_old_mark(entry, &dtype);
        has_old_scale =
            has_old_scale || qp_name_ends(entry->name, entry->name_len, QP_COMFY_OLD_SCALE);
    }
    return has_old_mark && has_old_scale;
}

/* The format that a mark names; besides it a mark may say how a layer is computed. */
static enum qplan_status find_kind(const struct qp_comfy_layer *layer, const struct kind **out,
                                   struct qplan_error *err)
{
    const struct qp_tree_value *format = qp_tree_member(layer->tree, layer->mark, "format");
    const struct qp_tree_value *computed =
        qp_tree_member(layer->tree, layer->mark, "full_precision_matrix_mult");
    char shown[QP_QUOTED];
    size_t i = 0;
    while (i < N_KINDS && !qp_tree_is_string(layer->tree, format, kinds[i].format))
        i++;
    if (i == N_KINDS)
        return qp_fail(err, QPLAN_ERR_INVALID, layer->subject,
                       "not a format that is supported: expected float8_e4m3fn, float8_e5m2, "
                       "int8_tensorwise, mxfp8 or nvfp4, found %s",
                       format ? qp_tree_show(shown, layer->tree, format) : "none");
    if (layer->mark->span != 2u + (computed != NULL))
        return qp_fail(err, QPLAN_ERR_INVALID, layer->subject,
                       "expected one format, besides it full_precision_matrix_mult at the most, "
                       "and nothing that changes values");
    *out = &kinds[i];
    return QPLAN_OK;
}

/* The scheme of a layer by its scales: one for all, one for each row, or one for each block. */
static struct qplan_scheme scheme_of(const struct kind *kind, const struct qplan_entry *scale)
{
    const bool has_rows = kind->has_rows && scale->rank != 0;
    return (struct qplan_scheme){.dtype = kind->dtype,
                                 .granularity = kind->group ? QPLAN_PER_GROUP
                                                : has_rows  ? QPLAN_PER_CHANNEL
                                                            : QPLAN_PER_TENSOR,
                                 .group = kind->group,
                                 .scale_dtype = kind->scale};
}

/* Extents of the weight with such codes; false if there can be none. */
static bool find_shape(const struct kind *kind, const struct qplan_entry *codes, uint64_t shape[2])
{
    uint64_t elems;
    if (codes->rank != 2)
        return false;
    shape[0] = codes->shape[0];
    shape[1] = codes->shape[1];
    if (kind->dtype == QPLAN_F4E2M1 && !qp_mul_u64(shape[1], 2, &shape[1]))
        return false;
    return shape[1] % qp_max_u64(kind->group, 1) == 0 && qp_shape_elements(shape, 2, &elems) &&
           elems > 0;
}

enum qplan_status qp_comfy_describe_layer(const struct qp_listing *listing, struct qp_arena *arena,
                                          const struct qp_comfy_layer *layer,
                                          struct qp_tensor **tensors, size_t *n,
                                          struct qplan_error *err)
{
    uint64_t shape[2];
    const struct qplan_entry *codes =
        qp_listing_sibling(listing, layer->name, layer->name_len, weight);
    const struct qplan_entry *scale =
        qp_listing_sibling(listing, layer->name, layer->name_len, ".weight_scale");
    const struct kind *kind = kinds;
    QP_TRY(find_kind(layer, &kind, err));
    if (!codes || !scale || !find_shape(kind, codes, shape))
        return qp_fail(err, QPLAN_ERR_INVALID, layer->subject,
                       "expected a weight of two axes, of whole blocks, and its scale beside it");
    const struct qplan_scheme scheme = scheme_of(kind, scale);
    const bool is_other = scale->storage != kind->scales[0] && scale->storage == kind->scales[1];
    const struct qp_tensor t = {
        .name = codes->name,
        .name_len = codes->name_len,
        .shape = qp_arena_copy(arena, shape, 2, sizeof *shape),
        .rank = 2,
        .storage = QPLAN_STORAGE_F32,
        .variant = (uint8_t)(is_other + (layer->in_header ? QP_COMFY_IN_HEADER : QP_COMFY_USUAL)),
        .scheme = qp_arena_copy(arena, &scheme, 1, sizeof scheme)};
    return t.shape && t.scheme && qp_add_tensor(tensors, n, &t)
               ? QPLAN_OK
               : qp_fail_memory(err, listing->shown, sizeof t);
}

/* The layer of a mark that is a tensor. */
static enum qplan_status describe_marked(const struct qp_listing *listing, struct qp_arena *arena,
                                         const struct qplan_entry *entry,
                                         struct qp_tensor **tensors, size_t *n,
                                         struct qplan_error *err)
{
    char text[MOST_MARK], subject[512];
    struct qp_tree tree = {
        .name = qp_listing_subject(subject, listing, entry), .err = err, .any_numbers = true};
    struct qp_comfy_layer layer = {.subject = subject,
                                   .name = entry->name,
                                   .name_len = entry->name_len - (sizeof mark - 1),
                                   .tree = &tree};
    const uint64_t n_text = entry->end - entry->begin;
    if (entry->storage != QPLAN_STORAGE_U8 || entry->rank != 1 || n_text > sizeof text)
        return qp_fail(err, QPLAN_ERR_INVALID, subject, "expected JSON in bytes of type U8");
    QP_TRY(listing->read(listing, entry, 0, text, (size_t)n_text, err));
    enum qplan_status status = qp_tree_read(&tree, text, (size_t)n_text);
    layer.mark = tree.values;
    if (status == QPLAN_OK)
        status = qp_comfy_describe_layer(listing, arena, &layer, tensors, n, err);
    qp_tree_free(&tree);
    return status;
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        if (qp_name_ends(entry->name, entry->name_len, mark))
            QP_TRY(describe_marked(listing, arena, entry, tensors, n, err));
        else if (qp_name_ends(entry->name, entry->name_len, QP_COMFY_OLD_SCALE))
            QP_TRY(qp_comfy_old_describe(listing, arena, entry, tensors, n, err));
    }
    return qp_comfy_header_describe(listing, arena, tensors, n, err);
}

/* The second name is that of before layers had marks. */
static const char *const inputs[] = {".input_scale", ".scale_input", NULL};

const struct qp_format qp_format_comfyui = {
    .name = "comfyui",
    .loaded_by = "ComfyUI",
    .schemes = "fp8:t; f8e5m2:t; int8:t, c0; nvfp4; mxfp8",
    .reads = "scaled fp8 from before layers had marks",
    .scheme = "fp8:t",
    .is_file = true,
    .select = "linear",
    .recipe = "reference:comfy-kitchen",
    .claim = QP_COMFY_CLAIM,
    .keeps = keeps,
    .rank = 2,
    .inputs = inputs,
    .n_variants = 1,
    .is = is,
    .is_note = qp_comfy_is_note,
    .describe = describe,
    .fit = fit,
    .misfit = misfit,
    .variant = variant,
    .parts = make_parts,
};
