/*
 * place_down.c - words of 4 bytes that go down columns: a row of values has the same bits of
 * neighbouring words, so a word is made of whole rows, many columns at once.
 */
#include "place_inner.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/check.h"

#include <string.h>

#define COLS  64 /* columns at once; with as many words of each as make a line of the cache */
#define WORDS 16

#define WORD_BYTES sizeof(uint32_t)
#define MOST_SLOTS 32

bool qp_is_down(const struct qp_place *place)
{
    return place->columns && place->word_bytes == WORD_BYTES && place->bits <= 8 &&
           32 % place->bits == 0 && place->filling == 0;
}

/* What becomes of the values of a word. */
struct slots {
    unsigned n;
    unsigned shift[MOST_SLOTS]; /* of each value, in the order of rows */
    uint64_t lanes;             /* the bits of a value in each of 8 bytes */
    uint32_t mask, half, ones;  /* of a value; to turn over in each; to subtract from each */
    uint8_t sign;               /* that of a value; 0 without */
};

static struct slots slots_of(const struct qp_place *place)
{
    const unsigned bits = place->bits, top = 1u << (bits - 1);
    struct slots s = {.n = 32 / bits, .mask = (1u << bits) - 1};
    const uint32_t each = UINT32_MAX / s.mask;
    for (unsigned k = 0; k < s.n; k++)
        s.shift[place->n_order ? place->order[k] : k] = k * bits;
    s.lanes = 0x0101010101010101u * (uint64_t)s.mask;
    s.half = place->half_added ? each * top : 0;
    s.ones = place->one_less ? each : 0;
    s.sign = (uint8_t)(place->is_signed ? top : 0);
    return s;
}

/* The bits of the first n values of a word. */
static uint32_t bits_of_first(const struct slots *s, size_t n)
{
    uint32_t bits = 0;
    for (size_t k = 0; k < n; k++)
        bits |= s->mask << s->shift[k];
    return bits;
}

/* ---- Putting ----------------------------------------------------------------------------------
 */

/* n_rows values of each of n_cols columns to a word of each; of the others a word of anything. */
static void pack_word(const struct slots *s, const uint8_t *values, size_t stride, size_t n_rows,
                      size_t n_cols, uint8_t *words)
{
    const uint32_t flip = s->half & bits_of_first(s, n_rows), ones = s->ones;
    const uint64_t lanes = s->lanes;
    uint8_t bytes[WORD_BYTES][COLS] = {{0}}, few[COLS] = {0};
    for (size_t k = 0; k < n_rows; k++) {
        const uint8_t *row = values + k * stride;
        uint8_t *to = bytes[s->shift[k] / 8];
        const unsigned shift = s->shift[k] % 8;
        if (n_cols < COLS)
            row = memcpy(few, row, n_cols);
        for (size_t i = 0; i < COLS; i += 8)
            qp_put64(to + i, qp_get64(to + i) | (qp_get64(row + i) & lanes) << shift);
    }
    for (size_t c = 0; c < COLS; c++) {
        const uint32_t word = bytes[0][c] | (uint32_t)bytes[1][c] << 8 |
                              (uint32_t)bytes[2][c] << 16 | (uint32_t)bytes[3][c] << 24;
        qp_put32(words + c * WORD_BYTES, (word ^ flip) - ones);
    }
}

void qp_down_put(const struct qp_down *d, const uint8_t *values, uint8_t *image)
{
    const struct slots s = slots_of(d->place);
    const size_t n_words = (size_t)qp_div_up(d->n_rows, s.n);
    uint8_t words[WORDS][COLS * WORD_BYTES];
    for (size_t col = 0; col < d->n_cols; col += COLS) {
        const size_t n_cols = (size_t)qp_min_u64(COLS, d->n_cols - col);
        for (size_t word = 0; word < n_words; word += WORDS) {
            const size_t n = (size_t)qp_min_u64(WORDS, n_words - word);
            for (size_t i = 0; i < n; i++) {
                const size_t row = (word + i) * s.n;
                pack_word(&s, values + row * d->value_stride + col, d->value_stride,
                          (size_t)qp_min_u64(s.n, d->n_rows - row), n_cols, words[i]);
            }
            for (size_t i = 0; d->place->interleaved && i < n; i++)
                memcpy(image + (word + i) * d->image_stride + col * WORD_BYTES, words[i],
                       n_cols * WORD_BYTES);
            if (!d->place->interleaved)
                qp_turn(WORD_BYTES, &(struct qp_turn){n, n_cols, sizeof words[0], d->image_stride},
                        words, image + col * d->image_stride + word * WORD_BYTES);
        }
    }
}

/* ---- Getting ----------------------------------------------------------------------------------
 */

/* Values of a word of each of n_cols columns: n_rows of them from the first on. */
static void unpack_word(const struct slots *s, const uint8_t *words, size_t first, size_t n_rows,
                        size_t n_cols, uint8_t *values, size_t stride)
{
    const uint32_t ones = s->ones, half = s->half;
    const uint64_t lanes = s->lanes;
    uint8_t bytes[WORD_BYTES][COLS], few[COLS];
    for (size_t c = 0; c < COLS; c++) {
        const uint32_t word = (qp_get32(words + c * WORD_BYTES) + ones) ^ half;
        bytes[0][c] = (uint8_t)word;
        bytes[1][c] = (uint8_t)(word >> 8);
        bytes[2][c] = (uint8_t)(word >> 16);
        bytes[3][c] = (uint8_t)(word >> 24);
    }
    for (size_t k = 0; k < n_rows; k++) {
        const uint8_t *from = bytes[s->shift[first + k] / 8];
        const unsigned shift = s->shift[first + k] % 8;
        uint8_t *row = n_cols < COLS ? few : values + k * stride;
        for (size_t i = 0; i < COLS; i += 8)
            qp_put64(row + i, qp_get64(from + i) >> shift & lanes);
        for (size_t i = 0; s->sign && i < COLS; i++)
            row[i] = (uint8_t)((row[i] ^ s->sign) - s->sign);
        if (n_cols < COLS)
            memcpy(values + k * stride, few, n_cols);
    }
}

/* How many of the words have bits set behind the last of their values. */
static uint64_t count_ragged(const struct slots *s, const uint8_t *words, size_t n_cols,
                             size_t n_rows)
{
    const uint32_t behind = ~bits_of_first(s, n_rows);
    uint64_t n = 0;
    for (size_t c = 0; c < n_cols; c++)
        n += ((qp_get32(words + c * WORD_BYTES) + s->ones) & behind) != 0;
    return n;
}

/* Lines that are turned next come one by one, from far apart: no CPU guesses which. */
static void ask_for(const struct qp_down *d, const uint8_t *image, size_t col, size_t word)
{
    const size_t end = (size_t)qp_min_u64(col + COLS, d->n_cols);
    for (; col < end; col++)
        __builtin_prefetch(image + col * d->image_stride + word * WORD_BYTES);
}

uint64_t qp_down_get(const struct qp_down *d, const uint8_t *image, uint8_t *values)
{
    const struct slots s = slots_of(d->place);
    const uint64_t end = d->row + d->n_rows, first_word = d->row / s.n;
    const size_t n_words = (size_t)(qp_div_up(end, s.n) - first_word);
    const size_t in_last = (size_t)(end == d->all_rows ? end % s.n : 0);
    uint8_t words[WORDS][COLS * WORD_BYTES] = {{0}};
    uint64_t n_ragged = 0;
    for (size_t col = 0; col < d->n_cols; col += COLS) {
        const size_t n_cols = (size_t)qp_min_u64(COLS, d->n_cols - col);
        for (size_t word = 0; word < n_words; word += WORDS) {
            const size_t n = (size_t)qp_min_u64(WORDS, n_words - word);
            if (!d->place->interleaved)
                ask_for(d, image, col + COLS, word);
            for (size_t i = 0; d->place->interleaved && i < n; i++)
                memcpy(words[i], image + (word + i) * d->image_stride + col * WORD_BYTES,
                       n_cols * WORD_BYTES);
            if (!d->place->interleaved)
                qp_turn(WORD_BYTES, &(struct qp_turn){n_cols, n, d->image_stride, sizeof words[0]},
                        image + col * d->image_stride + word * WORD_BYTES, words);
            for (size_t i = 0; i < n; i++) {
                const uint64_t begin = (first_word + word + i) * s.n;
                const uint64_t row = qp_max_u64(begin, d->row);
                unpack_word(&s, words[i], (size_t)(row - begin),
                            (size_t)(qp_min_u64(begin + s.n, end) - row), n_cols,
                            values + (size_t)(row - d->row) * d->value_stride + col,
                            d->value_stride);
            }
            if (word + n == n_words && in_last)
                n_ragged += count_ragged(&s, words[n - 1], n_cols, in_last);
        }
    }
    return n_ragged;
}
