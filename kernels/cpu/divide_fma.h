/*
 * divide_fma.h - the correctly rounded quotient x / s without dividing, for many x and one s. The
 * only place where fused multiply-add instructions are used.
 *
 * y = 1/s is rounded correctly once. t = x * y is off by less than 2 units in the last place. One
 * correction with the residual x - t * s leaves an error, before its rounding, of less than 2^-21
 * units: so q is one of the two numbers around the quotient. For such a q the residual x - q * s is
 * exact and q + residual * y, rounded once, is the correctly rounded quotient (Markstein's theorem,
 * which needs y correctly rounded and q faithful).
 *
 * Exact residuals must not underflow. Where |x / s| >= 1/4 they are multiples of s * 2^-50, so
 * s >= 2^-98 is enough; below 1/4 a quotient that is off in the last places still rounds to 0. With
 * s <= 2^98 nothing overflows, for x is first clamped to 512 * s, beyond every code. Any other s is
 * divided by.
 */
#ifndef QP_DIVIDE_FMA_H
#define QP_DIVIDE_FMA_H

struct v_divisor {
    vf s, y, limit;
};

static inline int v_can_multiply(float s)
{
    return s >= 0x1p-98f && s <= 0x1p98f;
}

static inline struct v_divisor v_divisor(float s)
{
    return (struct v_divisor){v_set(s), v_set(1.0f / s), v_set(512.0f * s)};
}

/* x / s, clamped to +-512; a NaN passes. */
static inline vf v_quotient(vf x, const struct v_divisor *d)
{
    const vf low = _mm256_sub_ps(_mm256_setzero_ps(), d->limit);
    x = v_min(d->limit, v_max(low, x));
    vf t = _mm256_mul_ps(x, d->y);
    vf q = _mm256_fmadd_ps(_mm256_fnmadd_ps(t, d->s, x), d->y, t);
    return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, d->s, x), d->y, q);
}

#endif
