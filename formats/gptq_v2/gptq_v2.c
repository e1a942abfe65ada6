/*
 * gptq_v2.c - the row of the layout of GPTQ whose zero points are stored as they are.
 */
#include "formats/gptq/gptq.h"

static const struct qp_gptq_kind kind = {
    .widths = "2, 3, 4 or 8",
    .codes = {QP_GPTQ_CODES(2), QP_GPTQ_CODES(3), QP_GPTQ_CODES(4), QP_GPTQ_CODES(8)},
    .zeros = {QP_GPTQ_ZEROS(2, false), QP_GPTQ_ZEROS(3, false), QP_GPTQ_ZEROS(4, false),
              QP_GPTQ_ZEROS(8, false)},
    .has_index = true,
};

static bool is(const struct qp_listing *listing)
{
    return qp_gptq_is(listing, "gptq_v2");
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    return qp_gptq_describe(&kind, listing, arena, tensors, n, err);
}

static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    (void)storage;
    (void)options;
    return qp_gptq_fit(scheme);
}

static unsigned make_parts(const struct qp_tensor *tensor, struct qp_arena *arena,
                           struct qp_part *parts, struct qplan_entry *entries)
{
    return qp_gptq_parts(&kind, tensor, arena, parts, entries);
}

static void config(struct qp_writer *w, const struct qp_outline *outline)
{
    qp_gptq_config(w, outline, "gptq_v2");
}

const struct qp_format qp_format_gptq_v2 = {
    QP_GPTQ_ROW,
    .name = "gptq_v2",
    .schemes = "int4:g128; int4, int8: g32, g64, g128, c0, asym",
    .reads = "2 and 3 bits, g_idx in any order",
    .has_open_symmetry = true,
};
