"""The layout of ComfyUI for rows_quantized.py: a file in which a weight is bytes, its scale, and a
mark, bytes of JSON that name the format. Scales of blocks are bytes in tiles of 128 rows and 4 columns.
"""

import dataclasses
import json

import layout_qplan
import model
from expect import tensor, words
from layout_folder import PLAIN, Stored, both
from layout_qplan import ALL, HONEST, OTHER_SOURCE, Fault, clean, word
from st import n_bytes

OLD_MARK = "l.scaled_fp8"
CLAIM = "_quantization_metadata"



def mark_of(format):
    return b'{"format": "%s"}' % format.encode()


MARK = mark_of("int8_tensorwise")
BLANK = json.dumps(json.loads(MARK)).encode()       # as ComfyUI writes it


@dataclasses.dataclass(frozen=True)
class Marked(Stored):
    mark: bytes = MARK
    in_header: bool = False             # the mark is in the metadata of the file
    old: str = ""                       # files of fp8 before layers had marks: the type of the one mark


BLOCKS = {
    "fp8": {"values": "F8E4M3", "grain": ("t",), "mark": mark_of("float8_e4m3fn")},
    "f8e5m2": {"values": "F8E5M2", "grain": ("t",), "mark": mark_of("float8_e5m2")},
    "mxfp8": {"values": "F8E4M3", "scale": "E8M0", "grain": ("g", 32), "mark": mark_of("mxfp8")},
    "nvfp4": {"bits": 4, "values": "F4E2M1", "scale": "F8E4M3", "grain": ("g", 16), "mark": mark_of("nvfp4")},
}


OLD = {"values": "F8E4M3", "grain": ("t",), "recorded": False}


def swizzled(dims, row, col):
    """Where the scale of a block is, and how many bytes there are."""
    rows, cols = (dims[0] + 127) // 128, (dims[1] + 3) // 4
    tile = row // 128 * cols + col // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + col % 4, rows * cols * 512


class File(layout_qplan.File):
    name, kept, stem = "l.0.w.weight", "l.0.w.bias", "l.0.w"

    def __init__(self, scheme, dtype="F32", dims=None):
        dims = dims or ((5, 96) if scheme.grain[0] == "g" else (5, 7))
        super().__init__(scheme, dtype, dims)
        if not scheme.recorded:
            self.records, self.text, self.meta = {}, False, {"format": "pt", "note": "kept"}
        if scheme.in_header:
            del self.tensors[self.stem + ".comfy_quant"]
            self.meta[CLAIM] = self.claim(scheme.mark)

    def claim(self, mark, layer=None, version=b'"1.0"', more=b""):
        """The marks of all layers, of which there is one."""
        layer = json.dumps(layer or self.stem).encode()
        return (b'{"format_version": %s, "layers": {%s: %s%s}}' % (version, layer, mark, more)).decode()

    @property
    def parts(self):
        found = {"codes": self.name, "scale": self.name + "_scale", "mark": self.stem + ".comfy_quant",
                 "factor": self.name + "_scale_2"}
        if self.scheme.old:
            found.update(scale=self.stem + ".scale_weight", mark=OLD_MARK)
        return {role: name for role, name in found.items() if name in self.tensors}

    def stored_blocks(self, name, scheme, dtype, dims, raw):
        """Codes from the high half of a byte on, and scales in tiles that are filled up."""
        parts = model.quantize(dtype, dims, raw, scheme)
        codes, scale = parts[""], parts["_scale"]
        if scheme.bits == 4:
            codes = (*codes[:2], bytes(b % 16 << 4 | b >> 4 for b in codes[2]))
        rows, cols = scale[1]
        tiles = bytearray(swizzled(scale[1], 0, 0)[1])
        for row in range(rows):
            for col in range(cols):
                tiles[swizzled(scale[1], row, col)[0]] = scale[2][row * cols + col]
        stored = {name: codes, name + "_scale": (
            scale[0], ((rows + 127) // 128 * 128, (cols + 3) // 4 * 4), bytes(tiles))}
        return {**stored, **({name + "_scale_2": ("F32", (), parts["_scale_2"][2])}
                             if "_scale_2" in parts else {})}

    def stored(self, name, scheme, dtype, dims, raw):
        mark = {self.stem + ".comfy_quant": ("U8", (len(scheme.mark),), scheme.mark)}
        if scheme.grain[0] == "g":
            return {**self.stored_blocks(name, scheme, dtype, dims, raw), **mark}
        codes, params, *_ = model.coded(dtype, dims, raw, scheme)
        shape = () if scheme.grain == ("t",) else (dims[0], 1)
        storage = model.VALUES[scheme.values][0] if scheme.values else "I8"
        if scheme.old:
            raw = bytes(2 * n_bytes(scheme.old, [1]))
            return {name: (storage, dims, bytes(codes)), OLD_MARK: (scheme.old, (2,), raw),
                    self.stem + ".scale_weight": ("F32", (), model.encode("F32", [params[0][0]])),
                    self.stem + ".scale_input": ("F32", (), model.encode("F32", [1]))}
        return {name: (storage, dims, bytes(c % 256 for c in codes)), **mark,
                name + "_scale": ("F32", shape, model.encode("F32", [s for s, _ in params]))}


class Layout(layout_qplan.Layout):
    name, base, file = "comfyui", "int8", File
    with_wrong_parts = ("int8", "int8-other", "tensor", "tensor-other", "fp8", "fp8-other", "mxfp8",
                        "mxfp8-other", "nvfp4", "nvfp4-other", "old-other", "old-f32-other", "header-other",
                        "header-nvfp4-other")
    inputs, with_inputs = (".input_scale", ".scale_input"), ("int8-other", "old-other")
    sidecars = ("l.1.w.weight_scale",)
    unrecorded = (tensor("l.0.w.weight"), words("not recorded")), ALL
    schemes = {**dict(both(Marked, int8={}, tensor={"grain": ("t",)}, **BLOCKS)),
               "blank-other": Marked(recorded=False, mark=BLANK),
               "header-other": Marked(recorded=False, in_header=True),
               "header-nvfp4-other": Marked(**BLOCKS["nvfp4"], recorded=False, in_header=True),
               "old-other": Marked(**OLD, old="F8_E4M3"), "old-f32-other": Marked(**OLD, old="F32"),
               "old-f8e5m2-other": Marked(**{**OLD, "values": "F8E5M2"}, old="F8_E5M2")}

    @staticmethod
    def set_code(file, row, col, value):
        if file.scheme.bits == 4:
            at, shift = row * file.dims[1] // 2 + col // 2, 0 if col % 2 else 4
            old = file.tensors[file.name][2][at]
            return file.set_bytes(file.name, at, bytes([old & ~(15 << shift) | value % 16 << shift]))
        file.set_bytes(file.name, row * file.dims[1] + col, bytes([value % 256]))

    @staticmethod
    def set_pad(file, row):
        return False

    @staticmethod
    def blocks(file):
        return file.dims[0], file.dims[1] // file.scheme.grain[1]

    def n_sets(self, file):
        rows, cols = self.blocks(file) if file.scheme.grain[0] == "g" else (0, 0)
        return rows * cols or super().n_sets(file)

    def set_scale(self, file, i, value):
        if file.scheme.grain[0] == "g":
            dims = self.blocks(file)
            i = swizzled(dims, i // dims[1], i % dims[1])[0]
        super().set_scale(file, i, value)

    @staticmethod
    def bad_scales(file):
        """Other tools give blocks of zeros the scale 0."""
        bad = dict(layout_qplan.Layout.bad_scales(file))
        if file.scheme.scale == "F8E4M3" and not file.records:
            del bad["zero"]
        return bad

    @staticmethod
    def unrecord(file):
        file.records = {}

    @staticmethod
    def gone(file, role):
        """With a record and scales for rows, no mark is needed: it is a file of compressed-tensors."""
        if role == "scale" and file.scheme.old:
            return PLAIN    # codes are numbers as they are
        if role != "mark":
            return ALL
        return PLAIN if not file.records else HONEST if file.scheme.grain == ("c", 0) else ALL

    @staticmethod
    def reshaped(file, role, dims):
        """One scale fits every matrix, and a tile of scales one more row."""
        more = file.scheme.grain[0] == "g" and dims == (file.dims[0] + 1, file.tensors[file.name][1][1])
        fits = role == "codes" and len(dims) == 2 and 0 not in dims and (file.scheme.grain == ("t",) or more)
        if file.scheme.old and (role == "mark" or role == "scale" and dims == (1,)):
            return HONEST
        return OTHER_SOURCE if fits and not file.records else ALL

    @staticmethod
    def retyped(file, role, dtype):
        """Other tools store scales of nvfp4 as bytes."""
        fits = role == "scale" and dtype == "U8" and file.scheme.scale == "F8E4M3"
        if file.scheme.old and role == "mark":
            return ALL if dtype == "F8_E5M2" else PLAIN
        return HONEST if fits and not file.records else ALL

    @staticmethod
    def dtypes(scheme):
        """Without a record weights are of the type of their scales."""
        return ("F32",) if scheme.endswith("-other") else ("F32", "F16", "BF16", "F64")

    @staticmethod
    def bad_zeros(scheme):
        return ()

    # --- every claim of records and marks, wrong ---

    def claims(self):
        yield from self.claims_of_schemes()
        for scheme in ("int8", "int8-other"):
            for fault in self.claims_of_marks():
                yield self.start_as(scheme, fault)

        for scheme, column in {"mxfp8": 3, "nvfp4": 512 + 3}.items():
            for name, at in {"column": column, "row": -1}.items():  # of 5 rows and 3 or 6 columns
                yield self.start_as(scheme, Fault(
                    f"Q11-tiles-{name}", lambda f, at=at: f.set_bytes(f.parts["scale"], at, b"\1"),
                    (tensor(f"{self.file.name}_scale"), words("spare bits must be 0"))))

        for fault in self.claims_of_header():
            yield self.start_as("header-other", fault)

        for scheme in ("int8", "int8-other", "header-other", "old-other"):
            for fault in self.notes_of_nothing(scheme):
                yield self.start_as(scheme, fault)

        for name, fault, exits in self.claims_of_old():
            yield self.start_as("old-other", Fault(
                f"Q3-old-{name}", fault, () if exits else (words("'l.[01].w"),), exits))

    def claims_of_header(self):
        def put(text):
            def spoil(file):
                file.meta[CLAIM] = text(file) if callable(text) else text
            return spoil

        def with_mark(file):
            file.tensors[file.stem + ".comfy_quant"] = ("U8", (len(MARK),), MARK)

        def recorded(file):
            file.meta.update({"qplan.layout": "1", "qplan.numerics": "1"})
            file.text = json.dumps({file.name: "int8:c0 minmax F32 5x7"})

        def marked(raw, **more):
            return lambda file: file.claim(raw, **more)

        def layers(text):
            return f'{{"format_version": "1.0", "layers": {text}}}'

        again = b', "l.0.w": ' + MARK
        layer = words("'l.0.w'")
        texts = {
            "empty": ("", ()), "cut": (lambda file: file.claim(MARK)[:-1], ()), "array": ("[]", ("value",)),
            "nul": (lambda file: file.claim(MARK) + "\0", ()), "rest": (lambda file: file.claim(MARK) + "{}", ()),
            "deep": ("[" * 4000, ()), "no-layers": ('{"format_version": "1.0"}', ("layers",)),
            "layers-null": (layers("null"), ("layers",)), "layers-array": (layers("[]"), ("layers",)),
            "layers-twice": (layers('{}, "layers": {}'), ("layers",)),
            "other-key": (layers('{}, "group": 1'), ("group",)),
            "version-2": (marked(MARK, version=b'"2.0"'), ("format_version",)),
            "version-number": (marked(MARK, version=b"1.0"), ("format_version",)),
            "version-null": (marked(MARK, version=b"null"), ("format_version",)),
            "layer-twice": (marked(MARK, more=again), (words("claimed twice"),)),
            "layer-nul": (marked(MARK, layer="l.0.w\0"), ()),
            "layer-stray": (marked(MARK, layer="l.1.w"), (words("'l.1.w'"),)),
            "layer-weight": (marked(MARK, layer="l.0.w.weight"), (words("'l.0.w.weight'"),)),
            "layer-empty": (layers('{"": %s}' % MARK.decode()), (words("''"),)),
            "mark-text": (marked(b'"int8_tensorwise"'), (layer,)), "mark-null": (marked(b"null"), (layer,)),
            "mark-none": (marked(b"{}"), (layer,)), "mark-array": (marked(b"[]"), (layer,)),
            "mark-twice": (marked(MARK[:-1] + b"," + MARK[1:]), (layer,)),
            "mark-unknown": (marked(mark_of("int8_blockwise")), (layer, "int8_blockwise")),
            "mark-fp8": (marked(mark_of("float8_e4m3fn")), ("l.0.w",)),
            "mark-blocks": (marked(mark_of("mxfp8")), (layer,)),
            "mark-rotated": (marked(MARK[:-1] + b', "convrot": true}'), (layer,)),
        }
        for name, (text, names) in texts.items():
            yield Fault(f"Q3-header-{name}", put(text), (CLAIM, *names) if name not in
                        ("mark-fp8", "layer-twice") else names)
        yield Fault("Q3-header-and-mark", with_mark, (words("claimed twice"),))
        yield Fault("Q3-header-recorded", recorded, (tensor("l.0.w.comfy_quant"),))
        yield Fault("Q3-header-lean", put(lambda f: layers(json.dumps({f.stem: json.loads(MARK)}))
                                          .replace('"format_version": "1.0", ', "")), (), HONEST)
        yield Fault("Q3-header-computed", put(marked(MARK[:-1] + b', "full_precision_matrix_mult": true}')),
                    (), HONEST)
        yield Fault("Q3-header-no-layer", put(layers("{}")), (tensor("l.0.w.weight_scale"),))

    @staticmethod
    def claims_of_old():
        def put(name, *stored):
            def spoil(file):
                file.tensors[name] = stored
            return spoil

        def move(name):
            def spoil(file):
                file.tensors[name] = file.tensors.pop(OLD_MARK)
            return spoil

        yield "input", put("l.0.w.scale_input", "F32", (7,), bytes(28)), OTHER_SOURCE
        yield "stray", put("l.1.w.scale_weight", "F32", (), bytes(4)), ALL
        yield "other-type", put(OLD_MARK, "F8_E5M2", (2,), bytes(2)), ALL
        for name in ("l.1.scaled_fp8", "l.0.w.x.scaled_fp8"):
            yield f"at-{name}", move(name), ALL
        for name in ("lscaled_fp8", "l.scaled_fp8.x"):      # which is no mark
            yield f"at-{name}", move(name), PLAIN
        for name in ("scaled_fp8", "l.0.scaled_fp8"):
            yield f"at-{name}", move(name), HONEST

    @staticmethod
    def notes_of_nothing(scheme):
        """What only says how old layers are stored is a tensor like others where it is of none."""
        names = ["l.9.scaled_fp8", "l.0.v.scale_input"]
        names += [] if scheme == "old-other" else ["scaled_fp8", "l.0.w.scale_input"]
        names += ["l.0.scaled_fp8"] if scheme == "old-other" else []    # another marks them all
        for name in names:
            def spoil(file, name=name):
                file.tensors[name] = ("F32", (3,), bytes(12))
            yield Fault(f"Q2-note-of-nothing-{name}", spoil, (tensor(name), words("not in the source")),
                        OTHER_SOURCE)

    def claims_of_schemes(self):
        for text in ("uint8:c0", "uint8:c0:sym", "int8:c0:asym", "int8:c0:narrow", "int8:c0:f16", "int8:t",
                     "int8:c1", "int8:g7", "int8:b5x7", "int4:c0"):
            yield Fault(f"Q6-scheme-{clean(text)}", word(0, text), (self.file.stem,))
        for text in ("F16", "BF16", "F64"):
            yield Fault(f"Q6-source-dtype-{text}", word(2, text),
                        (self.file.stem, words("not that of the source")), OTHER_SOURCE)
        for text in ("7x5", "5x7x1", "1x5x7", "5x6", "5x8", "4x7", "35x1", "5x9223372036854775807"):
            yield Fault(f"Q6-shape-{clean(text)[:12]}", word(3, text), (self.file.stem,))

    def claims_of_marks(self):
        def set_mark(raw):
            def spoil(file):
                file.tensors[file.parts["mark"]] = ("U8", (len(raw),), raw)
            return spoil

        def stray(file):
            file.tensors["l.1.w.comfy_quant"] = file.tensors[file.parts["mark"]]

        def config(**members):
            return json.dumps(members).encode()

        texts = {
            "fp8": config(format="float8_e4m3fn"), "case": MARK.upper(), "number": config(format=1),
            "null": config(format=None), "list": config(format=["int8_tensorwise"]),
            "none": b"{}", "array": b"[]", "string": b'"int8_tensorwise"', "empty": b"", "cut": MARK[:-1],
            "rest": MARK + b"{}", "nul": MARK + b"\0", "nul-in": MARK[:-2] + b'\\u0000"}',
            "twice": MARK[:-1] + b"," + MARK[1:], "other-key": config(form="int8_tensorwise"),
            "rotated": config(format="int8_tensorwise", convrot=True), "bom": b"\xef\xbb\xbf" + MARK,
            "latin": b'{"format":"int8_tensorwise\xff"}', "deep": b"[" * 4000, "long": MARK + b" " * 5000,
        }
        for name, raw in texts.items():
            yield Fault(f"Q3-mark-{name}", set_mark(raw),
                        ("l.0.w" if name == "fp8" else tensor("l.0.w.comfy_quant"),))
        yield Fault("Q3-mark-stray", stray, (tensor("l.1.w.comfy_quant"),))
