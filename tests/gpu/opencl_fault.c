/*
 * opencl_fault.c - stands before the OpenCL loader as libOpenCL.so.1 and lets one call go wrong.
 *
 *     QPLAN_TEST_OPENCL=FILE   the real loader
 *     QPLAN_TEST_FAULT=CALL:N=ERROR
 *         the N-th call of that name, counted from 1, returns the error; 0 = every one
 *         flip:N       one bit of the N-th result that is copied back is another
 *         fp:MASK      devices lack these bits of their f32 configuration
 *         no-fp64:0    devices have no 64-bit floats
 *     QPLAN_TEST_COUNT=FILE    gets the number of calls, or of results for flip, at the end
 *
 * A call that makes an object fails by giving none.
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *real(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen(getenv("QPLAN_TEST_OPENCL"), RTLD_NOW | RTLD_LOCAL);
    void *call = library ? dlsym(library, name) : NULL;
    if (!call) {
        fprintf(stderr, "opencl_fault: no %s\n", name);
        exit(99);
    }
    return call;
}

/* The number behind "NAME:" in the fault, or -1. */
static long fault_number(const char *name)
{
    const char *fault = getenv("QPLAN_TEST_FAULT");
    size_t n = strlen(name);
    return fault && strncmp(fault, name, n) == 0 && fault[n] == ':' ? strtol(fault + n + 1, NULL, 0)
                                                                    : -1;
}

static atomic_long calls, results; /* of the one name that is meant; copied back */

__attribute__((destructor)) static void tell(void)
{
    const char *path = getenv("QPLAN_TEST_COUNT");
    FILE *to = path ? fopen(path, "w") : NULL;
    if (!to)
        return;
    fprintf(to, "%ld\n", fault_number("flip") < 0 ? calls : results);
    fclose(to);
}

/* The error that this call is to return, or CL_SUCCESS. */
static cl_int fault_of(const char *name)
{
    long wanted = fault_number(name);
    if (wanted < 0)
        return CL_SUCCESS;
    long now = atomic_fetch_add(&calls, 1) + 1;
    return wanted == 0 || wanted == now
               ? (cl_int)strtol(strchr(getenv("QPLAN_TEST_FAULT"), '=') + 1, NULL, 0)
               : CL_SUCCESS;
}

#define STATUS(call, types, args)                                                                  \
    cl_int CL_API_CALL call types                                                                  \
    {                                                                                              \
        cl_int fault = fault_of(#call);                                                            \
        __typeof__(call) *next = (__typeof__(call) *)real(#call);                                  \
        return fault != CL_SUCCESS ? fault : next args;                                            \
    }

#define OBJECT(type, call, types, args)                                                            \
    type CL_API_CALL call types                                                                    \
    {                                                                                              \
        cl_int fault = fault_of(#call);                                                            \
        __typeof__(call) *next = (__typeof__(call) *)real(#call);                                  \
        if (fault == CL_SUCCESS)                                                                   \
            return next args;                                                                      \
        *error = fault;                                                                            \
        return NULL;                                                                               \
    }

STATUS(clGetPlatformIDs, (cl_uint n, cl_platform_id *out, cl_uint *found), (n, out, found))
STATUS(clGetDeviceIDs,
       (cl_platform_id platform, cl_device_type type, cl_uint n, cl_device_id *out, cl_uint *found),
       (platform, type, n, out, found))
OBJECT(cl_context, clCreateContext,
       (const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
        void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *ctx,
        cl_int *error),
       (properties, n, devices, notify, ctx, error))
STATUS(clReleaseContext, (cl_context context), (context))
OBJECT(cl_program, clCreateProgramWithSource,
       (cl_context context, cl_uint n, const char **text, const size_t *lengths, cl_int *error),
       (context, n, text, lengths, error))
STATUS(clBuildProgram,
       (cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
        void(CL_CALLBACK *notify)(cl_program, void *), void *ctx),
       (program, n, devices, options, notify, ctx))
STATUS(clGetProgramBuildInfo,
       (cl_program program, cl_device_id device, cl_program_build_info what, size_t n, void *out,
        size_t *length),
       (program, device, what, n, out, length))
STATUS(clReleaseProgram, (cl_program program), (program))
OBJECT(cl_kernel, clCreateKernel, (cl_program program, const char *name, cl_int *error),
       (program, name, error))
STATUS(clReleaseKernel, (cl_kernel kernel), (kernel))
STATUS(clSetKernelArg, (cl_kernel kernel, cl_uint i, size_t n, const void *value),
       (kernel, i, n, value))
OBJECT(cl_command_queue, clCreateCommandQueue,
       (cl_context context, cl_device_id device, cl_command_queue_properties properties,
        cl_int *error),
       (context, device, properties, error))
STATUS(clReleaseCommandQueue, (cl_command_queue queue), (queue))
OBJECT(cl_mem, clCreateBuffer,
       (cl_context context, cl_mem_flags flags, size_t n, void *host, cl_int *error),
       (context, flags, n, host, error))
STATUS(clReleaseMemObject, (cl_mem memory), (memory))
STATUS(clEnqueueWriteBuffer,
       (cl_command_queue queue, cl_mem memory, cl_bool blocking, size_t off, size_t n,
        const void *host, cl_uint n_events, const cl_event *events, cl_event *event),
       (queue, memory, blocking, off, n, host, n_events, events, event))
STATUS(clEnqueueNDRangeKernel,
       (cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *off,
        const size_t *global, const size_t *local, cl_uint n_events, const cl_event *events,
        cl_event *event),
       (queue, kernel, dims, off, global, local, n_events, events, event))
STATUS(clFinish, (cl_command_queue queue), (queue))

cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t n, void *out,
                                   size_t *length)
{
    __typeof__(clGetDeviceInfo) *next = (__typeof__(clGetDeviceInfo) *)real("clGetDeviceInfo");
    cl_int error = next(device, what, n, out, length);
    long lacks = fault_number("fp");
    if (error == CL_SUCCESS && out && what == CL_DEVICE_SINGLE_FP_CONFIG && lacks > 0)
        *(cl_device_fp_config *)out &= ~(cl_device_fp_config)lacks;
    if (error == CL_SUCCESS && out && what == CL_DEVICE_DOUBLE_FP_CONFIG &&
        fault_number("no-fp64") == 0)
        *(cl_device_fp_config *)out = 0;
    return error;
}

cl_int CL_API_CALL clEnqueueReadBuffer(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                       size_t off, size_t n, void *host, cl_uint n_events,
                                       const cl_event *events, cl_event *event)
{
    __typeof__(clEnqueueReadBuffer) *next =
        (__typeof__(clEnqueueReadBuffer) *)real("clEnqueueReadBuffer");
    cl_int fault = fault_of("clEnqueueReadBuffer");
    bool flips = n > 64 && atomic_fetch_add(&results, 1) + 1 == fault_number("flip");
    if (fault != CL_SUCCESS)
        return fault;
    fault = next(queue, memory, flips ? CL_TRUE : blocking, off, n, host, n_events, events, event);
    if (flips)
        ((unsigned char *)host)[n - 1] ^= 4;
    return fault;
}
