/*
 * experts.h - the names of experts: all of a layer in one tensor of three axes, or each in one of
 * its own. Which of its axes are inputs goes by the type of a model, never by shapes, since square
 * matrices do not tell.
 */
#ifndef QP_FORMAT_EXPERTS_H
#define QP_FORMAT_EXPERTS_H

#include "format.h"

/* ---- Fused: all experts of a layer in one tensor -----------------------------------------------
 */

#define QP_MOST_FUSED 2

/* Types of models that transformers has with gate and up of all experts in one tensor, and saves
 * expert by expert. */
#define QP_FUSED_IN_MEMORY                                                                         \
    "afmoe cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe exaone_moe "        \
    "flex_olmo glm4_moe glm4_moe_lite glm_moe_dsa hunyuan_v1_moe olmoe qwen2_moe qwen3_moe "       \
    "qwen3_next solar_open"

/* A tensor that engines want expert by expert. */
struct qp_fused_experts {
    size_t n_prefix;    /* of its name, up to the experts */
    const char *single; /* what follows there in the name of one expert, up to its number */
    bool turned;        /* its matrices are [in, out], else [out, in] */
    unsigned n;         /* projections, one behind the other along their outputs */
    const char *projections[QP_MOST_FUSED]; /* what follows the number, up to ".weight" */
};

/* Whether it is known how models of this type fuse their experts, or that they do not. */
bool qp_knows_experts(const struct qp_listing *listing);

/* Why engines do not load experts of models of this type split, though it is known how they are
 * fused, or NULL. */
const char *qp_unsplit_experts(const struct qp_listing *listing);

/* Whether a tensor holds all experts of a layer; how they are in it. */
bool qp_find_fused_experts(const struct qp_listing *listing, const struct qp_tensor *tensor,
                           struct qp_fused_experts *out);

/* ---- Divided: each projection of all experts in one tensor -------------------------------------
 */

/*
 * A tensor of gpt_oss that MLX wants in another form: weights [experts, in, out] turned to
 * [experts, out, in], and of two projections, whose outputs take turns, each by itself; the biases
 * of these outputs likewise.
 */
struct qp_divided {
    size_t n_prefix;                  /* of its name, up to the names below */
    unsigned n;                       /* projections */
    const char *names[QP_MOST_FUSED]; /* of each, behind the prefix */
};

bool qp_find_divided_experts(const struct qp_listing *listing, const struct qp_tensor *tensor,
                             struct qp_divided *out);

/* ---- Single: a tensor for each expert ----------------------------------------------------------
 */

/* A tensor of one expert that MLX wants in one with all of its layer. */
struct qp_single {
    size_t n_prefix;        /* of its name, up to the experts */
    uint64_t number;        /* of the expert */
    const char *projection; /* its own name, behind the number */
    const char *stack;      /* that of the stack, behind the prefix and up to ".weight" */
};

bool qp_find_single(const struct qp_listing *listing, const struct qp_tensor *tensor,
                    struct qp_single *out);

/* Whether a tensor is such a stack; how the experts are in it, under the names of single ones. */
bool qp_find_stack(const struct qp_listing *listing, const struct qp_tensor *tensor,
                   struct qp_fused_experts *out);

/* What every name of a stack has. */
#define QP_STACK_NAME ".switch_mlp."

/* ---- Names -------------------------------------------------------------------------------------
 */

/* PREFIX SINGLE NUMBER.PROJECTION.weight in the arena; NULL when out of memory. */
char *qp_expert_name(struct qp_arena *arena, const char *prefix, size_t n_prefix,
                     const char *single, uint64_t number, const char *projection);

#endif
