/*
 * awq.c - the row of the layout of AWQ, of the version called gemm: codes without a sign, of which
 * words go down columns in an order of their own. formats/gptq/gptq.h says what it shares.
 */
#include "awq.h"

#include "formats/gptq/gptq.h"
#include "formats/modules.h"
#include "lib/model/dtype.h"

#include <string.h>

#define IN_WORDS                                                                                   \
    [4] = {.bits = 4,                                                                              \
           .word_bytes = 4,                                                                        \
           .columns = true,                                                                        \
           .n_order = 8,                                                                           \
           .order = {0, 2, 4, 6, 1, 3, 5, 7}}

static const struct qp_gptq_kind kind = {.widths = "4", .codes = {IN_WORDS}, .zeros = {IN_WORDS}};

/* ---- Reading -----------------------------------------------------------------------------------
 */

static const struct qp_tree_value *member(const struct qp_listing *listing, const char *key)
{
    return qp_tree_member(listing->config, qp_quantization_config(listing), key);
}

static bool is(const struct qp_listing *listing)
{
    if (!qp_is_quant_method(listing, "awq"))
        return false;
    const struct qp_tree_value *version = member(listing, "version");
    return !version || qp_tree_is_string(listing->config, version, "gemm") ||
           qp_tree_is_string(listing->config, version, "GEMM");
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    const struct qp_tree_value *zero_point = member(listing, "zero_point");
    struct qp_gptq_numbers numbers = {.asymmetric = true};
    QP_TRY(qp_gptq_read_numbers(&kind, listing, &numbers, err));
    if (zero_point && !qp_tree_is_true(zero_point))
        return qp_gptq_bad(listing, "zero_point", "true", err);
    return qp_gptq_find(&kind, &numbers, listing, arena, tensors, n, err);
}

/* ---- Writing -----------------------------------------------------------------------------------
 */

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    (void)storage;
    (void)options;
    if (qp_integer_bits(scheme->dtype) != 4 || scheme->narrow ||
        scheme->granularity != QPLAN_PER_GROUP)
        return "uint4 of full range with gN";
    if (scheme->bias)
        return QP_NO_BIAS;
    if (scheme->scale_given && scheme->scale_dtype != QPLAN_F16)
        return "scales of type f16";
    scheme->dtype = QPLAN_UINT4;
    scheme->scale_dtype = QPLAN_F16;
    return NULL;
}

static const char *misfit(const struct qp_tensor *t)
{
    const char *reason = qp_plain_by_name(t, false);
    return !reason && t->shape[0] % 8 != 0 ? "output channels not a multiple of 8" : reason;
}

static unsigned make_parts(const struct qp_tensor *tensor, struct qp_arena *arena,
                           struct qp_part *parts, struct qplan_entry *entries)
{
    return qp_gptq_parts(&kind, tensor, arena, parts, entries);
}

const struct qp_format qp_format_awq = {
    .name = "awq",
    .loaded_by = "vLLM, SGLang, transformers, mlx-lm",
    .schemes = "uint4:g128; uint4: gN, sym",
    .scheme = "uint4:g128",
    .is_folder = true,
    .select = "linear",
    .rank = 2,
    .rounds = true,
    .n_variants = 1,
    .has_one_scheme = true,
    .has_open_symmetry = true,
    .is = is,
    .describe = describe,
    .fit = fit,
    .misfit = misfit,
    .variant = qp_gptq_variant,
    .parts = make_parts,
    .config = qp_awq_config,
    .config_keys = qp_quantization_keys,
};
