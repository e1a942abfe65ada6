/*
 * arrange.c - experts split, stacked and divided: names, shapes and excerpts. No data.
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
 * Makes a plain tensor whose values begin at an element of another. The excerpt is NULL if its
 * values are the bytes from there on.
 */
static enum qplan_status make_tensor(const struct maker *m, const char *name, const uint64_t *shape,
                                     unsigned rank, const struct qp_tensor *from, uint64_t first,
                                     const struct qp_excerpt *excerpt, struct qp_tensor *out)
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
    *out = (struct qp_tensor){.name = name,
                              .name_len = entry.name_len,
                              .shape = shape,
                              .rank = (uint8_t)rank,
                              .storage = from->storage,
                              .entry = qp_arena_copy(&m->out->arena, &entry, 1, sizeof entry),
                              .excerpt = excerpt};
    return name && shape && out->entry ? QPLAN_OK : out_of_memory(m);
}

static enum qplan_status add(struct maker *m, const struct qp_tensor *t)
{
    return qp_add_tensor(&m->out->made, &m->out->n, t) ? QPLAN_OK : out_of_memory(m);
}

/* Adds a tensor that has all of some others, which are alike and begin with the first of these. */
static enum qplan_status add_stack(struct maker *m, const char *name,
                                   const struct qp_tensor *const *experts, uint64_t n)
{
    struct qp_arena *arena = &m->out->arena;
    const struct qp_tensor *t = experts[0];
    const uint64_t shape[3] = {n, t->shape[0], t->shape[1]};
    const struct qp_excerpt excerpt = {.of = experts, .n = n};
    const uint64_t *kept = qp_arena_copy(arena, shape, 3, sizeof *shape);
    const struct qp_excerpt *seen = qp_arena_copy(arena, &excerpt, 1, sizeof excerpt);
    struct qp_tensor made;
    if (!kept || !seen)
        return out_of_memory(m);
    QP_TRY(make_tensor(m, name, kept, 3, t, 0, seen, &made));
    return add(m, &made);
}

/* PREFIX STACK.weight in the arena; NULL when out of memory. */
static char *stack_name(const struct maker *m, const char *prefix, const struct qp_single *how)
{
    char end[64];
    (void)snprintf(end, sizeof end, "%s.weight", how->stack);
    return qp_arena_join(&m->out->arena, prefix, how->n_prefix, end);
}

/* ---- Matrices as engines have them -------------------------------------------------------------
 */

/* All experts of a layer: matrices [outputs, inputs], or turned. */
struct experts {
    const struct qp_tensor *const *fused;
    bool turned;
    uint64_t n, outputs, inputs;
};

/* The parts of codes that go down columns, as those of the turned matrices, in whose rows they are.
 */
static const struct qp_part *turn_parts(struct qp_arena *arena, const struct qp_tensor *t)
{
    struct qp_part *parts = qp_arena_copy(arena, t->parts, t->n_parts, sizeof *parts);
    for (unsigned i = 0; parts && i < t->n_parts; i++) {
        struct qp_place *place = qp_arena_copy(arena, parts[i].place, 1, sizeof *place);
        if (!place)
            return NULL;
        place->columns = false;
        parts[i].place = place;
        parts[i].matrix = (struct qp_matrix){t->shape[0] * parts[i].matrix.cols, parts[i].each};
        parts[i].each = 0;
    }
    return parts;
}

/*
 * A tensor whose codes are stored as those of its turned matrices: the latter, which are read
 * without being turned. NULL when out of memory.
 */
static const struct qp_tensor *turn_encoded(struct qp_arena *arena, const struct qp_tensor *t)
{
    const struct qplan_scheme *down = t->encoded->scheme;
    const struct qplan_scheme along = {.dtype = down->dtype,
                                       .granularity = QPLAN_PER_GROUP,
                                       .group = down->block_rows,
                                       .scale_dtype = down->scale_dtype};
    const uint64_t shape[3] = {t->shape[0], t->shape[2], t->shape[1]};
    struct qp_tensor *plain = qp_arena_copy(arena, t, 1, sizeof *t);
    struct qp_tensor *encoded = qp_arena_copy(arena, t->encoded, 1, sizeof *t);
    if (!plain || !encoded)
        return NULL;
    encoded->scheme = qp_arena_copy(arena, &along, 1, sizeof along);
    encoded->parts = turn_parts(arena, t->encoded);
    plain->shape = encoded->shape = qp_arena_copy(arena, shape, 3, sizeof *shape);
    plain->encoded = encoded;
    return encoded->scheme && encoded->parts && encoded->shape ? plain : NULL;
}

/*
 * Sees the experts of a tensor [experts, outputs, inputs], or turned; biases have no axis of
 * inputs, as if it were the turned weights of a single one.
 */
static enum qplan_status see_experts(struct maker *m, const struct qp_tensor *t, bool turned,
                                     unsigned n_projections, struct experts *out)
{
    struct qp_arena *arena = &m->out->arena;
    char subject[512];
    *out = (struct experts){.n = t->shape[0],
                            .outputs = t->shape[turned ? t->rank - 1 : 1],
                            .inputs = t->rank < 3 ? 1 : t->shape[turned ? 1 : 2]};
    out->turned = turned && (out->inputs > 1 || n_projections > 1); /* else it is the same */
    if (out->outputs % n_projections != 0)
        return qp_fail(m->err, QPLAN_ERR_INVALID, qp_checkpoint_subject(subject, m->checkpoint, t),
                       "its experts have two projections: expected an even number of outputs, "
                       "found %" PRIu64,
                       out->outputs);
    take(m, t);
    if (out->turned && t->encoded && qp_tensor_part(t->encoded, QP_CODES)->each > 0) {
        t = turn_encoded(arena, t);
        out->turned = false;
    }
    out->fused = t ? qp_arena_copy(arena, &t, 1, sizeof t) : NULL;
    return out->fused ? QPLAN_OK : out_of_memory(m);
}

/* Makes what an excerpt says of the fused tensor. */
static enum qplan_status make_seen(const struct maker *m, const char *name, const uint64_t *shape,
                                   unsigned rank, const struct qp_excerpt *excerpt,
                                   struct qp_tensor *out)
{
    struct qp_arena *arena = &m->out->arena;
    const struct qp_tensor *t = *excerpt->of;
    const bool is_plain = excerpt->down == 0 && !t->encoded;
    const uint64_t *kept = qp_arena_copy(arena, shape, rank, sizeof *shape);
    const struct qp_excerpt *seen =
        is_plain ? NULL : qp_arena_copy(arena, excerpt, 1, sizeof *excerpt);
    return kept && (is_plain || seen)
               ? make_tensor(m, name, kept, rank, t, excerpt->first, seen, out)
               : out_of_memory(m);
}

/* ---- Splitting ---------------------------------------------------------------------------------
 */

/* What one expert has of a projection. */
static enum qplan_status make_slice(const struct maker *m, const struct experts *e,
                                    const struct qp_fused_experts *how, uint64_t expert,
                                    unsigned projection, struct qp_tensor *out)
{
    const struct qp_tensor *t = *e->fused;
    const uint64_t shape[2] = {e->outputs / how->n, e->inputs};
    const uint64_t before = projection * shape[0];
    const struct qp_excerpt excerpt = {.of = e->fused,
                                       .n = 1,
                                       .first = expert * e->outputs * e->inputs +
                                                before * (e->turned ? 1 : e->inputs),
                                       .across = e->turned ? e->outputs : 0,
                                       .down = e->turned ? 1 : 0,
                                       .rows = shape[0],
                                       .cols = shape[1]};
    return make_seen(m,
                     qp_expert_name(&m->out->arena, t->name, how->n_prefix, how->single, expert,
                                    how->projections[projection]),
                     shape, 2, &excerpt, out);
}

static enum qplan_status split(struct maker *m, const struct experts *e,
                               const struct qp_fused_experts *how)
{
    for (uint64_t expert = 0; expert < e->n; expert++) {
        for (unsigned i = 0; i < how->n; i++) {
            struct qp_tensor slice;
            QP_TRY(make_slice(m, e, how, expert, i, &slice));
            QP_TRY(add(m, &slice));
        }
    }
    return QPLAN_OK;
}

/* For each projection one tensor that has the slices of all experts. */
static enum qplan_status restack(struct maker *m, const struct experts *e,
                                 const struct qp_fused_experts *how)
{
    struct qp_arena *arena = &m->out->arena;
    for (unsigned i = 0; i < how->n; i++) {
        struct qp_tensor *slices = qp_arena_alloc(arena, e->n, sizeof *slices);
        const struct qp_tensor **experts = qp_arena_alloc(arena, e->n, sizeof *experts);
        struct qp_single single;
        if (!slices || !experts)
            return out_of_memory(m);
        for (uint64_t expert = 0; expert < e->n; expert++) {
            QP_TRY(make_slice(m, e, how, expert, i, &slices[expert]));
            experts[expert] = &slices[expert];
        }
        (void)qp_find_single(&m->checkpoint->source.listing, slices, &single);
        QP_TRY(add_stack(m, stack_name(m, slices->name, &single), experts, e->n));
    }
    return QPLAN_OK;
}

static bool is_divisible(const struct qp_tensor *t)
{
    return !t->scheme && qp_tensor_bytes(t) > 0 &&
           qp_storage_row((enum qplan_storage)t->storage)->is_source;
}

/* The stack that an expert belongs to, or NULL if none is wanted. MEMORY. */
static enum qplan_status find_stack(const struct maker *m, const char *expert, const char **out)
{
    const struct qp_tensor t = {.name = expert, .name_len = (uint32_t)strlen(expert), .rank = 2};
    struct qp_single how;
    *out = NULL;
    if (!m->wish->stack || !qp_find_single(&m->checkpoint->source.listing, &t, &how))
        return QPLAN_OK;
    const char *name = stack_name(m, expert, &how);
    *out = name && is_wanted(m, name) ? name : NULL;
    return name ? QPLAN_OK : out_of_memory(m);
}

static enum qplan_status maybe_split(struct maker *m, const struct qp_tensor *t)
{
    const struct qp_listing *listing = &m->checkpoint->source.listing;
    const struct qp_arrangement *wish = m->wish;
    struct qp_fused_experts how;
    const char *stack = NULL;
    if (!is_divisible(t))
        return QPLAN_OK;
    const bool is_fused = (wish->split || wish->stack) && qp_find_fused_experts(listing, t, &how);
    if (!is_fused && !(wish->unstack && qp_find_stack(listing, t, &how)))
        return QPLAN_OK;
    const char *first =
        qp_expert_name(&m->out->arena, t->name, how.n_prefix, how.single, 0, how.projections[0]);
    if (!first)
        return out_of_memory(m);
    if (is_fused)
        QP_TRY(find_stack(m, first, &stack));
    if (!stack && ((is_fused && !wish->split) || !is_wanted(m, first)))
        return QPLAN_OK;
    struct experts experts;
    QP_TRY(see_experts(m, t, how.turned, how.n, &experts));
    return (stack ? restack : split)(m, &experts, &how);
}

/* ---- Dividing ----------------------------------------------------------------------------------
 */

/* One projection of all experts, whose outputs are each how->n-th from `projection` on. */
static enum qplan_status add_projection(struct maker *m, const struct experts *e,
                                        const struct qp_divided *how, unsigned projection)
{
    const struct qp_tensor *t = *e->fused;
    const uint64_t shape[3] = {e->n, e->outputs / how->n, e->inputs};
    const uint64_t next = e->turned ? 1 : e->inputs; /* output of an expert */
    const struct qp_excerpt excerpt = {.of = e->fused,
                                       .n = 1,
                                       .first = projection * next,
                                       .across = e->turned ? e->outputs : 0,
                                       .down = e->turned || how->n > 1 ? how->n * next : 0,
                                       .rows = shape[1],
                                       .cols = shape[2]};
    struct qp_tensor made;
    QP_TRY(make_seen(m,
                     qp_arena_join(&m->out->arena, t->name, how->n_prefix, how->names[projection]),
                     shape, t->rank, &excerpt, &made));
    return add(m, &made);
}

static enum qplan_status divide(struct maker *m, const struct qp_tensor *t,
                                const struct qp_divided *how)
{
    struct experts experts;
    QP_TRY(see_experts(m, t, true, how->n, &experts));
    for (unsigned i = 0; i < how->n; i++)
        QP_TRY(add_projection(m, &experts, how, i));
    return QPLAN_OK;
}

static enum qplan_status maybe_divide(struct maker *m, const struct qp_tensor *t)
{
    struct qp_divided how;
    if (!m->wish->stack || !is_divisible(t) ||
        !qp_find_divided_experts(&m->checkpoint->source.listing, t, &how))
        return QPLAN_OK;
    const char *first = qp_arena_join(&m->out->arena, t->name, how.n_prefix, how.names[0]);
    if (!first)
        return out_of_memory(m);
    return is_wanted(m, first) ? divide(m, t, &how) : QPLAN_OK;
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
                               const struct qp_single *how, const char *name)
{
    const struct qp_tensor **experts;
    size_t n;
    QP_TRY(find_experts(m, t, how, &experts, &n));
    for (size_t i = 0; i < n; i++)
        take(m, experts[i]);
    return add_stack(m, name, experts, n);
}

static enum qplan_status maybe_stack(struct maker *m, const struct qp_tensor *t)
{
    struct qp_single how;
    if (!m->wish->stack || t->scheme || qp_tensor_bytes(t) == 0 ||
        !qp_find_single(&m->checkpoint->source.listing, t, &how) || how.number != 0)
        return QPLAN_OK;
    const char *name = stack_name(m, t->name, &how);
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
        QP_TRY(maybe_divide(m, &c->tensors[i]));
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
    const struct qp_listing *listing = &checkpoint->source.listing;
    if (wish->split && !wish->like &&
        (!qp_knows_experts(listing) || (wish->engines && qp_unsplit_experts(listing))))
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
