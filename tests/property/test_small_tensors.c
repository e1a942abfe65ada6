/*
 * test_small_tensors.c - tensors that are done together because they are small: each must come out
 * as it does alone in a file, for any number of threads and amount of memory.
 */
#include "tests/unit/own_folder.h"

#include <stdlib.h>
#include <string.h>

/* Several times what one worker takes at once, in names whose order is that of the file. */
#define N_TENSORS  1200
#define MOST_ELEMS (96 * 65)

struct source {
    struct tensor tensors[N_TENSORS];
    char names[N_TENSORS][16];
    float *data;
    uint64_t n_elems;
};

static void make_source(struct source *s, uint64_t *seed)
{
    static const uint64_t rows[] = {1, 2, 17, 64, 96}, cols[] = {1, 3, 16, 33, 64, 65};
    s->data = calloc((size_t)N_TENSORS * MOST_ELEMS, sizeof *s->data);
    s->n_elems = 0;
    assert_non_null(s->data);
    for (size_t i = 0; i < N_TENSORS; i++) {
        struct tensor *t = &s->tensors[i];
        (void)snprintf(s->names[i], sizeof s->names[i], "w%04zu", i);
        *t = (struct tensor){.name = s->names[i], .dtype = "F32", .rank = 2};
        t->rank = random_below(seed, 10) ? 2 : 1; /* of rank 1: kept */
        t->shape[0] = rows[random_below(seed, COUNT(rows))];
        t->shape[1] = t->rank == 2 ? cols[random_below(seed, COUNT(cols))] : 0;
        if (i > 0 && random_below(seed, 4)) { /* mostly as the one before it */
            t->rank = t[-1].rank;
            memcpy(t->shape, t[-1].shape, sizeof t->shape);
        }
        const uint64_t n = t->shape[0] * (t->rank == 2 ? t->shape[1] : 1);
        t->data = s->data + s->n_elems;
        t->n_bytes = (size_t)n * sizeof *s->data;
        for (uint64_t k = 0; k < n; k++)
            s->data[s->n_elems++] =
                random_below(seed, 20000) ? (float)random_signed(seed) : (float)INFINITY;
    }
}

/* The bytes of an output tensor in a file. */
static const unsigned char *part_of(const struct qplan_checkpoint *file, const unsigned char *bytes,
                                    const char *name, const char *suffix, size_t *n)
{
    char full[64];
    uint64_t n_header;
    (void)snprintf(full, sizeof full, "%s%s", name, suffix);
    memcpy(&n_header, bytes, sizeof n_header);
    for (size_t i = 0; i < qplan_checkpoint_count(file); i++) {
        const struct qplan_entry *entry = qplan_checkpoint_entry(file, i);
        if (strcmp(entry->name, full) != 0)
            continue;
        *n = (size_t)(entry->end - entry->begin);
        return bytes + 8 + n_header + entry->begin;
    }
    *n = 0;
    return NULL;
}

static void assert_as_alone(const struct qplan_checkpoint *all, const unsigned char *bytes,
                            const struct tensor *t, const char *scheme)
{
    static const char *const suffixes[] = {"", "_scale", "_zero_point"};
    const struct qplan_run run = {.threads = 1, .isa = QPLAN_ISA_SCALAR, .force = true};
    const char *path = in_folder(&folder, "one"), *alone = in_folder(&folder, "alone");
    struct qplan_error err;
    size_t n_file;
    write_checkpoint(path, NULL, t, 1);
    OK(quantize_file(path, alone, scheme, &run, &err), &err);
    struct qplan_checkpoint *file = open_checkpoint(alone);
    unsigned char *own = read_file(alone, &n_file);
    for (size_t i = 0; i < COUNT(suffixes); i++) {
        size_t n_found, n_expected;
        const unsigned char *found = part_of(all, bytes, t->name, suffixes[i], &n_found);
        const unsigned char *expected = part_of(file, own, t->name, suffixes[i], &n_expected);
        assert_int_equal(n_found, n_expected);
        if (n_found)
            assert_memory_equal(found, expected, n_found);
    }
    free(own);
    qplan_checkpoint_close(file);
}

static void check_scheme(const struct source *s, const char *scheme, uint64_t *seed)
{
    static const struct qplan_run runs[] = {{.threads = 1, .force = true},
                                            {.threads = 3, .force = true},
                                            {.threads = 2, .memory_bytes = 400000, .force = true}};
    const char *path = in_folder(&folder, "q"), *other = in_folder(&folder, "other");
    struct qplan_error err;
    size_t n_file;
    for (size_t i = 0; i < COUNT(runs); i++) {
        OK(quantize_file(in_folder(&folder, "s"), i ? other : path, scheme, &runs[i], &err), &err);
        assert_true(i == 0 || same_files(path, other));
    }
    struct qplan_checkpoint *all = open_checkpoint(path);
    unsigned char *bytes = read_file(path, &n_file);
    for (int i = 0; i < 60; i++)
        assert_as_alone(all, bytes, &s->tensors[random_below(seed, N_TENSORS)], scheme);
    free(bytes);
    qplan_checkpoint_close(all);
}

static void small_tensors_come_out_as_they_do_alone(void **state)
{
    static const char *const schemes[] = {"int8:c0",  "uint8:c0:asym", "uint4:c1:asym",
                                          "int8:t",   "int4:b16x16",   "int4:c0:f16",
                                          "uint8:g1", "int3:c0",       "uint6:b3x5"};
    static struct source s;
    uint64_t seed = 5;
    (void)state;
    make_source(&s, &seed);
    write_checkpoint(in_folder(&folder, "s"), NULL, s.tensors, N_TENSORS);
    for (size_t i = 0; i < COUNT(schemes); i++)
        check_scheme(&s, schemes[i], &seed);
    free(s.data);
}

/* Alike tensors are done together, but what is wrong with one is said of that one. */
static void a_fault_is_that_of_one_tensor(void **state)
{
    static const struct {
        float value;
        const char *scheme, *words;
    } faults[] = {{NAN, "int8:c0", "found NaN at [7,5]"},
                  {1e30f, "int8:c0:f16", "the scale of set 7 is too large for f16"}};
    static float values[40][64 * 64];
    static struct tensor tensors[COUNT(values)];
    static char names[COUNT(values)][16];
    const struct qplan_run run = {.threads = 1, .force = true};
    struct qplan_error err;
    (void)state;
    for (size_t i = 0; i < COUNT(values); i++) {
        (void)snprintf(names[i], sizeof names[i], "w%02zu", i);
        tensors[i] = (struct tensor){names[i], "F32", 2, {64, 64}, values[i], sizeof values[i]};
    }
    for (size_t i = 0; i < COUNT(faults); i++) {
        values[23][7 * 64 + 5] = faults[i].value;
        write_checkpoint(in_folder(&folder, "s"), NULL, tensors, COUNT(tensors));
        assert_int_equal(quantize_with(in_folder(&folder, "s"), in_folder(&folder, "q"),
                                       faults[i].scheme, QPLAN_NONFINITE_ERROR, &run, &err),
                         QPLAN_ERR_VALUE);
        if (!strstr(err.subject, "'w23'") || !strstr(err.message, faults[i].words))
            fail_msg("expected 'w23' and \"%s\", found %s: %s", faults[i].words, err.subject,
                     err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tensors_come_out_as_they_do_alone),
        cmocka_unit_test(a_fault_is_that_of_one_tensor),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
