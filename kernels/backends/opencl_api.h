/*
 * opencl_api.h - the calls of OpenCL 1.2 that are made, found at run time in the ICD loader. The
 * headers give their types; nothing links to the library.
 */
#ifndef QP_OPENCL_API_H
#define QP_OPENCL_API_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "dl.h"

#define QP_CL_CALLS(X)                                                                             \
    X(clGetPlatformIDs)                                                                            \
    X(clGetDeviceIDs)                                                                              \
    X(clGetDeviceInfo)                                                                             \
    X(clCreateContext)                                                                             \
    X(clReleaseContext)                                                                            \
    X(clCreateProgramWithSource)                                                                   \
    X(clBuildProgram)                                                                              \
    X(clGetProgramBuildInfo)                                                                       \
    X(clReleaseProgram)                                                                            \
    X(clCreateKernel)                                                                              \
    X(clReleaseKernel)                                                                             \
    X(clSetKernelArg)                                                                              \
    X(clCreateCommandQueue)                                                                        \
    X(clReleaseCommandQueue)                                                                       \
    X(clCreateBuffer)                                                                              \
    X(clReleaseMemObject)                                                                          \
    X(clEnqueueWriteBuffer)                                                                        \
    X(clEnqueueReadBuffer)                                                                         \
    X(clEnqueueNDRangeKernel)                                                                      \
    X(clFinish)

struct qp_cl {
#define QP_CL_FIELD(call) __typeof__(call) *(call);
    QP_CL_CALLS(QP_CL_FIELD)
#undef QP_CL_FIELD
};

/* False, with the reason, where there is no loader or it lacks a call. */
bool qp_cl_load(struct qp_cl *cl, char reason[QP_REASON]);

/* The name of an error number, or NULL for one that none of these calls gives. */
const char *qp_cl_error_name(cl_int error);

#endif
