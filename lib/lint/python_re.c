/*
 * python_re.c - a pattern of Python's re becomes a POSIX extended one: for the question whether
 * there is a match at all, greed makes no difference, and what is left differs in spelling only.
 */
#include "python_re.h"

#include "lib/base/text.h"

/* A translation takes at the most 16 bytes for one. Groups in each other are few: a repeated one
 * may take twice the room of what is inside. */
#define ROOM       (16 * QP_PYTHON_RE_MOST + 16)
#define MOST_DEPTH 8

struct translator {
    const char *at;
    unsigned depth; /* of groups */
    char out[ROOM];
    size_t n;
};

static void put(struct translator *t, const char *text)
{
    const size_t n = strlen(text);
    memcpy(t->out + t->n, text, n);
    t->n += n;
}

static void put_literal(struct translator *t, char c)
{
    const char text[3] = {'\\', c, '\0'};
    put(t, strchr("\\^$*+?()[]{}|.", c) ? text : text + 1);
}

/* The set that a letter behind a backslash stands for, for the inside of brackets; or NULL. */
static const char *escaped_set(char c)
{
    return c == 'd' ? "0-9" : c == 'w' ? "A-Za-z0-9_" : c == 's' ? "[:space:]" : NULL;
}

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* A backslash: a set, or a character that stands for itself. */
static bool put_escape(struct translator *t)
{
    const char c = *++t->at;
    const char *set = escaped_set(c);
    if (set) {
        put(t, "[");
        put(t, set);
        put(t, "]");
    } else if (c == '\0' || is_letter_or_digit(c)) {
        return false;
    } else {
        put_literal(t, c);
    }
    t->at++;
    return true;
}

/* A class: its members are put by themselves, for POSIX has no backslash there. */
static bool put_class(struct translator *t)
{
    const bool negated = t->at[1] == '^';
    bool has_bracket = false, has_caret = false, has_minus = false;
    const size_t begin = t->n;
    t->at += negated ? 2 : 1;
    put(t, negated ? "[^" : "[");
    const size_t first = t->n;
    do {
        char c = *t->at;
        const char *set = NULL;
        const bool is_escaped = c == '\\';
        if (is_escaped)
            c = *++t->at;
        if (c == '\0' || (!is_escaped && c == '['))
            return false;
        if (is_escaped && is_letter_or_digit(c) && !(set = escaped_set(c)))
            return false;
        const bool is_range = !is_escaped && t->at[1] == '-' && is_letter_or_digit(c) &&
                              is_letter_or_digit(t->at[2]) && c <= t->at[2];
        if (set) {
            put(t, set);
        } else if (is_range) {
            put(t, (const char[4]){c, '-', t->at[2], '\0'});
            t->at += 2;
        } else {
            has_bracket |= c == ']';
            has_caret |= c == '^';
            has_minus |= c == '-';
            if (c != ']' && c != '^' && c != '-')
                put(t, (const char[2]){c, '\0'});
        }
        t->at++;
    } while (*t->at != ']');
    t->at++;
    if (has_bracket) { /* a bracket comes first, a minus last, and a caret not first */
        memmove(t->out + first + 1, t->out + first, t->n - first);
        t->out[first] = ']';
        t->n++;
    }
    if (has_caret && t->n == first && !negated) {
        t->n = begin;
        put(t, "\\^");
        return !has_minus;
    }
    put(t, has_caret ? "^" : "");
    put(t, has_minus ? "-]" : "]");
    return true;
}

static bool translate_one(struct translator *t)
{
    static const char *const kept[] = {")", "|", "^", "$", "."};
    if (*t->at == '\\')
        return put_escape(t);
    if (*t->at == '[')
        return put_class(t);
    if (*t->at == ')' && t->depth-- == 0)
        return false;
    if (*t->at == '(') {
        put(t, "(");
        t->at += 1;
        t->depth++;
        if (strncmp(t->at, "?:", 2) == 0)
            t->at += 2;
        return t->depth <= MOST_DEPTH && *t->at && !strchr("*+?", *t->at);
    }
    if (strchr("*+?", *t->at)) {
        put(t, (const char[2]){*t->at++, '\0'});
        t->at += *t->at == '?'; /* lazy: the match is another one, but there is one */
        return !*t->at || !strchr("*+?", *t->at);
    }
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (*t->at == kept[i][0]) {
            put(t, kept[i]);
            t->at++;
            return true;
        }
    }
    if (*t->at == '{' || *t->at == '}' || *t->at == ']')
        return false;
    put_literal(t, *t->at++);
    return true;
}

/*
 * The literal end of a pattern that ends with $ and has no alternatives: most patterns of long
 * lists have one, and most names do not end so.
 */
static void find_tail(struct qp_python_re *re, const char *pattern)
{
    size_t end = strlen(pattern), at = QP_PYTHON_RE_MOST;
    if (end == 0 || pattern[end - 1] != '$' || strchr(pattern, '|'))
        return;
    for (end--; end > 0;) {
        if (end >= 3 && strncmp(pattern + end - 3, "[.]", 3) == 0) {
            re->tail[--at] = '.';
            end -= 3;
        } else if (is_letter_or_digit(pattern[end - 1]) || pattern[end - 1] == '_') {
            re->tail[--at] = pattern[end - 1];
            end--;
        } else {
            break;
        }
    }
    if (end > 0 && pattern[end - 1] == '\\')
        at++; /* its letter is a set */
    re->n_tail = at < QP_PYTHON_RE_MOST ? QP_PYTHON_RE_MOST - at : 0;
    memmove(re->tail, re->tail + QP_PYTHON_RE_MOST - re->n_tail, re->n_tail);
}

void qp_python_re_make(struct qp_python_re *re, const char *pattern)
{
    struct translator t = {.at = pattern};
    bool is_good = strlen(pattern) < QP_PYTHON_RE_MOST;
    re->is_understood = false;
    re->n_tail = 0;
    put(&t, "^("); /* re.match begins at the begin, and ends anywhere */
    while (is_good && *t.at)
        is_good = translate_one(&t);
    put(&t, ")");
    t.out[t.n] = '\0';
    if (!is_good || regcomp(&re->compiled, t.out, REG_EXTENDED | REG_NOSUB) != 0)
        return;
    re->is_understood = true;
    find_tail(re, pattern);
}

void qp_python_re_free(struct qp_python_re *re)
{
    if (re->is_understood)
        regfree(&re->compiled);
    re->is_understood = false;
}

bool qp_python_re_match(const struct qp_python_re *re, const char *name)
{
    const size_t n = strlen(name);
    return re->is_understood && n >= re->n_tail &&
           memcmp(name + n - re->n_tail, re->tail, re->n_tail) == 0 &&
           regexec(&re->compiled, name, 0, NULL, 0) == 0;
}
