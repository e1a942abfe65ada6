/*
 * opencl_api.c - finding the calls, and the names of their errors.
 */
#include "opencl_api.h"

#include <string.h>

bool qp_cl_load(struct qp_cl *cl, char reason[QP_REASON])
{
    static const char *const libraries[] = {"libOpenCL.so.1", NULL};
    static const char *const names[] = {
#define QP_CL_NAME(call) #call,
        QP_CL_CALLS(QP_CL_NAME)
#undef QP_CL_NAME
    };
    void *found[sizeof names / sizeof names[0]];
    _Static_assert(sizeof found == sizeof *cl, "the struct is nothing but the pointers, in order");
    if (!qp_dl_load(libraries, names, sizeof names / sizeof names[0], found, reason))
        return false;
    memcpy(cl, found, sizeof *cl); /* an object pointer of dlsym is a function pointer by POSIX */
    return true;
}

const char *qp_cl_error_name(cl_int error)
{
    static const struct {
        cl_int error;
        const char *name;
    } rows[] = {
#define ROW(error) {error, #error}
        ROW(CL_DEVICE_NOT_FOUND),       ROW(CL_DEVICE_NOT_AVAILABLE),
        ROW(CL_COMPILER_NOT_AVAILABLE), ROW(CL_MEM_OBJECT_ALLOCATION_FAILURE),
        ROW(CL_OUT_OF_RESOURCES),       ROW(CL_OUT_OF_HOST_MEMORY),
        ROW(CL_BUILD_PROGRAM_FAILURE),  ROW(CL_INVALID_VALUE),
        ROW(CL_INVALID_DEVICE),         ROW(CL_INVALID_CONTEXT),
        ROW(CL_INVALID_COMMAND_QUEUE),  ROW(CL_INVALID_BUILD_OPTIONS),
        ROW(CL_INVALID_BUFFER_SIZE),    ROW(CL_INVALID_KERNEL_NAME),
        ROW(CL_INVALID_KERNEL_ARGS),    ROW(CL_INVALID_WORK_GROUP_SIZE),
        ROW(CL_INVALID_OPERATION),
#undef ROW
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].error == error)
            return rows[i].name;
    }
    return NULL;
}
