"""The limits of a server, and the error responses of the API."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_HEADER_BYTES = 65_536
"""Bytes of the URL and the headers of a request together."""


@dataclass(frozen=True)
class Limits:
    """A request beyond one of these limits is refused."""

    characters: int = 20_000
    """Characters of one text."""
    texts: int = 128
    """Texts of one request."""
    body: int = 2**20
    """Bytes of the body of one request."""
    waiting: int = 256
    """Requests in the queue of the model; further requests get 429."""
    seconds: float = 30.0
    """Seconds for a request to arrive, and again for its response."""


@dataclass
class APIError(Exception):
    """An error response: its status, its message (`{"error": message}`) and extra headers."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
