/*
 * side.c - tokenizers, configurations, licences: what an output folder takes over.
 */
#include "side.h"

#include "lib/base/glob.h"
#include "lib/base/text.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

struct finder {
    struct qp_side *side;
    const struct qp_source *source;
    char *const *copy;
    size_t n_copy;
    bool *used; /* by pattern */
    struct qp_arena *arena;
    struct qplan_error *err;
};

/* ---- What is left out --------------------------------------------------------------------------
 */

/* Code, pickles and other weights. */
static const char *const left_suffixes[] = {".py",
                                            ".bin",
                                            ".pt",
                                            ".pth",
                                            ".pkl",
                                            ".ckpt",
                                            ".h5",
                                            ".msgpack",
                                            ".onnx",
                                            ".gguf",
                                            ".npz",
                                            QP_CHECKPOINT_SUFFIX,
                                            ".bin.index.json"};

/* What describes another quantization, or the old files. */
static const char *const left_names[] = {"quantize_config.json", "hf_quant_config.json",
                                         "recipe.yaml", "SHA256SUMS"};

bool qp_side_is_left_out(const char *name)
{
    bool left = name[0] == '.';
    for (size_t i = 0; i < sizeof left_suffixes / sizeof *left_suffixes; i++)
        left |= qp_ends_with(name, left_suffixes[i]);
    for (size_t i = 0; i < sizeof left_names / sizeof *left_names; i++)
        left |= strcmp(name, left_names[i]) == 0;
    return left;
}

static bool is_wanted(const struct finder *f, const char *name)
{
    bool wanted = false;
    for (size_t i = 0; i < f->n_copy; i++) {
        if (qp_glob_match(f->copy[i], name, strlen(name)))
            f->used[i] = wanted = true;
    }
    return wanted;
}

/* A file of the checkpoint itself, or the index of it. */
static bool is_checkpoint(const struct finder *f, const char *name)
{
    const struct qp_folder *folder = &f->source->folder;
    for (size_t i = 0; i < folder->n_files; i++) {
        if (strcmp(name, folder->names[i]) == 0)
            return true;
    }
    return folder->index && strcmp(name, folder->index) == 0;
}

/* ---- Lists -------------------------------------------------------------------------------------
 */

static enum qplan_status fail_memory(const struct finder *f)
{
    return qp_fail_memory(f->err, f->source->listing.shown, sizeof(char *));
}

static enum qplan_status leave(const struct finder *f, const char *name)
{
    struct qp_side *side = f->side;
    char **left = qp_arena_grow(f->arena, side->left, side->n_left, sizeof *left);
    char *copy = left ? qp_arena_join(f->arena, name, strlen(name), "") : NULL;
    if (!copy)
        return fail_memory(f);
    left[side->n_left++] = copy;
    side->left = left;
    return QPLAN_OK;
}

/* Adds a file; path NULL = it is made. */
static enum qplan_status take(const struct finder *f, const char *name, char *path)
{
    struct qp_side *side = f->side;
    char **names = qp_arena_grow(f->arena, side->names, side->n, sizeof *names);
    char **paths = qp_arena_grow(f->arena, side->paths, side->n, sizeof *paths);
    char *copy = names && paths ? qp_arena_join(f->arena, name, strlen(name), "") : NULL;
    if (!copy)
        return fail_memory(f);
    names[side->n] = copy;
    paths[side->n++] = path;
    side->names = names;
    side->paths = paths;
    return QPLAN_OK;
}

static enum qplan_status decide(const struct finder *f, const char *name)
{
    const char *folder = f->source->folder.path;
    char shown[512];
    struct stat st;
    if (is_checkpoint(f, name))
        return QPLAN_OK;
    char *path = qp_path_in(f->arena, folder, name);
    if (!path)
        return fail_memory(f);
    const int errnum = stat(path, &st) == 0 ? 0 : errno;
    if ((errnum == 0 && !S_ISREG(st.st_mode)) || (!is_wanted(f, name) && qp_side_is_left_out(name)))
        return leave(f, name);
    if (errnum != 0) /* a link that leads nowhere */
        return qp_fail_errno(f->err, errnum, qp_escape(shown, sizeof shown, path, strlen(path)),
                             "cannot open");
    f->side->n_bytes += (uint64_t)st.st_size;
    return take(f, name, path);
}

static enum qplan_status check_patterns(const struct finder *f)
{
    char quoted[QP_QUOTED];
    for (size_t i = 0; i < f->n_copy; i++) {
        if (!f->used[i])
            return qp_fail(f->err, QPLAN_ERR_INVALID, f->source->listing.shown,
                           "copy pattern %s matches no file of the folder",
                           qp_quote(quoted, f->copy[i], strlen(f->copy[i])));
    }
    return QPLAN_OK;
}

/* The index that the output will have, if it has several files. */
static enum qplan_status name_index(const struct finder *f)
{
    const char *stem = f->source->folder.stem;
    f->side->index = qp_arena_join(f->arena, stem, strlen(stem), QP_INDEX_SUFFIX);
    return f->side->index ? take(f, f->side->index, NULL) : fail_memory(f);
}

enum qplan_status qp_side_find(struct qp_side *side, const struct qp_source *source,
                               char *const *copy, size_t n_copy, struct qp_arena *arena,
                               struct qplan_error *err)
{
    struct finder f = {
        .side = side, .source = source, .copy = copy, .n_copy = n_copy, .arena = arena, .err = err};
    struct qp_names names;
    *side = (struct qp_side){.names = NULL};
    if (!source->is_folder)
        return QPLAN_OK;
    for (size_t i = 0; i < n_copy; i++)
        QP_TRY(qp_glob_check(copy[i], err));
    f.used = qp_arena_alloc(arena, n_copy, sizeof *f.used);
    if (!f.used)
        return fail_memory(&f);
    QP_TRY(name_index(&f));
    QP_TRY(qp_list_names(source->folder.path, arena, &names, err));
    for (size_t i = 0; i < names.n; i++)
        QP_TRY(decide(&f, names.list[i]));
    return check_patterns(&f);
}

enum qplan_status qp_side_find_more(struct qp_side *side, const struct qp_source *source,
                                    const struct qplan_run *run, struct qp_arena *arena,
                                    struct qplan_error *err)
{
    const size_t n = run ? run->n_copy : 0;
    char **copy = qp_arena_alloc(arena, n, sizeof *copy);
    if (!copy)
        return qp_fail_memory(err, source->listing.shown, n * sizeof *copy);
    if (n > 0 && !source->is_folder)
        return qp_fail(err, QPLAN_ERR_INVALID, source->listing.shown,
                       "only a folder has files to copy: found a file");
    for (size_t i = 0; i < n; i++) {
        copy[i] = qp_arena_join(arena, run->copy[i], strlen(run->copy[i]), "");
        if (!copy[i])
            return qp_fail_memory(err, source->listing.shown, strlen(run->copy[i]));
    }
    return qp_side_find(side, source, copy, n, arena, err);
}

enum qplan_status qp_side_edit_config(struct qp_side *side, const struct qp_source *source,
                                      const char *const *keys, const struct qp_writer *value,
                                      struct qp_arena *arena, struct qplan_error *err)
{
    const struct qp_config *config = source->config;
    struct qp_writer w;
    if (!config)
        return QPLAN_OK;
    qp_writer_init(&w);
    enum qplan_status status =
        qp_config_edit(&w, config, keys, value ? value->data : NULL, value ? value->n : 0, err);
    if (status == QPLAN_OK) {
        side->config = qp_arena_join(arena, w.data, w.n, "");
        side->n_config = w.n;
        side->config_mode = config->mode;
        if (!side->config)
            status = qp_fail_memory(err, config->shown, w.n);
    }
    qp_writer_free(&w);
    return status;
}

/* Of a source that is a file there are no names. */
static bool has_no_config(const struct qp_side *side)
{
    bool is_missing = side->n > 0;
    for (size_t i = 0; i < side->n; i++)
        is_missing &= strcmp(side->names[i], QP_CONFIG_NAME) != 0;
    return is_missing;
}

enum qplan_status qp_side_warn(const struct qp_side *side, const char *path,
                               struct qp_warnings *warnings, struct qp_arena *arena,
                               struct qplan_error *err)
{
    struct qp_writer w;
    char quoted[QP_QUOTED];
    if (has_no_config(side))
        QP_TRY(qp_warn(warnings, arena, "no-config", path,
                       "no config.json beside the weights, so that programs cannot tell which "
                       "model they are of",
                       err));
    if (side->n_left == 0)
        return QPLAN_OK;
    qp_writer_init(&w);
    qp_puts(&w, "left out of the output: ");
    for (size_t i = 0; i < side->n_left; i++) {
        qp_puts(&w, i ? ", " : "");
        qp_puts(&w, qp_quote(quoted, side->left[i], strlen(side->left[i])));
    }
    qp_put(&w, "", 1);
    enum qplan_status status = qp_writer_finish(&w, "warning", err);
    if (status == QPLAN_OK)
        status = qp_warn(warnings, arena, "not-copied", path, w.data, err);
    qp_writer_free(&w);
    return status;
}
