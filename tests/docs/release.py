"""Runs examples/release.sh where it must pass and where it must stop."""

import json

from sandbox import Sandbox


def test(tools, results):
    sandbox = Sandbox(tools)
    sandbox.qplan("plan", "-o", "plan.json", "model.safetensors")
    sandbox.qplan("plan", "-o", "other.json", "--exclude", "lm_head*", "model.safetensors")
    other = sandbox.path / "other.json"
    other.write_text(other.read_text().replace("lm_head.weight", "head.weight"))

    def case(name, expected, *args, **env):
        code, out, err = sandbox.run("sh", "examples/release.sh", *args, **env)
        results.check(code == expected, f"release.sh: {name}",
                      f"expected exit {expected}, found {code}\n{out}{err}")

    def there(name):
        return (sandbox.path / name).exists()

    case("passes", 0, "model.safetensors", "plan.json", "good.safetensors", "good.json")
    report = json.loads((sandbox.path / "good.json").read_text())
    results.check(report["totals"]["proven"] and there("good.safetensors"),
                  "release.sh: a proven file and its report")

    case("a gate stops it", 1, "model.safetensors", "plan.json", "bad.safetensors", "bad.json",
         MIN_SQNR_DB="60")
    report = json.loads((sandbox.path / "bad.json").read_text())
    results.check(any(gate["failed"] for gate in report["gates"]) and not there("bad.safetensors"),
                  "release.sh: no file, but the report of a failed gate")

    case("a plan for another model", 3, "model.safetensors", "other.json", "x.safetensors",
         "x.json")
    case("no model", 4, "missing.safetensors", "plan.json", "x.safetensors", "x.json")
    case("a file is in the way", 4, "model.safetensors", "plan.json", "good.safetensors", "x.json")
    case("too few arguments", 2, "model.safetensors")
    results.check(not there("x.safetensors"), "release.sh: nothing is left of a failed run")
