/*
 * pattern.c - grouping names that differ only in numbers.
 *
 * A hash of the name with its numbers left out finds the group. Names come from files, so the table
 * never probes far: a name that finds no place near its own simply begins a line of its own.
 */
#include "pattern.h"

#include "alloc.h"

#include <inttypes.h>
#include <string.h>

#define MAX_PROBES 32

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Walks a name: text up to the next tracked number, then the number. */
struct walk {
    const char *at, *end;
    unsigned numbers;
};

/* Takes a number of at most 9 digits without a leading zero; anything else is text. */
static bool take_number(struct walk *walk, uint64_t *value)
{
    const char *p = walk->at;
    if (walk->numbers == QP_PATTERN_NUMBERS || p == walk->end || !is_digit(*p))
        return false;
    uint64_t number = 0;
    for (; p < walk->end && is_digit(*p); p++) {
        if (p - walk->at == 9)
            return false;
        number = number * 10 + (uint64_t)(*p - '0');
    }
    if (*walk->at == '0' && p - walk->at > 1)
        return false;
    walk->at = p;
    walk->numbers++;
    *value = number;
    return true;
}

/* Steps over a run of digits that is no number, or over one other byte. */
static void take_text(struct walk *walk)
{
    if (!is_digit(*walk->at++))
        return;
    while (walk->at < walk->end && is_digit(*walk->at))
        walk->at++;
}

static uint64_t hash_name(const char *name, size_t n)
{
    struct walk walk = {name, name + n, 0};
    uint64_t hash = 0xcbf29ce484222325u, number;
    while (walk.at < walk.end) {
        const char *from = walk.at;
        if (take_number(&walk, &number)) {
            hash = (hash ^ '#') * 0x100000001b3u;
            continue;
        }
        take_text(&walk);
        for (; from < walk.at; from++)
            hash = (hash ^ (unsigned char)*from) * 0x100000001b3u;
    }
    return hash ^ hash >> 32;
}

static bool same_pattern(const char *a, size_t n_a, const char *b, size_t n_b)
{
    struct walk x = {a, a + n_a, 0}, y = {b, b + n_b, 0};
    uint64_t number;
    while (x.at < x.end && y.at < y.end) {
        const char *from_x = x.at, *from_y = y.at;
        bool number_x = take_number(&x, &number), number_y = take_number(&y, &number);
        if (number_x != number_y)
            return false;
        if (number_x)
            continue;
        take_text(&x);
        take_text(&y);
        if (x.at - from_x != y.at - from_y || memcmp(from_x, from_y, (size_t)(x.at - from_x)) != 0)
            return false;
    }
    return x.at == x.end && y.at == y.end;
}

/* ---- Groups ------------------------------------------------------------------------------------
 */

static void widen(struct qp_group *group, const char *name, size_t n)
{
    struct walk walk = {name, name + n, 0};
    uint64_t number;
    while (walk.at < walk.end) {
        unsigned i = walk.numbers;
        if (!take_number(&walk, &number)) {
            take_text(&walk);
            continue;
        }
        if (group->count == 0 || number < group->low[i])
            group->low[i] = number;
        if (group->count == 0 || number > group->high[i])
            group->high[i] = number;
    }
    group->count++;
}

static struct qp_group *add_group(struct qp_groups *g, size_t item)
{
    if (g->n == g->cap) {
        size_t cap = g->cap ? g->cap * 2 : 64;
        struct qp_group *grown = qp_realloc(g->groups, cap, sizeof *grown);
        if (!grown)
            return NULL;
        g->groups = grown;
        g->cap = cap;
    }
    g->groups[g->n] = (struct qp_group){.first = item};
    return &g->groups[g->n++];
}

/* The group of an item, new if need be; NULL when out of memory. */
static struct qp_group *find_group(struct qp_groups *g, const struct qp_group_source *source,
                                   size_t item)
{
    size_t n, n_other, slot = 0;
    const char *name = source->name(source->ctx, item, &n);
    uint64_t hash = hash_name(name, n);
    bool has_slot = false;
    for (unsigned i = 0; i < MAX_PROBES && !has_slot; i++) {
        slot = (size_t)(hash + i) & (g->table_size - 1);
        has_slot = g->table[slot] == 0;
        if (has_slot)
            break;
        struct qp_group *group = &g->groups[g->table[slot] - 1];
        const char *other = source->name(source->ctx, group->first, &n_other);
        if (source->alike(source->ctx, group->first, item) && same_pattern(other, n_other, name, n))
            return group;
    }
    struct qp_group *group = add_group(g, item);
    if (group && has_slot)
        g->table[slot] = (uint32_t)g->n;
    return group;
}

enum qplan_status qp_groups_make(struct qp_groups *groups, const struct qp_group_source *source,
                                 size_t n, struct qplan_error *err)
{
    *groups = (struct qp_groups){.table_size = 64};
    while (groups->table_size / 2 < n)
        groups->table_size *= 2;
    groups->table = qp_alloc(groups->table_size, sizeof *groups->table);
    groups->of = qp_alloc(n, sizeof *groups->of);
    bool good = groups->table && groups->of;
    for (size_t i = 0; good && i < n; i++) {
        size_t n_name;
        const char *name = source->name(source->ctx, i, &n_name);
        struct qp_group *group = find_group(groups, source, i);
        good = group != NULL;
        if (good) {
            widen(group, name, n_name);
            groups->of[i] = (uint32_t)(group - groups->groups);
        }
    }
    if (good)
        return QPLAN_OK;
    qp_groups_free(groups);
    return qp_fail_memory(err, "report", n * sizeof *groups->table);
}

void qp_groups_free(struct qp_groups *groups)
{
    qp_free(groups->groups);
    qp_free(groups->of);
    qp_free(groups->table);
    *groups = (struct qp_groups){0};
}

static bool is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '\\' || text[i] == '\'')
            return false;
    }
    return true;
}

/* Text of a name between its numbers; mostly plain, else escaped a character at a time. */
static void put_text(struct qp_writer *w, const char *text, size_t n)
{
    char shown[64];
    if (is_plain(text, n)) {
        qp_put(w, text, n);
        return;
    }
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && ((unsigned char)text[end] & 0xc0) == 0x80)
            end++;
        qp_puts(w, qp_escape(shown, sizeof shown, text + i, end - i));
    }
}

void qp_put_pattern(struct qp_writer *w, const struct qp_group *group,
                    const struct qp_group_source *source)
{
    size_t n;
    const char *name = source->name(source->ctx, group->first, &n);
    struct walk walk = {name, name + n, 0};
    if (n == 0)
        qp_puts(w, "''");
    while (walk.at < walk.end) {
        const char *from = walk.at;
        uint64_t number;
        unsigned i = walk.numbers;
        if (take_number(&walk, &number)) {
            if (group->low[i] == group->high[i])
                qp_printf(w, "%" PRIu64, number);
            else
                qp_printf(w, "{%" PRIu64 "..%" PRIu64 "}", group->low[i], group->high[i]);
            continue;
        }
        do
            take_text(&walk);
        while (walk.at < walk.end && !is_digit(*walk.at));
        put_text(w, from, (size_t)(walk.at - from));
    }
}
