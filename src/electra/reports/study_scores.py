"""The held-out figures that arms of a study are scored by, as people read them."""

AUC = "eval/unigram_auc"
"""The figure of a study that names none."""
SHARES = ("auc", "accuracy", "precision", "recall", "share")
"""Ends of the names of figures that are shares, and shown in percent."""


def shown(figure: str, value: float) -> float:
    """A share in percent; anything else as it is."""
    return 100 * value if figure.endswith(SHARES) else value


def named(figure: str) -> str:
    """A figure in words."""
    return "AUC, unigram fakes" if figure == AUC else figure.removeprefix("eval/").replace("_", " ")


def unit_of(figure: str) -> str:
    """What stands behind its name."""
    return ", in percent" if figure.endswith(SHARES) else ""


def digits_of(figure: str) -> int:
    """How many of its digits behind the point are shown."""
    return 1 if figure.endswith(SHARES) else 3
