/*
 * cuda_api.c - finding the calls, and starting the driver.
 */
#include "cuda_api.h"

#include <stdio.h>
#include <string.h>

static const char *const libraries[] = {"libcuda.so.1", NULL};

/* Asked first and alone: a driver that is too old lacks some of the other calls. */
static bool check_version(int *version, char reason[QP_REASON])
{
    static const char *const name[] = {"cuDriverGetVersion"};
    __typeof__(cuDriverGetVersion) *get_version;
    void *found[1];
    if (!qp_dl_load(libraries, name, 1, found, reason))
        return false;
    memcpy(&get_version, found, sizeof get_version);
    int error = get_version(version);
    if (error != QP_CU_OK) {
        (void)snprintf(reason, QP_REASON, "the driver does not tell its version: error %d", error);
        return false;
    }
    if (*version >= QP_CU_LEAST_DRIVER)
        return true;
    (void)snprintf(reason, QP_REASON, "driver supports CUDA %d.%d, needs %d.%d or newer",
                   *version / 1000, *version % 1000 / 10, QP_CU_LEAST_DRIVER / 1000,
                   QP_CU_LEAST_DRIVER % 1000 / 10);
    return false;
}

static bool start(const struct qp_cu *cu, char reason[QP_REASON])
{
    int error = cu->cuInit(0);
    if (error == QP_CU_NO_DEVICE)
        (void)snprintf(reason, QP_REASON, "no device");
    else if (error != QP_CU_OK)
        (void)snprintf(reason, QP_REASON, "the driver does not start: cuInit failed: %s (%d)",
                       qp_cu_error_name(cu, error), error);
    return error == QP_CU_OK;
}

bool qp_cu_load(struct qp_cu *cu, int *version, char reason[QP_REASON])
{
    static const char *const names[] = {
#define QP_CU_NAME(call) #call,
        QP_CU_CALLS(QP_CU_NAME)
#undef QP_CU_NAME
    };
    void *found[sizeof names / sizeof names[0]];
    _Static_assert(sizeof found == sizeof *cu, "the struct is nothing but the pointers, in order");
    if (!check_version(version, reason) ||
        !qp_dl_load(libraries, names, sizeof names / sizeof names[0], found, reason))
        return false;
    memcpy(cu, found, sizeof *cu); /* an object pointer of dlsym is a function pointer by POSIX */
    return start(cu, reason);
}

const char *qp_cu_error_name(const struct qp_cu *cu, int error)
{
    const char *name = NULL;
    return cu->cuGetErrorName(error, &name) == QP_CU_OK && name ? name : "error";
}
