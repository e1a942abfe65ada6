/*
 * making.c - how a file was made, in its metadata, written and read:
 *
 *     "qplan.importance": "sha256:... sha256:..."      files, one blank between
 *     "qplan.hessian": "sha256:..."                    likewise; with it
 *     "qplan.hessian_damp": "0.01"                     in the shortest form
 *     "qplan.nonfinite": "saturate"
 */
#include "making.h"

#include "record.h"

#include <string.h>

static const char saturate[] = "saturate";
static const char *const keys[] = {QP_IMPORTANCE_KEY, QP_HESSIAN_KEY, QP_HESSIAN_DAMP_KEY,
                                   QP_NONFINITE_KEY};

#define N_KEYS (sizeof keys / sizeof keys[0])
_Static_assert(N_KEYS == QP_MAKING_PAIRS, "a pair for each key");

bool qp_is_making_key(const struct qp_st_pair *pair)
{
    bool found = false;
    for (size_t i = 0; i < N_KEYS && !found; i++)
        found = qp_text_is(pair->key, pair->key_len, keys[i]);
    return found;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* A pair whose value is copied; without a value it has none, and memory was short. */
static struct qp_st_pair pair_of(const char *key, const char *value, size_t n,
                                 struct qp_arena *arena)
{
    return (struct qp_st_pair){key, qp_arena_join(arena, value, n, ""), (uint32_t)strlen(key),
                               (uint32_t)n};
}

static struct qp_st_pair digests_pair(const char *key, const struct qp_digests *digests,
                                      struct qp_arena *arena)
{
    struct qp_st_pair pair = {.key = key, .key_len = (uint32_t)strlen(key)};
    struct qp_writer w;
    qp_writer_init(&w);
    for (size_t i = 0; i < digests->n; i++) {
        qp_puts(&w, i ? " " : "");
        qp_puts(&w, digests->list[i].text);
    }
    if (!w.error)
        pair = pair_of(key, w.data, w.n, arena);
    qp_writer_free(&w);
    return pair;
}

enum qplan_status qp_making_pairs(const struct qp_making *making, struct qp_arena *arena,
                                  struct qp_st_pair out[QP_MAKING_PAIRS], size_t *n,
                                  struct qplan_error *err)
{
    char damp[QP_F64_TEXT];
    *n = 0;
    if (making->importance.n)
        out[(*n)++] = digests_pair(QP_IMPORTANCE_KEY, &making->importance, arena);
    if (making->hessians.n) {
        const size_t n_damp = qp_format_f64(damp, making->hessian_damp);
        out[(*n)++] = digests_pair(QP_HESSIAN_KEY, &making->hessians, arena);
        out[(*n)++] = pair_of(QP_HESSIAN_DAMP_KEY, damp, n_damp, arena);
    }
    if (making->saturates)
        out[(*n)++] = pair_of(QP_NONFINITE_KEY, saturate, sizeof saturate - 1, arena);
    for (size_t i = 0; i < *n; i++) {
        if (!out[i].value)
            return qp_fail_memory(err, "metadata", QP_DIGEST_TEXT);
    }
    return QPLAN_OK;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static enum qplan_status bad(const struct qp_st *st, const struct qp_st_pair *pair,
                             const char *expected, struct qplan_error *err)
{
    char found[QP_QUOTED];
    return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown, "metadata %s: expected %s, found %s",
                   pair->key, expected, qp_quote(found, pair->value, pair->value_len));
}

static enum qplan_status read_digests(const struct qp_st *st, const char *key,
                                      struct qp_arena *arena, struct qp_digests *out,
                                      struct qplan_error *err)
{
    const struct qp_st_pair *pair = qp_st_metadata(st, key);
    struct qp_digest digest;
    if (!pair)
        return QPLAN_OK;
    for (size_t at = 0; at <= pair->value_len; at += QP_DIGEST_TEXT) {
        const size_t n = pair->value_len - at;
        const bool is_last = n < QP_DIGEST_TEXT;
        if (!qp_digest_read(&digest, pair->value + at, is_last ? n : QP_DIGEST_TEXT - 1) ||
            (!is_last && pair->value[at + QP_DIGEST_TEXT - 1] != ' '))
            return bad(st, pair, "\"sha256:\" and 64 digits for each file", err);
        QP_TRY(qp_digests_add(out, &digest, arena, err));
    }
    return QPLAN_OK;
}

static enum qplan_status read_damp(const struct qp_st *st, struct qp_making *out,
                                   struct qplan_error *err)
{
    const struct qp_st_pair *pair = qp_st_metadata(st, QP_HESSIAN_DAMP_KEY);
    char canonical[QP_F64_TEXT];
    if (!pair != !out->hessians.n)
        return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                       "metadata " QP_HESSIAN_KEY " and " QP_HESSIAN_DAMP_KEY
                       ": expected both or neither, found one");
    if (!pair)
        return QPLAN_OK;
    if (!qp_parse_f64(pair->value, &out->hessian_damp) || !(out->hessian_damp > 0) ||
        qp_compare_text(pair->value, pair->value_len, canonical,
                        qp_format_f64(canonical, out->hessian_damp)) != 0)
        return bad(st, pair, "a number above 0 in its shortest form", err);
    return QPLAN_OK;
}

static enum qplan_status read_file(const struct qp_st *st, struct qp_arena *arena,
                                   struct qp_making *out, struct qplan_error *err)
{
    const struct qp_st_pair *nonfinite = qp_st_metadata(st, QP_NONFINITE_KEY);
    const struct qp_st_pair *layout = qp_st_metadata(st, QP_LAYOUT_KEY);
    QP_TRY(read_digests(st, QP_IMPORTANCE_KEY, arena, &out->importance, err));
    QP_TRY(read_digests(st, QP_HESSIAN_KEY, arena, &out->hessians, err));
    QP_TRY(read_damp(st, out, err));
    if (nonfinite && !qp_text_is(nonfinite->value, nonfinite->value_len, saturate))
        return bad(st, nonfinite, saturate, err);
    out->saturates = nonfinite != NULL;
    if ((!out->importance.n && !out->hessians.n) ||
        qp_text_is(layout->value, layout->value_len, "2"))
        return QPLAN_OK;
    return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                   "not in layout 1: expected " QP_LAYOUT_KEY
                   " 2 beside importance or a Hessian, found 1");
}

/* Both have the key with the same value, or neither has it. */
static bool is_same(const struct qp_st *a, const struct qp_st *b, const char *key)
{
    const struct qp_st_pair *x = qp_st_metadata(a, key), *y = qp_st_metadata(b, key);
    return x && y ? qp_compare_text(x->value, x->value_len, y->value, y->value_len) == 0 : !x && !y;
}

enum qplan_status qp_read_making(const struct qp_listing *listing, struct qp_arena *arena,
                                 struct qp_making *out, struct qplan_error *err)
{
    const struct qp_st *first = NULL;
    *out = (struct qp_making){.saturates = false};
    for (size_t i = 0; i < listing->n_files; i++) {
        const struct qp_st *st = &listing->files[i];
        if (!qp_st_metadata(st, QP_LAYOUT_KEY))
            continue;
        if (!first)
            QP_TRY(read_file(st, arena, out, err));
        for (size_t k = 0; first && k < N_KEYS; k++) {
            if (!is_same(first, st, keys[k]))
                return qp_fail(err, QPLAN_ERR_INVALID, st->file.shown,
                               "metadata %s differs between shards: expected that of %s", keys[k],
                               first->file.shown);
        }
        first = first ? first : st;
    }
    return QPLAN_OK;
}
