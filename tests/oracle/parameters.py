"""params_from_statistics, against the observers of PyTorch; the error bound against the errors that
fake_quantize makes of values inside of the statistics."""

import torch

from problem import Differs, Oracle, Problem, equal, show
from quantize import RANGES, WIDE, expected_parameters

AFFINE = ("asymmetric", "linear", "channel_wise", "block_wise")


def make(draw):
    code = draw.choice([*RANGES, *WIDE])
    fields = {"dtype": code, "narrow_range": code.startswith("int") and draw.chance(0.3),
              "scheme": draw.choice(["symmetric", "symmetric", *AFFINE, "logarithmic"])}
    if fields["scheme"] == "block_wise":
        fields["block_size"] = draw.between(1, 64)
    n, dtype = draw.between(1, 40), draw.choice([torch.float32, torch.float64])
    ends = torch.exp2(draw.uniform([2, n], -8, 8)) * torch.sign(draw.normal([2, n]))
    if fields["scheme"] == "logarithmic":
        ends = ends.abs()
    low, high = ends.min(0).values.to(dtype), ends.max(0).values.to(dtype)
    if fields["scheme"] != "logarithmic" and draw.chance(0.3):
        low[0] = high[0] = 0
    return Problem(fields, {"min": low, "max": high})


def logarithmic(low, high, q_min, q_max):
    """The observers' formula on logarithms, without widening the range to 0 and without a clamp."""
    a, b = (torch.log(x.double()).to(x.dtype) for x in (low, high))
    scale = torch.where(a == b, torch.ones_like(a), (b - a) / (q_max - q_min))
    return scale, (q_min - torch.round(a / scale)).to(torch.int64)


def check(problem, outputs):
    fields, (low, high) = problem.fields, (problem.inputs[name] for name in ("min", "max"))
    code, scheme = fields["dtype"], fields["scheme"]
    q_min, q_max = (RANGES | WIDE)[code]
    q_min += fields["narrow_range"]
    if scheme == "logarithmic":
        scale, zero = logarithmic(low, high, q_min, q_max)
    else:
        kind = "symmetric" if scheme == "symmetric" else "asymmetric"
        scale, zero = expected_parameters(low, high, code, kind, fields["narrow_range"], low.dtype)
    equal("scale", outputs["scale"], scale)
    equal("zero_point", outputs["zero_point"], zero.to(torch.int32))
    check_bound(problem, outputs, q_min, q_max)


def check_bound(problem, outputs, q_min, q_max):
    """No value inside of the statistics is further off than its bound."""
    low, high = (problem.inputs[name].unsqueeze(1) for name in ("min", "max"))
    scale, zero = (outputs[name].unsqueeze(1).to(low.dtype) for name in ("scale", "zero_point"))
    x = low + (high - low) * torch.linspace(0, 1, 101, dtype=low.dtype)
    x = torch.minimum(torch.maximum(x, low), high)
    log = problem.fields["scheme"] == "logarithmic"
    value = torch.log(x.double()).to(x.dtype) if log else x
    code = torch.round(value / scale) + zero
    back = scale * ((code if log else torch.clamp(code, q_min, q_max)) - zero)
    error = ((torch.exp(back.double()) if log else back.double()) - x.double()).abs()
    bound = outputs["error_bound"].unsqueeze(1)
    if bound.dtype != torch.float64:
        raise Differs(f"error_bound: {bound.dtype}")
    # The logarithmic bound is that of the formula alone: the logarithm's rounding comes on top.
    slack = 4 * torch.finfo(low.dtype).eps * x.double() * (1 + value.double().abs()) if log else 0
    bad = error > bound + slack
    if bad.any():
        raise Differs(show("error_bound", bad, bound.expand(error.shape), error))


ORACLES = {"params_from_statistics": Oracle(make, check)}
