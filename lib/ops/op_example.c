/*
 * op_example.c - the examples of rows, read: fields and tensors in words, such as
 *
 *     "group_size=5 ragged=true; input 3,17 any; scale 3,4 scale; zero_point 3,4 zero"
 *
 * The fields come first, if there are any: the text up to the first ";". A tensor has a shape and a
 * kind of values, some kinds a limit; its dtype is the key of the kernel where the argument may
 * have it, else the first that it may have. "-" is the shape of rank 0.
 */
#include "op_example.h"

#include "lib/base/alloc.h"
#include "lib/base/text.h"
#include "lib/device/hard.h"
#include "lib/model/dtype.h"

#include <math.h>
#include <string.h>

/* ---- Values -----------------------------------------------------------------------------------
 */

/* Hard numbers between ones of all magnitudes up to 16. */
static double finite_value(uint32_t *state, int64_t limit)
{
    const uint32_t random = qp_hard_random(state), low = qp_hard_random(state);
    (void)limit;
    if (random % 8 == 0)
        return qp_hard_value(random / 8, false);
    return ldexp((double)random * 0x1p-31 - 1 + (double)low * 0x1p-64, 4 - (int)(low % 24));
}

static double any_value(uint32_t *state, int64_t limit)
{
    static const double others[] = {INFINITY, -INFINITY, NAN, -NAN, 0x1.fffffep127, -0x1p1000};
    const uint32_t random = qp_hard_random(state);
    return random % 16 == 0 ? others[random / 16 % QP_COUNT(others)] : finite_value(state, limit);
}

/* Above 0 in every dtype. */
static double scale_value(uint32_t *state, int64_t limit)
{
    const uint32_t random = qp_hard_random(state);
    (void)limit;
    return ldexp(1 + (double)random * 0x1p-32, (int)(random % 16) - 13);
}

/* 0 to 3 and, for floats, halves. */
static double zero_value(uint32_t *state, int64_t limit)
{
    (void)limit;
    return (double)(qp_hard_random(state) % 8) * 0.5;
}

static double byte_value(uint32_t *state, int64_t limit)
{
    (void)limit;
    return (double)(qp_hard_random(state) >> 8 & 255);
}

/* A code of a float of 8 bits that is a number: its size is at most the limit. */
static double float_code(uint32_t *state, int64_t limit)
{
    const uint32_t random = qp_hard_random(state) >> 8;
    return (double)(random % ((uint32_t)limit + 1) + (random >> 16 & 128));
}

/* Below the limit. */
static double index_below(uint32_t *state, int64_t limit)
{
    return (double)(qp_hard_random(state) % (uint32_t)limit);
}

/* Coordinates, some of them outside. */
static double coordinate(uint32_t *state, int64_t limit)
{
    (void)limit;
    return (double)qp_hard_random(state) * 0x1.4p-31 - 1.25;
}

/* The words of an example; a number behind the word is the limit. */
static const struct kind {
    const char *word;
    double (*value)(uint32_t *state, int64_t limit);
    bool ascending; /* from 0 on: the values are steps, the last one at most the limit */
} kinds[] = {
    {"any", any_value, false},   {"finite", finite_value, false}, {"scale", scale_value, false},
    {"zero", zero_value, false}, {"byte", byte_value, false},     {"index", index_below, false},
    {"grid", coordinate, false}, {"offset", index_below, true},   {"float", float_code, false},
};

/* An integer is cut to what its dtype holds: the low bytes, which come first. */
static void put_value(enum qplan_storage dtype, double x, char *to)
{
    const int64_t whole = QP_FP_BITS & QP_BIT(dtype) ? 0 : (int64_t)x;
    if (QP_FP_BITS & QP_BIT(dtype))
        qp_hard_put(qp_op_float(dtype), x, to);
    else
        memcpy(to, &whole, qplan_storage_bits(dtype) / 8);
}

static void fill(const struct kind *kind, int64_t limit, const struct qplan_tensor *tensor,
                 uint32_t *state)
{
    const size_t size = qplan_storage_bits(tensor->dtype) / 8, n = (size_t)tensor->n_bytes / size;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double x = 0;
        if (!kind->ascending)
            x = kind->value(state, limit);
        else if (i > 0) /* steps of about what is left for each */
            x = sum += fmin(kind->value(state, 2 * (limit / (int64_t)n) + 1), (double)limit - sum);
        put_value(tensor->dtype, x, (char *)tensor->data + i * size);
    }
}

/* ---- Examples ---------------------------------------------------------------------------------
 */

/* The next word of a text that ends at one of the signs; NULL behind the last. */
static char *next_word(char **text, const char *ends)
{
    char *word = *text + strspn(*text, " ");
    if (!*word)
        return NULL;
    *text = word + strcspn(word, ends);
    if (**text)
        *(*text)++ = '\0';
    return word;
}

enum qplan_status qp_op_fail_example(const struct qp_op_row *row, const char *what,
                                     struct qplan_error *err)
{
    return qp_fail(err, QPLAN_ERR_INTERNAL, row->info.name, "its examples have %s", what);
}

static enum qplan_status read_fields(struct qp_op_example *p, const struct qp_op_row *row,
                                     char *text, struct qplan_error *err)
{
    char *word;
    while ((word = next_word(&text, " ")) != NULL) {
        char *value = strchr(word, '=');
        if (!value || p->n_fields == QP_OP_MAX_FIELDS)
            return qp_op_fail_example(row, "no field where one is expected", err);
        *value++ = '\0';
        p->fields[p->n_fields++] = (struct qplan_op_field){.name = word, .text = value};
    }
    return QPLAN_OK;
}

/* The storage type of the first n letters of a text, or QPLAN_STORAGE_COUNT. */
static enum qplan_storage storage_of(const char *text, size_t n)
{
    enum qplan_storage found;
    return qp_storage_find(text, n, &found) ? found : QPLAN_STORAGE_COUNT;
}

/* The dtype of an argument: the key if it may have that, else the first that it may have. */
static bool find_dtype(const struct qp_op_row *row, const char *name, enum qplan_storage key,
                       enum qplan_storage *out)
{
    size_t i = 0;
    while (i < row->info.n_arguments && strcmp(row->info.arguments[i].name, name) != 0)
        i++;
    if (i == row->info.n_arguments)
        return false;
    const char *at = row->info.arguments[i].dtypes;
    *out = storage_of(at, strcspn(at, "|"));
    for (size_t n; *at && *out != key; at += n + (at[n] == '|')) {
        n = strcspn(at, "|");
        if (storage_of(at, n) == key)
            *out = key;
    }
    return *out != QPLAN_STORAGE_COUNT;
}

/* "scale 3,4 scale" or "scale:F32 3,4 scale": name, dtype, shape, kind and its limit. */
struct words {
    char *name, *dtype, *shape, *kind, *limit;
};

static struct words split_words(char *text)
{
    struct words w = {.name = next_word(&text, " ")};
    w.dtype = w.name ? strchr(w.name, ':') : NULL;
    if (w.dtype)
        *w.dtype++ = '\0';
    w.shape = next_word(&text, " ");
    w.kind = next_word(&text, " ");
    w.limit = next_word(&text, " ");
    return w;
}

static const struct kind *find_kind(const char *word)
{
    size_t i = 0;
    while (i < QP_COUNT(kinds) && strcmp(kinds[i].word, word) != 0)
        i++;
    return i < QP_COUNT(kinds) ? &kinds[i] : NULL;
}

static bool read_shape(struct qplan_tensor *tensor, int64_t *shape, char *text, uint64_t *n_elems)
{
    char *word;
    uint64_t extent;
    *n_elems = 1;
    tensor->shape = shape;
    while (strcmp(text, "-") != 0 && (word = next_word(&text, ",")) != NULL) {
        if (!qp_parse_u64(word, &extent) || tensor->rank == QPLAN_MAX_RANK)
            return false;
        shape[tensor->rank++] = (int64_t)extent;
        *n_elems *= extent;
    }
    return true;
}

static enum qplan_status read_tensor(struct qp_op_example *p, const struct qp_op_row *row,
                                     enum qplan_storage key, char *text, struct qplan_error *err)
{
    const struct words w = split_words(text);
    const struct kind *kind = w.kind ? find_kind(w.kind) : NULL;
    struct qplan_tensor *tensor = &p->tensors[p->n_tensors];
    uint64_t n_elems, limit = 0;
    if (!kind || p->n_tensors == QP_OP_MAX_ARGUMENTS ||
        !find_dtype(row, w.name, key, &tensor->dtype) ||
        !read_shape(tensor, p->shapes[p->n_tensors], w.shape, &n_elems) ||
        (w.limit && !qp_parse_u64(w.limit, &limit)))
        return qp_op_fail_example(row, "no tensor where one is expected", err);
    if (w.dtype)
        tensor->dtype = storage_of(w.dtype, strlen(w.dtype));
    tensor->name = w.name;
    tensor->n_bytes = n_elems * (qplan_storage_bits(tensor->dtype) / 8);
    tensor->data = qp_alloc_buffer(tensor->n_bytes);
    if (!tensor->data)
        return qp_fail_memory(err, "example", tensor->n_bytes);
    uint32_t state = 2463534242u + (uint32_t)p->n_tensors++;
    fill(kind, (int64_t)limit, tensor, &state);
    return QPLAN_OK;
}

enum qplan_status qp_op_read_example(struct qp_op_example *p, const struct qp_op_row *row,
                                     const char *example, enum qplan_storage key,
                                     struct qplan_error *err)
{
    char *text = p->text, *part;
    if (strlen(example) >= sizeof p->text)
        return qp_op_fail_example(row, "too long a text", err);
    memcpy(p->text, example, strlen(example) + 1);
    part = next_word(&text, ";");
    if (part)
        QP_TRY(read_fields(p, row, part, err));
    while ((part = next_word(&text, ";")) != NULL)
        QP_TRY(read_tensor(p, row, key, part, err));
    p->n_inputs = p->n_tensors;
    return QPLAN_OK;
}

void qp_op_free_tensors(struct qp_op_example *p, size_t from)
{
    for (; p->n_tensors > from; p->n_tensors--)
        qp_free(p->tensors[p->n_tensors - 1].data);
}

/* ---- Running ----------------------------------------------------------------------------------
 */

struct qplan_op_desc qp_op_example_desc(const struct qp_op_example *p, const struct qp_op_row *row)
{
    return (struct qplan_op_desc){row->info.name, p->fields, p->n_fields, p->tensors, p->n_inputs};
}

/* Outputs behind the inputs, full of a byte that no result should have kept. */
static enum qplan_status make_outputs(struct qp_op_example *p, const struct qplan_op *op,
                                      struct qplan_error *err)
{
    struct qplan_tensor output;
    for (size_t i = 0; qplan_op_output(op, i, &output); i++) {
        size_t k = 0;
        while (k < p->n_inputs && strcmp(p->tensors[k].name, output.name) != 0)
            k++;
        const struct qp_op_tensor *tensor = qp_op_tensor(op, output.name);
        output.n_bytes = tensor->n_elems * (qplan_storage_bits(output.dtype) / 8);
        output.data = qp_alloc_buffer(output.n_bytes);
        if (!output.data)
            return qp_fail_memory(err, output.name, output.n_bytes);
        memset(output.data, 0xa5, (size_t)output.n_bytes);
        if (k < p->n_inputs) /* updated: begins as it was given */
            memcpy(output.data, p->tensors[k].data, (size_t)output.n_bytes);
        p->tensors[p->n_tensors++] = output;
    }
    return QPLAN_OK;
}

/* The arguments of a run: each output in the place of an input of its name. */
static size_t list_arguments(const struct qp_op_example *p, struct qplan_tensor *out)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_tensors; i++) {
        bool updated = false;
        for (size_t k = p->n_inputs; i < p->n_inputs && k < p->n_tensors; k++)
            updated = updated || strcmp(p->tensors[k].name, p->tensors[i].name) == 0;
        if (!updated)
            out[n++] = p->tensors[i];
    }
    return n;
}

enum qplan_status qp_op_run_example(struct qp_op_example *p, const struct qplan_op *op,
                                    struct qplan_error *err)
{
    struct qplan_tensor arguments[2 * QP_OP_MAX_ARGUMENTS];
    QP_TRY(make_outputs(p, op, err));
    const struct qplan_op_args args = {arguments, list_arguments(p, arguments), &p->counts};
    const uint64_t n_bytes = qplan_op_workspace_size(op);
    void *workspace = qp_alloc_buffer(n_bytes);
    if (!workspace)
        return qp_fail_memory(err, "workspace", n_bytes);
    enum qplan_status status = qplan_op_run(op, NULL, workspace, n_bytes, &args, err);
    qp_free(workspace);
    return status;
}

bool qp_op_same_results(const struct qp_op_example *a, const struct qp_op_example *b)
{
    bool same = memcmp(&a->counts, &b->counts, sizeof a->counts) == 0;
    for (size_t i = a->n_inputs; same && i < a->n_tensors; i++)
        same = memcmp(a->tensors[i].data, b->tensors[i].data, (size_t)a->tensors[i].n_bytes) == 0;
    return same;
}
