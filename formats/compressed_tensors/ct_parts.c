/*
 * ct_parts.c - the row of the layout: what it stores, and the parts of a tensor in it.
 */
#include "ct.h"

#include "formats/build.h"
#include "formats/modules.h"
#include "lib/model/dtype.h"

#include <string.h>

static bool is(const struct qp_listing *listing)
{
    return qp_is_quant_method(listing, "compressed-tensors");
}

/* ---- What is stored ----------------------------------------------------------------------------
 */

bool qp_ct_is_dynamic(const struct qplan_scheme *scheme, const struct qp_format_options *options)
{
    return options->activations == QPLAN_ACTIVATIONS_USUAL
               ? scheme->dtype == QPLAN_F8E4M3 && !qp_blocks_of(scheme)
               : options->activations == QPLAN_ACTIVATIONS_DYNAMIC;
}

static bool is_channel(const struct qplan_scheme *scheme)
{
    return scheme->granularity == QPLAN_PER_CHANNEL && scheme->axis == 0;
}

static bool is_block_of_128(const struct qplan_scheme *scheme)
{
    return scheme->granularity == QPLAN_PER_BLOCK && scheme->block_rows == 128 &&
           scheme->block_cols == 128;
}

static const char *fit_integers(struct qplan_scheme *scheme,
                                const struct qp_format_options *options)
{
    /* Codes are signed; stored with half their range added, they are unsigned ones as well. */
    const unsigned bits = qp_integer_bits(scheme->dtype);
    const enum qplan_dtype dtype = qp_integer_type(bits, true);
    if (qp_ct_is_dynamic(scheme, options) && (dtype != QPLAN_INT8 || !is_channel(scheme)))
        return "int8:c0, int8:c0:asym or fp8, where activations are dynamic";
    if ((!is_channel(scheme) && scheme->granularity != QPLAN_PER_GROUP) || scheme->narrow)
        return "integers of full range with gN or c0";
    if (scheme->bias)
        return QP_NO_BIAS;
    if (scheme->asymmetric && bits != 4 && bits != 8)
        return "asymmetric codes of 4 or 8 bits";
    scheme->dtype = dtype;
    return NULL;
}

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    const struct qp_blocks_row *block = qp_blocks_of(scheme);
    const char *wanted = NULL;
    if (block && options->activations != QPLAN_ACTIVATIONS_DYNAMIC) {
        scheme->scale_dtype = block->scale;
        return NULL;
    }
    if (qp_integer_bits(scheme->dtype))
        wanted = fit_integers(scheme, options);
    else if (scheme->dtype != QPLAN_F8E4M3 || (!is_channel(scheme) && !is_block_of_128(scheme) &&
                                               scheme->granularity != QPLAN_PER_TENSOR))
        wanted = block ? "int8:c0, int8:c0:asym or fp8, where activations are dynamic"
                       : "integers, fp8 with c0, t or b128x128, nvfp4, mxfp4 or mxfp8";
    if (!wanted && scheme->scale_given && scheme->scale_dtype != qp_weight_scale_type(storage))
        wanted = "scales of the type of the weights";
    if (!wanted)
        scheme->scale_dtype = qp_weight_scale_type(storage);
    return wanted;
}

static unsigned variant(const struct qp_tensor *t, const struct qp_format_options *options)
{
    const bool is_packed =
        t->scheme->dtype != QPLAN_F8E4M3 && !qp_ct_is_dynamic(t->scheme, options);
    return is_packed ? QP_CT_PACKED : QP_CT_BYTES;
}

/* Engines read rows of packed codes 32 values at a time, and most of them whole blocks alone. */
static const char *misfit(const struct qp_tensor *t)
{
    const char *reason = qp_plain_by_name(t, true);
    if (reason)
        return reason;
    if (is_block_of_128(t->scheme) && (t->shape[0] % 128 != 0 || t->shape[1] % 128 != 0))
        return "ragged blocks";
    const bool is_packed = t->variant == QP_CT_PACKED && !qp_blocks_of(t->scheme);
    return is_packed && t->shape[1] % 32 != 0 ? "row length not a multiple of 32" : NULL;
}

/* ---- Parts -------------------------------------------------------------------------------------
 */

#define WIDTHS 9 /* of codes: up to 8 bits */

/* Codes with half their range added, in words along rows. */
static const struct qp_place *place_of_packed(unsigned bits)
{
#define PLACE(n) [n] = {.bits = (n), .word_bytes = 4, .is_signed = true, .half_added = true }
    static const struct qp_place places[WIDTHS] = {PLACE(0), PLACE(1), PLACE(2), PLACE(3), PLACE(4),
                                                   PLACE(5), PLACE(6), PLACE(7), PLACE(8)};
#undef PLACE
    return &places[bits];
}

/* Zero points likewise, but words go down columns, and lie behind each other along rows. */
static const struct qp_place *place_of_zeros(unsigned bits)
{
#define PLACE(n)                                                                                   \
    [n] = {                                                                                        \
        .bits = (n),                                                                               \
        .word_bytes = 4,                                                                           \
        .columns = true,                                                                           \
        .interleaved = true,                                                                       \
        .is_signed = true,                                                                         \
        .half_added = true                                                                         \
    }
    static const struct qp_place places[WIDTHS] = {PLACE(0), PLACE(1), PLACE(2), PLACE(3), PLACE(4),
                                                   PLACE(5), PLACE(6), PLACE(7), PLACE(8)};
#undef PLACE
    return &places[bits];
}

static uint64_t words_of(const struct qp_place *place, uint64_t n)
{
    return qp_place_line_bytes(place, n) / place->word_bytes;
}

static const struct qp_place of_bytes = {.bits = 8, .word_bytes = 1, .is_signed = true};

/* What is being made, and how much of it there is. */
struct maker {
    const struct qp_tensor *t;
    struct qp_arena *arena;
    struct qp_part *parts;
    struct qplan_entry *entries;
    unsigned n;
    bool failed;
};

static void add(struct maker *m, const struct qp_part *part, const char *suffix,
                enum qplan_storage storage, uint64_t rows, uint64_t cols)
{
    const struct qp_entry_wish wish = {.name = m->t->name,
                                       .n = m->t->name_len,
                                       .suffix = suffix,
                                       .storage = storage,
                                       .rank = cols ? 2 : 1,
                                       .shape = {rows, cols}};
    m->failed |= !qp_build_entry(&m->entries[m->n], &wish, m->arena);
    m->parts[m->n] = *part;
    m->parts[m->n].entry = &m->entries[m->n];
    m->n++;
}

static void add_codes(struct maker *m)
{
    const uint64_t rows = m->t->shape[0], cols = m->t->shape[1];
    struct qp_part codes = {.role = QP_CODES, .matrix = {rows, cols}};
    if (m->t->variant == QP_CT_BYTES) {
        codes.place = &of_bytes;
        add(m, &codes, "", qp_dtype_storage(m->t->scheme->dtype), rows, cols);
    } else {
        codes.place = place_of_packed(qplan_dtype_bits(m->t->scheme->dtype));
        add(m, &codes, "_packed", QPLAN_STORAGE_I32, rows, words_of(codes.place, cols));
    }
}

static void add_zeros(struct maker *m, struct qp_matrix sets)
{
    struct qp_part zeros = {.role = QP_ZERO, .matrix = sets};
    if (m->t->variant == QP_CT_BYTES) {
        zeros.place = &of_bytes;
        add(m, &zeros, "_zero_point", QPLAN_STORAGE_I8, sets.rows, sets.cols);
    } else {
        zeros.place = place_of_zeros(qplan_dtype_bits(m->t->scheme->dtype));
        add(m, &zeros, "_zero_point", QPLAN_STORAGE_I32, words_of(zeros.place, sets.rows),
            sets.cols);
    }
}

static void add_shape(struct maker *m)
{
    const int64_t shape[2] = {(int64_t)m->t->shape[0], (int64_t)m->t->shape[1]};
    const struct qp_part constant = {.role = QP_CONSTANT,
                                     .bytes = qp_arena_copy(m->arena, shape, 2, sizeof *shape)};
    m->failed |= !constant.bytes;
    add(m, &constant, "_shape", QPLAN_STORAGE_I64, 2, 0);
}

/* Codes of floats: a byte each, or two in a byte, the first in its lower half. */
static void add_block(struct maker *m, const struct qp_blocks_row *block, struct qp_matrix sets)
{
    static const struct qp_place nibbles = {.bits = 4, .word_bytes = 1};
    static const struct qp_place bytes = {.bits = 8, .word_bytes = 1};
    const bool is_packed = qplan_dtype_bits(block->dtype) == 4;
    const uint64_t rows = m->t->shape[0], cols = m->t->shape[1];
    const struct qp_part codes = {
        .role = QP_CODES, .place = is_packed ? &nibbles : &bytes, .matrix = {rows, cols}};
    const struct qp_part scales = {
        .role = QP_SCALE, .place = qp_scale_place(block->scale), .matrix = sets};
    const struct qp_part factor = qp_factor_part(NULL, true);
    add(m, &codes, is_packed ? "_packed" : "", qp_dtype_storage(block->dtype), rows,
        qp_place_line_bytes(codes.place, cols));
    add(m, &scales, "_scale", qp_dtype_storage(block->scale), sets.rows, sets.cols);
    if (block->scale == QPLAN_F8E4M3)
        add(m, &factor, "_global_scale", QPLAN_STORAGE_F32, 1, 0);
}

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    const struct qp_matrix sets = qp_row_sets(t->scheme, t->shape);
    const enum qplan_dtype scale = t->scheme->scale_dtype;
    const struct qp_blocks_row *block = qp_blocks_of(t->scheme);
    struct maker m = {.t = t, .arena = arena, .parts = parts, .entries = entries};
    if (block) {
        add_block(&m, block, sets);
        return m.failed ? 0 : m.n;
    }
    add_codes(&m);
    add(&m, &(struct qp_part){.role = QP_SCALE, .place = qp_scale_place(scale), .matrix = sets},
        "_scale", qp_dtype_storage(scale), sets.rows,
        t->scheme->granularity == QPLAN_PER_TENSOR ? 0 : sets.cols);
    if (t->variant == QP_CT_PACKED)
        add_shape(&m);
    if (t->scheme->asymmetric)
        add_zeros(&m, sets);
    return m.failed ? 0 : m.n;
}

static const char *const inputs[] = {".input_scale", ".input_zero_point", ".input_global_scale",
                                     NULL};

const struct qp_format qp_format_compressed_tensors = {
    .name = "compressed-tensors",
    .loaded_by = "vLLM, SGLang, transformers, llama.cpp's converter",
    .schemes = "int4:g128; int2 to int8, gN or c0; asym of 4 and 8 bits; fp8:c0, t, b128x128; "
               "nvfp4; mxfp4; mxfp8",
    .reads = "fp8 with ragged blocks, static scales of activations",
    .scheme = "int4:g128",
    .is_folder = true,
    .select = "linear",
    .rank = 2,
    .rounds = true,
    .has_shared_factors = true,
    .has_activations = true,
    .recipe = "reference:llm-compressor",
    .inputs = inputs,
    .n_variants = QP_CT_VARIANTS,
    .is = is,
    .is_active = qp_ct_is_active,
    .describe = qp_ct_describe,
    .fit = fit,
    .misfit = misfit,
    .variant = variant,
    .parts = make_parts,
    .config = qp_ct_config,
    .config_keys = qp_quantization_keys,
};
