/*
 * test_ops.c - operators on the first usable device of a backend, which is opened once: every case
 * of testdata/ops with groups of 1, 32 and 256 threads and of the sizes in use.
 *
 *     gpu-ops cuda|opencl     exit 77 without a device
 */
#include "op_device.h"

static const uint32_t group_sizes[] = {0, 1, 32, 256};

static void test_every_case(void **state)
{
    for (size_t i = 0; i < COUNT(group_sizes); i++)
        check_device(*state, group_sizes[i]);
}

int main(int argc, char **argv)
{
    const char *wanted = argc == 2 ? argv[1] : "opencl";
    const struct qp_backend *backend =
        strcmp(wanted, "cuda") == 0 ? &qp_backend_cuda : &qp_backend_opencl;
    struct qp_device_info infos[4];
    char reason[QP_REASON];
    struct qplan_error err;
    const size_t n = backend->probe(infos, 4, reason);
    size_t i = 0;
    while (i < n && i < 4 && infos[i].reason[0])
        i++;
    if (i == n || i == 4) {
        printf("skipped: no usable %s device: %s\n", wanted, n ? infos[0].reason : reason);
        return 77;
    }
    struct qp_gpu *gpu;
    if (backend->open(&gpu, i, &err) != QPLAN_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    struct qplan_device device = {
        .backend = backend->id, .gpu = gpu, .memory_bytes = gpu->info.memory_bytes / 2};
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_every_case, &device)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    backend->close(gpu);
    return failed;
}
