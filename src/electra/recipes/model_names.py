"""What tables call the models of a command line."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

TOWERS = ("discriminator", "generator", "encoder", "export", "model")
"""Folders that stand for what holds them: RUN/export/discriminator."""


def names_of(models: Sequence[str]) -> list[str]:
    """A name for each MODEL, each once: that of its run or folder, without the rest of the path."""
    found = [_name(model) for model in models]
    seen: Counter[str] = Counter()
    for number, name in enumerate(found):
        seen[name] += 1
        if seen[name] > 1:
            found[number] = f"{name} ({seen[name]})"
    return found


def _name(model: str) -> str:
    parts = [part for part in Path(model).resolve().parts if part not in TOWERS]
    return parts[-1] if len(parts) > 1 else model
