/*
 * host_kernels.h - the device text compiled as C11: every kernel of qk_list.h, in its order, as a
 * function that does one group.
 */
#ifndef TESTS_HOST_KERNELS_H
#define TESTS_HOST_KERNELS_H

#define QK_FP64
#include "kernels/gpu/qk_affine_program.h"
#include "kernels/gpu/qk_grid_program.h"
#include "kernels/gpu/qk_list.h"
#include "kernels/gpu/qk_rows_program.h"
#include "kernels/gpu/qk_tiles_program.h"

#include <stddef.h>

static const struct host_kernel {
    const char *name;
    size_t n_args; /* bytes of its struct */
    void (*run)(qk_u32 group, void *block, const void *args);
} host_kernels[] = {
#define HOST_ROW(name) {#name, name##_n_args, name},
    QK_KERNELS(HOST_ROW, HOST_ROW)
#undef HOST_ROW
};

#endif
