"""The variables of google-research/electra by name, and our parameters that hold them.

A recorded array has a prefix and a variable's name (`init/electra/embeddings/word_embeddings`). A dense `kernel`
is (in, out) there and (out, in) here; query, key and value are one parameter here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from electra.objectives.masked_lm import MaskedLanguageModel

Arrays = Mapping[str, Any]
"""Recorded arrays by name."""
Named = Sequence[tuple[nn.Parameter, list[str]]]
"""Our parameters and the variables that each one holds, joined along its first axis."""
Variables = dict[str, Tensor]
"""One tensor a variable, by its name."""

_OUTSIDE = {
    "embeddings.token": "embeddings/word_embeddings",
    "embeddings.position": "embeddings/position_embeddings",
    "embeddings.segment": "embeddings/token_type_embeddings",
    "embeddings.norm": "embeddings/LayerNorm",
    "projection": "embeddings_project",
}
_INSIDE = {
    "attention.query_key_value": ("attention/self/query", "attention/self/key", "attention/self/value"),
    "attention.output": ("attention/output/dense",),
    "attention_norm": ("attention/output/LayerNorm",),
    "feed_forward.inner": ("intermediate/dense",),
    "feed_forward.outer": ("output/dense",),
    "feed_forward_norm": ("output/LayerNorm",),
}
_HEADS = {
    "generator.head": "generator_predictions",
    "cloze_head": "cloze_predictions",
    "head": "discriminator_predictions",
}
_IN_HEADS = {"dense": "dense", "norm": "LayerNorm", "prediction": "dense_1"}
_SCOPES = {
    "encoder": "electra",
    "generator.encoder": "generator",
    "left": "generator_ltr",
    "right": "generator_rtl",
}


def names(objective: nn.Module) -> Named:
    """Each parameter with the original's variables that it holds, concatenated along their last axis."""
    found = []
    heads = _HEADS | ({"head": "generator_predictions"} if isinstance(objective, MaskedLanguageModel) else {})
    for name, parameter in objective.named_parameters():
        module = next(module for module in (*heads, *_SCOPES) if name.startswith(f"{module}."))
        path, _, leaf = name.removeprefix(f"{module}.").rpartition(".")
        if module in heads:
            scope = heads[module]
            theirs = [f"{scope}/{_IN_HEADS[path]}/{_leaf(leaf, path)}"] if path else [f"{scope}/output_bias"]
        elif inside := re.fullmatch(r"blocks\.(\d+)\.(.+)", path):
            layer = f"{_SCOPES[module]}/encoder/layer_{inside[1]}"
            theirs = [f"{layer}/{part}/{_leaf(leaf, inside[2])}" for part in _INSIDE[inside[2]]]
        else:
            end = (
                ""
                if path.removeprefix("embeddings.") in ("token", "position", "segment")
                else "/" + _leaf(leaf, path)
            )
            theirs = [f"{_SCOPES[module]}/{_OUTSIDE[path]}{end}"]
        found.append((parameter, theirs))
    return found


def _leaf(leaf: str, path: str) -> str:
    if path.endswith("norm"):
        return {"weight": "gamma", "bias": "beta"}[leaf]
    return {"weight": "kernel", "bias": "bias"}[leaf]


def split_parameters(ours: Named, tensors: list[Tensor]) -> Variables:
    """One tensor per variable of the original, from one per parameter of ours."""
    return {
        name: part
        for (_, theirs), tensor in zip(ours, tensors, strict=True)
        for name, part in zip(theirs, tensor.chunk(len(theirs)), strict=True)
    }


def with_prefix(recorded: Arrays, prefix: str) -> dict[str, Any]:
    """The recorded arrays with a prefix, by the rest of their names."""
    start = f"{prefix}/"
    return {name.removeprefix(start): array for name, array in recorded.items() if name.startswith(start)}


def join_variables(recorded: Arrays, prefix: str, theirs: list[str]) -> Tensor:
    """Variables of the original as one of our parameters: kernels transposed to (out, in), then concatenated."""
    parts = [recorded[f"{prefix}/{name}"] for name in theirs]
    return torch.cat(
        [torch.from_numpy(p.T if n.endswith("kernel") else p) for n, p in zip(theirs, parts, strict=True)]
    )
