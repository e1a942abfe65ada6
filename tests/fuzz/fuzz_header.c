/*
 * fuzz_header.c - any bytes as the header of a safetensors file.
 *
 * An input is the size of the data section (8 bytes, little endian) and the JSON. What is refused
 * must have a message inside the file. What is accepted must be sorted, cover the data exactly
 * once, and mean the same after it was written and read again.
 */
#include "formats/safetensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "violated: %s\n", what);
        abort();
    }
}

static void check_refusal(const struct qplan_error *err, uint64_t file_bytes)
{
    check(err->status == QPLAN_ERR_INVALID, "the only reason to refuse is the content");
    check(err->message[0] != '\0', "a refusal has a message");
    check(strncmp(err->subject, "f.st", 4) == 0, "the subject begins with the file");
    check(err->offset == QPLAN_NO_OFFSET || err->offset <= file_bytes, "the byte is in the file");
}

static int compare_ranges(const void *a, const void *b)
{
    const struct qplan_entry *x = *(struct qplan_entry *const *)a;
    const struct qplan_entry *y = *(struct qplan_entry *const *)b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The entries of a file by pointer, in the order of their data. */
static struct qplan_entry **in_data_order(const struct qp_st *st)
{
    struct qplan_entry **order = malloc((st->n_entries + 1) * sizeof *order);
    check(order != NULL, "memory");
    for (size_t i = 0; i < st->n_entries; i++)
        order[i] = &st->entries[i];
    qsort(order, st->n_entries, sizeof *order, compare_ranges);
    return order;
}

static void check_cover(const struct qp_st *st, struct qplan_entry *const *order)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < st->n_entries; i++) {
        uint64_t n_bytes;
        check(order[i]->begin == covered && order[i]->end >= covered, "ranges follow each other");
        check(qp_storage_bytes(order[i]->storage, qp_entry_elements(order[i]), &n_bytes) &&
                  n_bytes == order[i]->end - order[i]->begin,
              "a range has the size of its tensor");
        covered = order[i]->end;
    }
    check(covered == st->data_bytes, "all data is covered");
}

static void check_names(const struct qp_st *st)
{
    for (size_t i = 0; i < st->n_entries; i++) {
        const struct qplan_entry *entry = &st->entries[i];
        check(strlen(entry->name) == entry->name_len, "names have no NUL but the last");
        check(i == 0 || strcmp(entry[-1].name, entry->name) < 0, "names are sorted and unique");
        check(qp_st_find(st, entry->name, entry->name_len) == entry, "a name is found");
    }
}

static void check_same_pairs(const struct qp_st *a, const struct qp_st *b)
{
    check(a->n_metadata == b->n_metadata, "as many pairs of metadata");
    for (size_t i = 0; i < a->n_metadata; i++) {
        const struct qp_st_pair *x = &a->metadata[i], *y = &b->metadata[i];
        check(x->key_len == y->key_len && memcmp(x->key, y->key, x->key_len) == 0 &&
                  x->value_len == y->value_len && memcmp(x->value, y->value, x->value_len) == 0,
              "the same pair of metadata");
    }
}

static void check_same_entries(const struct qp_st *a, const struct qp_st *b)
{
    check(a->n_entries == b->n_entries && a->data_bytes == b->data_bytes, "as many tensors");
    for (size_t i = 0; i < a->n_entries; i++) {
        const struct qplan_entry *x = &a->entries[i], *y = &b->entries[i];
        check(strcmp(x->name, y->name) == 0 && x->storage == y->storage && x->rank == y->rank,
              "the same name, dtype and rank");
        check(x->begin == y->begin && x->end == y->end, "the same range");
        for (unsigned d = 0; d < x->rank; d++)
            check(x->shape[d] == y->shape[d], "the same shape");
    }
}

/* Writes a file's header and reads it again. */
static void check_round_trip(const struct qp_st *st, struct qplan_entry *const *order)
{
    struct qp_writer w;
    struct qp_st again;
    qp_writer_init(&w);
    check(qp_st_put_header(&w, (const struct qplan_entry *const *)order, st->n_entries,
                           st->metadata, st->n_metadata, "f.st", NULL) == QPLAN_OK &&
              qp_writer_finish(&w, "f.st", NULL) == QPLAN_OK && w.n % 8 == 0,
          "what was read can be written");
    check(qp_st_parse(&again, w.data + 8, w.n - 8, w.n + st->data_bytes, "f.st", NULL) == QPLAN_OK,
          "what was written can be read");
    check_same_entries(st, &again);
    check_same_pairs(st, &again);
    qp_st_close(&again);
    qp_writer_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 8)
        return 0;
    uint64_t n_data = 0;
    for (int i = 7; i >= 0; i--)
        n_data = n_data << 8 | data[i];
    uint64_t file_bytes = size + n_data % ((uint64_t)1 << 62);
    struct qp_st st;
    struct qplan_error err = {.status = QPLAN_OK};
    if (qp_st_parse(&st, (const char *)data + 8, size - 8, file_bytes, "f.st", &err) != QPLAN_OK) {
        check_refusal(&err, file_bytes);
        return 0;
    }
    struct qplan_entry **order = in_data_order(&st);
    check_names(&st);
    check_cover(&st, order);
    check_round_trip(&st, order);
    /* A new layout in the canonical order is a file too. */
    uint64_t data_bytes;
    check(qp_st_layout(order, st.n_entries, &data_bytes, "f.st", NULL) == QPLAN_OK &&
              data_bytes == st.data_bytes,
          "the canonical layout has the same size");
    check_round_trip(&st, order);
    free(order);
    qp_st_close(&st);
    return 0;
}
