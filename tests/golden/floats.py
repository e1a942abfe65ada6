"""Small floats in numpy: the values of codes, and decoders of weights that are such codes.

Written from the descriptions of the types: OCP 8-bit and microscaling formats, and what each layout
says of its scales.
"""

import numpy as np

import stored


def table(bits, man_bits, bias, nan_from=None):
    """The value of every code with a sign, an exponent and a mantissa, as f32."""
    half = 1 << bits - 1
    codes = np.arange(half)
    exponent, mantissa = codes >> man_bits, (codes & (1 << man_bits) - 1) / (1 << man_bits)
    value = np.where(exponent > 0, (1 + mantissa) * 2.0 ** (exponent - bias),
                     mantissa * 2.0 ** (1 - bias)).astype(np.float32)
    if nan_from is not None:
        value[nan_from:] = np.nan
    return np.concatenate((value, -value))


E4M3 = table(8, 3, 7, 127)
E5M2 = table(8, 2, 15, 124)
E2M1 = table(4, 1, 1)
TABLES = {"F8_E4M3": E4M3, "F8_E5M2": E5M2}


def nibbles(tensor):
    """Codes of 4 bits along rows, low nibbles first."""
    raw = np.frombuffer(tensor.data, np.uint8).reshape(tensor.shape[0], -1)
    return E2M1[np.stack((raw & 15, raw >> 4), axis=-1).reshape(tensor.shape[0], -1)]


def unswizzled(tensor, rows, columns):
    """Bytes in tiles of 128 rows and 4 columns, as cuBLAS has them, as a matrix of rows."""
    tiles = np.frombuffer(tensor.data, np.uint8).reshape(tensor.shape[0] // 128, -1, 32, 4, 4)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(tensor.shape)[:rows, :columns]


def bytes_of(tensor, shape=None):
    return np.frombuffer(tensor.data, np.uint8).reshape(shape or tensor.shape)


def values_of(tensor):
    return TABLES[tensor.dtype][bytes_of(tensor)]


def powers(raw):
    """The scales of bytes that are exponents."""
    return np.ldexp(np.float32(1), raw.astype(np.int32) - 127)


def spread(scales, rows, columns):
    """A scale for each element: of sets that are rectangles of one size, cut at the edges."""
    height = rows if scales.shape[0] == 1 else 128 if scales.shape[0] < rows else 1
    width = columns if scales.shape[1] == 1 else -(-columns // scales.shape[1])
    if height == 128:
        width = 128
    return scales.repeat(height, 0)[:rows].repeat(width, 1)[:, :columns]


def fp8(codes, scales, dtype):
    """Values times scales, in the type that decoders work in."""
    found = values_of(codes) * spread(scales, *codes.shape)
    return stored.packed(dtype, stored.rounded(dtype, found))


def blocks(values, scales, dtype="BF16"):
    """Each of some neighbours of a row times their scale, which is an f32."""
    found = values * scales.repeat(values.shape[1] // scales.shape[1], 1)
    return stored.packed(dtype, stored.rounded(dtype, found))
