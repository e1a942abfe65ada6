/*
 * hard.c - values that devices are proven on.
 */
#include "hard.h"

#include "kernels/kernel.h"

#include <math.h>
#include <string.h>

uint32_t qp_hard_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

double qp_hard_value(uint32_t random, bool nonfinite)
{
    static const double finite[] = {0.0,  -0.0, 0x1p-149, -0x1p-140, 0x1p-1060, 0.5,
                                    -1.5, 2.5,  127.5,    -128.0,    65504.0,   -0x1p-24};
    static const double others[] = {INFINITY, -INFINITY, NAN};
    if (nonfinite && random % 4 == 0)
        return others[random / 4 % (sizeof others / sizeof others[0])];
    return finite[random / 4 % (sizeof finite / sizeof finite[0])];
}

/* Storing clips, so what is not finite has its bits written here. */
void qp_hard_put(enum qplan_dtype dtype, double x, void *to)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    const uint16_t infinity = dtype == QPLAN_F16 ? 0x7c00 : 0x7f80;
    const uint16_t bits = (uint16_t)(infinity | (signbit(x) ? 0x8000 : 0) | (isnan(x) ? 0x40 : 0));
    if (dtype == QPLAN_F64) {
        memcpy(to, &x, sizeof x);
    } else if (isfinite(x)) {
        f64->store(dtype, 1, &x, to);
    } else if (dtype == QPLAN_F32) {
        const float narrow = (float)x;
        memcpy(to, &narrow, sizeof narrow);
    } else {
        memcpy(to, &bits, sizeof bits);
    }
}
