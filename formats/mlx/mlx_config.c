/*
 * mlx_config.c - bits and group sizes in config.json, written and read, and the quantized modules
 * that they describe.
 */
#include "mlx.h"

#include "formats/build.h"
#include "lib/base/check.h"
#include "lib/base/json.h"
#include "lib/model/dtype.h"

#include <string.h>

/* What config.json says of a module. */
struct numbers {
    uint64_t bits, group;
    const struct qp_blocks_row *block; /* NULL = affine */
};

static struct numbers numbers_of(const struct qplan_scheme *scheme)
{
    return (struct numbers){qplan_dtype_bits(scheme->dtype), scheme->group, qp_blocks_of(scheme)};
}

static bool same_numbers(struct numbers a, struct numbers b)
{
    return a.bits == b.bits && a.group == b.group && a.block == b.block;
}

/* ---- Writing -----------------------------------------------------------------------------------
 */

static void put_numbers(struct qp_writer *w, struct numbers numbers)
{
    qp_json_key(w, "group_size");
    qp_json_put_u64(w, numbers.group);
    qp_json_key(w, "bits");
    qp_json_put_u64(w, numbers.bits);
}

static void put_mode(struct qp_writer *w, struct numbers numbers)
{
    qp_json_key(w, "mode");
    qp_json_put_str(w, numbers.block ? numbers.block->name : "affine");
}

/* The numbers that most tensors have: of each mode 3 group sizes times up to 8 bits are counted. */
static struct numbers usual_numbers(const struct qp_outline *o)
{
    size_t counts[QP_BLOCKS + 1][9][3] = {{{0}}}, most = 0;
    struct numbers usual = {4, 64, NULL};
    for (size_t i = 0; i < o->n; i++) {
        if (!o->tensors[i]->scheme)
            continue;
        const struct numbers numbers = numbers_of(o->tensors[i]->scheme);
        const size_t mode = numbers.block ? (size_t)(numbers.block - qp_blocks) + 1 : 0;
        const size_t n = ++counts[mode][numbers.bits][numbers.group / 64];
        usual = n > most ? numbers : usual;
        most = n > most ? n : most;
    }
    return usual;
}

void qp_mlx_config(struct qp_writer *w, const struct qp_outline *o)
{
    const struct numbers usual = usual_numbers(o);
    qp_json_open(w, '{');
    put_numbers(w, usual);
    put_mode(w, usual);
    for (size_t i = 0; i < o->n; i++) {
        const struct qp_tensor *t = o->tensors[i];
        if (!t->scheme || same_numbers(numbers_of(t->scheme), usual))
            continue;
        qp_json_key_n(w, t->name, t->name_len - strlen(".weight"));
        qp_json_open(w, '{');
        put_numbers(w, numbers_of(t->scheme));
        if (numbers_of(t->scheme).block != usual.block)
            put_mode(w, numbers_of(t->scheme));
        qp_json_close(w, '}');
    }
    qp_json_close(w, '}');
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

/* What mlx-lm looks at: the newer key counts, and the older one only if no other tool wrote it. */
static const struct qp_tree_value *config_of(const struct qp_listing *listing)
{
    const struct qp_tree *tree = listing->config;
    const struct qp_tree_value *newer =
        tree ? qp_tree_member(tree, tree->values, "quantization") : NULL;
    const struct qp_tree_value *older = qp_quantization_config(listing);
    if (newer || !older || qp_tree_member(tree, older, "quant_method"))
        return newer;
    return older;
}

bool qp_mlx_is(const struct qp_listing *listing)
{
    const struct qp_tree_value *config = config_of(listing);
    return config && qp_tree_member(listing->config, config, "bits") &&
           qp_tree_member(listing->config, config, "group_size");
}

struct reader {
    const struct qp_listing *listing;
    const struct qp_tree_value *config;
    struct qp_arena *arena;
    const struct qplan_scheme *scheme; /* the last one: most tensors share theirs */
    struct qplan_error *err;
};

/* The stored tensors of a module: M.weight, M.scales and M.biases. */
struct module {
    const char *name; /* of M, without an end */
    size_t n;
    const struct qplan_entry *codes, *scales;
};

static enum qplan_status fail_module(const struct reader *r, const struct qplan_entry *entry,
                                     const char *what)
{
    char subject[512];
    return qp_fail(r->err, QPLAN_ERR_INVALID, qp_listing_subject(subject, r->listing, entry), "%s",
                   what);
}

/* A number of an object, or what MLX takes where there is none. */
static uint64_t number_of(const struct reader *r, const struct qp_tree_value *object,
                          const char *key, uint64_t absent)
{
    const struct qp_tree_value *found = qp_tree_member(r->listing->config, object, key);
    return found ? qp_tree_number(found) : absent;
}

/* Whether a mode is one of blocks of floats; .bits is 0 if other numbers do not go with it. */
static bool read_block(const struct reader *r, const struct qp_tree_value *told,
                       const struct qp_tree_value *mode, struct numbers *out)
{
    for (int i = 0; i < QP_BLOCKS; i++) {
        const struct qp_blocks_row *block = &qp_blocks[i];
        const uint64_t bits = qplan_dtype_bits(block->dtype), width = block->width;
        if (!qp_tree_is_string(r->listing->config, mode, block->name))
            continue;
        const bool fits = number_of(r, told, "bits", bits) == bits &&
                          number_of(r, told, "group_size", width) == width;
        *out = (struct numbers){fits ? bits : 0, width, block};
        return true;
    }
    return false;
}

/* Bits and group size of a module: its own, or those of all. */
static enum qplan_status read_numbers(const struct reader *r, const struct module *m,
                                      struct numbers *out)
{
    const struct qp_tree *tree = r->listing->config;
    const char *path = qp_arena_join(r->arena, m->name, m->n, "");
    if (!path)
        return qp_fail_memory(r->err, r->listing->shown, m->n);
    const struct qp_tree_value *own = qp_tree_member(tree, r->config, path);
    if (own && !qp_tree_is_object(own) && !qp_tree_is_true(own))
        return fail_module(r, m->codes, "config.json says that it is not quantized");
    const struct qp_tree_value *told = qp_tree_is_object(own) ? own : r->config;
    const struct qp_tree_value *mode = qp_tree_member(tree, told, "mode");
    if (read_block(r, told, mode, out))
        return out->bits
                   ? QPLAN_OK
                   : fail_module(r, m->codes,
                                 "config.json: bits and group_size are not those of the mode");
    *out =
        (struct numbers){number_of(r, told, "bits", 4), number_of(r, told, "group_size", 64), NULL};
    if (mode && !qp_tree_is_string(tree, mode, "affine"))
        return fail_module(r, m->codes,
                           "config.json: mode: expected affine, nvfp4, mxfp4 or mxfp8");
    if (!qp_mlx_has(out->bits, out->group))
        return fail_module(r, m->codes,
                           "config.json: expected bits of 2, 3, 4, 5, 6 or 8 and a group_size of "
                           "32, 64 or 128");
    return QPLAN_OK;
}

static const struct qplan_scheme *scheme_of(struct reader *r, const struct numbers *numbers,
                                            const struct module *m)
{
    const struct qplan_scheme affine = {
        .dtype = qp_integer_type((unsigned)numbers->bits, false),
        .granularity = QPLAN_PER_GROUP,
        .group = numbers->group,
        .asymmetric = true,
        .bias = true,
        .scale_dtype = qp_storage_row((enum qplan_storage)m->scales->storage)->dtype};
    const struct qplan_scheme scheme = numbers->block ? qp_blocks_scheme(numbers->block) : affine;
    if (!r->scheme || !qp_scheme_equal(r->scheme, &scheme))
        r->scheme = qp_arena_copy(r->arena, &scheme, 1, sizeof scheme);
    return r->scheme;
}

/* Extents of the weight that the stored tensors agree on. */
static bool find_shape(const struct module *m, const struct numbers *numbers,
                       uint64_t shape[QPLAN_MAX_RANK])
{
    const unsigned rank = m->codes->rank;
    uint64_t words, elems;
    if (rank < 2 || rank > 3 || m->scales->rank != rank)
        return false;
    memcpy(shape, m->scales->shape, rank * sizeof *shape);
    if (!qp_mul_u64(shape[rank - 1], numbers->group * numbers->bits / 32, &words) ||
        !qp_mul_u64(shape[rank - 1], numbers->group, &shape[rank - 1]))
        return false;
    return words == m->codes->shape[rank - 1] && qp_shape_elements(shape, rank, &elems) &&
           elems > 0;
}

static enum qplan_status describe_module(struct reader *r, const struct module *m,
                                         struct qp_tensor **tensors, size_t *n)
{
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)m->scales->storage);
    struct numbers numbers = {0, 0, NULL};
    uint64_t shape[QPLAN_MAX_RANK];
    QP_TRY(read_numbers(r, m, &numbers));
    if (numbers.block && m->scales->storage != QPLAN_STORAGE_U8)
        return fail_module(r, m->scales, "expected scales of type U8");
    if (!numbers.block && (!row->is_source || row->dtype == QPLAN_F64))
        return fail_module(r, m->scales, "expected scales of type F32, F16 or BF16");
    if (!find_shape(m, &numbers, shape))
        return fail_module(r, m->codes,
                           "its shape and that of its scales do not fit bits and group_size of "
                           "config.json");
    enum qplan_storage storage = QPLAN_STORAGE_BF16; /* of blocks nothing else says it */
    (void)qp_model_storage(r->listing, &storage);
    const struct qp_tensor t = {.name = qp_arena_join(r->arena, m->name, m->n, ".weight"),
                                .name_len = (uint32_t)(m->n + strlen(".weight")),
                                .shape =
                                    qp_arena_copy(r->arena, shape, m->codes->rank, sizeof *shape),
                                .rank = m->codes->rank,
                                .storage = numbers.block ? (uint8_t)storage : m->scales->storage,
                                .scheme = scheme_of(r, &numbers, m)};
    return t.name && t.shape && t.scheme && qp_add_tensor(tensors, n, &t)
               ? QPLAN_OK
               : qp_fail_memory(r->err, r->listing->shown, sizeof t);
}

/* Whether a stored tensor holds the scales of a module, with its codes beside it. */
static bool is_module(const struct reader *r, const struct qplan_entry *entry, struct module *m)
{
    if (!qp_name_ends(entry->name, entry->name_len, ".scales"))
        return false;
    *m = (struct module){
        .name = entry->name, .n = entry->name_len - strlen(".scales"), .scales = entry};
    m->codes = qp_listing_sibling(r->listing, m->name, m->n, ".weight");
    return m->codes != NULL;
}

static bool has_codes(const struct qplan_entry *weight)
{
    return weight && weight->storage == QPLAN_STORAGE_U32;
}

/*
 * Whether a stored tensor is a part of which others are not there: of blocks codes or scales, which
 * have a type that plain tensors do not have; or biases with only codes, or only scales.
 */
static bool is_orphan(const struct reader *r, const struct qplan_entry *entry)
{
    static const char biases[] = ".biases", weight[] = ".weight", scales[] = ".scales";
    const struct qp_listing *listing = r->listing;
    const char *name = entry->name;
    if (qp_name_ends(name, entry->name_len, scales))
        return entry->storage == QPLAN_STORAGE_U8;
    if (qp_name_ends(name, entry->name_len, weight))
        return has_codes(entry) &&
               !qp_listing_sibling(listing, name, entry->name_len - (sizeof weight - 1), scales);
    if (!qp_name_ends(name, entry->name_len, biases))
        return false;
    const size_t n = entry->name_len - (sizeof biases - 1);
    const struct qplan_entry *codes = qp_listing_sibling(listing, name, n, weight);
    const bool has_scales = qp_listing_sibling(listing, name, n, scales) != NULL;
    return has_codes(codes) != has_scales && (!codes || has_codes(codes));
}

static enum qplan_status read_entry(struct reader *r, const struct qplan_entry *entry,
                                    struct qp_tensor **tensors, size_t *n)
{
    struct module m;
    if (is_module(r, entry, &m))
        return describe_module(r, &m, tensors, n);
    return is_orphan(r, entry) ? fail_module(r, entry,
                                             "part of a quantized tensor whose codes or scales are "
                                             "not in the checkpoint")
                               : QPLAN_OK;
}

/* Tools that look at the older key read what those do that look at the newer one. */
static enum qplan_status check_older(const struct reader *r)
{
    static const char *const keys[] = {"bits", "group_size"};
    const struct qp_tree *tree = r->listing->config;
    const struct qp_tree_value *older = qp_quantization_config(r->listing);
    char shown[QP_QUOTED];
    for (size_t i = 0; older != r->config && i < sizeof keys / sizeof keys[0]; i++) {
        const struct qp_tree_value *found = qp_tree_member(tree, older, keys[i]);
        if (found && !qp_tree_is_number(found, number_of(r, r->config, keys[i], 0)))
            return qp_fail(r->err, QPLAN_ERR_INVALID, tree->name,
                           "quantization_config: %s: expected that of quantization, found %s",
                           keys[i], qp_tree_show(shown, tree, found));
    }
    return QPLAN_OK;
}

enum qplan_status qp_mlx_describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    struct reader r = {
        .listing = listing, .config = config_of(listing), .arena = arena, .err = err};
    QP_TRY(check_older(&r));
    for (size_t i = 0; i < listing->n_entries; i++)
        QP_TRY(read_entry(&r, &listing->entries[i], tensors, n));
    return QPLAN_OK;
}
