/*
 * checksum.c - each word is mixed into a state by steps that can be undone: an odd factor and a
 * rotation. So two texts that differ in one word end in different states. Words go to four states
 * by turns, since one would have to wait for every product.
 */
#include "checksum.h"

#include <string.h>

static uint64_t mix(uint64_t state, uint64_t word)
{
    state = (state ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return state << 31 | state >> 33;
}

/* Four words at a time, from the first state on. */
static size_t add_fours(struct qp_checksum *sum, const unsigned char *p, size_t n)
{
    uint64_t states[4], words[4];
    size_t i = 0;
    memcpy(states, sum->states, sizeof states);
    for (; n - i >= sizeof words; i += sizeof words) {
        memcpy(words, p + i, sizeof words);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++)
            states[k] = mix(states[k], words[k]);
    }
    memcpy(sum->states, states, sizeof states);
    sum->n_bytes += i;
    return i;
}

static void add_byte(struct qp_checksum *sum, unsigned char byte)
{
    unsigned char partial[8];
    memcpy(partial, &sum->word, sizeof partial);
    partial[sum->n_bytes++ % 8] = byte;
    memcpy(&sum->word, partial, sizeof partial);
    if (sum->n_bytes % 8 == 0) {
        uint64_t *state = &sum->states[(sum->n_bytes / 8 - 1) % 4];
        *state = mix(*state, sum->word);
        sum->word = 0;
    }
}

void qp_checksum_add(struct qp_checksum *sum, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n;) {
        if (sum->n_bytes % 32 == 0 && n - i >= 32)
            i += add_fours(sum, p + i, n - i);
        else
            add_byte(sum, p[i++]);
    }
}

uint64_t qp_checksum_value(const struct qp_checksum *sum)
{
    uint64_t value = mix(sum->word, sum->n_bytes);
    for (int k = 0; k < 4; k++)
        value = mix(value, sum->states[k]);
    return value;
}
