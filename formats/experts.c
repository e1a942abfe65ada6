/*
 * experts.c - the table of models with experts. Found by loading folders in transformers, and in
 * the code of mlx-lm that stacks and divides what it loads.
 */
#include "experts.h"

#include "build.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* No name of an expert has a NUL in it. */
static bool is_text(const struct qp_tensor *t)
{
    return strlen(t->name) == t->name_len;
}

/* ---- Fused -------------------------------------------------------------------------------------
 */

enum { GATE, UP, DOWN, N_PROJECTIONS };

struct fusing {
    const char *types;
    bool turned;
    const char *gate_up, *down; /* how names of fused tensors end */
    const char *single;
    const char *projections[N_PROJECTIONS];
};

#define PROJECTIONS                                                                                \
    {                                                                                              \
        "gate_proj", "up_proj", "down_proj"                                                        \
    }

#define GPT_OSS "gpt_oss"

static const struct fusing fusings[] = {
    {"llama4_text", true, ".experts.gate_up_proj", ".experts.down_proj", ".experts.", PROJECTIONS},
    /* Rows of gate and up take turns, and so do the biases beside them, which stay as they are. */
    {GPT_OSS,
     true,
     ".mlp.experts.gate_up_proj",
     ".mlp.experts.down_proj",
     ".mlp.experts.",
     {"gate_up_proj", NULL, "down_proj"}},
    {QP_FUSED_IN_MEMORY " qwen3_5_moe_text", false, ".mlp.experts.gate_up_proj",
     ".mlp.experts.down_proj", ".mlp.experts.", PROJECTIONS},
    /* vLLM alone loads these. */
    {"granitemoe granitemoehybrid granitemoeshared", false, ".block_sparse_moe.input_linear.weight",
     ".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.", PROJECTIONS},
};

bool qp_knows_experts(const struct qp_listing *listing)
{
    bool known = false;
    for (size_t i = 0; i < sizeof fusings / sizeof fusings[0]; i++)
        known |= qp_is_model_type(listing, fusings[i].types);
    return known;
}

const char *qp_unsplit_experts(const struct qp_listing *listing)
{
    return qp_is_model_type(listing, GPT_OSS)
               ? "engines load those of gpt_oss only in one tensor, with the rows of both "
                 "projections by turns and biases"
               : NULL;
}

bool qp_find_fused_experts(const struct qp_listing *listing, const struct qp_tensor *t,
                           struct qp_fused_experts *out)
{
    for (size_t i = 0; i < sizeof fusings / sizeof fusings[0]; i++) {
        const struct fusing *f = &fusings[i];
        const bool is_gate_up = qp_name_ends(t->name, t->name_len, f->gate_up);
        if (t->rank != 3 || !is_text(t) ||
            !(is_gate_up || qp_name_ends(t->name, t->name_len, f->down)) ||
            !qp_is_model_type(listing, f->types))
            continue;
        *out = (struct qp_fused_experts){
            .n_prefix = t->name_len - strlen(is_gate_up ? f->gate_up : f->down),
            .single = f->single,
            .turned = f->turned,
            .n = is_gate_up && f->projections[UP] ? 2 : 1,
            .projections = {f->projections[is_gate_up ? GATE : DOWN], f->projections[UP]}};
        return true;
    }
    return false;
}

/* ---- Divided -----------------------------------------------------------------------------------
 */

bool qp_find_divided_experts(const struct qp_listing *listing, const struct qp_tensor *t,
                             struct qp_divided *out)
{
    static const struct {
        const char *name;
        unsigned rank, n;
        const char *names[QP_MOST_FUSED];
    } rows[] = {
        {".mlp.experts.gate_up_proj",
         3,
         2,
         {".mlp.experts.gate_proj.weight", ".mlp.experts.up_proj.weight"}},
        {".mlp.experts.gate_up_proj_bias",
         2,
         2,
         {".mlp.experts.gate_proj.bias", ".mlp.experts.up_proj.bias"}},
        {".mlp.experts.down_proj", 3, 1, {".mlp.experts.down_proj.weight"}},
        {".mlp.experts.down_proj_bias", 2, 1, {".mlp.experts.down_proj.bias"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (t->rank != rows[i].rank || !is_text(t) ||
            !qp_name_ends(t->name, t->name_len, rows[i].name) ||
            !qp_is_model_type(listing, GPT_OSS))
            continue;
        *out = (struct qp_divided){.n_prefix = t->name_len - strlen(rows[i].name),
                                   .n = rows[i].n,
                                   .names = {rows[i].names[0], rows[i].names[1]}};
        return true;
    }
    return false;
}

/* ---- Single ------------------------------------------------------------------------------------
 */

static const char experts[] = ".experts.", suffix[] = ".weight";

struct stacking {
    const char *types;
    const char *projections[N_PROJECTIONS];
};

static const struct stacking stackings[] = {
    {"mixtral phimoe", {"w1", "w3", "w2"}},
    {"ernie4_5_moe exaone_moe glm4_moe olmoe qwen2_moe qwen3_moe", PROJECTIONS},
};

static const char *const stacks[N_PROJECTIONS] = {
    QP_STACK_NAME "gate_proj", QP_STACK_NAME "up_proj", QP_STACK_NAME "down_proj"};

/* Takes the name of a single expert apart; *projection has n bytes. */
static bool take_apart(const struct qp_tensor *t, struct qp_single *out, const char **projection,
                       size_t *n)
{
    const char *found = strstr(t->name, experts);
    if (!found || t->rank != 2 || !is_text(t) || !qp_name_ends(t->name, t->name_len, suffix))
        return false;
    const char *number = found + strlen(experts);
    const size_t n_number = strspn(number, "0123456789");
    out->n_prefix = (size_t)(found - t->name);
    if (number[n_number] != '.' || !qp_parse_u64_n(number, n_number, &out->number))
        return false;
    *projection = number + n_number + 1;
    const char *end = t->name + t->name_len - strlen(suffix);
    *n = *projection < end ? (size_t)(end - *projection) : 0;
    return true;
}

bool qp_find_single(const struct qp_listing *listing, const struct qp_tensor *t,
                    struct qp_single *out)
{
    const char *projection;
    size_t n;
    if (!take_apart(t, out, &projection, &n))
        return false;
    for (size_t i = 0; i < sizeof stackings / sizeof stackings[0]; i++) {
        for (size_t k = 0; k < N_PROJECTIONS; k++) {
            out->projection = stackings[i].projections[k];
            out->stack = stacks[k];
            if (qp_text_is(projection, n, out->projection) &&
                qp_is_model_type(listing, stackings[i].types))
                return true;
        }
    }
    return false;
}

bool qp_find_stack(const struct qp_listing *listing, const struct qp_tensor *t,
                   struct qp_fused_experts *out)
{
    const size_t n = strlen(suffix);
    if (t->rank != 3 || !is_text(t) || !qp_name_ends(t->name, t->name_len, suffix))
        return false;
    for (size_t i = 0; i < sizeof stackings / sizeof stackings[0]; i++) {
        for (size_t k = 0; k < N_PROJECTIONS; k++) {
            if (!qp_name_ends(t->name, t->name_len - n, stacks[k]) ||
                !qp_is_model_type(listing, stackings[i].types))
                continue;
            *out = (struct qp_fused_experts){.n_prefix = t->name_len - n - strlen(stacks[k]),
                                             .single = experts,
                                             .n = 1,
                                             .projections = {stackings[i].projections[k]}};
            return true;
        }
    }
    return false;
}

/* ---- Names -------------------------------------------------------------------------------------
 */

char *qp_expert_name(struct qp_arena *arena, const char *prefix, size_t n_prefix,
                     const char *single, uint64_t number, const char *projection)
{
    char rest[128];
    (void)snprintf(rest, sizeof rest, "%s%" PRIu64 ".%s%s", single, number, projection, suffix);
    return qp_arena_join(arena, prefix, n_prefix, rest);
}
