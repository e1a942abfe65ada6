/*
 * json_write.c - the writing side of JSON: no blanks, commas by itself, one escape form.
 *
 * The bit of the current depth in qp_writer.open says whether a comma is due. A key clears it, so
 * that the value behind the key gets none. The same calls always give the same bytes.
 */
#include "json.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <string.h>

static uint64_t bit_of(const struct qp_writer *w)
{
    return (uint64_t)1 << w->depth;
}

/* Everything that stands before a value or a key. */
static void begin(struct qp_writer *w)
{
    if (w->depth > 0 && (w->open & bit_of(w)))
        qp_put(w, ",", 1);
    w->open |= bit_of(w);
}

void qp_json_open(struct qp_writer *w, char bracket)
{
    begin(w);
    qp_put(w, &bracket, 1);
    if (w->depth + 1 >= QP_JSON_MAX_DEPTH) {
        w->error = w->error ? w->error : EOVERFLOW;
        return;
    }
    w->depth++;
    w->open &= ~bit_of(w);
}

void qp_json_close(struct qp_writer *w, char bracket)
{
    if (w->depth > 0)
        w->depth--;
    qp_put(w, &bracket, 1);
}

#define EACH_BYTE(c) (UINT64_C(0x0101010101010101) * (c))

/*
 * The highest bit of each byte of x that is 0. A byte above such a one may have it wrongly, because
 * of the borrow; the lowest is always right.
 */
static uint64_t zero_bytes(uint64_t x)
{
    return (x - EACH_BYTE(0x01)) & ~x & EACH_BYTE(0x80);
}

/* The highest bit of each byte of x that does not stand for itself; the lowest is always right. */
static uint64_t special_bytes(uint64_t x)
{
    uint64_t control = (x - EACH_BYTE(0x20)) & ~x; /* below 0x20, with the same borrow */
    uint64_t others = zero_bytes(x ^ EACH_BYTE('"')) | zero_bytes(x ^ EACH_BYTE('\\'));
    return ((control | x) & EACH_BYTE(0x80)) | others;
}

static bool is_plain(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

/* Plain bytes before the first special one of eight; 8 if there is none. */
static size_t plain_of_eight(const char *text)
{
    uint64_t x;
    memcpy(&x, text, sizeof x);
    uint64_t special = special_bytes(le64toh(x));
    return special ? (unsigned)__builtin_ctzll(special) / 8 : 8;
}

size_t qp_json_plain_run(const char *text, size_t n)
{
    size_t i = 0, plain;
    for (; n - i >= 8; i += 8) {
        plain = plain_of_eight(text + i);
        if (plain < 8)
            return i + plain;
    }
    if (n >= 8) /* the last eight: some of them again, which are plain */
        return i == n ? n : n - 8 + plain_of_eight(text + n - 8);
    while (i < n && is_plain(text[i]))
        i++;
    return i;
}

/* Bytes at the front of text that are written as they are. */
static size_t raw_run(const char *text, size_t n)
{
    size_t i = 0, len;
    uint32_t code;
    for (;;) {
        i += qp_json_plain_run(text + i, n - i);
        if (i == n || (unsigned char)text[i] < 0x80)
            return i;
        len = qp_utf8_decode(text + i, n - i, &code);
        if (len == 0)
            return i;
        i += len;
    }
}

static void put_escape(struct qp_writer *w, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    if (c >= 0x80) {
        qp_puts(w, "\xef\xbf\xbd"); /* U+FFFD for a byte that is not UTF-8 */
    } else if (c < 0x20) {
        char escape[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        qp_put(w, escape, sizeof escape);
    } else {
        char escape[] = {'\\', (char)c};
        qp_put(w, escape, sizeof escape);
    }
}

/* A string that needs no escape, where there is room for it: mostly so. */
static bool put_plain(struct qp_writer *w, const char *text, size_t n)
{
    if (w->error || n >= w->cap - w->n || w->cap - w->n - n < 2 || qp_json_plain_run(text, n) < n)
        return false;
    char *to = w->data + w->n;
    to[0] = '"';
    if (n > 0) /* of a writer that has no memory the text is NULL */
        memcpy(to + 1, text, n);
    to[n + 1] = '"';
    w->n += n + 2;
    return true;
}

static void put_escaped(struct qp_writer *w, const char *text, size_t n)
{
    while (n > 0) {
        size_t run = raw_run(text, n);
        qp_put(w, text, run);
        if (run < n)
            put_escape(w, (unsigned char)text[run++]);
        text += run;
        n -= run;
    }
}

static void put_quoted(struct qp_writer *w, const char *text, size_t n)
{
    if (put_plain(w, text, n))
        return;
    qp_put(w, "\"", 1);
    put_escaped(w, text, n);
    qp_put(w, "\"", 1);
}

void qp_json_key_n(struct qp_writer *w, const char *key, size_t n)
{
    begin(w);
    put_quoted(w, key, n);
    qp_put(w, ":", 1);
    w->open &= ~bit_of(w);
}

void qp_json_key(struct qp_writer *w, const char *key)
{
    qp_json_key_n(w, key, strlen(key));
}

void qp_json_put_string(struct qp_writer *w, const char *text, size_t n)
{
    begin(w);
    put_quoted(w, text, n);
}

void qp_json_put_raw(struct qp_writer *w, const char *text, size_t n)
{
    begin(w);
    qp_put(w, text, n);
}

void qp_json_put_str(struct qp_writer *w, const char *text)
{
    if (text)
        qp_json_put_string(w, text, strlen(text));
    else
        qp_json_put_null(w);
}

void qp_json_put_u64(struct qp_writer *w, uint64_t value)
{
    begin(w);
    qp_put_u64(w, value);
}

void qp_json_put_f64(struct qp_writer *w, double value)
{
    char text[QP_F64_TEXT];
    if (isfinite(value))
        qp_json_put_raw(w, text, qp_format_f64(text, value));
    else
        qp_json_put_null(w);
}

void qp_json_put_bool(struct qp_writer *w, bool value)
{
    if (value)
        qp_json_put_raw(w, "true", 4);
    else
        qp_json_put_raw(w, "false", 5);
}

void qp_json_put_null(struct qp_writer *w)
{
    qp_json_put_raw(w, "null", 4);
}
