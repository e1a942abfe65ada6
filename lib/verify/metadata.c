/*
 * metadata.c - what is proven of a file's metadata: they are those of the source but for the keys
 * that qplan owns, and if everything is computed again, records are as they are written.
 */
#include "prover.h"

#include "formats/record.h"
#include "lib/base/alloc.h"
#include "lib/base/text.h"

#include <string.h>

static bool same_value(const struct qp_st_pair *a, const struct qp_st_pair *b)
{
    return a->value_len == b->value_len && memcmp(a->value, b->value, a->value_len) == 0;
}

/* Every output says "pt", whatever the source says; a plain file may say anything. */
static void check_format(struct qp_prover *p)
{
    const struct qplan_checkpoint *file = p->proof->file;
    char quoted[QP_QUOTED];
    for (size_t i = 0; file->format && i < file->source.listing.n_files; i++) {
        const struct qp_st *st = &file->source.files[i];
        const struct qp_st_pair *format = qp_st_metadata(st, "format");
        if (!format || !qp_text_is(format->value, format->value_len, QP_FORMAT))
            qp_offend(p, st->file.shown, "metadata 'format': expected " QP_FORMAT ", found %s",
                      format ? qp_quote(quoted, format->value, format->value_len) : "none");
    }
}

/* Whether a file of the checkpoint has this pair. */
static bool has_pair(const struct qp_source *source, const struct qp_st_pair *pair)
{
    bool found = false;
    for (size_t i = 0; i < source->listing.n_files && !found; i++) {
        const struct qp_st_pair *other =
            qp_st_find_pair(&source->files[i], pair->key, pair->key_len);
        found = other && same_value(pair, other);
    }
    return found;
}

/* Whether some file of a checkpoint has this key. */
static bool has_key(const struct qp_source *source, const struct qp_st_pair *pair)
{
    bool found = false;
    for (size_t i = 0; i < source->listing.n_files && !found; i++)
        found = qp_st_find_pair(&source->files[i], pair->key, pair->key_len) != NULL;
    return found;
}

/* Every pair in the metadata of one checkpoint, in whichever shard, is one of the other; or only
 * those whose key the other has too. */
static void compare_pairs(struct qp_prover *p, const struct qp_source *one,
                          const struct qp_source *other, bool all)
{
    char quoted[QP_QUOTED];
    for (size_t file = 0; file < one->listing.n_files; file++) {
        for (size_t i = 0; i < one->files[file].n_metadata; i++) {
            const struct qp_st_pair *pair = &one->files[file].metadata[i];
            if (qp_is_handed_on(pair) && !qp_is_format(pair) && !has_pair(other, pair) &&
                (all || has_key(other, pair)))
                qp_offend(p, p->proof->file->source.listing.shown,
                          "metadata %s is not that of the source",
                          qp_quote(quoted, pair->key, pair->key_len));
        }
    }
}

/*
 * The records of each file are those of its tensors, as they are written. A file has them in the
 * order of names, whatever the order of its tensors.
 */
static enum qplan_status compare_records(struct qp_prover *p)
{
    const struct qplan_checkpoint *file = p->proof->file;
    const struct qp_tensor **recorded = qp_alloc(file->n_quantized, sizeof *recorded);
    struct qp_writer w;
    enum qplan_status status = QPLAN_OK;
    if (!recorded)
        return qp_fail_memory(p->err, "proof", file->n_quantized * sizeof *recorded);
    qp_writer_init(&w);
    for (size_t i = 0; i < file->source.listing.n_files && status == QPLAN_OK; i++) {
        const struct qp_st *st = &file->source.files[i];
        const struct qp_st_pair *pair = qp_st_metadata(st, QP_TENSORS_KEY);
        size_t n = 0;
        for (size_t k = 0; k < file->n_tensors; k++) {
            if (file->tensors[k].scheme && file->tensors[k].entry->file == i)
                recorded[n++] = &file->tensors[k];
        }
        w.n = 0;
        qp_put_records(&w, recorded, n);
        status = qp_writer_finish(&w, "proof", p->err);
        if (status == QPLAN_OK &&
            (!pair || qp_compare_text(pair->value, pair->value_len, w.data, w.n) != 0))
            qp_offend(p, st->file.shown,
                      "metadata " QP_TENSORS_KEY
                      ": expected the records of the tensors in this file "
                      "alone, in the order of their names and without blanks between them");
    }
    qp_writer_free(&w);
    qp_free(recorded);
    return status;
}

/* Other tools hand on what they like, but not with other values. */
enum qplan_status qp_prove_metadata(struct qp_prover *p)
{
    const struct qp_source *file = &p->proof->file->source, *source = &p->proof->source->source;
    const bool has_records = qp_has_records(&file->listing);
    const bool all = !p->proof->file->format || has_records;
    if (all)
        check_format(p);
    compare_pairs(p, source, file, all);
    compare_pairs(p, file, source, all);
    return p->proof->exact && has_records ? compare_records(p) : QPLAN_OK;
}
