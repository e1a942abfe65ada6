/*
 * values.c - strict readers of option values. strtol and its kin are not used: they accept blanks,
 * signs, other bases and trailing text, and argtable's numbers do the same.
 */
#include "values.h"
#include "cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Reads digits at *text up to most and moves *text behind them. */
static bool read_digits(const char **text, uint64_t most, uint64_t *out)
{
    const char *at = *text;
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (at == *text)
        return false;
    *text = at;
    *out = value;
    return true;
}

static enum qplan_status refuse(const char *name, const char *value, const char *expected,
                                struct qplan_error *err)
{
    char flag[CLI_SHOWN], shown[CLI_SHOWN];
    (void)snprintf(flag, sizeof flag, "--%s", name);
    return cli_fail(err, QPLAN_ERR_USAGE, flag, "%s, found '%s'", expected,
                    cli_escape(shown, sizeof shown, value));
}

static bool read_whole(const char *text, struct whole_range range, int64_t *out)
{
    bool negative = *text == '-';
    uint64_t magnitude;
    text += negative;
    if (!read_digits(&text, INT64_MAX, &magnitude) || *text)
        return false;
    int64_t value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    if (value < range.least || value > range.most || (negative && value == 0))
        return false;
    *out = value;
    return true;
}

enum qplan_status value_whole(const struct args *args, const char *name, struct whole_range range,
                              int64_t *out, struct qplan_error *err)
{
    const char *text = args_value(args, name);
    if (!text || read_whole(text, range, out))
        return QPLAN_OK;
    char expected[CLI_SHOWN];
    (void)snprintf(expected, sizeof expected,
                   "expected a whole number from %" PRId64 " to %" PRId64, range.least, range.most);
    return refuse(name, text, expected, err);
}

static bool read_decimal(const char *text, unsigned most, double *out)
{
    uint64_t whole, rest = 0, part = 1;
    if (!read_digits(&text, most, &whole))
        return false;
    if (*text == '.') {
        const char *digits = ++text;
        if (!read_digits(&text, 999999, &rest) || text - digits > 6)
            return false;
        for (ptrdiff_t i = 0; i < text - digits; i++)
            part *= 10;
    }
    const uint64_t parts = whole * part + rest;
    *out = (double)parts / (double)part; /* rounded once */
    return !*text && parts > 0 && parts <= most * part;
}

enum qplan_status value_decimal(const struct args *args, const char *name, unsigned most,
                                double *out, struct qplan_error *err)
{
    const char *text = args_value(args, name);
    if (!text || read_decimal(text, most, out))
        return QPLAN_OK;
    char expected[CLI_SHOWN];
    (void)snprintf(expected, sizeof expected,
                   "expected a decimal number above 0 and up to %u, with up to 6 digits behind "
                   "the point",
                   most);
    return refuse(name, text, expected, err);
}

/* 8388607T and a bit: what a signed file offset can count. */
#define MAX_SIZE ((uint64_t)INT64_MAX)

static bool read_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    uint64_t value;
    if (!read_digits(&text, MAX_SIZE, &value))
        return false;
    unsigned shift = 0;
    const char *unit = *text ? strchr(units, *text) : NULL;
    if (unit) {
        shift = 10 * (unsigned)(unit - units + 1);
        text++;
    }
    if (*text || value < 1 || value > MAX_SIZE >> shift)
        return false;
    *out = value << shift;
    return true;
}

enum qplan_status value_size(const struct args *args, const char *name, uint64_t *out,
                             struct qplan_error *err)
{
    const char *text = args_value(args, name);
    if (!text || read_size(text, out))
        return QPLAN_OK;
    return refuse(name, text,
                  "expected a number of bytes from 1 to 8388607T, such as 4194304 or 4M", err);
}

static bool read_block(const char *text, uint64_t *rows, uint64_t *cols)
{
    uint64_t r, c;
    if (!read_digits(&text, VALUE_MAX_EXTENT, &r) || *text++ != 'x')
        return false;
    if (!read_digits(&text, VALUE_MAX_EXTENT, &c) || *text || r < 1 || c < 1)
        return false;
    *rows = r;
    *cols = c;
    return true;
}

enum qplan_status value_block(const struct args *args, const char *name, uint64_t *rows,
                              uint64_t *cols, struct qplan_error *err)
{
    const char *text = args_value(args, name);
    if (!text || read_block(text, rows, cols))
        return QPLAN_OK;
    return refuse(name, text, "expected ROWSxCOLUMNS, both from 1 to 2^62, as 128x128", err);
}

/* Whether value is one of the words a|b|c; its place goes to *out. */
static bool find_word(const char *words, const char *value, size_t *out)
{
    size_t n = strlen(value);
    for (size_t place = 0; words; place++) {
        size_t len = strcspn(words, "|");
        if (len == n && memcmp(words, value, n) == 0) {
            *out = place;
            return true;
        }
        words = words[len] ? words + len + 1 : NULL;
    }
    return false;
}

/* a|b|c -> "a, b or c" */
static void list_words(char *out, size_t n_out, const char *words)
{
    size_t used = 0;
    out[0] = '\0';
    while (*words && used < n_out) {
        size_t len = strcspn(words, "|");
        const char *rest = words + len + (words[len] != '\0');
        const char *joint = !*rest ? "" : strchr(rest, '|') ? ", " : " or ";
        used += (size_t)snprintf(out + used, n_out - used, "%.*s%s", (int)len, words, joint);
        words = rest;
    }
}

enum qplan_status value_choice(const struct args *args, const char *name, const char *noun,
                               size_t *out, struct qplan_error *err)
{
    const char *text = args_value(args, name);
    if (!text)
        return QPLAN_OK;
    const char *words = args_row(args, name)->value;
    if (find_word(words, text, out))
        return QPLAN_OK;
    char list[CLI_SHOWN], expected[2 * CLI_SHOWN];
    list_words(list, sizeof list, words);
    (void)snprintf(expected, sizeof expected, "unknown %s: expected %s", noun, list);
    return refuse(name, text, expected, err);
}
