"""Embedding and embedding bag. PyTorch's CPU gradients add in the dtype of the gradient, qplan's in
f64, so 16-bit sums are judged by the sum in f64: qplan's must be that sum, rounded once."""

import torch
import torch.nn.functional as F

from problem import FLOATS, Differs, Oracle, Problem, equal, near, show

# Against PyTorch in the same dtype, of the largest value.
LIMITS = {torch.float32: 1e-5, torch.float64: 1e-13}


def check_sum(name, got, torch_sum, exact):
    """Close to PyTorch's own sum where its dtype allows, and the sum in f64 rounded once."""
    if got.dtype != torch_sum.dtype:
        raise Differs(f"{name}: {got.dtype}, torch {torch_sum.dtype}")
    near(name, got, exact, 1e-14)
    if got.dtype in LIMITS:
        near(name, got, torch_sum.double(), LIMITS[got.dtype])
        return
    # 16 bits: no element may be further from the sum than PyTorch's.
    ours, theirs = ((x.double() - exact).abs() for x in (got, torch_sum))
    worse = ours > theirs + 1e-14 * exact.abs()  # at a tie both are as far
    if worse.any():
        raise Differs(show(name, worse, got, torch_sum))


def draw_table(draw):
    """Rows, columns, and an index dtype."""
    return draw.between(1, 12), draw.between(0, 3) if draw.chance(0.1) else draw.between(1, 70), \
        draw.choice([torch.int32, torch.int64])


def draw_padding(draw, fields, rows):
    if draw.chance(0.5):
        fields["padding_idx"] = draw.between(-rows, rows - 1)
    return fields


def padding(problem):
    return problem.fields.get("padding_idx")


# ---- Embedding -----------------------------------------------------------------------------------


def make_embedding(draw):
    rows, cols, index = draw_table(draw)
    fields = draw_padding(draw, {}, rows)
    shape = draw.shape(draw.between(0, 3))
    return Problem(fields, {"weight": draw.normal([rows, cols], draw.choice(FLOATS)),
                            "indices": draw.integers(shape, 0, rows - 1, index)})


def check_embedding(problem, outputs):
    weight, indices = problem.inputs["weight"], problem.inputs["indices"]
    equal("output", outputs["output"], F.embedding(indices, weight, padding_idx=padding(problem)))


def make_embedding_backward(draw):
    rows, cols, index = draw_table(draw)
    dtype = draw.choice(FLOATS)
    fields = draw_padding(draw, {"num_embeddings": rows}, rows)
    fields |= {"scale_grad_by_freq": draw.chance(0.5), "accumulate": draw.chance(0.3)}
    shape = draw.shape(draw.between(1, 2))
    inputs = {"dout": draw.normal([*shape, cols], dtype),
              "indices": draw.integers(shape, 0, rows - 1, index)}
    if fields["accumulate"]:
        inputs["dweight"] = draw.normal([rows, cols], dtype)
    return Problem(fields, inputs)


def embedding_gradient(problem, dtype):
    inputs, fields = problem.inputs, problem.fields
    dout = inputs["dout"].to(dtype)
    weight = torch.zeros([fields["num_embeddings"], dout.shape[-1]], dtype=dtype,
                         requires_grad=True)
    F.embedding(inputs["indices"], weight, padding_idx=padding(problem),
                scale_grad_by_freq=fields["scale_grad_by_freq"]).backward(dout)
    return weight.grad + inputs["dweight"].to(dtype) if fields["accumulate"] else weight.grad


def check_embedding_backward(problem, outputs):
    dtype = problem.inputs["dout"].dtype
    check_sum("dweight", outputs["dweight"], embedding_gradient(problem, dtype),
              embedding_gradient(problem, torch.float64))


# ---- Bags ----------------------------------------------------------------------------------------


def draw_bags(draw, fields, rows, index):
    """indices, and offsets unless the bags are rows."""
    if draw.chance(0.3):
        return {"indices": draw.integers([draw.between(0, 8), draw.between(0, 9)], 0, rows - 1,
                                         index)}
    n, bags = draw.between(0, 60), draw.between(0, 9)
    cuts = sorted(draw.between(0, n) for _ in range(bags))
    if fields["include_last_offset"]:
        cuts = [0] + cuts
    elif cuts:
        cuts[0] = 0
    return {"indices": draw.integers([n], 0, rows - 1, index),
            "offsets": torch.tensor(cuts, dtype=index)}


def bag_fields(draw, rows, mode=None):
    fields = {"mode": mode or draw.choice(["sum", "mean", "max"]),
              "include_last_offset": draw.chance(0.4)}
    return draw_padding(draw, fields, rows)


def bags_of(problem):
    """The bag of each index; behind the last offset it is none, -1. And the number of bags."""
    indices, offsets = problem.inputs["indices"], problem.inputs.get("offsets")
    if offsets is None:
        bags = torch.arange(indices.shape[0]).unsqueeze(1).expand(indices.shape)
        return bags.reshape(-1), indices.shape[0]
    last = problem.fields["include_last_offset"]
    n_bags = len(offsets) - last
    bag = torch.searchsorted(offsets[:n_bags].contiguous().long(), torch.arange(len(indices)),
                             right=True) - 1
    if last:
        bag = torch.where(torch.arange(len(indices)) < offsets[-1], bag, -1)
    return bag, n_bags


def make_bag(draw):
    rows, cols, index = draw_table(draw)
    fields = bag_fields(draw, rows)
    bags = draw_bags(draw, fields, rows, index)
    if "offsets" not in bags:
        fields["include_last_offset"] = False
    return Problem(fields, {"weight": draw.normal([rows, cols], draw.choice(FLOATS)), **bags})


def torch_bag(problem, weight):
    """F.embedding_bag; it wants at least one bag and room for an index in it, and gives indices
    behind the last offset to the last bag, so it does not get them."""
    fields, inputs = problem.fields, problem.inputs
    indices, offsets = inputs["indices"], inputs.get("offsets")
    if indices.dim() == 2 and indices.numel() == 0 or bags_of(problem)[1] == 0:
        return torch.zeros([bags_of(problem)[1], weight.shape[1]], dtype=weight.dtype)
    if fields["include_last_offset"]:
        indices = indices[:offsets[-1]]
    return F.embedding_bag(indices, weight, offsets, mode=fields["mode"],
                           padding_idx=padding(problem),
                           include_last_offset=fields["include_last_offset"])


def check_bag(problem, outputs):
    weight = problem.inputs["weight"]
    want = torch_bag(problem, weight)
    if problem.fields["mode"] == "max":
        equal("output", outputs["output"], want)
        equal("max_indices", outputs["max_indices"], first_maxima(problem, weight))
        return
    near("output", outputs["output"], torch_bag(problem, weight.double()), 1e-14)
    # Its own sums: f32 to 1e-6, 16 bits to one step.
    limit = {torch.float32: 1e-6, torch.float64: 1e-14}.get(weight.dtype,
                                                            torch.finfo(weight.dtype).eps)
    near("output", outputs["output"], want.double(), limit)


def first_maxima(problem, weight):
    """The row that each maximum came from; -1 for an empty bag. PyTorch keeps it to itself."""
    bag, n_bags = bags_of(problem)
    indices, skip = problem.inputs["indices"].reshape(-1).long(), padding(problem)
    chosen = torch.full([n_bags, weight.shape[1]], -1)
    best = torch.zeros([n_bags, weight.shape[1]], dtype=weight.dtype)
    for i, b in zip(indices.tolist(), bag.tolist()):
        if b < 0 or (skip is not None and i == skip % weight.shape[0]):
            continue
        take = (chosen[b] < 0) | (weight[i] > best[b])
        chosen[b] = torch.where(take, i, chosen[b])
        best[b] = torch.where(take, weight[i], best[b])
    return chosen


def make_bag_backward(draw):
    rows, cols, index = draw_table(draw)
    dtype = draw.choice(FLOATS)
    fields = {"num_embeddings": rows, **bag_fields(draw, rows)}
    bags = draw_bags(draw, fields, rows, index)
    if "offsets" not in bags:
        fields["include_last_offset"] = False
    fields |= {"accumulate": draw.chance(0.3),
               "scale_grad_by_freq": fields["mode"] != "max" and draw.chance(0.5)}
    problem = Problem(fields, bags)
    n_bags = bags_of(problem)[1]
    inputs = {"dout": draw.normal([n_bags, cols], dtype), **bags}
    if fields["mode"] == "max":
        inputs["max_indices"] = first_maxima(problem, draw.normal([rows, cols], dtype))
    if fields["accumulate"]:
        inputs["dweight"] = draw.normal([rows, cols], dtype)
    return Problem(fields, inputs)


def bag_gradient(problem, dtype):
    """Autograd. PyTorch's bag divides by the counts of other indices under scale_grad_by_freq, so
    there a bag is made of F.embedding, which does it right, and index_add."""
    inputs, fields = problem.inputs, problem.fields
    dout = inputs["dout"].to(dtype)
    weight = torch.zeros([fields["num_embeddings"], dout.shape[1]], dtype=dtype,
                         requires_grad=True)
    if fields["mode"] == "max":  # the rows chosen are an input
        chosen = inputs["max_indices"]
        grad = torch.zeros_like(weight).detach().scatter_add(
            0, chosen.clamp(min=0), torch.where(chosen < 0, torch.zeros_like(dout), dout)) \
            if dout.numel() else torch.zeros_like(weight).detach()
    elif fields["scale_grad_by_freq"] or dout.shape[0] == 0 or inputs["indices"].numel() == 0:
        grad = composed_gradient(problem, weight, dout)
    else:
        torch_bag(problem, weight).backward(dout)
        grad = weight.grad
    return grad + inputs["dweight"].to(dtype) if fields["accumulate"] else grad


def composed_gradient(problem, weight, dout):
    indices = problem.inputs["indices"].reshape(-1)
    bag, n_bags = bags_of(problem)
    rows = F.embedding(indices, weight, padding_idx=padding(problem),
                       scale_grad_by_freq=problem.fields["scale_grad_by_freq"])
    counted = bag >= 0
    if padding(problem) is not None:
        counted &= indices != padding(problem) % weight.shape[0]
    size = torch.bincount(bag[counted], minlength=n_bags) if n_bags else torch.zeros(0)
    if problem.fields["mode"] == "sum":
        size = torch.ones_like(size)
    out = torch.zeros([n_bags, weight.shape[1]], dtype=weight.dtype)
    size = size[bag[counted]].unsqueeze(1).to(weight.dtype)
    out = out.index_add(0, bag[counted], rows[counted] / size)
    out.backward(dout)
    return weight.grad


def check_bag_backward(problem, outputs):
    dtype = problem.inputs["dout"].dtype
    check_sum("dweight", outputs["dweight"], bag_gradient(problem, dtype),
              bag_gradient(problem, torch.float64))


ORACLES = {
    "embedding": Oracle(make_embedding, check_embedding),
    "embedding_backward": Oracle(make_embedding_backward, check_embedding_backward),
    "embedding_bag": Oracle(make_bag, check_bag),
    "embedding_bag_backward": Oracle(make_bag_backward, check_bag_backward),
}
