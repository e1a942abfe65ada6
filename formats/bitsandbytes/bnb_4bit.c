/*
 * bnb_4bit.c - weights of 4 bits in the layout of bitsandbytes. Groups go on from row to row, over
 * all elements. A weight W is its codes under that name, two in a byte, the first in the upper
 * half, as one column of bytes; W.absmax, the scale of each group; W.quant_map, the values of the
 * codes, which say nothing new; and W.quant_state.bitsandbytes__TYPE, JSON with all the rest.
 *
 * Scales may have scales: then W.absmax is codes of 8 bits, W.nested_quant_map has their values,
 * W.nested_absmax their scales, in groups of 256, and JSON a number that is added. As that is known
 * last, it has the same room in all such texts, whatever it is: blanks follow it.
 */
#include "bnb_nested.h"

#include "formats/build.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/model/dtype.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

static const char absmax[] = ".absmax", map[] = ".quant_map", state[] = ".quant_state.";
static const char *const nested[] = {".nested_absmax", ".nested_quant_map"};

#define N_NESTED (sizeof nested / sizeof nested[0])

static const uint8_t nf4_values[] = {
    F32(0xbf800000u), F32(0xbf3239b1u), F32(0xbf066b30u), F32(0xbeca32a0u),
    F32(0xbe91a24du), F32(0xbe3d353fu), F32(0xbdba7871u), F32(0x00000000u),
    F32(0x3da2faffu), F32(0x3e24cae3u), F32(0x3e7c04ddu), F32(0x3ead033au),
    F32(0x3ee1a4b8u), F32(0x3f1007abu), F32(0x3f3913b3u), F32(0x3f800000u),
};

static const uint8_t fp4_values[] = {
    F32(0x00000000u), F32(0x3baaaaabu), F32(0x3f2aaaabu), F32(0x3f800000u),
    F32(0x3eaaaaabu), F32(0x3f000000u), F32(0x3e2aaaabu), F32(0x3e800000u),
    F32(0x00000000u), F32(0xbbaaaaabu), F32(0xbf2aaaabu), F32(0xbf800000u),
    F32(0xbeaaaaabu), F32(0xbf000000u), F32(0xbe2aaaabu), F32(0xbe800000u),
};

/* The places of these values in ascending order, where both zeros are one. */
static const uint8_t fp4_codes[] = {7, 8, 13, 14, 11, 12, 9, 10, 7, 6, 1, 0, 3, 2, 5, 4};

/* The types of codes; fp4 is only read. */
static const struct kind {
    enum qplan_dtype dtype;
    const char *name;
    const char *state;
    const uint8_t *values;
    struct qp_place place;
} kinds[] = {
    {QPLAN_NF4,
     "nf4",
     ".quant_state.bitsandbytes__nf4",
     nf4_values,
     {.bits = 4, .word_bytes = 1, .filling = 7, .n_order = 2, .order = {1, 0}}},
    {QPLAN_FP4,
     "fp4",
     ".quant_state.bitsandbytes__fp4",
     fp4_values,
     {.bits = 4, .word_bytes = 1, .n_order = 2, .order = {1, 0}, .codes = fp4_codes}},
};

#define N_KINDS (sizeof kinds / sizeof kinds[0])

static const struct kind *kind_of(const struct qplan_scheme *scheme)
{
    size_t i = 0;
    while (i < N_KINDS && kinds[i].dtype != scheme->dtype)
        i++;
    return i < N_KINDS ? &kinds[i] : NULL;
}

bool qp_bnb_is_4bit(const struct qplan_scheme *scheme)
{
    return kind_of(scheme) != NULL;
}

bool qp_bnb_has_group(uint64_t group)
{
    return group >= 32 && group <= 4096 && (group & (group - 1)) == 0;
}

static const struct {
    enum qplan_storage storage;
    const char *name;
} dtypes[] = {
    {QPLAN_STORAGE_BF16, "bfloat16"},
    {QPLAN_STORAGE_F16, "float16"},
    {QPLAN_STORAGE_F32, "float32"},
};

#define N_DTYPES (sizeof dtypes / sizeof dtypes[0])

const char *qp_bnb_dtype(enum qplan_storage storage)
{
    size_t i = 0;
    while (i < N_DTYPES && dtypes[i].storage != storage)
        i++;
    return i < N_DTYPES ? dtypes[i].name : NULL;
}

/* ---- Parts -------------------------------------------------------------------------------------
 */

/* The JSON of a tensor, as the library writes it: NULL when out of memory. */
static const char *make_state(const struct qp_tensor *t, const struct kind *kind,
                              struct qp_arena *arena, size_t *n)
{
    const char *dtype = qp_bnb_dtype((enum qplan_storage)t->storage);
    char offset[QP_F64_TEXT];
    struct qp_writer w;
    qp_writer_init(&w);
    qp_printf(&w, "{\"quant_type\": \"%s\", \"blocksize\": %" PRIu64, kind->name, t->scheme->group);
    qp_printf(&w, ", \"dtype\": \"%s\", \"shape\": [%" PRIu64 ", %" PRIu64 "]",
              dtype ? dtype : "float64", t->shape[0], t->shape[1]);
    if (t->scheme->nested) {
        qp_format_f64(offset, (double)t->offset);
        qp_printf(&w, ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\"", QP_NESTED_SETS);
        qp_printf(&w, ", \"nested_offset\": %-*s", QP_F64_TEXT, offset);
    }
    qp_puts(&w, "}");
    const char *text = w.error ? NULL : qp_arena_join(arena, w.data, w.n, "");
    *n = w.n;
    qp_writer_free(&w);
    return text;
}

unsigned qp_bnb_4bit_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    enum { N_PLAIN = 4, N_PARTS = 6, N_VALUES = 16 };
    const struct kind *kind = kind_of(t->scheme);
    const bool is_nested = t->scheme->nested;
    const uint64_t n = t->shape[0] * t->shape[1], n_groups = qp_div_up(n, t->scheme->group);
    const uint64_t n_nested = qp_div_up(n_groups, QP_NESTED_SETS);
    const enum qplan_dtype scale = is_nested ? QPLAN_UINT8 : QPLAN_F32;
    size_t n_state;
    const char *text = make_state(t, kind, arena, &n_state);
    const struct qp_entry_wish wishes[N_PARTS] = {
        {t->name, t->name_len, "", QPLAN_STORAGE_U8, 2, {qp_div_up(n, 2), 1}},
        {t->name, t->name_len, absmax, qp_dtype_storage(scale), 1, {n_groups}},
        {t->name, t->name_len, map, QPLAN_STORAGE_F32, 1, {N_VALUES}},
        {t->name, t->name_len, kind->state, QPLAN_STORAGE_U8, 1, {n_state}},
        {t->name, t->name_len, nested[0], QPLAN_STORAGE_F32, 1, {n_nested}},
        {t->name, t->name_len, nested[1], QPLAN_STORAGE_F32, 1, {QP_NESTED_SETS}},
    };
    const struct qp_part all[N_PARTS] = {
        {.role = QP_CODES, .place = &kind->place, .matrix = {1, n}},
        {.role = QP_SCALE,
         .place = qp_scale_place(scale),
         .matrix = {1, n_groups},
         .nested = is_nested ? nested_values : NULL},
        {.role = QP_CONSTANT, .bytes = kind->values},
        {.role = QP_CONSTANT, .bytes = text, .is_text = true},
        {.role = QP_NESTED, .place = qp_scale_place(QPLAN_F32), .matrix = {1, n_nested}},
        {.role = QP_CONSTANT, .bytes = nested_values},
    };
    const unsigned n_parts = is_nested ? N_PARTS : N_PLAIN;
    for (unsigned i = 0; i < n_parts; i++) {
        if (!text || !qp_build_entry(&entries[i], &wishes[i], arena))
            return 0;
        parts[i] = all[i];
        parts[i].entry = &entries[i];
    }
    return n_parts;
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

static enum qplan_status refuse(const struct qp_listing *listing, const struct qplan_entry *entry,
                                const char *what, struct qplan_error *err)
{
    char subject[512];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, entry), "%s", what);
}

/* What the JSON of a tensor says of it. */
struct said {
    struct qplan_scheme scheme;
    enum qplan_storage storage;
    uint64_t shape[2];
    float offset;
};

/* Two extents of a tensor that has elements. */
static bool read_shape(const struct qp_tree_value *value, uint64_t shape[2])
{
    uint64_t elems;
    if (!qp_tree_is_array(value) || value->n != 2)
        return false;
    const struct qp_tree_value *rows = qp_tree_first(value), *cols = qp_tree_next(rows);
    if (rows->type != QP_JSON_NUMBER || cols->type != QP_JSON_NUMBER)
        return false;
    shape[0] = rows->number;
    shape[1] = cols->number;
    return qp_shape_elements(shape, 2, &elems) && elems > 0;
}

static bool read_dtype(const struct qp_tree *tree, const struct qp_tree_value *value,
                       enum qplan_storage *out)
{
    size_t i = 0;
    while (i < N_DTYPES && !qp_tree_is_string(tree, value, dtypes[i].name))
        i++;
    *out = dtypes[i < N_DTYPES ? i : 0].storage;
    return i < N_DTYPES;
}

/* A number, which the library reads as f64 and rounds to f32; false if that is infinite. */
static bool read_offset(const struct qp_tree *tree, const struct qp_tree_value *value, float *out)
{
    char text[64];
    double number = 0;
    if (!value || (value->type != QP_JSON_NUMBER && value->type != QP_TREE_LITERAL))
        return false;
    if (value->type == QP_JSON_NUMBER) {
        *out = (float)value->number;
        return true;
    }
    if (value->n >= sizeof text)
        return false;
    memcpy(text, tree->text + value->at, value->n);
    text[value->n] = '\0';
    if (!qp_parse_f64(text, &number) || !(number < (double)FLT_MAX && number > -(double)FLT_MAX))
        return false;
    *out = (float)number;
    return true;
}

static enum qplan_status bad(const struct qp_tree *tree, const char *key, const char *expected,
                             const struct qp_tree_value *found)
{
    char shown[QP_QUOTED];
    return qp_fail(tree->err, QPLAN_ERR_INVALID, tree->name, "%s: expected %s, found %s", key,
                   expected, found ? qp_tree_show(shown, tree, found) : "none");
}

static enum qplan_status take_state(const struct qp_tree *tree, const struct kind *kind,
                                    struct said *said)
{
    enum { TYPE, BLOCK, DTYPE, SHAPE, NESTED_BLOCK, NESTED_DTYPE, NESTED_OFFSET };
    static const char *const keys[] = {"quant_type",       "blocksize",    "dtype",         "shape",
                                       "nested_blocksize", "nested_dtype", "nested_offset", NULL};
    const struct qp_tree_value *v[QP_TREE_MAX_KEYS];
    QP_TRY(qp_tree_members(tree, tree->values, "quant_state", keys, v));
    said->scheme = (struct qplan_scheme){.dtype = kind->dtype,
                                         .granularity = QPLAN_PER_GROUP,
                                         .group = qp_tree_number(v[BLOCK]),
                                         .scale_dtype = QPLAN_F32};
    if (!qp_tree_is_string(tree, v[TYPE], kind->name))
        return bad(tree, keys[TYPE], kind->name, v[TYPE]);
    if (!qp_bnb_has_group(said->scheme.group))
        return bad(tree, keys[BLOCK], "a power of two from 32 to 4096", v[BLOCK]);
    if (!read_dtype(tree, v[DTYPE], &said->storage))
        return bad(tree, keys[DTYPE], "bfloat16, float16 or float32", v[DTYPE]);
    if (!read_shape(v[SHAPE], said->shape))
        return bad(tree, keys[SHAPE], "two extents above 0", v[SHAPE]);
    said->scheme.nested = v[NESTED_BLOCK] || v[NESTED_DTYPE] || v[NESTED_OFFSET];
    if (!said->scheme.nested)
        return QPLAN_OK;
    if (!qp_tree_is_number(v[NESTED_BLOCK], QP_NESTED_SETS))
        return bad(tree, keys[NESTED_BLOCK], "256", v[NESTED_BLOCK]);
    if (!qp_tree_is_string(tree, v[NESTED_DTYPE], "float32"))
        return bad(tree, keys[NESTED_DTYPE], "float32", v[NESTED_DTYPE]);
    if (!read_offset(tree, v[NESTED_OFFSET], &said->offset))
        return bad(tree, keys[NESTED_OFFSET], "a number of f32", v[NESTED_OFFSET]);
    return QPLAN_OK;
}

#define MOST_STATE 1024

static enum qplan_status read_state(const struct qp_listing *listing,
                                    const struct qplan_entry *entry, const struct kind *kind,
                                    struct said *said, struct qplan_error *err)
{
    char text[MOST_STATE], subject[512];
    struct qp_tree tree = {
        .name = qp_listing_subject(subject, listing, entry), .err = err, .any_numbers = true};
    const uint64_t n = entry->end - entry->begin;
    if (entry->storage != QPLAN_STORAGE_U8 || entry->rank != 1 || n > sizeof text)
        return refuse(listing, entry, "expected JSON in bytes of type U8", err);
    QP_TRY(listing->read(listing, entry, 0, text, (size_t)n, err));
    enum qplan_status status = qp_tree_read(&tree, text, (size_t)n);
    if (status == QPLAN_OK)
        status = take_state(&tree, kind, said);
    qp_tree_free(&tree);
    return status;
}

enum qplan_status qp_bnb_4bit_recall(const struct qp_listing *listing, struct qp_tensor *t,
                                     struct qplan_error *err)
{
    const struct kind *kind = kind_of(t->scheme);
    struct said said = {.offset = 0};
    const struct qplan_entry *entry =
        t->scheme->nested ? qp_listing_sibling(listing, t->name, t->name_len, kind->state) : NULL;
    if (!entry || entry->storage != QPLAN_STORAGE_U8 || entry->rank != 1)
        return QPLAN_OK; /* its parts will be refused */
    QP_TRY(read_state(listing, entry, kind, &said, err));
    t->offset = said.offset;
    return QPLAN_OK;
}

/* Where a name has the state of codes in it, or NULL. */
static const char *find_state(const struct qplan_entry *entry)
{
    const size_t n = sizeof state - 1;
    for (size_t i = 0; i + n <= entry->name_len; i++) {
        if (memcmp(entry->name + i, state, n) == 0)
            return entry->name + i;
    }
    return NULL;
}

/* The codes that a state belongs to, with no other state, and nothing that it does not speak of. */
static enum qplan_status find_codes(const struct qp_listing *listing,
                                    const struct qplan_entry *entry, size_t n_name,
                                    const struct qplan_entry **out, struct qplan_error *err)
{
    *out = qp_listing_find(listing, entry->name, n_name);
    if (!*out)
        return refuse(listing, entry,
                      "part of a quantized tensor, but its codes are not in the checkpoint", err);
    for (size_t i = 0; i < N_KINDS; i++) {
        const struct qplan_entry *other =
            qp_listing_sibling(listing, entry->name, n_name, kinds[i].state);
        if (other && other != entry)
            return refuse(listing, other, "a second quant_state of one tensor", err);
    }
    return QPLAN_OK;
}

/* A state that does not speak of scales of scales has none beside it. */
static enum qplan_status check_nested(const struct qp_listing *listing,
                                      const struct qplan_entry *entry, size_t n_name,
                                      const struct said *said, struct qplan_error *err)
{
    for (size_t i = 0; !said->scheme.nested && i < N_NESTED; i++) {
        const struct qplan_entry *other =
            qp_listing_sibling(listing, entry->name, n_name, nested[i]);
        if (other)
            return refuse(listing, other, "scales of scales, but its quant_state has none", err);
    }
    return QPLAN_OK;
}

/* What config.json says of all tensors is what the quant_state of this one says. */
static enum qplan_status check_config(const struct qp_listing *listing,
                                      const struct qplan_entry *codes,
                                      const struct qplan_scheme *scheme, struct qplan_error *err)
{
    static const char *const keys[] = {"bnb_4bit_quant_type", "bnb_4bit_use_double_quant"};
    const struct qp_tree *tree = listing->config;
    const struct qp_tree_value *config = qp_quantization_config(listing);
    const struct qp_tree_value *type = qp_tree_member(tree, config, keys[0]);
    const struct qp_tree_value *is_double = qp_tree_member(tree, config, keys[1]);
    const char *expected = scheme->dtype == QPLAN_NF4 ? "nf4" : "fp4";
    const bool is_type = !type || qp_tree_is_string(tree, type, expected);
    const bool is_nested =
        !is_double || (qp_tree_is_bool(is_double) && qp_tree_is_true(is_double) == scheme->nested);
    char shown[QP_QUOTED], quoted[QP_QUOTED];
    if (is_type && is_nested)
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, tree->name,
                   "quantization_config: %s: expected %s, as %s is stored, found %s", keys[is_type],
                   !is_type         ? expected
                   : scheme->nested ? "true"
                                    : "false",
                   qp_quote(quoted, codes->name, codes->name_len),
                   qp_tree_show(shown, tree, is_type ? is_double : type));
}

static enum qplan_status describe_tensor(const struct qp_listing *listing, struct qp_arena *arena,
                                         const struct qplan_entry *entry, size_t n_name,
                                         struct qp_tensor **tensors, size_t *n,
                                         struct qplan_error *err)
{
    const struct qplan_entry *codes;
    struct said said = {.offset = 0};
    size_t i = 0;
    while (i < N_KINDS &&
           !qp_text_is(entry->name + n_name, entry->name_len - n_name, kinds[i].state))
        i++;
    if (i == N_KINDS)
        return refuse(listing, entry,
                      "not a quant_state that is supported: expected bitsandbytes__nf4 or "
                      "bitsandbytes__fp4",
                      err);
    QP_TRY(find_codes(listing, entry, n_name, &codes, err));
    QP_TRY(read_state(listing, entry, &kinds[i], &said, err));
    QP_TRY(check_nested(listing, entry, n_name, &said, err));
    QP_TRY(check_config(listing, codes, &said.scheme, err));
    const struct qp_tensor t = {.name = codes->name,
                                .name_len = codes->name_len,
                                .shape = qp_arena_copy(arena, said.shape, 2, sizeof *said.shape),
                                .rank = 2,
                                .storage = (uint8_t)said.storage,
                                .offset = said.offset,
                                .scheme =
                                    qp_arena_copy(arena, &said.scheme, 1, sizeof said.scheme)};
    return t.shape && t.scheme && qp_add_tensor(tensors, n, &t)
               ? QPLAN_OK
               : qp_fail_memory(err, listing->shown, sizeof t);
}

/* What stands beside codes stands beside a state. */
static enum qplan_status check_rest(const struct qp_listing *listing,
                                    const struct qplan_entry *entry, struct qplan_error *err)
{
    const char *const rest[] = {absmax, map, nested[0], nested[1]};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        const size_t n = strlen(rest[i]);
        bool is_known = !qp_name_ends(entry->name, entry->name_len, rest[i]);
        for (size_t k = 0; k < N_KINDS; k++)
            is_known = is_known || qp_listing_sibling(listing, entry->name, entry->name_len - n,
                                                      kinds[k].state);
        if (!is_known)
            return refuse(listing, entry,
                          "part of a quantized tensor, but its quant_state is not in the "
                          "checkpoint",
                          err);
    }
    return QPLAN_OK;
}

enum qplan_status qp_bnb_4bit_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                       struct qp_tensor **tensors, size_t *n,
                                       struct qplan_error *err)
{
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        const char *found = find_state(entry);
        if (found)
            QP_TRY(describe_tensor(listing, arena, entry, (size_t)(found - entry->name), tensors, n,
                                   err));
        else
            QP_TRY(check_rest(listing, entry, err));
    }
    return QPLAN_OK;
}
