/*
 * foreign.c - noticing checkpoints that some tool has quantized already, in whatever layout, by the
 * names of their tensors.
 */
#include "format.h"

#include "lib/model/dtype.h"

#include <string.h>

static bool ends_with(const struct qplan_entry *entry, const char *suffix)
{
    const size_t n = strlen(suffix);
    return entry->name_len >= n && memcmp(entry->name + entry->name_len - n, suffix, n) == 0;
}

struct search {
    const struct qp_listing *listing;
    const struct qp_tensor **owner; /* by stored tensor, or NULL */
    struct qp_writer name;
};

static bool is_owned(const struct search *s, const struct qplan_entry *entry)
{
    return s->owner && s->owner[entry - s->listing->entries];
}

/* Whether the tensor called like the entry, with its suffix replaced, holds codes. */
static bool has_codes(struct search *s, const struct qplan_entry *entry, const char *suffix,
                      const char *replacement)
{
    struct qp_writer *name = &s->name;
    name->n = 0;
    qp_put(name, entry->name, entry->name_len - strlen(suffix));
    qp_puts(name, replacement);
    const struct qplan_entry *codes =
        name->error ? NULL : qp_listing_find(s->listing, name->n ? name->data : "", name->n);
    if (!codes || is_owned(s, codes))
        return false;
    const struct qp_storage_row *row = qp_storage_row((enum qplan_storage)codes->storage);
    return row->is_integer || row->is_f8;
}

/* Whether the entry belongs to quantized weights, by its name and by what stands beside it. */
static bool is_quantized(struct search *s, const struct qplan_entry *entry)
{
    static const char *const alone[] = {".qweight", "weight_packed"};
    static const struct {
        const char *suffix, *codes;
    } scales[] = {
        {"_scale", ""},         {"_scale", ".weight"},  {".scales", ""},
        {".scales", ".weight"}, {"_scale_inv", ""},     {"_scale_inv", ".weight"},
        {".absmax", ""},        {".absmax", ".weight"}, {".SCB", ""},
        {".SCB", ".weight"},    {"_scales", "_blocks"}, {".scale_weight", ".weight"},
    };
    for (size_t k = 0; k < sizeof alone / sizeof alone[0]; k++) {
        if (ends_with(entry, alone[k]))
            return true;
    }
    for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++) {
        if (ends_with(entry, scales[k].suffix) &&
            has_codes(s, entry, scales[k].suffix, scales[k].codes))
            return true;
    }
    return false;
}

enum qplan_status qp_find_quantized(const struct qp_listing *listing,
                                    const struct qp_tensor **owner,
                                    const struct qplan_entry **found, struct qplan_error *err)
{
    struct search s = {.listing = listing, .owner = owner};
    qp_writer_init(&s.name);
    *found = NULL;
    for (size_t i = 0; i < listing->n_entries && !*found; i++) {
        const struct qplan_entry *entry = &listing->entries[i];
        if (!is_owned(&s, entry) && is_quantized(&s, entry))
            *found = entry;
    }
    enum qplan_status status = qp_writer_finish(&s.name, listing->shown, err);
    qp_writer_free(&s.name);
    return status;
}
