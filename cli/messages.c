/*
 * messages.c - text for people: escaping, failures, the lines on stderr. Never touches stdout.
 */
#include "cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Escaping ---------------------------------------------------------------------------------*/

/* The length of the UTF-8 sequence at text, or 0 if it is not valid; *code is the character. */
static size_t decode_utf8(const unsigned char *text, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (text[0] < 0x80) {
        *code = text[0];
        return 1;
    }
    size_t n = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    *code = text[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (text[i] & 0x3fu);
    }
    bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
    return *code < least[n] || *code > 0x10ffff || surrogate ? 0 : n;
}

/* Controls, and the characters that hide or reorder others. */
static bool is_unsafe(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},      {0x061c, 0x061c},
                  {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                  {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return code == '\\';
}

/* Writes the shown form of the character at text; returns the number of bytes it came from. */
static size_t escape_one(char out[8], const unsigned char *text)
{
    uint32_t code;
    size_t n = decode_utf8(text, &code);
    if (n == 0)
        (void)snprintf(out, 8, "\\x%02x", text[0]);
    else if (!is_unsafe(code))
        (void)snprintf(out, 8, "%.*s", (int)n, (const char *)text);
    else if (code == '\\')
        (void)snprintf(out, 8, "\\\\");
    else if (code == '\n')
        (void)snprintf(out, 8, "\\n");
    else if (code < 0x100)
        (void)snprintf(out, 8, "\\x%02x", (unsigned)code & 0xffu);
    else
        (void)snprintf(out, 8, "\\u%04x", (unsigned)code & 0xffffu);
    return n ? n : 1;
}

const char *cli_escape(char *out, size_t n_out, const char *text)
{
    static const char cut[] = "...";
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;
    while (*at) {
        char one[8];
        size_t taken = escape_one(one, at);
        size_t n = strlen(one);
        if (used + n + sizeof cut > n_out) {
            memcpy(out + used, cut, sizeof cut);
            return out;
        }
        memcpy(out + used, one, n);
        used += n;
        at += taken;
    }
    out[used] = '\0';
    return out;
}

/* ---- Failures ---------------------------------------------------------------------------------*/

enum qplan_status cli_fail(struct qplan_error *err, enum qplan_status status, const char *subject,
                           const char *fmt, ...)
{
    err->status = status;
    err->sys_errno = 0;
    err->offset = QPLAN_NO_OFFSET;
    err->hint[0] = '\0';
    err->advice = QPLAN_ADVICE_NONE;
    (void)cli_escape(err->subject, sizeof err->subject, subject);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    return status;
}

enum qplan_status cli_fail_errno(struct qplan_error *err, int errnum, const char *subject,
                                 const char *what)
{
    /* The locale is never set, so the description is the same everywhere. */
    (void)cli_fail(err, QPLAN_ERR_IO, subject, "%s: %s", what, strerror(errnum));
    err->sys_errno = errnum;
    return QPLAN_ERR_IO;
}

enum qplan_status cli_fail_memory(struct qplan_error *err)
{
    return cli_fail(err, QPLAN_ERR_MEMORY, "",
                    "out of memory: a few bytes for the command were refused");
}

void cli_hint(struct qplan_error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(err->hint, sizeof err->hint, fmt, args);
    va_end(args);
}

/* ---- Lines ------------------------------------------------------------------------------------*/

/* What the library advises, in the words of this program: its flags and its commands. */
static const char *advice_text(enum qplan_advice advice)
{
    static const char *const texts[] = {
        [QPLAN_ADVICE_CLEAN] =
            "another run is at work, or was killed: 'qplan clean' removes what it left",
        [QPLAN_ADVICE_FORCE] = "--force replaces it",
        [QPLAN_ADVICE_CPU] = "--device cpu",
        [QPLAN_ADVICE_AGAINST] = "inspect takes one with --against SOURCE",
        [QPLAN_ADVICE_DEQUANTIZE] = ("--requantize decodes it on the way; qplan dequantize makes a "
                                     "plain checkpoint of it"),
        [QPLAN_ADVICE_EXCLUDE] = "--exclude keeps the tensor as it is",
        [QPLAN_ADVICE_EXCLUDE_ONE] = "--exclude keeps one of them as it is",
        [QPLAN_ADVICE_INDIVISIBLE] =
            ("--indivisible ragged makes the last group of each row shorter (one more scale a "
             "row); --indivisible keep copies these tensors unquantized"),
        [QPLAN_ADVICE_KEEP] =
            ("--indivisible keep copies these tensors unquantized; smaller groups "
             "may divide them"),
        [QPLAN_ADVICE_NONFINITE] = ("--nonfinite saturate clips infinities and makes NaN zero; "
                                    "--exclude keeps the tensor as it is"),
        [QPLAN_ADVICE_SCALE_F32] = "--scale-dtype f32 takes larger scales",
        [QPLAN_ADVICE_OPERATORS] = "'qplan op list' names them all",
        [QPLAN_ADVICE_SELECT] = ("--select all quantizes floats of two or more axes; --rules FILE "
                                 "decides for each tensor"),
        [QPLAN_ADVICE_IMPORTANCE] = "--importance FILE names the file of importance that was used",
        [QPLAN_ADVICE_HESSIAN] = "--hessian FILE names the file of Hessians",
        [QPLAN_ADVICE_EXACT] = ("not provable without --exact and the --hessian that it was made "
                                "with; --allow-unproven only measures it"),
        [QPLAN_ADVICE_UNQUANTIZED] = "--allow-unquantized proves a mere copy",
        [QPLAN_ADVICE_UNRECORDED] = ("other tools round by data, or in another arithmetic: "
                                     "--allow-unproven only measures what has no record"),
        [QPLAN_ADVICE_EXCHANGE] =
            "SOURCE is quantized and FILE is not: the other order may be meant",
    };
    return texts[advice];
}

void cli_print_error(const struct qplan_error *err)
{
    const char *colon = err->subject[0] ? ": " : "";
    const char *hint = err->advice ? advice_text(err->advice) : err->hint;
    fprintf(stderr, "qplan: error: %s%s%s\n", err->subject, colon, err->message);
    if (hint && hint[0])
        fprintf(stderr, "qplan: hint: %s\n", hint);
}

void cli_print_warning(const char *text)
{
    fprintf(stderr, "qplan: warning: %s\n", text);
}

void cli_print_gate(const char *text)
{
    fprintf(stderr, "qplan: gate: %s\n", text);
}

/* ---- Numbers ----------------------------------------------------------------------------------*/

/* Three significant digits: the limits are where rounding carries into the next one. */
static int decimals_of(double value)
{
    return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

const char *cli_format_number(char out[CLI_NUMBER], double value)
{
    (void)snprintf(out, CLI_NUMBER, "%.*f", decimals_of(value), value);
    return out;
}

const char *cli_format_bytes(char out[CLI_NUMBER], uint64_t n_bytes)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    if (n_bytes < 1000) {
        (void)snprintf(out, CLI_NUMBER, "%u B", (unsigned)n_bytes);
        return out;
    }
    double value = (double)n_bytes / 1000;
    size_t unit = 0;
    for (; value >= 999.5 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        value /= 1000;
    (void)snprintf(out, CLI_NUMBER, "%.*f %s", decimals_of(value), value, units[unit]);
    return out;
}
