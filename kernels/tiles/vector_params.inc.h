/*
 * vector_params.inc.h - scales, zero points and biases of many sets in the vector vocabulary.
 *
 * vector_work.inc.h includes it and says what must be there. Steps hand whatever is unusual to the
 * functions of work.inc.h, which are the specification.
 */

/* A type of scales that has vectors, and how numbers are rounded up to it. */
struct v_scale_type {
    vf least, largest;
    vi last, others; /* the bits of an f32 that the type has not, and those that it has */
};

static inline struct v_scale_type v_scale_type_of(enum qplan_dtype dtype)
{
    const struct scale_row *row = scale_row(dtype);
    const int32_t last = dtype == QPLAN_BF16 ? 0xffff : dtype == QPLAN_F16 ? 0x1fff : 0;
    return (struct v_scale_type){v_set((float)row->least), v_set((float)row->largest), vi_set(last),
                                 vi_set(~last)};
}

/* Of 0, and of numbers from the least of the type up to its largest. */
static inline vf v_rounded_up(vf x, const struct v_scale_type *type)
{
    return v_of_bits(vi_and(vi_add(v_bits(x), type->last), type->others));
}

/*
 * Parameters of V_LANES sets. Steps return 0 where these are for the specification to find.
 */
typedef int params_step_fn(const struct qp_code_rule *rule, const struct v_scale_type *type,
                           const float *lo_, const float *hi_, float *scale, int32_t *zero);

/* By the rules of linear.h. */
static inline int params_step(const struct qp_code_rule *rule, const struct v_scale_type *type,
                              const float *lo_, const float *hi_, float *scale, int32_t *zero)
{
    const float steps = qp_is_valued(rule->kind) ? (float)(2 * rule->type->largest)
                                                 : (float)(rule->q_max - rule->q_min);
    const vf lo = v_load(lo_), hi = v_load(hi_), nothing = v_set(0);
    const vf width = rule->asymmetric ? v_sub(hi, lo) : v_max(v_sub(nothing, lo), hi);
    if (!vm_all(v_at_most(width, v_set(FLT_MAX))))
        return 0;
    vf s = v_div(width, v_set(rule->asymmetric ? steps : steps / 2));
    s = v_where_equal(lo, hi, v_set(1), v_max(s, type->least));
    if (!vm_all(v_at_most(s, type->largest)))
        return 0;
    s = v_rounded_up(s, type);
    v_store(scale, s);
    vi z = vi_set(rule->type->is_signed ? 0 : (rule->q_min + rule->q_max + 1) / 2);
    if (rule->asymmetric) {
        vf below = v_max(v_div(lo, s), v_set(-steps));
        /* Of zeros alone the zero point is 0: q_min - q_min. */
        z = v_minus_rounded(rule->q_min, v_where_equal(lo, hi, v_set((float)rule->q_min), below));
    }
    vi_store(zero, z);
    return 1;
}

/* a + b, and what its rounding lost. */
static inline vf v_two_sum(vf a, vf b, vf rest[1])
{
    const vf sum = v_add(a, b), b_taken = v_sub(sum, a), a_taken = v_sub(sum, b_taken);
    rest[0] = v_add(v_sub(a, a_taken), v_sub(b, b_taken));
    return sum;
}

/* The lanes in which n codes from a bias on cover the most, by the rule of biased.h. */
static inline vm v_covers(vf bias, vf scale, vf most, float n)
{
    vf rest, rest_wanted;
    const vf sum = v_two_sum(v_mul(scale, v_set(n)), bias, &rest);
    const vf wanted = v_two_sum(most, scale, &rest_wanted);
    return v_at_most(v_where_equal(sum, wanted, rest_wanted, wanted),
                     v_where_equal(sum, wanted, rest, sum));
}

/* Of biased codes, where scales need not be enlarged and no number is near the ends of the type. */
static inline int biased_params_step(const struct qp_code_rule *rule,
                                     const struct v_scale_type *type, const float *lo_,
                                     const float *hi_, float *scale, int32_t *zero)
{
    const float n = (float)(rule->q_max + 1);
    const vf lo = v_load(lo_), hi = v_load(hi_), nothing = v_set(0), below = v_sub(nothing, lo);
    const vf normal = v_where_equal(lo, nothing, type->least, below);
    if (!vm_all(vm_and(v_at_most(type->least, normal), v_at_most(below, type->largest))))
        return 0;
    const vf bias = v_sub(nothing, v_rounded_up(below, type));
    const vf exact = v_div(v_sub(hi, bias), v_set((float)rule->q_max));
    /* Then all n codes together are in range, and more. */
    if (!vm_all(v_at_most(exact, v_div(type->largest, v_set(4 * n)))))
        return 0;
    vf s = v_rounded_up(v_max(exact, type->least), type);
    s = v_where_equal(lo, hi, v_set(1), s);
    if (!vm_all(v_covers(bias, s, hi, n)))
        return 0;
    v_store(scale, s);
    vi_store(zero, v_bits(bias));
    return 1;
}

/*
 * The parameters of n sets from the first on, a vector at a time, as far as none wants a closer
 * look; returns how many there are.
 */
typedef size_t params_run_fn(const struct qp_code_rule *rule, size_t n, const float *lo,
                             const float *hi, float *scale, int32_t *zero);

/* step is a constant. */
static inline size_t params_run(params_step_fn *step, const struct qp_code_rule *rule, size_t n,
                                const float *lo, const float *hi, float *scale, int32_t *zero)
{
    const struct v_scale_type type = v_scale_type_of(rule->scale_dtype);
    size_t i = 0;
    while (i + V_LANES <= n && step(rule, &type, lo + i, hi + i, scale + i, zero + i))
        i += V_LANES;
    return i;
}

static size_t params_linear(const struct qp_code_rule *rule, size_t n, const float *lo,
                            const float *hi, float *scale, int32_t *zero)
{
    return params_run(params_step, rule, n, lo, hi, scale, zero);
}

static size_t params_biased(const struct qp_code_rule *rule, size_t n, const float *lo,
                            const float *hi, float *scale, int32_t *zero)
{
    return params_run(biased_params_step, rule, n, lo, hi, scale, zero);
}

/*
 * Which run there is, or NULL. Linear codes want q_min <= 0 <= q_max and three codes or more: so
 * every code type as a whole, but not every range of an operator; linear.h says what else would be.
 */
static params_run_fn *params_run_of(const struct qp_code_rule *rule)
{
    const bool is_whole = rule->q_min <= 0 && rule->q_max >= 0 && rule->q_max - rule->q_min >= 2;
    if (!qp_is_valued(rule->kind))
        return has_vectors(rule->scale_dtype) && is_whole ? params_linear : NULL;
    if (rule->scale_dtype == QPLAN_F32)
        return params_linear;
    if (rule->kind != QP_CODES_FLOAT)
        return NULL;
    return rule->scale_dtype == QPLAN_F8E4M3 ? params_f8e4m3
           : rule->scale_dtype == QPLAN_E8M0 ? params_e8m0
                                             : NULL;
}

/* By a run, if there is one, and where it ends a vector by the specification, which is a constant.
 */
static inline size_t params_by(params_run_fn *run,
                               size_t (*plain)(const struct qp_code_rule *, size_t, const void *,
                                               const void *, void *, int32_t *),
                               const struct qp_code_rule *rule, size_t n, const float *lo,
                               const float *hi, float *scale, int32_t *zero)
{
    for (size_t i = 0, m; i < n; i += m) {
        i += run ? run(rule, n - i, lo + i, hi + i, scale + i, zero + i) : 0;
        m = run && n - i > V_LANES ? V_LANES : n - i;
        const size_t done = plain(rule, m, lo + i, hi + i, scale + i, zero + i);
        if (done < m)
            return i + done;
    }
    return n;
}

static size_t params_vector(const struct qp_code_rule *rule, size_t n, const void *lo,
                            const void *hi, void *scale, int32_t *zero)
{
    params_run_fn *const run = params_run_of(rule);
    return qp_is_valued(rule->kind)
               ? params_by(run, valued_params_plain, rule, n, lo, hi, scale, zero)
               : params_by(run, params_plain, rule, n, lo, hi, scale, zero);
}

/* Scales of f32 are enlarged so often that nothing would be gained. */
static size_t biased_params_vector(const struct qp_code_rule *rule, size_t n, const void *lo,
                                   const void *hi, void *scale, int32_t *zero)
{
    const bool has_run =
        rule->asymmetric && rule->scale_dtype != QPLAN_F32 && has_vectors(rule->scale_dtype);
    return params_by(has_run ? params_biased : NULL, biased_params_plain, rule, n, lo, hi, scale,
                     zero);
}
