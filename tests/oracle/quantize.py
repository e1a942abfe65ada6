"""The quantize family, at five granularities.

PyTorch has no operator that divides by the scale, so its codes are those of fake_quantize on one
channel per element, which forms rne(x * (1 / s)) where qplan forms rne(x / s). The two differ near
half steps. Its conversion to int64 also makes q_min of everything beyond 2^63. A difference between
the outputs must be of one of these kinds, and both sides must be what their formula says.
"""

import functools
import math

import torch

from problem import (FLOATS, Differs, Oracle, Problem, equal, half_step, rounded_once, same_kind,
                     show, unequal)

GRANULARITIES = ("per_tensor", "per_channel", "per_group", "per_token", "per_block")
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}
WIDE = {"int16": (-32768, 32767), "uint16": (0, 65535)}  # of params_from_statistics


# ---- Granularities -------------------------------------------------------------------------------


def draw_granularity(draw, granularity):
    """Fields and a shape of data."""
    least = {"per_tensor": 0, "per_block": 2}.get(granularity, 1)
    shape = draw.shape(draw.between(least, 4))
    rank, fields = len(shape), {}
    while math.prod(shape) > 20000:
        shape[draw.between(0, rank - 1)] = draw.between(1, 4)
    if granularity == "per_channel":
        fields["axis"] = draw.between(-rank, rank - 1)
    elif granularity == "per_group":
        fields["axis"] = draw.between(-rank, rank - 1)
        fields["group_size"] = draw_part(draw, shape[fields["axis"]])
        if shape[fields["axis"]] % fields["group_size"]:
            fields["ragged"] = True
    elif granularity == "per_block":
        fields["block_rows"], fields["block_cols"] = (draw_part(draw, n) for n in shape[-2:])
        if shape[-2] % fields["block_rows"] or shape[-1] % fields["block_cols"]:
            fields["ragged"] = True
    return fields, shape


def draw_part(draw, extent):
    """A size of groups: one, all, a divisor, or one that need not divide."""
    divisors = [n for n in range(1, extent + 1) if extent % n == 0] or [1]
    return draw.choice([1, max(extent, 1), draw.choice(divisors), draw.between(1, extent + 3)])


def sets_of(granularity, fields, shape):
    """The shape of scales, and the flat index of its scale for each element."""
    sets, at = list(shape), []
    if granularity == "per_tensor":
        return [1], torch.zeros(shape, dtype=torch.int64)
    if granularity == "per_channel":
        view = [1] * len(shape)
        view[fields["axis"]] = shape[fields["axis"]]
        return [shape[fields["axis"]]], torch.arange(view[fields["axis"]]).view(view).expand(shape)
    if granularity == "per_token":
        sets[-1] = 1
        at = [(-1, shape[-1])]
    elif granularity == "per_group":
        at = [(fields["axis"], fields["group_size"])]
    else:
        at = [(-2, fields["block_rows"]), (-1, fields["block_cols"])]
    if granularity != "per_token":
        for axis, size in at:
            sets[axis] = -(-shape[axis] // size)
    index = torch.arange(math.prod(sets)).view(sets)
    for axis, size in at:
        index = index.index_select(axis, torch.arange(shape[axis]) // max(size, 1))
    return (sets[:-1] or [1]) if granularity == "per_token" else sets, index


# ---- Problems ------------------------------------------------------------------------------------


def draw_scale(draw, shape, data):
    """Scales that are exact in f32, which is all that PyTorch takes."""
    dtype = draw.choice([torch.float32] * 3 + [torch.float16, torch.bfloat16] +
                        [torch.float64] * (data == torch.float64))
    return torch.exp2(draw.uniform(shape, -5, 3)).float().to(dtype)


def draw_zero(draw, shape, q_min, q_max):
    """Zero points of the range, or None."""
    dtype = draw.choice([torch.int32, torch.int32, torch.int8, torch.uint8, None])
    if dtype is None:
        return None if q_min <= 0 <= q_max else draw.integers(shape, q_min, q_max, torch.int32)
    info = torch.iinfo(dtype)
    low, high = max(q_min, info.min), min(q_max, info.max)
    if low > high:
        low, high, dtype = q_min, q_max, torch.int32
    return draw.integers(shape, low, high, dtype)


def draw_data(draw, scale, q_min, q_max, dtype):
    """Data around and beyond the range, with half steps, their neighbours, and huge values."""
    shape, span = scale.shape, q_max - q_min
    steps = torch.floor(draw.uniform(shape, -span - 20, span + 20))
    kind = draw.uniform(shape)
    inside = torch.where(kind < 0.5, draw.uniform(shape, -0.5, 0.5), torch.tensor(0.5).double())
    x = ((steps + inside) * scale.double()).to(dtype)
    up = torch.nextafter(x.float(), x.float() * 2).to(dtype)
    x = torch.where(kind > 0.85, up, x)
    return torch.where(kind > 0.995, x * torch.tensor(2.0 ** 90).to(dtype), x) \
        if dtype in (torch.float32, torch.float64) else x


def draw_fp(draw):
    return draw.choice(FLOATS)


def draw_range(draw):
    """q_min and q_max of an operator that has no code dtype, as fields and as numbers."""
    if draw.chance(0.3):
        return {}, (-128, 127)
    low, high = draw.choice([*RANGES.values(), (-127, 127), (-3, -1), (5, 9), (0, 0),
                             (-32768, 32767), (-(1 << 23), 1 << 23)])
    return {"q_min": low, "q_max": high}, (low, high)


class Elements:
    """A problem of the family, element by element: data, scale and zero point in working precision,
    and the codes of both formulas."""

    def __init__(self, problem, granularity, data, bounds):
        inputs = problem.inputs
        x = inputs[data]
        self.dtype = x.dtype
        self.work = torch.float64 if x.dtype == torch.float64 else torch.float32
        _, self.sets = sets_of(granularity, problem.fields, list(x.shape))
        self.scale = inputs["scale"].reshape(-1)[self.sets].to(self.work)
        self.zero = zeros(inputs.get("zero_point"), self.sets, bounds)
        self.x, self.q_min, self.q_max = x.to(self.work), *bounds
        # 1 / s is f32 in PyTorch, whatever the data.
        self.product = self.x * (1 / self.scale.float()).to(self.work)
        self.quotient_steps = torch.round(self.x / self.scale)
        self.product_steps = torch.round(self.product)

    def clamp(self, steps):
        low, high = self.q_min - self.zero, self.q_max - self.zero
        inside = torch.where(torch.isnan(steps), torch.zeros_like(steps), steps)
        return torch.minimum(torch.maximum(inside, low.to(self.work)), high.to(self.work)) \
            .to(torch.int64) + self.zero

    def codes(self):
        return self.clamp(self.quotient_steps)

    def torch_codes(self):
        beyond = self.product.abs() >= 2.0 ** 63
        return torch.where(beyond, torch.tensor(self.q_min), self.clamp(self.product_steps))

    def inside(self, steps):
        """The mask of the gradient; false for NaN."""
        return (steps >= self.q_min - self.zero) & (steps <= self.q_max - self.zero)

    def fake(self, codes):
        return (self.scale * (codes - self.zero).to(self.work)).to(self.dtype)


def zeros(stored, sets, bounds):
    if stored is None:
        return torch.zeros(sets.shape, dtype=torch.int64)
    flat = stored.reshape(-1)[sets]
    if flat.is_floating_point():
        return torch.clamp(torch.round(flat.double()), *bounds).to(torch.int64)
    return flat.to(torch.int64)


def torch_fake(e, gradient=None):
    """fake_quantize on one channel per element: the values, or the gradient of the data."""
    if e.x.numel() == 0:
        return e.x if gradient is None else gradient
    x = e.x.reshape(-1).clone().requires_grad_(gradient is not None)
    y = torch.fake_quantize_per_channel_affine(x, e.scale.reshape(-1).float(),
                                               e.zero.reshape(-1).to(torch.int32), 0, e.q_min,
                                               e.q_max)
    if gradient is not None:
        y.backward(gradient.to(e.work).reshape(-1))
        y = x.grad
    return y.reshape(e.x.shape)


def explained(name, got, want, ours, theirs):
    """Equal, or both sides are what their formulas say. The number of differences."""
    same_kind(name, got, want)
    bad = unequal(got, want)
    for who, found, formula in (("qplan", got, ours), ("torch", want, theirs)):
        wrong = bad & unequal(found, formula)
        if wrong.any():
            raise Differs(f"{show(name, bad, got, want)}; {who} is not its formula, "
                          f"{show('first', wrong, found, formula)}")
    return int(bad.sum())


# ---- Quantize and fake quantize ------------------------------------------------------------------


def make_forward(granularity, has_codes, draw):
    fields, shape = draw_granularity(draw, granularity)
    if has_codes:
        code = draw.choice(list(RANGES))
        fields["output_dtype"], (low, high) = code, RANGES[code]
        if draw.chance(0.3):
            low, high = sorted((draw.between(low, high), draw.between(low, high)))
            fields |= {"q_min": low, "q_max": high}
    else:
        more, (low, high) = draw_range(draw)
        fields |= more
    return Problem(fields, draw_inputs(draw, granularity, fields, shape, (low, high)))


def draw_inputs(draw, granularity, fields, shape, bounds):
    dtype = draw_fp(draw)
    sets, index = sets_of(granularity, fields, shape)
    scale = draw_scale(draw, sets, dtype)
    inputs = {"input": draw_data(draw, scale.reshape(-1)[index], *bounds, dtype), "scale": scale}
    finite = torch.isfinite(inputs["input"])
    inputs["input"] = torch.where(finite, inputs["input"], torch.ones_like(inputs["input"]))
    zero = draw_zero(draw, sets, *bounds)
    return inputs if zero is None else inputs | {"zero_point": zero}


def bounds_of(fields, code=None):
    low, high = RANGES[code or "int8"]
    return fields.get("q_min", low), fields.get("q_max", high)


def unpacked(codes, code, shape):
    """Codes as numbers, whatever their dtype."""
    if code in ("int8", "uint8"):
        return codes.to(torch.int64)
    both = torch.stack([codes & 15, codes >> 4], -1).to(torch.int64)
    both = both.flatten(-2) if shape else both[0]
    if shape and shape[-1] % 2 and both.numel() and both[..., -1].any():
        raise Differs("output: the spare half of the last byte of a row is not 0")
    both = both[..., :shape[-1]] if shape else both
    return (both ^ 8) - 8 if code == "int4" else both


def check_codes(e, codes, code):
    """The codes of an output against fake_quantize."""
    stored = torch.int8 if code == "int8" else torch.uint8
    if codes.dtype != stored:
        raise Differs(f"output: {codes.dtype}, expected {stored}")
    got = unpacked(codes, code, list(e.x.shape))
    want = torch.round(torch_fake(e).double() / e.scale.double()).to(torch.int64) + e.zero
    return explained("output", got, want, e.codes(), e.torch_codes())


def check_quantize(granularity, problem, outputs):
    code = problem.fields["output_dtype"]
    e = Elements(problem, granularity, "input", bounds_of(problem.fields, code))
    return check_codes(e, outputs["output"], code)


def check_fake(granularity, problem, outputs):
    e = Elements(problem, granularity, "input", bounds_of(problem.fields))
    return explained("output", outputs["output"], torch_fake(e).to(e.dtype), e.fake(e.codes()),
                     e.fake(e.torch_codes()))


# ---- Their gradients -----------------------------------------------------------------------------


def make_backward(granularity, draw):
    problem = make_forward(granularity, False, draw)
    x = problem.inputs["input"]
    odd = draw.uniform(x.shape)  # gradients are defined everywhere, and 0 there
    for value, place in ((float("nan"), 0.99), (float("inf"), 0.98), (-float("inf"), 0.97)):
        x = torch.where((odd > place) & (odd < place + 0.01), torch.tensor(value).to(x.dtype), x)
    return Problem(problem.fields, {"dout": draw.normal(x.shape, x.dtype), **problem.inputs,
                                    "input": x})


def check_masked(divide, granularity, problem, outputs):
    e = Elements(problem, granularity, "input", bounds_of(problem.fields))
    dout = problem.inputs["dout"]

    def gradient(dx):
        return (dx / e.scale if divide else dx).to(e.dtype)

    def masked(steps):
        return gradient(torch.where(e.inside(steps), dout.to(e.work), torch.zeros_like(e.x)))

    return explained("dinput", outputs["dinput"], gradient(torch_fake(e, dout)),
                     masked(e.quotient_steps), masked(e.product_steps))


# ---- Dequantize ----------------------------------------------------------------------------------


def make_dequantize(granularity, draw):
    fields, shape = draw_granularity(draw, granularity)
    code = draw.choice(list(RANGES) if shape else ["int8", "uint8"])
    sets, _ = sets_of(granularity, fields, shape)
    scale = draw_scale(draw, sets, torch.float64)
    zero = draw_zero(draw, sets, *draw.choice([RANGES[code], (-(1 << 23), 1 << 23)]))
    codes = draw.integers(shape, *RANGES[code])
    if code in ("int4", "uint4"):
        fields["input_dtype"] = code
        if shape and shape[-1] % 2:
            fields["row_len"] = shape[-1]
        stored = packed(codes)
    else:
        stored = codes.to(torch.int8 if code == "int8" else torch.uint8)
    if draw.chance(0.5):
        fields["output_dtype"] = draw.choice(["f32", "f64", "f16", "bf16"])
    inputs = {"input": stored, "scale": scale}
    return Problem(fields, inputs if zero is None else inputs | {"zero_point": zero})


def packed(codes):
    nibbles = (codes & 15).to(torch.uint8)
    if nibbles.shape[-1] % 2:
        nibbles = torch.nn.functional.pad(nibbles, (0, 1))
    return (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).contiguous()


TORCH_NAMES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16,
               "bf16": torch.bfloat16}


def check_dequantize(granularity, problem, outputs):
    from torch.ao.quantization.fx import _decomposed  # registers quantized_decomposed

    fields, inputs = problem.fields, problem.inputs
    code = fields.get("input_dtype") or \
        ("int8" if inputs["input"].dtype == torch.int8 else "uint8")
    shape = list(inputs["input"].shape)
    if code in ("int4", "uint4"):
        shape[-1] = fields.get("row_len", 2 * shape[-1])
    codes = unpacked(inputs["input"], code, shape)
    _, sets = sets_of(granularity, fields, shape)
    scale = inputs["scale"].reshape(-1)[sets]
    dtype = TORCH_NAMES[fields["output_dtype"]] if "output_dtype" in fields else scale.dtype
    work = torch.float64 if torch.float64 in (scale.dtype, dtype) else torch.float32
    zero = zeros(inputs.get("zero_point"), sets, None)
    value = _decomposed.dequantize_per_channel(
        codes.reshape(-1).to(torch.int32), scale.to(work).reshape(-1),
        zero.reshape(-1).to(torch.int32), 0, -(1 << 31), (1 << 31) - 1, torch.int32,
        out_dtype=work).reshape(shape)
    # qplan stores f64 in 16 bits with one rounding, and the largest value instead of infinity.
    largest = torch.finfo(dtype).max
    ours = rounded_once(value.double(), dtype).clamp(-largest, largest)
    return explained("output", outputs["output"], value.to(dtype), ours, value.to(dtype))


def make_dequantize_backward(granularity, draw):
    fields, shape = draw_granularity(draw, granularity)
    dtype = draw_fp(draw)
    sets, _ = sets_of(granularity, fields, shape)
    return Problem(fields, {"dout": draw.normal(shape, dtype),
                            "scale": draw_scale(draw, sets, dtype)})


def check_dequantize_backward(granularity, problem, outputs):
    dout, scale = problem.inputs["dout"], problem.inputs["scale"]
    _, sets = sets_of(granularity, problem.fields, list(dout.shape))
    work = torch.float64 if dout.dtype == torch.float64 else torch.float32
    want = dout.to(work) * scale.reshape(-1)[sets].to(work)
    equal("dinput", outputs["dinput"], want.to(dout.dtype))


# ---- Learnable -----------------------------------------------------------------------------------


def make_learnable(granularity, gradient, draw):
    """PyTorch wants 0 in the range, and its terms lose digits where the range is wide."""
    problem = (make_backward if gradient else
               functools.partial(make_forward, has_codes=False))(granularity, draw=draw)
    low, high = bounds_of(problem.fields)
    if not low <= 0 <= high or high - low > 255:
        low, high = -128, 127
        problem.fields.pop("q_min")
        problem.fields.pop("q_max")
    if gradient and draw.chance(0.5):
        problem.fields["grad_factor"] = draw.choice([0.5, 0.125, 3.0])
    scale = problem.inputs["scale"]
    zero = draw.uniform(scale.shape, low - 3, high + 3)
    zero = torch.where(draw.uniform(scale.shape) < 0.3, torch.floor(zero) + 0.5, zero)
    problem.inputs["zero_point"] = zero.to(scale.dtype)
    return problem


def torch_learnable(e, zero, factor=1.0, dout=None):
    """The values; or gradients of data, scale and zero point, one set per element. f32 only."""
    x, s, z = (t.float().reshape(-1).clone().requires_grad_(dout is not None)
               for t in (e.x, e.scale, zero))
    y = torch._fake_quantize_learnable_per_channel_affine(x.reshape(-1, 1), s, z, 0, e.q_min,
                                                          e.q_max, factor)
    if dout is None:
        return y.reshape(e.x.shape)
    y.backward(dout.float().reshape(-1, 1))
    return [t.grad.reshape(e.x.shape) for t in (x, s, z)]


def check_learnable(granularity, problem, outputs):
    e = Elements(problem, granularity, "input", bounds_of(problem.fields))
    if e.x.numel() == 0 or e.work == torch.float64:  # f64 has no PyTorch kernel: as fake_quantize
        return check_fake(granularity, problem, outputs)
    zero = problem.inputs["zero_point"].reshape(-1)[e.sets]
    return explained("output", outputs["output"], torch_learnable(e, zero).to(e.dtype),
                     e.fake(e.codes()), e.fake(e.torch_codes()))


def terms(e, dout):
    """The formula, in f64: gradients of data, scale and zero point, one set per element."""
    x, s, dy = e.x.double(), e.scale.double(), dout.double()
    zero, none = e.zero.double(), torch.zeros_like(x)
    inside = e.inside(e.quotient_steps)
    end = torch.where(e.quotient_steps < 0, e.q_min - zero, e.q_max - zero)
    step = torch.where(inside, e.codes().double() - zero - x / s, end)
    dscale = torch.where(torch.isnan(x), none, dy * step)
    dzero = torch.where(inside | torch.isnan(x), none, -dy * s)
    return torch.where(inside, dy, none), dscale, dzero


def torch_learnable_steps(e):
    """What PyTorch's backward rounds, less the zero point: in f32, by a fused operation."""
    x, inverse, zero = e.x.float().double(), (1 / e.scale.float()).double(), e.zero.double()
    return torch.round((x * inverse + zero).float()).double() - zero


def check_learnable_backward(granularity, problem, outputs):
    """dinput element by element; the sums as sums of PyTorch's terms.

    Its backward forms rne(fma(x, 1 / s, z)). An element for which that is another code than qplan's
    gets the formula's terms instead, and so does one beyond int64 or not finite."""
    e = Elements(problem, granularity, "input", bounds_of(problem.fields))
    dout, scale = problem.inputs["dout"], problem.inputs["scale"]
    factor = problem.fields.get("grad_factor", 1.0)
    formula = terms(e, dout)
    equal("dinput", outputs["dinput"], formula[0].to(e.dtype))
    if e.x.numel() == 0:
        found = [torch.zeros_like(t) for t in formula]
        odd = torch.zeros_like(e.x, dtype=torch.bool)
    else:
        zero = problem.inputs["zero_point"].reshape(-1)[e.sets]
        found = torch_learnable(e, zero, factor, dout)
        steps = torch_learnable_steps(e)
        odd = ~(steps.abs() < 2.0 ** 63) | (steps != e.quotient_steps.double())
    bad = unequal(found[0].double(), formula[0].float().double()) & ~odd
    if bad.any():
        raise Differs(show("dinput", bad, outputs["dinput"], found[0]))
    sums = [torch.where(odd, factor * ours, theirs.double())
            for ours, theirs in zip(formula[1:], found[1:])]
    # PyTorch's terms are f32, and x' - x loses as much as x / s has digits in front of the point.
    inside = e.inside(e.quotient_steps)
    lost = torch.where(inside, factor * dout.double().abs() * (e.x / e.scale).double().abs(), 0.0)
    check_sum(e, "dscale", outputs["dscale"], scale, sums[0], lost)
    check_sum(e, "dzero_point", outputs["dzero_point"], scale, sums[1], 0 * lost)
    return int(odd.sum())


def check_sum(e, name, got, scale, terms_of, lost):
    """The terms of each set, summed: within 1e-6 of the largest sum, and what f32 terms lose."""
    if got.dtype != scale.dtype or got.shape != scale.shape:
        raise Differs(f"{name}: {got.dtype} {list(got.shape)}")
    slack_of = (lost + terms_of.abs()) * 2.0 ** -22
    want, slack = (torch.zeros(scale.numel(), dtype=torch.float64)
                   .index_add(0, e.sets.reshape(-1), t.reshape(-1)) for t in (terms_of, slack_of))
    if want.numel() == 0:
        return
    got = got.reshape(-1).double()
    bad = ~((got - want).abs() <= 1e-6 * want.abs().max() + half_step(scale.dtype, want) + slack)
    if bad.any():
        raise Differs(show(name, bad, got, want))


# ---- Dynamic -------------------------------------------------------------------------------------


def make_dynamic(granularity, draw):
    fields, shape = draw_granularity(draw, granularity)
    code = draw.choice(list(RANGES))
    dtype = draw_fp(draw)
    fields |= {"output_dtype": code, "scheme": draw.choice(["symmetric", "asymmetric"]),
               "narrow_range": draw.chance(0.4)}
    if draw.chance(0.4):
        fields["scale_dtype"] = draw.choice(["f32", "f16", "bf16"])
    sets, index = sets_of(granularity, fields, shape)
    size = torch.exp2(draw.uniform(sets, -4, 4)).reshape(-1)[index]
    shift = draw.uniform(sets, -2, 2).reshape(-1)[index]
    empty = (draw.uniform(sets) < 0.1).reshape(-1)[index]
    x = (draw.normal(shape) + shift) * size
    return Problem(fields, {"input": torch.where(empty, torch.zeros_like(x), x).to(dtype)})


def observed(low, high, code, scheme, narrow):
    """Scale and zero point by PyTorch's observers, in the dtype of low, without their floor."""
    from torch.ao.quantization.observer import PerChannelMinMaxObserver

    q_min, q_max = (RANGES | WIDE)[code]
    observer = PerChannelMinMaxObserver(
        dtype=torch.qint8 if code.startswith("int") else torch.quint8, eps=0.0,
        qscheme=getattr(torch, f"per_channel_{'symmetric' if scheme == 'symmetric' else 'affine'}"))
    # Its constructor takes no range without 0; the arithmetic does.
    observer.quant_min, observer.quant_max = q_min + narrow, q_max
    scale, zero = observer._calculate_qparams(low, high)
    return scale, zero.to(torch.int64)


def rounded_up(scale, dtype):
    """qplan's stored scale: the least normal value of a dtype that is not below. (PyTorch: f32.)"""
    near = scale.to(dtype)
    up = torch.where(near.to(scale.dtype) < scale,
                     torch.nextafter(near, torch.full_like(near, float("inf"))), near)
    return up.clamp(min=torch.finfo(dtype).smallest_normal)


def check_dynamic(granularity, problem, outputs):
    fields, x = problem.fields, problem.inputs["input"]
    code, scheme = fields["output_dtype"], fields["scheme"]
    work = torch.float64 if x.dtype == torch.float64 else torch.float32
    shape, sets = sets_of(granularity, fields, list(x.shape))
    stored = TORCH_NAMES[fields["scale_dtype"]] if "scale_dtype" in fields else work
    n = math.prod(shape)
    low, high = (torch.zeros(n, dtype=work).scatter_reduce(0, sets.reshape(-1),
                                                           x.to(work).reshape(-1), how)
                 for how in ("amin", "amax"))
    scale, zero = expected_parameters(low, high, code, scheme, fields["narrow_range"], stored)
    equal("scale", outputs["scale"], scale.reshape(shape))
    equal("zero_point", outputs["zero_point"], zero.to(torch.int32).reshape(shape))
    low, high = RANGES[code]
    e = Elements(Problem(fields, {**problem.inputs, **outputs}), granularity, "input",
                 (low + fields["narrow_range"], high))
    if work == torch.float64 and stored == torch.float64:  # PyTorch has no f64 scales
        got = unpacked(outputs["output"], code, list(x.shape))
        return equal("output", got, e.codes())
    return check_codes(e, outputs["output"], code)


def expected_parameters(low, high, code, scheme, narrow, stored):
    """The observers' parameters; their middle of an unsigned range and their scale of a set of
    zeros differ from qplan's, which are a constant and 1."""
    if low.numel() == 0:
        return low.to(stored), low.to(torch.int64)
    q_min, q_max = (RANGES | WIDE)[code]
    q_min += narrow
    nothing = (low == 0) & (high == 0)
    scale, zero = observed(low, high, code, scheme, narrow)
    scale = torch.where(nothing, torch.ones_like(scale), rounded_up(scale, stored).to(scale.dtype))
    if scheme == "symmetric":
        zero = torch.full_like(zero, 0 if q_min < 0 else (q_min + q_max + 1) // 2)
    else:  # the observers' formula with the scale as it is stored
        steps = torch.round(torch.clamp(low, max=0) / scale.to(low.dtype)).to(torch.int64)
        zero = torch.where(nothing, max(q_min, 0), torch.clamp(q_min - steps, q_min, q_max))
        same = observed(low, high, code, scheme, narrow)[1]
        if stored == low.dtype and (zero != same)[~nothing].any():
            raise Differs("zero_point: the observers' formula is another one than stated")
    return scale.to(stored), zero


# ---- The table -----------------------------------------------------------------------------------


def family(granularity):
    def oracle(make, check, *args):
        return Oracle(functools.partial(make, granularity, *args),
                      functools.partial(check, granularity))

    def masked(divide):
        return Oracle(functools.partial(make_backward, granularity),
                      functools.partial(check_masked, divide, granularity))

    return {
        f"quantize_{granularity}": oracle(make_forward, check_quantize, True),
        f"quantize_{granularity}_backward": masked(True),
        f"dequantize_{granularity}": oracle(make_dequantize, check_dequantize),
        f"dequantize_{granularity}_backward": oracle(make_dequantize_backward,
                                                     check_dequantize_backward),
        f"fake_quantize_{granularity}": oracle(make_forward, check_fake, False),
        f"fake_quantize_{granularity}_backward": masked(False),
        f"fake_quantize_learnable_{granularity}": oracle(make_learnable, check_learnable, False),
        f"fake_quantize_learnable_{granularity}_backward": oracle(
            make_learnable, check_learnable_backward, True),
        f"dynamic_quantize_{granularity}": oracle(make_dynamic, check_dynamic),
    }


ORACLES = {name: oracle for granularity in GRANULARITIES
           for name, oracle in family(granularity).items()}
