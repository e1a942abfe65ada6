/*
 * text.h - building text: names for messages, numbers, and a writer that grows or flushes.
 */
#ifndef QP_BASE_TEXT_H
#define QP_BASE_TEXT_H

#include "error.h"

#include <string.h>

/* The length of the well-formed UTF-8 sequence that text begins with, or 0; n is at least 1. */
size_t qp_utf8_decode(const char *text, size_t n, uint32_t *code);

/* Writes a Unicode scalar value as UTF-8. Returns its length. */
size_t qp_utf8_encode(char out[4], uint32_t code);

/* Room for a quoted name: 80 characters of at most 4 bytes, quotes, dots, NUL. */
#define QP_QUOTED 352

/*
 * A name from a file, made safe for a terminal: in single quotes; control, format and BiDi
 * characters, quotes, backslashes and invalid UTF-8 as escapes; cut behind 80 characters of the
 * shown text, which dots behind the quote tell. Returns out.
 */
const char *qp_quote(char out[QP_QUOTED], const char *name, size_t n);

/* Whether a text ends with another. */
bool qp_ends_with(const char *text, const char *suffix);

/*
 * Text made safe for a terminal as qp_quote does, without quotes and without a cut at 80, for
 * paths. At most n_out bytes, NUL included, and n_out is at least 1; what does not fit is cut,
 * which dots at the end tell.
 */
const char *qp_escape(char *out, size_t n_out, const char *text, size_t n);

/* Fails with "what: expected NAMES, found ...", of a name that is none of a list; it may be NULL.
 */
enum qplan_status qp_fail_name(struct qplan_error *err, enum qplan_status status,
                               const char *subject, const char *what, const char *found,
                               const char *(*name_at)(size_t i));

/* Room for the text of any double. */
#define QP_F64_TEXT 32

/*
 * The shortest decimal that reads back as the same double, the same in every locale: "2.0",
 * "0.1", "1e-07". "nan", "inf" and "-inf" for the rest. Returns its length.
 */
size_t qp_format_f64(char out[QP_F64_TEXT], double value);

/*
 * Reads a decimal number: optional sign, digits with an optional fraction, optional exponent, the
 * whole of text. False for anything else (inf, nan, hex, blanks) and for a value out of range.
 */
bool qp_parse_f64(const char *text, double *out);

/* Reads 0|[1-9][0-9]* that fits 64 bits, the whole of text; a text from a file is counted. */
bool qp_parse_u64(const char *text, uint64_t *out);
bool qp_parse_u64_n(const char *text, size_t n, uint64_t *out);

/* Room for the digits of any u64, without a NUL. */
#define QP_U64_TEXT 20

/* Writes a number in decimal, without a NUL. Returns its length. */
size_t qp_format_u64(char out[QP_U64_TEXT], uint64_t value);

/* 1234567 -> "1.23 MB", with powers of 1000. Returns out. */
const char *qp_format_bytes(char out[QP_F64_TEXT], uint64_t n_bytes);

/* Byte-wise order of two texts, as that of memcmp; a text before all longer ones that begin with
 * it. */
int qp_compare_text(const char *a, size_t n_a, const char *b, size_t n_b);

/* Whether a counted text, which may contain NULs, is this word. */
bool qp_text_is(const char *text, size_t n, const char *word);

/* "[4096,11008]" of n numbers, cut to fit. Returns out. */
const char *qp_format_list(char *out, size_t n_out, const uint64_t *list, unsigned n);

/* The coordinates of the element with this flat index; out has room for rank numbers. */
void qp_coordinates(uint64_t *out, const uint64_t *shape, unsigned rank, uint64_t elem);

/* The coordinates of an element as text: "[3,17]". Returns out. */
const char *qp_format_coordinates(char *out, size_t n_out, const uint64_t *shape, unsigned rank,
                                  uint64_t elem);

/*
 * Text that grows in memory or, with a write function, goes out in pieces. A failure is remembered
 * and makes later calls do nothing: check it once, with qp_writer_finish.
 */
struct qp_writer {
    char *data;
    size_t n, cap;
    qplan_write_fn write; /* NULL: everything stays in data */
    void *ctx;
    int error;     /* errno of the first failure, or 0 */
    uint64_t open; /* JSON: bit d = the container at depth d has an element already */
    unsigned depth;
};

/* A writer that keeps its text. */
void qp_writer_init(struct qp_writer *w);

/* A writer that hands its text to write in pieces of some 64 KiB. */
void qp_writer_stream(struct qp_writer *w, qplan_write_fn write, void *ctx);

/* Makes room for n more bytes at once, where so many will come; a failure shows when they do. */
void qp_writer_reserve(struct qp_writer *w, size_t n);

/* What qp_put does where the room is short. */
void qp_put_more(struct qp_writer *w, const char *text, size_t n);

/* Inline, since most calls put a few bytes of constant length. */
static inline void qp_put(struct qp_writer *w, const char *text, size_t n)
{
    if (n > w->cap - w->n || w->error || n == 0) {
        qp_put_more(w, text, n);
        return;
    }
    memcpy(w->data + w->n, text, n);
    w->n += n;
}

static inline void qp_puts(struct qp_writer *w, const char *text)
{
    qp_put(w, text, strlen(text));
}

void qp_put_u64(struct qp_writer *w, uint64_t value); /* decimal */
void qp_printf(struct qp_writer *w, const char *fmt, ...) QP_PRINTF(2, 3);

/*
 * Flushes a stream, puts a NUL behind a text that is kept; MEMORY or IO for the first failure,
 * with the subject given.
 */
enum qplan_status qp_writer_finish(struct qp_writer *w, const char *subject,
                                   struct qplan_error *err);

/* Releases the buffer. */
void qp_writer_free(struct qp_writer *w);

#endif
