/*
 * test_kernels.c - every kernel on every device of a backend that is usable, with groups of 1
 * and 256 threads and of the sizes in use: the same bits as the scalar kernels.
 *
 *     gpu-kernels cuda|opencl     exit 77 without a device
 */
#include "lib/ops/op_device.h"

#include <stdio.h>
#include <string.h>

static int prove(const struct qp_backend *backend, const struct qp_device_info *info, size_t place)
{
    static const uint32_t group_sizes[] = {0, 1, 256};
    struct qplan_error err = {0};
    struct qp_gpu *gpu;
    enum qplan_status status = backend->open(&gpu, place, &err);
    for (size_t i = 0; i < 3 && status == QPLAN_OK; i++) {
        gpu->group_size = group_sizes[i];
        status = qp_self_test(gpu, &err);
    }
    backend->close(gpu);
    printf("%s %s: %s%s%s\n", info->label, info->name, status == QPLAN_OK ? "proven" : err.subject,
           status == QPLAN_OK ? "" : ": ", err.message);
    return status != QPLAN_OK;
}

static const struct qp_backend *find(const char *name)
{
    size_t i = 0;
    while (qp_backends[i] && strcmp(qplan_backend_name(qp_backends[i]->id), name) != 0)
        i++;
    return qp_backends[i];
}

int main(int argc, char **argv)
{
    const struct qp_backend *backend = argc == 2 ? find(argv[1]) : NULL;
    struct qp_device_info infos[4];
    char reason[QP_REASON];
    int failed = 0;
    if (!backend) {
        fprintf(stderr, "usage: gpu-kernels cuda|opencl\n");
        return 2;
    }
    size_t n = backend->probe(infos, 4, reason), n_usable = 0;
    for (size_t i = 0; i < n && i < 4; i++) {
        if (infos[i].reason[0]) {
            printf("%s %s: skipped: %s\n", infos[i].label, infos[i].name, infos[i].reason);
            continue;
        }
        n_usable++;
        failed += prove(backend, &infos[i], i);
    }
    if (n_usable == 0)
        printf("skipped: no usable device: %s\n", n ? "see above" : reason);
    return failed ? 1 : n_usable ? 0 : 77;
}
