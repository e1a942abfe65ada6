/*
 * gptq_parts.c - the row of the layout of GPTQ whose zero points are stored with 1 subtracted, and
 * what it shares with its relatives: what is stored, and the parts of a tensor.
 */
#include "gptq.h"

#include "formats/modules.h"
#include "lib/model/dtype.h"

#include <string.h>

/* ---- What is stored ----------------------------------------------------------------------------
 */

/*
 * Codes are unsigned, and the zero point of a symmetric tensor is the middle of their range. That
 * is what signed codes are with half their range added.
 */
const char *qp_gptq_fit(struct qplan_scheme *scheme)
{
    const unsigned bits = qp_integer_bits(scheme->dtype);
    const bool is_channel = scheme->granularity == QPLAN_PER_CHANNEL && scheme->axis == 0;
    const bool is_group = scheme->granularity == QPLAN_PER_GROUP &&
                          (scheme->group == 32 || scheme->group == 64 || scheme->group == 128);
    if ((bits != 4 && bits != 8) || scheme->narrow || (!is_channel && !is_group))
        return "int4 or int8 of full range with g32, g64, g128 or c0";
    if (scheme->bias)
        return QP_NO_BIAS;
    if (scheme->scale_given && scheme->scale_dtype != QPLAN_F16)
        return "scales of type f16";
    scheme->dtype = qp_integer_type(bits, true);
    scheme->scale_dtype = QPLAN_F16;
    return NULL;
}

/* Kernels read words of codes and of zero points, and so many output channels at a time. */
const char *qp_gptq_misfit(const struct qp_tensor *t)
{
    const char *reason = qp_plain_by_name(t, false);
    if (reason)
        return reason;
    if (t->shape[1] % 32 != 0)
        return "row length not a multiple of 32";
    return t->shape[0] % 32 != 0 ? "output channels not a multiple of 32" : NULL;
}

unsigned qp_gptq_variant(const struct qp_tensor *tensor, const struct qp_format_options *options)
{
    (void)tensor;
    (void)options;
    return QP_GPTQ_USUAL;
}

/* ---- Parts -------------------------------------------------------------------------------------
 */

struct maker {
    const struct qp_tensor *t;
    struct qp_arena *arena;
    struct qp_part *parts;
    struct qplan_entry *entries;
    size_t n_name; /* bytes of M */
    unsigned n;
    bool failed;
};

/* Lines are words of columns behind each other, or the words of rows side by side. */
static void add(struct maker *m, const struct qp_part *part, const char *suffix,
                enum qplan_storage storage)
{
    const struct qp_place *place = part->place;
    const uint64_t len = place->columns ? part->matrix.rows : part->matrix.cols;
    const uint64_t n_words = qp_place_line_bytes(place, len) / place->word_bytes;
    const bool is_vector = part->role == QP_INDEX;
    struct qp_entry_wish wish = {.name = m->t->name,
                                 .n = m->n_name,
                                 .suffix = suffix,
                                 .storage = storage,
                                 .rank = is_vector ? 1 : 2,
                                 .shape = {n_words, part->matrix.rows}};
    if (place->columns) {
        wish.shape[0] = part->matrix.cols;
        wish.shape[1] = n_words;
    }
    m->failed |= !qp_build_entry(&m->entries[m->n], &wish, m->arena);
    m->parts[m->n] = *part;
    m->parts[m->n].entry = &m->entries[m->n];
    m->n++;
}

unsigned qp_gptq_parts(const struct qp_gptq_kind *kind, const struct qp_tensor *t,
                       struct qp_arena *arena, struct qp_part *parts, struct qplan_entry *entries)
{
    static const char suffix[] = ".weight";
    static const struct qp_place of_scales = {.bits = 16, .word_bytes = 2, .columns = true};
    static const struct qp_place of_index = {.bits = 32, .word_bytes = 4, .is_signed = true};
    const unsigned bits = qplan_dtype_bits(t->scheme->dtype);
    const struct qp_matrix sets = qp_row_sets(t->scheme, t->shape);
    struct maker m = {.t = t, .arena = arena, .parts = parts, .entries = entries};
    m.n_name = t->name_len;
    if (qp_name_ends(t->name, t->name_len, suffix))
        m.n_name -= sizeof suffix - 1;
    add(&m,
        &(struct qp_part){
            .role = QP_CODES, .place = &kind->codes[bits], .matrix = {t->shape[0], t->shape[1]}},
        ".qweight", QPLAN_STORAGE_I32);
    add(&m, &(struct qp_part){.role = QP_ZERO, .place = &kind->zeros[bits], .matrix = sets},
        ".qzeros", QPLAN_STORAGE_I32);
    add(&m, &(struct qp_part){.role = QP_SCALE, .place = &of_scales, .matrix = sets}, ".scales",
        QPLAN_STORAGE_F16);
    if (kind->has_index && t->variant == QP_GPTQ_USUAL)
        add(&m, &(struct qp_part){.role = QP_INDEX, .place = &of_index, .matrix = {1, t->shape[1]}},
            ".g_idx", QPLAN_STORAGE_I32);
    return m.failed ? 0 : m.n;
}

/* ---- The row -----------------------------------------------------------------------------------
 */

static const struct qp_gptq_kind kind = {
    .widths = "2, 3, 4 or 8",
    .codes = {QP_GPTQ_CODES(2), QP_GPTQ_CODES(3), QP_GPTQ_CODES(4), QP_GPTQ_CODES(8)},
    .zeros = {QP_GPTQ_ZEROS(2, true), QP_GPTQ_ZEROS(3, true), QP_GPTQ_ZEROS(4, true),
              QP_GPTQ_ZEROS(8, true)},
    .has_index = true,
};

static bool is(const struct qp_listing *listing)
{
    return qp_gptq_is(listing, "gptq");
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    return qp_gptq_describe(&kind, listing, arena, tensors, n, err);
}

/* An asymmetric zero point of 0 would borrow from its neighbour: some decoders do not know that. */
static const char *fit(struct qplan_scheme *scheme, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    (void)storage;
    (void)options;
    return scheme->asymmetric ? "a symmetric scheme: gptq_v2 stores asymmetric ones"
                              : qp_gptq_fit(scheme);
}

static unsigned make_parts(const struct qp_tensor *tensor, struct qp_arena *arena,
                           struct qp_part *parts, struct qplan_entry *entries)
{
    return qp_gptq_parts(&kind, tensor, arena, parts, entries);
}

static void config(struct qp_writer *w, const struct qp_outline *outline)
{
    qp_gptq_config(w, outline, "gptq");
}

const struct qp_format qp_format_gptq = {
    QP_GPTQ_ROW,
    .name = "gptq",
    .schemes = "int4:g128; int4, int8: g32, g64, g128, c0",
    .reads = "2 and 3 bits, asym, g_idx in any order",
};
