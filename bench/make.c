/*
 * make.c - makes a checkpoint of Llama shapes to measure with: hidden 4096, ffn 11008, weights of a
 * bell shape with standard deviation 0.02, as many tensors as fit the size.
 *
 *     bench-make OUT bf16|f16|f32 BYTES [large|small]        (small: tensors of 64 x 64)
 */
#include "formats/safetensors/safetensors.h"
#include "kernels/kernel.h"
#include "lib/base/alloc.h"
#include "lib/base/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK ((size_t)1 << 20) /* elements that are made once and used again, shifted */

static const struct shape {
    const char *name;
    uint64_t extent[2];
} large[] =
    {
        {"self_attn.q_proj", {4096, 4096}}, {"self_attn.k_proj", {4096, 4096}},
        {"self_attn.v_proj", {4096, 4096}}, {"self_attn.o_proj", {4096, 4096}},
        {"mlp.gate_proj", {11008, 4096}},   {"mlp.up_proj", {11008, 4096}},
        {"mlp.down_proj", {4096, 11008}},
},
  small[] = {{"w", {64, 64}}};

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void make_block(enum qplan_dtype dtype, void *block)
{
    static double x[BLOCK];
    for (size_t i = 0; i < BLOCK; i++) {
        double sum = 0;
        for (int k = 0; k < 4; k++)
            sum += (double)(next_random() >> 11) * 0x1p-53 - 0.5;
        x[i] = sum * 0.0346; /* four uniform numbers have the variance 4/12 */
    }
    qp_source_kernels(QPLAN_F64, QPLAN_ISA_SCALAR)->work->store(dtype, BLOCK, x, block);
}

int main(int argc, char **argv)
{
    enum qplan_dtype dtype;
    if (argc < 4 || !qplan_dtype_parse(argv[2], &dtype))
        return 2;
    const bool is_small = argc > 4 && strcmp(argv[4], "small") == 0;
    const struct shape *shapes = is_small ? small : large;
    const size_t n_shapes = is_small ? 1 : sizeof large / sizeof large[0];
    const uint64_t size = strtoull(argv[3], NULL, 10), width = qp_float_bytes(dtype);
    size_t n = 0, cap = size / (is_small ? 64 * 64 * width : 4096 * 4096 * width) + 8;
    struct qplan_entry *entries = qp_alloc(cap, sizeof *entries);
    struct qplan_entry **order = qp_alloc(cap, sizeof *order);
    for (uint64_t bytes = 0; bytes < size; n++) {
        const struct shape *shape = &shapes[n % n_shapes];
        char *name = qp_alloc(64, 1);
        int length = snprintf(name, 64, "model.layers.%zu.%s.weight", n / n_shapes, shape->name);
        entries[n] = (struct qplan_entry){.name = name,
                                          .name_len = (uint32_t)length,
                                          .shape = shape->extent,
                                          .rank = 2,
                                          .storage = (uint8_t)qp_dtype_storage(dtype)};
        order[n] = &entries[n];
        bytes += shape->extent[0] * shape->extent[1] * width;
    }
    struct qp_writer header;
    struct qplan_error err;
    uint64_t data_bytes;
    qp_writer_init(&header);
    if (qp_st_layout(order, n, &data_bytes, argv[1], &err) != QPLAN_OK ||
        qp_st_put_header(&header, (const struct qplan_entry *const *)order, n, NULL, 0, argv[1],
                         &err) != QPLAN_OK)
        return 70;
    FILE *out = fopen(argv[1], "wb");
    char *block = qp_alloc(BLOCK, width);
    make_block(dtype, block);
    fwrite(header.data, 1, header.n, out);
    for (uint64_t done = 0; done < data_bytes;) {
        size_t shift = (size_t)(next_random() % 4096) * width, length = BLOCK * width - shift;
        length = data_bytes - done < length ? (size_t)(data_bytes - done) : length;
        fwrite(block + shift, 1, length, out);
        done += length;
    }
    return fclose(out) == 0 ? 0 : 4;
}
