/*
 * grid_rows.inc.h - the loops of both working precisions for one instruction set, which is in ISA.
 */
/* Copies of a loop with other constants must not be folded into one with variables. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define NAME(x)      x##_f32
#define POINT(x)     qp_grid_##x##_f32
#define WORK         float
#define BITS         uint32_t
#define WORK_DTYPE   QPLAN_F32
#define KEEPS_ERRORS 0
#include "grid_loops.inc.h"

#define NAME(x)      x##_f64
#define POINT(x)     qp_grid_##x##_f64
#define WORK         double
#define BITS         uint64_t
#define WORK_DTYPE   QPLAN_F64
#define KEEPS_ERRORS 1
#include "grid_loops.inc.h"

#undef ALWAYS_INLINE
