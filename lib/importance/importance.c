/*
 * importance.c - what files say of weights, merged, and found by the name of a tensor.
 */
#include "importance.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/alloc.h"
#include "lib/base/check.h"
#include "lib/base/io.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A file larger than this is none: a large model has some tens of megabytes. */
#define MOST_BYTES ((uint64_t)1 << 32)

/* Bytes that are read, and values that are added, between two looks whether to stop. */
#define CHUNK       ((uint64_t)16 << 20)
#define CHECK_EVERY ((uint64_t)1 << 20)

/* ---- Entries ----------------------------------------------------------------------------------
 */

enum qplan_status qp_importance_bad(const struct qp_importance_file *file, const char *what)
{
    return qp_fail(file->err, QPLAN_ERR_INVALID, file->shown, "not a file of importance: %s", what);
}

enum qplan_status qp_importance_bad_name(const struct qp_importance_file *file, const char *name,
                                         size_t name_len, const char *what)
{
    char quoted[QP_QUOTED];
    return qp_fail(file->err, QPLAN_ERR_INVALID, file->shown, "not a file of importance: %s: %s",
                   qp_quote(quoted, name, name_len), what);
}

enum qplan_status qp_importance_take(struct qp_importance_file *file, uint64_t n,
                                     const unsigned char **out)
{
    *out = file->bytes + file->at;
    if (n > file->n - file->at)
        return qp_importance_bad(file, "it ends too early");
    file->at += n;
    return QPLAN_OK;
}

/* The entry of a name in the files that have been read. */
static struct qp_importance_entry *find(const struct qp_importance *importance, const char *name,
                                        size_t n)
{
    size_t begin = 0, end = importance->n_names;
    while (begin < end) {
        const size_t middle = begin + (end - begin) / 2;
        const struct qp_importance_name *at = &importance->names[middle];
        const int order = qp_compare_text(name, n, at->name, strlen(at->name));
        if (order == 0)
            return &importance->entries[at->entry];
        if (order < 0)
            end = middle;
        else
            begin = middle + 1;
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct qp_importance_name *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Puts the names of a file that has been read into their order. INVALID if two are the same. */
static enum qplan_status sort_names(struct qp_importance *importance, const char *shown,
                                    struct qplan_error *err)
{
    const struct qp_importance_file file = {.shown = shown, .err = err};
    const size_t n = importance->n_entries;
    struct qp_importance_name *names = qp_realloc(importance->names, n, sizeof *names);
    if (!names)
        return qp_fail_memory(err, "importance", n * sizeof *names);
    importance->names = names;
    for (size_t i = importance->n_names; i < n; i++)
        names[i] = (struct qp_importance_name){importance->entries[i].name, i};
    importance->n_names = n;
    importance->n_files++;
    if (n > 0)
        qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n; i++) {
        if (by_name(&names[i - 1], &names[i]) == 0)
            return qp_importance_bad_name(&file, names[i].name, strlen(names[i].name),
                                          "it is there twice");
    }
    return QPLAN_OK;
}

static enum qplan_status make_entry(struct qp_importance *importance, const char *name,
                                    size_t name_len, uint64_t columns, uint64_t matrices,
                                    struct qp_importance_entry **out, struct qplan_error *err)
{
    struct qp_arena *arena = &importance->arena;
    struct qp_importance_entry *entries = qp_arena_grow(
        arena, importance->entries, importance->n_entries, sizeof *importance->entries);
    const struct qp_importance_entry entry = {
        .name = qp_arena_join(arena, name, name_len, ""),
        .columns = columns,
        .matrices = matrices,
        .sums = qp_arena_alloc(arena, columns * matrices, sizeof(double)),
        .counts = qp_arena_alloc(arena, matrices, sizeof(double)),
        .file = importance->n_files,
    };
    if (!entries || !entry.name || !entry.sums || !entry.counts)
        return qp_fail_memory(err, "importance", columns * matrices * sizeof(double));
    importance->entries = entries;
    *out = &entries[importance->n_entries++];
    **out = entry;
    return QPLAN_OK;
}

enum qplan_status qp_importance_entry(struct qp_importance *importance,
                                      const struct qp_importance_file *file, const char *name,
                                      size_t name_len, uint64_t columns, uint64_t matrices,
                                      struct qp_importance_entry **out)
{
    char quoted[QP_QUOTED];
    QP_TRY(qp_check_cancel(importance->cancel, file->shown, file->err));
    if (memchr(name, '\0', name_len))
        return qp_importance_bad_name(file, name, name_len, "a name with U+0000");
    *out = find(importance, name, name_len);
    if (!*out)
        return make_entry(importance, name, name_len, columns, matrices, out, file->err);
    if ((*out)->file == importance->n_files)
        return qp_importance_bad_name(file, name, name_len, "it is there twice");
    (*out)->file = importance->n_files;
    if ((*out)->columns == columns && (*out)->matrices == matrices)
        return QPLAN_OK;
    return qp_fail(file->err, QPLAN_ERR_INVALID, file->shown,
                   "%s has another size than before: expected %" PRIu64 " x %" PRIu64
                   ", found %" PRIu64 " x %" PRIu64,
                   qp_quote(quoted, name, name_len), (*out)->columns, (*out)->matrices, columns,
                   matrices);
}

/* Adds the i-th of values. */
static enum qplan_status add_value(const struct qp_importance_file *file, const char *name,
                                   double *to, uint64_t i, double value, double factor)
{
    char quoted[QP_QUOTED], found[QP_F64_TEXT];
    if (i % CHECK_EVERY == 0)
        QP_TRY(qp_check_cancel(file->cancel, file->shown, file->err));
    if (value >= 0 && isfinite(value)) {
        to[i] += value * factor;
        return QPLAN_OK;
    }
    qp_format_f64(found, value);
    return qp_fail(file->err, QPLAN_ERR_INVALID, file->shown,
                   "%s: bad importance at %" PRIu64 ": expected a finite number of at least 0, "
                   "found %s",
                   qp_quote(quoted, name, strlen(name)), i, found);
}

enum qplan_status qp_importance_add(const struct qp_importance_file *file, const char *name,
                                    double *to, const float *values, uint64_t n, double factor)
{
    for (uint64_t i = 0; i < n; i++)
        QP_TRY(add_value(file, name, to, i, (double)values[i], factor));
    return QPLAN_OK;
}

enum qplan_status qp_importance_add_stored(const struct qp_importance_file *file, const char *name,
                                           double *to, const unsigned char *stored, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        QP_TRY(add_value(file, name, to, i, (double)qp_of_bits_f32(qp_get32(stored + i * 4)), 1));
    return QPLAN_OK;
}

/* ---- Files ------------------------------------------------------------------------------------
 */

static enum qplan_status read_bytes(const struct qp_importance *importance,
                                    const struct qp_file *in, unsigned char *bytes,
                                    struct qplan_error *err)
{
    for (uint64_t off = 0; off < in->size; off += CHUNK) {
        QP_TRY(qp_check_cancel(importance->cancel, in->shown, err));
        QP_TRY(qp_file_read(in, off, bytes + off, (size_t)qp_min_u64(CHUNK, in->size - off), err));
    }
    return QPLAN_OK;
}

/* Reads a file of llama.cpp, which has been found to be no safetensors. */
static enum qplan_status read_whole(struct qp_importance *importance, const struct qp_file *in,
                                    struct qplan_error *err)
{
    if (in->size > MOST_BYTES)
        return qp_fail(err, QPLAN_ERR_INVALID, in->shown, "too large for a file of importance");
    unsigned char *bytes = qp_alloc_buffer(in->size + 1);
    struct qp_importance_file file = {in->shown, bytes, in->size, 0, err, importance->cancel};
    if (!bytes)
        return qp_fail_memory(err, in->shown, in->size);
    enum qplan_status status = read_bytes(importance, in, bytes, err);
    if (status == QPLAN_OK)
        status = in->size >= 4 && memcmp(bytes, "GGUF", 4) == 0
                     ? qp_importance_read_gguf(importance, &file)
                     : qp_importance_read_dat(importance, &file);
    qp_free(bytes);
    return status;
}

/* Whether what is open begins as a safetensors file does: a length, and then an object. */
static enum qplan_status begins_as_safetensors(const struct qp_file *in, bool *out,
                                               struct qplan_error *err)
{
    unsigned char begin[9] = {0};
    if (in->size >= sizeof begin)
        QP_TRY(qp_file_read(in, 0, begin, sizeof begin, err));
    *out = begin[8] == '{';
    return QPLAN_OK;
}

/* A file that is no safetensors: what is read of it, and its digest, are of the same bytes. */
static enum qplan_status read_imatrix(struct qp_importance *importance, const struct qp_file *in,
                                      const struct qp_digests *expected, struct qplan_error *err)
{
    QP_TRY(qp_digests_add_file(&importance->digests, in, expected, &importance->arena,
                               importance->cancel, err));
    QP_TRY(read_whole(importance, in, err));
    return qp_file_unchanged(in, err);
}

static enum qplan_status read_file(struct qp_importance *importance, const char *path,
                                   const struct qp_digests *expected, struct qplan_error *err)
{
    struct qp_file in;
    bool is_safetensors = false;
    QP_TRY(qp_file_open(&in, path, err));
    enum qplan_status status = begins_as_safetensors(&in, &is_safetensors, err);
    if (status == QPLAN_OK && !is_safetensors)
        status = read_imatrix(importance, &in, expected, err);
    qp_file_close(&in);
    if (status == QPLAN_OK && is_safetensors)
        status = qp_importance_read_vectors(importance, path, expected, err);
    return status == QPLAN_OK ? sort_names(importance, path, err) : status;
}

enum qplan_status qp_importance_read(struct qp_importance *importance, const char *const *paths,
                                     size_t n, const struct qp_digests *expected,
                                     struct qplan_error *err)
{
    for (size_t i = 0; i < n; i++)
        QP_TRY(read_file(importance, paths[i], expected, err));
    return n == 0 ? QPLAN_OK
                  : qp_digests_complete(&importance->digests, expected, "importance", err);
}

bool qplan_importance_is_imatrix(const char *path, const volatile sig_atomic_t *cancel)
{
    struct qp_importance importance = {.cancel = cancel};
    struct qplan_error unused;
    struct qp_file in;
    bool is_safetensors = false;
    if (qp_file_open(&in, path, &unused) != QPLAN_OK)
        return false;
    const bool can = begins_as_safetensors(&in, &is_safetensors, &unused) == QPLAN_OK &&
                     !is_safetensors && read_whole(&importance, &in, &unused) == QPLAN_OK &&
                     sort_names(&importance, path, &unused) == QPLAN_OK;
    qp_file_close(&in);
    qp_importance_free(&importance);
    return can;
}

void qp_importance_free(struct qp_importance *importance)
{
    qp_free(importance->names);
    qp_arena_free(&importance->arena);
}

/* ---- Tensors ----------------------------------------------------------------------------------
 */

/* The entry that is meant for a tensor, and which of its matrices. */
static const struct qp_importance_entry *find_tensor(const struct qp_importance *importance,
                                                     const char *tensor, uint64_t *matrix)
{
    const struct qp_importance_entry *entry = find(importance, tensor, strlen(tensor));
    char gguf[QP_GGUF_NAME];
    *matrix = 0;
    if (!entry && qp_gguf_name(tensor, gguf, matrix))
        entry = find(importance, gguf, strlen(gguf));
    return entry;
}

bool qp_importance_names(const struct qp_importance *importance, const char *tensor)
{
    uint64_t unused;
    return find_tensor(importance, tensor, &unused) != NULL;
}

/* Relative to the largest, which is returned; all are 1 where all are 0. */
static double relate(const double *sums, double count, uint64_t n, float *out)
{
    double most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = sums[i] > most ? sums[i] : most;
    for (uint64_t i = 0; i < n; i++)
        out[i] = most > 0 ? (float)(sums[i] / most) : 1;
    return most > 0 ? most / count : 1;
}

enum qplan_status qp_importance_of(const struct qp_importance *importance, const char *tensor,
                                   uint64_t columns, struct qp_arena *arena, const float **out,
                                   double *unit, struct qplan_error *err)
{
    uint64_t matrix;
    const struct qp_importance_entry *entry = find_tensor(importance, tensor, &matrix);
    char quoted[QP_QUOTED];
    *out = NULL;
    if (!entry)
        return QPLAN_OK;
    /* The older form has the experts one behind the other. */
    const bool is_joined = entry->matrices == 1 && strstr(entry->name, "_exps.");
    const uint64_t n = is_joined && entry->columns % columns == 0 ? columns : entry->columns;
    if (n != columns || matrix >= entry->columns / n * entry->matrices)
        return qp_fail(err, QPLAN_ERR_INVALID, qp_quote(quoted, tensor, strlen(tensor)),
                       "importance %s is not for this tensor: expected %" PRIu64
                       " columns, found %" PRIu64 " in each of %" PRIu64 " matrices",
                       entry->name, columns, entry->columns, entry->matrices);
    const double count = entry->counts[is_joined ? 0 : matrix];
    if (!(count > 0))
        return QPLAN_OK;
    float *values = qp_arena_alloc(arena, columns, sizeof *values);
    if (!values)
        return qp_fail_memory(err, "importance", columns * sizeof *values);
    *unit = relate(entry->sums + matrix * columns, count, columns, values);
    *out = values;
    return QPLAN_OK;
}
