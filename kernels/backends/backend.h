/*
 * backend.h - what a kind of device can do for the library: CUDA, OpenCL. One table of functions
 * each; nothing above them knows which driver it is.
 *
 * A gpu is a device that was opened. A lane is a queue of its own with a block of device memory:
 * each worker has one, so that copies and kernels of one overlap with those of another. What is
 * queued in a lane runs in order. All functions may be called from any thread, for one lane from
 * one thread at a time. Failures are QPLAN_ERR_DEVICE and name the device, except that memory which
 * the device does not have is QPLAN_ERR_MEMORY.
 */
#ifndef QP_BACKEND_H
#define QP_BACKEND_H

#include "dl.h"
#include "kernels/gpu/qk_list.h"
#include "lib/base/error.h"

/* The programs of the device text, and the text of each (made by cmake/embed.cmake). */
enum qk_program {
#define QK_ID(program) qk_##program##_program,
    QK_PROGRAMS(QK_ID)
#undef QK_ID
        QK_PROGRAM_COUNT
};

extern const char *const qk_program_texts[QK_PROGRAM_COUNT];

/*
 * The programs as CUDA takes them: the PTX that is kept in gpu/ptx, and machine code for the
 * architectures of the build option QPLAN_CUDA_ARCHS, which begins with a zero where there is none.
 */
extern const struct qk_cuda_image {
    const char *ptx;
    const unsigned char *sass;
} qk_cuda_images[QK_PROGRAM_COUNT];

/* The kernels of all programs. */
enum qk_kernel {
#define QK_ID(name) name##_id,
    QK_KERNELS(QK_ID, QK_ID)
#undef QK_ID
        QK_KERNEL_COUNT
};

extern const struct qk_kernel_row {
    const char *name;
    enum qk_program program;
} qk_kernel_rows[QK_KERNEL_COUNT];

struct qp_device_info {
    char label[32]; /* "opencl:0": what --device takes */
    char name[128];
    char driver[128];
    char reason[QP_REASON]; /* why it is not usable, or "" */
    uint64_t memory_bytes;
    uint64_t block_bytes; /* the largest block of memory */
    bool is_cpu;          /* used only when named */
    bool has_fp64;
};

struct qp_gpu {
    const struct qp_backend *backend;
    struct qp_device_info info;
    uint32_t group_size; /* of every launch, 0 = as suits the kernel */
};

struct qp_lane {
    struct qp_gpu *gpu;
    uint64_t n_bytes; /* of its block */
};

enum qp_copy_way { QP_COPY_IN, QP_COPY_OUT };

/* A part of a lane's block. */
struct qp_span {
    uint64_t off, n;
};

struct qp_launch {
    enum qk_kernel kernel;
    uint32_t groups, group_size;
    const void *args; /* the struct of the kernel */
    size_t n_args;
};

struct qp_backend {
    enum qplan_backend id;

    /*
     * Fills in up to n_out devices and returns how many there are. With none, reason says why. A
     * device that cannot be used is listed with its reason.
     */
    size_t (*probe)(struct qp_device_info *out, size_t n_out, char reason[QP_REASON]);

    /* Opens the device at that place of the list, usable or not. */
    enum qplan_status (*open)(struct qp_gpu **out, size_t place, struct qplan_error *err);
    void (*close)(struct qp_gpu *gpu);

    /* Bytes of the host that a lane with such a block takes beside it; NULL = none. */
    uint64_t (*host_bytes)(uint64_t n_bytes);

    /* A lane with a block of n_bytes of device memory, which is there and not only promised. */
    enum qplan_status (*alloc)(struct qp_lane **out, struct qp_gpu *gpu, uint64_t n_bytes,
                               struct qplan_error *err);
    void (*free)(struct qp_lane *lane);

    /* Queues a copy between the block and the host; the host's bytes stay in use until sync. */
    enum qplan_status (*copy)(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                              void *host, struct qplan_error *err);

    /*
     * Queues a kernel on the lane's block; the first of a program compiles it. The arguments are
     * taken at once.
     */
    enum qplan_status (*launch)(struct qp_lane *lane, const struct qp_launch *launch,
                                struct qplan_error *err);

    /* Waits until all that was queued in the lane has ended, and tells whether it ended well. */
    enum qplan_status (*sync)(struct qp_lane *lane, struct qplan_error *err);
};

extern const struct qp_backend qp_backend_cuda, qp_backend_opencl;

/* All backends of this build, in the order of `auto`, ended by NULL. */
extern const struct qp_backend *const qp_backends[];

#endif
