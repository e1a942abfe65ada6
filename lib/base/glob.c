/*
 * glob.c - patterns over tensor names, matched by following all the ways through a pattern at once.
 *
 * A state is a position in the pattern where the match may continue; the set of them is kept as
 * bits. All moves that take no byte of the name (over a star, into and out of braces) lead to
 * higher positions, so one ascending pass per byte is enough: time is pattern times name whatever
 * the pattern is, without recursion or memory from the heap.
 */
#include "glob.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

#define WORD_BITS 64
#define N_WORDS   (QP_GLOB_MAX / WORD_BITS)

struct states {
    uint64_t words[N_WORDS];
};

static void add(struct states *states, size_t pos)
{
    states->words[pos / WORD_BITS] |= UINT64_C(1) << pos % WORD_BITS;
}

static bool has(const struct states *states, size_t pos)
{
    return states->words[pos / WORD_BITS] >> pos % WORD_BITS & 1;
}

/* ---- Tokens -----------------------------------------------------------------------------------
 */

/* One byte of a class, or two ends of a range of them. */
struct range {
    unsigned char low, high;
};

/* The byte at *pos, an escape undone; *pos moves behind it. False at the end of the pattern. */
static bool take_byte(const char *pattern, size_t *pos, unsigned char *out)
{
    if (pattern[*pos] == '\\')
        ++*pos;
    if (pattern[*pos] == '\0')
        return false;
    *out = (unsigned char)pattern[(*pos)++];
    return true;
}

/* The next member of a class; *pos moves behind it. False if the class does not end or is wrong. */
static bool take_range(const char *pattern, size_t *pos, struct range *out)
{
    if (!take_byte(pattern, pos, &out->low))
        return false;
    out->high = out->low;
    if (pattern[*pos] != '-' || pattern[*pos + 1] == ']')
        return true;
    ++*pos;
    return take_byte(pattern, pos, &out->high) && out->low <= out->high;
}

/* Where the members of the class that opens at pos begin. */
static size_t class_members(const char *pattern, size_t pos)
{
    return pos + (pattern[pos + 1] == '!' ? 2 : 1);
}

/* The position behind the class that opens at pos, or 0 if it is malformed. */
static size_t class_end(const char *pattern, size_t pos)
{
    size_t at = class_members(pattern, pos);
    struct range range;
    if (pattern[at] == ']')
        return 0;
    while (pattern[at] != ']') {
        if (!take_range(pattern, &at, &range))
            return 0;
    }
    return at + 1;
}

/* Whether the class that opens at pos, which is well formed, has the byte. */
static bool class_has(const char *pattern, size_t pos, unsigned char byte)
{
    bool negated = pattern[pos + 1] == '!', found = false;
    size_t at = class_members(pattern, pos);
    struct range range;
    while (pattern[at] != ']' && take_range(pattern, &at, &range))
        found |= range.low <= byte && byte <= range.high;
    return found != negated;
}

/* The position behind the token at pos, or 0 if the token is malformed. */
static size_t token_end(const char *pattern, size_t pos)
{
    if (pattern[pos] == '[')
        return class_end(pattern, pos);
    if (pattern[pos] == '\\')
        return pattern[pos + 1] ? pos + 2 : 0;
    return pos + 1;
}

/* ---- Checking ---------------------------------------------------------------------------------
 */

static enum qplan_status fail_pattern(struct qplan_error *err, const char *pattern, size_t pos,
                                      const char *problem)
{
    char shown[QP_QUOTED], subject[QP_QUOTED + 8];
    (void)snprintf(subject, sizeof subject, "pattern %s",
                   qp_quote(shown, pattern, strlen(pattern)));
    return qp_fail(err, QPLAN_ERR_USAGE, subject, "%s (at character %zu)", problem, pos + 1);
}

static const char *token_problem(char token)
{
    return token == '[' ? "bad class: expected members in ascending ranges, then ']'"
                        : "nothing to escape: expected a character behind '\\'";
}

enum qplan_status qp_glob_check(const char *pattern, struct qplan_error *err)
{
    bool in_braces = false;
    size_t open = 0, end;
    if (strlen(pattern) >= QP_GLOB_MAX)
        return fail_pattern(err, pattern, QP_GLOB_MAX - 1, "too long: expected at most 1023 bytes");
    for (size_t pos = 0; pattern[pos]; pos = end) {
        end = token_end(pattern, pos);
        if (end == 0)
            return fail_pattern(err, pattern, pos, token_problem(pattern[pos]));
        if (pattern[pos] == '{') {
            if (in_braces)
                return fail_pattern(err, pattern, pos, "braces inside braces");
            in_braces = true;
            open = pos;
        } else if (pattern[pos] == '}') {
            if (!in_braces)
                return fail_pattern(err, pattern, pos, "'}' without '{'");
            in_braces = false;
        }
    }
    if (in_braces)
        return fail_pattern(err, pattern, open, "'{' without '}'");
    return QPLAN_OK;
}

/* ---- Matching ---------------------------------------------------------------------------------
 */

/* A pattern being matched. */
struct matcher {
    const char *pattern;
    size_t n_words;          /* of the sets that the pattern needs */
    struct states commas;    /* those that part alternatives */
    struct states now, next; /* before and behind the byte at hand */
};

static void matcher_init(struct matcher *m, const char *pattern)
{
    bool in_braces = false;
    size_t pos = 0;
    *m = (struct matcher){.pattern = pattern};
    for (; pattern[pos]; pos = token_end(pattern, pos)) {
        if (pattern[pos] == '{' || pattern[pos] == '}')
            in_braces = pattern[pos] == '{';
        else if (pattern[pos] == ',' && in_braces)
            add(&m->commas, pos);
    }
    m->n_words = pos / WORD_BITS + 1;
    add(&m->now, 0);
}

/* The comma or closing brace that ends the alternative in which pos is. */
static size_t alternative_end(const struct matcher *m, size_t pos)
{
    while (m->pattern[pos] != '}' && !has(&m->commas, pos))
        pos = token_end(m->pattern, pos);
    return pos;
}

/* Makes the moves from pos that take no byte. */
static void move_free(struct matcher *m, size_t pos)
{
    switch (m->pattern[pos]) {
    case '*':
    case '}':
        add(&m->now, pos + 1);
        break;
    case '{':
        for (; m->pattern[pos] != '}'; pos = alternative_end(m, pos + 1))
            add(&m->now, pos + 1);
        break;
    case ',':
        /* Behind an alternative: from comma to comma to the closing brace. */
        if (has(&m->commas, pos))
            add(&m->now, alternative_end(m, pos + 1));
        break;
    default:
        break;
    }
}

/* Makes the move from pos that takes byte, if there is one. */
static void move_over(struct matcher *m, size_t pos, unsigned char byte)
{
    const char *pattern = m->pattern;
    switch (pattern[pos]) {
    case '*':
        add(&m->next, pos);
        break;
    case '?':
        add(&m->next, pos + 1);
        break;
    case '[':
        if (class_has(pattern, pos, byte))
            add(&m->next, class_end(pattern, pos));
        break;
    case '\0':
    case '{':
    case '}':
        break;
    case '\\':
        if ((unsigned char)pattern[pos + 1] == byte)
            add(&m->next, pos + 2);
        break;
    default:
        if ((unsigned char)pattern[pos] == byte && !has(&m->commas, pos))
            add(&m->next, pos + 1);
        break;
    }
}

/* Follows every state over the byte, or only its free moves for a byte of -1. */
static void step(struct matcher *m, int byte)
{
    for (size_t w = 0; w < m->n_words; w++) {
        uint64_t done = 0, left;
        while ((left = m->now.words[w] & ~done) != 0) {
            unsigned bit = (unsigned)__builtin_ctzll(left);
            size_t pos = w * WORD_BITS + bit;
            done |= UINT64_C(1) << bit;
            move_free(m, pos);
            if (byte >= 0)
                move_over(m, pos, (unsigned char)byte);
        }
    }
}

static bool advance(struct matcher *m, unsigned char byte)
{
    uint64_t alive = 0;
    step(m, byte);
    for (size_t w = 0; w < m->n_words; w++) {
        alive |= m->next.words[w];
        m->now.words[w] = m->next.words[w];
        m->next.words[w] = 0;
    }
    return alive != 0;
}

bool qp_glob_match(const char *pattern, const char *name, size_t n)
{
    struct matcher m;
    matcher_init(&m, pattern);
    for (size_t i = 0; i < n; i++) {
        if (!advance(&m, (unsigned char)name[i]))
            return false;
    }
    step(&m, -1);
    return has(&m.now, strlen(pattern));
}
