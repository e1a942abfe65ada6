/*
 * plan_options.c - the rows of the options that quantize and plan share. Only text: plan_args.c
 * gives it a meaning.
 */
#include "plan_args.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const struct arg_option scheme_options[] = {
    {.name = "dtype",
     .value = "int8|uint8|int4|uint4",
     .help = "type of the codes",
     .fallback = "int8"},
    {.name = "per-tensor", .help = "one scale for a tensor"},
    {.name = "per-channel",
     .help = "one scale for each index of an axis",
     .fallback = "8-bit types"},
    {.name = "per-group",
     .value = "N",
     .help = "one scale for N neighbours on the last axis",
     .fallback = "4-bit types, 128"},
    {.name = "block",
     .value = "RxC",
     .help = "one scale for R rows by C columns of the last two axes"},
    {.name = "axis",
     .value = "N",
     .help = "axis of --per-channel; a negative one counts from the end",
     .fallback = "0"},
    {.name = "symmetric", .help = "zero point 0", .fallback = "signed types"},
    {.name = "asymmetric",
     .help = "zero point from the least and largest value",
     .fallback = "unsigned types"},
    {.name = "narrow-range",
     .help = "leave out the lowest code of a signed type, so that the\nrange is symmetric"},
    {.name = "scale-dtype",
     .value = "f32|f16|bf16",
     .help = "type of the stored scales",
     .fallback = "f32"},
    {.name = "scheme",
     .value = "S",
     .help = "all of the above at once, as int4:g128:asym:\n"
             "DTYPE[:t|:cN|:gN|:bRxC][:asym|:sym][:narrow][:SCALEDTYPE]"},
};

static const struct arg_option calibration_options[] = {
    {.name = "calibrate",
     .value = "METHOD",
     .help = "how the range of a set is found",
     .fallback = "minmax"},
};

/* The words of a choice stand in the order of the library's enum. */
static const struct arg_option selection_options[] = {
    {.name = "select",
     .value = "all",
     .help = "all: f64, f32, f16 and bf16 tensors of two or more axes",
     .fallback = "all"},
    {.name = "include",
     .value = "GLOB",
     .repeat = true,
     .help = "quantize only tensors that one of these matches"},
    {.name = "exclude",
     .value = "GLOB",
     .repeat = true,
     .help = "keep the tensors that match; wins over --include"},
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
    {.name = "force", .help = "replace an existing output"},
    {.name = "format", .value = "NAME", .help = "layout of the output", .fallback = "qplan"},
    {.name = "zero-point",
     .value = "always|asymmetric",
     .help = "when zero points are stored",
     .fallback = "always"},
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
};

const struct arg_group plan_scheme_options = {"Scheme", scheme_options, COUNT(scheme_options)};
const struct arg_group plan_calibration_options = {"Calibration", calibration_options,
                                                   COUNT(calibration_options)};
const struct arg_group plan_selection_options = {"Selection", selection_options,
                                                 COUNT(selection_options)};
const struct arg_group plan_output_options = {"Output", output_options, COUNT(output_options)};
