/*
 * plan_options.c - the rows of the options that quantize and plan share. Only text: plan_args.c
 * gives it a meaning.
 */
#include "plan_args.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct arg_option scheme_options[] = {
    {.name = "dtype",
     .value = "int2|int3|int4|int5|int6|int7|int8|"
              "uint2|uint3|uint4|uint5|uint6|uint7|uint8|"
              "fp8|f8e4m3|f8e5m2|f4e2m1|nf4",
     .help = "type of the codes",
     .fallback = "that of --format, else int8"},
    {.name = "per-tensor", .help = "one scale for a tensor"},
    {.name = "per-channel",
     .help = "one scale for each index of an axis",
     .fallback = "8-bit types"},
    {.name = "per-group",
     .value = "N",
     .help = "one scale for N neighbours\non the last axis",
     .fallback = "smaller types: 128, f4e2m1 32, nf4 64"},
    {.name = "block",
     .value = "RxC",
     .help = "one scale for R rows by C columns of the last two axes"},
    {.name = "axis",
     .value = "N",
     .help = "axis of --per-channel; a negative one counts from the end",
     .fallback = "0"},
    {.name = "symmetric", .help = "zero point 0", .fallback = "signed types of 5 to 8 bits"},
    {.name = "asymmetric",
     .help = "zero point from the least and\nlargest value",
     .fallback = "unsigned types; natively also 4 bits or fewer"},
    {.name = "narrow-range",
     .help = "leave out the lowest code of a signed type, so that the\nrange is symmetric"},
    {.name = "scale-dtype",
     .value = "f32|f16|bf16|f8e4m3|e8m0",
     .help = "type of the stored scales; f8e4m3 has one f32 factor\n"
             "for all of a tensor, e8m0 is powers of 2; natively groups\n"
             "and blocks of codes of 4 bits or fewer have bf16",
     .fallback = "else f32"},
    {.name = "scheme",
     .value = "S",
     .help = "all of the above at once, as int4:g128:asym:\n"
             "DTYPE[:t|:cN|:gN|:bRxC][:asym|:sym|:bias][:narrow]\n[:SCALEDTYPE][:double]"},
    {.name = "preset",
     .value = "NAME",
     .help = "layout and scheme by a name that engines know, as w4a16;\n"
             "'qplan help presets' lists them"},
};

static const struct arg_option calibration_options[] = {
    {.name = "calibrate",
     .value = "METHOD",
     .help = "how scale and zero point of a set are chosen: minmax, percentile:P\n"
             "or the least squared error by mse, mse:best or mse:exact, which\n"
             "lowers the error of weights and need not help a language model;\n"
             "entropy[:BINS] clips as TensorRT does, for those who compare;\n"
             "ldlq rounds by a --hessian",
     .fallback = "minmax; ldlq with --hessian"},
    {.name = "importance",
     .value = "FILE",
     .repeat = true,
     .help = "weigh the errors of mse by how much each input channel matters:\n"
             "an imatrix of llama.cpp, or safetensors with a vector a weight;\n"
             "for language models this helps most"},
    {.name = "importance-missing",
     .value = "warn|error",
     .help = "what to do about weights that no such file knows, or no --hessian",
     .fallback = "warn"},
    {.name = "hessian",
     .value = "FILE",
     .help = "round by how inputs of each weight go together, so that the error\n"
             "of one code makes up for that of others: safetensors with\n"
             "NAME.hessian; for language models this helps more than all else"},
    {.name = "hessian-damp",
     .value = "X",
     .help = "added to the diagonal of a Hessian, as a share of its mean",
     .fallback = "0.01"},
    {.name = "positive-scales", .help = "no scale below 0, which mse gives symmetric codes"},
};

static const struct arg_option budget_options[] = {
    {.name = "target-bpw",
     .value = "B",
     .help = "give each tensor the candidate by which all errors together\n"
             "are least, at no more than B bits per weight"},
    {.name = "target-size",
     .value = "SIZE",
     .help = "likewise, at no more than SIZE for all files"},
    {.name = "candidates",
     .value = "LIST",
     .help = "schemes that a target chooses from, and keep, with commas\n"
             "between, as int4:g128,int4:g32,int8:c0,keep; each is measured\n"
             "on each tensor, with --calibrate"},
};

/* The words of a choice stand in the order of the library's enum. */
static const struct arg_option selection_options[] = {
    {.name = "select",
     .value = "all|linear",
     .help = "all: f64, f32, f16 and bf16 tensors of two or more axes;\n"
             "linear: weights of linear layers inside blocks, without\n"
             "routers, heads and towers",
     .fallback = "that of the layout"},
    {.name = "include",
     .value = "GLOB",
     .repeat = true,
     .help = "quantize only tensors that one of these matches"},
    {.name = "exclude",
     .value = "GLOB",
     .repeat = true,
     .help = "keep the tensors that match; wins over --include"},
    {.name = "rules",
     .value = "FILE",
     .help = "lines 'GLOB SCHEME' or 'GLOB keep': the first that matches\n"
             "decides instead of --select; - reads them from stdin"},
    {.name = "min-elements",
     .value = "N",
     .help = "keep tensors of fewer elements, which lose most by few bits\nand save least; "
             "of tensors that engines load as one the\nlargest tells"},
    {.name = "min-rows", .value = "N", .help = "likewise tensors of fewer rows"},
    {.name = "indivisible",
     .value = "error|keep|ragged",
     .help = "what to do when a group does not divide the last axis:\n"
             "refuse, keep the tensor, or make the last group shorter",
     .fallback = "error"},
    {.name = "nonfinite",
     .value = "error|saturate",
     .help = "what to do with NaN and infinity: refuse, or take 0 and\n"
             "the ends of the range",
     .fallback = "error"},
};

static const struct arg_option output_options[] = {
    {.name = "force", .letter = "f", .help = "replace an existing output"},
    {.name = "format",
     .value = "NAME",
     .help = "layout of the output; 'qplan help formats' lists them",
     .fallback = "qplan"},
    {.name = "activations",
     .value = "none|dynamic",
     .help = "whether engines quantize activations while a model runs,\nin layouts that say so",
     .fallback = "dynamic for fp8, else none"},
    {.name = "arithmetic",
     .value = "qplan|reference",
     .help = "reference: that of the tool which defined the layout, so\n"
             "that the tensors have its bytes",
     .fallback = "qplan"},
    {.name = "experts",
     .value = "keep|split",
     .help = "what becomes of 3-D tensors of all experts of a layer:\n"
             "nothing, or a 2-D tensor for each expert",
     .fallback = "keep"},
    {.name = "zero-point",
     .value = "always|asymmetric",
     .help = "when zero points are stored in the native layout",
     .fallback = "always"},
    {.name = "max-shard-size",
     .value = "SIZE",
     .help = "cut the shards of a folder anew, each with at most SIZE\nof tensors",
     .fallback = "as they are"},
    {.name = "requantize", .help = "take a MODEL that is quantized, and decode it on the way"},
    {.name = "copy",
     .value = "GLOB",
     .repeat = true,
     .help = "copy files of the folder that are else left out, as in\n'*.py'"},
    {.name = "plan",
     .value = "FILE",
     .help = "follow this plan document instead of the options above;\n- reads it from stdin"},
    {.name = "dry-run", .help = "show what would be done and the exact size; write nothing"},
    {.name = "verify", .help = "prove the written bytes against MODEL before they get\ntheir name"},
    {.name = "fail-if",
     .value = "GATE",
     .repeat = true,
     .help = "write nothing and exit 1 if this is true, as in\n'sqnr_db<30' or 'total:ratio<1.9'"},
    {.name = "gate-min-elements",
     .value = "N",
     .help = "gates of sqnr_db and cosine without a scope skip smaller\ntensors, unless all are",
     .fallback = "4096"},
};

const struct arg_group plan_scheme_options = {"Scheme", scheme_options, COUNT(scheme_options)};
const struct arg_group plan_calibration_options = {"Calibration", calibration_options,
                                                   COUNT(calibration_options)};
const struct arg_group plan_budget_options = {"Target", budget_options, COUNT(budget_options)};
const struct arg_group plan_selection_options = {"Selection", selection_options,
                                                 COUNT(selection_options)};
const struct arg_group plan_output_options = {"Output", output_options, COUNT(output_options)};
