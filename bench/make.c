/*
 * make.c - makes a checkpoint to measure with: the shapes of a Llama model with hidden 4096, ffn
 * 11008 and a vocabulary of 32000, weights of a bell shape with standard deviation 0.02.
 *
 *     bench-make OUT bf16|f16|f32 BYTES [large|small|same|heavy]
 *
 * small makes tensors of 64 x 64, same as many bytes in large ones; heavy makes tensors of
 * 4096 x 1536 whose weights have heavy tails, as those of models do.
 *
 * 2143289344 bytes of bf16 are four layers. For fewer elements there are fewer layers and the
 * vocabulary shrinks with them, for more there are more layers; tensors are added until the size is
 * reached.
 */
#include "formats/safetensors/safetensors.h"
#include "kernels/kernel.h"
#include "lib/base/alloc.h"
#include "lib/model/dtype.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)1 << 20) /* elements that are made once and used again, shifted */

struct shape {
    const char *name;
    uint64_t extent[2];
    uint8_t rank;
};

static const struct shape layer[] = {
    {"input_layernorm", {4096}, 1},        {"self_attn.q_proj", {4096, 4096}, 2},
    {"self_attn.k_proj", {4096, 4096}, 2}, {"self_attn.v_proj", {4096, 4096}, 2},
    {"self_attn.o_proj", {4096, 4096}, 2}, {"post_attention_layernorm", {4096}, 1},
    {"mlp.gate_proj", {11008, 4096}, 2},   {"mlp.up_proj", {11008, 4096}, 2},
    {"mlp.down_proj", {4096, 11008}, 2},
};
#define LAYER_SHAPES (sizeof layer / sizeof layer[0])

static const struct shape norm = {"norm", {4096}, 1}, small = {"w", {64, 64}, 2};
static const struct shape same = {"w", {3000, 4096}, 2}; /* the bytes of 3000 small ones */
static const struct shape heavy = {"w", {4096, 1536}, 2};

/* The vocabulary, and the elements of the weights of four layers with it. */
#define VOCABULARY 32000
#define MODEL      (4 * ((uint64_t)4 * 4096 * 4096 + (uint64_t)3 * 4096 * 11008) + 2 * VOCABULARY * 4096)

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* A number of a bell shape with deviation 1: four uniform numbers have the variance 4/12. */
static double next_bell(void)
{
    double sum = 0;
    for (int k = 0; k < 4; k++)
        sum += (double)(next_random() >> 11) * 0x1p-53 - 0.5;
    return sum * 1.732;
}

/* One over the deviation of five of them: what they divide has a t distribution of five. */
static double next_tail(void)
{
    double sum = 0;
    for (int k = 0; k < 5; k++) {
        const double x = next_bell();
        sum += x * x;
    }
    return 1 / sqrt(sum / 5);
}

static void make_block(enum qplan_dtype dtype, bool is_heavy, void *block)
{
    static double x[BLOCK];
    for (size_t i = 0; i < BLOCK; i++)
        x[i] = next_bell() * 0.02 * (is_heavy ? next_tail() : 1);
    qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work->store(dtype, BLOCK, x, block);
}

/* ---- The list of tensors -----------------------------------------------------------------------
 */

struct list {
    struct qplan_entry *entries;
    size_t n, cap;
    uint64_t elems, wanted; /* made so far, and to be made */
    uint8_t storage;
    bool is_heavy;
};

static void add(struct list *list, const struct shape *shape, const char *prefix, size_t number)
{
    char *name = qp_alloc(64, 1);
    int length = number == SIZE_MAX
                     ? snprintf(name, 64, "%s%s.weight", prefix, shape->name)
                     : snprintf(name, 64, "%s%zu.%s.weight", prefix, number, shape->name);
    if (list->n == list->cap)
        return;
    list->entries[list->n++] = (struct qplan_entry){.name = name,
                                                    .name_len = (uint32_t)length,
                                                    .shape = shape->extent,
                                                    .rank = shape->rank,
                                                    .storage = list->storage};
    list->elems += shape->extent[0] * (shape->rank > 1 ? shape->extent[1] : 1);
}

static void list_large(struct list *list)
{
    static struct shape embed = {"embed_tokens", {VOCABULARY, 4096}, 2}, head = {"lm_head", {0}, 2};
    if (list->wanted < MODEL) /* that part of the vocabulary, in whole blocks */
        embed.extent[0] = (list->wanted * VOCABULARY / MODEL / 128 + 1) * 128;
    memcpy(head.extent, embed.extent, sizeof head.extent);
    add(list, &head, "", SIZE_MAX);
    add(list, &embed, "model.", SIZE_MAX);
    for (size_t i = 0; list->elems < list->wanted; i++)
        add(list, &layer[i % LAYER_SHAPES], "model.layers.", i / LAYER_SHAPES);
    add(list, &norm, "model.", SIZE_MAX);
}

static void list_alike(struct list *list, const struct shape *shape)
{
    for (size_t i = 0; list->elems < list->wanted; i++)
        add(list, shape, "model.layers.", i);
}

/* ---- The file ----------------------------------------------------------------------------------
 */

static int write_data(FILE *out, enum qplan_dtype dtype, bool is_heavy, uint64_t data_bytes)
{
    const uint64_t width = qp_float_bytes(dtype);
    char *block = qp_alloc(BLOCK, width);
    make_block(dtype, is_heavy, block);
    for (uint64_t done = 0; done < data_bytes;) {
        size_t shift = (size_t)(next_random() % 4096) * width, length = BLOCK * width - shift;
        length = data_bytes - done < length ? (size_t)(data_bytes - done) : length;
        if (fwrite(block + shift, 1, length, out) != length)
            return 4;
        done += length;
    }
    return fclose(out) == 0 ? 0 : 4;
}

static int write_file(const char *path, struct list *list, enum qplan_dtype dtype)
{
    struct qplan_entry **order = qp_alloc(list->n, sizeof *order);
    struct qp_writer header;
    struct qplan_error err;
    uint64_t data_bytes;
    for (size_t i = 0; i < list->n; i++)
        order[i] = &list->entries[i];
    qp_writer_init(&header);
    if (qp_st_layout(order, list->n, &data_bytes, path, &err) != QPLAN_OK ||
        qp_st_put_header(&header, (const struct qplan_entry *const *)order, list->n, NULL, 0, path,
                         &err) != QPLAN_OK)
        return 70;
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(header.data, 1, header.n, out) != header.n) {
        perror(path);
        return 4;
    }
    int status = write_data(out, dtype, list->is_heavy, data_bytes);
    if (status != 0)
        perror(path);
    return status;
}

int main(int argc, char **argv)
{
    enum qplan_dtype dtype;
    if (argc < 4 || !qplan_dtype_parse(argv[2], &dtype))
        return 2;
    const char *kind = argc > 4 ? argv[4] : "large";
    const struct shape *alike = strcmp(kind, "small") == 0   ? &small
                                : strcmp(kind, "same") == 0  ? &same
                                : strcmp(kind, "heavy") == 0 ? &heavy
                                                             : NULL;
    struct list list = {.storage = (uint8_t)qp_dtype_storage(dtype), .is_heavy = alike == &heavy};
    list.wanted = strtoull(argv[3], NULL, 10) / qp_float_bytes(dtype);
    list.cap = (size_t)(list.wanted / (alike == &small ? 64 * 64 : 4096 * 1024)) * 2 + 16;
    list.entries = qp_alloc(list.cap, sizeof *list.entries);
    if (alike)
        list_alike(&list, alike);
    else
        list_large(&list);
    return write_file(argv[1], &list, dtype);
}
