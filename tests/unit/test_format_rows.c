/*
 * test_format_rows.c - what the rows of the layouts say before any data is read: which schemes and
 * tensors they store, and what config.json gets where tensors differ or are kept. The texts follow
 * from the rules by which engines match names: vLLM by parts of names, transformers and GPTQModel
 * by regular expressions, MLX by whole names.
 */
#include "support.h"

#include "formats/format.h"

/* ---- Schemes and tensors -----------------------------------------------------------------------
 */

struct fit_case {
    const char *format, *scheme;
    enum qplan_storage storage;
    enum qplan_activations activations;
    const char *fitted; /* the text of what is stored, or a part of the reason */
};

static const struct fit_case fits[] = {
    {"compressed-tensors", "int8:c0", QPLAN_STORAGE_F64, 0, "int8:c0"},
    {"compressed-tensors", "uint4:g32", QPLAN_STORAGE_BF16, 0, "int4:g32:asym:bf16"},
    {"compressed-tensors", "int8:c1", QPLAN_STORAGE_F32, 0, "with gN or c0"},
    {"compressed-tensors", "int8:c0:narrow", QPLAN_STORAGE_F32, 0, "full range"},
    {"compressed-tensors", "int3:g32:asym", QPLAN_STORAGE_F32, 0, "4 or 8 bits"},
    {"compressed-tensors", "int4:g32:f16", QPLAN_STORAGE_F32, 0, "type of the weights"},
    {"compressed-tensors", "int4:c0", QPLAN_STORAGE_F32, QPLAN_ACTIVATIONS_DYNAMIC, "dynamic"},
    {"compressed-tensors", "int8:g32", QPLAN_STORAGE_F32, QPLAN_ACTIVATIONS_DYNAMIC, "dynamic"},
    {"compressed-tensors", "int8:c0:bf16", QPLAN_STORAGE_F32, QPLAN_ACTIVATIONS_DYNAMIC,
     "of the weights"},
    {"compressed-tensors", "fp8:b128x128", QPLAN_STORAGE_F16, 0, "f8e4m3:b128x128:f16"},
    {"compressed-tensors", "fp8:b64x128", QPLAN_STORAGE_F16, 0, "b128x128"},
    {"compressed-tensors", "fp8:b128x64", QPLAN_STORAGE_F16, 0, "b128x128"},
    {"compressed-tensors", "nvfp4", QPLAN_STORAGE_F32, QPLAN_ACTIVATIONS_DYNAMIC,
     "where activations are dynamic"},
    {"compressed-tensors", "f4e2m1:g16:bf16", QPLAN_STORAGE_F32, 0, "nvfp4, mxfp4 or mxfp8"},
    {"compressed-tensors", "nf4:c0", QPLAN_STORAGE_F32, QPLAN_ACTIVATIONS_DYNAMIC,
     "nvfp4, mxfp4 or mxfp8"},
    {"fp8", "fp8:b128x128", QPLAN_STORAGE_BF16, 0, "f8e4m3:b128x128"},
    {"fp8", "fp8:b64x128", QPLAN_STORAGE_BF16, 0, "fp8:b128x128, with f32 scales"},
    {"fp8", "fp8:b128x64", QPLAN_STORAGE_BF16, 0, "fp8:b128x128, with f32 scales"},
    {"fp8", "fp8:b128x128:bf16", QPLAN_STORAGE_BF16, 0, "fp8:b128x128, with f32 scales"},
    {"fp8", "fp8:t", QPLAN_STORAGE_BF16, 0, "fp8:b128x128, with f32 scales"},
    {"fp8", "int8:c0", QPLAN_STORAGE_BF16, 0, "fp8:b128x128, with f32 scales"},
    {"modelopt", "f4e2m1:g16", QPLAN_STORAGE_BF16, 0, "f4e2m1:g16:f8e4m3"},
    {"modelopt", "f4e2m1:g16:bf16", QPLAN_STORAGE_BF16, 0, "nvfp4"},
    {"modelopt", "f4e2m1:g32", QPLAN_STORAGE_BF16, 0, "nvfp4"},
    {"modelopt", "f4e2m1:c0", QPLAN_STORAGE_BF16, 0, "nvfp4"},
    {"gptq", "uint4:g64:sym", QPLAN_STORAGE_BF16, 0, "int4:g64:f16"},
    {"gptq", "int8:c0", QPLAN_STORAGE_F32, 0, "int8:c0:f16"},
    {"gptq", "int4:g32", QPLAN_STORAGE_F32, 0, "int4:g32:f16"},
    {"gptq", "int4:g128:asym", QPLAN_STORAGE_F32, 0, "gptq_v2"},
    {"gptq", "int4:g16", QPLAN_STORAGE_F32, 0, "g32, g64, g128 or c0"},
    {"gptq", "int4:c1", QPLAN_STORAGE_F32, 0, "g32, g64, g128 or c0"},
    {"gptq", "int4:c0:narrow", QPLAN_STORAGE_F32, 0, "full range"},
    {"gptq", "int3:g32", QPLAN_STORAGE_F32, 0, "int4 or int8"},
    {"gptq", "int4:g32:bf16", QPLAN_STORAGE_F32, 0, "f16"},
    {"gptq_v2", "uint4:g128", QPLAN_STORAGE_F32, 0, "int4:g128:asym:f16"},
    {"awq", "int4:g128", QPLAN_STORAGE_F32, 0, "uint4:g128:sym:f16"},
    {"awq", "uint4:g48:f16", QPLAN_STORAGE_F32, 0, "uint4:g48:f16"},
    {"awq", "uint8:g128", QPLAN_STORAGE_F32, 0, "uint4"},
    {"awq", "uint4:c0", QPLAN_STORAGE_F32, 0, "gN"},
    {"awq", "int4:g128:narrow", QPLAN_STORAGE_F32, 0, "full range"},
    {"awq", "uint4:g128:bf16", QPLAN_STORAGE_F32, 0, "f16"},
    {"mlx", "int4:g64", QPLAN_STORAGE_F64, 0, "uint4:g64:sym"},
    {"mlx", "uint6:g128", QPLAN_STORAGE_F16, 0, "uint6:g128:bias:f16"},
    {"mlx", "uint7:g64", QPLAN_STORAGE_F32, 0, "2, 3, 4, 5, 6 or 8 bits"},
    {"mlx", "uint4:g16", QPLAN_STORAGE_F32, 0, "g32, g64 or g128"},
    {"mlx", "uint4:c0", QPLAN_STORAGE_F32, 0, "g32, g64 or g128"},
    {"mlx", "int4:g64:narrow", QPLAN_STORAGE_F32, 0, "full range"},
    {"mlx", "uint4:g64:f16", QPLAN_STORAGE_F32, 0, "type of the weights"},
    {"bitsandbytes", "int8:c0", QPLAN_STORAGE_BF16, 0, "int8:c0:narrow"},
    {"bitsandbytes", "int8:c0:narrow", QPLAN_STORAGE_F64, 0, "int8:c0:narrow"},
    {"bitsandbytes", "uint8:c0:sym", QPLAN_STORAGE_F32, 0, "int8:c0"},
    {"bitsandbytes", "int8:c0:asym", QPLAN_STORAGE_F32, 0, "int8:c0"},
    {"bitsandbytes", "int8:c1", QPLAN_STORAGE_F32, 0, "int8:c0"},
    {"bitsandbytes", "int8:t", QPLAN_STORAGE_F32, 0, "int8:c0"},
    {"bitsandbytes", "int8:c0:f16", QPLAN_STORAGE_F32, 0, "f32"},
    {"bitsandbytes", "int8:g64", QPLAN_STORAGE_F32, 0, "int8:c0"},
    {"bitsandbytes", "nf4", QPLAN_STORAGE_BF16, 0, "nf4:g64"},
    {"bitsandbytes", "nf4:g32", QPLAN_STORAGE_F16, 0, "nf4:g32"},
    {"bitsandbytes", "nf4:g4096", QPLAN_STORAGE_F32, 0, "nf4:g4096"},
    {"bitsandbytes", "nf4:double", QPLAN_STORAGE_BF16, 0, "nf4:g64:double"},
    {"bitsandbytes", "nf4:g16:double", QPLAN_STORAGE_F32, 0, "nf4 with groups"},
    {"qplan", "nf4:double", QPLAN_STORAGE_F32, 0, "scales without scales of their own"},
    {"mlx", "nf4:double", QPLAN_STORAGE_F32, 0, "scales without scales of their own"},
    {"bitsandbytes", "nf4:g16", QPLAN_STORAGE_F32, 0, "nf4 with groups"},
    {"bitsandbytes", "nf4:g8192", QPLAN_STORAGE_F32, 0, "nf4 with groups"},
    {"bitsandbytes", "nf4:g96", QPLAN_STORAGE_F32, 0, "nf4 with groups"},
    {"bitsandbytes", "nf4:c0", QPLAN_STORAGE_F32, 0, "nf4 with groups"},
    {"bitsandbytes", "nf4:g64:bf16", QPLAN_STORAGE_F32, 0, "f32"},
    {"bitsandbytes", "f4e2m1:g64", QPLAN_STORAGE_F32, 0, "nf4"},
    {"comfyui", "int8:t", QPLAN_STORAGE_BF16, 0, "int8:t"},
    {"comfyui", "int8:c0", QPLAN_STORAGE_F32, 0, "int8:c0"},
    {"comfyui", "uint8:t", QPLAN_STORAGE_F32, 0, "int8:t or int8:c0"},
    {"comfyui", "int8:c1", QPLAN_STORAGE_F32, 0, "int8:t or int8:c0"},
    {"comfyui", "int8:g32", QPLAN_STORAGE_F32, 0, "int8:t or int8:c0"},
    {"comfyui", "int8:t:asym", QPLAN_STORAGE_F32, 0, "int8:t or int8:c0"},
    {"comfyui", "int8:t:narrow", QPLAN_STORAGE_F32, 0, "int8:t or int8:c0"},
    {"comfyui", "int8:t:f16", QPLAN_STORAGE_F32, 0, "f32"},
    {"comfyui", "mxfp8", QPLAN_STORAGE_F32, 0, "f8e4m3:g32:e8m0"},
    {"comfyui", "mxfp4", QPLAN_STORAGE_F32, 0, "nvfp4, mxfp8; or"},
};

static void a_scheme_becomes_what_a_layout_stores_or_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(fits); i++) {
        const struct fit_case *c = &fits[i];
        const struct qp_format_options options = {.activations = c->activations};
        struct qplan_scheme scheme = scheme_of(c->scheme);
        char text[QPLAN_SCHEME_TEXT];
        const char *reason =
            qp_format_fit(qp_format_find(c->format), &scheme, c->storage, &options);
        (void)qplan_scheme_format(&scheme, text);
        if (reason ? !strstr(reason, c->fitted) : strcmp(text, c->fitted) != 0)
            fail_msg("%s %s: expected %s, found %s", c->format, c->scheme, c->fitted,
                     reason ? reason : text);
    }
}

#define EMBEDDING "an embedding: engines load it plain"
#define HEAD      "a head: config.json lists it as plain"

static const struct {
    const char *format, *name;
    unsigned rank;
    uint64_t shape[3];
    const char *reason; /* NULL = it is stored */
} misfits[] = {
    {"compressed-tensors", "a.weight", 2, {5, 64}, NULL},
    {"compressed-tensors", "a.weight", 2, {5, 48}, "row length not a multiple of 32"},
    {"compressed-tensors", "a.w", 2, {5, 64}, "not named .weight"},
    {"gptq", "a.weight", 2, {32, 64}, NULL},
    {"gptq", "a.weight", 2, {32, 48}, "row length not a multiple of 32"},
    {"gptq", "a.weight", 2, {48, 64}, "output channels not a multiple of 32"},
    {"gptq_v2", "weights", 2, {32, 64}, "not named .weight"},
    {"awq", "a.weight", 2, {8, 5}, NULL},
    {"awq", "a.weight", 2, {12, 64}, "output channels not a multiple of 8"},
    {"awq", "a.bias", 2, {8, 64}, "not named .weight"},
    {"mlx", "a.weight", 2, {3, 64}, NULL},
    {"mlx", "a.0.switch_mlp.up_proj.weight", 3, {2, 3, 64}, NULL},
    {"mlx", "a.0.conv.weight", 3, {2, 3, 64}, "not 2-D"},
    {"mlx", "a.0.conv.weight", 4, {2, 3, 1}, "not 2-D"},
    {"mlx", "a.experts.1.weight", 2, {3, 64}, "experts that are not stacked"},
    {"mlx", "a", 2, {3, 64}, "not named .weight"},
    {"mlx", "a.experts.down_proj", 2, {3, 64}, "not named .weight"},
    {"mlx", "a.experts.down_proj", 3, {2, 3, 64}, "3-D experts"},
    {"bitsandbytes", "a.weight", 2, {3, 5}, NULL},
    {"bitsandbytes", "a.w", 2, {3, 5}, "not named .weight"},
    {"comfyui", "a.weight", 2, {3, 5}, NULL},
    {"comfyui", "weight", 2, {3, 5}, "not named .weight"},
    {"fp8", "a.weight", 2, {128, 256}, NULL},
    {"fp8", "weight", 2, {128, 256}, "not named .weight"},
    {"fp8", "a.weight", 2, {100, 128}, "ragged blocks"},
    {"fp8", "a.weight", 2, {128, 100}, "ragged blocks"},
    {"modelopt", "a.weight", 2, {3, 16}, NULL},
    {"modelopt", "weight", 2, {3, 16}, "not named .weight"},
    {"compressed-tensors", "m.embed_tokens.weight", 2, {5, 64}, EMBEDDING},
    {"compressed-tensors", "embedder.0.q.weight", 2, {5, 64}, NULL},
    {"compressed-tensors", "language_model.lm_head.weight", 2, {5, 64}, HEAD},
    {"gptq", "transformer.wte.weight", 2, {32, 64}, EMBEDDING},
    {"gptq", "lm_head.weight", 2, {32, 64}, NULL},
    {"gptq_v2", "wpe.weight", 2, {32, 64}, EMBEDDING},
    {"awq", "tok_embeddings.weight", 2, {8, 64}, EMBEDDING},
    {"awq", "lm_head.weight", 2, {8, 64}, NULL},
    {"bitsandbytes", "word_embeddings.weight", 2, {3, 5}, EMBEDDING},
    {"bitsandbytes", "cls.predictions.decoder.weight", 2, {3, 5}, HEAD},
    {"fp8", "model.embed.weight", 2, {128, 128}, EMBEDDING},
    {"fp8", "lm_head.weight", 2, {128, 128}, HEAD},
    {"modelopt", "model.embed.weight", 2, {3, 16}, EMBEDDING},
    {"modelopt", "lm_head.weight", 2, {3, 16}, HEAD},
    {"mlx", "model.embed_tokens.weight", 2, {3, 64}, NULL},
    {"comfyui", "lm_head.weight", 2, {3, 5}, NULL},
};

static void codes_of_4_bits_stand_for_types_that_bitsandbytes_has(void **state)
{
    const struct qplan_scheme scheme = scheme_of("nf4:g64");
    const enum qplan_storage storages[] = {QPLAN_STORAGE_F32, QPLAN_STORAGE_F16, QPLAN_STORAGE_BF16,
                                           QPLAN_STORAGE_F64};
    const uint64_t shape[] = {3, 5};
    (void)state;
    for (size_t i = 0; i < COUNT(storages); i++) {
        const struct qp_tensor t = {.name = "a.weight",
                                    .name_len = 8,
                                    .scheme = &scheme,
                                    .shape = shape,
                                    .rank = 2,
                                    .storage = (uint8_t)storages[i]};
        const char *reason = qp_format_find("bitsandbytes")->misfit(&t);
        if (storages[i] == QPLAN_STORAGE_F64)
            assert_string_equal(reason, "not F32, F16 or BF16");
        else
            assert_null(reason);
    }
}

static void a_tensor_that_engines_cannot_load_has_a_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(misfits); i++) {
        const struct qplan_scheme scheme = scheme_of("int4:g32");
        const struct qp_tensor t = {.name = misfits[i].name,
                                    .scheme = &scheme,
                                    .name_len = (uint32_t)strlen(misfits[i].name),
                                    .shape = misfits[i].shape,
                                    .rank = (uint8_t)misfits[i].rank};
        const char *reason = qp_format_find(misfits[i].format)->misfit(&t);
        if (!reason != !misfits[i].reason || (reason && strcmp(reason, misfits[i].reason) != 0))
            fail_msg("%s %s: expected %s, found %s", misfits[i].format, t.name,
                     misfits[i].reason ? misfits[i].reason : "none", reason ? reason : "none");
    }
}

static const struct {
    const char *format, *name, *scheme;
    uint64_t shape[2];
    const char *reason; /* NULL = it is stored */
} misfits_of_floats[] = {
    {"fp8", "a.weight", "fp8:b128x128", {256, 128}, NULL},
    {"fp8", "a.w", "fp8:b128x128", {256, 128}, "not named .weight"},
    {"fp8", "a.weight", "fp8:b128x128", {64, 128}, "ragged blocks"},
    {"fp8", "a.weight", "fp8:b128x128", {128, 64}, "ragged blocks"},
    {"modelopt", "a.weight", "nvfp4", {3, 16}, NULL},
    {"modelopt", "a.bias", "nvfp4", {3, 16}, "not named .weight"},
    {"comfyui", "a.weight", "fp8:t", {3, 5}, NULL},
    {"comfyui", "a.weight", "nvfp4", {16, 48}, NULL},
    {"comfyui",
     "a.weight",
     "nvfp4",
     {15, 48},
     "row length or output channels not a multiple of the block"},
    {"comfyui",
     "a.weight",
     "mxfp8",
     {32, 48},
     "row length or output channels not a multiple of the block"},
    {"compressed-tensors", "a.weight", "fp8:b128x128", {128, 256}, NULL},
    {"compressed-tensors", "a.weight", "fp8:b128x128", {128, 64}, "ragged blocks"},
    {"compressed-tensors", "a.weight", "fp8:b128x128", {64, 128}, "ragged blocks"},
    {"compressed-tensors", "a.weight", "nvfp4", {5, 48}, NULL},
};

static void a_tensor_of_floats_that_engines_cannot_load_has_a_reason(void **state)
{
    const struct qp_format_options options = {.activations = QPLAN_ACTIVATIONS_USUAL};
    (void)state;
    for (size_t i = 0; i < COUNT(misfits_of_floats); i++) {
        const struct qp_format *format = qp_format_find(misfits_of_floats[i].format);
        const struct qplan_scheme scheme = scheme_of(misfits_of_floats[i].scheme);
        struct qp_tensor t = {.name = misfits_of_floats[i].name,
                              .scheme = &scheme,
                              .name_len = (uint32_t)strlen(misfits_of_floats[i].name),
                              .shape = misfits_of_floats[i].shape,
                              .rank = 2};
        const char *expected = misfits_of_floats[i].reason;
        t.variant = (uint8_t)format->variant(&t, &options);
        const char *reason = format->misfit(&t);
        if (!reason != !expected || (reason && strcmp(reason, expected) != 0))
            fail_msg("row %zu: expected %s, found %s", i, expected ? expected : "none",
                     reason ? reason : "none");
    }
}

/* ---- config.json -------------------------------------------------------------------------------
 */

#define MOST_TENSORS 8

/* Tensors of an output, ended by NULL, each "NAME SCHEME", or "NAME" if it is kept. */
struct config_case {
    const char *format;
    const char *tensors[MOST_TENSORS + 1];
    const char *parts[5]; /* that the text has, ended by NULL; with ! in front: has not */
};

static const struct config_case configs[] = {
    {"bitsandbytes",
     {"m.l.0.up.weight nf4:g64", "m.l.1.up.weight"},
     {"\"load_in_8bit\":false,\"load_in_4bit\":true",
      "\"bnb_4bit_quant_type\":\"nf4\",\"bnb_4bit_use_double_quant\":false"}},
    {"bitsandbytes",
     {"m.l.0.up.weight nf4:g64:double", "m.l.1.up.weight"},
     {"\"bnb_4bit_quant_type\":\"nf4\",\"bnb_4bit_use_double_quant\":true"}},
    {"bitsandbytes",
     {"m.l.0.up.weight int8:c0", "m.l.1.up.weight", "m.l.1.x+y.weight", "visual.l.0.up.weight"},
     {"\"load_in_8bit\":true,\"load_in_4bit\":false",
      "\"llm_int8_skip_modules\":[\"lm_head\",\"cls.predictions.decoder\",\"(.*[.])?visual\","
      "\"(.*[.])?x\\\\+y\",\"l.1.up\",\"m.l.1.up\"]"}},
    {"compressed-tensors",
     {"l.0.up.weight int4:g32", "l.0.down.weight int4:g32:f16", "norm.weight"},
     {"\"targets\":[\"Linear\"]", "\"ignore\":[\"lm_head\",\"re:(.*[.])?norm([.].*)?$\"]"}},
    {"compressed-tensors",
     {"l.0.up.weight int4:g32", "l.0.down.weight int8:c0", "l.1.up.weight", "x+y.weight",
      "l..weight"},
     {"\"group_0\":{\"targets\":[\"re:(.*[.])?l[.]0[.]up$\"]",
      "\"group_1\":{\"targets\":[\"re:(.*[.])?l[.]0[.]down$\"]",
      "\"ignore\":[\"lm_head\",\"re:(.*[.])?x\\\\+y([.].*)?$\",\"re:(.*[.])?l[.]$\",\"re:(.*[.])?l["
      ".]1[.]up$\"]"}},
    {"compressed-tensors",
     {"l.0.up.weight nvfp4", "l.1.up.weight fp8:c0:bf16"},
     {"\"format\":\"mixed-precision\"", "\"format\":\"nvfp4-pack-quantized\"",
      "\"format\":\"naive-quantized\""}},
    {"compressed-tensors",
     {"l.0.up.weight int4:g32", "l.1.up.weight int8:c0"},
     {"\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\""}},
    {"fp8",
     {"l.0.up.weight fp8:b128x128", "l.1.up.weight", "norm.bias"},
     {"\"weight_block_size\":[128,128]", "\"modules_to_not_convert\":[\"l.1.up\",\"lm_head\"]"}},
    {"modelopt",
     {"l.0.up.weight nvfp4", "lm_head.weight", "l.1.up.weight"},
     {"\"quant_algo\":\"W4A16_NVFP4\"", "\"ignore\":[\"l.1.up\",\"lm_head\"]"}},
    {"mlx",
     {"a.weight uint4:g32", "b.weight uint4:g32", "c.weight mxfp4"},
     {"{\"group_size\":32,\"bits\":4,\"mode\":\"affine\",\"c\":{\"group_size\":32,\"bits\":4,"
      "\"mode\":\"mxfp4\"}}"}},
    {"gptq",
     {"m.l.0.up.weight int4:g32", "m.l.1.up.weight int4:g32", "norm.weight"},
     {"{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"desc_act\":false,\"sym\":true,"
      "\"checkpoint_format\":\"gptq\",\"lm_head\":false,\"true_sequential\":true,"
      "\"damp_percent\":0.1,\"static_groups\":false,\"meta\":"}},
    {"gptq",
     {"lm_head.weight int8:c0", "m.l.0.up.weight int4:g32", "m.l.1.a+b.weight int8:g64"},
     {"\"bits\":8,\"group_size\":-1", "\"lm_head\":true",
      "\"dynamic\":{\"+:(.*[.])?l[.]0[.]up$\":{\"bits\":4,\"group_size\":32},"
      "\"+:(.*[.])?l[.]1[.]a\\\\+b$\":{\"bits\":8,\"group_size\":64}}"}},
    {"gptq",
     {"m.l.0.down.weight", "m.l.0.up.weight int4:g32", "m.l.1.down.weight",
      "m.l.1.up.weight int4:g32"},
     {"\"modules_in_block_to_quantize\":[[\"up\"]]"}},
    {"gptq",
     {"m.l.0.up.weight", "m.l.1.up.weight int4:g32", "x.weight int4:g32"},
     {"\"modules_in_block_to_quantize\":[[\"l.1.up\",\"x\"]]"}},
    {"gptq_v2",
     {"l.0.up.weight int4:g32:asym", "l.0.down.weight int4:g32"},
     {"\"sym\":false", "\"checkpoint_format\":\"gptq_v2\"", "!dynamic"}},
    {"gptq", {"l.0.up.weight"}, {"\"quant_method\":\"gptq\""}},
    {"awq", {"l.0.up.weight uint4:g32"}, {"\"group_size\":32", "\"modules_to_not_convert\":null"}},
    {"awq",
     {"l.0.gate.weight", "l.0.gate_proj.weight uint4:g64", "l.0.up.weight uint4:g64",
      "l.1.gate_proj.weight", "lm_head.weight", "vision.3.fc.weight"},
     {"\"group_size\":64", "\"modules_to_not_convert\":[\"l.1.gate_proj\",\"lm_head\","
                           "\"vision\",\"(.*[.])?l[.]0[.]gate\",\"(.*[.])?vision\"]"}},
    {"awq",
     {"l.0.gate_proj.up.weight", "l.0.gate_proj.weight uint4:g64", "l.0.l.weight",
      "l.0.up.weight uint4:g64", "l.-1.weight"},
     {"\"l.0.gate_proj.up\"", "\"l.0.l\""}},
    {"awq", {"l.0.up.weight"}, {"\"group_size\":0", "[\"l\",\"(.*[.])?l\"]"}},
    {"mlx", {"a.weight"}, {"{\"group_size\":64,\"bits\":4,\"mode\":\"affine\"}"}},
    {"mlx", {"a.weight uint8:g32"}, {"{\"group_size\":32,\"bits\":8,\"mode\":\"affine\"}"}},
    {"mlx",
     {"a.weight uint4:g64", "b.weight uint4:g64", "c.weight uint8:g64", "d.weight uint4:g32",
      "e.weight"},
     {"{\"group_size\":64,\"bits\":4,\"mode\":\"affine\",\"c\":{\"group_size\":64,\"bits\":8},"
      "\"d\":{\"group_size\":32,\"bits\":4}}"}},
};

/* One tensor of an outline, by its text. */
static void read_tensor(const char *text, struct qp_tensor *t, struct qplan_scheme *scheme)
{
    static const uint64_t shape[] = {64, 64};
    const char *blank = strchr(text, ' ');
    const size_t n = blank ? (size_t)(blank - text) : strlen(text);
    *t = (struct qp_tensor){.name = text, .name_len = (uint32_t)n, .shape = shape, .rank = 2};
    if (blank) {
        *scheme = scheme_of(blank + 1);
        t->scheme = scheme;
    }
}

static void check_config(const struct config_case *c)
{
    const struct qp_format_options options = {.activations = QPLAN_ACTIVATIONS_NONE};
    struct qplan_scheme schemes[MOST_TENSORS];
    struct qp_tensor tensors[MOST_TENSORS];
    const struct qp_tensor *list[MOST_TENSORS];
    struct qp_outline outline = {.tensors = list, .options = &options};
    struct qp_writer w;
    for (; c->tensors[outline.n]; outline.n++) {
        read_tensor(c->tensors[outline.n], &tensors[outline.n], &schemes[outline.n]);
        list[outline.n] = &tensors[outline.n];
    }
    qp_writer_init(&w);
    qp_format_find(c->format)->config(&w, &outline);
    qp_put(&w, "", 1);
    assert_int_equal(w.error, 0);
    for (size_t i = 0; c->parts[i]; i++) {
        const bool is_unwanted = c->parts[i][0] == '!';
        if (is_unwanted == (strstr(w.data, c->parts[i] + is_unwanted) != NULL))
            fail_msg("%s: %s %s", c->parts[i], is_unwanted ? "is in" : "is not in", w.data);
    }
    qp_writer_free(&w);
}

static void config_json_names_what_differs_and_what_is_kept(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(configs); i++)
        check_config(&configs[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scheme_becomes_what_a_layout_stores_or_is_refused),
        cmocka_unit_test(a_tensor_that_engines_cannot_load_has_a_reason),
        cmocka_unit_test(a_tensor_of_floats_that_engines_cannot_load_has_a_reason),
        cmocka_unit_test(codes_of_4_bits_stand_for_types_that_bitsandbytes_has),
        cmocka_unit_test(config_json_names_what_differs_and_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
