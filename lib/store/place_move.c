/*
 * place_move.c - rectangles of values to their images and back: as they are, row by row, or block
 * by block where values or words must be turned.
 */
#include "place_inner.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/check.h"

#include <string.h>

/* A rectangle on its way. */
struct move {
    const struct qp_place *place;
    const struct qp_code_kernels *kernels;
    struct qp_lines lines;
    struct qp_words words;
    size_t value_stride, image_stride; /* bytes from a row of values, or of words, to the next */
    size_t image_at;                   /* where in the image the words of the rectangle begin */
};

static struct move move_of(const struct qp_place *place, struct qp_matrix matrix,
                           const struct qp_rect *around, const struct qp_rect *rect,
                           enum qplan_isa isa)
{
    const struct qp_words words = qp_place_words(place, matrix, around);
    const struct qp_words inner = qp_place_words(place, matrix, rect);
    const size_t stride = (size_t)(words.rect.n_cols * words.word_bytes);
    return (struct move){place,
                         qp_code_kernels(isa),
                         qp_place_lines(place, matrix, rect),
                         words,
                         (size_t)rect->n_cols,
                         stride,
                         (size_t)(inner.rect.row - words.rect.row) * stride +
                             (size_t)((inner.rect.col - words.rect.col) * words.word_bytes)};
}

/* ---- Turning ----------------------------------------------------------------------------------
 */

#define SIDE 8 /* of the squares that are turned at once, with few cache lines */

/* A square of bytes in registers: halves of it change places, then halves of those, twice. */
static inline void turn_bytes(const struct qp_turn *t, const uint8_t *from, uint8_t *to)
{
    uint64_t rows[SIDE];
    for (size_t r = 0; r < SIDE; r++)
        rows[r] = qp_get64(from + r * t->from_stride);
    for (unsigned half = SIDE / 2; half > 0; half /= 2) {
        const uint64_t left = UINT64_MAX / ((UINT64_C(1) << 8 * half) + 1);
        for (size_t r = 0; r < SIDE; r++) {
            if (r & half)
                continue;
            const uint64_t change = (rows[r] >> 8 * half ^ rows[r + half]) & left;
            rows[r] ^= change << 8 * half;
            rows[r + half] ^= change;
        }
    }
    for (size_t c = 0; c < SIDE; c++)
        qp_put64(to + c * t->to_stride, rows[c]);
}

/* Words of 4 bytes, two by two of them in registers: numbers of both are even. */
static inline void turn_words(const struct qp_turn *t, size_t n_rows, size_t n_cols,
                              const uint8_t *from, uint8_t *to)
{
    for (size_t r = 0; r < n_rows; r += 2) {
        for (size_t c = 0; c < n_cols; c += 2) {
            const uint64_t above = qp_get64(from + r * t->from_stride + 4 * c);
            const uint64_t below = qp_get64(from + (r + 1) * t->from_stride + 4 * c);
            qp_put64(to + c * t->to_stride + 4 * r, (above & UINT32_MAX) | below << 32);
            qp_put64(to + (c + 1) * t->to_stride + 4 * r, above >> 32 | below >> 32 << 32);
        }
    }
}

static inline void turn_square(size_t size, const struct qp_turn *t, size_t row, size_t col,
                               const uint8_t *from, uint8_t *to)
{
    const size_t n_rows = (size_t)qp_min_u64(SIDE, t->n_rows - row);
    const size_t n_cols = (size_t)qp_min_u64(SIDE, t->n_cols - col);
    const uint8_t *square = from + row * t->from_stride + col * size;
    uint8_t *turned = to + col * t->to_stride + row * size;
    if (size == 1 && n_rows == SIDE && n_cols == SIDE) {
        turn_bytes(t, square, turned);
        return;
    }
    if (size == 4 && n_rows % 2 == 0 && n_cols % 2 == 0) {
        turn_words(t, n_rows, n_cols, square, turned);
        return;
    }
    for (size_t c = 0; c < n_cols; c++) {
        for (size_t r = 0; r < n_rows; r++)
            memcpy(turned + c * t->to_stride + r * size, square + r * t->from_stride + c * size,
                   size);
    }
}

/* Squares go along the rows that are further apart, so that each line of the cache is done once. */
static inline void turn_sized(size_t size, const struct qp_turn *t, const uint8_t *from,
                              uint8_t *to)
{
    if (t->from_stride >= t->to_stride) {
        for (size_t row = 0; row < t->n_rows; row += SIDE) {
            for (size_t col = 0; col < t->n_cols; col += SIDE)
                turn_square(size, t, row, col, from, to);
        }
        return;
    }
    for (size_t col = 0; col < t->n_cols; col += SIDE) {
        for (size_t row = 0; row < t->n_rows; row += SIDE)
            turn_square(size, t, row, col, from, to);
    }
}

/* Each size has a loop of its own. */
void qp_turn(size_t size, const struct qp_turn *t, const void *from, void *to)
{
    if (size == 1)
        turn_sized(1, t, from, to);
    else if (size == 2)
        turn_sized(2, t, from, to);
    else if (size == 4)
        turn_sized(4, t, from, to);
    else
        turn_sized(8, t, from, to);
}

/* ---- Whole values -----------------------------------------------------------------------------
 */

/* Whether a value is a word, and stored as it is. */
static bool is_whole(const struct qp_place *place)
{
    return place->bits == 8 * place->word_bytes && !place->half_added && !place->one_less;
}

/* Whole values to words, or words to values: rows of elements become columns, or stay rows. */
static void move_whole(const struct qp_place *place, const struct qp_turn *t, const void *from,
                       void *to)
{
    const size_t size = place->word_bytes, n_bytes = t->n_cols * size;
    if (place->columns != place->interleaved)
        qp_turn(size, t, from, to);
    else if (n_bytes == t->from_stride && n_bytes == t->to_stride)
        memmove(to, from, t->n_rows * n_bytes);
    else
        for (size_t row = 0; row < t->n_rows; row++)
            memmove((char *)to + row * t->to_stride, (const char *)from + row * t->from_stride,
                    n_bytes);
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

static void put_rows(const struct move *m, const uint8_t *values, uint8_t *image)
{
    for (size_t row = 0; row < m->lines.n_lines; row++)
        qp_line_pack(m->place, m->kernels, values + row * m->value_stride, m->value_stride,
                     image + row * m->image_stride);
}

static uint64_t get_rows(const struct move *m, const uint8_t *image, uint8_t *values)
{
    const struct qp_lines *l = &m->lines;
    const unsigned bit = qp_bit_of(m->place, l->value);
    const bool filled = l->value + l->n_values == l->len && qp_bit_of(m->place, l->len) != 0;
    const size_t n_words =
        (size_t)(qp_words_of(m->place, l->value + l->n_values) - qp_word_of(m->place, l->value));
    uint64_t n_ragged = 0;
    for (size_t row = 0; row < l->n_lines; row++) {
        const uint8_t *words = image + row * m->image_stride;
        const uint8_t *last = words + (n_words - 1) * m->place->word_bytes;
        n_ragged += filled && qp_line_is_ragged(m->place, l->len, last);
        qp_line_unpack(m->place, m->kernels, words, bit, m->value_stride,
                       values + row * m->value_stride);
    }
    return n_ragged;
}

/* ---- Blocks -----------------------------------------------------------------------------------
 */

/*
 * Where lines are columns, or words of lines are interleaved, a block of lines is turned in a
 * buffer: values before they are packed, words after. Of 4-bit values a block is 64 bytes wide both
 * ways, which is what memory moves at once.
 */
#define LINES  64
#define VALUES 128 /* a multiple of the values after which a line is at a whole word again */

struct block {
    size_t line, n_lines;   /* of those of the rectangle */
    size_t value, n_values; /* of each line */
    size_t word, n_words;   /* of each line */
    unsigned bit;           /* of the first word, where the first value begins */
    bool ends;              /* with its lines */
};

/* The block after this one, first along the lines; before the first comes one of zeros. */
static bool next_block(const struct move *m, struct block *b)
{
    const struct qp_lines *l = &m->lines;
    b->value += b->n_values;
    if (b->value == l->n_values) {
        b->value = 0;
        b->line += b->n_lines;
    }
    const uint64_t value = l->value + b->value, word = qp_word_of(m->place, value);
    b->n_lines = (size_t)qp_min_u64(LINES, l->n_lines - b->line);
    b->n_values = (size_t)qp_min_u64(VALUES - value % VALUES, l->n_values - b->value);
    b->word = (size_t)(word - qp_word_of(m->place, l->value));
    b->n_words = (size_t)(qp_words_of(m->place, value + b->n_values) - word);
    b->bit = qp_bit_of(m->place, value);
    b->ends = value + b->n_values == l->len;
    return b->n_lines > 0;
}

/* The first byte of a block in the values, and in the image. */
static size_t value_at(const struct move *m, const struct block *b)
{
    return m->place->columns ? b->value * m->value_stride + b->line
                             : b->line * m->value_stride + b->value;
}

static size_t image_at(const struct move *m, const struct block *b)
{
    const size_t size = m->place->word_bytes;
    return m->place->interleaved ? b->word * m->image_stride + b->line * size
                                 : b->line * m->image_stride + b->word * size;
}

static void put_blocks(const struct move *m, const uint8_t *values, uint8_t *image)
{
    const bool turn_values = m->place->columns, turn_words = m->place->interleaved;
    const size_t line_stride = turn_values ? VALUES : m->value_stride;
    const size_t word_stride = turn_words ? VALUES : m->image_stride;
    uint8_t lines[LINES * VALUES], words[LINES * VALUES];
    for (struct block b = {0}; next_block(m, &b);) {
        const uint8_t *from = values + value_at(m, &b);
        uint8_t *to = image + image_at(m, &b), *packed = turn_words ? words : to;
        if (turn_values) {
            qp_turn(1, &(struct qp_turn){b.n_values, b.n_lines, m->value_stride, VALUES}, from,
                    lines);
            from = lines;
        }
        for (size_t i = 0; i < b.n_lines; i++)
            qp_line_pack(m->place, m->kernels, from + i * line_stride, b.n_values,
                         packed + i * word_stride);
        if (turn_words)
            qp_turn(m->place->word_bytes,
                    &(struct qp_turn){b.n_lines, b.n_words, VALUES, m->image_stride}, words, to);
    }
}

static uint64_t get_blocks(const struct move *m, const uint8_t *image, uint8_t *values)
{
    const bool turn_values = m->place->columns, turn_words = m->place->interleaved;
    const size_t size = m->place->word_bytes;
    const size_t line_stride = turn_values ? VALUES : m->value_stride;
    const size_t word_stride = turn_words ? VALUES : m->image_stride;
    uint8_t lines[LINES * VALUES], words[LINES * VALUES];
    uint64_t n_ragged = 0;
    for (struct block b = {0}; next_block(m, &b);) {
        const uint8_t *from = image + image_at(m, &b);
        uint8_t *to = values + value_at(m, &b), *unpacked = turn_values ? lines : to;
        if (turn_words) {
            qp_turn(size, &(struct qp_turn){b.n_words, b.n_lines, m->image_stride, VALUES}, from,
                    words);
            from = words;
        }
        for (size_t i = 0; i < b.n_lines; i++) {
            const uint8_t *line = from + i * word_stride, *last = line + (b.n_words - 1) * size;
            n_ragged += b.ends && qp_line_is_ragged(m->place, m->lines.len, last);
            qp_line_unpack(m->place, m->kernels, line, b.bit, b.n_values,
                           unpacked + i * line_stride);
        }
        if (turn_values)
            qp_turn(1, &(struct qp_turn){b.n_lines, b.n_values, VALUES, m->value_stride}, lines,
                    to);
    }
    return n_ragged;
}

/* ---- Rectangles -------------------------------------------------------------------------------
 */

static struct qp_down down_of(const struct move *m, struct qp_matrix matrix,
                              const struct qp_rect *rect)
{
    return (struct qp_down){m->place,        rect->row,       rect->n_rows,   matrix.rows,
                            m->value_stride, m->value_stride, m->image_stride};
}

void qp_place_put_in(const struct qp_place *place, struct qp_matrix matrix,
                     const struct qp_rect *around, const struct qp_rect *rect, enum qplan_isa isa,
                     const void *values, void *image)
{
    if (rect->n_rows == 0 || rect->n_cols == 0)
        return;
    const struct move m = move_of(place, matrix, around, rect, isa);
    uint8_t *to = (uint8_t *)image + m.image_at;
    if (place->swizzled) {
        qp_tiles_put(&m.words, rect, values, to);
    } else if (is_whole(place)) {
        const size_t value_stride = m.value_stride * place->word_bytes;
        move_whole(
            place,
            &(struct qp_turn){(size_t)rect->n_rows, m.value_stride, value_stride, m.image_stride},
            values, to);
    } else if (qp_is_down(place)) {
        const struct qp_down down = down_of(&m, matrix, rect);
        qp_down_put(&down, values, to);
    } else if (place->columns || place->interleaved) {
        put_blocks(&m, values, to);
    } else {
        put_rows(&m, values, to);
    }
}

uint64_t qp_place_get_in(const struct qp_place *place, struct qp_matrix matrix,
                         const struct qp_rect *around, const struct qp_rect *rect,
                         enum qplan_isa isa, const void *image, void *values)
{
    if (rect->n_rows == 0 || rect->n_cols == 0)
        return 0;
    const struct move m = move_of(place, matrix, around, rect, isa);
    const uint8_t *from = (const uint8_t *)image + m.image_at;
    if (place->swizzled)
        return qp_tiles_get(&m.words, matrix, rect, from, values);
    if (is_whole(place)) {
        const bool is_turned = place->columns != place->interleaved;
        const size_t n_rows = (size_t)(is_turned ? rect->n_cols : rect->n_rows);
        const size_t n_cols = (size_t)(is_turned ? rect->n_rows : rect->n_cols);
        move_whole(
            place,
            &(struct qp_turn){n_rows, n_cols, m.image_stride, m.value_stride * place->word_bytes},
            from, values);
        return 0;
    }
    if (qp_is_down(place)) {
        const struct qp_down down = down_of(&m, matrix, rect);
        return qp_down_get(&down, from, values);
    }
    return place->columns || place->interleaved ? get_blocks(&m, from, values)
                                                : get_rows(&m, from, values);
}

void qp_place_put(const struct qp_place *place, struct qp_matrix matrix, const struct qp_rect *rect,
                  enum qplan_isa isa, const void *values, void *image)
{
    qp_place_put_in(place, matrix, rect, rect, isa, values, image);
}

uint64_t qp_place_get(const struct qp_place *place, struct qp_matrix matrix,
                      const struct qp_rect *rect, enum qplan_isa isa, const void *image,
                      void *values)
{
    return qp_place_get_in(place, matrix, rect, rect, isa, image, values);
}

/* ---- Flat ranges ------------------------------------------------------------------------------
 */

static size_t value_bytes(const struct qp_place *place)
{
    return place->bits > 8 ? place->bits / 8 : 1;
}

void qp_flat_put(const struct qp_place *place, const struct qp_flat_range *range,
                 enum qplan_isa isa, const void *values, void *image)
{
    const uint8_t *from = values;
    uint8_t *to = image;
    struct qp_rect rects[3];
    const unsigned n = qp_flat_rects(range, rects);
    for (unsigned i = 0; i < n; i++) {
        qp_place_put(place, range->matrix, &rects[i], isa, from, to);
        from += (size_t)(rects[i].n_rows * rects[i].n_cols) * value_bytes(place);
        to += qp_place_image_bytes(place, range->matrix, &rects[i]);
    }
}

uint64_t qp_flat_get(const struct qp_place *place, const struct qp_flat_range *range,
                     enum qplan_isa isa, const void *image, void *values)
{
    const uint8_t *from = image;
    uint8_t *to = values;
    uint64_t n_ragged = 0;
    struct qp_rect rects[3];
    const unsigned n = qp_flat_rects(range, rects);
    for (unsigned i = 0; i < n; i++) {
        n_ragged += qp_place_get(place, range->matrix, &rects[i], isa, from, to);
        from += qp_place_image_bytes(place, range->matrix, &rects[i]);
        to += (size_t)(rects[i].n_rows * rects[i].n_cols) * value_bytes(place);
    }
    return n_ragged;
}
