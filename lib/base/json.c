/*
 * json.c - the strict reader of JSON. The writing side is json_write.c.
 *
 * One pass, no recursion, no allocation: the containers that are open are bits of one word. It
 * never turns a number into a double and never copies a string.
 */
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What may come next. */
enum expect {
    EXPECT_VALUE,        /* the root, or behind a key or a comma of an array */
    EXPECT_VALUE_OR_END, /* behind [ */
    EXPECT_KEY,          /* behind a comma of an object */
    EXPECT_KEY_OR_END,   /* behind { */
    EXPECT_COMMA_OR_END, /* behind a value in a container */
    EXPECT_NOTHING       /* behind the root */
};

void qp_json_init(struct qp_json *json, char *text, size_t n, uint64_t base, unsigned max_depth,
                  const char *subject)
{
    *json = (struct qp_json){.text = text, .n = n, .base = base, .subject = subject};
    json->max_depth = max_depth;
    json->expect = EXPECT_VALUE;
}

const char *qp_json_type_name(enum qp_json_type type)
{
    static const char *const names[] = {
        [QP_JSON_END] = "the end",
        [QP_JSON_OBJECT] = "an object",
        [QP_JSON_OBJECT_END] = "the end of an object",
        [QP_JSON_ARRAY] = "an array",
        [QP_JSON_ARRAY_END] = "the end of an array",
        [QP_JSON_KEY] = "a key",
        [QP_JSON_STRING] = "a string",
        [QP_JSON_NUMBER] = "a number",
        [QP_JSON_TRUE] = "true",
        [QP_JSON_FALSE] = "false",
        [QP_JSON_NULL] = "null",
    };
    return names[type];
}

/* ---- Errors ---------------------------------------------------------------------------------- */

/* What stands at the reading position, in words. */
static const char *found(char out[16], const struct qp_json *json)
{
    if (json->pos >= json->n)
        return "the end";
    if (json->n - json->pos >= 3 && memcmp(json->text + json->pos, "\xef\xbb\xbf", 3) == 0)
        return "a byte order mark (BOM)";
    unsigned char c = (unsigned char)json->text[json->pos];
    (void)snprintf(out, 16, c > 0x20 && c < 0x7f && c != '\'' ? "'%c'" : "0x%02x", c);
    return out;
}

static enum qplan_status unexpected(const struct qp_json *json, const char *expected,
                                    struct qplan_error *err)
{
    char buffer[16];
    return qp_fail_at(err, QPLAN_ERR_INVALID, json->subject, json->base + json->pos,
                      "not valid JSON: expected %s, found %s", expected, found(buffer, json));
}

/* A fault at a place inside a string. */
static enum qplan_status bad_string(const struct qp_json *json, size_t pos, const char *what,
                                    struct qplan_error *err)
{
    return qp_fail_at(err, QPLAN_ERR_INVALID, json->subject, json->base + pos,
                      "not valid JSON: %s in a string", what);
}

/* ---- Strings --------------------------------------------------------------------------------- */

/* The four hex digits at pos. */
static bool hex4(const struct qp_json *json, size_t pos, uint32_t *out)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    uint32_t value = 0;
    for (size_t end = pos + 4; pos < end; pos++) {
        const char *at = pos < json->n ? memchr(digits, json->text[pos], sizeof digits - 1) : NULL;
        if (!at)
            return false;
        uint32_t digit = (uint32_t)(at - digits);
        value = value << 4 | (digit < 16 ? digit : digit - 6);
    }
    *out = value;
    return true;
}

/* The escape \uXXXX at *in, or the pair of them that a character above U+FFFF needs. */
static enum qplan_status unicode_escape(const struct qp_json *json, size_t *in, uint32_t *code,
                                        struct qplan_error *err)
{
    uint32_t high, low;
    if (!hex4(json, *in + 2, &high))
        return bad_string(json, *in, "\\u without four hex digits", err);
    if (high < 0xd800 || high > 0xdfff) {
        *code = high;
        *in += 6;
        return QPLAN_OK;
    }
    bool paired = high < 0xdc00 && json->n - *in >= 12 &&
                  memcmp(json->text + *in + 6, "\\u", 2) == 0 && hex4(json, *in + 8, &low) &&
                  low >= 0xdc00 && low <= 0xdfff;
    if (!paired)
        return bad_string(json, *in, "a surrogate without its other half", err);
    *code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    *in += 12;
    return QPLAN_OK;
}

/* Decodes the escape at *in to *out, which is never longer than the escape. */
static enum qplan_status read_escape(struct qp_json *json, size_t *in, size_t *out,
                                     struct qplan_error *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = json->n - *in < 2 ? '\0' : json->text[*in + 1];
    if (c == 'u') {
        uint32_t code = 0;
        QP_TRY(unicode_escape(json, in, &code, err));
        *out += qp_utf8_encode(json->text + *out, code);
        return QPLAN_OK;
    }
    const char *at = memchr(from, c, sizeof from - 1);
    if (!at)
        return bad_string(json, *in, "an unknown escape", err);
    json->text[*out] = to[at - from];
    *in += 2;
    *out += 1;
    return QPLAN_OK;
}

/* One character of a string that does not stand for itself. */
static enum qplan_status read_special(struct qp_json *json, size_t *in, size_t *out,
                                      struct qplan_error *err)
{
    unsigned char c = (unsigned char)json->text[*in];
    if (c == '\\')
        return read_escape(json, in, out, err);
    if (c < 0x20)
        return bad_string(json, *in, "a raw control character", err);
    uint32_t code;
    size_t len = qp_utf8_decode(json->text + *in, json->n - *in, &code);
    if (len == 0)
        return bad_string(json, *in, "invalid UTF-8", err);
    memmove(json->text + *out, json->text + *in, len);
    *in += len;
    *out += len;
    return QPLAN_OK;
}

/* The string at the reading position, decoded in place: it begins where it began. */
static enum qplan_status read_string(struct qp_json *json, struct qp_json_token *token,
                                     struct qplan_error *err)
{
    size_t begin = json->pos + 1, in = begin, out = begin;
    for (;;) {
        size_t run = qp_json_plain_run(json->text + in, json->n - in);
        if (out != in)
            memmove(json->text + out, json->text + in, run);
        in += run;
        out += run;
        if (in == json->n)
            return qp_fail_at(err, QPLAN_ERR_INVALID, json->subject, json->base + in,
                              "not valid JSON: the string from byte %" PRIu64
                              " is not closed: expected a quote, found the end",
                              token->at);
        if (json->text[in] == '"')
            break;
        QP_TRY(read_special(json, &in, &out, err));
    }
    json->text[out] = '\0';
    token->text = json->text + begin;
    token->n = out - begin;
    json->pos = in + 1;
    return QPLAN_OK;
}

/* ---- Grammar --------------------------------------------------------------------------------- */

static void skip_blanks(struct qp_json *json)
{
    size_t pos = json->pos;
    while (pos < json->n && (json->text[pos] == ' ' || json->text[pos] == '\n' ||
                             json->text[pos] == '\r' || json->text[pos] == '\t'))
        pos++;
    json->pos = pos;
}

/* True if c is the next character. */
static bool next_is(const struct qp_json *json, char c)
{
    return json->pos < json->n && json->text[json->pos] == c;
}

/* Passes c if it is the next character. */
static bool take(struct qp_json *json, char c)
{
    bool taken = next_is(json, c);
    json->pos += taken;
    return taken;
}

static bool in_object(const struct qp_json *json)
{
    return json->in_object >> (json->depth - 1) & 1;
}

static void value_done(struct qp_json *json)
{
    json->expect = json->depth > 0 ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
}

static enum qplan_status open_container(struct qp_json *json, struct qp_json_token *token,
                                        bool object, struct qplan_error *err)
{
    if (json->depth >= json->max_depth)
        return qp_fail_at(err, QPLAN_ERR_INVALID, json->subject, token->at,
                          "JSON nested too deep: expected depth %u at most, found %u",
                          json->max_depth, json->depth + 1);
    uint64_t bit = (uint64_t)1 << json->depth;
    json->in_object = object ? json->in_object | bit : json->in_object & ~bit;
    json->depth++;
    json->pos++;
    json->expect = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
    token->type = object ? QP_JSON_OBJECT : QP_JSON_ARRAY;
    return QPLAN_OK;
}

static enum qplan_status close_container(struct qp_json *json, struct qp_json_token *token)
{
    token->type = in_object(json) ? QP_JSON_OBJECT_END : QP_JSON_ARRAY_END;
    json->depth--;
    json->pos++;
    value_done(json);
    return QPLAN_OK;
}

static enum qplan_status read_key(struct qp_json *json, struct qp_json_token *token,
                                  struct qplan_error *err)
{
    bool may_close = json->expect == EXPECT_KEY_OR_END;
    if (!next_is(json, '"'))
        return unexpected(json, may_close ? "a key in quotes or '}'" : "a key in quotes", err);
    QP_TRY(read_string(json, token, err));
    skip_blanks(json);
    if (!take(json, ':'))
        return unexpected(json, "':'", err);
    json->expect = EXPECT_VALUE;
    token->type = QP_JSON_KEY;
    return QPLAN_OK;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static enum qplan_status read_digits(struct qp_json *json, struct qplan_error *err)
{
    size_t begin = json->pos;
    while (json->pos < json->n && is_digit(json->text[json->pos]))
        json->pos++;
    return json->pos > begin ? QPLAN_OK : unexpected(json, "a digit", err);
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static enum qplan_status read_number(struct qp_json *json, struct qp_json_token *token,
                                     struct qplan_error *err)
{
    size_t begin = json->pos;
    (void)take(json, '-');
    if (!take(json, '0')) /* a digit behind a 0 is refused later, as no comma */
        QP_TRY(read_digits(json, err));
    if (take(json, '.'))
        QP_TRY(read_digits(json, err));
    if (take(json, 'e') || take(json, 'E')) {
        (void)(take(json, '+') || take(json, '-'));
        QP_TRY(read_digits(json, err));
    }
    token->type = QP_JSON_NUMBER;
    token->n = json->pos - begin;
    return QPLAN_OK;
}

static enum qplan_status read_word(struct qp_json *json, struct qp_json_token *token,
                                   const char *word, enum qp_json_type type,
                                   struct qplan_error *err)
{
    for (size_t i = 0; word[i]; i++) {
        if (!take(json, word[i]))
            return unexpected(json, word, err);
    }
    token->type = type;
    return QPLAN_OK;
}

static enum qplan_status read_scalar(struct qp_json *json, struct qp_json_token *token, char c,
                                     struct qplan_error *err)
{
    if (c == '"') {
        token->type = QP_JSON_STRING;
        return read_string(json, token, err);
    }
    if (c == '-' || is_digit(c))
        return read_number(json, token, err);
    if (c == 't')
        return read_word(json, token, "true", QP_JSON_TRUE, err);
    if (c == 'f')
        return read_word(json, token, "false", QP_JSON_FALSE, err);
    if (c == 'n')
        return read_word(json, token, "null", QP_JSON_NULL, err);
    return unexpected(json, json->expect == EXPECT_VALUE ? "a value" : "a value or ']'", err);
}

static enum qplan_status read_value(struct qp_json *json, struct qp_json_token *token,
                                    struct qplan_error *err)
{
    char c = json->pos < json->n ? json->text[json->pos] : '\0';
    if (c == '{' || c == '[')
        return open_container(json, token, c == '{', err);
    QP_TRY(read_scalar(json, token, c, err));
    value_done(json);
    return QPLAN_OK;
}

/* Passes the comma behind a value, if the container goes on. */
static enum qplan_status read_comma(struct qp_json *json, struct qplan_error *err)
{
    bool object = in_object(json);
    if (!take(json, ','))
        return unexpected(json, object ? "',' or '}'" : "',' or ']'", err);
    skip_blanks(json);
    json->expect = object ? EXPECT_KEY : EXPECT_VALUE;
    return QPLAN_OK;
}

enum qplan_status qp_json_next(struct qp_json *json, struct qp_json_token *token,
                               struct qplan_error *err)
{
    skip_blanks(json);
    token->n = 0;
    token->at = json->base + json->pos;
    if (json->expect == EXPECT_NOTHING) {
        token->type = QP_JSON_END;
        return json->pos == json->n ? QPLAN_OK : unexpected(json, "only blanks at the end", err);
    }
    bool may_close = json->expect != EXPECT_VALUE && json->expect != EXPECT_KEY;
    if (may_close && next_is(json, in_object(json) ? '}' : ']'))
        return close_container(json, token);
    if (json->expect == EXPECT_COMMA_OR_END)
        QP_TRY(read_comma(json, err));
    token->at = json->base + json->pos;
    token->text = json->text + json->pos;
    if (json->expect == EXPECT_KEY || json->expect == EXPECT_KEY_OR_END)
        return read_key(json, token, err);
    return read_value(json, token, err);
}

bool qp_json_u64(const struct qp_json_token *token, uint64_t *out, bool *too_large)
{
    *too_large = false;
    if (token->type != QP_JSON_NUMBER)
        return false;
    uint64_t value = 0;
    bool fits = true;
    for (size_t i = 0; i < token->n; i++) {
        const char c = token->text[i];
        if (!is_digit(c))
            return false;
        /* Eighteen digits always fit. */
        fits = i < 18 || (fits && value <= (INT64_MAX - (uint64_t)(c - '0')) / 10);
        value = fits ? value * 10 + (uint64_t)(c - '0') : 0;
    }
    *too_large = !fits;
    if (fits)
        *out = value;
    return fits;
}
