"""Sentences that several analyses say of their figures."""

from collections.abc import Mapping
from typing import Any


def windowed_notes(facts: Mapping[str, Any], what: str) -> list[str]:
    """Of each model that read some texts in windows, how many; files of before do not say.

    Args:
        what: the texts are, such as "sentences".
    """
    return [
        f"{model}: of the {what} {count:,} are longer than its input and were read in windows"
        for model, count in facts.get("in_windows", {}).items()
        if count
    ]
