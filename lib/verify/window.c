/*
 * window.c - parameters that nothing tells how to compute again, beside what the source needs: what
 * another tool has chosen, or a method with data that are not at hand. However they were chosen, no
 * scale is far from that of minmax, and no codes reach where the source has nothing.
 */
#include "window.h"

#include "kernels/codes/biased.h"
#include "kernels/codes/largest.h"
#include "lib/base/alloc.h"
#include "lib/calibrate/calibrate.h"
#include "lib/model/dtype.h"
#include "lib/run/stored.h"
#include "lib/run/units.h"

#include <math.h>
#include <pthread.h>

/*
 * Minmax's scale without a factor, beside one of f8e4m3 under a factor: this is rounded by so much,
 * and codes of floats stand for values that are a sixth above the largest of them.
 */
#define ROUNDED (1 + 1.0 / 8)
#define REACHED (1 + 1.0 / 6)

/* Zero points of a search are at most so many codes from minmax's. */
#define CODES_ASIDE 4

/* Sets whose parameters are looked at together, and room for what is stored of them: of swizzled
 * scales the images of few rows are whole tiles. */
#define AT_ONCE     128
#define STORED_ROOM QP_PART_ROOM(128 * AT_ONCE, 1)

struct judging {
    const struct qp_source *file;
    const struct qplan_plan *plan;
    struct qp_pair **pairs; /* by tensor of the plan */
    pthread_mutex_t lock;
};

/* What is known of all sets of a tensor. */
struct limits {
    struct qp_code_rule rule;
    bool fits;    /* its codes are the nearest ones, and none of its values is clipped */
    bool nearest; /* its codes are the nearest ones */
    bool judges_ends;
    double above, below; /* how far minmax's may be from what it is by its type, as ratios */
    double slack;        /* how far besides, in size */
    double floor;        /* up to this a set may need a smaller scale than there is */
    double little;       /* values up to this are next to nothing in their tensor */
    double of_zeros;     /* the scale of a set of zeros: stored as 1 */
};

struct set {
    double size, minmax; /* of the scale; that of minmax */
    double scale, lo, hi;
    int32_t zero;
};

/* ---- What a set may have -----------------------------------------------------------------------
 */

/* The root of the mean square of what was measured of a tensor. */
static double root_mean_square(const struct qp_pair *pair)
{
    const struct qp_scaled x2 = pair->result.sums.x2;
    const double n = (double)qp_entry_elements(pair->source->entry);
    return sqrt(ldexp(x2.value / n, x2.exponent));
}

/* The least number above 0 of a type of scales, where many sets may need less. */
static double least_number(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F8E4M3 ? 0x1p-9 : dtype == QPLAN_F16 ? 0x1p-24 : 0;
}

static struct limits limits_of(const struct qp_pair *pair)
{
    const struct qp_tensor *t = pair->file;
    const double mean = root_mean_square(pair);
    struct qp_calibrator made;
    struct limits l = {.rule = qp_stored_rule(t), .above = 1, .below = 1};
    const double least = least_number(t->scheme->scale_dtype);
    l.nearest = !qp_calibrator_recorded(t->calibrate, t->scheme, &made) || made.nearest;
    l.fits = l.nearest && pair->result.clipped == 0;
    l.judges_ends = l.rule.kind == QP_CODES_LINEAR && t->scheme->asymmetric &&
                    qplan_dtype_bits(t->scheme->scale_dtype) > 8;
    l.little = mean / 64;
    l.of_zeros = (double)qp_with_factor(&l.rule, 1);
    l.floor = least > 0 ? (double)qp_with_factor(&l.rule, (float)least) : 0;
    if (qp_tensor_part(t, QP_FACTOR)) {
        l.above = ROUNDED;
        l.below = ROUNDED * REACHED;
        l.slack = l.floor <= mean ? l.floor : 0; /* a factor that is too large is no excuse */
    }
    if (t->scheme->nested) { /* few codes for scales that are near each other */
        l.slack = mean;
        l.floor = mean / 16;
    }
    return l;
}

static bool is_near(const struct limits *l, const struct set *s, double *least, double *most)
{
    *least = l->fits || s->minmax <= l->floor ? 0 : s->minmax / l->below * QP_SCALE_LEAST;
    *most = (s->minmax * l->above + l->slack) * QP_SCALE_MOST;
    return s->size >= *least && s->size <= *most;
}

/* Whether the codes of a set reach some of what the source has there, at both of its ends. */
static bool reaches(const struct limits *l, const struct set *s, double *low, double *high)
{
    if (l->rule.kind == QP_CODES_BIASED) {
        const double bias = (double)qp_bias(s->zero), end = bias + s->scale * l->rule.q_max;
        *low = fmin(bias, end);
        *high = fmax(bias, end);
        return *low - s->size <= s->hi && *high + s->size >= s->lo;
    }
    *low = ((double)l->rule.q_min - s->zero) * s->size;
    *high = ((double)l->rule.q_max - s->zero) * s->size;
    const double aside = CODES_ASIDE * s->minmax;
    return !l->judges_ends || l->fits ||
           ((*high >= s->hi * QP_SCALE_LEAST || s->hi <= aside) &&
            (*low <= s->lo * QP_SCALE_LEAST || -s->lo <= aside));
}

/*
 * Whether a set has next to nothing of its tensor, and a code for 0. Its codes are the nearest, so
 * that no error is larger than its value; and tools give such sets a least scale of their own.
 */
static bool is_little(const struct limits *l, const struct set *s)
{
    const bool is_biased = l->rule.kind == QP_CODES_BIASED;
    const double bias = is_biased ? (double)qp_bias(s->zero) : 0;
    const double end = is_biased ? bias + s->scale * l->rule.q_max : 0;
    return l->nearest && fmax(-s->lo, s->hi) <= l->little && fmin(bias, end) <= 0 &&
           fmax(bias, end) >= 0;
}

static void judge_set(struct judging *j, struct qp_pair *pair, const struct limits *l, uint64_t at,
                      const struct set *s)
{
    struct qp_far far = {.n_sets = 1, .set = at, .found = s->size};
    const bool is_zero = s->lo == 0 && s->hi == 0;
    /* That it decodes to zeros has been proven, or every method makes this scale of them. */
    if (is_zero && (l->nearest || s->size == l->of_zeros))
        return;
    if (is_little(l, s))
        return;
    far.is_scale = !is_near(l, s, &far.least, &far.most);
    if (!far.is_scale && reaches(l, s, &far.least, &far.most))
        return;
    far.lo = s->lo;
    far.hi = s->hi;
    (void)pthread_mutex_lock(&j->lock);
    struct qp_far *first = &pair->result.far;
    far.n_sets += first->n_sets;
    if (first->n_sets == 0 || at < first->set)
        *first = far;
    first->n_sets = far.n_sets;
    (void)pthread_mutex_unlock(&j->lock);
}

/* ---- Sets as they are found --------------------------------------------------------------------
 */

static double number_at(const struct qp_work_kernels *work, const void *numbers, size_t i)
{
    return work->work == QPLAN_F64 ? ((const double *)numbers)[i]
                                   : (double)((const float *)numbers)[i];
}

static struct set set_at(const struct qp_found_sets *found, size_t i)
{
    return (struct set){.minmax = number_at(found->work, found->scale, i),
                        .lo = number_at(found->work, found->lo, i),
                        .hi = number_at(found->work, found->hi, i)};
}

/* Columns of a row in any order have scales that are no larger than the row needs. */
static enum qplan_status judge_row(struct judging *j, struct qp_pair *pair, uint64_t row,
                                   struct set s, struct qplan_error *err)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    const uint64_t n_sets = qp_tensor_part(pair->file, QP_SCALE)->matrix.cols;
    struct limits l = limits_of(pair);
    double scale[AT_ONCE];
    char stored[STORED_ROOM];
    const struct qp_param_window window = {.scale = scale, .stored = stored};
    l.fits = true; /* a set of it may need far less */
    l.judges_ends = false;
    for (uint64_t at = 0, n; at < n_sets; at += n) {
        n = n_sets - at < AT_ONCE ? n_sets - at : AT_ONCE;
        QP_TRY(
            qp_read_scales(j->file, pair->file, f64, row * n_sets + at, (size_t)n, &window, err));
        for (uint64_t i = 0; i < n; i++) {
            s.scale = scale[i];
            s.size = fabs(s.scale);
            judge_set(j, pair, &l, row * n_sets + at + i, &s);
        }
    }
    return QPLAN_OK;
}

static enum qplan_status judge_sets(struct judging *j, struct qp_pair *pair,
                                    const struct qp_found_sets *found, struct qplan_error *err)
{
    const struct qp_work_kernels *f64 = qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work;
    const struct limits l = limits_of(pair);
    double scale[AT_ONCE];
    int32_t zero[AT_ONCE];
    char stored[STORED_ROOM];
    const struct qp_param_window window = {scale, zero, stored};
    for (size_t at = 0, n; at < found->n; at += n) {
        n = found->n - at < AT_ONCE ? found->n - at : AT_ONCE;
        QP_TRY(qp_read_params(j->file, pair->file, f64, found->set + at, n, &window, err));
        for (size_t i = 0; i < n; i++) {
            struct set s = set_at(found, at + i);
            s.scale = scale[i];
            s.size = fabs(s.scale);
            s.zero = zero[i];
            judge_set(j, pair, &l, found->set + at + i, &s);
        }
    }
    return QPLAN_OK;
}

static enum qplan_status take(void *ctx, const struct qp_found_sets *found, struct qplan_error *err)
{
    struct judging *j = ctx;
    struct qp_pair *pair = j->pairs[found->tensor - j->plan->tensors];
    if (!qp_tensor_part(pair->file, QP_INDEX))
        return judge_sets(j, pair, found, err);
    for (size_t i = 0; i < found->n; i++)
        QP_TRY(judge_row(j, pair, found->set + i, set_at(found, i), err));
    return QPLAN_OK;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

/* The scheme by which minmax tells what a tensor needs: without a factor, which is part of what is
 * judged, and of columns in any order by rows. */
static struct qplan_scheme scheme_of(const struct qp_tensor *t)
{
    struct qplan_scheme scheme = *t->scheme;
    if (qp_tensor_part(t, QP_FACTOR))
        scheme.scale_dtype = QPLAN_F32;
    if (qp_tensor_part(t, QP_INDEX)) {
        scheme.granularity = QPLAN_PER_CHANNEL;
        scheme.group = 0;
        scheme.axis = 0;
    }
    return scheme;
}

static enum qplan_status add(struct qplan_plan *plan, const struct qp_pair *pair,
                             struct qplan_error *err)
{
    const struct qplan_scheme scheme = scheme_of(pair->file);
    struct qp_plan_tensor *t = &plan->tensors[plan->n_tensors++];
    *t = (struct qp_plan_tensor){
        .source = pair->source, .calibrator = &qp_calibrate_minmax, .result = *pair->file};
    t->result.scheme = qp_arena_copy(&plan->arena, &scheme, 1, sizeof scheme);
    return t->result.scheme ? QPLAN_OK : qp_fail_memory(err, "proof", sizeof scheme);
}

enum qplan_status qp_judge_windows(struct qp_pair **pairs, size_t n,
                                   const struct qplan_checkpoint *file,
                                   const struct qplan_checkpoint *source,
                                   const struct qplan_run *run, struct qplan_error *err)
{
    struct qplan_plan plan = {
        .checkpoint = source, .format = file->format, .nonfinite = QPLAN_NONFINITE_SATURATE};
    struct judging j = {&file->source, &plan, pairs, PTHREAD_MUTEX_INITIALIZER};
    enum qplan_status status = QPLAN_OK;
    if (n == 0)
        return QPLAN_OK;
    plan.tensors = qp_alloc(n, sizeof *plan.tensors);
    if (!plan.tensors)
        return qp_fail_memory(err, "proof", n * sizeof *plan.tensors);
    for (size_t i = 0; i < n && status == QPLAN_OK; i++)
        status = add(&plan, pairs[i], err);
    if (status == QPLAN_OK)
        status = qp_find_sets(&plan, take, &j, run, err);
    qp_free(plan.tensors);
    qp_arena_free(&plan.arena);
    return status;
}
