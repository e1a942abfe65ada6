/*
 * device.h - the device that a job runs on: chosen by name, proven before use, watched in use.
 */
#ifndef QP_DEVICE_H
#define QP_DEVICE_H

#include "need.h"
#include "on_range.h"
#include "on_tile.h"

#include <stdatomic.h>

/* A kernel of an operator, and the keys with which the device has proven it. */
struct qp_device_proven {
    const void *row, *kernel;
    uint32_t keys;
};

struct qplan_device {
    enum qplan_backend backend; /* ANY = auto */
    size_t place;               /* of the backend's list, SIZE_MAX = the first */
    uint64_t memory_bytes;      /* most that may be used of the device's memory */
    struct qp_gpu *gpu;         /* once open */
    bool used;
    atomic_uint_fast64_t n_tiles;        /* done, by which some are picked for a second look */
    uint64_t checked_every;              /* one in so many of them, 0 = as in use */
    atomic_bool differs;                 /* what an operator made on it was wrong */
    uint32_t group_size;                 /* of every launch of an operator, 0 = as suits it */
    bool proving;                        /* an operator proves itself on it */
    struct qp_device_proven proven[128]; /* room for all operators; else they prove again */
    size_t n_proven;
};

/* What a job wants of a device. */
struct qp_device_wish {
    uint64_t n_bytes; /* that are copied, by which `auto` decides */
    /* Whether the device, which is open, can do it and shows that it does it right. */
    enum qplan_status (*prove)(struct qplan_device *device, const void *what,
                               struct qplan_error *err);
    const void *what;
};

/*
 * Decides whether a job runs on the device (device->used), which is then open and proven. DEVICE,
 * or what prove says, if one that was named cannot do it.
 */
enum qplan_status qp_device_use(struct qplan_device *device, const struct qp_device_wish *wish,
                                unsigned threads, struct qplan_error *err);

/* The same for a job over tensors. */
enum qplan_status qp_device_take(struct qplan_device *device, const struct qp_device_need *need,
                                 unsigned threads, struct qplan_error *err);

/* Whether there may be one to take: it is named, or any is meant and the system has some. */
bool qp_device_wanted(const struct qplan_device *device);

/* The device that a run is to use, or NULL for the CPU. */
struct qplan_device *qp_device_of(const struct qplan_run *run);

/* Whether the next tile of a run, or unit of an operator, is one of those that the CPU does too. */
bool qp_device_is_checked(struct qplan_device *device);

/* ---- Trust ------------------------------------------------------------------------------------
 */

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
enum qplan_status qp_device_check_quantized(const struct qp_gpu *gpu,
                                            const struct qp_device_work *work, const void *src,
                                            const struct qp_device_made *made,
                                            const struct qp_device_scratch *scratch,
                                            struct qplan_error *err);
enum qplan_status qp_device_check_ranges(const struct qp_gpu *gpu,
                                         const struct qp_device_work *work, const void *src,
                                         const struct qp_device_made *made,
                                         const struct qp_device_scratch *scratch,
                                         struct qplan_error *err);
enum qplan_status qp_device_check_codes(const struct qp_gpu *gpu, const struct qp_device_work *work,
                                        const void *src, const void *scale, const int32_t *zero,
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

/* The same as above for the results of qp_device_decode and qp_device_measure. */
enum qplan_status qp_device_check_decoded(const struct qp_gpu *gpu, const struct qp_flat_work *work,
                                          const struct qp_flat_data *data, const void *out,
                                          const struct qp_flat_scratch *scratch,
                                          struct qplan_error *err);
enum qplan_status qp_device_check_measured(const struct qp_gpu *gpu,
                                           const struct qp_flat_work *work,
                                           const struct qp_flat_data *data, const void *found,
                                           const struct qp_flat_scratch *scratch,
                                           struct qplan_error *err);

/* Device memory that a proof takes. */
uint64_t qp_device_proof_bytes(void);

/* Runs fixed vectors through every kernel of n rows. DEVICE if a result differs from scalar's. */
enum qplan_status qp_device_prove(struct qp_gpu *gpu, const struct qp_device_row *rows, size_t n,
                                  struct qplan_error *err);

/* The same for all that the device has. group_size: of every launch, 0 = as in use. */
enum qplan_status qp_device_prove_all(struct qp_gpu *gpu, uint32_t group_size,
                                      struct qplan_error *err);

#endif
