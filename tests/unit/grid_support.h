/*
 * grid_support.h - what the tests of grid samples share: a problem with all its tensors.
 */
#ifndef TESTS_GRID_SUPPORT_H
#define TESTS_GRID_SUPPORT_H

#include "op_support.h"

static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
static const char *const paddings[] = {"zeros", "border", "reflection"};

enum { INPUT, GRID, OUTPUT, DOUT, DINPUT, DGRID, N_ROLES };
static const char *const roles[] = {"input", "grid", "output", "dout", "dinput", "dgrid"};

/* A sample and its gradients. Extents are those of the slowest axis first, as in the tensors. */
struct sample {
    unsigned n_axes;
    enum qplan_storage dtype;
    unsigned mode, padding;
    bool align, accumulate;
    int64_t shape[N_ROLES][5];
    size_t n[N_ROLES];
    void *data[N_ROLES];
    const int64_t *stride[N_ROLES]; /* NULL = contiguous */
    size_t n_bytes[N_ROLES];        /* of the buffer */
    struct qplan_op_preference preference;
};

static inline size_t elem_bytes(enum qplan_storage dtype)
{
    return qplan_storage_bits(dtype) / 8;
}

/* Rounds towards 0 where a type is small: any value will do. */
static inline void put_value(enum qplan_storage dtype, void *data, size_t i, double x)
{
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (dtype == QPLAN_STORAGE_F64)
        ((double *)data)[i] = x;
    else if (dtype == QPLAN_STORAGE_F32)
        ((float *)data)[i] = f;
    else if (dtype == QPLAN_STORAGE_BF16)
        ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    else if (fabs(x) < 0x1p-14)
        ((uint16_t *)data)[i] = 0;
    else
        ((uint16_t *)data)[i] =
            (uint16_t)(bits >> 16 & 0x8000u) | (uint16_t)((bits >> 13) - (112u << 10)) % 0x8000u;
}

static inline double get_value(enum qplan_storage dtype, const void *data, size_t i)
{
    static const enum qplan_dtype types[QPLAN_STORAGE_COUNT] = {
        [QPLAN_STORAGE_F16] = QPLAN_F16, [QPLAN_STORAGE_BF16] = QPLAN_BF16};
    if (dtype == QPLAN_STORAGE_F64)
        return ((const double *)data)[i];
    if (dtype == QPLAN_STORAGE_F32)
        return (double)((const float *)data)[i];
    return value_of_bits(types[dtype], ((const uint16_t *)data)[i]);
}

static inline void fill_values(enum qplan_storage dtype, void *data, size_t n, double size,
                               uint64_t *seed)
{
    for (size_t i = 0; i < n; i++)
        put_value(dtype, data, i, random_signed(seed) * size);
}

/* A sample of [n, c, in...] at [n, out...] points with random tensors, points to 1.3. */
static inline struct sample sample_make(unsigned n_axes, enum qplan_storage dtype, int64_t n,
                                        int64_t c, const int64_t *in, const int64_t *out,
                                        uint64_t *seed)
{
    struct sample s = {.n_axes = n_axes, .dtype = dtype, .preference = QPLAN_OP_PREFERENCE_DEFAULT};
    for (int r = 0; r < N_ROLES; r++) {
        const bool image = r == INPUT || r == DINPUT, points = r == GRID || r == DGRID;
        int64_t *shape = s.shape[r];
        shape[0] = n;
        shape[1] = c;
        for (unsigned i = 0; i < n_axes; i++)
            shape[points ? i + 1 : i + 2] = image ? in[i] : out[i];
        if (points)
            shape[n_axes + 1] = n_axes;
        s.n[r] = 1;
        for (unsigned i = 0; i < n_axes + 2; i++)
            s.n[r] *= (size_t)shape[i];
        s.n_bytes[r] = s.n[r] * elem_bytes(dtype);
        s.data[r] = malloc(s.n_bytes[r] + 1);
        assert_non_null(s.data[r]);
        fill_values(dtype, s.data[r], s.n[r], points ? 1.3 : 1, seed);
    }
    return s;
}

static inline void sample_free(struct sample *s)
{
    for (int r = 0; r < N_ROLES; r++)
        free(s->data[r]);
}

static inline void add_role(struct problem *p, const struct sample *s, int role)
{
    struct qplan_tensor *t =
        add(p, roles[role], s->dtype, s->n_axes + 2, s->shape[role], s->data[role]);
    t->stride = s->stride[role];
    t->n_bytes = s->n_bytes[role];
}

/* The fields and inputs; the problem has pointers into itself. */
static inline void sample_problem(struct problem *p, const struct sample *s, bool is_backward)
{
    static const char *const names[2][2] = {{"grid_sample_2d", "grid_sample_2d_backward"},
                                            {"grid_sample_3d", "grid_sample_3d_backward"}};
    *p = problem(names[s->n_axes - 2][is_backward]);
    p->preference = s->preference;
    set(p, "mode", modes[s->mode]);
    set(p, "padding_mode", paddings[s->padding]);
    set(p, "align_corners", s->align ? "true" : "false");
    if (is_backward)
        add_role(p, s, DOUT);
    add_role(p, s, INPUT);
    add_role(p, s, GRID);
}

static inline void forward(struct sample *s)
{
    struct problem p;
    struct qplan_error err;
    sample_problem(&p, s, false);
    add_role(&p, s, OUTPUT);
    OK(run_op(&p, &err), &err);
}

static inline void backward(struct sample *s)
{
    struct problem p;
    struct qplan_error err;
    sample_problem(&p, s, true);
    set(&p, "accumulate", s->accumulate ? "true" : "false");
    add_role(&p, s, DINPUT);
    add_role(&p, s, DGRID);
    OK(run_op(&p, &err), &err);
}

/* Every mode, padding and alignment of so many axes: sets the k-th, false behind the last. */
static inline bool set_rule(struct sample *s, unsigned k)
{
    const unsigned n_modes = s->n_axes == 2 ? 3 : 2;
    s->mode = k % n_modes;
    s->padding = k / n_modes % 3;
    s->align = k / n_modes / 3;
    return k < n_modes * 6;
}

#endif
