"""What a server takes from its clients, and how it says no."""

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_HEADER_BYTES = 65_536
"""Bytes of a request's head, its address and headers."""


@dataclass(frozen=True)
class Limits:
    """Sizes and times beyond which a request is refused."""

    characters: int = 20_000
    """Of one text."""
    texts: int = 128
    """Of one request."""
    body: int = 2**20
    """Bytes of one request."""
    waiting: int = 256
    """Requests that wait for the model; further ones are refused with 429."""
    seconds: float = 30.0
    """For a request to come in whole, and then for its answer."""


@dataclass
class APIError(Exception):
    """An answer other than 200: its status, one message, and headers."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
