/*
 * lanes_plain.inc.h - the vocabulary of affine.inc.h with one lane: plain C, the specification.
 * A compiler may make vectors of the loops; every word is branch-free for that.
 *
 * The including file defines V(word), WORK (float or double), BITS (the integer of its size),
 * WORK_MAX, COPYSIGN, FABS and WHOLE, from which magnitude on WORK has no fractions.
 */

typedef WORK V(lanes);
typedef bool V(mask);

static inline WORK V(set)(WORK x)
{
    return x;
}

static inline WORK V(load)(const WORK *p)
{
    return *p;
}

static inline WORK V(load_ints)(const int32_t *p)
{
    return (WORK)*p;
}

/* Of whole numbers that fit. */
static inline void V(store_ints)(int32_t *p, WORK x)
{
    *p = (int32_t)x;
}

static inline WORK V(sub)(WORK a, WORK b)
{
    return a - b;
}

static inline WORK V(mul)(WORK a, WORK b)
{
    return a * b;
}

static inline WORK V(div)(WORK a, WORK b)
{
    return a / b;
}

/* Half to even, of any size; a zero is positive. Adding WHOLE leaves no bits for a fraction. */
static inline WORK V(rne)(WORK x)
{
    const WORK whole = COPYSIGN((WORK)WHOLE, x), near = (x + whole) - whole;
    return FABS(x) < (WORK)WHOLE ? near : x;
}

static inline WORK V(clamp)(WORK x, WORK least, WORK most)
{
    x = x < least ? least : x;
    return x > most ? most : x;
}

static inline WORK V(clip)(WORK x)
{
    return V(clamp)(x, -WORK_MAX, WORK_MAX);
}

/* Not so for a NaN. */
static inline bool V(within)(WORK x, WORK least, WORK most)
{
    return (x >= least) & (x <= most);
}

static inline bool V(is_number)(WORK x)
{
    return x == x;
}

/* x, or 0 where the mask is not set; not by a condition, which compilers move the making of x into.
 */
static inline WORK V(keep)(bool mask, WORK x)
{
    BITS bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= (BITS)0 - (BITS)mask;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static inline bool V(any_not)(bool mask)
{
    return !mask;
}

static inline WORK V(one_nan)(WORK x)
{
    return x == x ? x : (WORK)NAN;
}

/* Lanes of at least this magnitude that were made of a finite number. */
static inline unsigned V(count_large)(WORK x, WORK half_way, WORK from)
{
    return (FABS(x) >= half_way) & (FABS(from) <= WORK_MAX);
}

static inline void V(scale_terms)(WORK dout, WORK x, WORK scale, WORK steps, bool inside,
                                  bool number, double *terms)
{
    const double quotient = (double)x / (double)scale;
    const double factor = inside ? (double)steps - quotient : (double)steps;
    const double term = (double)dout * factor;
    *terms = number ? term : 0;
}

static inline void V(zero_terms)(WORK dout, WORK scale, bool inside, bool number, double *terms)
{
    const double term = -((double)dout * (double)scale);
    *terms = (number & !inside) ? term : 0;
}

#undef WORK_MAX
#undef BITS
#undef COPYSIGN
#undef FABS
#undef WHOLE
