"""A MODEL as the server has it: loaded once, and everything that it can do."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from electra.errors import CheckpointError, ConfigError
from electra.export.loading import generator_beside
from electra.serving.backends import load_model
from electra.serving.fill_mask import FillMask
from electra.serving.http.worker import Operation
from electra.serving.predictor import Predictor
from electra.serving.scorer import Scorer
from electra.serving.text_encoder import TextEncoder

Facts = dict[str, Any]
Able = TypeVar("Able")

UNNAMED = ("discriminator", "encoder", "generator", "model", "export")
"""Folders that every run has, which do not tell one model from another."""
ONNX = "onnx"
"""What the names of folders begin with that `electra export --to onnx` makes; they stay in a model's name."""
WORKS = ("score", "rescore", "predict", "embed", "proposals")
WARM = "The chef cooked the meal."


class HostedModel:
    """One of the server's models.

    Args:
        model: a run, an export, a fine-tuning, an ONNX folder, or a Hugging Face folder or id.
        beside: the model that is served beside it, from which its name is to tell it.
        generator: a masked language model with the same vocabulary; None: the one that the run exported beside its
            discriminator, if there is one.

    Raises:
        CheckpointError: a model cannot be loaded, or can do nothing that is served.
        ConfigError: the generator has another vocabulary.
    """

    def __init__(
        self,
        model: str,
        *,
        device: str | None = None,
        generator: str | None = None,
        beside: str | None = None,
    ) -> None:
        self.name = display_name(model, beside=beside)
        self.refusals: dict[str, str] = {}
        """What it cannot do, and what would be needed for it."""
        loaded = load_model(model)
        self.scorer = self._able("score", lambda: Scorer(loaded, device=device))
        self.predictor = self._able("predict", lambda: Predictor(loaded, device=device))
        self.encoder = self._able("embed", lambda: TextEncoder(loaded, device=device))
        if not (self.scorer or self.predictor or self.encoder):
            raise CheckpointError(self.refusals["embed"])
        other = generator or generator_beside(model)
        self.generator = None if other is None else display_name(str(other))
        source = loaded if other is None else other
        self.proposer = self._able(
            "proposals", lambda: FillMask(source, device=device), wanted=generator is not None
        )
        if "score" in self.refusals:
            self.refusals["rescore"] = self.refusals["score"]
        if self.proposer is not None and self.scorer is not None:
            self._agree(self.scorer, self.proposer, other)

    def _able(self, work: str, make: Callable[[], Able], *, wanted: bool = False) -> Able | None:
        """What does a work with the model, or None, and why not."""
        try:
            return make()
        except CheckpointError as error:
            if wanted:  # somebody asked for it
                raise
            self.refusals[work] = f"{self.name}: {error}".replace(f"{self.name}: the model", self.name, 1)
            return None

    def _agree(self, scorer: Scorer, proposer: FillMask, generator: str | Path | None) -> None:
        if scorer.tokenizer.get_vocab() != proposer.tokenizer.get_vocab():
            raise ConfigError(
                f"--generator: {generator} has another vocabulary than {self.name}, so that its proposals would "
                "be for other tokens; give the generator that the discriminator was trained with"
            )

    def works(self) -> dict[str, Operation]:
        """Its works by name, each from a list of items to their results."""
        found: dict[str, Operation] = {}
        if self.scorer is not None:
            found["score"] = self.scorer
        if self.predictor is not None:
            found["predict"] = self.predictor
        if self.encoder is not None:
            found["embed"] = partial(_rows, self.encoder)
        if self.proposer is not None:
            found["proposals"] = self.proposer
        return found

    def warm(self) -> None:
        """Use it once, because the first use of a network is slower."""
        for work in (self.scorer, self.encoder):
            if work is not None:
                work([WARM] * 2)

    def facts(self) -> Facts:
        """What clients may know of it."""
        able = [work for work in WORKS if work not in self.refusals]
        facts: Facts = {"name": self.name, "can": able, "cannot": self.refusals}
        if self.scorer is not None:
            facts["objective"] = self.scorer.objective
        if self.predictor is not None:
            problem = self.predictor.problem
            facts |= {"task": problem.kind, "pairs": self.predictor.pairs}
            if labels := getattr(problem, "labels", None):
                facts["labels"] = list(labels)
        if self.generator is not None and self.proposer is not None:
            facts["generator"] = self.generator
        return facts


def _rows(encoder: TextEncoder, texts: list[str]) -> list[NDArray[np.float32]]:
    return list(encoder.encode(texts))


def display_name(model: str, *, beside: str | None = None) -> str:
    """A MODEL without the folders above it: `my-run`, `my-run/export/generator`, `google/electra-small`.

    Where the model beside it would have the same name, both have as many folders more as tell them apart.
    """
    mine, other = _parts(model), _parts(beside or "")
    for above in range(len(mine[0]) + 1):
        names = ["/".join([*folders[len(folders) - above :], *name]) for folders, name in (mine, other)]
        if names[0] != names[1]:
            return names[0]
    return names[0]


def _parts(model: str) -> tuple[list[str], list[str]]:
    """The folders above a MODEL, and those that name it."""
    path = Path(model)
    if not path.exists():
        return [], [model]
    parts = list(path.resolve().parts[1:])
    first = len(parts) - 1
    while first > 0 and (parts[first] in UNNAMED or parts[first].startswith(ONNX)):
        first -= 1
    if parts[-1] == "generator":
        return parts[:first], parts[first:]
    last = max(i for i, part in enumerate(parts) if i == first or (i > first and part.startswith(ONNX)))
    return parts[:first], parts[first : last + 1]
