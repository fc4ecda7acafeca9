"""MkDocs hook: convert LaTeX formulas to MathML at build time, so that the pages need no script for them."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)  # what pymdownx.arithmatex writes


def on_page_content(page_html: str, **_: Any) -> str:
    """Called by MkDocs for the body of every page."""
    return FORMULA.sub(_formula, page_html)


def _formula(match: re.Match[str]) -> str:
    display = "block" if match["tag"] == "div" else "inline"
    mathml = convert(html.unescape(match["latex"]).strip(), display=display)
    return f'<{match["tag"]} class="formula">{mathml}</{match["tag"]}>'
