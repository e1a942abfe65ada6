/*
 * qk_grid_dtype.inc.h - all kernels of one float dtype. What the including file defines is in the
 * two templates.
 */
#include "qk_grid.inc.h"

#include "qk_affine_grid.inc.h"

#undef NAME
#undef KIND
#undef AT
#undef ADD
#undef VALUE
