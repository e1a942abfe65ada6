/*
 * checksum.c - each word is mixed into the state by steps that can be undone: an odd factor and a
 * rotation. So two texts that differ in one word end in different states.
 */
#include "checksum.h"

#include <string.h>

static uint64_t mix(uint64_t state, uint64_t word)
{
    state = (state ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return state << 31 | state >> 33;
}

void qp_checksum_add(struct qp_checksum *sum, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    while (n > 0) {
        if (sum->n_bytes % 8 == 0 && n >= 8) {
            uint64_t word;
            memcpy(&word, p, sizeof word);
            sum->state = mix(sum->state, word);
            sum->n_bytes += 8;
            p += 8;
            n -= 8;
            continue;
        }
        unsigned char partial[8];
        memcpy(partial, &sum->word, sizeof partial);
        partial[sum->n_bytes++ % 8] = *p++;
        memcpy(&sum->word, partial, sizeof partial);
        n--;
        if (sum->n_bytes % 8 == 0) {
            sum->state = mix(sum->state, sum->word);
            sum->word = 0;
        }
    }
}

uint64_t qp_checksum_value(const struct qp_checksum *sum)
{
    return mix(mix(sum->state, sum->word), sum->n_bytes);
}
