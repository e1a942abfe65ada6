"""The layout of gpt-oss for rows_quantized.py: the experts of a layer in one tensor, which only other
tools write. A block is 32 rows of one column of an expert, and a line of codes is such a column.
"""

import layout_folder
import model
from expect import tensor, words
from layout_folder import CONFIG, Stored
from layout_qplan import OTHER_SOURCE, Fault
from st import f32

EXPERTS, WIDTH = 2, 32


class File(layout_folder.FolderFile):
    """Rows of all experts, one behind the other, are the rows that faults speak of."""
    name, kept, stem = "l.0.w", "l.0.w_bias", "l.0.w"

    def __init__(self, scheme, dtype="F32", dims=(EXPERTS * 64, 5)):
        super().__init__(scheme, dtype, dims)
        source = self.source[self.name]
        self.source[self.name] = (source[0], self.shape(dims), source[2])

    @staticmethod
    def scale_type(dtype):
        return "E8M0"

    @staticmethod
    def shape(dims):
        return EXPERTS, dims[0] // EXPERTS, dims[1]

    @property
    def parts(self):
        found = {"codes": self.name + "_blocks", "scale": self.name + "_scales"}
        return {role: name for role, name in found.items() if name in self.tensors}

    def stored(self, name, scheme, dtype, dims, raw):
        codes, params, *_ = model.coded(dtype, dims, raw, scheme)
        experts, rows, cols = self.shape(dims)
        column = [codes[e * rows * cols + c::cols][:rows] for e in range(experts) for c in range(cols)]
        numbers, n = model.SMALL[scheme.scale][1], rows // WIDTH
        scales = [params[(e * n + b) * cols + c][0]
                  for e in range(experts) for c in range(cols) for b in range(n)]
        return {name + "_blocks": ("U8", (experts, cols, n, WIDTH // 2), bytes(
                    a | b << 4 for line in column for a, b in zip(line[::2], line[1::2]))),
                name + "_scales": ("U8", (experts, cols, n), bytes(numbers[s] for s in scales))}

    def described(self):
        return {CONFIG: {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}


class Layout(layout_folder.Layout):
    name, method, base, file = "mxfp4", "mxfp4", "other", File
    with_wrong_parts = spoiled = ("other",)
    sidecars = ("l.1.w_blocks_inv", "l.1.w_bias")
    schemes = {"other": Stored(bits=4, values="F4E2M1", scale="E8M0", grain=("b", WIDTH, 1),
                               recorded=False)}

    # --- values of an honest file ---

    @staticmethod
    def set_code(file, row, col, value):
        rows, cols = file.dims[0] // EXPERTS, file.dims[1]
        line, at = row // rows * cols + col, row % rows
        byte, shift = (line * rows + at) // 2, at % 2 * 4
        old = file.tensors[file.parts["codes"]][2][byte]
        file.set_bytes(file.parts["codes"], byte, bytes([old & ~(15 << shift) | value % 16 << shift]))

    @staticmethod
    def set_pad(file, row):
        return False                    # blocks are whole bytes

    def set_scale(self, file, i, value):
        cols, n = file.dims[1], file.dims[0] // EXPERTS // WIDTH
        band, col = divmod(i, cols)
        super().set_scale(file, (band // n * cols + col) * n + band % n, value)

    @staticmethod
    def other_scales(scheme):
        """Powers of two that no honest file has."""
        return {"tiny": 2.0 ** -14, "huge": 2.0 ** 16}

    # --- every claim of config.json, wrong ---

    def claims_of_schemes(self):
        """A record says what qplan never writes."""
        def record(text):
            def spoil(file):
                file.text = None
                file.meta.update({"qplan.layout": "2", "qplan.numerics": "1"})
                file.records = {file.name: [text, "minmax", "F32", "2x64x5"]}
            return spoil

        for text in ("f4e2m1:b32x1:e8m0", "f4e2m1:g32:e8m0", "int8:c0", "f4e2m1:b32x1"):
            yield Fault(f"Q6-recorded-{text.replace(':', '-')}", record(text),
                        ("l.0.w", words("the layout mxfp4 stores no tensor")))

    def claims_of_config(self, s):
        yield from self.claims_of_method(s, "awq")

    def claims_of_both(self):
        def stray(name, *stored):
            def spoil(file):
                file.tensors[name] = stored
            return spoil

        blocks = ("U8", (1, 1, 1, 16), bytes(16))
        yield Fault("Q3-stray-scales", stray("l.1.w_scales", "U8", (1, 1, 1), b"\x7f"),
                    (tensor("l.1.w_scales"), words("blocks that are not there")))
        yield Fault("Q3-stray-blocks", stray("l.1.w_blocks", *blocks), (words("'l.1.w_scales"),))
        yield Fault("Q3-no-name", stray("_blocks", *blocks), (words("'_scales"),))
        for name, dtype, dims in (("rank", "U8", (1, 16)), ("width", "U8", (1, 1, 2, 8)),
                                  ("type", "I8", (1, 1, 1, 16)), ("axes", "U8", (1, 1, 1, 1, 16))):
            yield Fault(f"Q5-stray-blocks-{name}", stray("l.1.w_blocks", dtype, dims, bytes(16)),
                        (tensor("l.1.w_blocks"), words("blocks of 16 bytes")))
        yield Fault("Q12-bytes", stray("l.1.w", "U8", (2,), bytes(2)),
                    (tensor("l.1.w"), words("not in the source")), OTHER_SOURCE)
        yield Fault("Q12-scales-of-floats", stray("l.1.w_scales", "F32", (1,), f32(1)),
                    (tensor("l.1.w_scales"), words("not in the source")), OTHER_SOURCE)
