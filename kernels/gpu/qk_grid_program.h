/*
 * qk_grid_program.h - the kernels of the grid family of operators, in the order in which they are
 * compiled. All sums are in f64, so a device without it has none of them.
 */
#include "qk_platform.h"

#ifdef QK_FP64

#include "qk_grid_lists.h"

/* ---- Working precision f32 ------------------------------------------------------------------- */

#define IN(op)   op##_grid_in_f32
#define WORK     float
#define WORK_MAX QK_F32_MAX
#define WHOLE    0x1p23f
#include "qk_grid_work.inc.h"

#define NAME(op) op##_grid_f32
#define KIND     QK_FLOAT_F32
#define AT       qk_at_f32
#define ADD      qk_sum_add_plain
#define VALUE    qk_sum_value_plain
#include "qk_grid_dtype.inc.h"

#define NAME(op) op##_grid_f16
#define KIND     QK_FLOAT_F16
#define AT       qk_at_f16
#define ADD      qk_sum_add_plain
#define VALUE    qk_sum_value_plain
#include "qk_grid_dtype.inc.h"

#define NAME(op) op##_grid_bf16
#define KIND     QK_FLOAT_BF16
#define AT       qk_at_bf16
#define ADD      qk_sum_add_plain
#define VALUE    qk_sum_value_plain
#include "qk_grid_dtype.inc.h"

#undef IN
#undef WORK
#undef WORK_MAX
#undef WHOLE

/* ---- Working precision f64 ------------------------------------------------------------------- */

#define IN(op)   op##_grid_in_f64
#define WORK     double
#define WORK_MAX QK_WIDE_MAX
#define WHOLE    0x1p52
#include "qk_grid_work.inc.h"

#define NAME(op) op##_grid_f64
#define KIND     QK_FLOAT_F64
#define AT       qk_at_f64
#define ADD      qk_sum_add
#define VALUE    qk_sum_value
#include "qk_grid_dtype.inc.h"

#undef IN
#undef WORK
#undef WORK_MAX
#undef WHOLE

#endif
