/*
 * scheme.c - scheme text in and out, and what a scheme means without a shape.
 */
#include "scheme.h"

#include "dtype.h"
#include "lib/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_EXTENT (UINT64_C(1) << 62)

/* What tensors are quantized to: the integers of 2 to 8 bits, small floats, and a table. */
#define CODE_DTYPES "int2 to int8, uint2 to uint8, fp8 (f8e4m3), f8e5m2, f4e2m1 or nf4"

/* What scales are stored as. */
#define SCALE_DTYPES "f32, f16, bf16, f8e4m3 or e8m0"

static bool has_scales(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F32 || dtype == QPLAN_F16 || dtype == QPLAN_BF16 ||
           dtype == QPLAN_F8E4M3 || dtype == QPLAN_E8M0;
}

static bool has_codes(enum qplan_dtype dtype)
{
    const unsigned bits = qplan_dtype_bits(dtype);
    return bits >= 2 && bits <= 8 && dtype != QPLAN_E8M0 && dtype != QPLAN_FP4;
}

/* Codes of a group by default; 0: those of a channel. */
static uint64_t usual_group(enum qplan_dtype dtype)
{
    if (qplan_dtype_bits(dtype) == 8)
        return 0;
    return dtype == QPLAN_F4E2M1 ? 32 : dtype == QPLAN_NF4 ? 64 : 128;
}

enum qplan_status qplan_scheme_default(struct qplan_scheme *out, enum qplan_dtype dtype,
                                       struct qplan_error *err)
{
    if (!has_codes(dtype)) {
        const char *name = qplan_dtype_name(dtype);
        return qp_fail(err, QPLAN_ERR_USAGE, "scheme",
                       "cannot quantize to %s: expected " CODE_DTYPES,
                       name ? name : "an unknown dtype");
    }
    const uint64_t group = usual_group(dtype);
    *out = (struct qplan_scheme){
        .dtype = dtype,
        .granularity = group ? QPLAN_PER_GROUP : QPLAN_PER_CHANNEL,
        .group = group,
        .asymmetric = !qplan_dtype_is_signed(dtype),
        .scale_dtype = QPLAN_F32,
    };
    return QPLAN_OK;
}

void qplan_scheme_usual(struct qplan_scheme *scheme)
{
    const bool is_small = qplan_dtype_bits(scheme->dtype) <= 4;
    const bool has_small_sets =
        scheme->granularity == QPLAN_PER_GROUP || scheme->granularity == QPLAN_PER_BLOCK;
    scheme->asymmetric =
        !qplan_dtype_is_signed(scheme->dtype) || (is_small && qp_integer_bits(scheme->dtype) > 0);
    scheme->scale_dtype = is_small && has_small_sets ? QPLAN_BF16 : QPLAN_F32;
}

bool qp_scheme_is_sound(const struct qplan_scheme *scheme)
{
    const bool is_integer = qp_integer_bits(scheme->dtype) > 0;
    const bool is_signed = qplan_dtype_is_signed(scheme->dtype);
    const bool has_small_scales = qplan_dtype_bits(scheme->scale_dtype) == 8; /* none for a bias */
    return (is_integer || !scheme->asymmetric) && !(is_signed && scheme->bias) &&
           !(has_small_scales && scheme->bias) && ((is_integer && is_signed) || !scheme->narrow) &&
           (!scheme->nested || ((scheme->dtype == QPLAN_NF4 || scheme->dtype == QPLAN_FP4) &&
                                scheme->scale_dtype == QPLAN_F32));
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

/* Longer than any legal part: a longer one is cut and is unknown all the same. */
#define PART_TEXT 64

/* One part of the text, between two colons. */
struct part {
    char text[PART_TEXT];
    size_t at; /* of its first character, counted from 1 */
};

enum match { MATCH_NONE, MATCH, MATCH_BAD };

/* Reads one kind of part into the scheme. MATCH_BAD: surely meant as this kind, but wrong. */
typedef enum match (*read_fn)(struct qplan_scheme *scheme, const char *part);

static enum match read_dtype(struct qplan_scheme *scheme, const char *part)
{
    enum qplan_dtype dtype;
    if (!qplan_dtype_parse(part, &dtype) || qplan_scheme_default(scheme, dtype, NULL) != QPLAN_OK)
        return MATCH_NONE;
    return MATCH;
}

static bool read_extent(const char *text, uint64_t *out)
{
    return qp_parse_u64(text, out) && *out >= 1 && *out <= MAX_EXTENT;
}

static bool read_axis(const char *text, int32_t *out)
{
    bool negative = text[0] == '-';
    uint64_t number;
    if (!qp_parse_u64(text + negative, &number))
        return false;
    if (negative ? number < 1 || number > QPLAN_MAX_RANK : number >= QPLAN_MAX_RANK)
        return false;
    *out = negative ? -(int32_t)number : (int32_t)number;
    return true;
}

static bool read_block(char *text, uint64_t *rows, uint64_t *cols)
{
    char *x = strchr(text, 'x');
    if (!x)
        return false;
    *x = '\0';
    return read_extent(text, rows) && read_extent(x + 1, cols);
}

static void set_granularity(struct qplan_scheme *scheme, enum qplan_granularity granularity)
{
    scheme->granularity = granularity;
    scheme->axis = 0;
    scheme->group = scheme->block_rows = scheme->block_cols = 0;
}

static enum match read_granularity(struct qplan_scheme *scheme, const char *part)
{
    char number[PART_TEXT];
    if (strcmp(part, "t") == 0) {
        set_granularity(scheme, QPLAN_PER_TENSOR);
        return MATCH;
    }
    /* A number or a sign behind the letter tells g64 from a misspelt word and b8x8 from bf16. */
    if (!strchr("cgb", part[0]) || part[0] == '\0' || part[1] == '\0' ||
        !strchr("0123456789-+", part[1]))
        return MATCH_NONE;
    (void)snprintf(number, sizeof number, "%s", part + 1);
    switch (part[0]) {
    case 'c':
        set_granularity(scheme, QPLAN_PER_CHANNEL);
        return read_axis(number, &scheme->axis) ? MATCH : MATCH_BAD;
    case 'g':
        set_granularity(scheme, QPLAN_PER_GROUP);
        return read_extent(number, &scheme->group) ? MATCH : MATCH_BAD;
    default:
        set_granularity(scheme, QPLAN_PER_BLOCK);
        return read_block(number, &scheme->block_rows, &scheme->block_cols) ? MATCH : MATCH_BAD;
    }
}

static enum match read_symmetry(struct qplan_scheme *scheme, const char *part)
{
    const bool bias = strcmp(part, "bias") == 0;
    const bool asymmetric = strcmp(part, "asym") == 0;
    if (!bias && !asymmetric && strcmp(part, "sym") != 0)
        return MATCH_NONE;
    scheme->asymmetric = asymmetric || bias;
    scheme->bias = bias;
    return qp_scheme_is_sound(scheme) ? MATCH : MATCH_BAD;
}

static enum match read_narrow(struct qplan_scheme *scheme, const char *part)
{
    if (strcmp(part, "narrow") != 0)
        return MATCH_NONE;
    scheme->narrow = true;
    return qp_scheme_is_sound(scheme) ? MATCH : MATCH_BAD;
}

static enum match read_scale_dtype(struct qplan_scheme *scheme, const char *part)
{
    enum qplan_dtype dtype;
    if (!qplan_dtype_parse(part, &dtype) || !has_scales(dtype))
        return MATCH_NONE;
    scheme->scale_dtype = dtype;
    scheme->scale_given = true;
    return qp_scheme_is_sound(scheme) ? MATCH : MATCH_BAD;
}

static enum match read_nested(struct qplan_scheme *scheme, const char *part)
{
    if (strcmp(part, "double") != 0)
        return MATCH_NONE;
    scheme->nested = true;
    return qp_scheme_is_sound(scheme) ? MATCH : MATCH_BAD;
}

/* What may be the last parts. */
#define END_PARTS SCALE_DTYPES ", double"

/* The kinds of part in their order: each at most once, the first always. */
static const struct kind {
    read_fn read;
    const char *expected; /* at this place of the text */
    const char *wanted;   /* of a part that is surely of this kind */
} kinds[] = {
    {read_dtype, CODE_DTYPES, NULL},
    {read_granularity, "t, cN, gN or bRxC, then asym, sym or bias, narrow, " END_PARTS,
     "cN with an axis from -64 to 63, gN or bRxC with numbers from 1 to 2^62"},
    {read_symmetry, "asym, sym or bias, narrow, " END_PARTS,
     "an integer dtype for asym, an unsigned one for a bias"},
    {read_narrow, "narrow, " END_PARTS, "a signed dtype of integers for a narrow range"},
    {read_scale_dtype, END_PARTS, "f32, f16 or bf16 beside a bias"},
    {read_nested, "double", "nf4 with f32 scales for scales that have scales"},
};

#define N_KINDS (sizeof kinds / sizeof kinds[0])

/* Takes the part at *pos and moves *pos to the next one, or to NULL behind the last. */
static void next_part(struct part *part, const char *text, const char **pos)
{
    size_t n = strcspn(*pos, ":");
    part->at = (size_t)(*pos - text) + 1;
    size_t kept = n < PART_TEXT ? n : PART_TEXT - 1;
    memcpy(part->text, *pos, kept);
    part->text[kept] = '\0';
    *pos = (*pos)[n] == ':' ? *pos + n + 1 : NULL;
}

static enum qplan_status fail_part(struct qplan_error *err, const char *scheme_text,
                                   const struct part *part, const char *problem,
                                   const char *expected)
{
    char shown[QP_QUOTED], shown_part[QP_QUOTED], subject[QP_QUOTED + 8];
    (void)snprintf(subject, sizeof subject, "scheme %s",
                   qp_quote(shown, scheme_text, strlen(scheme_text)));
    return qp_fail(err, QPLAN_ERR_USAGE, subject, "%s %s: expected %s (at character %zu)", problem,
                   qp_quote(shown_part, part->text, strlen(part->text)), expected, part->at);
}

/*
 * Reads a part as the first kind that knows it, of those that the order allows from *place on, then
 * of the others, which are out of place. The dtype alone must be at its place, since everything
 * else starts from its defaults.
 */
static enum qplan_status read_part(struct qplan_scheme *scheme, const struct part *part,
                                   size_t *place, const char *text, struct qplan_error *err)
{
    const char *expected = *place < N_KINDS ? kinds[*place].expected : "the end";
    size_t n_tried = *place == 0 ? 1 : N_KINDS;
    for (size_t k = 0; k < n_tried; k++) {
        const size_t i = (*place + k) % N_KINDS;
        struct qplan_scheme changed = *scheme;
        enum match match = kinds[i].read(&changed, part->text);
        if (match == MATCH_NONE)
            continue;
        if (i < *place)
            return fail_part(err, text, part, "part out of place", expected);
        if (match == MATCH_BAD)
            return fail_part(err, text, part, "bad part", kinds[i].wanted);
        *scheme = changed;
        *place = i + 1;
        return QPLAN_OK;
    }
    return fail_part(err, text, part, *place ? "unknown part" : "unknown dtype", expected);
}

/* Names for whole schemes. */
static const struct short_name {
    const char *name, *text;
} short_names[] = {
    {"nvfp4", "f4e2m1:g16:f8e4m3"},
    {"mxfp4", "f4e2m1:g32:e8m0"},
    {"mxfp8", "f8e4m3:g32:e8m0"},
};

/* The short name that a text is, or begins with before its parts; NULL = none. */
static const struct short_name *find_short_name(const char *text)
{
    const size_t n = strcspn(text, ":");
    for (size_t i = 0; i < sizeof short_names / sizeof short_names[0]; i++) {
        if (strlen(short_names[i].name) == n && memcmp(text, short_names[i].name, n) == 0)
            return &short_names[i];
    }
    return NULL;
}

static enum qplan_status fail_short_name(const struct short_name *name, const char *text,
                                         struct qplan_error *err)
{
    char shown[QP_QUOTED], subject[QP_QUOTED + 8];
    (void)snprintf(subject, sizeof subject, "scheme %s", qp_quote(shown, text, strlen(text)));
    return qp_fail(err, QPLAN_ERR_USAGE, subject,
                   "%s takes no parts, for it is short for %s: expected the end (at character %zu)",
                   name->name, name->text, strlen(name->name) + 1);
}

enum qplan_status qplan_scheme_parse(struct qplan_scheme *out, const char *text,
                                     struct qplan_error *err)
{
    struct qplan_scheme scheme = {0};
    size_t place = 0;
    const struct short_name *name = find_short_name(text);
    if (name && strlen(text) > strlen(name->name))
        return fail_short_name(name, text, err);
    text = name ? name->text : text;
    for (const char *pos = text; pos;) {
        struct part part;
        next_part(&part, text, &pos);
        QP_TRY(read_part(&scheme, &part, &place, text, err));
    }
    *out = scheme;
    return QPLAN_OK;
}

/* ---- Writing and comparing --------------------------------------------------------------------
 */

#define GRANULARITY_TEXT 48

static void format_granularity(const struct qplan_scheme *scheme, char out[GRANULARITY_TEXT])
{
    switch (scheme->granularity) {
    case QPLAN_PER_TENSOR:
        (void)snprintf(out, GRANULARITY_TEXT, "t");
        break;
    case QPLAN_PER_CHANNEL:
        (void)snprintf(out, GRANULARITY_TEXT, "c%" PRId32, scheme->axis);
        break;
    case QPLAN_PER_GROUP:
        (void)snprintf(out, GRANULARITY_TEXT, "g%" PRIu64, scheme->group);
        break;
    case QPLAN_PER_BLOCK:
        (void)snprintf(out, GRANULARITY_TEXT, "b%" PRIu64 "x%" PRIu64, scheme->block_rows,
                       scheme->block_cols);
        break;
    }
}

/* ":bias", or ":asym" or ":sym" where the dtype alone would say the opposite. */
static const char *symmetry_text(const struct qplan_scheme *scheme)
{
    if (scheme->bias && scheme->asymmetric)
        return ":bias";
    if (scheme->asymmetric != qplan_dtype_is_signed(scheme->dtype))
        return "";
    return scheme->asymmetric ? ":asym" : ":sym";
}

size_t qplan_scheme_format(const struct qplan_scheme *scheme, char out[QPLAN_SCHEME_TEXT])
{
    bool default_scale = scheme->scale_dtype == QPLAN_F32;
    char granularity[GRANULARITY_TEXT];
    format_granularity(scheme, granularity);
    return (size_t)snprintf(out, QPLAN_SCHEME_TEXT, "%s:%s%s%s%s%s%s",
                            qplan_dtype_name(scheme->dtype), granularity, symmetry_text(scheme),
                            scheme->narrow ? ":narrow" : "", default_scale ? "" : ":",
                            default_scale ? "" : qplan_dtype_name(scheme->scale_dtype),
                            scheme->nested ? ":double" : "");
}

static bool granularity_equal(const struct qplan_scheme *a, const struct qplan_scheme *b)
{
    if (a->granularity != b->granularity)
        return false;
    switch (a->granularity) {
    case QPLAN_PER_TENSOR:
        return true;
    case QPLAN_PER_CHANNEL:
        return a->axis == b->axis;
    case QPLAN_PER_GROUP:
        return a->group == b->group;
    case QPLAN_PER_BLOCK:
        return a->block_rows == b->block_rows && a->block_cols == b->block_cols;
    }
    return false;
}

bool qp_scheme_equal(const struct qplan_scheme *a, const struct qplan_scheme *b)
{
    return a->dtype == b->dtype && granularity_equal(a, b) && a->asymmetric == b->asymmetric &&
           a->bias == b->bias && a->narrow == b->narrow && a->scale_dtype == b->scale_dtype &&
           a->nested == b->nested;
}

bool qp_scheme_told(const struct qplan_scheme *scheme, const struct qplan_scheme *told,
                    bool open_symmetry)
{
    struct qplan_scheme ours = *scheme, theirs = *told;
    ours.asymmetric |= ours.bias;
    theirs.asymmetric &= ours.asymmetric || !open_symmetry;
    return qp_scheme_equal(&ours, &theirs);
}

void qp_scheme_range(const struct qplan_scheme *scheme, int32_t *q_min, int32_t *q_max)
{
    (void)qplan_dtype_range(scheme->dtype, q_min, q_max);
    if (scheme->narrow)
        *q_min = -*q_max;
}

bool qp_scheme_resolve(const struct qplan_scheme *scheme, unsigned rank,
                       struct qplan_scheme *resolved)
{
    int32_t n_axes = (int32_t)rank;
    *resolved = *scheme;
    switch (scheme->granularity) {
    case QPLAN_PER_TENSOR:
        return true;
    case QPLAN_PER_CHANNEL:
        if (scheme->axis < 0)
            resolved->axis = scheme->axis + n_axes;
        return resolved->axis >= 0 && resolved->axis < n_axes;
    case QPLAN_PER_GROUP:
        return n_axes >= 1;
    case QPLAN_PER_BLOCK:
        return n_axes >= 2;
    }
    return false;
}
