/*
 * backend.c - the lists: backends, and kernels by name.
 */
#include "backend.h"

const struct qp_backend *const qp_backends[] = {&qp_backend_opencl, NULL};

const char *const qk_kernel_names[QK_KERNEL_COUNT] = {
#define QK_TEXT(name) #name,
    QK_KERNELS(QK_TEXT, QK_TEXT)
#undef QK_TEXT
};
