"""Grid sample and affine grid, against PyTorch in f64.

Points stay 1e-3 of a pixel off whole and half pixels: there an f32 coordinate may fall on the other
side of a jump (nearest picks another pixel, a derivative changes), and PyTorch's 2-D kernels
contract the coordinate into a fused operation, so that even f64 does."""

import functools

import torch
import torch.nn.functional as F

from problem import FLOATS, Differs, Oracle, Problem, equal, near

# Of the largest value; 16-bit data is computed in f32.
LIMITS = {torch.float64: 1e-12}
LIMIT = 5e-6
KINK = 1e-3

# ---- Problems ------------------------------------------------------------------------------------


def draw_grid(draw, points, sizes, align, dtype):
    """Points of all coordinates (x first) that are off the kinks, in their dtype."""
    grid = torch.zeros([*points, len(sizes)], dtype=dtype)
    for axis, size in enumerate(reversed(sizes)):
        g = draw.uniform(points, -2.2, 2.2).to(dtype)
        while (bad := near_kink(g, size, align)).any():
            g = torch.where(bad, draw.uniform(points, -2.2, 2.2).to(dtype), g)
        grid[..., axis] = g
    return grid


def near_kink(g, size, align):
    """With one pixel and align_corners every point is that pixel, exactly."""
    if align and size == 1:
        return torch.zeros_like(g, dtype=torch.bool)
    g = g.double()
    p = (g + 1) / 2 * (size - 1) if align else ((g + 1) * size - 1) / 2
    return (2 * p - torch.round(2 * p)).abs() < 2 * KINK


def draw_extents(draw, n):
    return [draw.between(1, 7) for _ in range(n)]


def make_sample(dims, backward, draw):
    dtype, align = draw.choice(FLOATS), draw.chance(0.5)
    modes = ["bilinear", "nearest"] + ["bicubic"] * (dims == 2)
    fields = {"mode": draw.choice(modes), "align_corners": align,
              "padding_mode": draw.choice(["zeros", "border", "reflection"])}
    batch, channels = draw.between(1, 3), draw.between(1, 5)
    if draw.chance(0.1):
        batch, channels = draw.choice([(0, channels), (batch, 0)])
    sizes, out = draw_extents(draw, dims), draw_extents(draw, dims)
    if draw.chance(0.05):
        out[0] = 0
    inputs = {"input": draw.normal([batch, channels, *sizes], dtype),
              "grid": draw_grid(draw, [batch, *out], sizes, align, dtype)}
    if backward:
        inputs = {"dout": draw.normal([batch, channels, *out], dtype), **inputs}
        draw_wanted(draw, fields, inputs)
    return Problem(fields, inputs)


def draw_wanted(draw, fields, inputs):
    fields["need_dinput"], fields["need_dgrid"] = draw.choice([(True, True), (True, True),
                                                               (True, False), (False, True)])
    fields["accumulate"] = draw.chance(0.3)
    for name in ("input", "grid"):
        if fields["accumulate"] and fields[f"need_d{name}"]:
            inputs[f"d{name}"] = draw.normal(inputs[name].shape, inputs[name].dtype)


# ---- Grid sample ---------------------------------------------------------------------------------


def torch_sample(problem, x, grid):
    fields = problem.fields
    return F.grid_sample(x, grid, mode=fields["mode"], padding_mode=fields["padding_mode"],
                         align_corners=fields["align_corners"])


def check_sample(problem, outputs):
    x, grid = (problem.inputs[name].double() for name in ("input", "grid"))
    got, want = outputs["output"], torch_sample(problem, x, grid)
    if problem.fields["mode"] == "nearest":  # a copy
        equal("output", got, want.to(problem.inputs["input"].dtype))
    else:
        near("output", got, want, LIMITS.get(got.dtype, LIMIT))


def check_sample_backward(problem, outputs):
    fields, inputs = problem.fields, problem.inputs
    x, grid = (inputs[name].double().requires_grad_() for name in ("input", "grid"))
    torch_sample(problem, x, grid).backward(inputs["dout"].double())
    wanted = {f"d{name}": t.grad for name, t in (("input", x), ("grid", grid))
              if fields[f"need_d{name}"]}
    if outputs.keys() != wanted.keys():
        raise Differs(f"outputs {sorted(outputs)}, expected {sorted(wanted)}")
    for name, want in wanted.items():
        if outputs[name].dtype != inputs["dout"].dtype:
            raise Differs(f"{name}: {outputs[name].dtype}")
        if fields["accumulate"]:
            want = want + inputs[name].double()
        near(name, outputs[name], want, LIMITS.get(outputs[name].dtype, LIMIT))


# ---- Affine grid ---------------------------------------------------------------------------------


def make_affine(dims, backward, draw):
    dtype, batch = draw.choice(FLOATS), draw.between(0, 3)
    sizes = [draw.between(1, 12) for _ in range(dims)]
    fields = {"align_corners": draw.chance(0.5)}
    fields |= {f"out_{axis}": size for axis, size in zip("dhw"[3 - dims:], sizes)}
    if backward:
        return Problem(fields, {"dout": draw.normal([batch, *sizes, dims], dtype)})
    return Problem(fields, {"theta": draw.normal([batch, dims, dims + 1], dtype)})


def torch_affine(dims, problem, theta):
    fields = problem.fields
    sizes = [fields[f"out_{axis}"] for axis in "dhw"[3 - dims:]]
    if theta.shape[0] == 0:  # PyTorch refuses it
        return torch.zeros([0, *sizes, dims], dtype=theta.dtype)
    return F.affine_grid(theta, [theta.shape[0], 1, *sizes], align_corners=fields["align_corners"])


def check_affine(dims, problem, outputs):
    """qplan computes in f64 and rounds once, so PyTorch in f64 gives more than its f32 does."""
    theta = problem.inputs["theta"]
    if outputs["output"].dtype != theta.dtype:
        raise Differs(f"output: {outputs['output'].dtype}")
    near("output", outputs["output"], torch_affine(dims, problem, theta.double()), 1e-14)


def check_affine_backward(dims, problem, outputs):
    dout = problem.inputs["dout"]
    theta = torch.zeros([dout.shape[0], dims, dims + 1], dtype=torch.float64, requires_grad=True)
    if outputs["dtheta"].dtype != dout.dtype:
        raise Differs(f"dtheta: {outputs['dtheta'].dtype}")
    if dout.shape[0]:
        torch_affine(dims, problem, theta).backward(dout.double())
        near("dtheta", outputs["dtheta"], theta.grad, 1e-13)
    else:
        equal("dtheta", outputs["dtheta"], theta.detach().to(dout.dtype))


ORACLES = {}
for dims in (2, 3):
    ORACLES |= {
        f"grid_sample_{dims}d": Oracle(functools.partial(make_sample, dims, False), check_sample),
        f"grid_sample_{dims}d_backward": Oracle(functools.partial(make_sample, dims, True),
                                                check_sample_backward),
        f"affine_grid_{dims}d": Oracle(functools.partial(make_affine, dims, False),
                                       functools.partial(check_affine, dims)),
        f"affine_grid_{dims}d_backward": Oracle(functools.partial(make_affine, dims, True),
                                                functools.partial(check_affine_backward, dims)),
    }
