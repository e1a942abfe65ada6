"""Compares what the manual pages list with what there is: options, functions, JSON keys."""

import json
import math
import re
import shutil
import struct

import pages
from sandbox import ROOT, Sandbox

MAN = ROOT / "man"
GOLDEN = ROOT / "testdata" / "qplan"


def difference(documented, real):
    """What two sets do not share, for people; "" if nothing."""
    lines = [f"  not documented: {x}" for x in sorted(real - documented)]
    return "\n".join(lines + [f"  not there: {x}" for x in sorted(documented - real)])


def same(results, name, documented, real):
    why = difference(set(documented), set(real))
    results.check(not why and real, name, why or "nothing found")


# ---- Commands, options and metrics ---------------------------------------------------------------


def commands(sandbox):
    listing = sandbox.qplan("help").split("Commands:\n")[1].split("\n\n")[0]
    return [line.split()[0] for line in listing.splitlines()]


def check_options(sandbox, results):
    names = commands(sandbox)
    overview = (MAN / "qplan.1").read_text()
    same(results, "qplan.1: commands", re.findall(r"^\.It Cm ([a-z]+)$", overview.split(".Ss")[0],
                                                  re.M), names)
    for command in names:
        if command == "help":
            continue
        page = MAN / f"qplan-{command}.1"
        items = "\n".join(re.findall(r"^\.It .*", page.read_text(), re.M))
        found = re.findall(r"^  (?:-(\w), |    )--([\w-]+)", sandbox.qplan("help", command), re.M)
        real = {"--" + name for _, name in found} | {"-" + letter for letter, _ in found if letter}
        documented = ["-" + option for option in re.findall(r"\bFl (-?[\w-]+)", items)]
        same(results, f"{page.name}: options", documented, real)


def check_metrics(sandbox, results):
    _, _, message = sandbox.run("qplan", "inspect", "--fail-if", "x<1", "model.safetensors")
    real = re.search(r"expected one of (.*)", message)[1].split(", ")
    gates = (MAN / "qplan.1").read_text().split(".Ss Gates")[1].split(".Ss")[0]
    same(results, "qplan.1: metrics", re.findall(r"^\.It Cm (\w+)$", gates, re.M), real)


# ---- Functions -----------------------------------------------------------------------------------


def header_functions():
    """The prototypes of the public header, each on one line."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "lib" / "qplan.h").read_text(), flags=re.S)
    text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.M).replace('extern "C" {', "")
    for statement in re.sub(r"\{[^{}]*\}", "", text).split(";"):
        match = re.fullmatch(r"(.*?) ?\b(qplan_\w+)\((.*)\)", " ".join(statement.split()))
        if match and not match[0].startswith("typedef"):
            yield f"{match[1]} {match[2]}({match[3]})"


def page_functions(synopsis):
    pattern = r'^\.Ft "?(.*?)"?\n\.Fo (\w+)\n((?:\.Fa .*\n)*)\.Fc$'
    for result, name, args in re.findall(pattern, synopsis, re.M):
        yield f"{result} {name}({', '.join(re.findall(r'Fa .(.*).$', args, re.M))})"


def check_functions(results):
    page = (MAN / "libqplan.3").read_text()
    synopsis, description = page.split(".Sh DESCRIPTION")
    same(results, "libqplan.3: prototypes", page_functions(synopsis), set(header_functions()))
    real = {re.search(r"(\w+)\(", prototype)[1] for prototype in header_functions()}
    same(results, "libqplan.3: functions", re.findall(r"^\.Fn (\w+)", description, re.M), real)
    header = (ROOT / "lib" / "qplan.h").read_text()
    same(results, "libqplan.3: statuses and advices", re.findall(r"^\.It Dv (\w+)", description, re.M),
         set(re.findall(r"^    (QPLAN_(?:OK|ERR_\w+|ADVICE_\w+))", header, re.M)))


# ---- JSON documents ------------------------------------------------------------------------------


def page_keys(name):
    """{path: types} in the order of the page: "tensors[].shape" -> {"array of integers"}."""
    items = re.findall(r"^\.It Va (\S+) Pq (.*)$", (MAN / name).read_text(), re.M)
    return {path: set(types.split(" or ")) for path, types in items}


def types_of(value):
    """Every name that the type of a value may have on a page."""
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, list):
        whole = all(isinstance(x, int) for x in value)
        return {"array", "array of integers"} if whole else {"array"}
    return {{str: "string", float: "number", dict: "object", type(None): "null"}[type(value)]}


def walk(value, path=""):
    """(path, value) of everything in a document; for objects also its keys, in order."""
    yield path, value
    if isinstance(value, dict):
        for key, member in value.items():
            yield from walk(member, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and not (value and isinstance(value[0], int)):
        for member in value:
            yield from walk(member, path + "[]")


def check_document(results, page, documents):
    keys = page_keys(page)
    faults, seen = set(), set()
    for path, value in (item for document in documents for item in walk(document)):
        if path and not path.endswith("[]"):
            seen.add(path)
            if path in keys and not keys[path] & types_of(value):
                faults.add(f"  {path}: documented {sorted(keys[path])}, found {value!r}")
        if isinstance(value, dict):
            prefix = path + "." if path else ""
            real = [prefix + key for key in value]
            if real != [key for key in keys if key in real]:
                faults.add(f"  keys of {path or 'the document'}: another order than on the page")
    same(results, f"{page}: keys", keys, seen)
    results.check(not faults, f"{page}: types and order", "\n".join(sorted(faults)))


def sources():
    """The checkpoints whose documents are looked at."""
    yield "model.safetensors"
    for name in ("mixed", "edge-f32", "nonfinite-f32", "no-tensors", "odd-bf16"):
        yield str(GOLDEN / f"{name}.in.safetensors")


def write_ones(path, name, shape):
    """A safetensors file with one tensor, all ones: importance, or a Hessian of rank 1."""
    data = struct.pack("<f", 1) * math.prod(shape)
    header = json.dumps({name: {"dtype": "F32", "shape": shape, "data_offsets": [0, len(data)]}})
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + data)


def check_documents(sandbox, results):
    plans, reports = [], []

    def take(documents, *args):
        code, out, err = sandbox.run("qplan", *args)
        if code not in (0, 1):
            raise RuntimeError(f"qplan {' '.join(args)}: exit {code}\n{err}")
        documents.append(json.loads(out))

    for source in sources():
        saturate = ["--nonfinite", "saturate", "-q", "--force", "-o", "q.safetensors"]
        take(plans, "plan", source)
        take(reports, "quantize", "--json", *saturate, source)
        take(reports, "quantize", "--json", "--verify", *saturate, source)
        take(reports, "inspect", "--json", source)
        take(reports, "inspect", "--json", "q.safetensors")
        take(reports, "inspect", "--json", "--against", source, "q.safetensors")
        take(reports, "verify", "--json", "--fail-if", "sqnr_db<60", "--fail-if", "bytes>1",
             "q.safetensors", source)
        take(reports, "dequantize", "--json", "--force", "-o", "back", "q.safetensors")
    take(plans, "plan", "--exclude", "lm_head*", "model.safetensors")
    take(plans, "plan", "--zero-point", "asymmetric", "--include", "lm_head*", "model.safetensors")
    take(reports, "quantize", "--json", "--exclude", "*", "-o", "copy", "model.safetensors")
    take(plans, "plan", "--calibrate", "mse", "--positive-scales", "model.safetensors")
    write_ones(sandbox.path / "importance", "lm_head.weight", [128])
    write_ones(sandbox.path / "hessian", "model.embed_tokens.weight.hessian", [128, 128])
    take(plans, "plan", "--importance", "importance", "--hessian", "hessian", "model.safetensors")
    folder = sandbox.path / "folder"
    folder.mkdir()
    shutil.copy(sandbox.path / "model.safetensors", folder)
    (folder / "config.json").write_text('{"model_type": "llama4_text"}')
    reference = ["--format", "compressed-tensors", "--arithmetic", "reference", "folder"]
    take(plans, "plan", *reference)
    take(plans, "plan", "--preset", "w8a8", "--max-shard-size", "200K", "--copy", "*.json",
         "--experts", "split", "folder")
    take(reports, "quantize", "--json", "-q", "-o", "made", *reference)
    check_document(results, "qplan-plan.5", plans)
    check_document(results, "qplan-report.5", reports)


def check_version(sandbox, results):
    version = sandbox.qplan("--version").split()[1]
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    results.check(version == newest, "CHANGELOG.md: version", f"  {newest}, the program: {version}")


def test(tools, results):
    sandbox = Sandbox(tools)
    check_options(sandbox, results)
    check_metrics(sandbox, results)
    check_functions(results)
    check_documents(sandbox, results)
    check_version(sandbox, results)
    unnamed = [block for path in MAN.glob("*.[135]") for block in pages.blocks_of(path)
               if not block.steps and not block.file]
    results.check(not unnamed, "EXAMPLES: displays that are neither commands nor a file",
                  "\n".join(block.text for block in unnamed))
