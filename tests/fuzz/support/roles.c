/*
 * roles.c - counts for each stored tensor how many tensors have it, as themselves or as a part.
 */
#include "roles.h"

#include "fuzz_files.h"

static void count(const struct qplan_checkpoint *c, const struct qp_tensor *t, unsigned *uses)
{
    if (!t->scheme)
        uses[t->entry - c->source.listing.entries]++;
    for (unsigned k = 0; t->scheme && k < t->n_parts; k++)
        uses[t->parts[k].entry - c->source.listing.entries]++;
}

/* The quantized tensors alone, which a layout gets to know what notes speak of. */
static struct qp_tensor *quantized_of(const struct qplan_checkpoint *c, size_t *n)
{
    struct qp_tensor *list = calloc(c->n_tensors + 1, sizeof *list);
    promise(list != NULL, "memory");
    *n = 0;
    for (size_t i = 0; i < c->n_tensors; i++)
        if (c->tensors[i].scheme)
            list[(*n)++] = c->tensors[i];
    return list;
}

void check_roles(const struct qplan_checkpoint *c)
{
    const struct qp_listing *listing = &c->source.listing;
    size_t n;
    struct qp_tensor *quantized = quantized_of(c, &n);
    unsigned *uses = calloc(listing->n_entries + 1, sizeof *uses);
    promise(uses != NULL, "memory");
    for (size_t i = 0; i < c->n_tensors; i++)
        count(c, &c->tensors[i], uses);
    for (size_t i = 0; i < listing->n_entries; i++) {
        const bool is_note = uses[i] == 0 && c->format && c->format->is_note &&
                             c->format->is_note(listing, &listing->entries[i], quantized, n);
        promise(uses[i] == 1 || is_note, "every stored tensor has one role");
    }
    free(uses);
    free(quantized);
}
