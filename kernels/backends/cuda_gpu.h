/*
 * cuda_gpu.h - what the files behind the backend of CUDA share: the open device, its failures, and
 * the lanes of cuda_lane.c.
 */
#ifndef QP_CUDA_GPU_H
#define QP_CUDA_GPU_H

#include "backend.h"
#include "cuda_api.h"

#include <pthread.h>

struct cu_gpu {
    struct qp_gpu gpu; /* first: the rest of the library sees this part */
    struct qp_cu cu;
    int device;
    struct CUctx_st *context; /* the primary one of the device: other users of it share it */
    pthread_mutex_t loading;
    struct CUmod_st *modules[QK_PROGRAM_COUNT];   /* loaded when first needed; under the mutex */
    struct CUfunc_st *functions[QK_KERNEL_COUNT]; /* the same */
};

/* Memory that the device lacks is MEMORY, all else DEVICE. */
enum qplan_status qp_cu_fail(struct qplan_error *err, const struct cu_gpu *g, const char *call,
                             int error);

/* Returns from a function that has err, if a call fails. */
#define QP_TRY_CU(g, call, ...)                                                                    \
    do {                                                                                           \
        int try_error = (g)->cu.call(__VA_ARGS__);                                                 \
        if (try_error != QP_CU_OK)                                                                 \
            return qp_cu_fail(err, g, #call, try_error);                                           \
    } while (0)

/* A thread makes calls between these two. What it had as its context before is so again after. */
enum qplan_status qp_cu_enter(const struct cu_gpu *g, struct qplan_error *err);
void qp_cu_leave(const struct cu_gpu *g);

/* Of struct qp_backend; launch is given the function. */
uint64_t qp_cu_host_bytes(uint64_t n_bytes);
enum qplan_status qp_cu_alloc(struct qp_lane **out, struct qp_gpu *gpu, uint64_t n_bytes,
                              struct qplan_error *err);
void qp_cu_free(struct qp_lane *lane);
enum qplan_status qp_cu_copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                             void *host, struct qplan_error *err);
enum qplan_status qp_cu_launch(struct qp_lane *lane, struct CUfunc_st *function,
                               const struct qp_launch *what, struct qplan_error *err);
enum qplan_status qp_cu_sync(struct qp_lane *lane, struct qplan_error *err);

#endif
