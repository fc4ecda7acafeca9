"""MkDocs hook: convert LaTeX formulas to MathML at build time, so that the pages need no script for them."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)  # what pymdownx.arithmatex writes
# Browsers set no space around a function without parentheses, as in "r log r".
AROUND_FUNCTION = re.compile(
    r"(?:(?<=</mi>)|(?<=</msub>)|(?<=&#x00029;</mo>))(?=<mi>(?:log|ln)</mi>)|(?<=<mi>log</mi>|.<mi>ln</mi>)(?!<mo)"
)


def on_page_content(page_html: str, **_: Any) -> str:
    """Called by MkDocs for the body of every page.

    Raises:
        ValueError: latex2mathml does not know a command, and would show it as text.
    """
    return FORMULA.sub(_formula, page_html)


def _formula(match: re.Match[str]) -> str:
    display = "block" if match["tag"] == "div" else "inline"
    latex = html.unescape(match["latex"]).strip()
    mathml = convert(latex, display=display)
    if "\\" in mathml:
        raise ValueError(f"latex2mathml does not know a command of {latex}; write the formula in another way")
    mathml = AROUND_FUNCTION.sub('<mspace width="0.167em" />', mathml)
    return f'<{match["tag"]} class="formula">{mathml}</{match["tag"]}>'
