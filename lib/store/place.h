/*
 * place.h - packing, unpacking and transposing rectangles of a matrix: the one module that does.
 * Works in memory; what a rectangle is in a file is a list of runs, which the caller reads or
 * writes.
 *
 * The image of a rectangle is the words that hold its values, as they are stored: its runs behind
 * each other. A rectangle that is put must begin and end at whole words along its lines
 * (qp_place_grain), but for the end of a line. One that is got may be anywhere: its image then has
 * whole words.
 */
#ifndef QP_STORE_PLACE_H
#define QP_STORE_PLACE_H

#include "lib/model/tensor.h"

/* Bytes of the whole stored tensor. */
uint64_t qp_place_bytes(const struct qp_place *place, struct qp_matrix matrix);

/*
 * Rectangles that share no word: those whose first row and column are multiples of these, and that
 * end at such multiples or with the matrix.
 */
void qp_place_grain(const struct qp_place *place, struct qp_matrix matrix, uint64_t *rows,
                    uint64_t *cols);

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
 * bits count. Where lines are rows that are not interleaved, image may be values itself: packing
 * never writes over a value that is still to be read. Otherwise they must not overlap.
 */
void qp_place_put(const struct qp_place *place, struct qp_matrix matrix, const struct qp_rect *rect,
                  enum qplan_isa isa, const void *values, void *image);

/*
 * The values of a rectangle from its image. Returns how many of its lines, of those that end in it,
 * have filling bits that are not 0. values may overlap the image only as kernels/kernel.h says of
 * unpack4.
 */
uint64_t qp_place_get(const struct qp_place *place, struct qp_matrix matrix,
                      const struct qp_rect *rect, enum qplan_isa isa, const void *image,
                      void *values);

/* A range of a matrix in flat order, as at most three rectangles one behind the other: how many. */
unsigned qp_flat_rects(struct qp_matrix matrix, uint64_t elem, uint64_t n, struct qp_rect out[3]);

#endif
