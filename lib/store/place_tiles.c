/*
 * place_tiles.c - swizzled matrices of bytes: tiles of 128 rows and 4 columns, as cuBLAS reads
 * block scales, with zeros where a tile reaches over the edge.
 */
#include "place_inner.h"

#include "lib/base/check.h"

#include <string.h>

/* The byte of the image for an element of the matrix, or of what fills it up to whole tiles. */
static size_t swizzled(const struct qp_words *words, uint64_t row, uint64_t col)
{
    const uint64_t tile = (row / QP_TILE_ROWS - words->rect.row) * words->rect.n_cols +
                          col / QP_TILE_COLS - words->rect.col;
    const uint64_t r = row % QP_TILE_ROWS, c = col % QP_TILE_COLS;
    return (size_t)(tile * QP_TILE_BYTES + r % 32 * 16 + r / 32 * 4 + c);
}

/* Bytes of a row from a column on that are in one tile, and so behind each other. */
static size_t in_tile(uint64_t col, uint64_t end)
{
    return (size_t)qp_min_u64(QP_TILE_COLS - col % QP_TILE_COLS, end - col);
}

void qp_tiles_put(const struct qp_words *words, const struct qp_rect *rect, const uint8_t *values,
                  uint8_t *image)
{
    const uint64_t row_end = rect->row + rect->n_rows, col_end = rect->col + rect->n_cols;
    memset(image, 0, (size_t)(words->rect.n_rows * words->rect.n_cols) * QP_TILE_BYTES);
    for (uint64_t row = rect->row; row < row_end; row++) {
        for (uint64_t col = rect->col; col < col_end;) {
            const size_t n = in_tile(col, col_end);
            memcpy(image + swizzled(words, row, col), values, n);
            values += n;
            col += n;
        }
    }
}

/* Whether a row has bytes that are not 0 among those from a column to another. */
static bool is_ragged(const struct qp_words *words, const uint8_t *image, uint64_t row,
                      uint64_t col, uint64_t end)
{
    for (; col < end; col++) {
        if (image[swizzled(words, row, col)] != 0)
            return true;
    }
    return false;
}

uint64_t qp_tiles_get(const struct qp_words *words, struct qp_matrix matrix,
                      const struct qp_rect *rect, const uint8_t *image, uint8_t *values)
{
    const uint64_t row_end = rect->row + rect->n_rows, col_end = rect->col + rect->n_cols;
    const uint64_t stored_rows = (words->rect.row + words->rect.n_rows) * QP_TILE_ROWS;
    const uint64_t stored_cols = (words->rect.col + words->rect.n_cols) * QP_TILE_COLS;
    const uint64_t last_row = row_end == matrix.rows ? stored_rows : row_end;
    const uint64_t last_col = col_end == matrix.cols ? stored_cols : col_end;
    uint64_t n_ragged = 0;
    for (uint64_t row = rect->row; row < row_end; row++) {
        for (uint64_t col = rect->col; col < col_end;) {
            const size_t n = in_tile(col, col_end);
            memcpy(values, image + swizzled(words, row, col), n);
            values += n;
            col += n;
        }
        n_ragged += is_ragged(words, image, row, col_end, last_col);
    }
    for (uint64_t row = row_end; row < last_row; row++)
        n_ragged += is_ragged(words, image, row, rect->col, last_col);
    return n_ragged;
}
