/*
 * recheck.h - tiles and ranges done again by the scalar kernels, and compared with what a device
 * has made of them.
 */
#ifndef QP_DEVICE_RECHECK_H
#define QP_DEVICE_RECHECK_H

#include "device.h"
#include "on_range.h"
#include "on_tile.h"

/* Buffers of the CPU's for the sets and codes of a tile. */
struct qp_device_scratch {
    void *lo, *hi, *scale;
    int32_t *zero;
    void *stored;
    uint8_t *codes;
};

/*
 * Does a tile with the scalar kernels and compares; DEVICE if a bit differs. The three are for the
 * results of qp_device_quantize, _ranges and _codes.
 */
enum qplan_status qp_device_check_quantized(struct qplan_device *device,
                                            const struct qp_device_work *work, const void *src,
                                            const struct qp_device_made *made,
                                            const struct qp_device_scratch *scratch,
                                            struct qplan_error *err);
enum qplan_status qp_device_check_ranges(struct qplan_device *device,
                                         const struct qp_device_work *work, const void *src,
                                         const struct qp_device_made *made,
                                         const struct qp_device_scratch *scratch,
                                         struct qplan_error *err);
enum qplan_status qp_device_check_codes(struct qplan_device *device,
                                        const struct qp_device_work *work, const void *src,
                                        const void *scale, const int32_t *zero,
                                        const struct qp_device_made *made,
                                        const struct qp_device_scratch *scratch,
                                        struct qplan_error *err);

/* Buffers of the CPU's for a block of a flat range. */
struct qp_flat_scratch {
    uint8_t *codes;   /* QP_BLOCK + 1 */
    void *y, *stored; /* QP_BLOCK values of 8 bytes */
};

/* Codes and values of the block of the range that begins at its element `at`, by scalar kernels. */
void qp_flat_decode_block(const struct qp_flat_work *work, const struct qp_flat_data *data,
                          uint64_t at, const struct qp_flat_scratch *scratch);

/*
 * Does a range with the scalar kernels and compares; DEVICE if a bit differs. The two are for the
 * results of qp_device_decode and _measure.
 */
enum qplan_status qp_device_check_decoded(struct qplan_device *device,
                                          const struct qp_flat_work *work,
                                          const struct qp_flat_data *data, const void *out,
                                          const struct qp_flat_scratch *scratch,
                                          struct qplan_error *err);
enum qplan_status qp_device_check_measured(struct qplan_device *device,
                                           const struct qp_flat_work *work,
                                           const struct qp_flat_data *data, const void *found,
                                           const struct qp_flat_scratch *scratch,
                                           struct qplan_error *err);

#endif
