#!/usr/bin/env python3
"""Makes the files beside it with the libraries whose layouts they are.

    make.py CHECKPOINTS

CHECKPOINTS has a folder for each checkpoint that CASES names, with encoded/model.safetensors in it,
as the library wrote it. Needs the libraries of README.md. A file has pairs of tensors:
`<place>/<origin>.packed`, as the library stores it, and `<place>/<origin>.values`, which its own
unpacking gives, as a matrix of rows that are outputs and columns that are inputs or groups.
"""

import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
LAYERS = ("model.layers.0.mlp.down_proj", "model.layers.1.self_attn.o_proj")
CASES = {
    "compressed_tensors": (
        ("ct-int2-g32", 2), ("ct-int3-g32", 3), ("ct-int4-g32", 4), ("ct-int4-g32-asym", 4),
        ("ct-int4-channel-asym", 4), ("ct-int6-channel", 6), ("ct-int8-channel-asym", 8)),
    "gptq": (
        ("gptq-v1-int2-sym-g32", 2), ("gptq-v1-int3-sym-g32", 3), ("gptq-v1-int4-sym-g128", 4),
        ("gptq-v1-int8-sym-g32", 8), ("gptq-v2-int4-asym-g32", 4), ("gptq-v2-int8-asym-g128", 8)),
    "awq": (("awq-gemm-int4-g32", 4),),
    "mlx": (
        ("mlx-affine-2bit-g64", 2), ("mlx-affine-3bit-g32", 3), ("mlx-affine-4bit-g32", 4),
        ("mlx-affine-5bit-g64", 5), ("mlx-affine-6bit-g128", 6), ("mlx-affine-8bit-g64", 8)),
    "bitsandbytes": (("bnb-nf4", 4),),
    "nvfp4": (("ct-nvfp4a16", 4), ("modelopt-nvfp4", 4)),
}


def random_codes(rows, cols, bits, signed=False):
    codes = torch.randint(0, 1 << bits, (rows, cols), dtype=torch.int32)
    return (codes - (1 << (bits - 1))).to(torch.int8) if signed else codes.to(torch.uint8)


# ---- Layouts: each gives (place, packed, values) of the tensors of one layer --------------------

def compressed_tensors(tensors, layer, origin, bits):
    from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
    packed, shape = tensors[layer + ".weight_packed"], tensors[layer + ".weight_shape"].tolist()
    yield f"ct{bits}", packed, unpack_from_int32(packed, bits, shape)
    zero = tensors.get(layer + ".weight_zero_point")
    if zero is not None:
        groups = [shape[0], zero.shape[1]]
        yield f"ct{bits}-zero", zero, unpack_from_int32(zero, bits, groups, packed_dim=0)


def gptq(tensors, layer, origin, bits):
    from gptqmodel.utils.model_dequant import unpack_cols, unpack_rows
    version = "v1" if "-v1-" in origin else "v2"
    packed, zeros = tensors[layer + ".qweight"], tensors[layer + ".qzeros"]
    yield f"gptq{bits}", packed, unpack_rows(packed, bits).T.to(torch.uint8)
    plain = convert_zeros(zeros, bits, to_v1=False) if version == "v1" else zeros
    yield f"gptq{bits}-zero-{version}", zeros, unpack_cols(plain, bits).T.to(torch.uint8)
    yield "gptq-scale", tensors[layer + ".scales"], tensors[layer + ".scales"].T


def convert_zeros(qzeros, bits, to_v1):
    """Zero points of one version as the other, by the library's conversion of a loaded layer."""
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils import model
    groups, outs = qzeros.shape[0], qzeros.shape[1] * 32 // bits
    layer = TorchLinear(bits=bits, group_size=32, sym=False, desc_act=False,
                        in_features=32 * groups, out_features=outs)
    assert layer.qzeros.shape == qzeros.shape
    layer.qzeros.data.copy_(qzeros)
    if to_v1:
        model.convert_gptq_v2_to_v1_format_module(layer, quantize_config=layer)
    else:
        model.convert_gptq_v1_to_v2_format_module(layer, bits=bits, pack_dtype=torch.int32)
    return layer.qzeros.data.clone()


def awq(tensors, layer, origin, bits):
    from gptqmodel.quantization.awq.utils.packing_utils import reverse_awq_order, unpack_awq
    packed, zeros = tensors[layer + ".qweight"], tensors[layer + ".qzeros"]
    codes = reverse_awq_order(*unpack_awq(packed, zeros, bits), bits)
    yield f"awq{bits}", packed, codes[0].T.to(torch.uint8)
    yield f"awq{bits}", zeros, codes[1].T.to(torch.uint8)
    yield "gptq-scale", tensors[layer + ".scales"], tensors[layer + ".scales"].T


def mlx(tensors, layer, origin, bits):
    """Codes are what they decode to with scales of 1 and biases of 0."""
    import mlx.core as mx
    import numpy as np
    packed, groups = tensors[layer + ".weight"], tensors[layer + ".scales"].shape
    words = mx.array(packed.view(torch.int32).numpy().astype(np.uint32))
    size = packed.shape[1] * 32 // bits // groups[1]
    codes = mx.dequantize(words, mx.ones(groups), mx.zeros(groups), group_size=size, bits=bits)
    yield f"mlx{bits}", packed.view(torch.int32), torch.tensor(np.array(codes)).to(torch.uint8)


def codes_of(decoded, table):
    """The place of each decoded value in a table; -0 is not 0."""
    same = (decoded.flatten()[:, None] == table) & (
        decoded.flatten()[:, None].signbit() == table.signbit())
    assert bool((same.sum(1) == 1).all())
    return same.to(torch.uint8).argmax(1).to(torch.uint8)


def bitsandbytes(tensors, layer, origin, bits):
    """Codes by the value that each decodes to when the largest of a block is 1."""
    import bitsandbytes.functional as f
    kind, packed = origin[-3:], tensors[layer + ".weight"]
    n, table = packed.numel() * 2, f.get_4bit_type(kind, device="cpu")
    state = f.QuantState(torch.ones(n // 64), shape=torch.Size((1, n)), code=table, blocksize=64,
                         quant_type=kind, dtype=torch.float32)
    yield "nf4", packed, codes_of(f.dequantize_4bit(packed, state), table).reshape(1, n)


def nvfp4(tensors, layer, origin, bits):
    from compressed_tensors.compressors.nvfp4.helpers import kE2M1ToFloat, unpack_fp4_from_uint8
    packed = tensors.get(layer + ".weight_packed")
    packed = tensors[layer + ".weight"] if packed is None else packed
    rows, cols = packed.shape[0], packed.shape[1] * 2
    decoded = unpack_fp4_from_uint8(packed, rows, cols, dtype=torch.float32)
    table = torch.cat((kE2M1ToFloat, -kE2M1ToFloat))
    yield "uint4", packed, codes_of(decoded, table).reshape(rows, cols)


# ---- What no checkpoint of the list has: packed by the libraries from random codes --------------

def own_compressed_tensors():
    from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
    for bits in range(2, 9):
        codes = random_codes(11, 45, bits, signed=True)
        yield f"ct{bits}", pack_to_int32(codes, bits), codes
        yield f"ct{bits}-zero", pack_to_int32(codes, bits, packed_dim=0), codes


def own_gptq():
    """Zero points of 0 in version 1, where the whole word borrows."""
    from gptqmodel.utils.model_dequant import pack_cols
    for bits in (2, 3, 4, 8):
        codes = random_codes(64, 3, bits)
        codes[::7] = 0
        packed = pack_cols(codes.T.contiguous().to(torch.int32), bits, pack_dtype=torch.int32)
        yield f"gptq{bits}-zero-v2", packed, codes
        yield f"gptq{bits}-zero-v1", convert_zeros(packed, bits, to_v1=True), codes


def own_bitsandbytes():
    """An odd count of elements; code 15 decodes to 1, so that the block is not scaled."""
    import bitsandbytes.functional as f
    codes = random_codes(1, 63, 4)
    codes[0, 0] = 15
    values = f.get_4bit_type("nf4", device="cpu")[codes.long()]
    yield "nf4", f.quantize_4bit(values, blocksize=64, quant_type="nf4")[0], codes


def own_comfyui():
    from comfy_kitchen.float_utils import pack_uint4, to_blocked
    for rows, cols in ((128, 4), (33, 1), (130, 6), (257, 13)):
        scales = torch.randint(1, 256, (rows, cols), dtype=torch.uint8)
        yield "swizzled", to_blocked(scales), scales
    codes = random_codes(7, 10, 4)
    yield "high-first", pack_uint4(codes), codes


def main():
    torch.manual_seed(14)
    own = {"compressed_tensors": own_compressed_tensors, "gptq": own_gptq,
           "bitsandbytes": own_bitsandbytes, "comfyui": own_comfyui}
    for library in sorted(CASES | own):
        pairs = {}

        def add(place, origin, packed, values):
            origin += "".join(f"-{n}" for n in values.shape)
            assert f"{place}/{origin}.packed" not in pairs
            pairs[f"{place}/{origin}.packed"] = packed.contiguous().clone()
            pairs[f"{place}/{origin}.values"] = values.contiguous().clone()

        for origin, bits in CASES.get(library, ()):
            path = pathlib.Path(sys.argv[1]) / origin / "encoded" / "model.safetensors"
            tensors = load_file(path)
            for layer in LAYERS:
                for made in globals()[library](tensors, layer, origin, bits):
                    add(made[0], origin, *made[1:])
        for place, packed, values in own[library]() if library in own else ():
            add(place, "own", packed, values)
        save_file(pairs, HERE / f"{library}.safetensors")
        print(library, len(pairs) // 2)


if __name__ == "__main__":
    main()
