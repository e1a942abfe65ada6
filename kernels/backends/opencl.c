/*
 * opencl.c - OpenCL 1.2 behind backend.h. Programs are built from the embedded text with
 * the one option that the numeric contract needs; a device that cannot promise it is listed with
 * the reason. Pageable memory is copied as it is: OpenCL has no way to pin what it did not
 * allocate.
 */
#include "backend.h"
#include "kernels/gpu/qk_args.h"
#include "opencl_api.h"

#include "lib/base/alloc.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct cl_gpu {
    struct qp_gpu gpu; /* first: the rest of the library sees this part */
    struct qp_cl cl;
    cl_device_id device;
    cl_context context;
    pthread_mutex_t building;
    cl_program programs[QK_PROGRAM_COUNT]; /* made when first needed; under the mutex */
};

struct cl_lane {
    struct qp_lane lane;
    cl_command_queue queue;
    cl_mem block;
    cl_kernel kernels[QK_KERNEL_COUNT]; /* made when first launched; their arguments are state */
};

static struct cl_gpu *gpu_of(const struct qp_lane *lane)
{
    return (struct cl_gpu *)lane->gpu;
}

/* ---- Failures ---------------------------------------------------------------------------------
 */

static enum qplan_status fail(struct qplan_error *err, const struct cl_gpu *g, const char *call,
                              cl_int error)
{
    const bool memory = error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_RESOURCES ||
                        error == CL_INVALID_BUFFER_SIZE;
    const char *name = qp_cl_error_name(error);
    return qp_fail(err, memory ? QPLAN_ERR_MEMORY : QPLAN_ERR_DEVICE, g->gpu.info.label,
                   "%s failed: %s (%d) on %s", call, name ? name : "error", (int)error,
                   g->gpu.info.name);
}

/* Returns from a function that has g and err, if a call fails. */
#define TRY_CL(g, call, ...)                                                                       \
    do {                                                                                           \
        cl_int try_error = (g)->cl.call(__VA_ARGS__);                                              \
        if (try_error != CL_SUCCESS)                                                               \
            return fail(err, g, #call, try_error);                                                 \
    } while (0)

/* ---- Devices ----------------------------------------------------------------------------------
 */

#define MOST_DEVICES 16

/* All devices of all platforms, in the order of the loader. */
static size_t list_devices(const struct qp_cl *cl, cl_device_id *out, char reason[QP_REASON])
{
    cl_platform_id platforms[MOST_DEVICES];
    cl_uint n_platforms = 0, n;
    size_t found = 0;
    if (cl->clGetPlatformIDs(MOST_DEVICES, platforms, &n_platforms) != CL_SUCCESS)
        n_platforms = 0;
    (void)snprintf(reason, QP_REASON,
                   n_platforms ? "no device" : "no platform: no driver is there");
    for (cl_uint i = 0; i < n_platforms && i < MOST_DEVICES && found < MOST_DEVICES; i++) {
        const cl_uint room = (cl_uint)(MOST_DEVICES - found);
        if (cl->clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, room, out + found, &n) ==
            CL_SUCCESS)
            found += n < room ? n : room;
    }
    return found;
}

/* A number of the device; 0 where it does not tell. */
static uint64_t number_of(const struct qp_cl *cl, cl_device_id device, cl_device_info what)
{
    uint64_t value = 0; /* little-endian, so a shorter number fills its low end */
    return cl->clGetDeviceInfo(device, what, sizeof value, &value, NULL) == CL_SUCCESS ? value : 0;
}

static void text_of(const struct qp_cl *cl, cl_device_id device, cl_device_info what, char *out,
                    size_t n_out)
{
    char text[1024] = "";
    if (cl->clGetDeviceInfo(device, what, sizeof text, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    text[sizeof text - 1] = '\0';
    qp_dl_make_plain(text);
    (void)snprintf(out, n_out, "%.*s", (int)n_out - 1, text);
}

/* What the kernels and the numeric contract need: bits that must be set, or a least value. */
static const struct need {
    cl_device_info what;
    uint64_t bits, least;
    const char *lacks;
} needs[] = {
    {CL_DEVICE_AVAILABLE, 0, 1, "the device is not available"},
    {CL_DEVICE_COMPILER_AVAILABLE, 0, 1, "the driver has no compiler"},
    {CL_DEVICE_ENDIAN_LITTLE, 0, 1, "the device is not little-endian"},
    {CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, 0,
     "division is not correctly rounded"},
    {CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_DENORM, 0, "subnormal numbers are flushed to zero"},
    {CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_ROUND_TO_NEAREST, 0, "sums are not rounded to nearest"},
    {CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_INF_NAN, 0, "infinity and NaN are not kept"},
    {CL_DEVICE_MAX_WORK_GROUP_SIZE, 0, QK_GROUP_MOST, "groups of 256 threads are too large for it"},
    {CL_DEVICE_LOCAL_MEM_SIZE, 0, 24 << 10, "it has less than 24 KiB of local memory"},
};

static void describe(const struct qp_cl *cl, cl_device_id device, size_t place,
                     struct qp_device_info *info)
{
    *info = (struct qp_device_info){0};
    (void)snprintf(info->label, sizeof info->label, "opencl:%zu", place);
    text_of(cl, device, CL_DEVICE_NAME, info->name, sizeof info->name);
    text_of(cl, device, CL_DRIVER_VERSION, info->driver, sizeof info->driver);
    info->memory_bytes = number_of(cl, device, CL_DEVICE_GLOBAL_MEM_SIZE);
    info->block_bytes = number_of(cl, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    info->is_cpu = (number_of(cl, device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
    info->has_fp64 = (number_of(cl, device, CL_DEVICE_DOUBLE_FP_CONFIG) & CL_FP_DENORM) != 0;
    for (size_t i = 0; i < sizeof needs / sizeof needs[0] && !info->reason[0]; i++) {
        uint64_t value = number_of(cl, device, needs[i].what);
        if ((value & needs[i].bits) != needs[i].bits || value < needs[i].least)
            (void)snprintf(info->reason, sizeof info->reason, "%s", needs[i].lacks);
    }
}

static size_t probe(struct qp_device_info *out, size_t n_out, char reason[QP_REASON])
{
    struct qp_cl cl;
    cl_device_id devices[MOST_DEVICES];
    if (!qp_cl_load(&cl, reason))
        return 0;
    size_t n = list_devices(&cl, devices, reason);
    for (size_t i = 0; i < n && i < n_out; i++)
        describe(&cl, devices[i], i, &out[i]);
    return n;
}

/* ---- Opening ----------------------------------------------------------------------------------
 */

static enum qplan_status fail_build(struct qplan_error *err, const struct cl_gpu *g,
                                    cl_program program, cl_int error)
{
    char log[2048] = "";
    (void)g->cl.clGetProgramBuildInfo(program, g->device, CL_PROGRAM_BUILD_LOG, sizeof log, log,
                                      NULL);
    log[sizeof log - 1] = '\0';
    qp_dl_make_plain(log);
    return qp_fail(err, QPLAN_ERR_DEVICE, g->gpu.info.label,
                   "the driver cannot build the kernels: error %d on %s: %.300s", (int)error,
                   g->gpu.info.name, log);
}

static enum qplan_status build(struct cl_gpu *g, enum qk_program which, struct qplan_error *err)
{
    static const char options[] = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt -DQK_FP64";
    static const char options_f32[] = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";
    const char *text = qk_program_texts[which];
    cl_int error;
    cl_program program = g->cl.clCreateProgramWithSource(g->context, 1, &text, NULL, &error);
    if (!program)
        return fail(err, g, "clCreateProgramWithSource", error);
    error = g->cl.clBuildProgram(program, 1, &g->device,
                                 g->gpu.info.has_fp64 ? options : options_f32, NULL, NULL);
    if (error == CL_SUCCESS) {
        g->programs[which] = program;
        return QPLAN_OK;
    }
    enum qplan_status status = fail_build(err, g, program, error);
    (void)g->cl.clReleaseProgram(program);
    return status;
}

/* A kernel for one lane. */
static enum qplan_status make_kernel(struct cl_gpu *g, enum qk_kernel which, cl_kernel *out,
                                     struct qplan_error *err)
{
    const struct qk_kernel_row *row = &qk_kernel_rows[which];
    enum qplan_status status = QPLAN_OK;
    cl_int error;
    (void)pthread_mutex_lock(&g->building);
    if (!g->programs[row->program])
        status = build(g, row->program, err);
    (void)pthread_mutex_unlock(&g->building);
    if (status != QPLAN_OK)
        return status;
    *out = g->cl.clCreateKernel(g->programs[row->program], row->name, &error);
    return *out ? QPLAN_OK : fail(err, g, "clCreateKernel", error);
}

static void close_gpu(struct qp_gpu *gpu)
{
    struct cl_gpu *g = (struct cl_gpu *)gpu;
    if (!g)
        return;
    for (size_t i = 0; i < QK_PROGRAM_COUNT; i++) {
        if (g->programs[i])
            (void)g->cl.clReleaseProgram(g->programs[i]);
    }
    if (g->context)
        (void)g->cl.clReleaseContext(g->context);
    (void)pthread_mutex_destroy(&g->building);
    qp_free(g);
}

static enum qplan_status find_device(struct cl_gpu *g, size_t place, struct qplan_error *err)
{
    char reason[QP_REASON];
    cl_device_id devices[MOST_DEVICES];
    if (!qp_cl_load(&g->cl, reason))
        return qp_fail(err, QPLAN_ERR_DEVICE, "opencl", "%s", reason);
    size_t n = list_devices(&g->cl, devices, reason);
    if (place >= n)
        return qp_fail(err, QPLAN_ERR_DEVICE, "opencl", "no such device: %zu of %zu", place, n);
    g->device = devices[place];
    describe(&g->cl, g->device, place, &g->gpu.info);
    return QPLAN_OK;
}

static enum qplan_status make_context(struct cl_gpu *g, struct qplan_error *err)
{
    cl_int error;
    g->context = g->cl.clCreateContext(NULL, 1, &g->device, NULL, NULL, &error);
    return g->context ? QPLAN_OK : fail(err, g, "clCreateContext", error);
}

static enum qplan_status open_gpu(struct qp_gpu **out, size_t place, struct qplan_error *err)
{
    struct cl_gpu *g = qp_alloc(1, sizeof *g);
    *out = NULL;
    if (!g)
        return qp_fail_memory(err, "device", sizeof *g);
    g->gpu.backend = &qp_backend_opencl;
    (void)pthread_mutex_init(&g->building, NULL);
    enum qplan_status status = find_device(g, place, err);
    if (status == QPLAN_OK)
        status = make_context(g, err);
    if (status == QPLAN_OK)
        *out = &g->gpu;
    else
        close_gpu(&g->gpu);
    return status;
}

/* ---- Lanes ------------------------------------------------------------------------------------
 */

static void free_lane(struct qp_lane *lane)
{
    struct cl_lane *l = (struct cl_lane *)lane;
    if (!l)
        return;
    const struct qp_cl *cl = &gpu_of(lane)->cl;
    for (size_t i = 0; i < QK_KERNEL_COUNT; i++) {
        if (l->kernels[i])
            (void)cl->clReleaseKernel(l->kernels[i]);
    }
    if (l->block)
        (void)cl->clReleaseMemObject(l->block);
    if (l->queue)
        (void)cl->clReleaseCommandQueue(l->queue);
    qp_free(l);
}

static enum qplan_status copy(struct qp_lane *lane, enum qp_copy_way way, struct qp_span span,
                              void *host, struct qplan_error *err)
{
    struct cl_lane *l = (struct cl_lane *)lane;
    const struct cl_gpu *g = gpu_of(lane);
    if (way == QP_COPY_IN)
        TRY_CL(g, clEnqueueWriteBuffer, l->queue, l->block, CL_FALSE, span.off, span.n, host, 0,
               NULL, NULL);
    else
        TRY_CL(g, clEnqueueReadBuffer, l->queue, l->block, CL_FALSE, span.off, span.n, host, 0,
               NULL, NULL);
    return QPLAN_OK;
}

static enum qplan_status sync_lane(struct qp_lane *lane, struct qplan_error *err)
{
    const struct cl_gpu *g = gpu_of(lane);
    TRY_CL(g, clFinish, ((struct cl_lane *)lane)->queue);
    return QPLAN_OK;
}

/* Memory is often given out when it is first used: so the ends are used here. */
static enum qplan_status touch(struct cl_lane *l, struct qplan_error *err)
{
    char zero[1] = {0};
    QP_TRY(copy(&l->lane, QP_COPY_IN, (struct qp_span){0, 1}, zero, err));
    QP_TRY(copy(&l->lane, QP_COPY_IN, (struct qp_span){l->lane.n_bytes - 1, 1}, zero, err));
    return sync_lane(&l->lane, err);
}

static enum qplan_status fill_lane(struct cl_lane *l, struct qplan_error *err)
{
    const struct cl_gpu *g = gpu_of(&l->lane);
    cl_int error;
    l->queue = g->cl.clCreateCommandQueue(g->context, g->device, 0, &error);
    if (!l->queue)
        return fail(err, g, "clCreateCommandQueue", error);
    l->block = g->cl.clCreateBuffer(g->context, CL_MEM_READ_WRITE, l->lane.n_bytes, NULL, &error);
    if (!l->block)
        return fail(err, g, "clCreateBuffer", error);
    return touch(l, err);
}

static enum qplan_status alloc_lane(struct qp_lane **out, struct qp_gpu *gpu, uint64_t n_bytes,
                                    struct qplan_error *err)
{
    struct cl_lane *l = qp_alloc(1, sizeof *l);
    *out = NULL;
    if (!l)
        return qp_fail_memory(err, "device", sizeof *l);
    l->lane = (struct qp_lane){gpu, n_bytes};
    enum qplan_status status = fill_lane(l, err);
    if (status == QPLAN_OK)
        *out = &l->lane;
    else
        free_lane(&l->lane);
    return status;
}

static enum qplan_status launch(struct qp_lane *lane, const struct qp_launch *what,
                                struct qplan_error *err)
{
    struct cl_lane *l = (struct cl_lane *)lane;
    struct cl_gpu *g = gpu_of(lane);
    const size_t local = what->group_size, global = local * what->groups;
    cl_kernel *kernel = &l->kernels[what->kernel];
    if (!*kernel)
        QP_TRY(make_kernel(g, what->kernel, kernel, err));
    TRY_CL(g, clSetKernelArg, *kernel, 0, sizeof l->block, &l->block);
    TRY_CL(g, clSetKernelArg, *kernel, 1, what->n_args, what->args);
    TRY_CL(g, clEnqueueNDRangeKernel, l->queue, *kernel, 1, NULL, &global, &local, 0, NULL, NULL);
    return QPLAN_OK;
}

const struct qp_backend qp_backend_opencl = {
    .id = QPLAN_BACKEND_OPENCL,
    .probe = probe,
    .open = open_gpu,
    .close = close_gpu,
    .alloc = alloc_lane,
    .free = free_lane,
    .copy = copy,
    .launch = launch,
    .sync = sync_lane,
};
