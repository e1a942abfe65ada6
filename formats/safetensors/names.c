/*
 * names.c - putting records in the byte-wise order of their names, and finding equal names.
 *
 * Sorted, not hashed: no input makes it slow. The next 8 bytes behind what all names have in common
 * are kept beside each name, so that few comparisons have to look at the names themselves.
 */
#include "internal.h"

#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

struct item {
    uint64_t key; /* 8 bytes of the name as a number, the first byte the highest */
    struct qp_st_name name;
    size_t index;
};

int qp_st_compare(struct qp_st_name a, struct qp_st_name b)
{
    return qp_compare_text(a.text, a.n, b.text, b.n);
}

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    int order = qp_st_compare(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static size_t common_length(struct qp_st_name a, struct qp_st_name b, size_t most)
{
    size_t n = 0;
    while (n < most && n < a.n && n < b.n && a.text[n] == b.text[n])
        n++;
    return n;
}

/* The bytes from skip on, with zeros behind the end: a prefix then sorts before what it begins. */
static uint64_t key_of(struct qp_st_name name, size_t skip)
{
    uint64_t key = 0;
    for (size_t i = skip; i < skip + 8; i++)
        key = key << 8 | (i < name.n ? (unsigned char)name.text[i] : 0);
    return key;
}

static void sort_items(struct item *items, size_t n)
{
    size_t common = items[0].name.n;
    for (size_t i = 1; i < n; i++)
        common = common_length(items[0].name, items[i].name, common);
    for (size_t i = 0; i < n; i++)
        items[i].key = key_of(items[i].name, common);
    qsort(items, n, sizeof *items, compare_items);
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
    struct item *items = qp_alloc(n, sizeof *items);
    if (sorted && items) {
        for (size_t i = 0; i < n; i++)
            items[i] = (struct item){.name = name_of(from + i * size), .index = i};
        sort_items(items, n);
        for (size_t i = 0; i < n; i++)
            memcpy(sorted + i * size, from + items[i].index * size, size);
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
