"""Which weights the recorded gradients of the original were computed with.

The recorded backward pass is not the one that trained the original. `step0/grad` comes from a second pass in the
same run of the graph, which may still run while the optimizer writes the new weights. Its forward values are
those of the first pass; but a product `dx = dy W` reads W when it is computed, and the gradient through the
deviation of a LayerNorm reads its gain. Each of these reads saw the old weights, the new ones, or, in the middle
of the copy, rows of which a part was new.

`explain_reads` finds out what each read saw. There are about fifty reads to choose for, and a hundred thousand
recorded numbers that must be reproduced to 1e-6, so a wrong backward pass cannot be explained this way.
"""

import contextlib
import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F

from electra.modeling.kernels.cross_entropy import sampled_cross_entropy_plain
from replay_names import Named, Variables

Read = tuple[str, int]
"""The name of a variable, and which of its uses in the forward pass, counted from 0."""
_MODULES = ("generators", "electric", "masked_lm")
_plain_linear, _plain_layer_norm = F.linear, F.layer_norm


@dataclass(frozen=True)
class Explanation:
    """The variables as they were recorded, and the number of reads that saw updated weights."""

    gradients: Variables
    updated_reads: int
    reads: int


def explain_reads(
    backward: Callable[[], None], parameters: Named, updated: Variables, recorded: Variables, *, tolerance: float
) -> Explanation:
    """Choose what each read saw, from the output to the input, so that the recorded gradients are reproduced.

    Args:
        backward: a forward and a backward pass over the parameters.
        updated: every variable after the update.
        recorded: its recorded gradient.
        tolerance: relative to the largest number of a gradient; cut rows are only searched for above it.
    """
    search = _Search(backward, parameters, updated, recorded)
    search.choose()
    if max(search.differences.values()) > tolerance:
        search.cut_rows(tolerance)
        search.choose()
    return Explanation(search.gradients, len(search.seen), len(search.reads))


class _Search:
    def __init__(
        self, backward: Callable[[], None], parameters: Named, updated: Variables, recorded: Variables
    ) -> None:
        self.backward, self.parameters, self.updated, self.recorded = backward, parameters, updated, recorded
        self.seen: dict[Read, Tensor] = {}
        self.gradients, self.reads = self._run(self.seen)
        self.differences = self._differences(self.gradients)

    def choose(self) -> None:
        """Flip single reads as long as that brings the gradients nearer."""
        changed = True
        while changed:
            changed = False
            for read in self.reads:
                trial = {r: weights for r, weights in self.seen.items() if r != read}
                if read not in self.seen:
                    trial[read] = self.updated[read[0]]
                changed |= self._keep_if_nearer(trial)

    def cut_rows(self, tolerance: float) -> None:
        """For kernels after a GELU: where each row that they were read by was cut into old and new.

        The gradients of the inner layer's row f depend only on row f of the outer kernel, so all rows are tried
        at the same place at once, and each keeps the place that fits it.
        """
        for name, use in self.reads:
            inner = name.replace("output/dense/kernel", "intermediate/dense/kernel")
            if inner == name or self.differences.get(inner, 0.0) <= tolerance:
                continue
            before, after = self._values(name), self.updated[name]  # (out, in)
            best, nearest = after.clone(), torch.full((after.shape[1],), torch.inf)
            for place in range(after.shape[0] + 1):
                for tail_is_new in (False, True):
                    top, bottom = (before, after) if tail_is_new else (after, before)
                    weights = torch.cat([top[:place], bottom[place:]])
                    gradients, _ = self._run({**self.seen, (name, use): weights})
                    off = (gradients[inner] - self.recorded[inner]).abs().amax(1)
                    nearer = off < nearest
                    best[:, nearer], nearest[nearer] = weights[:, nearer], off[nearer]
            self._keep_if_nearer({**self.seen, (name, use): best})

    def _keep_if_nearer(self, seen: dict[Read, Tensor]) -> bool:
        gradients, _ = self._run(seen)
        differences = self._differences(gradients)
        nearer = _distance(differences) < _distance(self.differences) - 0.01
        if nearer:
            self.seen, self.gradients, self.differences = seen, gradients, differences
        return nearer

    def _run(self, seen: dict[Read, Tensor]) -> tuple[Variables, list[Read]]:
        reads: list[Read] = []
        for parameter, _ in self.parameters:
            parameter.grad = None
        with _reading(self.parameters, seen, reads):
            self.backward()
        gradients: Variables = {}
        for parameter, names in self.parameters:
            assert parameter.grad is not None
            gradients |= dict(zip(names, parameter.grad.chunk(len(names)), strict=True))
        return gradients, reads[::-1]

    def _differences(self, gradients: Variables) -> dict[str, float]:
        """The differences of one parameter, relative to the largest number among all of its variables."""
        found = {}
        for _, names in self.parameters:
            largest = max(float(self.recorded[name].abs().max()) for name in names)
            for name in names:
                found[name] = float((gradients[name] - self.recorded[name]).abs().max()) / max(largest, 1e-12)
        return found

    def _values(self, name: str) -> Tensor:
        for parameter, names in self.parameters:
            if name in names:
                return parameter.detach().chunk(len(names))[names.index(name)]
        raise KeyError(name)


def _distance(differences: dict[str, float]) -> float:
    """The sum of the orders of magnitude above rounding errors."""
    return float(torch.tensor(list(differences.values())).clamp(min=1e-6).log10().sum())


@contextlib.contextmanager
def _reading(parameters: Named, seen: dict[Read, Tensor], reads: list[Read]) -> Iterator[None]:
    """Make backward passes of what the block computes read `seen`; fills `reads` in forward order."""
    known = {parameter.untyped_storage().data_ptr(): (parameter, names) for parameter, names in parameters}
    uses: Counter[str] = Counter()

    def as_read(weight: Tensor) -> Tensor | None:
        """What the backward pass reads in place of a parameter, or of some of its rows."""
        found = known.get(weight.untyped_storage().data_ptr())
        if found is None or not torch.is_grad_enabled():
            return None
        parameter, names = found
        size, first = parameter.shape[0] // len(names), weight.storage_offset() // parameter[0].numel()
        parts = []
        for name in names[first // size : (first + weight.shape[0]) // size]:
            read = (name, uses[name])
            uses[name] += 1
            reads.append(read)
            rows = slice(names.index(name) * size, (names.index(name) + 1) * size)
            parts.append(seen.get(read, parameter.detach()[rows]))
        return torch.cat(parts)

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        backward_weight = as_read(weight)
        if backward_weight is None:
            return _plain_linear(x, weight, bias)
        y: Tensor = _Linear.apply(x, weight, backward_weight)  # type: ignore[no-untyped-call]
        return y if bias is None else y + bias

    def layer_norm(x: Tensor, shape: list[int], weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        backward_weight = as_read(weight)
        if backward_weight is None:
            return _plain_layer_norm(x, shape, weight, bias, eps)
        centred = x - x.mean(-1, keepdim=True)
        scale = _Gain.apply(  # type: ignore[no-untyped-call]
            (centred.square().mean(-1, keepdim=True) + eps).rsqrt(), weight, backward_weight
        )
        normed: Tensor = centred * scale + bias
        return normed

    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(F, "linear", linear))
        stack.enter_context(patch.object(F, "layer_norm", layer_norm))
        plain = {"sampled_cross_entropy": sampled_cross_entropy_plain, "cross_entropy": _plain_cross_entropy}
        for name in _MODULES:
            module = importlib.import_module(f"electra.objectives.{name}")
            for function in plain.keys() & vars(module).keys():
                stack.enter_context(patch.object(module, function, plain[function]))
        yield


def _plain_cross_entropy(
    hidden_NE: Tensor, table_VE: Tensor, bias_V: Tensor, targets_N: Tensor, weights_N: Tensor
) -> Tensor:
    uniforms_N = torch.zeros_like(weights_N)
    return sampled_cross_entropy_plain(hidden_NE, table_VE, bias_V, targets_N, weights_N, uniforms_N)[0]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, backward_weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, backward_weight)
        return _plain_linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        x, backward_weight = ctx.saved_tensors
        (dy,) = gradients
        return dy @ backward_weight, dy.flatten(0, -2).T @ x.flatten(0, -2), None


class _Gain(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inverse_deviation: Tensor, gain: Tensor, backward_gain: Tensor) -> Tensor:
        ctx.save_for_backward(inverse_deviation, backward_gain)
        return inverse_deviation * gain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        inverse_deviation, backward_gain = ctx.saved_tensors
        (dy,) = gradients
        of_gain = (dy * inverse_deviation).flatten(0, -2).sum(0)
        return (dy * backward_gain).sum(-1, keepdim=True), of_gain, None
