/*
 * mlx_parts.c - the row of the layout: what it stores, and the parts of a tensor in it.
 */
#include "mlx.h"

#include "formats/build.h"
#include "formats/experts.h"
#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <string.h>

static const char suffix[] = ".weight";

/* ---- What is stored ----------------------------------------------------------------------------
 */

bool qp_mlx_has(uint64_t bits, uint64_t group)
{
    return (bits >= 2 && bits <= 8 && bits != 7) && (group == 32 || group == 64 || group == 128);
}

/* Codes of either sign are unsigned ones here: the bias is what they begin at. */
static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    (void)options;
    const unsigned bits = qp_integer_bits(scheme->dtype);
    const struct qp_blocks_row *block = qp_blocks_of(scheme);
    if (block) {
        scheme->scale_dtype = block->scale;
        return NULL;
    }
    if (scheme->granularity != QPLAN_PER_GROUP || scheme->narrow ||
        !qp_mlx_has(bits, scheme->group))
        return "codes of 2, 3, 4, 5, 6 or 8 bits and full range with g32, g64 or g128, nvfp4, "
               "mxfp4 or mxfp8";
    if (scheme->scale_given && scheme->scale_dtype != qp_weight_scale_type(storage))
        return "scales of the type of the weights";
    scheme->dtype = qp_integer_type(bits, false);
    scheme->scale_dtype = qp_weight_scale_type(storage);
    scheme->bias = true;
    return NULL;
}

/* What mlx-lm makes something else of while it loads, which it does well with plain tensors only;
 * and it has no vision towers. */
static const struct qp_refusal refusals[] = {
    {NULL, ".kv_b_proj.", "mlx-lm divides kv_b_proj of MLA by heads, and quantizes it anew"},
    {QP_CONV1D_TYPES, ".h.#.", "mlx-lm turns the weights of Conv1D"},
    {"gpt_oss", ".experts.gate_up_proj", "mlx-lm loads gate and up of gpt_oss by themselves"},
    {"llama4_text", ".experts.", "mlx-lm knows no experts in text models of llama4"},
    {"granitemoe granitemoehybrid granitemoeshared", ".block_sparse_moe.experts.",
     "mlx-lm loads the experts of such a model in one tensor, not one by one"},
    /* Those that can be stacked (experts.h) are, and have no such name any more. Of
     * qwen3_5_moe_text mlx-lm takes gate and up apart itself. */
    {QP_FUSED_IN_MEMORY, ".mlp.experts.gate_up_proj",
     "mlx-lm loads the experts of such a model one by one or stacked, not with gate and up in one "
     "tensor"},
    {NULL, "visual.", "mlx-lm has no vision towers"},
    {NULL, "vision_tower.", "mlx-lm has no vision towers"},
    {NULL, "vision_model.", "mlx-lm has no vision towers"},
    {NULL, NULL, NULL},
};

/* Of tensors with more axes engines quantize the stacked experts alone. */
static const char *misfit(const struct qp_tensor *t)
{
    if (!qp_name_ends(t->name, t->name_len, suffix))
        return t->rank == 3 && strstr(t->name, ".experts.") ? "3-D experts" : "not named .weight";
    const char *experts = strstr(t->name, ".experts."); /* mlx-lm stacks single ones if plain */
    if (experts && (t->rank != 3 || !strstr(experts, "_proj.weight")))
        return "experts that are not stacked";
    return t->rank == 2 || experts || (t->rank == 3 && strstr(t->name, ".switch_mlp.")) ? NULL
                                                                                        : "not 2-D";
}

static unsigned variant(const struct qp_tensor *t, const struct qp_format_options *options)
{
    (void)t;
    (void)options;
    return 0;
}

/* ---- Parts -------------------------------------------------------------------------------------
 */

static const struct qp_place *place_of_codes(unsigned bits)
{
#define PLACE(n) [n] = {.bits = (n), .word_bytes = 4 }
    static const struct qp_place places[] = {PLACE(2), PLACE(3), PLACE(4),
                                             PLACE(5), PLACE(6), PLACE(8)};
#undef PLACE
    return &places[bits];
}

/* A stored tensor of the module, with the shape of the weight but for its last extent. */
static bool add(const struct qp_tensor *t, const char *end, enum qplan_storage storage,
                uint64_t last, struct qp_arena *arena, struct qplan_entry *entry)
{
    const bool is_weight = qp_name_ends(t->name, t->name_len, suffix);
    const size_t n = t->name_len - (is_weight ? sizeof suffix - 1 : 0);
    uint64_t shape[QPLAN_MAX_RANK];
    memcpy(shape, t->shape, t->rank * sizeof *shape);
    shape[t->rank - 1] = last;
    *entry = (struct qplan_entry){
        .name = qp_arena_join(arena, t->name, n, end),
        .name_len = (uint32_t)(n + strlen(end)),
        .storage = (uint8_t)storage,
        .rank = t->rank,
        .shape = qp_arena_copy(arena, shape, t->rank, sizeof *shape),
    };
    return entry->name && entry->shape;
}

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    const struct qplan_scheme *scheme = t->scheme;
    const uint64_t cols = t->shape[t->rank - 1], n_sets = qp_div_up(cols, scheme->group);
    const unsigned bits = qplan_dtype_bits(scheme->dtype);
    const struct qp_place *codes = place_of_codes(bits);
    const uint64_t n_words = cols / 32 * bits + qp_div_up(cols % 32 * bits, 32);
    const struct qp_place *params = qp_scale_place(scheme->scale_dtype);
    const bool is_block = qp_blocks_of(scheme) != NULL;
    const enum qplan_storage storage =
        is_block ? QPLAN_STORAGE_U8 : qp_dtype_storage(scheme->scale_dtype);
    uint64_t rows;
    (void)qp_shape_elements(t->shape, t->rank - 1u, &rows); /* known not to overflow */
    parts[0] = (struct qp_part){
        .role = QP_CODES, .place = codes, .matrix = {rows, cols}, .entry = &entries[0]};
    parts[1] = (struct qp_part){
        .role = QP_SCALE, .place = params, .matrix = {rows, n_sets}, .entry = &entries[1]};
    parts[2] = (struct qp_part){
        .role = QP_BIAS, .place = params, .matrix = {rows, n_sets}, .entry = &entries[2]};
    if (!add(t, suffix, QPLAN_STORAGE_U32, n_words, arena, &entries[0]) ||
        !add(t, ".scales", storage, n_sets, arena, &entries[1]))
        return 0;
    if (is_block)
        return 2;
    return add(t, ".biases", storage, n_sets, arena, &entries[2]) ? 3 : 0;
}

static const char *const config_keys[] = {"quantization", "quantization_config", NULL};

const struct qp_format qp_format_mlx = {
    .name = "mlx",
    .loaded_by = "mlx-lm, LM Studio",
    .schemes = "uint4:g64; uint2 3 4 5 6 8: g32, g64, g128, sym; nvfp4; mxfp4; mxfp8",
    .scheme = "uint4:g64",
    .is_folder = true,
    .recipe = "reference:mlx",
    .rounds = true,
    .stacks_experts = true,
    .refusals = refusals,
    .n_variants = 1,
    .is = qp_mlx_is,
    .describe = qp_mlx_describe,
    .fit = fit,
    .misfit = misfit,
    .variant = variant,
    .parts = make_parts,
    .config = qp_mlx_config,
    .config_keys = config_keys,
};
