/*
 * cuda.c - CUDA's driver API behind backend.h: devices, the context, and the kernels. The
 * lanes are in cuda_lane.c. A program is machine code for the device where the build has some, else
 * the kept PTX, which the driver compiles.
 */
#include "cuda_gpu.h"

#include "lib/base/alloc.h"

#include <stdio.h>

enum qplan_status qp_cu_fail(struct qplan_error *err, const struct cu_gpu *g, const char *call,
                             int error)
{
    return qp_fail(err, error == QP_CU_OUT_OF_MEMORY ? QPLAN_ERR_MEMORY : QPLAN_ERR_DEVICE,
                   g->gpu.info.label, "%s failed: %s (%d) on %s", call,
                   qp_cu_error_name(&g->cu, error), error, g->gpu.info.name);
}

enum qplan_status qp_cu_enter(const struct cu_gpu *g, struct qplan_error *err)
{
    QP_TRY_CU(g, cuCtxPushCurrent_v2, g->context);
    return QPLAN_OK;
}

void qp_cu_leave(const struct cu_gpu *g)
{
    struct CUctx_st *context;
    (void)g->cu.cuCtxPopCurrent_v2(&context);
}

/* ---- Devices ----------------------------------------------------------------------------------
 */

/* The kept PTX is made for 7.5: the driver compiles it for that and for all that follow. */
#define LEAST_MAJOR 7
#define LEAST_MINOR 5

static size_t count_devices(const struct qp_cu *cu, char reason[QP_REASON])
{
    int n = 0, error = cu->cuDeviceGetCount(&n);
    if (error == QP_CU_OK && n > 0)
        return (size_t)n;
    if (error == QP_CU_OK)
        (void)snprintf(reason, QP_REASON, "no device");
    else
        (void)snprintf(reason, QP_REASON, "cuDeviceGetCount failed: %s (%d)",
                       qp_cu_error_name(cu, error), error);
    return 0;
}

/* Whether a question about a device was answered; else that is the reason. */
static bool answered(const struct qp_cu *cu, const char *call, int error,
                     struct qp_device_info *info)
{
    if (error != QP_CU_OK)
        (void)snprintf(info->reason, sizeof info->reason, "%s failed: %s (%d)", call,
                       qp_cu_error_name(cu, error), error);
    return error == QP_CU_OK;
}

#define ASK(call, ...) answered(cu, #call, cu->call(__VA_ARGS__), info)

/* Why the device cannot be used, if so; false if the driver does not answer. */
static bool judge(const struct qp_cu *cu, int device, struct qp_device_info *info)
{
    int major = 0, minor = 0, mode = 0;
    if (!ASK(cuDeviceGetAttribute, &major, QP_CU_CAPABILITY_MAJOR, device) ||
        !ASK(cuDeviceGetAttribute, &minor, QP_CU_CAPABILITY_MINOR, device) ||
        !ASK(cuDeviceGetAttribute, &mode, QP_CU_COMPUTE_MODE, device))
        return false;
    if (major < LEAST_MAJOR || (major == LEAST_MAJOR && minor < LEAST_MINOR))
        (void)snprintf(info->reason, sizeof info->reason,
                       "compute capability is %d.%d, needs %d.%d or newer", major, minor,
                       LEAST_MAJOR, LEAST_MINOR);
    else if (mode == QP_CU_MODE_PROHIBITED)
        (void)snprintf(info->reason, sizeof info->reason, "its compute mode is prohibited");
    return true;
}

/* The device at a place and its handle; false, with the reason, if the driver does not answer. */
static bool describe(const struct qp_cu *cu, int version, size_t place, struct qp_device_info *info,
                     int *device)
{
    size_t n_bytes = 0;
    *info = (struct qp_device_info){.has_fp64 = true};
    (void)snprintf(info->label, sizeof info->label, "cuda:%zu", place);
    (void)snprintf(info->driver, sizeof info->driver, "CUDA %d.%d", version / 1000,
                   version % 1000 / 10);
    if (!ASK(cuDeviceGet, device, (int)place) ||
        !ASK(cuDeviceGetName, info->name, sizeof info->name, *device) ||
        !ASK(cuDeviceTotalMem_v2, &n_bytes, *device))
        return false;
    info->name[sizeof info->name - 1] = '\0';
    qp_dl_make_plain(info->name);
    info->memory_bytes = info->block_bytes = n_bytes;
    return judge(cu, *device, info);
}

static size_t probe(struct qp_device_info *out, size_t n_out, char reason[QP_REASON])
{
    struct qp_cu cu;
    int version = 0, device;
    if (!qp_cu_load(&cu, &version, reason))
        return 0;
    size_t n = count_devices(&cu, reason);
    for (size_t i = 0; i < n && i < n_out; i++)
        (void)describe(&cu, version, i, &out[i], &device);
    return n;
}

/* ---- Opening ----------------------------------------------------------------------------------
 */

static void close_gpu(struct qp_gpu *gpu)
{
    struct cu_gpu *g = (struct cu_gpu *)gpu;
    if (!g)
        return;
    if (g->context && qp_cu_enter(g, NULL) == QPLAN_OK) {
        for (size_t i = 0; i < QK_PROGRAM_COUNT; i++) {
            if (g->modules[i])
                (void)g->cu.cuModuleUnload(g->modules[i]);
        }
        qp_cu_leave(g);
    }
    if (g->context)
        (void)g->cu.cuDevicePrimaryCtxRelease_v2(g->device);
    (void)pthread_mutex_destroy(&g->loading);
    qp_free(g);
}

static enum qplan_status find_device(struct cu_gpu *g, size_t place, struct qplan_error *err)
{
    char reason[QP_REASON];
    int version = 0;
    if (!qp_cu_load(&g->cu, &version, reason))
        return qp_fail(err, QPLAN_ERR_DEVICE, "cuda", "%s", reason);
    size_t n = count_devices(&g->cu, reason);
    if (n == 0)
        return qp_fail(err, QPLAN_ERR_DEVICE, "cuda", "%s", reason);
    if (place >= n)
        return qp_fail(err, QPLAN_ERR_DEVICE, "cuda", "no such device: %zu of %zu", place, n);
    if (!describe(&g->cu, version, place, &g->gpu.info, &g->device))
        return qp_fail(err, QPLAN_ERR_DEVICE, g->gpu.info.label, "%s", g->gpu.info.reason);
    QP_TRY_CU(g, cuDevicePrimaryCtxRetain, &g->context, g->device);
    return QPLAN_OK;
}

static enum qplan_status open_gpu(struct qp_gpu **out, size_t place, struct qplan_error *err)
{
    struct cu_gpu *g = qp_alloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return qp_fail_memory(err, "device", sizeof *g);
    g->gpu.backend = &qp_backend_cuda;
    (void)pthread_mutex_init(&g->loading, NULL);
    enum qplan_status status = find_device(g, place, err);
    if (status == QPLAN_OK)
        *out = &g->gpu;
    else
        close_gpu(&g->gpu);
    return status;
}

/* ---- Kernels ----------------------------------------------------------------------------------
 */

/* Machine code of another architecture is no failure: there is always the PTX. */
static bool load_sass(struct cu_gpu *g, enum qk_program which)
{
    const unsigned char *sass = qk_cuda_images[which].sass;
    return sass[0] && g->cu.cuModuleLoadDataEx(&g->modules[which], sass, 0, NULL, NULL) == QP_CU_OK;
}

static enum qplan_status load_ptx(struct cu_gpu *g, enum qk_program which, struct qplan_error *err)
{
    char log[2048] = "";
    int options[] = {QP_CU_JIT_ERROR_LOG, QP_CU_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
    g->modules[which] = NULL;
    int error =
        g->cu.cuModuleLoadDataEx(&g->modules[which], qk_cuda_images[which].ptx, 2, options, values);
    if (error == QP_CU_OK)
        return QPLAN_OK;
    g->modules[which] = NULL;
    if (!log[0])
        return qp_cu_fail(err, g, "cuModuleLoadDataEx", error);
    qp_dl_make_plain(log);
    return qp_fail(err, QPLAN_ERR_DEVICE, g->gpu.info.label,
                   "the driver cannot build the kernels: %s (%d) on %s: %.300s",
                   qp_cu_error_name(&g->cu, error), error, g->gpu.info.name, log);
}

static enum qplan_status load(struct cu_gpu *g, enum qk_kernel which, struct qplan_error *err)
{
    const struct qk_kernel_row *row = &qk_kernel_rows[which];
    if (!g->modules[row->program] && !load_sass(g, row->program))
        QP_TRY(load_ptx(g, row->program, err));
    struct CUfunc_st *function = NULL;
    QP_TRY_CU(g, cuModuleGetFunction, &function, g->modules[row->program], row->name);
    g->functions[which] = function;
    return QPLAN_OK;
}

static enum qplan_status find_function(struct cu_gpu *g, enum qk_kernel which,
                                       struct CUfunc_st **out, struct qplan_error *err)
{
    enum qplan_status status = QPLAN_OK;
    (void)pthread_mutex_lock(&g->loading);
    if (!g->functions[which]) {
        status = qp_cu_enter(g, err);
        if (status == QPLAN_OK) {
            status = load(g, which, err);
            qp_cu_leave(g);
        }
    }
    *out = g->functions[which];
    (void)pthread_mutex_unlock(&g->loading);
    return status;
}

static enum qplan_status launch(struct qp_lane *lane, const struct qp_launch *what,
                                struct qplan_error *err)
{
    struct CUfunc_st *function;
    QP_TRY(find_function((struct cu_gpu *)lane->gpu, what->kernel, &function, err));
    return qp_cu_launch(lane, function, what, err);
}

const struct qp_backend qp_backend_cuda = {
    .id = QPLAN_BACKEND_CUDA,
    .probe = probe,
    .open = open_gpu,
    .close = close_gpu,
    .host_bytes = qp_cu_host_bytes,
    .alloc = qp_cu_alloc,
    .free = qp_cu_free,
    .copy = qp_cu_copy,
    .launch = launch,
    .sync = qp_cu_sync,
};
