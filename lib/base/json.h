/*
 * json.h - JSON in and out.
 *
 * Reading is a strict pull tokenizer over a text in memory: RFC 8259, valid UTF-8, no lone
 * surrogates, no duplicate-prone conveniences, depth limited, every token with its byte position.
 * Strings are decoded in place and closed with a NUL, so no token is ever copied. It checks the
 * grammar (commas, colons, brackets) itself: a caller only sees tokens in legal order.
 */
#ifndef QP_BASE_JSON_H
#define QP_BASE_JSON_H

#include "text.h"

enum qp_json_type {
    QP_JSON_END, /* the root value is complete and only white space follows */
    QP_JSON_OBJECT,
    QP_JSON_OBJECT_END,
    QP_JSON_ARRAY,
    QP_JSON_ARRAY_END,
    QP_JSON_KEY, /* a member name; its value is the next token */
    QP_JSON_STRING,
    QP_JSON_NUMBER, /* text is the literal, as written */
    QP_JSON_TRUE,
    QP_JSON_FALSE,
    QP_JSON_NULL
};

struct qp_json_token {
    enum qp_json_type type;
    char *text;  /* KEY, STRING: decoded, NUL behind it; NUMBER: the literal, no NUL */
    size_t n;    /* bytes of text; a decoded string may contain NULs */
    uint64_t at; /* byte position of the token's first character, base included */
};

#define QP_JSON_MAX_DEPTH 64

struct qp_json {
    char *text;
    size_t n, pos;       /* pos is where reading goes on */
    uint64_t base;       /* file position of text[0] */
    const char *subject; /* of errors */
    unsigned depth, max_depth;
    uint64_t in_object; /* bit d: the container at depth d + 1 is an object */
    uint8_t expect;     /* private */
};

/* Starts reading n bytes, which are modified. max_depth is at most QP_JSON_MAX_DEPTH. */
void qp_json_init(struct qp_json *json, char *text, size_t n, uint64_t base, unsigned max_depth,
                  const char *subject);

/* The next token. INVALID with the byte at fault. */
enum qplan_status qp_json_next(struct qp_json *json, struct qp_json_token *token,
                               struct qplan_error *err);

/*
 * A NUMBER token as an unsigned integer of the form 0|[1-9][0-9]* up to 2^63-1. Returns false for
 * any other literal; *too_large says whether it was such an integer, but larger.
 */
bool qp_json_u64(const struct qp_json_token *token, uint64_t *out, bool *too_large);

/* How many of the first n bytes stand for themselves in a string: ASCII without ", \ and control
 * characters. */
size_t qp_json_plain_run(const char *text, size_t n);

/* The name of a token type for messages: "an object", "a string", ... */
const char *qp_json_type_name(enum qp_json_type type);

/* Writing: no blanks, commas set by the writer. A value inside an object follows its qp_json_key.
 */
void qp_json_open(struct qp_writer *w, char bracket);  /* '{' or '[' */
void qp_json_close(struct qp_writer *w, char bracket); /* '}' or ']' */
void qp_json_key(struct qp_writer *w, const char *key);
void qp_json_key_n(struct qp_writer *w, const char *key, size_t n);

/* A value that is JSON already, or its beginning: the rest of it follows by qp_put. */
void qp_json_put_raw(struct qp_writer *w, const char *text, size_t n);
/* Escapes only ", \ and U+0000-001F (\u00xx); bytes that are not UTF-8 become U+FFFD. */
void qp_json_put_string(struct qp_writer *w, const char *text, size_t n);
void qp_json_put_str(struct qp_writer *w, const char *text); /* NULL writes null */
void qp_json_put_u64(struct qp_writer *w, uint64_t value);
void qp_json_put_f64(struct qp_writer *w, double value); /* shortest form; non-finite = null */
void qp_json_put_bool(struct qp_writer *w, bool value);
void qp_json_put_null(struct qp_writer *w);

#endif
