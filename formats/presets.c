/*
 * presets.c - the table of presets: names that people know from other tools.
 */
#include "format.h"

static const struct qplan_preset presets[] = {
    {"w4a16", "compressed-tensors", "int4:g128", QPLAN_ACTIVATIONS_NONE},
    {"w4a16_asym", "compressed-tensors", "int4:g128:asym", QPLAN_ACTIVATIONS_NONE},
    {"w8a16", "compressed-tensors", "int8:c0", QPLAN_ACTIVATIONS_NONE},
    {"w8a8", "compressed-tensors", "int8:c0", QPLAN_ACTIVATIONS_DYNAMIC},
    {"fp8_dynamic", "compressed-tensors", "fp8:c0", QPLAN_ACTIVATIONS_DYNAMIC},
    {"fp8_block", "compressed-tensors", "fp8:b128x128", QPLAN_ACTIVATIONS_DYNAMIC},
    {"nvfp4a16", "compressed-tensors", "nvfp4", QPLAN_ACTIVATIONS_NONE},
    {"mxfp4a16", "compressed-tensors", "mxfp4", QPLAN_ACTIVATIONS_NONE},
    {"mxfp8a16", "compressed-tensors", "mxfp8", QPLAN_ACTIVATIONS_NONE},
    {"deepseek-fp8", "fp8", "fp8:b128x128", QPLAN_ACTIVATIONS_USUAL},
    {"comfy-fp8", "comfyui", "fp8:t", QPLAN_ACTIVATIONS_USUAL},
    {"mlx-4bit", "mlx", "uint4:g64", QPLAN_ACTIVATIONS_USUAL},
    {"mlx-8bit", "mlx", "uint8:g64", QPLAN_ACTIVATIONS_USUAL},
    {"mlx-mxfp4", "mlx", "mxfp4", QPLAN_ACTIVATIONS_USUAL},
    {"mlx-nvfp4", "mlx", "nvfp4", QPLAN_ACTIVATIONS_USUAL},
    {"gptq-4bit", "gptq", "int4:g128", QPLAN_ACTIVATIONS_USUAL},
    {"gptq-8bit", "gptq", "int8:g128", QPLAN_ACTIVATIONS_USUAL},
    {"awq-4bit", "awq", "uint4:g128", QPLAN_ACTIVATIONS_USUAL},
    {"nf4", "bitsandbytes", "nf4", QPLAN_ACTIVATIONS_USUAL},
    {"nf4-double", "bitsandbytes", "nf4:double", QPLAN_ACTIVATIONS_USUAL},
    {"bnb-int8", "bitsandbytes", "int8:c0", QPLAN_ACTIVATIONS_USUAL},
    {"modelopt-nvfp4", "modelopt", "nvfp4", QPLAN_ACTIVATIONS_USUAL},
};

const struct qplan_preset *qplan_preset_at(size_t i)
{
    return i < sizeof presets / sizeof presets[0] ? &presets[i] : NULL;
}
