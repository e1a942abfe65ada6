/*
 * mxfp4.c - the layout of gpt-oss: the experts of a layer in blocks of mxfp4, all else plain. It is
 * read, and never written.
 *
 * A weight W of all experts, [experts, in, out], is W_blocks, [experts, out, in / 32, 16], two
 * codes in a byte, the first in its low half, and W_scales, [experts, out, in / 32], exponents in
 * bytes. So a line of codes is a column of an expert, and a block has 32 rows of one column.
 */
#include "formats/blocks.h"
#include "formats/build.h"

#include <string.h>

#define WIDTH       32 /* codes of a block */
#define BLOCK_BYTES 16

static const char blocks[] = "_blocks", scales[] = "_scales";

static const struct qplan_scheme scheme = {.dtype = QPLAN_F4E2M1,
                                           .granularity = QPLAN_PER_BLOCK,
                                           .block_rows = WIDTH,
                                           .block_cols = 1,
                                           .scale_dtype = QPLAN_E8M0};

/* Nothing that a record says is stored so: no file with records has this layout. */
static const char *fit(struct qplan_scheme *asked, enum qplan_storage storage,
                       const struct qp_format_options *options)
{
    (void)asked;
    (void)storage;
    (void)options;
    return "nothing: it is only read";
}

static unsigned make_parts(const struct qp_tensor *t, struct qp_arena *arena, struct qp_part *parts,
                           struct qplan_entry *entries)
{
    static const struct qp_place codes = {.bits = 4, .word_bytes = 1, .columns = true};
    static const struct qp_place exponents = {.bits = 8, .word_bytes = 1, .columns = true};
    const uint64_t experts = t->shape[0], in = t->shape[1], out = t->shape[2];
    const uint64_t n_blocks = in / WIDTH;
    const struct qp_entry_wish wishes[] = {
        {t->name, t->name_len, blocks, QPLAN_STORAGE_U8, 4, {experts, out, n_blocks, BLOCK_BYTES}},
        {t->name, t->name_len, scales, QPLAN_STORAGE_U8, 3, {experts, out, n_blocks}},
    };
    if (!qp_build_entry(&entries[0], &wishes[0], arena) ||
        !qp_build_entry(&entries[1], &wishes[1], arena))
        return 0;
    parts[0] = (struct qp_part){.role = QP_CODES,
                                .place = &codes,
                                .matrix = {experts * in, out},
                                .each = in,
                                .entry = &entries[0]};
    parts[1] = (struct qp_part){.role = QP_SCALE,
                                .place = &exponents,
                                .matrix = {experts * n_blocks, out},
                                .each = n_blocks,
                                .entry = &entries[1]};
    return 2;
}

/* ---- Reading -----------------------------------------------------------------------------------
 */

static bool is(const struct qp_listing *listing)
{
    return qp_is_quant_method(listing, "mxfp4");
}

static enum qplan_status refuse(const struct qp_listing *listing, const struct qplan_entry *entry,
                                const char *what, struct qplan_error *err)
{
    char subject[512];
    return qp_fail(err, QPLAN_ERR_INVALID, qp_listing_subject(subject, listing, entry), "%s", what);
}

static bool are_codes(const struct qplan_entry *entry)
{
    return entry->storage == QPLAN_STORAGE_U8 && entry->rank == 4 &&
           entry->shape[3] == BLOCK_BYTES && qp_entry_elements(entry) > 0;
}

static enum qplan_status describe_experts(const struct qp_listing *listing, struct qp_arena *arena,
                                          const struct qplan_entry *codes,
                                          struct qp_tensor **tensors, size_t *n,
                                          struct qplan_error *err)
{
    enum qplan_storage storage = QPLAN_STORAGE_BF16; /* that of the decoder */
    const size_t n_name = codes->name_len - (sizeof blocks - 1);
    if (!are_codes(codes))
        return refuse(listing, codes, "expected blocks of 16 bytes of type U8, with four axes",
                      err);
    /* All have twice as many elements as there are bytes of codes, which are fewer than 2^60. */
    const uint64_t shape[3] = {codes->shape[0], codes->shape[2] * WIDTH, codes->shape[1]};
    (void)qp_model_storage(listing, &storage);
    const struct qp_tensor t = {.name = qp_arena_join(arena, codes->name, n_name, ""),
                                .name_len = (uint32_t)n_name,
                                .shape = qp_arena_copy(arena, shape, 3, sizeof *shape),
                                .rank = 3,
                                .storage = (uint8_t)storage,
                                .scheme = &scheme};
    return t.name && t.shape && qp_add_tensor(tensors, n, &t)
               ? QPLAN_OK
               : qp_fail_memory(err, listing->shown, sizeof t);
}

static enum qplan_status describe(const struct qp_listing *listing, struct qp_arena *arena,
                                  struct qp_tensor **tensors, size_t *n, struct qplan_error *err)
{
    for (size_t i = 0; i < listing->n_entries; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        const size_t n_scaled = entry->name_len - (sizeof scales - 1);
        if (qp_name_ends(entry->name, entry->name_len, blocks))
            QP_TRY(describe_experts(listing, arena, entry, tensors, n, err));
        else if (entry->storage == QPLAN_STORAGE_U8 &&
                 qp_name_ends(entry->name, entry->name_len, scales) &&
                 !qp_listing_sibling(listing, entry->name, n_scaled, blocks))
            return refuse(listing, entry, "scales of blocks that are not there", err);
    }
    return QPLAN_OK;
}

const struct qp_format qp_format_mxfp4 = {
    .name = "mxfp4",
    .loaded_by = "vLLM, SGLang, transformers",
    .schemes = "only read: mxfp4 experts of gpt-oss",
    .is_read_only = true,
    .rank = 3,
    .rounds = true,
    .n_variants = 1,
    .is = is,
    .describe = describe,
    .fit = fit,
    .parts = make_parts,
};
