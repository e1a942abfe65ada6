/*
 * budget.c - the choice: each item walks along the lower convex hull of its options, the steps that
 * save most error for a byte first, which also gives a bound that no choice is below. The hull
 * leaves some bytes unused: options beside it, and exchanges of two items, fill them. From there
 * all choices are gone through that could still be better, if they are not too many.
 */
#include "budget.h"

#include "lib/base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* From one option of an item on its hull to the next. */
struct step {
    size_t item, to;
    uint64_t bytes;
    double error, slope; /* that it saves, in all and for a byte */
    size_t number;
};

/* Options of the items up to one: of those that come to so many bytes the best. */
struct partial {
    uint64_t bytes;
    double error, added; /* to the bound, at the least */
    size_t from, option; /* the one without the last item, and what that item has */
};

/* More of them are not looked at. */
#define MOST_PARTIALS ((size_t)1 << 20)

struct solver {
    const struct qp_budget *budget;
    bool raises; /* items that come first may have wide options alone */
    struct step *steps;
    size_t n_steps;
    bool *is_closed; /* by item: a step did not fit, so that none behind it may be taken */
    size_t *option;
    struct qp_mix mix;
    double bound;
    double slope; /* of the first step that did not fit; 0 = all did */

    size_t *critical; /* by item: its option before that step */

    /* Room to go through all choices, item by item. */
    struct partial *partials;
    size_t *cursor;  /* by option */
    uint64_t *least; /* bytes of all items from each on */
};

static const struct qp_option *option_at(const struct qp_budget *budget, size_t item, size_t which)
{
    return &budget->options[item * budget->n_options + which];
}

/* ---- Sums --------------------------------------------------------------------------------------
 */

static size_t smallest(const struct qp_budget *budget, size_t item)
{
    size_t best = budget->n_options;
    for (size_t i = 0; i < budget->n_options; i++) {
        const struct qp_option *o = option_at(budget, item, i);
        if (o->is_there &&
            (best == budget->n_options || o->bytes < option_at(budget, item, best)->bytes))
            best = i;
    }
    return best;
}

static struct qp_mix sum(const struct qp_budget *budget, const size_t *option)
{
    struct qp_mix mix = {0, 0};
    for (size_t i = 0; i < budget->n_items; i++) {
        mix.bytes += option_at(budget, i, option[i])->bytes;
        mix.error += option_at(budget, i, option[i])->error;
    }
    return mix;
}

uint64_t qp_budget_least(const struct qp_budget *budget)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < budget->n_items; i++)
        bytes += option_at(budget, i, smallest(budget, i))->bytes;
    return bytes;
}

struct qp_mix qp_budget_uniform(const struct qp_budget *budget, size_t which, size_t *option)
{
    struct qp_mix mix = {0, 0};
    for (size_t i = 0; i < budget->n_items; i++) {
        const bool has_it = option_at(budget, i, which)->is_there;
        const size_t taken = has_it ? which : smallest(budget, i);
        mix.bytes += option_at(budget, i, taken)->bytes;
        mix.error += option_at(budget, i, taken)->error;
        if (option)
            option[i] = taken;
    }
    return mix;
}

/* ---- Hulls -------------------------------------------------------------------------------------
 */

static bool has_wide(const struct qp_budget *budget, size_t item)
{
    bool found = false;
    for (size_t i = 0; i < budget->n_options; i++)
        found |= option_at(budget, item, i)->is_there && option_at(budget, item, i)->is_wide;
    return found;
}

static bool may_have(const struct solver *s, size_t item, size_t which)
{
    const struct qp_option *o = option_at(s->budget, item, which);
    const bool must_be_wide = s->raises && s->budget->is_first[item] && has_wide(s->budget, item);
    return o->is_there && (o->is_wide || !must_be_wide);
}

/* The smallest option of an item, where its hull begins, and of these the best. */
static size_t first_on_hull(const struct solver *s, size_t item)
{
    const struct qp_budget *b = s->budget;
    size_t best = b->n_options;
    for (size_t i = 0; i < b->n_options; i++) {
        const struct qp_option *o = option_at(b, item, i);
        if (!may_have(s, item, i))
            continue;
        const struct qp_option *top = option_at(b, item, best < b->n_options ? best : i);
        if (best == b->n_options || o->bytes < top->bytes ||
            (o->bytes == top->bytes && o->error < top->error))
            best = i;
    }
    return best;
}

/* The next option on the hull behind one, or n_options at its end: that which saves most for a
 * byte, and of these the largest. */
static size_t next_on_hull(const struct solver *s, size_t item, size_t from)
{
    const struct qp_budget *b = s->budget;
    const struct qp_option *at = option_at(b, item, from);
    size_t best = b->n_options;
    uint64_t bytes = 0;
    double slope = 0;
    for (size_t i = 0; i < b->n_options; i++) {
        const struct qp_option *o = option_at(b, item, i);
        if (!may_have(s, item, i) || o->bytes <= at->bytes || o->error >= at->error)
            continue;
        const double found = (at->error - o->error) / (double)(o->bytes - at->bytes);
        if (found < slope || (found == slope && o->bytes <= bytes))
            continue;
        slope = found;
        bytes = o->bytes;
        best = i;
    }
    return best;
}

/* Gives every item the first option of its hull, and lists the steps of all. */
static void begin(struct solver *s)
{
    const struct qp_budget *b = s->budget;
    s->n_steps = 0;
    for (size_t i = 0; i < b->n_items; i++) {
        size_t from = first_on_hull(s, i), to;
        double slope = INFINITY; /* never grows on a hull, whatever rounding says */
        s->is_closed[i] = false;
        s->option[i] = from;
        for (; (to = next_on_hull(s, i, from)) < b->n_options; from = to) {
            const struct qp_option *x = option_at(b, i, from), *y = option_at(b, i, to);
            const uint64_t bytes = y->bytes - x->bytes;
            const double error = x->error - y->error;
            slope = fmin(slope, error / (double)bytes);
            s->steps[s->n_steps] = (struct step){i, to, bytes, error, slope, s->n_steps};
            s->n_steps++;
        }
    }
    s->mix = sum(b, s->option);
}

/* The steps that save most for a byte first, and those of an item in their order. */
static int by_slope(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    if (x->slope != y->slope)
        return x->slope > y->slope ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/*
 * Takes the steps that fit. Up to the first that does not, this is the best that fractions of steps
 * could do; so that one's fraction gives the bound.
 */
static void walk(struct solver *s)
{
    bool all_taken = true;
    s->slope = 0;
    if (s->n_steps > 0)
        qsort(s->steps, s->n_steps, sizeof *s->steps, by_slope);
    for (size_t i = 0; i < s->n_steps; i++) {
        const struct step *step = &s->steps[i];
        const uint64_t left = s->budget->bytes - s->mix.bytes;
        if (step->bytes <= left && !s->is_closed[step->item]) {
            s->option[step->item] = step->to;
            s->mix.bytes += step->bytes;
            s->mix.error -= step->error;
            continue;
        }
        if (all_taken) {
            s->bound = s->mix.error - step->slope * (double)left;
            s->slope = step->slope;
            memcpy(s->critical, s->option, s->budget->n_items * sizeof *s->option);
        }
        all_taken = false;
        s->is_closed[step->item] = true;
    }
    s->mix = sum(s->budget, s->option);
    if (all_taken)
        s->bound = s->mix.error;
}

/* ---- What the hull leaves ----------------------------------------------------------------------
 */

/* Another option for an item. */
struct change {
    size_t item, to;
};

/* The change that saves most and takes at most so many bytes; false if none saves anything. */
static bool best_change(const struct solver *s, uint64_t room, struct change *best)
{
    double most = 0;
    for (size_t i = 0; i < s->budget->n_items; i++) {
        const struct qp_option *from = option_at(s->budget, i, s->option[i]);
        for (size_t to = 0; to < s->budget->n_options; to++) {
            const struct qp_option *o = option_at(s->budget, i, to);
            if (!may_have(s, i, to) || (o->bytes > from->bytes && o->bytes - from->bytes > room) ||
                from->error - o->error <= most)
                continue;
            most = from->error - o->error;
            *best = (struct change){i, to};
        }
    }
    return most > 0;
}

static void fill(struct solver *s)
{
    struct change change = {0, 0};
    while (best_change(s, s->budget->bytes - s->mix.bytes, &change)) {
        s->option[change.item] = change.to;
        s->mix = sum(s->budget, s->option);
    }
}

/* ---- The least error of all --------------------------------------------------------------------
 */

/* What an option of an item adds to the bound at the least, as it is not that of the first walk. */
static double added_by(const struct solver *s, size_t item, const struct qp_option *o)
{
    const struct qp_option *at = option_at(s->budget, item, s->critical[item]);
    const double bytes =
        o->bytes < at->bytes ? -(double)(at->bytes - o->bytes) : (double)(o->bytes - at->bytes);
    return fmax(o->error - at->error + s->slope * bytes, 0);
}

static void find_least(const struct solver *s)
{
    const struct qp_budget *b = s->budget;
    s->least[b->n_items] = 0;
    for (size_t i = b->n_items; i-- > 0;)
        s->least[i] = s->least[i + 1] + option_at(b, i, first_on_hull(s, i))->bytes;
}

/* The next one with an item more, in the order of bytes, of equals that with least error; false
 * behind the last. */
static bool take_next(const struct solver *s, size_t item, size_t end, struct partial *out)
{
    bool found = false;
    for (size_t k = 0; k < s->budget->n_options; k++) {
        const struct qp_option *o = option_at(s->budget, item, k);
        if (s->cursor[k] == end || !may_have(s, item, k))
            continue;
        const struct partial *p = &s->partials[s->cursor[k]];
        const struct partial next = {p->bytes + o->bytes, p->error + o->error,
                                     p->added + added_by(s, item, o), s->cursor[k], k};
        if (found &&
            (next.bytes > out->bytes || (next.bytes == out->bytes && next.error >= out->error)))
            continue;
        *out = next;
        found = true;
    }
    if (found)
        s->cursor[out->option]++;
    return found;
}

/* Adds an item to those from *begin to *end, without those that lead to no less error than is
 * known; false if there are too many. */
static bool add_item(const struct solver *s, size_t item, size_t *begin, size_t *end)
{
    struct partial next = {.error = 0};
    double best = INFINITY;
    size_t n = *end;
    for (size_t k = 0; k < s->budget->n_options; k++)
        s->cursor[k] = *begin;
    while (take_next(s, item, *end, &next)) {
        if (next.bytes + s->least[item + 1] > s->budget->bytes)
            break;
        if (next.error >= best || s->bound + next.added > s->mix.error)
            continue;
        if (n == MOST_PARTIALS)
            return false;
        best = next.error;
        s->partials[n++] = next;
    }
    *begin = *end;
    *end = n;
    return true;
}

/* Finds the least error that any choice has, unless there are too many to look at. */
static void perfect(struct solver *s)
{
    size_t begin = 0, end = 1;
    find_least(s);
    s->partials[0] = (struct partial){.error = 0};
    for (size_t i = 0; i < s->budget->n_items; i++) {
        if (!add_item(s, i, &begin, &end))
            return;
    }
    if (end > begin && s->partials[end - 1].error < s->mix.error) {
        for (size_t i = s->budget->n_items, at = end - 1; i-- > 0; at = s->partials[at].from)
            s->option[i] = s->partials[at].option;
        s->mix = sum(s->budget, s->option);
    }
    s->bound = s->mix.error;
}

/* ---- The whole ---------------------------------------------------------------------------------
 */

/* False if not even the smallest options keep to the bytes. */
static bool solve(struct solver *s, bool raises)
{
    s->raises = raises;
    begin(s);
    s->bound = s->mix.error;
    if (s->mix.bytes > s->budget->bytes)
        return false;
    walk(s);
    fill(s);
    if (s->mix.error > s->bound)
        perfect(s);
    s->bound = s->bound < s->mix.error ? s->bound : s->mix.error; /* what rounding left */
    return true;
}

static void take(const struct solver *s, struct qp_budget_choice *choice)
{
    memcpy(choice->option, s->option, s->budget->n_items * sizeof *s->option);
    choice->mix = s->mix;
    choice->bound = s->bound;
    choice->raised = s->raises;
}

static void find_uniform(const struct qp_budget *budget, struct qp_budget_choice *choice)
{
    choice->uniform = budget->n_options;
    for (size_t i = 0; i < budget->n_options; i++) {
        const struct qp_mix mix = qp_budget_uniform(budget, i, NULL);
        if (mix.bytes > budget->bytes ||
            (choice->uniform < budget->n_options && mix.error >= choice->of_uniform.error))
            continue;
        choice->uniform = i;
        choice->of_uniform = mix;
    }
}

static bool any_first(const struct qp_budget *budget)
{
    for (size_t i = 0; i < budget->n_items; i++) {
        if (budget->is_first[i] && has_wide(budget, i))
            return true;
    }
    return false;
}

static void choose(struct solver *s, struct qp_budget_choice *choice)
{
    const struct qp_budget *budget = s->budget;
    find_uniform(budget, choice);
    const bool has_uniform = choice->uniform < budget->n_options;
    if (any_first(budget) && solve(s, true) &&
        (!has_uniform || s->mix.error <= choice->of_uniform.error)) {
        take(s, choice);
        return;
    }
    (void)solve(s, false);
    take(s, choice);
    if (has_uniform && choice->mix.error > choice->of_uniform.error)
        choice->mix = qp_budget_uniform(budget, choice->uniform, choice->option);
}

enum qplan_status qp_budget_choose(const struct qp_budget *budget, struct qp_budget_choice *choice,
                                   struct qplan_error *err)
{
    struct solver s = {.budget = budget};
    const size_t n = budget->n_items;
    enum qplan_status status = QPLAN_OK;
    s.steps = qp_alloc(n * budget->n_options, sizeof *s.steps);
    s.is_closed = qp_alloc(n, sizeof *s.is_closed);
    s.option = qp_alloc(n, sizeof *s.option);
    s.partials = qp_alloc_buffer(MOST_PARTIALS * sizeof *s.partials);
    s.cursor = qp_alloc(budget->n_options, sizeof *s.cursor);
    s.least = qp_alloc(n + 1, sizeof *s.least);
    s.critical = qp_alloc(n, sizeof *s.critical);
    if (s.steps && s.is_closed && s.option && s.partials && s.cursor && s.least && s.critical)
        choose(&s, choice);
    else
        status = qp_fail_memory(err, "budget", n * budget->n_options * sizeof *s.steps);
    qp_free(s.steps);
    qp_free(s.is_closed);
    qp_free(s.option);
    qp_free(s.partials);
    qp_free(s.cursor);
    qp_free(s.least);
    qp_free(s.critical);
    return status;
}
