/*
 * on_tile.h - one tile on one lane of a device: copied in, computed, copied out. The same steps
 * as the kernels of the CPU, with the same results, bit for bit.
 */
#ifndef QP_DEVICE_TILE_H
#define QP_DEVICE_TILE_H

#include "kernels/backends/backend.h"
#include "kernels/kernel.h"

/* What is to be done with a tile. */
struct qp_device_work {
    enum qplan_dtype dtype; /* of the source */
    struct qp_tile tile;
    struct qp_code_rule rule;
    bool packed;              /* two codes a byte */
    uint64_t last_len, phase; /* rows of packed codes, and where in one the tile begins: even */
};

/* What came back. The pointers point into the buffer that it was copied to. */
struct qp_device_made {
    uint64_t nonfinite;
    uint64_t bad_set;   /* whose scale is too large, or UINT64_MAX */
    void *stored_scale; /* as they are written */
    uint8_t *stored_zero;
    uint8_t *codes;     /* rows of row_bytes, packed where asked for */
    uint64_t row_bytes; /* of one row of the tile */
    void *lo, *hi;      /* ranges only: in working precision */
};

/* Bytes of device memory, and of the buffer for results, that any tile of so many bytes needs. */
uint64_t qp_device_block_bytes(size_t tile_bytes);
uint64_t qp_device_made_bytes(size_t tile_bytes);

/* Ranges, parameters and codes of a tile that holds whole sets; not of biased codes. */
enum qplan_status qp_device_quantize(struct qp_lane *lane, const struct qp_device_work *work,
                                     const void *src, void *buffer, struct qp_device_made *made,
                                     struct qplan_error *err);

/* Ranges alone. */
enum qplan_status qp_device_ranges(struct qp_lane *lane, const struct qp_device_work *work,
                                   const void *src, void *buffer, struct qp_device_made *made,
                                   struct qplan_error *err);

/* Codes, with parameters that are known: one for each set of the tile. */
enum qplan_status qp_device_codes(struct qp_lane *lane, const struct qp_device_work *work,
                                  const void *src, const void *scale, const int32_t *zero,
                                  void *buffer, struct qp_device_made *made,
                                  struct qplan_error *err);

#endif
