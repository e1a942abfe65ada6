/*
 * backend.c - the lists: backends, programs, and kernels by name.
 */
#include "backend.h"

const char *qplan_backend_name(enum qplan_backend backend)
{
    static const char *const names[] = {"any", "cpu", "cuda", "opencl"};
    return (size_t)backend < sizeof names / sizeof names[0] ? names[backend] : NULL;
}

const struct qp_backend *const qp_backends[] = {&qp_backend_cuda, &qp_backend_opencl, NULL};

#define QK_DECLARE(program)                                                                        \
    extern const char qk_##program##_text[], qk_##program##_ptx[];                                 \
    extern const unsigned char qk_##program##_sass[];
QK_PROGRAMS(QK_DECLARE)
#undef QK_DECLARE

const char *const qk_program_texts[QK_PROGRAM_COUNT] = {
#define QK_TEXT(program) qk_##program##_text,
    QK_PROGRAMS(QK_TEXT)
#undef QK_TEXT
};

const struct qk_cuda_image qk_cuda_images[QK_PROGRAM_COUNT] = {
#define QK_IMAGE(program) {qk_##program##_ptx, qk_##program##_sass},
    QK_PROGRAMS(QK_IMAGE)
#undef QK_IMAGE
};

const struct qk_kernel_row qk_kernel_rows[QK_KERNEL_COUNT] = {
#define QK_ROW(name) {#name, QK_PROGRAM},
#define QK_PROGRAM   qk_tiles_program
    QK_tiles_KERNELS(QK_ROW, QK_ROW)
#undef QK_PROGRAM
#define QK_PROGRAM qk_affine_program
        QK_affine_KERNELS(QK_ROW, QK_ROW)
#undef QK_PROGRAM
#define QK_PROGRAM qk_rows_program
            QK_rows_KERNELS(QK_ROW, QK_ROW)
#undef QK_PROGRAM
#define QK_PROGRAM qk_grid_program
                QK_grid_KERNELS(QK_ROW, QK_ROW)
#undef QK_PROGRAM
#undef QK_ROW
};
