/*
 * place_cases.h - every place that a layout has, and what its stored tensor is, found one bit at a
 * time from the words of lib/model/tensor.h alone.
 */
#ifndef TESTS_PLACE_CASES_H
#define TESTS_PLACE_CASES_H

#include "support.h"

#include "lib/store/place.h"

struct place_case {
    const char *name;
    struct qp_place place;
};

#define AWQ_ORDER                                                                                  \
    8,                                                                                             \
    {                                                                                              \
        0, 2, 4, 6, 1, 3, 5, 7                                                                     \
    }
#define HIGH_FIRST                                                                                 \
    2,                                                                                             \
    {                                                                                              \
        1, 0                                                                                       \
    }
#define NATIVE(BITS)  .bits = (BITS), .word_bytes = 1
#define WORDS(BITS)   .bits = (BITS), .word_bytes = 4
#define HALF_ADDED    .is_signed = true, .half_added = true
#define CT(BITS)      WORDS(BITS), HALF_ADDED
#define CT_ZERO(BITS) CT(BITS), .columns = true, .interleaved = true
#define QWEIGHT(BITS) WORDS(BITS), .interleaved = true
#define QZEROS(BITS)  WORDS(BITS), .columns = true
#define PLAIN(BITS)   .bits = (BITS), .word_bytes = (BITS) / 8

static const struct place_case place_cases[] = {
    {"int2", {NATIVE(2), .is_signed = true}},
    {"int3", {NATIVE(3), .is_signed = true}},
    {"int4", {NATIVE(4), .is_signed = true}},
    {"int5", {NATIVE(5), .is_signed = true}},
    {"int6", {NATIVE(6), .is_signed = true}},
    {"int7", {NATIVE(7), .is_signed = true}},
    {"int8", {NATIVE(8), .is_signed = true}},
    {"uint2", {NATIVE(2)}},
    {"uint3", {NATIVE(3)}},
    {"uint4", {NATIVE(4)}}, /* also NVFP4 and MXFP4 codes */
    {"uint5", {NATIVE(5)}},
    {"uint6", {NATIVE(6)}},
    {"uint7", {NATIVE(7)}},
    {"uint8", {NATIVE(8)}},
    {"ct2", {CT(2)}},
    {"ct3", {CT(3)}},
    {"ct4", {CT(4)}},
    {"ct5", {CT(5)}},
    {"ct6", {CT(6)}},
    {"ct7", {CT(7)}},
    {"ct8", {CT(8)}},
    {"ct2-zero", {CT_ZERO(2)}},
    {"ct3-zero", {CT_ZERO(3)}},
    {"ct4-zero", {CT_ZERO(4)}},
    {"ct5-zero", {CT_ZERO(5)}},
    {"ct6-zero", {CT_ZERO(6)}},
    {"ct7-zero", {CT_ZERO(7)}},
    {"ct8-zero", {CT_ZERO(8)}},
    {"gptq2", {QWEIGHT(2)}},
    {"gptq3", {QWEIGHT(3)}},
    {"gptq4", {QWEIGHT(4)}},
    {"gptq8", {QWEIGHT(8)}},
    {"gptq2-zero-v1", {QZEROS(2), .one_less = true}},
    {"gptq3-zero-v1", {QZEROS(3), .one_less = true}},
    {"gptq4-zero-v1", {QZEROS(4), .one_less = true}},
    {"gptq8-zero-v1", {QZEROS(8), .one_less = true}},
    {"gptq2-signed", {QWEIGHT(2), HALF_ADDED}},
    {"gptq3-signed", {QWEIGHT(3), HALF_ADDED}},
    {"gptq4-signed", {QWEIGHT(4), HALF_ADDED}},
    {"gptq8-signed", {QWEIGHT(8), HALF_ADDED}},
    {"gptq2-zero-v1-signed", {QZEROS(2), HALF_ADDED, .one_less = true}},
    {"gptq2-zero-v2-signed", {QZEROS(2), HALF_ADDED}},
    {"gptq3-zero-v1-signed", {QZEROS(3), HALF_ADDED, .one_less = true}},
    {"gptq3-zero-v2-signed", {QZEROS(3), HALF_ADDED}},
    {"gptq4-zero-v1-signed", {QZEROS(4), HALF_ADDED, .one_less = true}},
    {"gptq4-zero-v2-signed", {QZEROS(4), HALF_ADDED}},
    {"gptq8-zero-v1-signed", {QZEROS(8), HALF_ADDED, .one_less = true}},
    {"gptq8-zero-v2-signed", {QZEROS(8), HALF_ADDED}},
    {"gptq2-zero-v2", {QZEROS(2)}},
    {"gptq3-zero-v2", {QZEROS(3)}},
    {"gptq4-zero-v2", {QZEROS(4)}},
    {"gptq8-zero-v2", {QZEROS(8)}},
    {"gptq-scale", {PLAIN(16), .columns = true}}, /* also AWQ scales */
    {"awq4", {QZEROS(4), .n_order = AWQ_ORDER}},  /* codes and zero points */
    {"mlx2", {WORDS(2)}},
    {"mlx3", {WORDS(3)}},
    {"mlx4", {WORDS(4)}},
    {"mlx5", {WORDS(5)}},
    {"mlx6", {WORDS(6)}},
    {"mlx8", {WORDS(8)}},
    {"nf4", {NATIVE(4), .filling = 7, .n_order = HIGH_FIRST}}, /* bitsandbytes */
    {"high-first", {NATIVE(4), .n_order = HIGH_FIRST}},        /* its FP4, and ComfyUI */
    {"swizzled", {NATIVE(8), .swizzled = true}},               /* ComfyUI block scales */
    {"plain16", {PLAIN(16)}},
    {"plain32", {PLAIN(32)}},
    {"plain64", {PLAIN(64)}},
    {"turned8", {PLAIN(8), .columns = true}},
    {"turned32", {PLAIN(32), .interleaved = true}},
    {"turned64", {PLAIN(64), .columns = true}},
    {"twice-turned", {PLAIN(16), .columns = true, .interleaved = true}},
};

static inline const struct place_case *place_case(const char *name)
{
    for (size_t i = 0; i < COUNT(place_cases); i++) {
        if (strcmp(place_cases[i].name, name) == 0)
            return &place_cases[i];
    }
    fail_msg("no place %s", name);
    return NULL;
}

/* ---- Values in memory ------------------------------------------------------------------------ */

static inline size_t value_bytes(const struct qp_place *place)
{
    return place->bits > 8 ? place->bits / 8u : 1;
}

static inline uint64_t value_mask(const struct qp_place *place)
{
    return UINT64_MAX >> (64 - place->bits);
}

/* Value i of an array, as a number of `bits` bits. */
static inline uint64_t value_at(const struct qp_place *place, const void *values, uint64_t i)
{
    uint64_t value = 0;
    memcpy(&value, (const char *)values + i * value_bytes(place), value_bytes(place));
    return value & value_mask(place);
}

/* The byte that a value of at most 8 bits is read back as. */
static inline unsigned char read_back(const struct qp_place *place, uint64_t value)
{
    const bool negative = place->is_signed && value >> (place->bits - 1);
    return (unsigned char)(negative ? value | ~value_mask(place) : value);
}

/* ---- One bit at a time ----------------------------------------------------------------------- */

/* A stored tensor, and for each of its bytes which bits are filling, and of which line it is. */
struct stored {
    unsigned char *bytes, *filling;
    uint64_t *line;
    size_t n_bytes;
};

static inline struct stored stored_make(size_t n_bytes)
{
    struct stored s = {calloc(n_bytes + 1, 1), calloc(n_bytes + 1, 1),
                       calloc(n_bytes + 1, sizeof(uint64_t)), n_bytes};
    assert_true(s.bytes && s.filling && s.line);
    return s;
}

static inline void stored_free(struct stored *s)
{
    free(s->bytes);
    free(s->filling);
    free(s->line);
}

static inline struct stored stored_swizzled(struct qp_matrix m, const void *values)
{
    const uint64_t rows = (m.rows + 127) / 128 * 128, cols = (m.cols + 3) / 4 * 4;
    struct stored s = stored_make(rows * cols);
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t col = 0; col < cols; col++) {
            const uint64_t tile = row / 128 * (cols / 4) + col / 4;
            const uint64_t at = tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + col % 4;
            const bool filling = row >= m.rows || col >= m.cols;
            s.line[at] = row;
            s.filling[at] = filling ? 0xff : 0;
            s.bytes[at] = filling ? 0 : ((const unsigned char *)values)[row * m.cols + col];
        }
    }
    return s;
}

/* What is packed for value i of a line, before words come into it. */
static inline uint64_t packed_value(const struct qp_place *p, struct qp_matrix m,
                                    const void *values, uint64_t line, uint64_t i)
{
    const uint64_t at = p->columns ? i * m.cols + line : line * m.cols + i;
    uint64_t value = value_at(p, values, at);
    if (p->half_added)
        value += UINT64_C(1) << (p->bits - 1);
    if (p->one_less && 8 * p->word_bytes % p->bits != 0)
        value -= 1;
    return value;
}

static inline struct stored stored_of(const struct qp_place *p, struct qp_matrix m,
                                      const void *values)
{
    const unsigned word_bits = 8u * p->word_bytes;
    const uint64_t n_lines = p->columns ? m.cols : m.rows, len = p->columns ? m.rows : m.cols;
    const uint64_t n_words = (len * p->bits + word_bits - 1) / word_bits;
    if (p->swizzled)
        return stored_swizzled(m, values);
    struct stored s = stored_make(n_lines * n_words * p->word_bytes);
    for (uint64_t line = 0; line < n_lines; line++) {
        for (uint64_t k = 0; k < n_words; k++) {
            uint64_t word = 0, filling = 0;
            for (unsigned j = 0; j < word_bits; j++) {
                uint64_t i = (k * word_bits + j) / p->bits, bit = (k * word_bits + j) % p->bits;
                if (p->n_order > 0)
                    i = k * p->n_order + p->order[j / p->bits];
                const uint64_t code = i < len ? packed_value(p, m, values, line, i) : p->filling;
                word |= (code >> bit & 1) << j;
                filling |= (uint64_t)(i >= len) << j;
            }
            if (p->one_less && word_bits % p->bits == 0) {
                for (unsigned j = 0; j < word_bits; j += p->bits)
                    word -= UINT64_C(1) << j;
            }
            const uint64_t at = p->interleaved ? k * n_lines + line : line * n_words + k;
            for (unsigned b = 0; b < p->word_bytes; b++) {
                s.bytes[at * p->word_bytes + b] = (unsigned char)(word >> 8 * b);
                s.filling[at * p->word_bytes + b] = (unsigned char)(filling >> 8 * b);
                s.line[at * p->word_bytes + b] = line;
            }
        }
    }
    return s;
}

#endif
