/*
 * described.c - lines of text become a safetensors file.
 */
#include "described.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES ((uint64_t)1 << 17) /* of the data of a file */

/* ---- Lines ------------------------------------------------------------------------------------
 */

/* Cuts the next word off a line; "" when none is left. */
static char *next_word(char **line)
{
    char *word = *line + strspn(*line, " ");
    char *end = word + strcspn(word, " ");
    *line = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

static unsigned read_shape(char *text, uint64_t shape[QPLAN_MAX_RANK])
{
    unsigned rank = 0;
    char *rest = NULL;
    if (strcmp(text, "-") == 0)
        return 0;
    for (char *word = strtok_r(text, "x", &rest); word && rank < QPLAN_MAX_RANK;
         word = strtok_r(NULL, "x", &rest))
        shape[rank++] = strtoull(word, NULL, 10);
    return rank;
}

/* The tensor of this name, or a new one; NULL if there are too many. */
static struct described_tensor *tensor_named(struct described_list *list, const char *name,
                                             const char *suffix)
{
    char whole[sizeof list->items[0].name];
    (void)snprintf(whole, sizeof whole, "%s%s", name, suffix);
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->items[i].name, whole) == 0)
            return &list->items[i];
    }
    if (list->n == MOST_LINES)
        return NULL;
    struct described_tensor *t = &list->items[list->n++];
    memcpy(t->name, whole, sizeof whole);
    return t;
}

static void add_tensor(struct described_list *list, char *line)
{
    struct described_tensor *t = tensor_named(list, next_word(&line), "");
    if (!t)
        return;
    t->dtype = next_word(&line);
    t->rank = read_shape(next_word(&line), t->shape);
    t->data = next_word(&line);
}

static void add_pair(struct described_pairs *pairs, const char *key, const char *value)
{
    if (pairs->n < MOST_LINES)
        pairs->items[pairs->n++] = (struct described_pair){key, value};
}

/* ---- A quantized tensor as a reader wants it --------------------------------------------------
 */

static uint64_t div_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

/* The shape of scales and zero points; false for a shape that the scheme does not fit. */
static bool shape_sets(const struct qplan_scheme *s, struct described_tensor *t)
{
    const unsigned last = t->rank - 1;
    const int axis = s->axis < 0 ? s->axis + (int)t->rank : s->axis;
    if (t->rank == 0 || axis < 0 || axis > (int)last ||
        (s->granularity == QPLAN_PER_BLOCK && t->rank < 2))
        return false;
    if (s->granularity == QPLAN_PER_GROUP) {
        t->shape[last] = div_up(t->shape[last], s->group);
    } else if (s->granularity == QPLAN_PER_BLOCK) {
        t->shape[last - 1] = div_up(t->shape[last - 1], s->block_rows);
        t->shape[last] = div_up(t->shape[last], s->block_cols);
    } else {
        t->shape[0] = s->granularity == QPLAN_PER_CHANNEL ? t->shape[axis] : 1;
        t->rank = 1;
    }
    return true;
}

static const char *scale_type(enum qplan_dtype dtype)
{
    return dtype == QPLAN_F16 ? "F16" : dtype == QPLAN_BF16 ? "BF16" : "F32";
}

static void add_part(struct described_list *list, const char *name, const char *suffix,
                     const struct described_tensor *form, const char *dtype, const char *data)
{
    struct described_tensor *t = tensor_named(list, name, suffix);
    if (!t)
        return;
    t->dtype = dtype;
    t->data = data;
    t->rank = form->rank;
    memcpy(t->shape, form->shape, sizeof t->shape);
}

/* The record is kept as it stands; the parts are made if it can be understood. */
static void add_quantized(struct description *d, char *line)
{
    struct described_tensor form = {.rank = 0};
    struct qplan_scheme scheme;
    const char *name = next_word(&line);
    const char *words[4], *data[3];
    char *record = line, scheme_text[QPLAN_SCHEME_TEXT], shape_text[256];
    for (int i = 0; i < 4; i++)
        words[i] = next_word(&line);
    for (int i = 0; i < 3; i++)
        data[i] = next_word(&line);
    (void)snprintf(scheme_text, sizeof scheme_text, "%s", words[0]);
    (void)snprintf(shape_text, sizeof shape_text, "%s", words[3]);
    for (char *at = record; at < words[3]; at++) /* the words of the record, joined again */
        *at = *at ? *at : ' ';
    add_pair(&d->records, name, record);
    if (qplan_scheme_parse(&scheme, scheme_text, NULL) != QPLAN_OK)
        return;
    const bool is_signed = qplan_dtype_is_signed(scheme.dtype);
    const unsigned bits = qplan_dtype_bits(scheme.dtype);
    form.rank = read_shape(shape_text, form.shape);
    struct described_tensor codes = form;
    if (!shape_sets(&scheme, &form))
        return;
    uint64_t *last = &codes.shape[codes.rank - 1];
    *last = *last / 8 * bits + div_up(*last % 8 * bits, 8);
    add_part(&d->tensors, name, "", &codes, is_signed && bits == 8 ? "I8" : "U8", data[0]);
    add_part(&d->tensors, name, "_scale", &form, scale_type(scheme.scale_dtype), data[1]);
    if (*data[2])
        add_part(&d->tensors, name, "_zero_point", &form, is_signed ? "I8" : "U8", data[2]);
}

/* ---- The input --------------------------------------------------------------------------------
 */

static void read_line(struct description *d, char *line)
{
    const struct {
        const char *word;
        struct described_pairs *pairs;
        struct described_list *tensors;
        const char **text;
    } kinds[] = {
        {"meta", &d->meta, NULL, NULL},      {"record", &d->records, NULL, NULL},
        {"hint", &d->hints, NULL, NULL},     {"lack", &d->lacks, NULL, NULL},
        {"gate", &d->gates, NULL, NULL},     {"include", &d->includes, NULL, NULL},
        {"set", &d->fields, NULL, NULL},     {"tensor", NULL, &d->tensors, NULL},
        {"source", NULL, &d->sources, NULL}, {"nudge", NULL, NULL, &d->nudge},
        {"as", NULL, NULL, &d->as},          {"op", NULL, NULL, &d->op},
    };
    const char *word = next_word(&line);
    if (strcmp(word, "quantized") == 0)
        add_quantized(d, line);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(word, kinds[i].word) != 0)
            continue;
        if (kinds[i].tensors)
            add_tensor(kinds[i].tensors, line);
        else if (kinds[i].text)
            *kinds[i].text = line;
        else {
            const char *key = next_word(&line);
            add_pair(kinds[i].pairs, key, line);
        }
    }
}

void describe(struct description *d, const uint8_t *data, size_t size)
{
    static const char raw[] = "raw\n";
    char *rest = NULL;
    memset(d, 0, sizeof *d);
    d->nudge = d->as = d->op = "";
    d->is_raw = size >= strlen(raw) && memcmp(data, raw, strlen(raw)) == 0;
    if (d->is_raw) {
        bytes_add(&d->raw, data + strlen(raw), size - strlen(raw));
        return;
    }
    d->text = calloc(size + 1, 1);
    promise(d->text, "memory");
    if (size > 0)
        memcpy(d->text, data, size);
    for (char *line = strtok_r(d->text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        read_line(d, line);
}

void describe_end(struct description *d)
{
    free(d->text);
    free(d->raw.data);
}

/* ---- The file ---------------------------------------------------------------------------------
 */

bool describe_bytes(const char *dtype, const uint64_t *shape, unsigned rank, uint64_t *out)
{
    uint64_t bits = 0;
    for (int i = 0; i < QPLAN_STORAGE_COUNT; i++) {
        if (strcmp(qplan_storage_name((enum qplan_storage)i), dtype) == 0)
            bits = qplan_storage_bits((enum qplan_storage)i);
    }
    for (unsigned i = 0; i < rank; i++) {
        if (shape[i] > 0 && bits > 8 * MOST_BYTES / shape[i])
            return false;
        bits *= shape[i];
    }
    *out = bits / 8;
    return true;
}

static unsigned nibble(char c)
{
    return ((unsigned char)c & 15u) + (c > '9' ? 9u : 0u);
}

void describe_data(const char *digits, unsigned char *out, size_t n)
{
    const size_t period = strlen(digits) / 2;
    for (size_t i = 0; i < n; i++) {
        const char *at = digits + 2 * (period ? i % period : 0);
        out[i] = period ? (unsigned char)(nibble(at[0]) << 4 | (nibble(at[1]) & 15)) : 0;
    }
}

/* The value of qplan.tensors: an object as text, which is put into a string. */
static void put_records(struct bytes *out, const struct described_pairs *records)
{
    struct bytes object = {NULL, 0};
    for (size_t i = 0; i < records->n; i++) {
        bytes_puts(&object, i ? ",\"" : "{\"");
        bytes_puts(&object, records->items[i].key);
        bytes_puts(&object, "\":\"");
        bytes_puts(&object, records->items[i].value);
        bytes_puts(&object, "\"");
    }
    bytes_puts(&object, "}");
    bytes_puts(out, "\"qplan.tensors\":\"");
    for (size_t i = 0; i < object.n; i++) {
        if (object.data[i] == '"' || object.data[i] == '\\')
            bytes_puts(out, "\\");
        bytes_add(out, &object.data[i], 1);
    }
    bytes_puts(out, "\"");
    free(object.data);
}

static void put_metadata(struct bytes *out, const struct description *d)
{
    bytes_puts(out, "{\"__metadata__\":{");
    for (size_t i = 0; i < d->meta.n; i++) {
        bytes_puts(out, i ? ",\"" : "\"");
        bytes_puts(out, d->meta.items[i].key);
        bytes_puts(out, "\":\"");
        bytes_puts(out, d->meta.items[i].value);
        bytes_puts(out, "\"");
    }
    if (d->meta.n && d->records.n)
        bytes_puts(out, ",");
    if (d->records.n)
        put_records(out, &d->records);
    bytes_puts(out, "}");
}

static void put_tensor(struct bytes *out, const struct described_tensor *t, uint64_t begin,
                       uint64_t end)
{
    char number[64];
    bytes_puts(out, ",\"");
    bytes_puts(out, t->name);
    bytes_puts(out, "\":{\"dtype\":\"");
    bytes_puts(out, t->dtype);
    bytes_puts(out, "\",\"shape\":[");
    for (unsigned i = 0; i < t->rank; i++) {
        (void)snprintf(number, sizeof number, "%s%" PRIu64, i ? "," : "", t->shape[i]);
        bytes_puts(out, number);
    }
    (void)snprintf(number, sizeof number, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                   end);
    bytes_puts(out, number);
}

static bool put_tensors(struct bytes *header, struct bytes *data, const struct description *d)
{
    for (size_t i = 0; i < d->tensors.n; i++) {
        const struct described_tensor *t = &d->tensors.items[i];
        uint64_t n;
        const size_t begin = data->n;
        if (!describe_bytes(t->dtype, t->shape, t->rank, &n) || begin + n > MOST_BYTES)
            return false;
        put_tensor(header, t, begin, begin + n);
        bytes_add(data, NULL, (size_t)n);
        if (n > 0)
            describe_data(t->data, (unsigned char *)data->data + begin, (size_t)n);
    }
    bytes_puts(header, "}");
    return true;
}

bool describe_file(const struct description *d, struct bytes *out)
{
    struct bytes header = {NULL, 0}, data = {NULL, 0};
    unsigned char length[8];
    *out = (struct bytes){NULL, 0};
    if (d->is_raw) {
        bytes_add(out, d->raw.data, d->raw.n);
        return true;
    }
    put_metadata(&header, d);
    const bool made = put_tensors(&header, &data, d);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header.n >> (8 * i));
    if (made) {
        bytes_add(out, length, sizeof length);
        bytes_add(out, header.data, header.n);
        bytes_add(out, data.data, data.n);
    }
    free(header.data);
    free(data.data);
    return made;
}
