/*
 * test_opencl.c - every kernel on every OpenCL device that is usable, with groups of 1, 32 and 256
 * threads and of the sizes in use: the same bits as the scalar kernels. 77 without a device.
 */
#include "lib/op_device.h"

#include <stdio.h>

static int prove(const struct qp_device_info *info, size_t place)
{
    static const uint32_t group_sizes[] = {0, 1, 32, 256};
    struct qplan_error err = {0};
    struct qp_gpu *gpu;
    enum qplan_status status = qp_backend_opencl.open(&gpu, place, &err);
    for (size_t i = 0; i < 4 && status == QPLAN_OK; i++) {
        status = qp_device_prove_all(gpu, group_sizes[i], &err);
        if (status == QPLAN_OK)
            status = qp_op_prove_all(gpu, group_sizes[i], &err);
    }
    qp_backend_opencl.close(gpu);
    printf("%s %s: %s%s%s\n", info->label, info->name, status == QPLAN_OK ? "proven" : err.subject,
           status == QPLAN_OK ? "" : ": ", err.message);
    return status != QPLAN_OK;
}

int main(void)
{
    struct qp_device_info infos[4];
    char reason[QP_REASON];
    size_t n = qp_backend_opencl.probe(infos, 4, reason), n_usable = 0;
    int failed = 0;
    for (size_t i = 0; i < n && i < 4; i++) {
        if (infos[i].reason[0]) {
            printf("%s %s: skipped: %s\n", infos[i].label, infos[i].name, infos[i].reason);
            continue;
        }
        n_usable++;
        failed += prove(&infos[i], i);
    }
    if (n_usable == 0)
        printf("skipped: no usable OpenCL device: %s\n", n ? "see above" : reason);
    return failed ? 1 : n_usable ? 0 : 77;
}
