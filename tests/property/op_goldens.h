/*
 * op_goldens.h - every case of testdata/ops in memory: buffers between guard pages, contiguous or
 * with gaps, inputs that cannot be written, and a run in a way that a test chooses. It knows no
 * operator.
 */
#ifndef TESTS_OP_GOLDENS_H
#define TESTS_OP_GOLDENS_H

#include "tests/unit/support.h"

#include "lib/base/json.h"

#define FOLDER      "testdata/ops"
#define EXPECTED    "expect."
#define MAX_TENSORS 16
#define MAX_FIELDS  16
#define FILLER      0xa5

/* ---- Cases ------------------------------------------------------------------------------------
 */

struct golden {
    struct qplan_checkpoint *file;
    const struct qplan_op_info *info; /* NULL: this library does not offer it */
    unsigned char *bytes;             /* of the file */
    char *fields_text;
    struct qplan_op_field fields[MAX_FIELDS];
    size_t n_fields;
    bool refused;
};

/* Values of fields are words, whatever their type in JSON. */
static void read_fields(struct golden *g, const char *json)
{
    struct qp_json reader;
    struct qp_json_token token;
    struct qplan_error err;
    g->fields_text = strdup(json);
    qp_json_init(&reader, g->fields_text, strlen(json), 0, 2, "desc");
    OK(qp_json_next(&reader, &token, &err), &err);
    for (;;) {
        OK(qp_json_next(&reader, &token, &err), &err);
        if (token.type != QP_JSON_KEY)
            break;
        struct qplan_op_field *field = &g->fields[g->n_fields++];
        *field = (struct qplan_op_field){.name = token.text};
        OK(qp_json_next(&reader, &token, &err), &err);
        field->text = token.type == QP_JSON_TRUE    ? "true"
                      : token.type == QP_JSON_FALSE ? "false"
                                                    : token.text;
        if (token.type != QP_JSON_NUMBER)
            continue;
        char *number = strndup(token.text, token.n);
        field->real = strtod(number, NULL);
        field->number = (int64_t)field->real;
        field->text = NULL;
        free(number);
    }
}

static void golden_open(struct golden *g, const char *path)
{
    size_t n;
    *g = (struct golden){.file = open_checkpoint(path), .bytes = read_file(path, &n)};
    g->info = qplan_op_find(qplan_checkpoint_metadata(g->file, "op", NULL));
    g->refused = qplan_checkpoint_metadata(g->file, "exit", NULL) != NULL;
    read_fields(g, qplan_checkpoint_metadata(g->file, "desc", NULL));
}

static void golden_close(struct golden *g)
{
    qplan_checkpoint_close(g->file);
    free(g->fields_text);
    free(g->bytes);
}

/* Only a file can be refused for a tensor that is an output; in memory it is the place for it. */
static bool lists_output(const struct golden *g)
{
    for (size_t i = 0; i < g->n_fields; i++) {
        if (strcmp(g->fields[i].name, "accumulate") == 0)
            return false;
    }
    for (size_t i = 0; i < g->info->n_arguments; i++) {
        const struct qplan_op_argument_info *argument = &g->info->arguments[i];
        for (size_t k = 0; k < qplan_checkpoint_count(g->file); k++) {
            if (argument->direction != QPLAN_OP_IN &&
                strcmp(qplan_checkpoint_entry(g->file, k)->name, argument->name) == 0)
                return true;
        }
    }
    return false;
}

static const unsigned char *content(const struct golden *g, const struct qplan_entry *entry)
{
    uint64_t n_header;
    memcpy(&n_header, g->bytes, sizeof n_header);
    return g->bytes + sizeof n_header + n_header + entry->begin;
}

/* ---- Tensors between guard pages --------------------------------------------------------------
 */

/* How a case is run. */
struct way {
    enum qplan_isa isa;
    unsigned threads;
    bool at_end;  /* buffers end where a guard page begins; else they begin where one ends */
    bool strided; /* every stride is doubled: element k is at 2 k */
    struct qplan_device *device; /* NULL = the CPU */
};

struct placed {
    struct qplan_tensor tensor;
    struct guarded memory;
    int64_t shape[QPLAN_MAX_RANK], stride[QPLAN_MAX_RANK];
    size_t n_elems, elem_bytes, step;
    bool is_output;
};

static void place(struct placed *p, const struct qplan_tensor *form, const struct way *way)
{
    *p = (struct placed){.tensor = *form, .n_elems = 1, .step = way->strided ? 2 : 1};
    p->elem_bytes = qplan_storage_bits(form->dtype) / 8;
    for (unsigned i = form->rank; i-- > 0; p->n_elems *= (size_t)form->shape[i]) {
        p->shape[i] = form->shape[i];
        p->stride[i] = (int64_t)(p->n_elems * p->step);
    }
    const size_t n_bytes = p->n_elems ? ((p->n_elems - 1) * p->step + 1) * p->elem_bytes : 0;
    p->memory = guarded_make(n_bytes);
    memset(p->memory.begin, FILLER, (size_t)(p->memory.end - p->memory.begin));
    p->tensor.shape = p->shape;
    p->tensor.stride = way->strided ? p->stride : NULL;
    p->tensor.data = way->at_end ? p->memory.end - n_bytes : p->memory.begin;
    p->tensor.n_bytes = n_bytes;
}

static unsigned char *element(const struct placed *p, size_t k)
{
    return (unsigned char *)p->tensor.data + k * p->step * p->elem_bytes;
}

static void fill(struct placed *p, const unsigned char *from)
{
    for (size_t k = 0; k < p->n_elems; k++)
        memcpy(element(p, k), from + k * p->elem_bytes, p->elem_bytes);
}

/* Takes the elements out and then expects nothing but filler. */
static void take(struct placed *p, struct text *out)
{
    for (size_t k = 0; k < p->n_elems; k++) {
        (void)text_add(out, element(p, k), p->elem_bytes);
        memset(element(p, k), FILLER, p->elem_bytes);
    }
    for (const unsigned char *byte = p->memory.begin; byte < p->memory.end; byte++)
        assert_int_equal(*byte, FILLER);
}

/* ---- Runs -------------------------------------------------------------------------------------
 */

struct run {
    struct placed placed[MAX_TENSORS];
    struct qplan_tensor tensors[MAX_TENSORS];
    size_t n;
    struct qplan_op *op;
    struct qplan_op_guarantee guarantee;
};

static struct placed *find(struct run *run, const char *name)
{
    for (size_t i = 0; i < run->n; i++) {
        if (strcmp(run->placed[i].tensor.name, name) == 0)
            return &run->placed[i];
    }
    return NULL;
}

static void place_inputs(struct run *run, const struct golden *g, const struct way *way)
{
    for (size_t i = 0; i < qplan_checkpoint_count(g->file); i++) {
        const struct qplan_entry *entry = qplan_checkpoint_entry(g->file, i);
        if (strncmp(entry->name, EXPECTED, strlen(EXPECTED)) == 0)
            continue;
        assert_true(run->n < MAX_TENSORS);
        const struct qplan_tensor form = {.name = entry->name,
                                          .dtype = (enum qplan_storage)entry->storage,
                                          .rank = entry->rank,
                                          .shape = (const int64_t *)entry->shape};
        place(&run->placed[run->n], &form, way);
        fill(&run->placed[run->n++], content(g, entry));
    }
}

/* An output that is an input too is updated where it is; the other inputs become read-only. */
static void place_outputs(struct run *run, const struct way *way)
{
    struct qplan_tensor form;
    for (size_t i = 0; qplan_op_output(run->op, i, &form); i++) {
        struct placed *p = find(run, form.name);
        if (!p) {
            assert_true(run->n < MAX_TENSORS);
            p = &run->placed[run->n++];
            place(p, &form, way);
        }
        p->is_output = true;
    }
    for (size_t i = 0; i < run->n; i++) {
        const struct guarded *memory = &run->placed[i].memory;
        if (!run->placed[i].is_output)
            assert_int_equal(
                mprotect(memory->begin, (size_t)(memory->end - memory->begin), PROT_READ), 0);
    }
}

static void list_tensors(struct run *run)
{
    for (size_t i = 0; i < run->n; i++)
        run->tensors[i] = run->placed[i].tensor;
}

/* What came of a run. */
struct outcome {
    struct text out; /* the elements of its outputs, one behind the other */
    struct qplan_op_guarantee guarantee;
    struct qplan_op_counts counts;
    struct qplan_error err;
    bool on_device;
};

static enum qplan_status run_selected(struct run *run, const struct way *way,
                                      struct outcome *outcome)
{
    struct qplan_error *err = &outcome->err;
    const uint64_t n_bytes = qplan_op_workspace_size(run->op);
    struct guarded workspace = guarded_make((size_t)n_bytes);
    void *at = way->at_end ? workspace.end - n_bytes : workspace.begin;
    const struct qplan_op_args args = {run->tensors, run->n, &outcome->counts};
    OK(qplan_op_can_implement(run->op, &args, err), err);
    enum qplan_status status = qplan_op_run(run->op, NULL, at, n_bytes, &args, err);
    guarded_free(&workspace);
    return status;
}

static enum qplan_status run_golden(const struct golden *g, const struct way *way,
                                    struct outcome *outcome)
{
    struct run *run = calloc(1, sizeof *run);
    struct qplan_op_preference preference = QPLAN_OP_PREFERENCE_DEFAULT;
    assert_non_null(run);
    *outcome = (struct outcome){0};
    preference.isa = way->isa;
    preference.threads = way->threads;
    preference.device = way->device;
    place_inputs(run, g, way);
    list_tensors(run);
    const struct qplan_op_desc desc = {g->info->name, g->fields, g->n_fields, run->tensors, run->n};
    enum qplan_status status = qplan_op_select(&run->op, &desc, &preference, &outcome->err);
    if (status == QPLAN_OK) {
        outcome->guarantee = *qplan_op_precision_guarantee(run->op);
        outcome->on_device = qplan_op_sku(run->op)->backend != QPLAN_BACKEND_CPU;
        place_outputs(run, way);
        list_tensors(run);
        status = run_selected(run, way, outcome);
    }
    for (size_t i = 0; i < run->n; i++) {
        if (run->placed[i].is_output)
            take(&run->placed[i], &outcome->out);
        guarded_free(&run->placed[i].memory);
    }
    qplan_op_free(run->op);
    free(run);
    return status;
}

/*
 * What an update has at the start is what it has at the end; other outputs are filler still.
 * Updates come first, in the order of the file.
 */
static void check_unwritten(const struct golden *g, const struct text *out)
{
    size_t at = 0;
    for (size_t i = 0; i < qplan_checkpoint_count(g->file); i++) {
        const struct qplan_entry *entry = qplan_checkpoint_entry(g->file, i);
        const size_t n = (size_t)(entry->end - entry->begin);
        if (n > 0 && n <= out->n - at && memcmp(out->data + at, content(g, entry), n) == 0)
            at += n;
    }
    for (; at < out->n; at++)
        assert_int_equal((unsigned char)out->data[at], FILLER);
}

/* Every case that is one for this library, and a name for it. */
static void each_golden(void (*check)(const char *name, const struct golden *g, void *ctx),
                        void *ctx)
{
    struct dirent **names;
    const int n_names = scandir(FOLDER, &names, NULL, alphasort);
    assert_true(n_names > 0);
    for (int i = 0; i < n_names; i++) {
        char path[512];
        struct golden g;
        (void)snprintf(path, sizeof path, FOLDER "/%s", names[i]->d_name);
        if (strstr(path, ".safetensors")) {
            golden_open(&g, path);
            if (g.info && !(g.refused && lists_output(&g)))
                check(names[i]->d_name, &g, ctx);
            golden_close(&g);
        }
        free(names[i]);
    }
    free(names);
}

#endif
