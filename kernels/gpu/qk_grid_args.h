/*
 * qk_grid_args.h - what a launch of the grid family is told.
 */
#ifndef QK_GRID_ARGS_H
#define QK_GRID_ARGS_H

#include "qk_platform.h"

/* Points or pixels of a group, and the channels that it does for them, some of them at a time. */
#define QK_GRID_TILE  256u
#define QK_GRID_BLOCK 16u
#define QK_GRID_LANES 4u

/* Words that a group clears, pixels that it gives room. */
#define QK_GRID_CHUNK 4096u

/* Points of an affine grid whose terms a group has in local memory, for each of so many sums. */
#define QK_AFFINE_GRID_TILE 128u
#define QK_AFFINE_GRID_SUMS 12u

/* In place of the index of a pixel that is outside of the image. */
#define QK_GRID_NONE 0xffffffffu

/* As in enum qp_grid_mode and enum qp_grid_padding. */
#define QK_GRID_BILINEAR   0u
#define QK_GRID_NEAREST    1u
#define QK_GRID_BICUBIC    2u
#define QK_GRID_ZEROS      0u
#define QK_GRID_BORDER     1u
#define QK_GRID_REFLECTION 2u

/* The constants of an axis in working precision, as the bits of the same numbers in f64. */
struct qk_grid_axis {
    qk_u64 extent, last, low, high, span, slope;
};

struct qk_grid_args {
    struct qk_grid_axis x, y, z;
    qk_u32 width, height; /* pixels along x and y */
    qk_u32 mode, padding, align_corners, n_axes;
    qk_u32 slot_bits; /* an axis has 2^slot_bits taps, inside the image or not */
    qk_u32 n_taps;    /* of a point, inside the image or not */
    qk_u32 flat;      /* for slopes: all of them are 0 */
    qk_u32 n_channels, n_points, n_pixels;
    qk_u32 n_tiles, n_blocks;    /* of the grid: of a plane, and of the channels of a batch */
    qk_u32 first_batch, n_lists; /* with lists: where they begin, and how many pixels have one */
    qk_u32 fill, accumulate;
    qk_u32 status, input, points, dout, output;
    qk_u32 counts;  /* of each list, and behind them what has been given out */
    qk_u32 ends;    /* of each list; while it is filled, its next place */
    qk_u32 list;    /* taps of all pixels: point * n_taps + tap, of the pixel's batch */
    qk_u32 weights; /* of the taps of all points, in working precision */
};

struct qk_affine_grid_args {
    qk_u32 n_axes, align_corners;
    qk_u32 width, height, depth; /* points along x, y and z */
    qk_u32 n_points, n_tiles;    /* of a batch */
    qk_u32 status, input, output;
};

#endif
