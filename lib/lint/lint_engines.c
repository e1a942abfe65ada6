/*
 * lint_engines.c - limits of single engines, as their newest versions showed them.
 */
#include "lint.h"

#include "formats/blocks.h"
#include "lib/model/dtype.h"

/* Which layouts each engine loads, names with blanks between. */
static const struct {
    const char *engine, *layouts;
} loaded[] = {
    {"vllm", "compressed-tensors fp8 gptq gptq_v2 awq modelopt"},
    {"sglang", "compressed-tensors fp8 gptq gptq_v2 awq bitsandbytes"},
    {"transformers", "compressed-tensors fp8 gptq gptq_v2 awq bitsandbytes"},
    {"mlx", "mlx awq"},
    {"comfyui", "comfyui"},
};

enum qplan_status qp_lint_loaded(struct qp_lint *l)
{
    const char *layouts = "";
    for (size_t i = 0; i < sizeof loaded / sizeof loaded[0]; i++) {
        if (strcmp(loaded[i].engine, l->found->engine) == 0)
            layouts = loaded[i].layouts;
    }
    const size_t n = strlen(l->format->name);
    for (const char *at = layouts; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        if (length == n && strncmp(at, l->format->name, n) == 0)
            return QPLAN_OK;
        at += length;
    }
    return qp_lint_find(l, NULL, 0, "the layout %s is not loaded: expected one of %s",
                        l->format->name, layouts);
}

/* Adds a finding for each quantized tensor that is meant, with what is said of it. */
static enum qplan_status find_each(struct qp_lint *l, bool (*is_meant)(const struct qp_tensor *t),
                                   const char *what)
{
    for (size_t i = 0; i < l->file->n_tensors; i++) {
        const struct qp_tensor *t = &l->file->tensors[i];
        if (t->scheme && is_meant(t))
            QP_TRY(qp_lint_find_tensor(l, t, "%s", what));
    }
    return QPLAN_OK;
}

static bool is_bytes(const struct qp_tensor *t)
{
    return qp_tensor_part(t, QP_CODES)->entry->storage == QPLAN_STORAGE_I8;
}

static bool is_packed_asymmetric(const struct qp_tensor *t)
{
    return t->scheme->asymmetric && !is_bytes(t);
}

enum qplan_status qp_lint_asymmetric(struct qp_lint *l)
{
    return find_each(l, is_packed_asymmetric,
                     "asymmetric and packed: transformers 5.23 does not load it by default");
}

static bool is_bytes_of_expert(const struct qp_tensor *t)
{
    return is_bytes(t) && qp_lint_has(t, ".experts.#.");
}

enum qplan_status qp_lint_w8a8_experts(struct qp_lint *l)
{
    return find_each(l, is_bytes_of_expert,
                     "an expert with quantized activations: transformers 5.23 does not load it");
}

static bool is_expert(const struct qp_tensor *t)
{
    return qp_lint_has(t, ".experts.#.");
}

enum qplan_status qp_lint_random_experts(struct qp_lint *l)
{
    return find_each(l, is_expert,
                     "an expert: transformers 5.23 leaves it at random values, without an error");
}

enum qplan_status qp_lint_bnb_experts(struct qp_lint *l)
{
    return find_each(l, is_expert, "an expert: transformers 5.23 loads experts only plain");
}

static bool is_latent(const struct qp_tensor *t)
{
    return qp_lint_has(t, ".kv_b_proj.");
}

enum qplan_status qp_lint_bnb_latent(struct qp_lint *l)
{
    return find_each(l, is_latent, "its input has four axes: bitsandbytes 0.50 takes three");
}

/* Where groups go on from row to row; one row is decoded as it should be. */
static bool has_ragged_rows(const struct qp_tensor *t)
{
    return t->scheme->granularity == QPLAN_PER_GROUP && t->shape[0] > 1 &&
           t->shape[1] % t->scheme->group != 0;
}

enum qplan_status qp_lint_bnb_ragged(struct qp_lint *l)
{
    return find_each(
        l, has_ragged_rows,
        "its row length is no multiple of the group: bitsandbytes 0.50 decodes most such "
        "shapes wrongly on a CPU");
}

static bool is_expert_of_mxfp8(const struct qp_tensor *t)
{
    return is_expert(t) && qp_blocks_of(t->scheme) == &qp_blocks[QP_MXFP8];
}

enum qplan_status qp_lint_mxfp8_experts(struct qp_lint *l)
{
    return find_each(l, is_expert_of_mxfp8,
                     "an expert of mxfp8: transformers 5.23 does not load it");
}

static bool is_asymmetric(const struct qp_tensor *t)
{
    return t->scheme->asymmetric;
}

enum qplan_status qp_lint_gptq_asymmetric(struct qp_lint *l)
{
    return find_each(l, is_asymmetric, "asymmetric: vLLM loads symmetric GPTQ only");
}

static bool is_odd_width(const struct qp_tensor *t)
{
    const unsigned bits = qplan_dtype_bits(t->scheme->dtype);
    return bits != 4 && bits != 8;
}

enum qplan_status qp_lint_bits_4_8(struct qp_lint *l)
{
    return find_each(l, is_odd_width, "the engine loads codes of 4 and 8 bits");
}

static bool is_integer(const struct qp_tensor *t)
{
    return qp_integer_bits(t->scheme->dtype) > 0;
}

static bool is_odd_group(const struct qp_tensor *t)
{
    const uint64_t group = t->scheme->granularity == QPLAN_PER_GROUP ? t->scheme->group : 128;
    return is_integer(t) && group != 32 && group != 64 && group != 128;
}

enum qplan_status qp_lint_group(struct qp_lint *l)
{
    return find_each(l, is_odd_group, "the fast kernels know groups of 32, 64 and 128");
}

static bool is_odd_shape(const struct qp_tensor *t)
{
    return t->rank == 2 && is_integer(t) && !is_bytes(t) &&
           (t->shape[0] % 64 != 0 || t->shape[1] % 128 != 0);
}

static bool has_ragged_blocks(const struct qp_tensor *t)
{
    return t->shape[0] % t->scheme->block_rows != 0 || t->shape[1] % t->scheme->block_cols != 0;
}

enum qplan_status qp_lint_ragged_blocks(struct qp_lint *l)
{
    return find_each(l, has_ragged_blocks,
                     "its row length or its output channels are no multiple of 128: transformers "
                     "5.23 decodes it wrongly, or not at all");
}

enum qplan_status qp_lint_tiles(struct qp_lint *l)
{
    return find_each(l, is_odd_shape,
                     "the fast kernels want output channels in multiples of 64 and row lengths of "
                     "128, and fill up others");
}
