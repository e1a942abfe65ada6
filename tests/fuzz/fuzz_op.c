/*
 * fuzz_op.c - any text is a problem for an operator or refused. Selecting and checking buffers
 * never fail in another way than the header says; a small problem that is accepted runs, touches
 * nothing but its outputs, and nothing at all if it is refused by its values.
 *
 *     quantize_per_group              the operator
 *     group_size=4                    a field
 *     input F32 2,8                   a tensor: name, dtype, shape ("-" = rank 0),
 *     scale F32 2,2 4,2 63            strides ("-" = contiguous), and the byte it is filled with
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/qplan.h"

#define MAX_FIELDS  16
#define MAX_TENSORS 16
#define MAX_ELEMS   4096 /* of a tensor of a run */
#define MAX_BYTES   ((uint64_t)1 << 24)
#define GUARD       64
#define FILLER      0x5a

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* ---- The text ---------------------------------------------------------------------------------
 */

struct tensor {
    struct qplan_tensor public;
    int64_t shape[QPLAN_MAX_RANK], stride[QPLAN_MAX_RANK];
    int fill;
    bool is_output;
    unsigned char *block, *copy; /* with a guard on both sides; and as it was before the run */
};

struct problem {
    struct qplan_op_desc desc;
    struct qplan_op_field fields[MAX_FIELDS];
    struct tensor tensors[MAX_TENSORS];
    struct qplan_tensor list[MAX_TENSORS];
    size_t n_tensors;
};

static enum qplan_storage storage_of(const char *name)
{
    for (int i = 0; qplan_storage_name((enum qplan_storage)i); i++) {
        if (strcmp(qplan_storage_name((enum qplan_storage)i), name) == 0)
            return (enum qplan_storage)i;
    }
    return (enum qplan_storage)atoi(name); /* any number: a caller may have it wrong */
}

/* "2,8": how many numbers there are. */
static unsigned read_numbers(char *text, int64_t *out)
{
    unsigned n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, ",", &rest); word && n < QPLAN_MAX_RANK;
         word = strtok_r(NULL, ",", &rest))
        out[n++] = strtoll(word, NULL, 10);
    return n;
}

static void read_tensor(struct problem *p, char *line)
{
    char *words[5] = {NULL}, *rest = NULL;
    size_t n = 0;
    for (char *word = strtok_r(line, " ", &rest); word && n < 5; word = strtok_r(NULL, " ", &rest))
        words[n++] = word;
    if (n < 3 || p->n_tensors == MAX_TENSORS)
        return;
    struct tensor *t = &p->tensors[p->n_tensors++];
    t->public =
        (struct qplan_tensor){.name = words[0], .dtype = storage_of(words[1]), .shape = t->shape};
    if (strcmp(words[2], "-") != 0)
        t->public.rank = read_numbers(words[2], t->shape);
    if (n > 3 && strcmp(words[3], "-") != 0) {
        (void)read_numbers(words[3], t->stride);
        t->public.stride = t->stride;
    }
    t->fill = n > 4 ? atoi(words[4]) : words[1][0] == 'F' || words[1][0] == 'B' ? 63 : 0;
}

static void read_problem(struct problem *p, char *text)
{
    char *rest = NULL;
    p->desc = (struct qplan_op_desc){.op = "", .fields = p->fields, .tensors = p->list};
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *equals = strchr(line, '=');
        if (!*p->desc.op) {
            p->desc.op = line;
        } else if (!equals) {
            read_tensor(p, line);
        } else if (p->desc.n_fields < MAX_FIELDS) {
            *equals = '\0';
            p->fields[p->desc.n_fields++] =
                (struct qplan_op_field){.name = line, .text = equals + 1};
        }
    }
}

static void list_tensors(struct problem *p)
{
    for (size_t i = 0; i < p->n_tensors; i++)
        p->list[i] = p->tensors[i].public;
    p->desc.n_tensors = p->n_tensors;
}

/* ---- Buffers ----------------------------------------------------------------------------------
 */

/* Bytes that shape and strides reach, or UINT64_MAX if a run would not be small. */
static uint64_t reach(const struct qplan_tensor *t)
{
    uint64_t n = 1, last = 0;
    for (unsigned i = t->rank; i-- > 0;) {
        uint64_t extent = (uint64_t)t->shape[i], step = t->stride ? (uint64_t)t->stride[i] : n;
        if (extent > MAX_ELEMS || step > MAX_ELEMS)
            return UINT64_MAX;
        last += (extent ? extent - 1 : 0) * step;
        n *= extent;
        if (n > MAX_ELEMS || last > MAX_ELEMS)
            return UINT64_MAX;
    }
    return n ? (last + 1) * (qplan_storage_bits(t->dtype) / 8) : 0;
}

/* The outputs that the text does not list. */
static void add_outputs(struct problem *p, const struct qplan_op *op)
{
    struct qplan_tensor form;
    for (size_t i = 0; qplan_op_output(op, i, &form); i++) {
        struct tensor *t = NULL;
        require(form.rank <= QPLAN_MAX_RANK && form.name);
        for (size_t k = 0; k < p->n_tensors; k++) {
            if (strcmp(p->tensors[k].public.name, form.name) == 0)
                t = &p->tensors[k];
        }
        if (!t) {
            require(p->n_tensors < MAX_TENSORS + 8);
            if (p->n_tensors == MAX_TENSORS)
                return;
            t = &p->tensors[p->n_tensors++];
            t->public = form;
        }
        t->is_output = true;
    }
}

static void make_block(struct tensor *t, uint64_t n_bytes)
{
    t->block = malloc(n_bytes + 2 * GUARD);
    t->copy = malloc(n_bytes + 2 * GUARD);
    require(t->block && t->copy);
    memset(t->block, FILLER, n_bytes + 2 * GUARD);
    memset(t->block + GUARD, t->fill, n_bytes);
    memcpy(t->copy, t->block, n_bytes + 2 * GUARD);
    t->public.data = t->block + GUARD;
    t->public.n_bytes = n_bytes;
}

/* False if some tensor is too large to be made. */
static bool make_blocks(struct problem *p)
{
    for (size_t i = 0; i < p->n_tensors; i++) {
        const uint64_t n_bytes = reach(&p->tensors[i].public);
        if (n_bytes == UINT64_MAX)
            return false;
        make_block(&p->tensors[i], n_bytes);
    }
    return true;
}

static void free_blocks(struct problem *p)
{
    for (size_t i = 0; i < p->n_tensors; i++) {
        free(p->tensors[i].block);
        free(p->tensors[i].copy);
    }
}

static void check_blocks(const struct problem *p, bool refused)
{
    for (size_t i = 0; i < p->n_tensors; i++) {
        const struct tensor *t = &p->tensors[i];
        const size_t n = (size_t)t->public.n_bytes;
        require(memcmp(t->block, t->copy, GUARD) == 0);
        require(memcmp(t->block + GUARD + n, t->copy + GUARD + n, GUARD) == 0);
        if (refused || !t->is_output)
            require(memcmp(t->block + GUARD, t->copy + GUARD, n) == 0);
    }
}

/* ---- The life of an operator ------------------------------------------------------------------
 */

/* Claims of buffers of any size at one address: their sizes and strides must not overflow. */
static void check_claims(struct problem *p, const struct qplan_op *op)
{
    static uint64_t somewhere[8];
    struct qplan_error err;
    for (size_t i = 0; i < p->n_tensors; i++) {
        p->list[i] = p->tensors[i].public;
        p->list[i].data = somewhere;
        p->list[i].n_bytes = UINT64_MAX;
    }
    const struct qplan_op_args args = {p->list, p->n_tensors, NULL};
    enum qplan_status status = qplan_op_can_implement(op, &args, &err);
    require(status == QPLAN_OK || err.status == status);
}

static void run(struct problem *p, const struct qplan_op *op)
{
    struct qplan_error err;
    struct qplan_op_counts counts;
    const uint64_t n_bytes = qplan_op_workspace_size(op);
    if (n_bytes > MAX_BYTES || !make_blocks(p))
        return;
    list_tensors(p);
    const struct qplan_op_args args = {p->list, p->n_tensors, &counts};
    enum qplan_status can = qplan_op_can_implement(op, &args, &err);
    void *workspace = malloc(n_bytes + 1);
    require(workspace);
    enum qplan_status status = qplan_op_run(op, NULL, workspace, n_bytes, &args, &err);
    require(can == QPLAN_OK ? status == QPLAN_OK || status == QPLAN_ERR_VALUE : status == can);
    check_blocks(p, status != QPLAN_OK);
    free(workspace);
}

static void live(struct problem *p)
{
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    struct qplan_op *op;
    struct qplan_error err;
    preference.threads = 1;
    list_tensors(p);
    enum qplan_status status = qplan_op_select(&op, &p->desc, &preference, &err);
    if (status != QPLAN_OK) {
        require(!op && err.status == status && err.message[0]);
        require(status == QPLAN_ERR_USAGE || status == QPLAN_ERR_INVALID ||
                status == QPLAN_ERR_UNSUPPORTED);
        return;
    }
    require(qplan_op_sku(op)->dtypes[0] && qplan_op_precision_guarantee(op)->math_precision);
    add_outputs(p, op);
    check_claims(p, op);
    run(p, op);
    free_blocks(p);
    qplan_op_free(op);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct problem *p = calloc(1, sizeof *p);
    char *text = calloc(size + 1, 1);
    require(p && text);
    if (size > 0)
        memcpy(text, data, size);
    read_problem(p, text);
    live(p);
    free(text);
    free(p);
    return 0;
}
