/*
 * mlx.h - the layout of MLX, which mlx-lm and LM Studio load.
 *
 * A weight M.weight of any layer is M.weight, codes in words of 32 bits, M.scales and M.biases: a
 * code q stands for scale * q + bias. Blocks of floats have M.weight and M.scales, of one byte each
 * and without a factor. config.json has bits, group size and mode of all modules, and of those that
 * differ once more under their names.
 */
#ifndef QP_FORMAT_MLX_H
#define QP_FORMAT_MLX_H

#include "formats/blocks.h"

/* Whether MLX has codes of so many bits, and groups of so many values. */
bool qp_mlx_has(uint64_t bits, uint64_t group);

/* The functions of the row (formats/format.h says what they do). */
bool qp_mlx_is(const struct qp_listing *listing);
enum qplan_status qp_mlx_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err);
void qp_mlx_config(struct qp_writer *w, const struct qp_outline *outline);

#endif
