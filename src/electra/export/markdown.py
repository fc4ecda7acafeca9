"""Names of others in the Markdown of a model card: they are shown as they are, and mark up nothing."""

import re


def code_span(name: str) -> str:
    """Return a name as code, on one line; a backquote, which would end the code, becomes an apostrophe."""
    return f"`{' '.join(name.split()).replace('`', chr(39))}`"


def escaped(name: str) -> str:
    """Return a name as text on one line, without the meaning that Markdown and HTML give to punctuation."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", " ".join(name.split()))
