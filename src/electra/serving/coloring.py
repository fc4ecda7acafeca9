"""Tokens coloured by how replaced they look; what stands out stays readable without colour."""

from collections.abc import Sequence

from rich.style import Style
from rich.text import Text

BRACKET_THRESHOLD = 0.5
"""Tokens from this probability on are put in brackets, with the figure."""
COLOR_THRESHOLD = 0.1
"""Tokens below this probability look like any other text."""

_PALE, _STRONG = (255, 236, 150), (235, 80, 60)  # both bear black letters, on a dark and on a light terminal


def color_tokens(
    tokens: Sequence[str], probabilities: Sequence[float], *, joints: Sequence[str] | None = None
) -> Text:
    """The tokens as one text, each on a background from pale yellow to red, and likely ones as `[word .93]`.

    Args:
        probabilities: of having been replaced, one a token.
        joints: what stands before each token, and behind the last; None: a space, but none before a WordPiece
            continuation (`##ing`, which loses its mark).
    """
    if joints is None:
        joints = ["" if token.startswith("##") or i == 0 else " " for i, token in enumerate(tokens)] + [""]
        tokens = [token.removeprefix("##") if len(token) > 2 else token for token in tokens]
    text = Text()
    for joint, token, probability in zip(joints, tokens, probabilities, strict=False):
        text.append(joint)
        marked = probability >= BRACKET_THRESHOLD and not token.isspace()
        text.append(
            f"[{token} {format_probability(probability)}]" if marked else token, background_style(probability)
        )
    return text.append(joints[-1])


def background_style(probability: float) -> Style | None:
    """The background for a probability; None for one too small to show."""
    if not probability >= COLOR_THRESHOLD:
        return None
    share = (probability - COLOR_THRESHOLD) / (1 - COLOR_THRESHOLD)
    red, green, blue = (round(a + share * (b - a)) for a, b in zip(_PALE, _STRONG, strict=True))
    return Style.parse(f"black on rgb({red},{green},{blue})")


def format_probability(probability: float) -> str:
    """Two digits: `.93`."""
    return f"{probability:.2f}".removeprefix("0")
