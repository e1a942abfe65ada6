/*
 * place.h - packing, unpacking and transposing rectangles of a matrix: the one module that does.
 * Works in memory; what a rectangle is in a file is a list of runs, which the caller reads or
 * writes.
 *
 * The image of a rectangle is the words that hold its values, as they are stored: its runs behind
 * each other. A rectangle that is put must begin and end at whole words along its lines
 * (qp_place_grain), but for the end of a line. One that is got may be anywhere: its image then has
 * whole words.
 *
 * A matrix has at most 2^62 values, and its stored tensor fewer than 2^63 bytes: only
 * qp_place_bytes may be asked where that is not known.
 */
#ifndef QP_STORE_PLACE_H
#define QP_STORE_PLACE_H

#include "lib/model/tensor.h"

/* Bytes of the whole stored tensor; UINT64_MAX if there are more. */
uint64_t qp_place_bytes(const struct qp_place *place, struct qp_matrix matrix);

/*
 * Rectangles that share no word: those whose first row and column are multiples of these, and that
 * end at such multiples or with the matrix.
 */
void qp_place_grain(const struct qp_place *place, uint64_t *rows, uint64_t *cols);

/* A run of a rectangle: bytes of the stored tensor that lie behind each other. */
struct qp_place_run {
    uint64_t off, n_bytes;
};

/* How many runs a rectangle has, the i-th of them, and the bytes of all. */
uint64_t qp_place_runs(const struct qp_place *place, struct qp_matrix matrix,
                       const struct qp_rect *rect);
struct qp_place_run qp_place_run(const struct qp_place *place, struct qp_matrix matrix,
                                 const struct qp_rect *rect, uint64_t i);
uint64_t qp_place_image_bytes(const struct qp_place *place, struct qp_matrix matrix,
                              const struct qp_rect *rect);

/*
 * The image of a rectangle from its values, row by row and contiguous. Of a value only its lowest
 * bits count. Where lines are rows that are not interleaved, and the image of a row has no more
 * bytes than its values, image may be values itself, or lie before them: packing never writes over
 * a value that is still to be read. Otherwise they must not overlap.
 */
void qp_place_put(const struct qp_place *place, struct qp_matrix matrix, const struct qp_rect *rect,
                  enum qplan_isa isa, const void *values, void *image);

/*
 * The values of a rectangle from its image. Returns how many of its lines, of those that end in it,
 * have filling that is not as qp_place_put makes it; of a swizzled matrix, how many rows have
 * filling that is not 0 in or behind the columns of the rectangle, those that fill up the matrix
 * behind its last row included. values may overlap the image only as kernels/kernel.h says of
 * unpack4.
 */
uint64_t qp_place_get(const struct qp_place *place, struct qp_matrix matrix,
                      const struct qp_rect *rect, enum qplan_isa isa, const void *image,
                      void *values);

/*
 * A rectangle of a place that is not swizzled, in the image of one around it: values are put to
 * where its words are, and got from there. Words that it has only a part of must not be put.
 */
void qp_place_put_in(const struct qp_place *place, struct qp_matrix matrix,
                     const struct qp_rect *around, const struct qp_rect *rect, enum qplan_isa isa,
                     const void *values, void *image);
uint64_t qp_place_get_in(const struct qp_place *place, struct qp_matrix matrix,
                         const struct qp_rect *around, const struct qp_rect *rect,
                         enum qplan_isa isa, const void *image, void *values);

/* ---- Flat ranges ------------------------------------------------------------------------------
 */

/* n elements of a matrix in flat order. */
struct qp_flat_range {
    struct qp_matrix matrix;
    uint64_t elem, n;
};

/* A range as at most three rectangles one behind the other: how many. */
unsigned qp_flat_rects(const struct qp_flat_range *range, struct qp_rect out[3]);

/*
 * Where lines are rows that are not interleaved, the image of a range is one run. qp_flat_put and
 * qp_flat_get do with it what qp_place_put and qp_place_get do with rectangles; values and image
 * may overlap likewise if words are bytes.
 */
struct qp_place_run qp_flat_run(const struct qp_place *place, const struct qp_flat_range *range);
void qp_flat_put(const struct qp_place *place, const struct qp_flat_range *range,
                 enum qplan_isa isa, const void *values, void *image);
uint64_t qp_flat_get(const struct qp_place *place, const struct qp_flat_range *range,
                     enum qplan_isa isa, const void *image, void *values);

#endif
