/*
 * source.inc.h - the kernels that read one float dtype, as a template: the specification.
 *
 * The including file defines what element.inc.h needs, SOURCE_DTYPE and WORK_KERNELS. Plain scalar
 * C, one IEEE operation at a time; a faster kernel must give the same bits.
 */

#include "element.inc.h"

static uint64_t NAME(range)(const struct qp_tile *tile, const void *src, void *lo_, void *hi_)
{
    WORK *lo = lo_, *hi = hi_;
    uint64_t others = 0;
    FOR_EACH_RUN (tile, run)
        others += NAME(range_run)((const unsigned char *)src + run.at * ELEM_BYTES, run.n,
                                  &lo[run.set], &hi[run.set]);
    return others;
}

static void NAME(quantize)(const struct qp_tile *tile, const void *src,
                           const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                           uint8_t *codes)
{
    FOR_EACH_RUN (tile, run) {
        const unsigned char *from = (const unsigned char *)src + run.at * ELEM_BYTES;
        const WORK s = ((const WORK *)scale)[run.set];
        const int32_t z = zero[run.set];
        const WORK least = (WORK)(rule->q_min - z), most = (WORK)(rule->q_max - z);
        for (size_t i = 0; i < run.n; i++)
            codes[run.at + i] = NAME(code)(NAME(at)(from, i), s, z, least, most);
    }
}

static void NAME(check)(const struct qp_tile *tile, const void *src, const void *y,
                        const struct qp_code_rule *rule, const void *scale, const int32_t *zero,
                        const double *bound, struct qp_check *result)
{
    *result = (struct qp_check){0};
    FOR_EACH_RUN (tile, run) {
        const struct NAME(ends) ends =
            NAME(ends_of)(rule, ((const WORK *)scale)[run.set], zero[run.set], bound[run.set]);
        NAME(check_run)(src, y, run.at, run.at + run.n, &ends, result);
    }
}

static const struct qp_source_kernels NAME(source) = {
    .dtype = SOURCE_DTYPE,
    .isa = QPLAN_ISA_SCALAR,
    .elem_bytes = ELEM_BYTES,
    .work_bytes = sizeof(WORK),
    .work = &WORK_KERNELS,
    .range = NAME(range),
    .quantize = NAME(quantize),
    .check = NAME(check),
    .sums = NAME(sums_block),
};

#undef NAME
#undef SOURCE_DTYPE
#undef ELEM_BYTES
#undef LOAD
#undef WORK
#undef WORK_MAX
#undef RNE
#undef WORK_KERNELS
