/*
 * cuda_double.c - stands in for CUDA's driver as libcuda.so.1: one device, whose launches run the
 * host build of the kernels. It asks of its caller what the driver does, and more: a context that
 * is current, handles that are alive, ranges inside their memory, PTX with the entries and structs
 * that the kernels have, and pinned memory for every copy. Queued work runs only when somebody
 * waits for it, so who does not wait sees memory that was never written. At the end nothing may be
 * left over.
 *
 *     QPLAN_TEST_FAULT=CALL:N=ERROR
 *         the N-th call of that name, counted from 1, returns the error; 0 = every one
 *         lost:N=ERROR    the N-th kernel ends with the error, and then every call does
 *         flip:N          one bit of the N-th result that is copied back is another
 *         most:BYTES      allocations of more than that many bytes fail
 *         version:N  devices:N  capability:N  mode:N     what the driver says
 *         jit:1           the PTX is refused, with a log
 *         sass:1          machine code is of the right architecture; otherwise of another one
 *         overlap:1       whoever waits for a kernel first waits until another stream has a copy
 *     QPLAN_TEST_COUNT=FILE   gets "NAME COUNT", at the end: of calls, kernels, results, overlaps,
 *                             and the most bytes of the device and that were pinned
 *
 * A caller that breaks the rules ends the process with 99, and so does something left over. As a
 * library that is preloaded it also lets the system seem to have a GPU.
 */
#include "cuda_double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) int access(const char *path, int mode);

static struct object context = {.kind = CONTEXT};

/* Device addresses mean nothing to the host. */
#define DEVICE_SPACE ((uint64_t)1 << 60)

static unsigned char *host_address(uint64_t memory)
{
    return (unsigned char *)(uintptr_t)(memory - DEVICE_SPACE);
}

/* ---- The driver and its device ----------------------------------------------------------------
 */

int cuDriverGetVersion(int *version)
{
    BEGIN(cuDriverGetVersion);
    *version = (int)fault_number("version", 12040);
    return QP_CU_OK;
}

int cuInit(unsigned flags)
{
    BEGIN(cuInit);
    start();
    return flags == 0 ? QP_CU_OK : INVALID_VALUE;
}

int cuGetErrorName(int error, const char **name)
{
    static const struct {
        int error;
        const char *name;
    } rows[] = {
        {1, "CUDA_ERROR_INVALID_VALUE"},
        {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {3, "CUDA_ERROR_NOT_INITIALIZED"},
        {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
        {100, "CUDA_ERROR_NO_DEVICE"},
        {101, "CUDA_ERROR_INVALID_DEVICE"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {218, "CUDA_ERROR_INVALID_PTX"},
        {400, "CUDA_ERROR_INVALID_HANDLE"},
        {500, "CUDA_ERROR_NOT_FOUND"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        {999, "CUDA_ERROR_UNKNOWN"},
    };
    BEGIN(cuGetErrorName);
    *name = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].error == error)
            *name = rows[i].name;
    }
    return *name ? QP_CU_OK : INVALID_VALUE;
}

int cuDeviceGetCount(int *n)
{
    BEGIN(cuDeviceGetCount);
    *n = (int)fault_number("devices", 1);
    return QP_CU_OK;
}

int cuDeviceGet(int *device, int place)
{
    BEGIN(cuDeviceGet);
    *device = 7;
    return place >= 0 && place < fault_number("devices", 1) ? QP_CU_OK : INVALID_DEVICE;
}

int cuDeviceGetName(char *name, int n_bytes, int device)
{
    BEGIN(cuDeviceGetName);
    (void)snprintf(name, (size_t)n_bytes, "Double of a GPU");
    return device == 7 ? QP_CU_OK : INVALID_DEVICE;
}

int cuDeviceGetAttribute(int *value, int what, int device)
{
    const int capability = (int)fault_number("capability", 90);
    BEGIN(cuDeviceGetAttribute);
    if (what == QP_CU_CAPABILITY_MAJOR)
        *value = capability / 10;
    else if (what == QP_CU_CAPABILITY_MINOR)
        *value = capability % 10;
    else if (what == QP_CU_COMPUTE_MODE)
        *value = (int)fault_number("mode", 0);
    else
        return INVALID_VALUE;
    return device == 7 ? QP_CU_OK : INVALID_DEVICE;
}

int cuDeviceTotalMem_v2(size_t *n_bytes, int device)
{
    BEGIN(cuDeviceTotalMem_v2);
    *n_bytes = (size_t)1 << 30;
    return device == 7 ? QP_CU_OK : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(struct CUctx_st **out, int device)
{
    BEGIN(cuDevicePrimaryCtxRetain);
    retain();
    *out = (struct CUctx_st *)&context;
    return device == 7 ? QP_CU_OK : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    int error = begin(ID_cuDevicePrimaryCtxRelease_v2);
    return device == 7 && release() ? error : INVALID_CONTEXT;
}

int cuCtxPushCurrent_v2(struct CUctx_st *pushed)
{
    BEGIN(cuCtxPushCurrent_v2);
    if ((void *)pushed != &context || !is_retained())
        return INVALID_CONTEXT;
    ++*stack_depth();
    return QP_CU_OK;
}

int cuCtxPopCurrent_v2(struct CUctx_st **popped)
{
    int error = begin(ID_cuCtxPopCurrent_v2);
    if (*stack_depth() == 0)
        return INVALID_CONTEXT;
    --*stack_depth();
    *popped = (struct CUctx_st *)&context;
    return error;
}

/* ---- Modules ----------------------------------------------------------------------------------
 */

static int refuse_ptx(unsigned n_options, const int *options, void **values)
{
    char *log = NULL;
    size_t n = 0;
    for (unsigned i = 0; i < n_options; i++) {
        if (options[i] == QP_CU_JIT_ERROR_LOG)
            log = values[i];
        else if (options[i] == QP_CU_JIT_ERROR_LOG_BYTES)
            n = (size_t)(uintptr_t)values[i];
    }
    if (log && n)
        (void)snprintf(log, n, "ptxas fatal   : Unsupported .version 7.0\n");
    return INVALID_PTX;
}

int cuModuleLoadDataEx(struct CUmod_st **out, const void *image, unsigned n_options, int *options,
                       void **values)
{
    static const unsigned char fat[] = {0x50, 0xed, 0x55, 0xba};
    const bool is_fat = memcmp(image, fat, sizeof fat) == 0;
    BEGIN(cuModuleLoadDataEx);
    if (is_fat && !fault_text("sass"))
        return NO_BINARY;
    if (!is_fat && (fault_text("jit") || strncmp(image, "//", 2) != 0 ||
                    !strstr(image, "\n.version 7.0\n.target sm_75\n.address_size 64\n")))
        return refuse_ptx(n_options, options, values);
    struct object *module = add(MODULE);
    module->ptx = is_fat ? NULL : image;
    *out = (struct CUmod_st *)module;
    return QP_CU_OK;
}

int cuModuleUnload(struct CUmod_st *module)
{
    drop_functions((struct object *)module);
    return give_back(ID_cuModuleUnload, module, MODULE);
}

/* An entry of the PTX takes the block and a struct of the size that the kernel has. */
static bool has_entry(const char *ptx, const struct host_kernel *kernel)
{
    char entry[128], param[160];
    (void)snprintf(entry, sizeof entry, ".entry %s(", kernel->name);
    const char *at = strstr(ptx, entry);
    if (!at)
        return false;
    (void)snprintf(param, sizeof param, "%s_param_1[%zu]\n)", kernel->name, kernel->n_args);
    const char *end = strchr(at, ')'), *found = strstr(at, param);
    if (!found || found > end)
        die("the PTX has another struct, scripts/ptx.sh makes it anew: ", kernel->name);
    return true;
}

int cuModuleGetFunction(struct CUfunc_st **out, struct CUmod_st *handle, const char *name)
{
    struct object *module = (struct object *)handle;
    const size_t n = sizeof host_kernels / sizeof host_kernels[0];
    size_t i = 0;
    BEGIN(cuModuleGetFunction);
    if (!is_alive(module, MODULE))
        return INVALID_HANDLE;
    while (i < n && strcmp(host_kernels[i].name, name) != 0)
        i++;
    if (i == n || (module->ptx && !has_entry(module->ptx, &host_kernels[i])))
        return NOT_FOUND;
    struct object *function = add(FUNCTION);
    function->kernel = &host_kernels[i];
    function->owner = module;
    *out = (struct CUfunc_st *)function;
    return QP_CU_OK;
}

/* ---- Memory -----------------------------------------------------------------------------------
 */

static unsigned char *add_memory(enum kind kind, size_t n_bytes, int poison)
{
    void *bytes = NULL;
    if (posix_memalign(&bytes, 256, n_bytes) != 0)
        return NULL;
    memset(bytes, poison, n_bytes);
    struct object *o = add(kind);
    o->bytes = bytes;
    o->n_bytes = n_bytes;
    count_bytes(kind, (long)n_bytes);
    return bytes;
}

int cuMemAlloc_v2(uint64_t *memory, size_t n_bytes)
{
    BEGIN(cuMemAlloc_v2);
    if (n_bytes == 0)
        return INVALID_VALUE;
    const unsigned char *bytes =
        n_bytes > (size_t)fault_number("most", 1L << 30) ? NULL : add_memory(MEMORY, n_bytes, 0xa5);
    *memory = bytes ? (uint64_t)(uintptr_t)bytes + DEVICE_SPACE : 0;
    return bytes ? QP_CU_OK : QP_CU_OUT_OF_MEMORY;
}

int cuMemFree_v2(uint64_t memory)
{
    return give_back(ID_cuMemFree_v2, find_range(MEMORY, host_address(memory), 1), MEMORY);
}

int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned flags)
{
    BEGIN(cuMemHostAlloc);
    *memory = n_bytes && flags == 0 ? add_memory(PINNED, n_bytes, 0x5a) : NULL;
    return *memory ? QP_CU_OK : QP_CU_OUT_OF_MEMORY;
}

int cuMemFreeHost(void *memory)
{
    return give_back(ID_cuMemFreeHost, find_range(PINNED, memory, 1), PINNED);
}

static int queue_copy(struct object *stream, unsigned char *device, unsigned char *host, size_t n,
                      bool is_result)
{
    if (!is_alive(stream, STREAM))
        return INVALID_HANDLE;
    if (!find_range(MEMORY, device, n))
        return INVALID_VALUE;
    if (!find_range(PINNED, host, n))
        die("a copy waits: its memory is not pinned", "");
    enqueue(stream, (struct op){.to = is_result ? host : device,
                                .from = is_result ? device : host,
                                .n = n,
                                .is_result = is_result});
    return QP_CU_OK;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n_bytes, struct CUstream_st *stream)
{
    BEGIN(cuMemcpyHtoDAsync_v2);
    return queue_copy((struct object *)stream, host_address(to), (unsigned char *)from, n_bytes,
                      false);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n_bytes, struct CUstream_st *stream)
{
    BEGIN(cuMemcpyDtoHAsync_v2);
    return queue_copy((struct object *)stream, host_address(from), to, n_bytes, true);
}

/* ---- Streams, events and launches -------------------------------------------------------------
 */

int cuStreamCreate(struct CUstream_st **stream, unsigned flags)
{
    BEGIN(cuStreamCreate);
    *stream = (struct CUstream_st *)add(STREAM);
    return flags <= QP_CU_STREAM_NON_BLOCKING ? QP_CU_OK : INVALID_VALUE;
}

int cuStreamDestroy_v2(struct CUstream_st *stream)
{
    return give_back(ID_cuStreamDestroy_v2, stream, STREAM);
}

int cuStreamSynchronize(struct CUstream_st *stream)
{
    BEGIN(cuStreamSynchronize);
    return is_alive(stream, STREAM) ? run((struct object *)stream, UINT64_MAX) : INVALID_HANDLE;
}

int cuEventCreate(struct CUevent_st **event, unsigned flags)
{
    BEGIN(cuEventCreate);
    *event = (struct CUevent_st *)add(EVENT);
    return flags <= (QP_CU_EVENT_BLOCKING | QP_CU_EVENT_NO_TIMING) ? QP_CU_OK : INVALID_VALUE;
}

int cuEventDestroy_v2(struct CUevent_st *event)
{
    return give_back(ID_cuEventDestroy_v2, event, EVENT);
}

int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    struct object *e = (struct object *)event, *s = (struct object *)stream;
    BEGIN(cuEventRecord);
    if (!is_alive(e, EVENT) || !is_alive(s, STREAM))
        return INVALID_HANDLE;
    e->owner = s;
    e->n_queued = s->n_queued;
    return QP_CU_OK;
}

int cuEventSynchronize(struct CUevent_st *event)
{
    const struct object *e = (struct object *)event;
    BEGIN(cuEventSynchronize);
    if (!is_alive(e, EVENT))
        return INVALID_HANDLE;
    if (!e->owner) /* never recorded */
        return QP_CU_OK;
    await_overlap(e->owner);
    return run(e->owner, e->n_queued);
}

int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned group_x, unsigned group_y, unsigned group_z, unsigned local_bytes,
                   struct CUstream_st *stream, void **parameters, void **extra)
{
    const struct object *f = (struct object *)function;
    uint64_t block;
    BEGIN(cuLaunchKernel);
    if (!is_alive(f, FUNCTION) || !is_alive(stream, STREAM))
        return INVALID_HANDLE;
    if (grid_x == 0 || grid_x > 0x7fffffff || group_x == 0 || group_x > 1024 ||
        (grid_y | grid_z | group_y | group_z) != 1 || local_bytes != 0 || extra)
        return INVALID_VALUE;
    memcpy(&block, parameters[0], sizeof block);
    if (!find_range(MEMORY, host_address(block), 1))
        return INVALID_VALUE;
    unsigned char *args = malloc(f->kernel->n_args);
    if (!args)
        die("no memory", "");
    memcpy(args, parameters[1], f->kernel->n_args);
    enqueue((struct object *)stream,
            (struct op){.kernel = f->kernel, .to = host_address(block), .args = args, .n = grid_x});
    return QP_CU_OK;
}

/* ---- The system -------------------------------------------------------------------------------
 */

int access(const char *path, int mode)
{
    return strcmp(path, "/dev/nvidiactl") == 0 ? 0 : faccessat(AT_FDCWD, path, mode, 0);
}
