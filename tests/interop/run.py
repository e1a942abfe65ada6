#!/usr/bin/env python3
"""What qplan writes, loaded by a real engine, and what real tools write, read by qplan.

    run.py --qplan PROGRAM [-v] [--only TEXT] ENGINE

ENGINE is the name of an engine_*.py; it runs in the virtual environment that scripts/test.sh
--interop (mlx_core: --oracle) made for it below build/. For each row of layouts_table.py, on tiny
models of model_table.py:

 - census: the folder has exactly the stored tensors of its layout;
 - an engine with `decode`: the library's values are what `qplan dequantize` gives, bit for bit;
 - an engine with `logits`: those of the folder and of the dequantized folder are within `distance`;
   what is in CANNOT must fail, so that the list stays true;
 - an engine with TOOLS: `qplan dequantize` of folders that a tool made gives the library's values.

Exit 77, with the reason, where the environment or a package is missing, or every format is awaited.
"""

import argparse
import fnmatch
import importlib
import os
import pathlib
import re
import shutil
import sys
import tempfile
import warnings

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"
VENVS = {"vllm": "interop-vllm-venv", "mlx_core": "mlx-venv"}
ENGINES = ("compressed_tensors", "gptqmodel", "mlx", "mlx_core", "bitsandbytes", "finegrained_fp8",
           "modelopt", "comfyui", "transformers", "gpt_oss", "vllm")
FILES = {"comfyui"}  # layouts whose output is a file


def enter(engine):
    """Starts this program again in the environment of the engine, with a home of its own."""
    venv = BUILD / VENVS.get(engine, "interop-venv")
    if pathlib.Path(sys.prefix) == venv:
        return
    if not (venv / "bin" / "python3").exists():
        how = "--oracle" if engine == "mlx_core" else "--interop"
        print(f"skipped: no build/{venv.name}; scripts/test.sh {how} makes it")
        sys.exit(77)
    home = BUILD / "interop-home"  # libraries keep what they compile there
    home.mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1",
           "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "TOKENIZERS_PARALLELISM": "false",
           "OMP_NUM_THREADS": "1",  # of tiny tensors threads only wait for each other
           "PYTHONPATH": str(HERE.parent / "golden")}
    python = str(venv / "bin" / "python3")
    os.execve(python, [python, *sys.argv], env)


FAMILIES = ((r"\.experts\..*", ".experts"), (r"\b[qkv]_proj", "qkv"),
            (r"\b(gate|up)_proj", "gate_up"), (r"\b(q_a_proj|kv_a_proj_with_mqa)", "qkv_a"),
            (r"\bself\.(query|key|value)", "qkv"))


class Tester:
    def __init__(self, engine, program, folder, verbose):
        self.engine, self.qplan, self.folder, self.verbose = engine, program, folder, verbose
        self.count = 0

    def fresh(self, suffix=""):
        self.count += 1
        return self.folder / f"{self.count}{suffix}"

    def source(self, model):
        folder = self.folder / model.name
        if not folder.exists():
            made = self.fresh() if model.joins else folder
            self.engine_make(model, made)
            if model.joins:
                self.join(made, folder, transposed=False)
        return folder

    def engine_make(self, model, folder):
        """By the engine, where its environment has no transformers."""
        make = getattr(self.engine, "make_model", None) or importlib.import_module("models").make
        make(model, folder)

    def operand(self, row, model):
        """What qplan is to quantize: a folder, or its one file for a layout of files."""
        folder = self.source(model)
        return folder / "model.safetensors" if row.format in FILES else folder

    def dequantized(self, made):
        back = self.fresh(made.suffix)
        # A decoder's own values, of which the model's type may lose some.
        dtype = ("--dtype", self.engine.DTYPE) if getattr(self.engine, "DTYPE", None) else ()
        self.qplan.run("dequantize", "-q", *dtype, "-o", back, made)
        return back

    def check_row(self, row, model):
        """One layout and scheme on one model; returns what was seen."""
        source = self.operand(row, model)
        made = self.fresh(".safetensors" if source.is_file() else "")
        reason = layouts_table.refused(row, model)
        if reason:
            done = self.qplan.call("quantize", *row.arguments, "-q", "-o", made, source)
            if done.returncode != 3:
                raise Failure(f"exit {done.returncode}, expected a refusal: {reason}")
            return f"refused: {reason}"
        self.qplan.run("quantize", *row.arguments, "-q", "-o", made, source)
        plain = arranged(row.format, model, stored.read(source))
        taken = fitting(row, {name: tensor.shape for name, tensor in plain.items()
                              if model.quantizes(row.format, name)})
        wrong = census.offences(row, plain, made, lambda name: name in taken)
        if wrong:
            raise Failure(f"census: {'; '.join(wrong[:5])}")
        seen = ["census"]
        back = self.dequantized(made)
        if hasattr(self.engine, "decode"):
            self.check_values(model, made, back)
            seen.append("values equal")
        if hasattr(self.engine, "logits"):
            seen.append(self.check_logits(row, model, made, back))
        return ", ".join(seen)

    def check_values(self, model, made, back):
        same("values", stack_experts(stored.read(back)),
             stack_experts(self.engine.decode(made, model, self.fresh())), self.engine.__name__[7:])

    def check_logits(self, row, model, made, back):
        reason = limit(self.engine, row, model)
        if reason and not getattr(self.engine, "TRIES_LIMITS", True):
            return f"not tried: {reason}"
        try:
            found = self.engine.logits(made, model, row)
        except Exception as problem:
            if reason:
                return f"fails as known: {reason}"
            raise Failure(f"does not load: {type(problem).__name__}: {str(problem)[:400]}")
        wanted = self.engine.logits(self.joined(back) if model.fused else back, model, None)
        error = float((found - wanted).norm() / wanted.norm())
        if reason and not error <= self.engine.distance(row, model):
            return f"fails as known: {reason}"
        if reason:
            raise Failure(f"works now, take it off CANNOT: {reason}")
        if not error <= self.engine.distance(row, model):  # not a number is a failure, too
            raise Failure(f"logits differ by {error:.4f}")
        return f"logits within {error:.4f}" if error else "logits equal"

    def joined(self, folder):
        """A plain folder with the experts of a layer in one tensor, as its model wants them."""
        out = self.fresh()
        self.join(folder, out, transposed=True)
        return out

    @staticmethod
    def join(folder, out, transposed):
        out.mkdir()
        shutil.copy(folder / "config.json", out)
        stored.write(out / "model.safetensors", join_experts(stored.read(folder), transposed))

    def check_tool(self, make, model):
        """A folder made by a real tool, read by qplan."""
        made = self.fresh(".safetensors" if FILES & set(self.engine.FORMATS) else "")
        make(self.source(model), model, made)
        self.check_values(model, made, self.dequantized(made))
        return "values equal"

    def jobs(self):
        """Of each case the name, what qplan must know, and a function that raises Failure."""
        for row, model in layouts_table.cases(self.engine):
            needs = {row.format, *row.flags}
            yield f"{row}, {model.name}", needs, lambda r=row, m=model: self.check_row(r, m)
        for tool, (make, names) in self.engine.TOOLS.items():
            for name in names:
                yield (f"{tool}, {name}", set(self.engine.FORMATS),
                       lambda k=make, m=MODELS[name]: self.check_tool(k, m))

    def run(self, only):
        passed, failed, awaited = 0, 0, set()
        for name, needs, job in self.jobs():
            if only not in name:
                continue
            if needs & AWAITED:
                awaited |= needs & AWAITED
                continue
            try:
                seen = job()
                passed += 1
                if self.verbose:
                    print(f"{name}: {seen}", flush=True)
            except Exception as problem:
                failed += 1
                kind = "" if isinstance(problem, Failure) else type(problem).__name__ + ": "
                print(f"FAILED {name}: {kind}{problem}", flush=True)
        print(f"{passed} passed, {failed} failed; awaited: {', '.join(sorted(awaited)) or 'none'}")
        if awaited and not passed and not failed:
            return 77
        return 1 if failed or not passed else 0


def limit(engine, row, model):
    """Why the engine cannot load this, as far as is known, or None."""
    return next((reason for pattern, name, reason in getattr(engine, "CANNOT", ())
                 if fnmatch.fnmatch(str(row), pattern) and fnmatch.fnmatch(model.name, name)), None)


def fitting(row, shapes):
    """The tensors of families that the layout can hold whole: an engine reads one as one layer."""
    kept = {family(name) for name, shape in shapes.items() if not row.fits(shape)}
    return {name for name in shapes if family(name) not in kept}


def family(name):
    """The same name for all tensors that an engine joins."""
    for members, whole in FAMILIES:
        name = re.sub(members, whole, name)
    return name


def arranged(format_, model, tensors):
    """The tensors of a model as a layout names them: experts split or, for MLX, not."""
    if format_ == "mlx" and model.fused:
        return divide_experts(tensors)
    if model.fused or model.joins:
        tensors = split_experts(tensors, transposed=model.fused)
    return stack_experts(tensors) if format_ == "mlx" else tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--qplan", type=pathlib.Path, required=True)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--only", default="", help="only cases whose name has this text")
    parser.add_argument("engine", choices=ENGINES)
    args = parser.parse_args()
    try:
        engine = importlib.import_module(f"engine_{args.engine}")
    except ImportError as problem:
        print(f"skipped: {problem}")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        tester = Tester(engine, Program(args.qplan.resolve()), pathlib.Path(folder), args.verbose)
        return tester.run(args.only)


if __name__ == "__main__":
    enter(sys.argv[-1])
    warnings.simplefilter("ignore")
    import census
    import layouts_table
    import stored
    from experts import divide_experts, join_experts, split_experts, stack_experts
    from layouts import AWAITED, Failure, Program, same
    from model_table import MODELS
    sys.exit(main())
