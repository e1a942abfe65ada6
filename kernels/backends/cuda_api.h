/*
 * cuda_api.h - the calls of CUDA's driver API that are made, found at run time in the driver's
 * library. They are declared here, as the ABI of CUDA 11.0 and later has them, so that no header of
 * CUDA is needed to build; nothing links to the library.
 */
#ifndef QP_CUDA_API_H
#define QP_CUDA_API_H

#include "dl.h"

#include <stdint.h>

/* What the driver gives out; only it looks inside. */
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;

/* The oldest driver that takes the kept PTX, as cuDriverGetVersion counts: CUDA 11.0. */
#define QP_CU_LEAST_DRIVER 11000

enum qp_cu_result {
    QP_CU_OK = 0,
    QP_CU_OUT_OF_MEMORY = 2,
    QP_CU_NO_DEVICE = 100,
};

enum qp_cu_attribute {
    QP_CU_COMPUTE_MODE = 20,
    QP_CU_CAPABILITY_MAJOR = 75,
    QP_CU_CAPABILITY_MINOR = 76,
};

enum {
    QP_CU_MODE_PROHIBITED = 2, /* of QP_CU_COMPUTE_MODE: no context may be made */
    QP_CU_STREAM_NON_BLOCKING = 1,
    QP_CU_EVENT_BLOCKING = 1, /* a thread that waits sleeps */
    QP_CU_EVENT_NO_TIMING = 2,
    QP_CU_JIT_ERROR_LOG = 5,
    QP_CU_JIT_ERROR_LOG_BYTES = 6,
};

/* ---- The calls: each returns an enum qp_cu_result ----------------------------------------------
 */

int cuDriverGetVersion(int *version);
int cuInit(unsigned flags);
int cuGetErrorName(int error, const char **name);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int place);
int cuDeviceGetName(char *name, int n_bytes, int device);
int cuDeviceGetAttribute(int *value, int what, int device);
int cuDeviceTotalMem_v2(size_t *n_bytes, int device);
int cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);
int cuCtxPushCurrent_v2(struct CUctx_st *context);
int cuCtxPopCurrent_v2(struct CUctx_st **context);
int cuModuleLoadDataEx(struct CUmod_st **module, const void *image, unsigned n_options,
                       int *options, void **values);
int cuModuleUnload(struct CUmod_st *module);
int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name);
int cuMemAlloc_v2(uint64_t *memory, size_t n_bytes);
int cuMemFree_v2(uint64_t memory);
int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned flags);
int cuMemFreeHost(void *memory);
int cuStreamCreate(struct CUstream_st **stream, unsigned flags);
int cuStreamDestroy_v2(struct CUstream_st *stream);
int cuStreamSynchronize(struct CUstream_st *stream);
int cuEventCreate(struct CUevent_st **event, unsigned flags);
int cuEventDestroy_v2(struct CUevent_st *event);
int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
int cuEventSynchronize(struct CUevent_st *event);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n_bytes, struct CUstream_st *stream);
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n_bytes, struct CUstream_st *stream);
int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned group_x, unsigned group_y, unsigned group_z, unsigned local_bytes,
                   struct CUstream_st *stream, void **parameters, void **extra);

/* All but the first, which is asked before the others are looked for. */
#define QP_CU_CALLS(X)                                                                             \
    X(cuInit)                                                                                      \
    X(cuGetErrorName)                                                                              \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceTotalMem_v2)                                                                         \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuCtxPushCurrent_v2)                                                                         \
    X(cuCtxPopCurrent_v2)                                                                          \
    X(cuModuleLoadDataEx)                                                                          \
    X(cuModuleUnload)                                                                              \
    X(cuModuleGetFunction)                                                                         \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemFree_v2)                                                                                \
    X(cuMemHostAlloc)                                                                              \
    X(cuMemFreeHost)                                                                               \
    X(cuStreamCreate)                                                                              \
    X(cuStreamDestroy_v2)                                                                          \
    X(cuStreamSynchronize)                                                                         \
    X(cuEventCreate)                                                                               \
    X(cuEventDestroy_v2)                                                                           \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuMemcpyHtoDAsync_v2)                                                                        \
    X(cuMemcpyDtoHAsync_v2)                                                                        \
    X(cuLaunchKernel)

struct qp_cu {
#define QP_CU_FIELD(call) __typeof__(call) *(call);
    QP_CU_CALLS(QP_CU_FIELD)
#undef QP_CU_FIELD
};

/*
 * Finds the calls and starts the driver, whose version is then set. False, with the reason, where
 * there is no driver, it is too old, lacks a call, has no device or does not start.
 */
bool qp_cu_load(struct qp_cu *cu, int *version, char reason[QP_REASON]);

/* The name of an error number, or "error" for one that the driver does not know. */
const char *qp_cu_error_name(const struct qp_cu *cu, int error);

#endif
