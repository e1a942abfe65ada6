/*
 * device.h - the device that a job runs on: chosen by name, proven before use, watched in use.
 */
#ifndef QP_DEVICE_H
#define QP_DEVICE_H

#include "kernels/backends/backend.h"
#include "need.h"

#include <stdatomic.h>

/* More devices than any machine lists. */
#define QP_MOST_DEVICES 16

/* Something that a device computes: whose it is, and which one of those. */
struct qp_device_proof {
    const void *of; /* a row of operators; NULL = tiles and ranges of checkpoints */
    uint32_t which;
};

struct qplan_device {
    enum qplan_backend backend; /* ANY = auto */
    size_t place;               /* of the backend's list, SIZE_MAX = the first */
    uint64_t memory_bytes;      /* most that may be used of the device's memory */
    struct qp_gpu *gpu;         /* once open */
    bool used;

    /* What is known of the one that is open (trust.c). */
    atomic_uint_fast64_t n_tiles;        /* done, by which some are picked for a second look */
    uint64_t checked_every;              /* one in so many of them, 0 = as in use */
    atomic_bool differs;                 /* something that it computed was wrong */
    bool proving;                        /* an operator proves itself on it */
    struct qp_device_proof proven[4096]; /* what does not fit is proven again */
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

/*
 * Decides whether a job over tensors runs on the device, which is then open and has proven all rows
 * of the need. DEVICE if one that was named cannot do it.
 */
enum qplan_status qp_device_take(struct qplan_device *device, const struct qp_device_need *need,
                                 unsigned threads, struct qplan_error *err);

/* Whether there may be one to take: it is named, or any is meant and the system has some. */
bool qp_device_wanted(const struct qplan_device *device);

/* The device that a run is to use, or NULL for the CPU. */
struct qplan_device *qp_device_of(const struct qplan_run *run);

/* DEVICE: the device lacks the 64-bit floats that something needs. */
enum qplan_status qp_device_fail_fp64(const struct qplan_device *device, const char *what,
                                      struct qplan_error *err);

/* Whether a device computes everything as the CPU does. What there is to compute is for others. */
typedef enum qplan_status (*qp_self_test_fn)(struct qp_gpu *gpu, struct qplan_error *err);

/*
 * All devices of all backends, with the reason where one cannot be used, as JSON or as text.
 * self_test: of devices that could be used, NULL = none.
 */
enum qplan_status qp_devices_write(bool json, qp_self_test_fn self_test, qplan_write_fn write,
                                   void *ctx, struct qplan_error *err);

/* ---- Trust ------------------------------------------------------------------------------------
 * One rule for all that a device computes. Before use it solves fixed problems, once each, as the
 * scalar kernels do. In use the CPU does some of its work again. After one wrong bit, before use or
 * in it, the device is refused for as long as it is open.
 */

/* Runs a proof, unless it is on record; one that ends well is put there. */
enum qplan_status qp_device_prove(struct qplan_device *device, struct qp_device_proof proof,
                                  enum qplan_status (*run)(void *ctx, struct qplan_error *err),
                                  void *ctx, struct qplan_error *err);

/* Whether the next tile of a job, or unit of an operator, is one of those that the CPU does too. */
bool qp_device_is_checked(struct qplan_device *device);

/* DEVICE: something that was computed of a dtype is wrong. The device stays refused. */
enum qplan_status qp_device_fail_wrong(struct qplan_device *device, const char *what,
                                       const char *dtype, struct qplan_error *err);

/* DEVICE if something was wrong before. */
enum qplan_status qp_device_check_trust(struct qplan_device *device, struct qplan_error *err);

/* Forgets all of it: another gpu is to be opened. */
void qp_device_forget(struct qplan_device *device);

#endif
