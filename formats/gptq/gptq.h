/*
 * gptq.h - what the layouts of GPTQ and AWQ share. Their tensors are alike: a weight M.weight
 * [out,in] of a linear layer is M.qweight, codes in words of 32 bits, M.qzeros, zero points in such
 * words, and M.scales. All are transposed: a row of them is a column of the weight, or a group of
 * columns. GPTQ has M.g_idx besides, the group of each column.
 */
#ifndef QP_FORMAT_GPTQ_H
#define QP_FORMAT_GPTQ_H

#include "formats/build.h"

#define QP_GPTQ_WIDTHS 9 /* of codes: up to 8 bits */

/* Where codes and zero points are, by their bits. Others are not stored. */
struct qp_gptq_kind {
    const char *widths; /* the bits that there are, for people */
    struct qp_place codes[QP_GPTQ_WIDTHS];
    struct qp_place zeros[QP_GPTQ_WIDTHS];
    bool has_index; /* M.g_idx */
};

/* Tensors with all that the kind has, and those of other tools that leave M.g_idx out. */
enum { QP_GPTQ_USUAL, QP_GPTQ_NO_INDEX };

/* What config.json says of all tensors. */
struct qp_gptq_numbers {
    unsigned bits;
    uint64_t group; /* 0 = a row is a set */
    bool asymmetric;
    bool is_mixed; /* of some modules it says something else, which their shapes tell */
};

/* The tensors of a checkpoint of a kind (describe in formats/format.h). */
enum qplan_status qp_gptq_find(const struct qp_gptq_kind *kind,
                               const struct qp_gptq_numbers *numbers,
                               const struct qp_listing *listing, struct qp_arena *arena,
                               struct qp_tensor **tensors, size_t *n, struct qplan_error *err);

/* Bits and group size that config.json has for tensors of a kind. */
enum qplan_status qp_gptq_read_numbers(const struct qp_gptq_kind *kind,
                                       const struct qp_listing *listing,
                                       struct qp_gptq_numbers *out, struct qplan_error *err);

/* Refuses what config.json has under a key. */
enum qplan_status qp_gptq_bad(const struct qp_listing *listing, const char *key,
                              const char *expected, struct qplan_error *err);

unsigned qp_gptq_variant(const struct qp_tensor *tensor, const struct qp_format_options *options);
unsigned qp_gptq_parts(const struct qp_gptq_kind *kind, const struct qp_tensor *tensor,
                       struct qp_arena *arena, struct qp_part *parts, struct qplan_entry *entries);

/* ---- GPTQ alone: both ways to store zero points -------------------------------------------------
 */

bool qp_gptq_is(const struct qp_listing *listing, const char *stored);
enum qplan_status qp_gptq_describe(const struct qp_gptq_kind *kind,
                                   const struct qp_listing *listing, struct qp_arena *arena,
                                   struct qp_tensor **tensors, size_t *n, struct qplan_error *err);
const char *qp_gptq_fit(struct qplan_scheme *scheme);
const char *qp_gptq_misfit(const struct qp_tensor *tensor);
void qp_gptq_config(struct qp_writer *w, const struct qp_outline *outline, const char *stored);

/* What both rows say; the functions are those of a kind, in the file of its row. */
#define QP_GPTQ_ROW                                                                                \
    .loaded_by = "vLLM, SGLang, transformers", .scheme = "int4:g128", .is_folder = true,           \
    .select = "linear", .recipe = "reference:gptqmodel", .rank = 2, .rounds = true,                \
    .n_variants = 1, .is = is, .describe = describe, .fit = fit, .misfit = qp_gptq_misfit,         \
    .variant = qp_gptq_variant, .parts = make_parts, .config = config,                             \
    .config_keys = qp_quantization_keys

/* Places of codes, and of zero points, of so many bits. */
#define QP_GPTQ_CODES(BITS)                                                                        \
    [BITS] = {.bits = (BITS),                                                                      \
              .word_bytes = 4,                                                                     \
              .interleaved = true,                                                                 \
              .is_signed = true,                                                                   \
              .half_added = true}
#define QP_GPTQ_ZEROS(BITS, ONE_LESS)                                                              \
    [BITS] = {.bits = (BITS),                                                                      \
              .word_bytes = 4,                                                                     \
              .columns = true,                                                                     \
              .is_signed = true,                                                                   \
              .half_added = true,                                                                  \
              .one_less = (ONE_LESS)}

#endif
