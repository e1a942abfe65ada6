"""What an oracle is made of: random problems, the table's entry, and ways to compare tensors."""

import random
import typing

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Problem(typing.NamedTuple):
    """What `qplan op run` gets."""

    fields: dict
    inputs: dict


class Oracle(typing.NamedTuple):
    """An entry of the table."""

    make: typing.Callable  # Draw -> Problem
    check: typing.Callable  # (Problem, outputs) -> how many differences were explained, or None


class Differs(Exception):
    """An output is not what PyTorch says, and no stated reason explains it."""


class Draw:
    """Random choices and tensors of one seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(self.random.getrandbits(60))
        self.choice, self.between = self.random.choice, self.random.randint

    def chance(self, share):
        return self.random.random() < share

    def extent(self):
        """Mostly small, sometimes longer than any vector, now and then nothing at all."""
        kind = self.random.random()
        return 0 if kind < 0.02 else self.between(30, 200) if kind < 0.15 else self.between(1, 9)

    def shape(self, rank):
        return [self.extent() for _ in range(rank)]

    def uniform(self, shape, low=0.0, high=1.0):
        unit = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return low + (high - low) * unit

    def normal(self, shape, dtype=torch.float64):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def integers(self, shape, low, high, dtype=torch.int64):
        """Both ends included."""
        return torch.randint(low, high + 1, tuple(shape), generator=self.generator).to(dtype)


# ---- Comparing -----------------------------------------------------------------------------------


def rounded_once(values, dtype):
    """f64 in another dtype. Tensor.to goes from f64 to 16 bits by f32 and may round twice; a value
    in between that is inexact is made odd here, so that the second rounding sees it."""
    if dtype in (torch.float32, torch.float64):
        return values.to(dtype)
    between = values.float()
    between = torch.where(between.abs() > values.abs(),
                          torch.nextafter(between, torch.zeros_like(between)), between)
    odd = (between.double() != values).to(torch.int32)
    return (between.view(torch.int32) | odd).view(torch.float32).to(dtype)


def half_step(dtype, values):
    """What one rounding to a dtype may change, for values of f64."""
    info = torch.finfo(dtype)
    return values.abs().clamp(min=info.smallest_normal) * (info.eps / 2)


def show(name, bad, got, want):
    at = tuple(int(i) for i in torch.nonzero(bad)[0])
    return f"{name}: {int(bad.sum())} of {bad.numel()} differ, first at {list(at)}: " \
           f"{got[at].item()!r}, torch {want[at].item()!r}"


def same_kind(name, got, want):
    if got.dtype != want.dtype or got.shape != want.shape:
        raise Differs(f"{name}: {got.dtype} {list(got.shape)}, "
                      f"torch {want.dtype} {list(want.shape)}")


def unequal(got, want):
    """Where two tensors differ; any NaN is any NaN, and -0 is 0."""
    return (got != want) & ~(torch.isnan(got) & torch.isnan(want))


def equal(name, got, want):
    same_kind(name, got, want)
    bad = unequal(got, want)
    if bad.any():
        raise Differs(show(name, bad, got, want))


def near(name, got, want, limit):
    """Off by at most limit times the largest of want (f64), and the one rounding of the store."""
    if got.shape != want.shape:
        raise Differs(f"{name}: {list(got.shape)}, torch {list(want.shape)}")
    if want.numel() == 0:
        return
    allowed = limit * want.abs().max() + half_step(got.dtype, want)
    bad = ~((got.double() - want).abs() <= allowed)
    if bad.any():
        raise Differs(show(name, bad, got, want))
