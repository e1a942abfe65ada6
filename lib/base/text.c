/*
 * text.c - names for messages, and numbers as text and back. The writer is in writer.c.
 *
 * Never lets a byte from a file reach a terminal unescaped and never depends on the locale.
 */
#include "text.h"

#include "check.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- UTF-8 and names ------------------------------------------------------------------------- */

size_t qp_utf8_decode(const char *text, size_t n, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* shorter forms are overlong */
    unsigned char lead = (unsigned char)text[0];
    if (lead < 0x80) {
        *code = lead;
        return 1;
    }
    size_t len = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || n < len)
        return 0;
    uint32_t value = lead & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        unsigned char byte = (unsigned char)text[i];
        if ((byte & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (byte & 0x3f);
    }
    if (value < least[len] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *code = value;
    return len;
}

size_t qp_utf8_encode(char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t len = code >= 0x10000 ? 4 : code >= 0x800 ? 3 : 2;
    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    out[0] = (char)((0xf00u >> len) | code);
    return len;
}

/*
 * Characters that move the cursor, reorder text or show nothing: the general categories Cc, Cf, Zl
 * and Zp of Unicode 15, the tags, and the noncharacters at the end of the BMP.
 */
static bool is_unsafe(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},
        {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
        {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
        {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0xfffe, 0xffff},
        {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3},
        {0x1d173, 0x1d17a}, {0xe0000, 0xe007f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    }
    return false;
}

/* The longest form of one character: \U000e0001 and a NUL. */
#define SHOWN_MAX 11

/*
 * The first character of text as it is shown; quote is escaped too, unless it is 0. Returns the
 * length of the shown form; *taken is the number of bytes that it stands for.
 */
static size_t show_char(char out[SHOWN_MAX], const char *text, size_t n, char quote, size_t *taken)
{
    uint32_t code;
    size_t len = qp_utf8_decode(text, n, &code);
    *taken = len ? len : 1;
    if (len == 0)
        return (size_t)snprintf(out, SHOWN_MAX, "\\x%02x", (unsigned char)text[0]);
    if (code == '\\' || (quote && code == (unsigned char)quote))
        return (size_t)snprintf(out, SHOWN_MAX, "\\%c", (char)code);
    if (code == '\n' || code == '\t' || code == '\r')
        return (size_t)snprintf(out, SHOWN_MAX, "\\%c",
                                code == '\n'   ? 'n'
                                : code == '\t' ? 't'
                                               : 'r');
    if (is_unsafe(code))
        return (size_t)snprintf(out, SHOWN_MAX,
                                code < 0x80      ? "\\x%02" PRIx32
                                : code < 0x10000 ? "\\u%04" PRIx32
                                                 : "\\U%08" PRIx32,
                                code);
    memcpy(out, text, len);
    return len;
}

/* Shows as much of text as fits in room bytes and max_chars characters of the shown text. */
static size_t show(char *out, size_t room, size_t max_chars, char quote, const char *text, size_t n,
                   bool *cut)
{
    size_t used = 0, chars = 0;
    while (n > 0) {
        char shown[SHOWN_MAX];
        size_t taken;
        size_t len = show_char(shown, text, n, quote, &taken);
        /* A raw character has one place on the screen, an escape as many as bytes. */
        size_t places = (unsigned char)shown[0] >= 0x80 ? 1 : len;
        if (len > room - used || places > max_chars - chars)
            break;
        memcpy(out + used, shown, len);
        used += len;
        chars += places;
        text += taken;
        n -= taken;
    }
    *cut = n > 0;
    return used;
}

const char *qp_quote(char out[QP_QUOTED], const char *name, size_t n)
{
    bool cut;
    size_t used = show(out + 1, QP_QUOTED - 6, 80, '\'', name, n, &cut);
    out[0] = '\'';
    memcpy(out + 1 + used, cut ? "'..." : "'", cut ? 5 : 2);
    return out;
}

bool qp_ends_with(const char *text, const char *suffix)
{
    const size_t n = strlen(text), n_suffix = strlen(suffix);
    return n >= n_suffix && memcmp(text + n - n_suffix, suffix, n_suffix) == 0;
}

const char *qp_escape(char *out, size_t n_out, const char *text, size_t n)
{
    bool cut;
    size_t used = show(out, n_out - 1, SIZE_MAX, '\0', text, n, &cut);
    if (cut && n_out > 4) {
        used = show(out, n_out - 4, SIZE_MAX, '\0', text, n, &cut);
        memcpy(out + used, "...", 3);
        used += 3;
    }
    out[used] = '\0';
    return out;
}

enum qplan_status qp_fail_name(struct qplan_error *err, enum qplan_status status,
                               const char *subject, const char *what, const char *found,
                               const char *(*name_at)(size_t i))
{
    char quoted[QP_QUOTED];
    (void)qp_fail(err, status, subject, "%s: expected ", what);
    for (size_t i = 0; name_at(i); i++)
        qp_fail_more(err, "%s%s", i ? ", " : "", name_at(i));
    if (found)
        qp_fail_more(err, ", found %s", qp_quote(quoted, found, strlen(found)));
    return status;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* The C library's own conversions, with the locale of this thread out of the way. */
struct c_locale {
    locale_t c, before;
};

static struct c_locale enter_c_locale(void)
{
    struct c_locale locale = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    locale.before = uselocale(locale.c);
    return locale;
}

static void leave_c_locale(struct c_locale locale)
{
    uselocale(locale.before);
    if (locale.c)
        freelocale(locale.c);
}

/* A positive double as 0.d1d2d3... * 10^point. */
struct decimal {
    char digits[20];
    int n, point;
};

static struct decimal to_decimal(double value, int n_digits)
{
    char text[40];
    (void)snprintf(text, sizeof text, "%.*e", n_digits - 1, value);
    struct decimal d = {.n = n_digits, .point = atoi(strchr(text, 'e') + 1) + 1};
    d.digits[0] = text[0];
    if (n_digits > 1)
        memcpy(d.digits + 1, text + 2, (size_t)n_digits - 1);
    return d;
}

static bool reads_as(const struct decimal *d, double value)
{
    char text[40];
    (void)snprintf(text, sizeof text, "0.%se%d", d->digits, d->point);
    return strtod(text, NULL) == value;
}

/* The next larger decimal of the same number of digits. Nines only do not occur: close to a power
 * of ten 16 digits read back. */
static void step_up(struct decimal *d)
{
    int i = d->n - 1;
    while (i > 0 && d->digits[i] == '9')
        d->digits[i--] = '0';
    d->digits[i]++;
}

/*
 * The fewest digits that read back as value. For a normal double, any text of up to 15 digits that
 * reads back is the value rounded to 15 digits, so those need one try. Below a power of two the
 * doubles are closer together than above it: with 16 digits the nearest decimal may then read as
 * the neighbour although the next one up reads back. Subnormals have few digits: count up.
 */
static struct decimal shortest(double value)
{
    struct decimal d;
    for (int n = value < DBL_MIN ? 1 : 15; n < 17; n++) {
        d = to_decimal(value, n);
        if (reads_as(&d, value))
            return d;
        if (n == 16) {
            step_up(&d);
            if (reads_as(&d, value))
                return d;
        }
    }
    return to_decimal(value, 17);
}

/* Lays digits out as the shortest form of Python and JavaScript does: exponents below -4 and from
 * 16 on are written. */
static size_t lay_out(char *out, size_t room, struct decimal d)
{
    while (d.n > 1 && d.digits[d.n - 1] == '0')
        d.n--;
    int exponent = d.point - 1;
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(out, room, "%c%s%.*se%c%02d", d.digits[0], d.n > 1 ? "." : "",
                                d.n - 1, d.digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    if (d.point <= 0)
        return (size_t)snprintf(out, room, "0.%.*s%.*s", -d.point, "0000", d.n, d.digits);
    if (d.n <= d.point)
        return (size_t)snprintf(out, room, "%.*s%.*s.0", d.n, d.digits, d.point - d.n,
                                "0000000000000000");
    return (size_t)snprintf(out, room, "%.*s.%.*s", d.point, d.digits, d.n - d.point,
                            d.digits + d.point);
}

size_t qp_format_f64(char out[QP_F64_TEXT], double value)
{
    if (isnan(value))
        return (size_t)snprintf(out, QP_F64_TEXT, "nan");
    size_t sign = signbit(value) ? 1 : 0;
    if (sign)
        out[0] = '-';
    if (isinf(value))
        return sign + (size_t)snprintf(out + sign, QP_F64_TEXT - sign, "inf");
    if (value == 0)
        return sign + (size_t)snprintf(out + sign, QP_F64_TEXT - sign, "0.0");
    struct c_locale locale = enter_c_locale();
    struct decimal d = shortest(fabs(value));
    leave_c_locale(locale);
    return sign + lay_out(out + sign, QP_F64_TEXT - sign, d);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skips digits; false if there is none. */
static bool skip_digits(const char **text)
{
    const char *begin = *text;
    while (is_digit(**text))
        (*text)++;
    return *text != begin;
}

static bool is_decimal(const char *text)
{
    if (*text == '+' || *text == '-')
        text++;
    if (!skip_digits(&text))
        return false;
    if (*text == '.') {
        text++;
        if (!skip_digits(&text))
            return false;
    }
    if (*text == 'e' || *text == 'E') {
        text++;
        if (*text == '+' || *text == '-')
            text++;
        if (!skip_digits(&text))
            return false;
    }
    return *text == '\0';
}

bool qp_parse_f64(const char *text, double *out)
{
    if (!is_decimal(text))
        return false;
    struct c_locale locale = enter_c_locale();
    double value = strtod(text, NULL);
    leave_c_locale(locale);
    size_t mantissa = strcspn(text, "eE");
    bool is_zero = strcspn(text, "123456789") >= mantissa;
    if (isinf(value) || (value == 0 && !is_zero))
        return false;
    *out = value;
    return true;
}

bool qp_parse_u64_n(const char *text, size_t n, uint64_t *out)
{
    uint64_t value = 0;
    if (n == 0 || (text[0] == '0' && n > 1))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(text[i]) || !qp_mul_u64(value, 10, &value) ||
            !qp_add_u64(value, (uint64_t)(text[i] - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

bool qp_parse_u64(const char *text, uint64_t *out)
{
    return qp_parse_u64_n(text, strlen(text), out);
}

size_t qp_format_u64(char out[QP_U64_TEXT], uint64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char digits[QP_U64_TEXT];
    size_t at = sizeof digits;
    for (; value >= 10; value /= 100)
        memcpy(digits + (at -= 2), pairs + 2 * (value % 100), 2);
    if (value > 0 || at == sizeof digits)
        digits[--at] = (char)('0' + value);
    memcpy(out, digits + at, sizeof digits - at);
    return sizeof digits - at;
}

int qp_compare_text(const char *a, size_t n_a, const char *b, size_t n_b)
{
    const int order = memcmp(a, b, n_a < n_b ? n_a : n_b);
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

bool qp_text_is(const char *text, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(text, word, n) == 0;
}

const char *qp_format_bytes(char out[QP_F64_TEXT], uint64_t n_bytes)
{
    static const char units[] = "kMGTPE";
    if (n_bytes < 1000) {
        (void)snprintf(out, QP_F64_TEXT, "%" PRIu64 " B", n_bytes);
        return out;
    }
    /* Three digits: the value in hundredths, tenths or ones of the unit, rounded half up. */
    uint64_t step = 10;
    unsigned unit = 0, decimals = 2;
    while ((n_bytes / step) + (n_bytes % step >= step / 2) >= 1000) {
        step *= 10;
        decimals = decimals == 0 ? 2 : decimals - 1;
        unit += decimals == 2;
    }
    uint64_t digits = n_bytes / step + (n_bytes % step >= step / 2);
    uint64_t one = decimals == 2 ? 100 : decimals == 1 ? 10 : 1;
    if (decimals == 0)
        (void)snprintf(out, QP_F64_TEXT, "%" PRIu64 " %cB", digits, units[unit]);
    else
        (void)snprintf(out, QP_F64_TEXT, "%" PRIu64 ".%0*" PRIu64 " %cB", digits / one,
                       (int)decimals, digits % one, units[unit]);
    return out;
}

const char *qp_format_list(char *out, size_t n_out, const uint64_t *list, unsigned n)
{
    size_t used = (size_t)snprintf(out, n_out, "[");
    for (unsigned i = 0; i < n && used < n_out; i++)
        used += (size_t)snprintf(out + used, n_out - used, "%s%" PRIu64, i ? "," : "", list[i]);
    if (used < n_out)
        (void)snprintf(out + used, n_out - used, "]");
    return out;
}

void qp_coordinates(uint64_t *out, const uint64_t *shape, unsigned rank, uint64_t elem)
{
    for (unsigned i = rank; i-- > 0;) {
        out[i] = elem % shape[i];
        elem /= shape[i];
    }
}

const char *qp_format_coordinates(char *out, size_t n_out, const uint64_t *shape, unsigned rank,
                                  uint64_t elem)
{
    uint64_t coordinate[QPLAN_MAX_RANK] = {0};
    qp_coordinates(coordinate, shape, rank, elem);
    return qp_format_list(out, n_out, coordinate, rank);
}
