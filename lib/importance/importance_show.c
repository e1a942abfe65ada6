/*
 * importance_show.c - what a file of importance says, for people.
 */
#include "importance.h"

#include "lib/base/text.h"

#include <inttypes.h>
#include <string.h>

/* The mean over all columns, and the largest of them. */
static void measure(const struct qp_importance_entry *entry, double *mean, double *most)
{
    *mean = *most = 0;
    for (uint64_t k = 0; k < entry->matrices; k++) {
        const double *sums = entry->sums + k * entry->columns;
        for (uint64_t i = 0; i < entry->columns && entry->counts[k] > 0; i++) {
            const double value = sums[i] / entry->counts[k];
            *mean += value / (double)(entry->columns * entry->matrices);
            *most = value > *most ? value : *most;
        }
    }
}

static void put_entry(struct qp_writer *w, const struct qp_importance_entry *entry)
{
    char name[512];
    double mean, most;
    uint64_t n_unused = 0;
    measure(entry, &mean, &most);
    for (uint64_t k = 0; k < entry->matrices; k++)
        n_unused += !(entry->counts[k] > 0);
    qp_printf(w, "%s  [%" PRIu64, qp_escape(name, sizeof name, entry->name, strlen(entry->name)),
              entry->columns);
    if (entry->matrices > 1)
        qp_printf(w, ",%" PRIu64, entry->matrices);
    qp_printf(w, "]  mean %.3g  largest %.3g", mean, most);
    if (n_unused)
        qp_printf(w, "  %" PRIu64 " never used", n_unused);
    qp_puts(w, "\n");
}

enum qplan_status qplan_importance_write_text(const char *path, const volatile sig_atomic_t *cancel,
                                              qplan_write_fn write, void *ctx,
                                              struct qplan_error *err)
{
    struct qp_importance importance = {.cancel = cancel};
    struct qp_writer w;
    char shown[512];
    enum qplan_status status = qp_importance_read(&importance, &path, 1, NULL, err);
    if (status == QPLAN_OK) {
        qp_writer_stream(&w, write, ctx);
        qp_printf(&w, "%s: importance of %zu weights\n",
                  qp_escape(shown, sizeof shown, path, strlen(path)), importance.n_entries);
        for (size_t i = 0; i < importance.n_entries; i++)
            put_entry(&w, &importance.entries[i]);
        status = qp_writer_finish(&w, "importance", err);
        qp_writer_free(&w);
    }
    qp_importance_free(&importance);
    return status;
}
