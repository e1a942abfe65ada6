/*
 * news.h - the files of a checkpoint that is to be written: names, and complete headers with every
 * offset, before any data is read.
 */
#ifndef QP_STORE_NEWS_H
#define QP_STORE_NEWS_H

#include "source.h"

struct qp_news {
    struct qp_st_new *files;
    char **names; /* bare, in the arena that qp_news_name was given */
    size_t n_files;
};

/*
 * Names n files: of a file the name itself; of a folder STEM-00001-of-00003.safetensors, or
 * STEM.safetensors if there is only one, with the stem of the source.
 */
enum qplan_status qp_news_name(struct qp_news *news, const struct qp_source *source, size_t n,
                               const char *name, struct qp_arena *arena, struct qplan_error *err);

/* The metadata of one file, in key order; *n pairs. They stay valid until the next call. */
typedef enum qplan_status (*qp_metadata_fn)(void *ctx, size_t file, const struct qp_st_pair **pairs,
                                            size_t *n, struct qplan_error *err);

/* Gives n stored tensors, whose .file is set, their offsets, and makes the headers of all files. */
enum qplan_status qp_news_make(struct qp_news *news, struct qplan_entry *const *outputs, size_t n,
                               qp_metadata_fn metadata, void *ctx, struct qplan_error *err);

/* Bytes of all files, and of all tensors in them. */
uint64_t qp_news_bytes(const struct qp_news *news);
uint64_t qp_news_data_bytes(const struct qp_news *news);

void qp_news_free(struct qp_news *news);

#endif
