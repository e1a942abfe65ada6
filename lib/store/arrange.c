/*
 * arrange.c - experts split and stacked: names, shapes and excerpts. No data.
 */
#include "arrange.h"

#include "formats/build.h"
#include "formats/experts.h"
#include "lib/base/alloc.h"
#include "lib/model/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct maker {
    const struct qplan_checkpoint *checkpoint;
    const struct qp_arrangement *wish;
    struct qp_arranged *out;
    bool *taken; /* by tensor of the checkpoint: others stand in its place */
    struct qplan_error *err;
};

static enum qplan_status out_of_memory(const struct maker *m)
{
    return qp_fail_memory(m->err, m->checkpoint->source.listing.shown, sizeof(struct qp_tensor));
}

static bool is_wanted(const struct maker *m, const char *name)
{
    const struct qplan_checkpoint *like = m->wish->like;
    return !like || qp_checkpoint_find(like, name, strlen(name));
}

static void take(const struct maker *m, const struct qp_tensor *t)
{
    m->taken[t - m->checkpoint->tensors] = true;
}

/*
 * Adds a plain tensor whose values begin at an element of another. The excerpt is NULL if its
 * values are the bytes from there on.
 */
static enum qplan_status add(struct maker *m, const char *name, const uint64_t *shape,
                             unsigned rank, const struct qp_tensor *from, uint64_t first,
                             const struct qp_excerpt *excerpt)
{
    const size_t size = qplan_storage_bits((enum qplan_storage)from->storage) / 8;
    uint64_t n;
    (void)qp_shape_elements(shape, rank, &n); /* no more than the stored tensors have */
    struct qplan_entry entry = {.name = name,
                                .name_len = name ? (uint32_t)strlen(name) : 0,
                                .storage = from->storage,
                                .rank = (uint8_t)rank,
                                .shape = shape,
                                .file = from->entry->file,
                                .begin = from->entry->begin + first * size};
    entry.end = entry.begin + n * size;
    const struct qp_tensor t = {.name = name,
                                .name_len = entry.name_len,
                                .shape = shape,
                                .rank = (uint8_t)rank,
                                .storage = from->storage,
                                .entry = qp_arena_copy(&m->out->arena, &entry, 1, sizeof entry),
                                .excerpt = excerpt};
    return name && shape && t.entry && qp_add_tensor(&m->out->made, &m->out->n, &t)
               ? QPLAN_OK
               : out_of_memory(m);
}

/* ---- Splitting ---------------------------------------------------------------------------------
 */

static enum qplan_status add_slice(struct maker *m, const struct qp_tensor *const *fused,
                                   const struct qp_fused *how, const uint64_t *shape,
                                   uint64_t expert, unsigned projection)
{
    const struct qp_tensor *t = *fused;
    struct qp_arena *arena = &m->out->arena;
    const uint64_t across = how->turned ? t->shape[2] : 0;
    const uint64_t first =
        expert * t->shape[1] * t->shape[2] + projection * shape[0] * (how->turned ? 1 : shape[1]);
    const struct qp_excerpt excerpt = {fused, 1, first, across};
    const struct qp_excerpt *seen = NULL;
    char *name = qp_expert_name(arena, t->name, how->n_prefix, how->single, expert,
                                how->projections[projection]);
    if (how->turned || t->encoded) {
        seen = qp_arena_copy(arena, &excerpt, 1, sizeof excerpt);
        if (!seen)
            return out_of_memory(m);
    }
    return add(m, name, shape, 2, t, first, seen);
}

static enum qplan_status split(struct maker *m, const struct qp_tensor *t,
                               const struct qp_fused *how)
{
    struct qp_arena *arena = &m->out->arena;
    const uint64_t outputs = t->shape[how->turned ? 2 : 1];
    const uint64_t shape[2] = {outputs / how->n, t->shape[how->turned ? 1 : 2]};
    char subject[512];
    if (outputs % how->n != 0)
        return qp_fail(m->err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, m->checkpoint, t),
                       "its experts have two projections: expected an even number of outputs, "
                       "found %" PRIu64,
                       outputs);
    const uint64_t *kept = qp_arena_copy(arena, shape, 2, sizeof *shape);
    const struct qp_tensor *const *fused = qp_arena_copy(arena, &t, 1, sizeof t);
    if (!kept || !fused)
        return out_of_memory(m);
    take(m, t);
    for (uint64_t expert = 0; expert < t->shape[0]; expert++) {
        for (unsigned i = 0; i < how->n; i++)
            QP_TRY(add_slice(m, fused, how, kept, expert, i));
    }
    return QPLAN_OK;
}

bool qp_may_split(const struct qplan_checkpoint *checkpoint, const struct qp_tensor *t)
{
    const struct qp_listing *listing = &checkpoint->source.listing;
    struct qp_fused how;
    return !qp_unsplit_experts(listing) && qp_find_fused_experts(listing, t, &how);
}

static enum qplan_status maybe_split(struct maker *m, const struct qp_tensor *t)
{
    struct qp_fused how;
    if (!m->wish->split || qp_tensor_bytes(t) == 0 ||
        !qp_storage_row((enum qplan_storage)t->storage)->is_source ||
        !qp_find_fused_experts(&m->checkpoint->source.listing, t, &how))
        return QPLAN_OK;
    const char *first =
        qp_expert_name(&m->out->arena, t->name, how.n_prefix, how.single, 0, how.projections[0]);
    if (!first)
        return out_of_memory(m);
    return is_wanted(m, first) ? split(m, t, &how) : QPLAN_OK;
}

/* Which tensor it is that is not split, or the checkpoint where none is seen. */
static enum qplan_status fail_split(const struct maker *m)
{
    const struct qplan_checkpoint *c = m->checkpoint;
    char subject[512], type[QP_QUOTED];
    (void)qp_escape(subject, sizeof subject, c->source.listing.shown,
                    strlen(c->source.listing.shown));
    for (size_t i = c->n_tensors; i-- > 0;) {
        if (c->tensors[i].rank == 3 && strstr(c->tensors[i].name, ".experts."))
            (void)qp_checkpoint_subject(subject, c, &c->tensors[i]);
    }
    const char *reason = qp_unsplit_experts(&c->source.listing);
    if (reason)
        return qp_fail(m->err, QPLAN_ERR_INVALID, subject, "experts cannot be split: %s", reason);
    return qp_fail(m->err, QPLAN_ERR_INVALID, subject,
                   "experts cannot be split: expected a model_type in config.json whose experts "
                   "are known, found %s",
                   qp_show_model_type(type, &c->source.listing));
}

/* ---- Stacking ----------------------------------------------------------------------------------
 */

static bool is_alike(const struct qp_tensor *a, const struct qp_tensor *b)
{
    return a->storage == b->storage && qp_same_shape(a->shape, a->rank, b->shape, b->rank);
}

/* The projection of the tensor's kind of another expert of its layer, or NULL. MEMORY. */
static enum qplan_status find_expert(const struct maker *m, const struct qp_tensor *t,
                                     const struct qp_single *how, uint64_t number,
                                     const struct qp_tensor **out)
{
    struct qp_arena scratch = {NULL};
    const char *name =
        qp_expert_name(&scratch, t->name, how->n_prefix, ".experts.", number, how->projection);
    *out = name ? qp_checkpoint_find(m->checkpoint, name, strlen(name)) : NULL;
    if (*out && !is_alike(*out, t))
        *out = NULL;
    qp_arena_free(&scratch);
    return name ? QPLAN_OK : out_of_memory(m);
}

/* The experts from the first on as long as there are such, in *list. */
static enum qplan_status find_experts(const struct maker *m, const struct qp_tensor *t,
                                      const struct qp_single *how, const struct qp_tensor ***list,
                                      size_t *n)
{
    const struct qp_tensor *next = t;
    for (*n = 0, *list = NULL; next;) {
        *list = qp_arena_grow(&m->out->arena, (void *)*list, *n, sizeof **list);
        if (!*list)
            return out_of_memory(m);
        (*list)[(*n)++] = next;
        QP_TRY(find_expert(m, t, how, *n, &next));
    }
    return QPLAN_OK;
}

static enum qplan_status stack(struct maker *m, const struct qp_tensor *t,
                               const struct qp_single *how, char *name)
{
    struct qp_arena *arena = &m->out->arena;
    struct qp_excerpt excerpt = {.first = 0};
    const struct qp_tensor **experts;
    QP_TRY(find_experts(m, t, how, &experts, &excerpt.n));
    excerpt.of = experts;
    for (size_t i = 0; i < excerpt.n; i++)
        take(m, experts[i]);
    const uint64_t shape[3] = {excerpt.n, t->shape[0], t->shape[1]};
    const uint64_t *kept = qp_arena_copy(arena, shape, 3, sizeof *shape);
    const struct qp_excerpt *seen = qp_arena_copy(arena, &excerpt, 1, sizeof excerpt);
    return kept && seen ? add(m, name, kept, 3, t, 0, seen) : out_of_memory(m);
}

static enum qplan_status maybe_stack(struct maker *m, const struct qp_tensor *t)
{
    struct qp_single how;
    if (!m->wish->stack || qp_tensor_bytes(t) == 0 ||
        !qp_find_single(&m->checkpoint->source.listing, t, &how) || how.number != 0)
        return QPLAN_OK;
    char end[64], *name;
    (void)snprintf(end, sizeof end, "%s.weight", how.stack);
    name = qp_arena_join(&m->out->arena, t->name, how.n_prefix, end);
    if (!name)
        return out_of_memory(m);
    return is_wanted(m, name) ? stack(m, t, &how, name) : QPLAN_OK;
}

/* ---- All tensors -------------------------------------------------------------------------------
 */

static int by_name(const void *a, const void *b)
{
    const struct qp_tensor *x = a, *y = b;
    return qp_compare_text(x->name, x->name_len, y->name, y->name_len);
}

/* What was made, and all tensors that it does not stand for. */
static enum qplan_status merge(struct maker *m)
{
    const struct qplan_checkpoint *c = m->checkpoint;
    struct qp_arranged *out = m->out;
    char quoted[QP_QUOTED];
    for (size_t i = 0; i < c->n_tensors; i++) {
        if (!m->taken[i] && !qp_add_tensor(&out->made, &out->n, &c->tensors[i]))
            return out_of_memory(m);
    }
    qsort(out->made, out->n, sizeof *out->made, by_name);
    for (size_t i = 1; i < out->n; i++) {
        if (by_name(&out->made[i - 1], &out->made[i]) == 0)
            return qp_fail(m->err, QPLAN_ERR_INVALID, c->source.listing.shown,
                           "name collision: %s is a tensor of the source, and what its experts "
                           "become",
                           qp_quote(quoted, out->made[i].name, out->made[i].name_len));
    }
    out->list = out->made;
    return QPLAN_OK;
}

static enum qplan_status make(struct maker *m)
{
    const struct qplan_checkpoint *c = m->checkpoint;
    for (size_t i = 0; i < c->n_tensors; i++) {
        QP_TRY(maybe_split(m, &c->tensors[i]));
        QP_TRY(maybe_stack(m, &c->tensors[i]));
    }
    if (m->out->n > 0)
        return merge(m);
    m->out->list = c->tensors;
    m->out->n = c->n_tensors;
    return QPLAN_OK;
}

enum qplan_status qp_arrange(struct qp_arranged *out, const struct qplan_checkpoint *checkpoint,
                             const struct qp_arrangement *wish, struct qplan_error *err)
{
    struct maker m = {.checkpoint = checkpoint, .wish = wish, .out = out, .err = err};
    *out = (struct qp_arranged){.list = checkpoint->tensors, .n = 0};
    if (wish->split && !wish->like && !qp_knows_experts(&checkpoint->source.listing))
        return fail_split(&m);
    m.taken = qp_alloc(checkpoint->n_tensors, sizeof *m.taken);
    const enum qplan_status status = m.taken ? make(&m) : out_of_memory(&m);
    qp_free(m.taken);
    return status;
}

void qp_arranged_free(struct qp_arranged *arranged)
{
    qp_free(arranged->made);
    qp_arena_free(&arranged->arena);
}

const struct qp_tensor *qp_arranged_find(const struct qp_arranged *arranged, const char *name,
                                         size_t n)
{
    return qp_tensors_find(arranged->list, arranged->n, name, n);
}
