/*
 * nearest.c - suggestions by edit distance: insertions, deletions and substitutions of one byte.
 */
#include "nearest.h"

#include <string.h>

/* Longer words are no slip of the finger. */
#define MAX_WORD 32

void nearest_begin(struct nearest *nearest, const char *word)
{
    *nearest = (struct nearest){.word = word, .distance = MAX_WORD};
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Row by row: row[j] is the distance between the first i bytes of a and the first j of b. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[MAX_WORD + 1];
    size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

void nearest_try(struct nearest *nearest, const char *name)
{
    size_t n_word = strlen(nearest->word), n_name = strlen(name);
    if (n_word > MAX_WORD || n_name > MAX_WORD)
        return;
    /* A beginning of the name is nearer than any other word of the same distance. */
    size_t distance = edit_distance(nearest->word, name);
    if (n_word >= 3 && strncmp(name, nearest->word, n_word) == 0)
        distance = 1;
    if (distance < nearest->distance) {
        nearest->distance = distance;
        nearest->best = name;
    }
}

const char *nearest_found(const struct nearest *nearest)
{
    size_t most = 1 + strlen(nearest->word) / 4;
    return nearest->distance <= most ? nearest->best : NULL;
}
