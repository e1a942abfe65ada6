/*
 * kernel.h - what a kernel is, and the table of all of them.
 *
 * A kernel works on a tile: a rectangle of a tensor, contiguous in memory, whose columns fall into
 * parameter sets. It knows nothing of files, threads or memory: every buffer is the caller's. The
 * scalar kernels are the specification; any other must give the same bits.
 *
 * Working precision: f64 for f64 data, f32 for the rest. Arrays of lo, hi, scale and decoded values
 * have that type and are passed as void pointers; .work_bytes is their element size.
 */
#ifndef QP_KERNEL_H
#define QP_KERNEL_H

#include "kernels/codes/code.h"
#include "lib/model/sets.h"

/* What check finds in a tile. Counts and positions add up over tiles in flat order. */
struct qp_check {
    uint64_t offences;    /* elements that are neither within the bound nor clipped */
    size_t first_offence; /* element of the tile, where offences > 0 */
    uint64_t clipped;
    size_t first_clipped;
    double max_clip;
    uint64_t nonfinite;
};

/* Sums over one block: lanes by index modulo 16, ascending, then a fixed tree. Finite x only. */
struct qp_sums {
    double e2, x2, y2; /* of e = x - y, with y the decoded value */
    double max_abs;    /* the largest |e|, or the floor if none is above it */
    size_t max_at;     /* the first element with it, 0 if none is above the floor */
    bool within;       /* every x and y is finite, and every |e| surely within its bound */
};

/*
 * What the caller of sums wants to know: the largest error only if it is above the floor, and
 * whether all keep to bounds. Elements come in runs of `width`, of which the first lacks its first
 * `skip` elements, and the last may be cut; width, skip < width and n are multiples of 16. For the
 * elements of a run k the bound is bound[k], and y is 0 or at least as large as step[k], a number
 * of working precision whose sign does not matter. With a width of 0 there are no bounds, and
 * nothing is within them.
 */
struct qp_sums_wish {
    double floor;
    size_t width, skip;
    const double *bound;
    const void *step;
};

/* Where a run ends, of n elements. */
static inline size_t qp_run_end(const struct qp_sums_wish *wish, size_t run, size_t n)
{
    const size_t end = (run + 1) * wish->width - wish->skip;
    return end < n ? end : n;
}

/* The kernels that read one float dtype, whatever its codes will be. */
struct qp_source_kernels {
    enum qplan_dtype dtype;
    enum qplan_isa isa;
    uint8_t elem_bytes, work_bytes;
    const struct qp_work_kernels *work;

    /*
     * Widens lo[set] <= 0 and hi[set] >= 0 by the finite values of a tile; returns the number of
     * others.
     */
    uint64_t (*range)(const struct qp_tile *tile, const void *src, void *lo, void *hi);

    /* The sums of at most QP_BLOCK elements that begin at a multiple of QP_BLOCK. */
    void (*sums)(const void *src, const void *y, size_t n, const struct qp_sums_wish *wish,
                 struct qp_sums *result);
};

/* The kernels of one working precision. */
struct qp_work_kernels {
    enum qplan_dtype work; /* f32 or f64 */
    uint8_t work_bytes;

    /* Widens n ranges by others; exact, so the order does not matter. */
    void (*merge)(size_t n, void *lo, void *hi, const void *other_lo, const void *other_hi);

    /* Between working precision and n elements of a float dtype: exact, and rounded half to even.
     */
    void (*load)(enum qplan_dtype dtype, size_t n, const void *src, void *y);
    void (*store)(enum qplan_dtype dtype, size_t n, const void *y, void *dst);

    /* n numbers as they come back from a float dtype in which they were stored. */
    void (*round)(enum qplan_dtype dtype, size_t n, void *y);

    /*
     * The errors that verification allows in n sets of these scales, with codes of this rule:
     * |scale| * (reach + 2^(bits-21)) + 2^-149, for f64 2^(bits-50), rounded up. -1 for a scale
     * that is none: 0, or not finite. A bias of more than 2^bits scales, as other tools make them,
     * adds 2^-22 of what is above that, for f64 2^-51.
     */
    void (*bounds)(size_t n, const void *scale, const int32_t *zero,
                   const struct qp_code_rule *rule, double *out);
};

/*
 * n scales in working precision from what is stored of them, by the scale type and the factor of a
 * rule; and what is stored of n scales that params has made by this rule.
 */
void qp_load_scales(const struct qp_work_kernels *work, const struct qp_code_rule *rule, size_t n,
                    const void *stored, void *scale);
void qp_store_scales(const struct qp_work_kernels *work, const struct qp_code_rule *rule, size_t n,
                     const void *scale, void *stored);

/* Whether n scales in working precision are all above 0, and finite. */
bool qp_scales_are_above_0(const struct qp_work_kernels *work, size_t n, const void *scale);

/* The best kernels for a dtype at a level, QPLAN_ISA_BEST for what the CPU has. */
const struct qp_source_kernels *qp_source_kernels(enum qplan_dtype dtype, enum qplan_isa isa);

/*
 * What lies between the values of one float dtype and codes of one kind. Scales that are given have
 * either sign. Of biased codes `zero` has no zero points but biases, as codes/biased.h has them.
 */
struct qp_quantizer {
    enum qplan_dtype dtype;
    enum qp_code_kind kind;
    enum qplan_isa isa;

    /*
     * Scale and zero point of n sets from their ranges, lo <= 0 <= hi. The scale is rounded up to
     * its stored dtype. Returns n, or the first set whose scale is too large for that dtype; with a
     * bias, whose bias or whole width is.
     */
    size_t (*params)(const struct qp_code_rule *rule, size_t n, const void *lo, const void *hi,
                     void *scale, int32_t *zero);

    /* Codes of a tile, one byte each: two's complement, or 0..255. */
    void (*quantize)(const struct qp_tile *tile, const void *src, const struct qp_code_rule *rule,
                     const void *scale, const int32_t *zero, uint8_t *codes);

    /* Decoded values of a tile of codes, clipped to the finite range. */
    void (*dequantize)(const struct qp_tile *tile, const uint8_t *codes,
                       const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                       void *y);

    /*
     * Compares a tile with its decoded values y, which were made from scale and zero. With a bound
     * below 0 every element is an offence.
     */
    void (*check)(const struct qp_tile *tile, const void *src, const void *y,
                  const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                  const double *bound, struct qp_check *result);
};

/* The best quantizer between a dtype and a kind of codes at a level; NULL if there is none. */
const struct qp_quantizer *qp_quantizer(enum qplan_dtype dtype, enum qp_code_kind kind,
                                        enum qplan_isa isa);

/* Bytes of an element of a float dtype. */
size_t qp_float_bytes(enum qplan_dtype dtype);

/* The kernels that move 4-bit codes. */
struct qp_code_kernels {
    enum qplan_isa isa;

    /*
     * n codes of one row to (n + 1) / 2 bytes, even index in the low nibble, each with the bits of
     * flip turned over, which is 0 or 8. The spare nibble of an odd row is 0. packed may be codes,
     * or lie before it.
     */
    void (*pack4)(const uint8_t *codes, size_t n, uint8_t flip, uint8_t *packed);

    /*
     * Packed codes to bytes: (nibble ^ flip) - less, each 0 or 8. Of two's complement they are both
     * 8, of codes that were stored with 8 added one of them. The spare nibble of an odd row is not
     * looked at. codes may overlap packed if no code is written over a byte that is not yet read.
     */
    void (*unpack4)(const uint8_t *packed, size_t n, uint8_t flip, uint8_t less, uint8_t *codes);
};

/* The best kernels for 4-bit codes at a level. */
const struct qp_code_kernels *qp_code_kernels(enum qplan_isa isa);

/* The highest level that this CPU and operating system run. */
enum qplan_isa qp_isa_detect(void);

#endif
