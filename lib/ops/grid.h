/*
 * grid.h - what grid sampling and its gradients share: fields and shapes, the buffers of a worker
 * under a limit of memory, and the ways in: channels side by side, taps of points, pixels of taps.
 *
 * Work is cut by batch and by blocks of channels. A worker keeps the taps of the points that it
 * last looked at, so the blocks of one batch share them where they fit.
 */
#ifndef QP_OPS_GRID_H
#define QP_OPS_GRID_H

#include "kernels/ops/grid_kernels.h"
#include "op.h"

#include <stdatomic.h>

/* Elements that a lane has on the way in or out; points of a tile. */
#define QP_GRID_STAGE 1024
#define QP_GRID_TILE  256

/* ---- The problem ------------------------------------------------------------------------------
 */

/* The state of a row: what its tensors and fields say. A batch has points, a plane has pixels. */
struct qp_grid {
    struct qp_grid_rule rule;
    uint64_t n_batch, n_channels, n_points, n_pixels;
};

/* Checks the fields and the tensors input and grid; the rest of the state is set. */
enum qplan_status qp_grid_check(struct qplan_op *op, struct qplan_error *err);

/* The shape [N, C, points...] of output and dout; returns its rank. */
unsigned qp_grid_output_shape(const struct qplan_op *op, uint64_t *shape);

#define QP_GRID_FIELDS                                                                             \
    {.name = "mode",                                                                               \
     .type = QPLAN_FIELD_NAME,                                                                     \
     .fallback = "bilinear",                                                                       \
     .names = "bilinear|nearest|bicubic",                                                          \
     .about = "how a value is made of pixels; bicubic in 2-D only"},                               \
        {.name = "padding_mode",                                                                   \
         .type = QPLAN_FIELD_NAME,                                                                 \
         .fallback = "zeros",                                                                      \
         .names = "zeros|border|reflection",                                                       \
         .about = "what lies outside the image"},                                                  \
    {                                                                                              \
        .name = "align_corners", .type = QPLAN_FIELD_BOOL, .fallback = "false",                    \
        .about = "-1 and 1 are the centres of the outer pixels, not their outer edges"             \
    }

/* ---- Passes and their buffers -----------------------------------------------------------------
 */

/* Each pass has its own buffers; passes of one run follow each other in the same memory. */
enum qp_grid_pass { QP_GRID_SAMPLE, QP_GRID_DINPUT, QP_GRID_DGRID };

/* How much of what a worker has in memory. More is faster; the results are the same. */
struct qp_grid_layout {
    uint64_t tap_points;   /* points whose taps are kept */
    bool dense;            /* a block of planes is interleaved as a whole, not tap by tap */
    uint64_t band_pixels;  /* dinput: pixels that have a sum */
    uint64_t slice_points; /* dgrid: points that have sums */
};

struct qp_grid_worker {
    struct qp_grid_taps taps;
    uint64_t held_batch, held_first; /* the points of taps; none where held_n is 0 */
    size_t held_n;
    char *raw, *work; /* lanes as stored and in working precision, QP_GRID_STAGE elements each */
    char *image;      /* a block, or what the taps of a tile read */
    int64_t *place;   /* of those taps in image, as taps.place */
    char *factor;     /* dgrid: of the points of a slice */
    uint64_t slice;   /* the first of them */
    char *dout;       /* a tile of a block */
    double *hi, *lo;  /* QP_GRID_LANES rows of a tile */
    double *sums_hi, *sums_lo; /* of a band or slice */
};

struct qp_grid_run {
    const struct qp_op_call *call;
    const struct qp_grid *grid;
    enum qplan_dtype dtype;
    size_t work_bytes;
    const struct qp_grid_kernels *kernels;
    const struct qp_sum_kernels *sums;
    const struct qp_work_kernels *decode;
    const struct qp_view *input, *points, *dout;
    enum qp_grid_pass pass;
    struct qp_grid_layout layout;
    struct qp_grid_worker *workers;
    atomic_uint_fast64_t overflow;
};

/* Bytes of workspace that a pass needs. */
uint64_t qp_grid_workspace(const struct qplan_op *op, enum qp_grid_pass pass);

/* Prepares a pass in the call's workspace. */
void qp_grid_begin(struct qp_grid_run *run, const struct qp_op_call *call, enum qp_grid_pass pass);

/* ---- The ways in ------------------------------------------------------------------------------
 */

/* Planes that are worked on side by side. */
struct qp_grid_block {
    uint64_t plane; /* the first, of all batches */
    unsigned n_lanes, width;
};

static inline uint64_t qp_grid_n_blocks(const struct qp_grid *grid)
{
    return grid->n_channels / QP_GRID_LANES + (grid->n_channels % QP_GRID_LANES != 0);
}
struct qp_grid_block qp_grid_block(const struct qp_grid *grid, uint64_t batch, uint64_t i);

/* Points of a tile: fewer where the taps of a tile must fit into a stage. */
static inline size_t qp_grid_tile(const struct qp_grid_run *run)
{
    return run->layout.dense ? QP_GRID_TILE
                             : QP_GRID_STAGE / (QP_GRID_AXIS_TAPS * QP_GRID_AXIS_TAPS);
}

/*
 * Makes sure that the worker has the taps of n points of a batch, at most layout.tap_points; and
 * those from point i of them on.
 */
void qp_grid_hold(const struct qp_grid_run *run, struct qp_grid_worker *w, uint64_t batch,
                  uint64_t first, size_t n);
struct qp_grid_taps qp_grid_taps_at(const struct qp_grid_run *run, const struct qp_grid_worker *w,
                                    size_t i);

/* The planes of a block, interleaved in whole where the layout is dense; else NULL. */
const void *qp_grid_image(const struct qp_grid_run *run, struct qp_grid_worker *w,
                          const struct qp_grid_block *block);

/* What the taps of n points read: image or, where that is NULL, pixels tap by tap; taps follow. */
const void *qp_grid_pixels(const struct qp_grid_run *run, struct qp_grid_worker *w,
                           const struct qp_grid_block *block, const void *image, size_t n,
                           struct qp_grid_taps *taps);

/* dout of n points from first on, interleaved. */
const void *qp_grid_dout(const struct qp_grid_run *run, struct qp_grid_worker *w,
                         const struct qp_grid_block *block, uint64_t first, size_t n);

#endif
