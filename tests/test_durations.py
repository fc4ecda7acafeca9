"""Durations as people read them."""

import pytest

from electra.durations import describe_duration, format_duration


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3s"), (200, "3m 20s"), (18_420, "5h 07m"), (187_200, "2d 04h"), (-1, "0s")]
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"), (2.36, "2.4 s"), (89.9, "89.9 s"), (90, "1.5 minutes"), (420, "7.0 minutes"),
        (5399, "90.0 minutes"), (5400, "1.5 hours"),
    ],
)  # fmt: skip
def test_describe_duration(seconds: float, text: str) -> None:
    assert describe_duration(seconds) == text
