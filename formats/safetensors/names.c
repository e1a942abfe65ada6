/*
 * names.c - putting records in the byte-wise order of their names, and finding equal names.
 *
 * Sorted, not hashed: no input makes it slow. The next 8 bytes behind what all names have in common
 * are kept beside each name, so that few comparisons have to look at the names themselves.
 */
#include "internal.h"

#include "lib/base/alloc.h"

#include <string.h>

struct item {
    uint64_t key;     /* 8 bytes of the name as a number, the first byte the highest */
    const char *text; /* of the name */
    uint32_t n, index;
};

int qp_st_compare(struct qp_st_name a, struct qp_st_name b)
{
    return qp_compare_text(a.text, a.n, b.text, b.n);
}

static bool is_before(const struct item *x, const struct item *y)
{
    return x->key != y->key ? x->key < y->key : qp_compare_text(x->text, x->n, y->text, y->n) < 0;
}

/* Of the first `most` bytes of a, how many b begins with. */
static size_t common_length(const struct item *a, const struct item *b, size_t most)
{
    size_t n = 0;
    while (n < most && n < b->n && a->text[n] == b->text[n])
        n++;
    return n;
}

/* The bytes from skip on, with zeros behind the end: a prefix then sorts before what it begins. */
static uint64_t key_of(const struct item *item, size_t skip)
{
    uint64_t key = 0;
    for (size_t i = skip; i < skip + 8; i++)
        key = key << 8 | (i < item->n ? (unsigned char)item->text[i] : 0);
    return key;
}

/* Where the items that ascend from `at` on end. */
static size_t run_end(const struct item *items, size_t at, size_t n)
{
    size_t end = at + 1;
    while (end < n && !is_before(&items[end], &items[end - 1]))
        end++;
    return end < n ? end : n;
}

/* Merges n items, of which the first n_first and the others are in order; equal ones keep theirs.
 */
static void merge(const struct item *items, size_t n_first, size_t n, struct item *out)
{
    size_t i = 0, k = n_first;
    while (i < n_first && k < n)
        *out++ = is_before(&items[k], &items[i]) ? items[k++] : items[i++];
    for (; i < n_first; i++)
        *out++ = items[i];
    for (; k < n; k++)
        *out++ = items[k];
}

/*
 * Files have their names in order, or in a few runs that are in order, one for each width: so runs
 * are found and merged by twos until one is left. Returns where the sorted items are.
 */
static struct item *sort_items(struct item *items, struct item *spare, size_t n)
{
    size_t common = n > 0 ? items[0].n : 0, n_runs = 2;
    for (size_t i = 1; i < n; i++)
        common = common_length(&items[0], &items[i], common);
    for (size_t i = 0; i < n; i++)
        items[i].key = key_of(&items[i], common);
    while (n_runs > 1) {
        n_runs = 0;
        for (size_t at = 0, end; at < n; at = end, n_runs++) {
            const size_t middle = run_end(items, at, n);
            end = middle < n ? run_end(items, middle, n) : n;
            merge(items + at, middle - at, end - at, spare + at);
        }
        struct item *sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}

bool qp_st_ascending(const void *records, size_t n, size_t size, qp_st_name_fn name_of)
{
    const char *record = records;
    struct qp_st_name before = n ? name_of(record) : (struct qp_st_name){"", 0};
    for (size_t i = 1; i < n; i++) {
        const struct qp_st_name name = name_of(record += size);
        if (qp_st_compare(before, name) >= 0)
            return false;
        before = name;
    }
    return true;
}

void *qp_st_sort(void *records, size_t n, size_t size, qp_st_name_fn name_of)
{
    char *from = records, *sorted = qp_alloc(n, size);
    struct item *items = qp_alloc(n, 2 * sizeof *items);
    if (sorted && items) {
        for (size_t i = 0; i < n; i++) {
            const struct qp_st_name name = name_of(from + i * size);
            items[i] = (struct item){0, name.text, (uint32_t)name.n, (uint32_t)i};
        }
        const struct item *in_order = sort_items(items, items + n, n);
        for (size_t i = 0; i < n; i++)
            memcpy(sorted + i * size, from + in_order[i].index * size, size);
        qp_free(records);
    } else {
        qp_free(sorted);
        sorted = NULL;
    }
    qp_free(items);
    return sorted;
}

size_t qp_st_duplicate(const void *records, size_t n, size_t size, qp_st_name_fn name_of)
{
    const char *record = records;
    for (size_t i = 1; i < n; i++, record += size) {
        if (qp_st_compare(name_of(record), name_of(record + size)) == 0)
            return i;
    }
    return 0;
}
