/*
 * place_inner.h - what the files of the place module share: where words lie (place.c), how the
 * values of one line become words (place_line.c), words that go down columns (place_down.c), and
 * swizzled tiles (place_tiles.c).
 */
#ifndef QP_STORE_PLACE_INNER_H
#define QP_STORE_PLACE_INNER_H

#include "kernels/kernel.h"
#include "place.h"

/* ---- Where words lie --------------------------------------------------------------------------
 */

/* A rectangle seen along its lines: which lines, and which values of each. */
struct qp_lines {
    uint64_t line, n_lines, value, n_values;
    uint64_t all_lines, len; /* of the matrix: its lines, and the values of one */
};

struct qp_lines qp_place_lines(const struct qp_place *place, struct qp_matrix matrix,
                               const struct qp_rect *rect);

/* The word of a line that holds the first bit of a value, and which of its bits that is. */
uint64_t qp_word_of(const struct qp_place *place, uint64_t value);
unsigned qp_bit_of(const struct qp_place *place, uint64_t value);

/* How many words the first n values of a line fill, the last perhaps not wholly. */
uint64_t qp_words_of(const struct qp_place *place, uint64_t n);

/* A swizzled tile, which counts as a word. */
#define QP_TILE_ROWS  128
#define QP_TILE_COLS  4
#define QP_TILE_BYTES (QP_TILE_ROWS * QP_TILE_COLS)

/* The stored tensor is a matrix of words; those of a rectangle are a rectangle of it. */
struct qp_words {
    struct qp_rect rect;
    uint64_t width; /* words in a row of the stored tensor */
    uint64_t word_bytes;
};

struct qp_words qp_place_words(const struct qp_place *place, struct qp_matrix matrix,
                               const struct qp_rect *rect);

/* ---- Values of one line, of at most 8 bits ------------------------------------------------------
 */

/*
 * Packs n values, from the beginning of a word on, to the whole words that hold them. words may be
 * values, or lie before them, if the words have no more bytes than there are values.
 */
void qp_line_pack(const struct qp_place *place, const struct qp_code_kernels *kernels,
                  const uint8_t *values, size_t n, uint8_t *words);

/* Unpacks n values from the given bit of words on. */
void qp_line_unpack(const struct qp_place *place, const struct qp_code_kernels *kernels,
                    const uint8_t *words, unsigned bit, size_t n, uint8_t *values);

/* Whether the last word of a line of len values has other filling than qp_line_pack gives it. */
bool qp_line_is_ragged(const struct qp_place *place, uint64_t len, const uint8_t *last_word);

/* ---- Turning ----------------------------------------------------------------------------------
 */

/* Element (r, c) becomes element (c, r). */
struct qp_turn {
    size_t n_rows, n_cols;         /* before it */
    size_t from_stride, to_stride; /* bytes from one row to the next */
};

/* Turns elements of 1, 2, 4 or 8 bytes. */
void qp_turn(size_t size, const struct qp_turn *turn, const void *from, void *to);

/* ---- Words that go down columns ---------------------------------------------------------------
 */

/* Whether a place has words of 4 bytes with whole values of a column, and nothing else in them. */
bool qp_is_down(const struct qp_place *place);

/* A rectangle of such a place on its way: which rows of the matrix, and how far rows are apart. */
struct qp_down {
    const struct qp_place *place;
    uint64_t row, n_rows, all_rows;
    size_t n_cols;
    size_t value_stride, image_stride; /* bytes from a row of values, or of words, to the next */
};

/* What qp_place_put and qp_place_get do where words go down columns. */
void qp_down_put(const struct qp_down *down, const uint8_t *values, uint8_t *image);
uint64_t qp_down_get(const struct qp_down *down, const uint8_t *image, uint8_t *values);

/* ---- Swizzled tiles ---------------------------------------------------------------------------
 */

/* What qp_place_put and qp_place_get do where a place is swizzled; words are those of rect. */
void qp_tiles_put(const struct qp_words *words, const struct qp_rect *rect, const uint8_t *values,
                  uint8_t *image);
uint64_t qp_tiles_get(const struct qp_words *words, struct qp_matrix matrix,
                      const struct qp_rect *rect, const uint8_t *image, uint8_t *values);

#endif
