/*
 * qk_affine_dtype.inc.h - all kernels of one float dtype. What the including file defines is in the
 * three templates.
 */
#include "qk_affine.inc.h"

#include "qk_affine_codes.inc.h"

#ifdef QK_FP64
#include "qk_affine_learn.inc.h"
#endif

#undef NAME
#undef RAW
#undef GET8
#undef PUT8
#undef OF_RAW
#undef CLIP
#undef GRADIENT
#undef HALF_WAY
#undef ADD
