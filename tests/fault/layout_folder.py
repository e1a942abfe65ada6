"""What layouts share whose checkpoints are folders: a config.json beside model.safetensors, and for
the source likewise. A scheme that is recorded is stored as qplan does it, another as other tools do.
"""

import copy
import dataclasses
import json
from dataclasses import dataclass

import layout_qplan
from bench import OUTPUT
from expect import words
from layout_qplan import ALL, File, Fault
from model import Scheme

CONFIG = "quantization_config"
PLAIN = {"inspect": 0, "verify": 1}     # nothing says any more that the file is quantized


@dataclass(frozen=True)
class Stored(Scheme):
    """A scheme, and who stores it: qplan, with a record, or another tool."""
    recorded: bool = True


def both(make, **schemes):
    """Each scheme as qplan writes it and as other tools do."""
    for name, how in schemes.items():
        name = name.replace("_", "-")
        yield name, make(**how)
        yield name + "-other", make(recorded=False, **how)


def pack_words(lines, bits):
    """Lines of unsigned codes: each a stream of bits in words of 32."""
    out = b""
    for line in lines:
        stream = sum(u << i * bits for i, u in enumerate(line))
        out += stream.to_bytes((len(line) * bits + 31) // 32 * 4, "little")
    return out


def transposed(raw, rows, cols):
    """Words of 32 bits, lines of a column each, as rows."""
    return b"".join(raw[(c * rows + r) * 4:][:4] for r in range(rows) for c in range(cols))


class FolderFile(File):
    """An honest folder and its source; faults change its tensors, its records or its config."""
    name, kept, stem = "l.0.w.weight", "l.0.w.bias", "l.0.w"
    old_output = f"{OUTPUT}/model.safetensors"

    def __init__(self, scheme, dtype="F32", dims=(5, 36)):
        super().__init__(dataclasses.replace(scheme, scale=self.scale_type(dtype)), dtype, dims)
        self.config = {"model_type": "llama", **self.described()}
        self.config_text = None         # config.json, where it is not self.config; False = none
        if not scheme.recorded:
            self.records, self.text = {}, False
            self.meta = {"format": "pt", "note": "kept"}

    @staticmethod
    def scale_type(dtype):
        return "F32" if dtype == "F64" else dtype

    def described(self):
        """The members of config.json that say how the tensors are quantized."""
        raise NotImplementedError

    def write(self, bench, path, source, cut=lambda raw: raw):
        bench.write(self.source_content(), f"{source}/model.safetensors")
        bench.write(b'{"model_type": "llama"}', f"{source}/config.json")
        text = json.dumps(self.config) if self.config_text is None else self.config_text
        if text is not False:
            bench.write(text.encode(), f"{path}/config.json")
        bench.write(cut(self.content().data), f"{path}/model.safetensors")


def at(config, path):
    """The object that holds the last key of a path, and that key."""
    *outer, last = path.split("/")
    for key in outer:
        config = config[key]
    return config, last


def set_config(path, value):
    def spoil(file):
        holder, key = at(file.config, path)
        holder[key] = value
    return spoil


def drop_config(path):
    def spoil(file):
        holder, key = at(file.config, path)
        del holder[key]
    return spoil


def edit_text(old, new):
    """Another text of config.json: what JSON objects of Python cannot hold."""
    def spoil(file):
        text = json.dumps(file.config)
        assert text.count(old) == 1, old
        file.config_text = text.replace(old, new)
    return spoil


def nest(file):
    """A module in the module, whose parts are before those of the outer one, and it behind."""
    for name in list(file.parts.values()):
        file.tensors[name.replace(file.stem, file.stem + ".t")] = file.tensors[name]
    inner = file.name.replace(file.stem, file.stem + ".t")
    file.source[inner] = file.source[file.name]
    if file.records:
        file.records[inner] = file.records[file.name]


def rename_config(old, new):
    def spoil(file):
        holder, key = at(file.config, old)
        holder[new] = holder.pop(key)
    return spoil


DEEP = "[" * 100_000
TEXTS_OF_NO_CONFIG = {
    "empty": "", "blank": " \n", "cut": "{", "array": "[]", "string": '"x"', "number": "1",
    "null": "null", "rest": "{} {}", "comma": '{"a":1,}', "comment": "{}//", "nan": '{"a":NaN}',
    "bom": "\ufeff{}", "nul": '{"a":"\\u0000"}', "raw-nul": "{}\0", "quotes": "{'a':1}", "deep": DEEP,
    "deep-member": '{"a":' + DEEP, "surrogate": '{"a":"\\ud800"}', "hex": '{"a":0x10}',
    "plus": '{"a":+1}', "control": '{"a":"\n"}',
}


def bad_texts():
    """Texts that are no config.json."""
    for name, text in TEXTS_OF_NO_CONFIG.items():
        yield Fault(f"Q17-config-{name}", set_text(text), ("config.json", words("byte|object")))


def set_text(text):
    def spoil(file):
        file.config_text = text
    return spoil


class Layout(layout_qplan.Layout):
    """A layout of folders. `spoiled` are the schemes of files whose config.json is wrong."""
    unrecorded = (), PLAIN
    config = CONFIG                     # the member that counts
    in_config = words("config.json|l.0.w")

    @staticmethod
    def unrecord(file):
        file.records, file.text = {}, False
        file.meta = {"format": "pt", "note": "kept"}
        for key in file.described():
            del file.config[key]

    @staticmethod
    def dtypes(scheme):
        """Without a record nothing says that weights were F64 before they got scales of F32."""
        return ("F32", "F16", "BF16") if scheme.endswith("-other") else ("F32", "F16", "BF16", "F64")

    @staticmethod
    def bad_zeros(scheme):
        """Every code of the stored width is one of an asymmetric scheme."""
        low, high = scheme.codes()
        middle = 0 if scheme.signed else (high + 1) // 2
        return sorted({low, middle - 1, middle + 1, high}) if scheme.symmetric and not scheme.values else ()

    # --- every claim of records and config.json, wrong ---

    def claims(self):
        """One reader reads the records of all layouts: their text is spoiled in two of them."""
        yield from self.claims_of_schemes()
        for scheme in self.spoiled:
            s = self.schemes[scheme]
            for fault in (*self.claims_of_config(s), *self.claims_of_keys(s)):
                yield self.start_as(scheme, fault)
        yield from self.claims_of_both()
        yield from self.claims_of_layouts()
        yield from bad_texts()

    def claims_of_layouts(self):
        """What speaks of another layout besides, and nothing that speaks of this one."""
        def mark(file):
            file.tensors["lm_head.comfy_quant"] = ("F32", (2,), bytes(8))

        def claim(file):
            file.meta["_quantization_metadata"] = '{"format_version":"1.0","layers":{}}'

        two = ("config.json", words("two layouts"), self.name)
        yield Fault("Q17-layout-mark", mark, two)
        yield Fault("Q17-layout-claim", claim, two)
        if self.name != "mlx":
            yield Fault("Q17-layout-mlx", set_config("quantization", {"group_size": 64, "bits": 4}), two)
        if self.honest().records:
            yield Fault("Q17-config-deleted", set_text(False), (words("config.json is missing"),))

    def wrong_values(self, wrong):
        """Faults of members of config.json, from a list of values for each path."""
        for path, values in wrong.items():
            for i, value in enumerate(values):
                yield Fault(f"Q17-{path.rpartition('/')[2]}-{i}",
                            set_config(f"{self.config}/{path}", value), (self.in_config,))

    def claims_of_keys(self, s):
        """The member that says how tensors are quantized is another value, or there twice."""
        for i, value in enumerate((None, 1, "x", [], {})):
            yield self.unknown(f"Q17-value-{i}", set_config(self.config, value), s)
        for name, key in {"": self.config, "-escaped": self.config.replace("_", "\\u005f")}.items():
            yield Fault(f"Q17-twice{name}", edit_text('{"model_type"', f'{{"{key}": {{}}, "model_type"'),
                        ("config.json", self.config, words("byte")))

    def claims_of_method(self, s, other):
        """The method is another one: of no layout, or of one that the tensors do not have."""
        for i, value in enumerate(("no-such-method", "", self.method.upper(), 1, None, [])):
            yield self.unknown(f"Q17-method-{i}", set_config(f"{CONFIG}/quant_method", value), s)
        yield Fault("Q17-method-of-another", set_config(f"{CONFIG}/quant_method", other),
                    (self.in_config,))
        yield self.without_method(drop_config(f"{CONFIG}/quant_method"), s)

    def without_method(self, gone, s):
        return self.unknown("Q17-method-gone", gone, s)

    @staticmethod
    def unknown(id, spoil, scheme):
        """A config that names no layout: records contradict it; without them the file is plain."""
        return Fault(id, spoil, ("config.json",) if scheme.recorded else (),
                     ALL if scheme.recorded else PLAIN)

    def claims_of_both(self):
        """What records say and config.json does not, and the reverse."""
        def more(file):
            other = copy.deepcopy(file)
            for name in file.parts.values():
                file.tensors[name.replace("l.0", "l.1")] = other.tensors[name]
            for name in (file.name, file.kept):
                file.source[name.replace("l.0", "l.1")] = file.source[name]
            file.tensors["l.1.w.bias"] = file.tensors[file.kept]

        def unrecord(file):
            file.records = {}

        def no_config(file):
            for key in file.described():
                del file.config[key]

        yield Fault("Q3-config-gone", no_config, (words("config.json"),))
        yield Fault("Q3-records-empty", unrecord, (f"'{self.file.name}'", words("not recorded")))
        yield Fault("Q3-another-module", more, ("'l.1.w.weight'", words("not recorded")))
