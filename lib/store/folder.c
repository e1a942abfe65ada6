/*
 * folder.c - finding the files of a checkpoint in a folder.
 */
#include "folder.h"

#include "lib/base/alloc.h"
#include "lib/base/io.h"
#include "lib/base/text.h"
#include "shard_index.h"
#include "staging.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Of a number in the name of a shard. */
#define MOST_DIGITS 9

/* ---- What is in a folder -----------------------------------------------------------------------
 */

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds a copy of a name to a list; false when out of memory. */
static bool add_name(struct qp_arena *arena, struct qp_names *names, const char *name)
{
    char **list = qp_arena_grow(arena, names->list, names->n, sizeof *list);
    char *copy = list ? qp_arena_join(arena, name, strlen(name), "") : NULL;
    if (!copy)
        return false;
    list[names->n++] = copy;
    names->list = list;
    return true;
}

enum qplan_status qp_list_names(const char *path, struct qp_arena *arena, struct qp_names *names,
                                struct qplan_error *err)
{
    char shown[512];
    (void)qp_escape(shown, sizeof shown, path, strlen(path));
    *names = (struct qp_names){NULL, 0};
    DIR *dir = opendir(path);
    if (!dir)
        return qp_fail_errno(err, errno, shown, "cannot list the folder");
    enum qplan_status status = QPLAN_OK;
    const struct dirent *entry;
    errno = 0;
    while (status == QPLAN_OK && (entry = readdir(dir)) != NULL) {
        const bool is_dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (!is_dots && !add_name(arena, names, entry->d_name))
            status = qp_fail_memory(err, shown, strlen(entry->d_name));
        errno = 0;
    }
    if (status == QPLAN_OK && errno != 0)
        status = qp_fail_errno(err, errno, shown, "cannot list the folder");
    (void)closedir(dir);
    if (names->n > 0)
        qsort(names->list, names->n, sizeof *names->list, by_bytes);
    return status;
}

char *qp_path_in(struct qp_arena *arena, const char *folder, const char *name)
{
    char *path = qp_arena_join(arena, folder, strlen(folder), "/");
    return path ? qp_arena_join(arena, path, strlen(path), name) : NULL;
}

/* The indexes and the safetensors files of a folder, hidden ones excepted. */
static enum qplan_status list_folder(struct qp_folder *f, struct qp_names *indexes,
                                     struct qp_names *files, struct qplan_error *err)
{
    struct qp_names all;
    QP_TRY(qp_list_names(f->path, &f->arena, &all, err));
    for (size_t i = 0; i < all.n; i++) {
        const char *name = all.list[i];
        const bool is_index = qp_ends_with(name, QP_INDEX_SUFFIX);
        if (name[0] == '.' || (!is_index && !qp_ends_with(name, QP_CHECKPOINT_SUFFIX)))
            continue;
        if (!add_name(&f->arena, is_index ? indexes : files, name))
            return qp_fail_memory(err, f->path, strlen(name));
    }
    return QPLAN_OK;
}

/* ---- Which of it is the checkpoint -------------------------------------------------------------
 */

static enum qplan_status ambiguous(const struct qp_folder *f, const char *a, const char *b,
                                   struct qplan_error *err)
{
    char shown[512], x[QP_QUOTED], y[QP_QUOTED];
    (void)qp_fail(err, QPLAN_ERR_INVALID, qp_escape(shown, sizeof shown, f->path, strlen(f->path)),
                  "more than one checkpoint: found %s and %s", qp_quote(x, a, strlen(a)),
                  qp_quote(y, b, strlen(b)));
    qp_hint(err, "name the one that is meant");
    return QPLAN_ERR_INVALID;
}

static enum qplan_status set_stem(struct qp_folder *f, const char *name, const char *suffix,
                                  struct qplan_error *err)
{
    f->stem = qp_arena_join(&f->arena, name, strlen(name) - strlen(suffix), "");
    return f->stem ? QPLAN_OK : qp_fail_memory(err, f->path, strlen(name));
}

/* Of model-00001-of-00002.safetensors "model", as its length, and both numbers. */
struct shard {
    size_t n_stem, digits, number, of;
};

/* False if a name is not of that form. */
static bool read_shard(const char *name, struct shard *out)
{
    const char *of = strstr(name, "-of-");
    *out = (struct shard){.digits = of ? strspn(of + 4, "0123456789") : 0};
    if (!of || out->digits == 0 || out->digits > MOST_DIGITS ||
        strcmp(of + 4 + out->digits, QP_CHECKPOINT_SUFFIX) != 0)
        return false;
    const char *dash = of;
    while (dash > name && dash[-1] >= '0' && dash[-1] <= '9')
        dash--;
    if (dash <= name + 1 || dash == of || dash[-1] != '-' || of - dash > MOST_DIGITS)
        return false;
    out->n_stem = (size_t)(dash - 1 - name);
    out->number = strtoul(dash, NULL, 10);
    out->of = strtoul(of + 4, NULL, 10);
    return true;
}

/* Names the first of the shards that are not among these files, and counts the others. */
static void put_missing(struct qplan_error *err, const struct qp_names *files,
                        const struct shard *like)
{
    const size_t n_missing = like->of > files->n ? like->of - files->n : 0;
    struct shard found = {0};
    char name[512], quoted[QP_QUOTED];
    size_t number = 1;
    for (size_t i = 0; i < files->n && read_shard(files->list[i], &found); i++)
        number += found.number == number; /* names are in order */
    if (n_missing == 0 || number > like->of)
        return;
    (void)snprintf(name, sizeof name, "%.*s-%0*zu-of-%0*zu%s", (int)like->n_stem, files->list[0],
                   (int)like->digits, number, (int)like->digits, like->of, QP_CHECKPOINT_SUFFIX);
    qp_fail_more(err, " and the shard %s", qp_quote(quoted, name, strlen(name)));
    if (n_missing > 1)
        qp_fail_more(err, " and %zu more", n_missing - 1);
}

/* Whether files are shards of one checkpoint, of which there is no index. */
static bool are_shards(const struct qp_names *files, struct shard *first)
{
    struct shard other;
    bool alike = read_shard(files->list[0], first) && first->of > 1;
    for (size_t i = 1; alike && i < files->n; i++)
        alike = read_shard(files->list[i], &other) && other.of == first->of &&
                other.n_stem == first->n_stem &&
                strncmp(files->list[i], files->list[0], first->n_stem) == 0;
    return alike;
}

static enum qplan_status fail_no_index(const struct qp_folder *f, const struct qp_names *files,
                                       const struct shard *like, struct qplan_error *err)
{
    char shown[512], name[512], quoted[QP_QUOTED];
    (void)snprintf(name, sizeof name, "%.*s%s", (int)like->n_stem, files->list[0], QP_INDEX_SUFFIX);
    (void)qp_fail(err, QPLAN_ERR_INVALID, qp_escape(shown, sizeof shown, f->path, strlen(f->path)),
                  "not all of a checkpoint of %zu shards: missing are the index %s", like->of,
                  qp_quote(quoted, name, strlen(name)));
    put_missing(err, files, like);
    return QPLAN_ERR_INVALID;
}

/* A folder without an index has exactly one file, which is all of the checkpoint. */
static enum qplan_status take_only_file(struct qp_folder *f, const struct qp_names *files,
                                        struct qplan_error *err)
{
    char shown[512];
    struct shard shard;
    if (files->n == 0)
        return qp_fail(err, QPLAN_ERR_INVALID,
                       qp_escape(shown, sizeof shown, f->path, strlen(f->path)),
                       "no checkpoint in this folder: expected a .safetensors file, or an index "
                       "with its shards");
    if (are_shards(files, &shard))
        return fail_no_index(f, files, &shard, err);
    if (files->n > 1)
        return ambiguous(f, files->list[0], files->list[1], err);
    f->names = files->list;
    f->n_files = 1;
    if (!read_shard(files->list[0], &shard))
        return set_stem(f, files->list[0], QP_CHECKPOINT_SUFFIX, err);
    f->stem = qp_arena_join(&f->arena, files->list[0], shard.n_stem, "");
    return f->stem ? QPLAN_OK : qp_fail_memory(err, f->path, shard.n_stem);
}

static bool has_name(char **names, size_t n, char *name)
{
    return n > 0 && bsearch(&name, names, n, sizeof *names, by_bytes);
}

/* Files of the folder that the index does not list. */
static enum qplan_status warn_of_others(struct qp_folder *f, const struct qp_names *files,
                                        struct qplan_error *err)
{
    for (size_t i = 0; i < files->n; i++) {
        if (has_name(f->names, f->n_files, files->list[i]))
            continue;
        const char *path = qp_path_in(&f->arena, f->path, files->list[i]);
        if (!path)
            return qp_fail_memory(err, f->path, strlen(files->list[i]));
        QP_TRY(qp_warn(&f->warnings, &f->arena, "not-in-index", path,
                       "this file is not in the index, and is left out", err));
    }
    return QPLAN_OK;
}

static enum qplan_status fail_staging(const struct qp_folder *f, struct qplan_error *err)
{
    char shown[512];
    (void)qp_fail(err, QPLAN_ERR_INVALID, qp_escape(shown, sizeof shown, f->path, strlen(f->path)),
                  "the staging folder of an unfinished run");
    qp_advise(err, QPLAN_ADVICE_CLEAN);
    return QPLAN_ERR_INVALID;
}

/* Takes the folder that was named: its only index, or its only file. */
static enum qplan_status take_folder(struct qp_folder *f, struct qplan_error *err)
{
    struct qp_names indexes = {NULL, 0}, files = {NULL, 0};
    if (qp_staging_is_marked(f->path))
        return fail_staging(f, err);
    QP_TRY(list_folder(f, &indexes, &files, err));
    if (indexes.n > 1)
        return ambiguous(f, indexes.list[0], indexes.list[1], err);
    if (indexes.n == 0)
        return take_only_file(f, &files, err);
    f->index = indexes.list[0];
    QP_TRY(set_stem(f, f->index, QP_INDEX_SUFFIX, err));
    char *whole = qp_arena_join(&f->arena, f->stem, strlen(f->stem), QP_CHECKPOINT_SUFFIX);
    if (!whole)
        return qp_fail_memory(err, f->path, strlen(f->stem));
    QP_TRY(qp_index_read(f, err));
    if (!has_name(f->names, f->n_files, whole) && has_name(files.list, files.n, whole))
        return ambiguous(f, f->index, whole, err);
    return warn_of_others(f, &files, err);
}

/* Takes the index that was named, whatever else is beside it. */
static enum qplan_status take_index(struct qp_folder *f, const char *name, struct qplan_error *err)
{
    f->index = qp_arena_join(&f->arena, name, strlen(name), "");
    if (!f->index)
        return qp_fail_memory(err, f->path, strlen(name));
    QP_TRY(set_stem(f, name, QP_INDEX_SUFFIX, err));
    return qp_index_read(f, err);
}

/* The folder of a path: "." of a bare name. */
static char *folder_of(struct qp_arena *arena, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash)
        return qp_arena_join(arena, ".", 1, "");
    return qp_arena_join(arena, path, slash == path ? 1 : (size_t)(slash - path), "");
}

/* The name of a folder itself: that of "." and ".." is found by the real path. */
static char *name_of(struct qp_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    const bool is_dots = strcmp(last, ".") == 0 || strcmp(last, "..") == 0;
    char *real = is_dots ? realpath(path, NULL) : NULL;
    const char *behind = real ? strrchr(real, '/') + 1 : last;
    char *name = qp_arena_join(arena, behind, strlen(behind), "");
    free(real);
    return name;
}

enum qplan_status qp_folder_find(struct qp_folder *folder, const char *path, bool *is_folder,
                                 struct qplan_error *err)
{
    struct stat st;
    *folder = (struct qp_folder){.path = NULL};
    const bool there = stat(path, &st) == 0;
    const bool is_index = there && S_ISREG(st.st_mode) && qp_ends_with(path, QP_INDEX_SUFFIX);
    *is_folder = (there && S_ISDIR(st.st_mode)) || is_index;
    if (!*is_folder)
        return QPLAN_OK;
    const char *name;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    folder->path = is_index ? folder_of(&folder->arena, path, &name)
                            : qp_arena_join(&folder->arena, path, n, "");
    folder->name = folder->path ? name_of(&folder->arena, folder->path) : NULL;
    enum qplan_status status = folder->name ? QPLAN_OK : qp_fail_memory(err, "folder", n);
    if (status == QPLAN_OK)
        status = is_index ? take_index(folder, name, err) : take_folder(folder, err);
    if (status != QPLAN_OK)
        qp_folder_free(folder);
    return status;
}

void qp_folder_free(struct qp_folder *folder)
{
    qp_free(folder->map);
    qp_free(folder->text);
    qp_arena_free(&folder->arena);
    *folder = (struct qp_folder){.path = NULL};
}

const struct qp_mapped *qp_folder_mapped(const struct qp_folder *folder, const char *name, size_t n)
{
    size_t low = 0, high = folder->n_map;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const struct qp_mapped *m = &folder->map[middle];
        const int order = qp_compare_text(name, n, m->name, m->n);
        if (order == 0)
            return m;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* ---- A shard by itself ------------------------------------------------------------------------
 */

enum qplan_status qp_index_beside(const char *path, struct qp_arena *arena, const char **index,
                                  struct qplan_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const size_t n_folder = (size_t)(name - path);
    struct shard shard;
    struct stat st;
    *index = NULL;
    if (!read_shard(name, &shard))
        return QPLAN_OK;
    char *beside = qp_arena_join(arena, path, n_folder + shard.n_stem, QP_INDEX_SUFFIX);
    if (!beside)
        return qp_fail_memory(err, "index", n_folder + shard.n_stem);
    if (stat(beside, &st) == 0 && S_ISREG(st.st_mode))
        *index = beside + n_folder;
    return QPLAN_OK;
}
