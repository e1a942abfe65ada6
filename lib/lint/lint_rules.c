/*
 * lint_rules.c - the table of rules. An id is never given to another rule.
 */
#include "lint.h"

#define CT      "compressed-tensors"
#define BNB     "bitsandbytes"
#define FUSED   "compressed-tensors gptq gptq_v2 awq"
#define JOINED  FUSED " fp8 modelopt"
#define SCALED  JOINED " mlx comfyui qplan"
#define ABOVE   JOINED " bitsandbytes comfyui qplan"
#define ENGINES JOINED " bitsandbytes"
#define CACHED  FUSED " modelopt"
#define GPUS    "vllm sglang"

#define ERROR(id, layouts, engines, about)                                                         \
    {                                                                                              \
        id, true, layouts, engines, about                                                          \
    }
#define WARNING(id, layouts, engines, about)                                                       \
    {                                                                                              \
        id, false, layouts, engines, about                                                         \
    }

const struct qp_lint_rule qp_lint_rules[] = {
    /* The two that readers find. */
    {ERROR("L01", NULL, NULL, "files that are no checkpoint, or not what the index says"), false,
     NULL},
    {ERROR("L02", NULL, NULL, "names, types, shapes or values that are not those of the layout"),
     false, NULL},

    /* Files and stored tensors. */
    {WARNING("L03", NULL, NULL, "what every command warns of: stray files, a wrong total"), false,
     qp_lint_warnings},
    {WARNING("L04", NULL, NULL, "a file that describes another quantization"), false,
     qp_lint_other_files},
    {ERROR("L05", NULL, NULL, "a plain weight beside its quantized one"), false,
     qp_lint_plain_beside},
    {ERROR("L06", NULL, NULL, "a part that belongs to no quantized tensor"), true,
     qp_lint_left_parts},

    /* Values of parameters. */
    {ERROR("L07", NULL, NULL, "a scale or bias that is not finite"), true, qp_lint_not_finite},
    {ERROR("L08", SCALED, NULL, "a scale that is zero, but of nvfp4 blocks of zeros"), true,
     qp_lint_zero_scale},
    {WARNING("L09", ABOVE, NULL, "a negative scale where there may be such"), true,
     qp_lint_negative},
    {ERROR("L10", NULL, NULL, "a symmetric tensor whose zero point is not the middle"), true,
     qp_lint_middle},

    /* Models. */
    {ERROR("L11", JOINED, NULL, "tensors that engines load as one with different schemes"), true,
     qp_lint_families},
    {ERROR("L12", JOINED, NULL, "quantized weights of GPT-2, which are stored [in,out]"), true,
     qp_lint_conv1d},
    {ERROR("L13", ENGINES, NULL, "a quantized embedding"), true, qp_lint_embeddings},
    {WARNING("L14", "fp8", NULL, "a scale that is no power of two, and scale_fmt is ue8m0"), true,
     qp_lint_no_power},
    {ERROR("L15", CT " modelopt", NULL,
           "tensors that engines load as one with different factors of their scales"),
     true, qp_lint_factors},
    {ERROR("L16", CT, NULL, "a weight_global_scale that is not F32 [1]"), false,
     qp_lint_ct_factor_shape},
    {ERROR("L17", CT, NULL, "mxfp8 without its scale_dtype, torch.uint8"), false, qp_lint_ct_mxfp8},
    {WARNING("L18", CT, NULL, "float-quantized without input_activations, or naive with them"),
     false, qp_lint_ct_bare_float},

    {WARNING("L19", CACHED, NULL, "scales of a KV cache that config.json does not tell, or lacks"),
     true, qp_lint_kv_scales},

    /* compressed-tensors: config.json and stored tensors. */
    {ERROR("L20", CT, NULL, "quantization_status is not \"compressed\""), false, qp_lint_ct_status},
    {ERROR("L21", CT, NULL, "int-quantized weights without input_activations"), false,
     qp_lint_ct_bare_int},
    {ERROR("L22", CT, NULL, "a format that is not that of the stored tensors"), false,
     qp_lint_ct_format},
    {ERROR("L23", CT, NULL, "a zero point where all groups are symmetric"), false,
     qp_lint_ct_stray_zero},
    {ERROR("L24", CT, NULL, "no zero point where all groups are asymmetric"), false,
     qp_lint_ct_no_zero},
    {ERROR("L25", CT, NULL, "packed codes without their weight_shape, I64 [2]"), false,
     qp_lint_ct_shape},
    {ERROR("L26", CT, NULL, "a key that compressed-tensors refuses"), false, qp_lint_ct_keys},
    {ERROR("L27", CT, NULL, "actorder group, which compressed-tensors 0.19 took away"), false,
     qp_lint_ct_order},
    {WARNING("L28", CT, NULL, "3 5 6 7 bits, whose packing needs compressed-tensors 0.17"), true,
     qp_lint_ct_bits},
    {ERROR("L29", CT, NULL, "lm_head is targeted, plain, and not in ignore"), true,
     qp_lint_ct_head},
    {ERROR("L30", CT, NULL, "a plain linear layer that is targeted and not in ignore"), true,
     qp_lint_ct_kept},
    {ERROR("L31", CT, NULL, "a quantized layer that ignore matches"), true, qp_lint_ct_ignored},
    {ERROR("L32", CT, NULL, "a quantized layer of no target, or of one with other numbers"), true,
     qp_lint_ct_target},
    {WARNING("L33", "compressed-tensors awq bitsandbytes", NULL,
             "a regular expression that is not understood here"),
     true, qp_lint_pattern},
    {WARNING("L34", CT, NULL, "scales of another type than the model"), true,
     qp_lint_ct_scale_type},

    /* AWQ, bitsandbytes, GPTQ and MLX: lists of modules and other members of config.json. */
    {ERROR("L35", "awq bitsandbytes", NULL,
           "a plain linear layer that the skip list does not name"),
     true, qp_lint_skip_kept},
    {ERROR("L36", "awq bitsandbytes", NULL, "a quantized layer that the skip list matches"), true,
     qp_lint_skip_quantized},
    {ERROR("L37", "awq", "vllm", "a quantized layer with such an entry inside its name"), true,
     qp_lint_awq_inside},
    {ERROR("L38", "gptq gptq_v2", "transformers",
           "blocks quantized in part, unless modules_in_block_to_quantize says so"),
     true, qp_lint_gptq_blocks},
    {ERROR("L39", "gptq gptq_v2", NULL, "an lm_head that is not what lm_head says"), true,
     qp_lint_gptq_head},

    /* Limits of engines. */
    {ERROR("L40", NULL, "vllm sglang transformers mlx comfyui",
           "a layout that the engine does not load"),
     true, qp_lint_loaded},
    {ERROR("L41", CT, "transformers", "packed asymmetric weights"), true, qp_lint_asymmetric},
    {ERROR("L42", CT, "transformers", "experts of 8 bits with quantized activations"), true,
     qp_lint_w8a8_experts},
    {ERROR("L43", CT, "sglang", "other than 4 or 8 bits"), true, qp_lint_bits_4_8},
    {WARNING("L44", FUSED, GPUS, "groups of other than 32, 64 or 128"), true, qp_lint_group},
    {WARNING("L45", FUSED, GPUS,
             "row length not a multiple of 128, or output channels not one of 64"),
     true, qp_lint_tiles},
    {ERROR("L46", "gptq gptq_v2 awq", "transformers", "experts, which stay at random values"), true,
     qp_lint_random_experts},
    {ERROR("L47", "gptq gptq_v2", "vllm", "asymmetric weights"), true, qp_lint_gptq_asymmetric},
    {ERROR("L48", "gptq gptq_v2", "vllm", "other than 4 or 8 bits"), true, qp_lint_bits_4_8},
    {ERROR("L49", "mlx", NULL,
           "layers that mlx-lm does not load: experts not stacked, kv_b_proj, vision"),
     true, qp_lint_mlx_refused},
    {WARNING("L50", "mlx", NULL, "rope_parameters without a rope_theta"), true, qp_lint_mlx_rope},
    {ERROR("L51", "fp8", NULL, "rows or columns that are no multiple of the blocks"), true,
     qp_lint_ragged_blocks},
    {WARNING("L52", CT, "transformers", "experts of nvfp4, whose global scale is not loaded"), true,
     qp_lint_nvfp4_experts},
    {WARNING("L53", CT, GPUS, "rows or columns that are no multiple of blocks of fp8"), true,
     qp_lint_ct_ragged},
    {ERROR("L54", CT, "transformers", "experts of mxfp8, which it does not decode"), true,
     qp_lint_mxfp8_experts},
    {ERROR("L60", BNB, NULL, "lm_head is plain, and not in llm_int8_skip_modules"), true,
     qp_lint_bnb_head},
    {ERROR("L61", BNB, "transformers", "experts, which it loads only plain"), true,
     qp_lint_bnb_experts},
    {ERROR("L62", BNB, "transformers", "kv_b_proj of latent attention"), true, qp_lint_bnb_latent},
    {WARNING("L63", BNB, "transformers", "4 bits, and row length not a multiple of the group"),
     true, qp_lint_bnb_ragged},

    /* Values that no reader takes. */
    {ERROR("L64", NULL, NULL, "a negative scale where there may be none"), true,
     qp_lint_forbidden_sign},
    {ERROR("L65", NULL, NULL, "a code that is no number, or outside a narrow range"), true,
     qp_lint_codes},
    {{NULL, false, NULL, NULL, NULL}, false, NULL},
};
