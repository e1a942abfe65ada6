/*
 * registry.c - the table of layouts: one row for each folder of formats/ that the build has found.
 */
#include "format.h"

#include <string.h>

/* format_rows.h is made by the build: FORMAT(name) for each folder, in the order of names. */
#define FORMAT(name) extern const struct qp_format qp_format_##name;
#include "format_rows.h"
#undef FORMAT

static const struct qp_format *const formats[] = {
#define FORMAT(name) &qp_format_##name,
#include "format_rows.h"
#undef FORMAT
};

#define N_FORMATS (sizeof formats / sizeof formats[0])

const struct qp_format *qp_format_at(size_t i)
{
    return i < N_FORMATS ? formats[i] : NULL;
}

const struct qp_format *qp_format_find(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (strcmp(formats[i]->name, name) == 0)
            return formats[i];
    }
    return NULL;
}

const struct qp_format *qp_format_of(const struct qp_listing *listing)
{
    for (size_t i = 0; i < N_FORMATS; i++) {
        if (formats[i]->is(listing))
            return formats[i];
    }
    return NULL;
}

const char *qplan_format_name(size_t i)
{
    return i < N_FORMATS ? formats[i]->name : NULL;
}

const struct qplan_entry *qp_listing_find(const struct qp_listing *listing, const char *name,
                                          size_t n)
{
    return qp_entries_find(listing->entries, listing->n_entries, name, n);
}

const char *qp_listing_subject(char out[512], const struct qp_listing *listing,
                               const struct qplan_entry *entry)
{
    return qp_st_subject(out, &listing->files[entry->file], entry);
}
