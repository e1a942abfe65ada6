/*
 * budget.c - the choice: each item walks along the lower convex hull of its options, the steps that
 * save most error for a byte first, which also gives a bound that no choice is below. The hull
 * leaves some bytes unused: options beside it, and exchanges of two items, fill them.
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

struct solver {
    const struct qp_budget *budget;
    bool raises; /* items that come first may have wide options alone */
    struct step *steps;
    size_t n_steps;
    bool *is_closed; /* by item: a step did not fit, so that none behind it may be taken */
    size_t *option;
    struct qp_mix mix;
    double bound;
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
        if (all_taken)
            s->bound = s->mix.error - step->slope * (double)left;
        all_taken = false;
        s->is_closed[step->item] = true;
    }
    s->mix = sum(s->budget, s->option);
    if (all_taken)
        s->bound = s->mix.error;
}

/* ---- What the hull leaves ----------------------------------------------------------------------
 */

/* Another option for an item, and what changes. */
struct change {
    size_t item, to;
    uint64_t more, less; /* bytes: one of them is 0 */
    double saved;        /* error; below 0 = it grows */
};

static struct change change_to(const struct solver *s, size_t item, size_t to)
{
    const struct qp_option *from = option_at(s->budget, item, s->option[item]);
    const struct qp_option *o = option_at(s->budget, item, to);
    return (struct change){.item = item,
                           .to = to,
                           .more = o->bytes > from->bytes ? o->bytes - from->bytes : 0,
                           .less = from->bytes > o->bytes ? from->bytes - o->bytes : 0,
                           .saved = from->error - o->error};
}

/* The change that saves most and takes at most so many bytes, among items but one. */
static bool best_change(const struct solver *s, uint64_t room, size_t but, double above,
                        struct change *best)
{
    bool found = false;
    for (size_t i = 0; i < s->budget->n_items; i++) {
        for (size_t to = 0; i != but && to < s->budget->n_options; to++) {
            if (to == s->option[i] || !may_have(s, i, to))
                continue;
            const struct change change = change_to(s, i, to);
            if (change.more > room || change.saved <= above)
                continue;
            above = change.saved;
            *best = change;
            found = true;
        }
    }
    return found;
}

static void apply(struct solver *s, const struct change *change)
{
    s->option[change->item] = change->to;
    s->mix = sum(s->budget, s->option);
}

/* Pairs are as many as the square of what is asked here: more would take longer than they save. */
#define MOST_PAIRED    2048
#define MOST_EXCHANGES 64

/* One item smaller, another one larger for it: the best such exchange, if any saves error. */
static bool exchange(struct solver *s)
{
    struct change down = {0}, up = {0};
    double saved = 0;
    for (size_t i = 0; i < s->budget->n_items; i++) {
        for (size_t to = 0; to < s->budget->n_options; to++) {
            if (to == s->option[i] || !may_have(s, i, to))
                continue;
            const struct change less = change_to(s, i, to);
            struct change more;
            if (less.less == 0)
                continue;
            const uint64_t room = s->budget->bytes - s->mix.bytes + less.less;
            if (!best_change(s, room, i, saved - less.saved, &more))
                continue;
            saved = less.saved + more.saved;
            down = less;
            up = more;
        }
    }
    if (!(saved > 0))
        return false;
    const double before = s->mix.error;
    const size_t of_down = s->option[down.item], of_up = s->option[up.item];
    apply(s, &down);
    apply(s, &up);
    if (s->mix.error < before)
        return true;
    s->option[down.item] = of_down; /* it saved only what rounding makes of it */
    s->option[up.item] = of_up;
    s->mix = sum(s->budget, s->option);
    return false;
}

static void fill(struct solver *s)
{
    struct change change;
    const bool is_small = s->budget->n_items * s->budget->n_options <= MOST_PAIRED;
    const size_t none = s->budget->n_items;
    for (unsigned i = 0; i < MOST_EXCHANGES; i++) {
        while (best_change(s, s->budget->bytes - s->mix.bytes, none, 0, &change))
            apply(s, &change);
        if (!is_small || !exchange(s))
            return;
    }
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
    if (s.steps && s.is_closed && s.option)
        choose(&s, choice);
    else
        status = qp_fail_memory(err, "budget", n * budget->n_options * sizeof *s.steps);
    qp_free(s.steps);
    qp_free(s.is_closed);
    qp_free(s.option);
    return status;
}
