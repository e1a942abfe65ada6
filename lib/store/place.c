/*
 * place.c - where the words of a rectangle lie in its stored tensor. Integers only: nothing here
 * touches a value.
 */
#include "place_inner.h"

#include "lib/base/check.h"

/* ---- Lines and words --------------------------------------------------------------------------
 */

/* Values and words after which the bits of a line are at the beginning of a word again. */
struct beat {
    unsigned values, words, word_bits;
};

static struct beat beat_of(const struct qp_place *place)
{
    const unsigned bits = place->bits, word_bits = 8u * place->word_bytes;
    const unsigned common = bits & (0u - bits); /* the greatest divisor: words are a power of two */
    return (struct beat){word_bits / common, bits / common, word_bits};
}

uint64_t qp_word_of(const struct qp_place *place, uint64_t value)
{
    const struct beat beat = beat_of(place);
    return value / beat.values * beat.words + value % beat.values * place->bits / beat.word_bits;
}

unsigned qp_bit_of(const struct qp_place *place, uint64_t value)
{
    const struct beat beat = beat_of(place);
    return (unsigned)(value % beat.values * place->bits % beat.word_bits);
}

uint64_t qp_words_of(const struct qp_place *place, uint64_t n)
{
    return qp_word_of(place, n) + (qp_bit_of(place, n) != 0);
}

struct qp_lines qp_place_lines(const struct qp_place *place, struct qp_matrix matrix,
                               const struct qp_rect *rect)
{
    if (place->columns)
        return (struct qp_lines){rect->col,    rect->n_cols, rect->row,
                                 rect->n_rows, matrix.cols,  matrix.rows};
    return (struct qp_lines){rect->row,    rect->n_rows, rect->col,
                             rect->n_cols, matrix.rows,  matrix.cols};
}

static struct qp_words tiles(struct qp_matrix matrix, const struct qp_rect *rect)
{
    const uint64_t row = rect->row / QP_TILE_ROWS, col = rect->col / QP_TILE_COLS;
    const uint64_t n_rows = qp_div_up(rect->row + rect->n_rows, QP_TILE_ROWS) - row;
    const uint64_t n_cols = qp_div_up(rect->col + rect->n_cols, QP_TILE_COLS) - col;
    return (struct qp_words){
        {row, n_rows, col, n_cols}, qp_div_up(matrix.cols, QP_TILE_COLS), QP_TILE_BYTES};
}

struct qp_words qp_place_words(const struct qp_place *place, struct qp_matrix matrix,
                               const struct qp_rect *rect)
{
    if (rect->n_rows == 0 || rect->n_cols == 0)
        return (struct qp_words){0};
    if (place->swizzled)
        return tiles(matrix, rect);
    const struct qp_lines l = qp_place_lines(place, matrix, rect);
    const uint64_t word = qp_word_of(place, l.value);
    const uint64_t n_words = qp_words_of(place, l.value + l.n_values) - word;
    if (place->interleaved)
        return (struct qp_words){
            {word, n_words, l.line, l.n_lines}, l.all_lines, place->word_bytes};
    return (struct qp_words){
        {l.line, l.n_lines, word, n_words}, qp_words_of(place, l.len), place->word_bytes};
}

/* ---- Bytes and runs ---------------------------------------------------------------------------
 */

uint64_t qp_place_bytes(const struct qp_place *place, struct qp_matrix matrix)
{
    const struct qp_rect all = {0, matrix.rows, 0, matrix.cols};
    const struct qp_words words = qp_place_words(place, matrix, &all);
    uint64_t n;
    if (!qp_mul_u64(words.rect.n_rows, words.rect.n_cols, &n) ||
        !qp_mul_u64(n, words.word_bytes, &n))
        return UINT64_MAX;
    return n;
}

void qp_place_grain(const struct qp_place *place, uint64_t *rows, uint64_t *cols)
{
    const uint64_t values = place->swizzled ? 0 : beat_of(place).values;
    *rows = place->swizzled ? QP_TILE_ROWS : place->columns ? values : 1;
    *cols = place->swizzled ? QP_TILE_COLS : place->columns ? 1 : values;
}

uint64_t qp_place_runs(const struct qp_place *place, struct qp_matrix matrix,
                       const struct qp_rect *rect)
{
    const struct qp_words words = qp_place_words(place, matrix, rect);
    return words.rect.n_cols == words.width ? qp_min_u64(words.rect.n_rows, 1) : words.rect.n_rows;
}

struct qp_place_run qp_place_run(const struct qp_place *place, struct qp_matrix matrix,
                                 const struct qp_rect *rect, uint64_t i)
{
    const struct qp_words words = qp_place_words(place, matrix, rect);
    const struct qp_rect *r = &words.rect;
    const uint64_t n_words = r->n_cols == words.width ? r->n_rows * r->n_cols : r->n_cols;
    return (struct qp_place_run){((r->row + i) * words.width + r->col) * words.word_bytes,
                                 n_words * words.word_bytes};
}

uint64_t qp_place_image_bytes(const struct qp_place *place, struct qp_matrix matrix,
                              const struct qp_rect *rect)
{
    const struct qp_words words = qp_place_words(place, matrix, rect);
    return words.rect.n_rows * words.rect.n_cols * words.word_bytes;
}

/* ---- Flat ranges ------------------------------------------------------------------------------
 */

unsigned qp_flat_rects(const struct qp_flat_range *range, struct qp_rect out[3])
{
    const uint64_t len = range->matrix.cols, end = range->elem + range->n;
    unsigned n_rects = 0;
    for (uint64_t elem = range->elem; elem < end;) {
        const uint64_t col = elem % len, left = end - elem;
        const bool whole = col == 0 && left >= len;
        const uint64_t n_rows = whole ? left / len : 1;
        const uint64_t n_cols = whole ? len : qp_min_u64(len - col, left);
        out[n_rects++] = (struct qp_rect){elem / len, n_rows, col, n_cols};
        elem += n_rows * n_cols;
    }
    return n_rects;
}

struct qp_place_run qp_flat_run(const struct qp_place *place, const struct qp_flat_range *range)
{
    struct qp_rect rects[3];
    struct qp_place_run run = {0, 0};
    const unsigned n_rects = qp_flat_rects(range, rects);
    if (n_rects > 0)
        run.off = qp_place_run(place, range->matrix, &rects[0], 0).off;
    for (unsigned i = 0; i < n_rects; i++)
        run.n_bytes += qp_place_image_bytes(place, range->matrix, &rects[i]);
    return run;
}
