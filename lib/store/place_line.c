/*
 * place_line.c - the values of one line as words, and back. Because words are little-endian, a line
 * is one stream of bits, whatever the size of its words: 8 values are as many bytes as a value has
 * bits. What words are for comes after that: the order of their values, and borrowing.
 */
#include "place_inner.h"

#include "kernels/dtypes/bits.h"
#include "lib/base/check.h"

#include <string.h>

/* A byte in each of the 8 lanes of 64 bits. */
#define LANES(byte) (0x0101010101010101u * (uint64_t)(byte))

static unsigned mask_of(const struct qp_place *place)
{
    return (1u << place->bits) - 1;
}

static bool divides_word(const struct qp_place *place)
{
    return 8u * place->word_bytes % place->bits == 0;
}

/* What is added to each value by itself before it is packed, modulo 2^bits. */
static unsigned added(const struct qp_place *place)
{
    const unsigned half = place->half_added ? 1u << (place->bits - 1) : 0;
    const unsigned less = place->one_less && !divides_word(place) ? mask_of(place) : 0;
    return (half + less) & mask_of(place);
}

/* ---- Words ------------------------------------------------------------------------------------
 */

/* Whether words are stored other than as the stream of values has them, which is by one rule. */
static bool are_edited(const struct qp_place *place)
{
    return place->n_order > 0 || (place->one_less && divides_word(place));
}

#define STEP 8 /* chunks of 64 bits, whose words are edited at once */

/* Moves the values of all words: slot k becomes value order[k], or back. */
static void reorder(const struct qp_place *place, bool back, uint64_t chunks[STEP])
{
    const uint64_t each_word = UINT64_MAX / (UINT64_MAX >> (64 - 8 * place->word_bytes));
    const uint64_t mask = each_word * mask_of(place);
    uint64_t moved[STEP] = {0};
    for (unsigned k = 0; k < place->n_order; k++) {
        const unsigned slot = k * place->bits, value = place->order[k] * (unsigned)place->bits;
        const unsigned from = back ? slot : value, to = back ? value : slot;
        for (size_t i = 0; i < STEP; i++)
            moved[i] |= (chunks[i] >> from & mask) << to;
    }
    memcpy(chunks, moved, sizeof moved);
}

/* Subtracts 1 from every value of the words of 4 bytes, or adds it. */
static void subtract_one(const struct qp_place *place, bool back, uint64_t chunks[STEP])
{
    const uint32_t ones = UINT32_MAX / mask_of(place), add = back ? ones : 0u - ones;
    for (size_t i = 0; i < STEP; i++) {
        const uint32_t low = (uint32_t)chunks[i] + add, high = (uint32_t)(chunks[i] >> 32) + add;
        chunks[i] = (uint64_t)high << 32 | low;
    }
}

static void edit_step(const struct qp_place *place, bool back, const uint8_t *from, uint8_t *to)
{
    uint64_t chunks[STEP];
    for (size_t i = 0; i < STEP; i++)
        chunks[i] = qp_get64(from + i * sizeof chunks[0]);
    if (place->n_order > 0)
        reorder(place, back, chunks);
    else
        subtract_one(place, back, chunks);
    for (size_t i = 0; i < STEP; i++)
        qp_put64(to + i * sizeof chunks[0], chunks[i]);
}

/* From words as the stream of values has them to stored ones, or back; to may be from. */
static void edit(const struct qp_place *place, bool back, const uint8_t *from, size_t n_bytes,
                 uint8_t *to)
{
    uint8_t last[STEP * sizeof(uint64_t)] = {0};
    size_t at = 0;
    for (; at + sizeof last <= n_bytes; at += sizeof last)
        edit_step(place, back, from + at, to + at);
    if (at < n_bytes) {
        memcpy(last, from + at, n_bytes - at);
        edit_step(place, back, last, last);
        memcpy(to + at, last, n_bytes - at);
    }
}

/* What fills up the last word of a line, of which so many bits are used. */
static uint32_t filling_of(const struct qp_place *place, unsigned used)
{
    const uint32_t full = UINT32_MAX / mask_of(place) * place->filling;
    return full << used & UINT32_MAX >> (32 - 8 * place->word_bytes);
}

bool qp_line_is_ragged(const struct qp_place *place, uint64_t len, const uint8_t *last_word)
{
    const unsigned used = qp_bit_of(place, len);
    uint8_t word[sizeof(uint32_t)] = {0};
    if (used == 0)
        return false;
    memcpy(word, last_word, place->word_bytes);
    if (are_edited(place))
        edit(place, true, word, place->word_bytes, word);
    return (qp_get32(word) ^ filling_of(place, used)) >> used != 0;
}

/* ---- Packing ----------------------------------------------------------------------------------
 */

/*
 * Eight values of `bits` bits, one a lane, as 8 * bits bits: neighbours move together in lanes of
 * 16 bits, then these in lanes of 32, then those two.
 */
static uint64_t fold(unsigned bits, uint64_t x)
{
    x = (x & 0x00ff00ff00ff00ffu) | (x >> 8 & 0x00ff00ff00ff00ffu) << bits;
    x = (x & 0x0000ffff0000ffffu) | (x >> 16 & 0x0000ffff0000ffffu) << 2 * bits;
    return (x & 0x00000000ffffffffu) | x >> 32 << 4 * bits;
}

/*
 * The stream of n values of fewer than 8 bits: so adding to one reaches no other lane. Of the room
 * bytes, those behind the stream may be written.
 */
static void pack_stream(const struct qp_place *place, const uint8_t *values, size_t n,
                        uint8_t *stream, size_t room)
{
    const uint64_t mask = LANES(mask_of(place)), add = LANES(added(place));
    const unsigned bits = place->bits;
    size_t i = 0, at = 0;
    for (; i + 8 <= n && at + 8 <= room; i += 8, at += bits)
        qp_put64(stream + at, fold(bits, ((qp_get64(values + i) & mask) + add) & mask));
    for (; i < n; i += 8, at += bits) {
        const size_t few = (size_t)qp_min_u64(8, n - i);
        uint8_t eight[8] = {0};
        memcpy(eight, values + i, few);
        const uint64_t there = mask & UINT64_MAX >> (64 - 8 * few);
        qp_put64(eight, fold(bits, ((qp_get64(eight) & mask) + add) & there));
        memcpy(stream + at, eight, (few * bits + 7) / 8);
    }
}

void qp_line_pack(const struct qp_place *place, const struct qp_code_kernels *kernels,
                  const uint8_t *values, size_t n, uint8_t *words)
{
    const size_t n_bytes = (size_t)qp_words_of(place, n) * place->word_bytes;
    const size_t n_used = n / 8 * place->bits + (n % 8 * place->bits + 7) / 8;
    const bool nibbles = place->bits == 4, bytes = place->bits == 8;
    if (nibbles)
        kernels->pack4(values, n, place->half_added ? 8 : 0, words);
    else if (bytes)
        memmove(words, values, n);
    else
        pack_stream(place, values, n, words, n_bytes);
    for (size_t i = 0; bytes && place->half_added && i < n; i++)
        words[i] ^= 0x80;
    memset(words + n_used, 0, n_bytes - n_used);
    if (place->filling > 0 && qp_bit_of(place, n) > 0) {
        uint8_t last[sizeof(uint32_t)];
        qp_put32(last, filling_of(place, qp_bit_of(place, n)));
        for (size_t i = 0; i < place->word_bytes; i++)
            words[n_bytes - place->word_bytes + i] |= last[i];
    }
    if (are_edited(place))
        edit(place, false, words, n_bytes, words);
}

/* ---- Unpacking --------------------------------------------------------------------------------
 */

/* The reverse of fold; bits above 8 * bits do not count. */
static uint64_t spread(unsigned bits, uint64_t x)
{
    const uint64_t four = (UINT64_C(1) << 4 * bits) - 1;
    const uint64_t two = ((UINT64_C(1) << 2 * bits) - 1) * 0x0000000100000001u;
    const uint64_t one = ((UINT64_C(1) << bits) - 1) * 0x0001000100010001u;
    x = (x & four) | (x >> 4 * bits & four) << 32;
    x = (x & two) | (x >> 2 * bits & two) << 16;
    return (x & one) | (x >> bits & one) << 8;
}

/* At most 8 values from the given bit of a byte on, in a stream that may end behind them. */
static void unpack_few(unsigned bits, const uint8_t *stream, unsigned bit, size_t n,
                       uint8_t *values)
{
    uint8_t eight[8] = {0};
    memcpy(eight, stream, (bit + n * bits + 7) / 8);
    qp_put64(eight, spread(bits, qp_get64(eight) >> bit));
    memcpy(values, eight, n);
}

/* Values as they were before anything was added, with their sign. */
static void lift(const struct qp_place *place, uint8_t *values, size_t n)
{
    const unsigned mask = mask_of(place), add = added(place);
    const unsigned sign = place->is_signed && place->bits < 8 ? 1u << (place->bits - 1) : 0;
    if (add == 0 && sign == 0)
        return;
    if (place->is_signed && add == 1u << (place->bits - 1)) { /* the sign comes by itself */
        for (size_t i = 0; i < n; i++)
            values[i] = (uint8_t)(values[i] - add);
        return;
    }
    for (size_t i = 0; i < n; i++)
        values[i] = (uint8_t)((((values[i] - add) & mask) ^ sign) - sign);
}

/* n values from the beginning of a stream on, which has n_bytes. */
static void unpack_eights(unsigned bits, const uint8_t *stream, size_t n_bytes, size_t n,
                          uint8_t *values)
{
    size_t i = 0, at = 0;
    for (; i + 8 <= n && at + 8 <= n_bytes; i += 8, at += bits)
        qp_put64(values + i, spread(bits, qp_get64(stream + at)));
    for (; i < n; i += 8, at += bits)
        unpack_few(bits, stream + at, 0, (size_t)qp_min_u64(8, n - i), values + i);
}

/* n values from any bit on of a stream of n_bytes. */
static void unpack_stream(const struct qp_place *place, const struct qp_code_kernels *kernels,
                          const uint8_t *stream, size_t n_bytes, size_t bit, size_t n,
                          uint8_t *values)
{
    const unsigned bits = place->bits;
    size_t few = 0; /* values before the first that begins with a byte */
    while (few < n && (bit + few * bits) % 8)
        few++;
    if (few > 0) {
        unpack_few(bits, stream + bit / 8, (unsigned)(bit % 8), few, values);
        lift(place, values, few);
    }
    const size_t at = (bit + few * bits) / 8;
    values += few;
    n -= few;
    if (bits == 4) {
        kernels->unpack4(stream + at, n, place->is_signed != place->half_added ? 8 : 0,
                         place->is_signed ? 8 : 0, values);
        return;
    }
    if (bits == 8)
        memmove(values, stream + at, n);
    else
        unpack_eights(bits, stream + at, n_bytes - at, n, values);
    lift(place, values, n);
}

#define CHUNK 1024 /* values, which stay in the nearest cache between two steps */

void qp_line_unpack(const struct qp_place *place, const struct qp_code_kernels *kernels,
                    const uint8_t *words, unsigned bit, size_t n, uint8_t *values)
{
    const size_t word_bits = (size_t)8 * place->word_bytes, end = bit + n * place->bits;
    uint8_t plain[CHUNK + sizeof(uint64_t)];
    for (size_t at = bit; at < end;) {
        const size_t part = (size_t)qp_min_u64(CHUNK, (end - at) / place->bits);
        const size_t word = at / word_bits, next = at + part * place->bits;
        const size_t n_bytes = ((next - 1) / word_bits + 1 - word) * place->word_bytes;
        const uint8_t *stream = words + word * place->word_bytes;
        if (are_edited(place)) {
            edit(place, true, stream, n_bytes, plain);
            stream = plain;
        }
        unpack_stream(place, kernels, stream, n_bytes, at % word_bits, part, values);
        for (size_t i = 0; place->codes && i < part; i++)
            values[i] = place->codes[values[i]];
        values += part;
        at = next;
    }
}
