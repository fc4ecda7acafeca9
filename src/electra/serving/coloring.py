"""Tokens colored by their probability of having been replaced. Likely ones are also marked by brackets."""

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

BRACKET_THRESHOLD = 0.5
"""Tokens with at least this probability are shown in brackets, with the probability."""
COLOR_THRESHOLD = 0.1
"""Tokens below this probability are not colored."""

_PALE, _STRONG = (255, 236, 150), (235, 80, 60)  # black letters are readable on both, in dark and light terminals


def color_tokens(
    tokens: Sequence[str],
    strengths: Sequence[float],
    *,
    separators: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> Text:
    """The tokens as one text, on a background from pale yellow to red; likely ones as `[word .93]`.

    Args:
        strengths: between 0 and 1, such as the probability that each token was replaced.
        separators: the text before each token, and the text after the last one. None: a space, and nothing
            before a WordPiece continuation, which is shown without its mark (`##ing`).
        labels: what is shown in the brackets. None: the strengths.
    """
    if separators is None:
        separators = ["" if token.startswith("##") or i == 0 else " " for i, token in enumerate(tokens)] + [""]
        tokens = [token.removeprefix("##") if len(token) > 2 else token for token in tokens]
    labels = labels or [format_probability(strength) for strength in strengths]
    text = Text()
    for separator, token, strength, label in zip(separators, tokens, strengths, labels, strict=False):
        text.append(separator)
        in_brackets = strength >= BRACKET_THRESHOLD and not token.isspace()
        shown = f"[{token} {label}]" if in_brackets else token
        text.append(shown, background_style(strength))
    return text.append(separators[-1])


def background_style(probability: float) -> Style | None:
    """The background color of a probability; None if it is below `COLOR_THRESHOLD`."""
    if not probability >= COLOR_THRESHOLD:
        return None
    share = (probability - COLOR_THRESHOLD) / (1 - COLOR_THRESHOLD)
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(_PALE, _STRONG, strict=True))
    return Style.parse(f"black on rgb({red},{green},{blue})")


def format_probability(probability: float) -> str:
    """A probability with two digits and without the zero: `.93`."""
    return f"{probability:.2f}".removeprefix("0")
