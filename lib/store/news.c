/*
 * news.c - names and headers of files that are to be written.
 */
#include "news.h"

#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* ---- Names -------------------------------------------------------------------------------------
 */

static char *shard_name(const struct qp_news *news, const char *stem, size_t i,
                        struct qp_arena *arena)
{
    struct qp_writer w;
    qp_writer_init(&w);
    qp_puts(&w, stem);
    if (news->n_files > 1)
        qp_printf(&w, "-%05zu-of-%05zu", i + 1, news->n_files);
    qp_puts(&w, QP_CHECKPOINT_SUFFIX);
    char *name = w.error ? NULL : qp_arena_join(arena, w.data, w.n, "");
    qp_writer_free(&w);
    return name;
}

enum qplan_status qp_news_name(struct qp_news *news, const struct qp_source *source, size_t n,
                               const char *name, struct qp_arena *arena, struct qplan_error *err)
{
    news->n_files = n;
    news->files = qp_alloc(news->n_files, sizeof *news->files);
    news->names = qp_arena_alloc(arena, news->n_files, sizeof *news->names);
    if (!news->files || !news->names)
        return qp_fail_memory(err, "outputs", news->n_files * sizeof *news->files);
    for (size_t i = 0; i < news->n_files; i++) {
        news->names[i] = source->is_folder ? shard_name(news, source->folder.stem, i, arena)
                                           : qp_arena_join(arena, name, strlen(name), "");
        if (!news->names[i])
            return qp_fail_memory(err, "outputs", strlen(name));
    }
    return QPLAN_OK;
}

/* ---- Headers -----------------------------------------------------------------------------------
 */

static int by_file(const void *a, const void *b)
{
    const struct qplan_entry *x = *(struct qplan_entry *const *)a;
    const struct qplan_entry *y = *(struct qplan_entry *const *)b;
    return x->file != y->file ? (x->file < y->file ? -1 : 1) : (x > y) - (x < y);
}

/* Offsets and headers of all files, of which each has some of the stored tensors in this order. */
static enum qplan_status make_headers(struct qp_news *news, struct qplan_entry **order, size_t n,
                                      qp_metadata_fn metadata, void *ctx, struct qplan_error *err)
{
    char shown[512];
    size_t begin = 0;
    for (size_t file = 0; file < news->n_files; file++) {
        const struct qp_st_pair *pairs;
        size_t n_pairs, end = begin;
        while (end < n && order[end]->file == file)
            end++;
        (void)qp_escape(shown, sizeof shown, news->names[file], strlen(news->names[file]));
        QP_TRY(metadata(ctx, file, &pairs, &n_pairs, err));
        QP_TRY(
            qp_st_make(&news->files[file], order + begin, end - begin, pairs, n_pairs, shown, err));
        begin = end;
    }
    return QPLAN_OK;
}

enum qplan_status qp_news_make(struct qp_news *news, struct qplan_entry *const *outputs, size_t n,
                               qp_metadata_fn metadata, void *ctx, struct qplan_error *err)
{
    struct qplan_entry **order = qp_alloc(n, sizeof *order);
    if (!order)
        return qp_fail_memory(err, "outputs", n * sizeof *order);
    memcpy(order, outputs, n * sizeof *order);
    if (news->n_files > 1)
        qsort(order, n, sizeof *order, by_file);
    const enum qplan_status status = make_headers(news, order, n, metadata, ctx, err);
    qp_free(order);
    return status;
}

/* ---- Sizes -------------------------------------------------------------------------------------
 */

uint64_t qp_news_data_bytes(const struct qp_news *news)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < news->n_files; i++)
        n_bytes += news->files[i].data_bytes;
    return n_bytes;
}

uint64_t qp_news_bytes(const struct qp_news *news)
{
    uint64_t n_bytes = qp_news_data_bytes(news);
    for (size_t i = 0; i < news->n_files; i++)
        n_bytes += news->files[i].header_bytes;
    return n_bytes;
}

void qp_news_free(struct qp_news *news)
{
    for (size_t i = 0; news->files && i < news->n_files; i++)
        qp_free(news->files[i].header);
    qp_free(news->files);
    *news = (struct qp_news){.files = NULL};
}
