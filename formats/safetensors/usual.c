/*
 * usual.c - the fields of a tensor in the form that writers give them, read without tokens:
 *
 *     {"dtype":"BF16","shape":[64,64],"data_offsets":[0,8192]}
 *
 * A header may have very many of these. It accepts a part of what header.c does and never says what
 * is wrong: anything else is left to the tokens there, faults too.
 */
#include "internal.h"

#include "../../lib/base/dtype.h"

#include <string.h>

struct scan {
    const char *at, *end;
};

static inline bool pass(struct scan *s, const char *text, size_t n)
{
    if ((size_t)(s->end - s->at) < n || memcmp(s->at, text, n) != 0)
        return false;
    s->at += n;
    return true;
}

#define PASS(s, literal) pass(s, literal, sizeof(literal) - 1)

/* Digits that no sum overflows with: 10^18 is below 2^63, the limit of qp_json_u64. */
#define MAX_DIGITS 18

/* 0|[1-9][0-9]* of at most MAX_DIGITS. */
static inline bool read_integer(struct scan *s, uint64_t *out)
{
    const char *const begin = s->at, *at = begin;
    const char *const end = s->end - begin > MAX_DIGITS ? begin + MAX_DIGITS : s->end;
    uint64_t value = 0;
    for (; at < end && (unsigned char)(*at - '0') < 10; at++)
        value = value * 10 + (unsigned char)(*at - '0');
    s->at = at;
    *out = value;
    return at > begin && (*begin != '0' || at == begin + 1);
}

/* An array of at most cap integers. */
static bool read_list(struct scan *s, uint64_t *list, unsigned cap, unsigned *n)
{
    *n = 0;
    if (!PASS(s, "["))
        return false;
    if (PASS(s, "]"))
        return true;
    do {
        if (*n == cap || !read_integer(s, &list[(*n)++]))
            return false;
    } while (PASS(s, ","));
    return PASS(s, "]");
}

static bool read_storage(struct scan *s, enum qplan_storage *storage)
{
    const char *before = qplan_storage_name(*storage);
    if (pass(s, before, strlen(before)) && PASS(s, "\""))
        return true;
    const char *quote = memchr(s->at, '"', (size_t)(s->end - s->at));
    if (!quote || !qp_storage_find(s->at, (size_t)(quote - s->at), storage))
        return false;
    s->at = quote + 1;
    return true;
}

size_t qp_st_usual_fields(const char *text, size_t n, struct qp_st_fields *out)
{
    struct scan s = {text, text + n};
    unsigned n_range;
    const bool usual =
        PASS(&s, "{\"dtype\":\"") && read_storage(&s, &out->storage) && PASS(&s, ",\"shape\":") &&
        read_list(&s, out->shape, QPLAN_MAX_RANK, &out->rank) && PASS(&s, ",\"data_offsets\":") &&
        read_list(&s, out->range, 2, &n_range) && n_range == 2 && PASS(&s, "}");
    return usual ? (size_t)(s.at - text) : 0;
}
