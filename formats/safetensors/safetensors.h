/*
 * safetensors.h - the container: a strict reader and a canonical writer.
 *
 * The reader accepts only what the reference reader and the written format both accept, and proves
 * the whole layout (every size, no hole, no overlap, the exact file size) before it returns. The
 * writer gives the same bytes for the same tensors and metadata, always.
 */
#ifndef QP_SAFETENSORS_H
#define QP_SAFETENSORS_H

#include "lib/base/arena.h"
#include "lib/base/io.h"
#include "lib/base/text.h"

#define QP_ST_MAX_HEADER  100000000u /* bytes of JSON: the limit of the reference */
#define QP_ST_WARN_HEADER 25000000u  /* the model hub's page reads no more */
#define QP_ST_MAX_NAME    65536u     /* bytes of a tensor name */

struct qp_st_pair {
    const char *key, *value; /* decoded, NUL behind; both may contain NULs */
    uint32_t key_len, value_len;
};

/* An open file. The strings point into the header, which is decoded in place. */
struct qp_st {
    struct qp_file file;
    uint64_t header_bytes; /* 8 + N: where the data section begins */
    uint64_t data_bytes;
    char *header;
    struct qp_arena shapes;
    struct qplan_entry *entries; /* in byte-wise order of names */
    size_t n_entries;
    struct qp_st_pair *metadata; /* in byte-wise order of keys */
    size_t n_metadata;
};

/* Opens and proves a file. */
enum qplan_status qp_st_open(struct qp_st *st, const char *path, struct qplan_error *err);

/* A file that is to be written: its complete header, and the bytes of all its tensors. */
struct qp_st_new {
    char *header; /* released with qp_free */
    size_t header_bytes;
    uint64_t data_bytes;
};

/*
 * Opens and proves a file that has just been written, by a descriptor that stays the caller's; path
 * is for messages. IO if its header is not the one that was written.
 */
enum qplan_status qp_st_open_fd(struct qp_st *st, int fd, const char *path,
                                const struct qp_st_new *written, struct qplan_error *err);

/* The same by its path; written may be NULL: then it may be any file. */
enum qplan_status qp_st_open_written(struct qp_st *st, const char *path,
                                     const struct qp_st_new *written, struct qplan_error *err);

/* Proves a header alone, n bytes of JSON that would stand in a file of file_bytes. For tests. */
enum qplan_status qp_st_parse(struct qp_st *st, const char *json, size_t n, uint64_t file_bytes,
                              const char *path, struct qplan_error *err);

void qp_st_close(struct qp_st *st);

/* The entry with this name among n that are in byte-wise order of names, or NULL. */
const struct qplan_entry *qp_entries_find(const struct qplan_entry *entries, size_t n_entries,
                                          const char *name, size_t n);

/*
 * Sorts n entries by name; equal names keep their order. As with realloc, the result takes the
 * place of the block; NULL means that memory was refused and the block is as it was.
 */
struct qplan_entry *qp_entries_sort(struct qplan_entry *entries, size_t n);

/* The entry of a file with this name, or NULL. */
const struct qplan_entry *qp_st_find(const struct qp_st *st, const char *name, size_t n);

/* The metadata pair with this key, or NULL: a key of a file, and a word of ours. */
const struct qp_st_pair *qp_st_find_pair(const struct qp_st *st, const char *key, size_t n);
const struct qp_st_pair *qp_st_metadata(const struct qp_st *st, const char *word);

/*
 * Where in a file a byte of a tensor is, by the length of its header: the only place where the two
 * are added.
 */
static inline uint64_t qp_st_at(uint64_t header_bytes, const struct qplan_entry *entry,
                                uint64_t off)
{
    return header_bytes + entry->begin + off;
}

/* Elements of an entry: the product of its extents. Proven not to overflow when it was read. */
uint64_t qp_entry_elements(const struct qplan_entry *entry);

/* Bytes of n_elems elements of a storage type: false if that overflows or is not whole bytes. */
bool qp_storage_bytes(enum qplan_storage storage, uint64_t n_elems, uint64_t *out);

/* Elements of a shape; false if the product of its non-zero extents passes 2^63. */
bool qp_shape_elements(const uint64_t *shape, unsigned rank, uint64_t *out);

/*
 * Whether a header can name such a tensor: its non-zero extents make at most 2^63 bits, so that an
 * extent of zero hides no overflow.
 */
bool qp_shape_fits(enum qplan_storage storage, const uint64_t *shape, unsigned rank);

/* Whether two shapes are the same. */
bool qp_same_shape(const uint64_t *a, unsigned rank_a, const uint64_t *b, unsigned rank_b);

/* "file.safetensors: 'tensor'" for messages, made from an open file and an entry. */
const char *qp_st_subject(char out[512], const struct qp_st *st, const struct qplan_entry *entry);

/*
 * Sorts the tensors of a new file (element width descending, then name) and gives them their begin
 * and end. INVALID names two tensors of the same name. *data_bytes is the sum.
 */
enum qplan_status qp_st_layout(struct qplan_entry **entries, size_t n, uint64_t *data_bytes,
                               const char *subject, struct qplan_error *err);

/*
 * Appends the complete header of a file: its 8-byte length, then entries in offset order and
 * metadata in key order, padded with spaces to 8. INVALID if it passes QP_ST_MAX_HEADER, MEMORY.
 */
enum qplan_status qp_st_put_header(struct qp_writer *w, const struct qplan_entry *const *entries,
                                   size_t n, const struct qp_st_pair *metadata, size_t n_metadata,
                                   const char *subject, struct qplan_error *err);

/*
 * Lays out the tensors of a new file (qp_st_layout) and makes its header. On failure file->header
 * is NULL.
 */
enum qplan_status qp_st_make(struct qp_st_new *file, struct qplan_entry **entries, size_t n,
                             const struct qp_st_pair *metadata, size_t n_metadata,
                             const char *subject, struct qplan_error *err);

#endif
