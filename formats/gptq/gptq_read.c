/*
 * gptq_read.c - which tensors of a checkpoint are quantized, by the numbers of its config.json and
 * the shapes of its stored tensors, whichever tool has written it.
 */
#include "gptq.h"

#include "lib/base/check.h"
#include "lib/model/dtype.h"

#include <stdio.h>
#include <string.h>

/* ---- config.json -------------------------------------------------------------------------------
 */

static const struct qp_tree_value *member(const struct qp_listing *listing, const char *key)
{
    return qp_tree_member(listing->config, qp_quantization_config(listing), key);
}

enum qplan_status qp_gptq_bad(const struct qp_listing *listing, const char *key,
                              const char *expected, struct qplan_error *err)
{
    const struct qp_tree_value *found = member(listing, key);
    char shown[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_INVALID, listing->config->name,
                   "quantization_config: %s: expected %s, found %s", key, expected,
                   found ? qp_tree_show(shown, listing->config, found) : "none");
}

/*
 * What config.json has under a key, or under that which some tools have instead; *key is the one
 * that it is under. If both are there, they agree: engines look at either first.
 */
static enum qplan_status find_number(const struct qp_listing *listing, const char *other,
                                     const char **key, const struct qp_tree_value **out,
                                     struct qplan_error *err)
{
    const struct qp_tree_value *found = member(listing, *key), *second = member(listing, other);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "that of %s", *key);
    if (found && second && !qp_tree_is_number(second, qp_tree_number(found)))
        return qp_gptq_bad(listing, other, expected, err);
    *key = found || !second ? *key : other;
    *out = found ? found : second;
    return QPLAN_OK;
}

enum qplan_status qp_gptq_read_numbers(const struct qp_gptq_kind *kind,
                                       const struct qp_listing *listing,
                                       struct qp_gptq_numbers *out, struct qplan_error *err)
{
    const char *bits_key = "bits", *group_key = "group_size";
    const struct qp_tree_value *bits, *group;
    QP_TRY(find_number(listing, "w_bit", &bits_key, &bits, err));
    QP_TRY(find_number(listing, "q_group_size", &group_key, &group, err));
    const uint64_t n_bits = qp_tree_number(bits);
    if (n_bits >= QP_GPTQ_WIDTHS || kind->codes[n_bits].bits == 0)
        return qp_gptq_bad(listing, bits_key, kind->widths, err);
    out->bits = (unsigned)n_bits;
    out->group = qp_tree_number(group);
    return out->group > 0 || qp_tree_is_literal(listing->config, group, "-1")
               ? QPLAN_OK
               : qp_gptq_bad(listing, group_key, "a whole number above 0, or -1", err);
}

bool qp_gptq_is(const struct qp_listing *listing, const char *stored)
{
    if (!qp_is_quant_method(listing, "gptq"))
        return false;
    const struct qp_tree_value *found = member(listing, "checkpoint_format");
    if (!found)
        found = member(listing, "format");
    return found ? qp_tree_is_string(listing->config, found, stored) : strcmp(stored, "gptq") == 0;
}

enum qplan_status qp_gptq_describe(const struct qp_gptq_kind *kind,
                                   const struct qp_listing *listing, struct qp_arena *arena,
                                   struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    const struct qp_tree_value *sym = member(listing, "sym"), *others = member(listing, "dynamic");
    const char *stored = qp_tree_text(listing->config, member(listing, "checkpoint_format"));
    const struct qp_tree_value *format = member(listing, "format");
    struct qp_gptq_numbers numbers = {.asymmetric = sym && !qp_tree_is_true(sym),
                                      .is_mixed = qp_tree_is_object(others) && others->n > 0};
    if (sym && !qp_tree_is_bool(sym))
        return qp_gptq_bad(listing, "sym", "true or false", err);
    if (stored && format && !qp_tree_is_string(listing->config, format, stored))
        return qp_gptq_bad(listing, "format", "that of checkpoint_format", err);
    QP_TRY(qp_gptq_read_numbers(kind, listing, &numbers, err));
    return qp_gptq_find(kind, &numbers, listing, arena, tensors, n, err);
}

/* ---- Tensors -----------------------------------------------------------------------------------
 */

struct finder {
    const struct qp_gptq_kind *kind;
    const struct qp_gptq_numbers *numbers;
    const struct qp_listing *listing;
    struct qp_arena *arena;
    const struct qplan_scheme *scheme; /* the last one: most tensors share theirs */
    struct qplan_error *err;
};

/* A module with quantized weights, as its stored tensors show it. */
struct module {
    const struct qplan_entry *codes, *scales, *zeros, *index;
    size_t n;          /* bytes of M, which the name of the codes begins with */
    unsigned bits;     /* of codes */
    uint64_t group;    /* 0 = a row is a set */
    uint64_t shape[2]; /* out and in */
};

static const char codes_suffix[] = ".qweight";

/* Whether a stored tensor holds the codes of a module. */
static bool is_module(const struct finder *f, const struct qplan_entry *entry, struct module *m)
{
    if (!qp_name_ends(entry->name, entry->name_len, codes_suffix))
        return false;
    *m = (struct module){.codes = entry,
                         .n = entry->name_len - (sizeof codes_suffix - 1),
                         .bits = f->numbers->bits,
                         .group = f->numbers->group};
    m->scales = qp_listing_sibling(f->listing, entry->name, m->n, ".scales");
    m->zeros = qp_listing_sibling(f->listing, entry->name, m->n, ".qzeros");
    m->index = qp_listing_sibling(f->listing, entry->name, m->n, ".g_idx");
    return true;
}

static enum qplan_status fail_module(const struct finder *f, const struct module *m,
                                     const char *what)
{
    char subject[512];
    return qp_fail(f->err, QPLAN_ERR_INVALID, qp_listing_subject(subject, f->listing, m->codes),
                   "%s", what);
}

/* Out and in: one of them is packed. */
static bool read_shape(const struct finder *f, struct module *m)
{
    const bool columns = f->kind->codes[m->bits].columns;
    const uint64_t n_words = m->codes->shape[columns];
    uint64_t n_bits;
    if (!qp_mul_u64(n_words, 32, &n_bits) || n_bits % m->bits != 0)
        return false;
    m->shape[columns ? 0 : 1] = n_bits / m->bits;
    m->shape[columns ? 1 : 0] = m->codes->shape[!columns];
    return true;
}

/* The bits of a module that config.json may speak of apart: those of its zero points. */
static void read_bits(const struct finder *f, struct module *m)
{
    const uint64_t out = m->scales->shape[1], n_words = m->zeros->shape[1];
    for (unsigned bits = 1; bits < QP_GPTQ_WIDTHS; bits++) {
        if (f->kind->zeros[bits].bits && out < UINT32_MAX && out * bits == n_words * 32)
            m->bits = bits;
    }
}

/* Likewise its groups: their number. */
static void read_group(struct module *m)
{
    const uint64_t in = m->shape[1], n_groups = m->scales->shape[0];
    const uint64_t usual = m->group ? qp_div_up(in, m->group) : 1;
    if (n_groups != usual && n_groups > 0 && in % n_groups == 0)
        m->group = n_groups > 1 ? in / n_groups : 0;
}

static const struct qplan_scheme *scheme_of(struct finder *f, const struct module *m)
{
    const bool is_signed = f->kind->codes[m->bits].is_signed;
    const struct qplan_scheme scheme = {.dtype = qp_integer_type(m->bits, is_signed),
                                        .granularity =
                                            m->group ? QPLAN_PER_GROUP : QPLAN_PER_CHANNEL,
                                        .group = m->group,
                                        .asymmetric = f->numbers->asymmetric,
                                        .scale_dtype = QPLAN_F16};
    if (!f->scheme || !qp_scheme_equal(f->scheme, &scheme))
        f->scheme = qp_arena_copy(f->arena, &scheme, 1, sizeof scheme);
    return f->scheme;
}

/* Zero points and groups of columns are of no use without codes. */
static enum qplan_status check_has_codes(const struct finder *f, const struct qplan_entry *entry)
{
    static const char *const ends[] = {".qzeros", ".g_idx"};
    char subject[512];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t n = strlen(ends[i]);
        if (qp_name_ends(entry->name, entry->name_len, ends[i]) &&
            !qp_listing_sibling(f->listing, entry->name, entry->name_len - n, codes_suffix))
            return qp_fail(f->err, QPLAN_ERR_INVALID,
                           qp_listing_subject(subject, f->listing, entry),
                           "part of a quantized tensor, but its codes are not in the checkpoint");
    }
    return QPLAN_OK;
}

static enum qplan_status describe_module(struct finder *f, struct module *m,
                                         struct qp_tensor **tensors, size_t *n)
{
    static const char suffix[] = ".weight";
    const bool is_mixed = f->numbers->is_mixed && m->scales && m->scales->rank == 2 && m->zeros &&
                          m->zeros->rank == 2;
    uint64_t elems;
    if (m->codes->rank != 2)
        return fail_module(f, m, "expected two axes");
    if (is_mixed)
        read_bits(f, m);
    if (!read_shape(f, m) || !qp_shape_elements(m->shape, 2, &elems) || elems == 0)
        return fail_module(f, m, "expected whole words of codes");
    if (is_mixed)
        read_group(m);
    const struct qp_tensor t = {.name = qp_arena_join(f->arena, m->codes->name, m->n, suffix),
                                .name_len = (uint32_t)(m->n + sizeof suffix - 1),
                                .shape = qp_arena_copy(f->arena, m->shape, 2, sizeof *m->shape),
                                .rank = 2,
                                .storage = QPLAN_STORAGE_F16,
                                .variant = f->kind->has_index && !m->index ? QP_GPTQ_NO_INDEX
                                                                           : QP_GPTQ_USUAL,
                                .scheme = scheme_of(f, m)};
    return t.name && t.shape && t.scheme && qp_add_tensor(tensors, n, &t)
               ? QPLAN_OK
               : qp_fail_memory(f->err, f->listing->shown, sizeof t);
}

enum qplan_status qp_gptq_find(const struct qp_gptq_kind *kind,
                               const struct qp_gptq_numbers *numbers,
                               const struct qp_listing *listing, struct qp_arena *arena,
                               struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    struct finder f = {
        .kind = kind, .numbers = numbers, .listing = listing, .arena = arena, .err = err};
    struct module m;
    for (size_t i = 0; i < listing->n_entries; i++) {
        QP_TRY(is_module(&f, &listing->entries[i], &m) ? describe_module(&f, &m, tensors, n)
                                                       : check_has_codes(&f, &listing->entries[i]));
    }
    return QPLAN_OK;
}
