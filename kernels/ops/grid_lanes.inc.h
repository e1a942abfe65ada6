/*
 * grid_lanes.inc.h - the loops over taps and lanes, as a template of the working precision and of
 * what holds the lanes: one double, or a vector of doubles. Both have the operators of C, and an
 * operation on a vector is the same operation on each lane, so the bits do not depend on it.
 *
 * The including file defines LANES(x) for the names, VEC, WORK_VEC (the same lanes of WORK), WIDEN,
 * VEC_LANES, WORK and KEEPS_ERRORS (sums have a lo). The parts, vectors of a pixel, are a constant
 * in every copy of a loop, so that sums stay in registers.
 */

ALWAYS_INLINE VEC *LANES(pixel)(const WORK *from, VEC *to)
{
    WORK_VEC narrow;
    memcpy(&narrow, from, sizeof narrow);
    *to = WIDEN(narrow);
    return to;
}

/* out[lane][p] for n points. */
ALWAYS_INLINE void LANES(sample)(const unsigned parts, size_t n, const struct qp_grid_taps *taps,
                                 const WORK *image, double *restrict out, size_t n_out)
{
    const size_t width = (size_t)parts * VEC_LANES, stride = taps->stride;
    for (size_t p = 0; p < n; p++) {
        const WORK *weight = (const WORK *)taps->weight + p;
        const int64_t *place = taps->place + p;
        VEC sum[2], v;
        double lanes[2 * VEC_LANES];
        memset(sum, 0, sizeof sum);
        for (unsigned t = 0; t < taps->count[p]; t++) {
            const WORK *pixel = image + (size_t)place[t * stride] * width;
            const double w = (double)weight[t * stride];
            for (unsigned i = 0; i < parts; i++)
                sum[i] += *LANES(pixel)(pixel + (size_t)i * VEC_LANES, &v) * w;
        }
        memcpy(lanes, sum, sizeof lanes);
        for (size_t k = 0; k < width; k++)
            out[k * n_out + p] = lanes[k];
    }
}

/* A term for each lane to the sums at hi and lo; qp_sum_add with lanes. */
ALWAYS_INLINE void LANES(add)(const VEC *term, double *hi, double *lo)
{
    VEC sum;
    memcpy(&sum, hi, sizeof sum);
    const VEC total = sum + *term;
    memcpy(hi, &total, sizeof total);
    if (KEEPS_ERRORS) {
        const VEC part = total - sum;
        VEC errors;
        memcpy(&errors, lo, sizeof errors);
        errors += (sum - (total - part)) + (*term - part);
        memcpy(lo, &errors, sizeof errors);
    }
}

ALWAYS_INLINE void LANES(scatter)(const unsigned parts, size_t n, const struct qp_grid_taps *taps,
                                  const WORK *dout, const struct qp_grid_band *band)
{
    const size_t width = (size_t)parts * VEC_LANES, stride = taps->stride;
    for (size_t p = 0; p < n; p++) {
        const WORK *weight = (const WORK *)taps->weight + p;
        VEC gradient[2];
        for (unsigned i = 0; i < parts; i++)
            (void)LANES(pixel)(dout + p * width + (size_t)i * VEC_LANES, &gradient[i]);
        for (unsigned t = 0; t < taps->count[p]; t++) {
            const uint64_t place = (uint64_t)(taps->place[t * stride + p] - band->begin);
            if (place >= (uint64_t)band->n)
                continue;
            for (unsigned i = 0; i < parts; i++) {
                const size_t at = (size_t)place * width + (size_t)i * VEC_LANES;
                const VEC term = gradient[i] * (double)weight[t * stride];
                LANES(add)(&term, band->hi + at, KEEPS_ERRORS ? band->lo + at : NULL);
            }
        }
    }
}

/* The sums of weight * pixel of one point, for each axis and lane, times dout. */
ALWAYS_INLINE void LANES(slope)(const unsigned parts, const unsigned n_axes,
                                const struct qp_grid_slopes *job, size_t p,
                                double terms[QP_GRID_AXES][QP_GRID_LANES])
{
    const size_t width = (size_t)parts * VEC_LANES, stride = job->taps->stride;
    const WORK *weight = (const WORK *)job->taps->weight + p;
    const WORK *dout = (const WORK *)job->dout + p * width;
    VEC sum[QP_GRID_AXES][2], v;
    memset(sum, 0, sizeof sum);
    for (unsigned t = 0; t < job->taps->count[p]; t++, weight += n_axes * stride) {
        const WORK *pixel =
            (const WORK *)job->image + (size_t)job->taps->place[t * stride + p] * width;
        for (unsigned i = 0; i < parts; i++) {
            (void)LANES(pixel)(pixel + (size_t)i * VEC_LANES, &v);
            for (unsigned a = 0; a < n_axes; a++)
                sum[a][i] += v * (double)weight[a * stride];
        }
    }
    for (unsigned i = 0; i < parts; i++) {
        (void)LANES(pixel)(dout + (size_t)i * VEC_LANES, &v);
        for (unsigned a = 0; a < n_axes; a++) {
            const VEC product = sum[a][i] * v;
            memcpy(&terms[a][(size_t)i * VEC_LANES], &product, sizeof product);
        }
    }
}

/* Channels are added one by one, in ascending order. */
ALWAYS_INLINE void LANES(slopes)(const unsigned parts, const unsigned n_axes,
                                 const struct qp_grid_slopes *job)
{
    const size_t width = (size_t)parts * VEC_LANES;
    for (size_t p = 0; p < job->n; p++) {
        double terms[QP_GRID_AXES][QP_GRID_LANES];
        if (job->taps->count[p] == 0)
            continue;
        LANES(slope)(parts, n_axes, job, p, terms);
        for (unsigned a = 0; a < n_axes; a++) {
            struct qp_sum sum = {job->hi[p * n_axes + a],
                                 KEEPS_ERRORS ? job->lo[p * n_axes + a] : 0};
            for (unsigned k = 0; k < width && k < job->n_lanes; k++) {
                if (KEEPS_ERRORS)
                    qp_sum_add(&sum, terms[a][k]);
                else
                    sum.hi += terms[a][k];
            }
            job->hi[p * n_axes + a] = sum.hi;
            if (KEEPS_ERRORS)
                job->lo[p * n_axes + a] = sum.lo;
        }
    }
}

#undef LANES
#undef VEC
#undef WORK_VEC
#undef WIDEN
#undef VEC_LANES
