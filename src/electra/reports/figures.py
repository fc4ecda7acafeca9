"""matplotlib figures without a window, and their files."""

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from electra import durable

BEST_PLACE: dict[str, Any] = {"loc": "best"}
"""A legend where it covers least. Without it matplotlib does the same, and warns if that takes over a second."""


def new_figure(width: float, height: float) -> Any:
    """An empty figure of a size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # needs no display
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.1)  # inches, so that labels do not touch the edge
    figure = Figure(figsize=(width, height), layout=margins)
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, folder: Path, name: str, *, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write NAME.png and NAME.svg into a folder, each completely or not at all."""
    files = [folder / f"{name}.{suffix}" for suffix in formats]
    for file in files:
        durable.write(file, partial(figure.savefig, dpi=130, format=file.suffix[1:]))
    return files


def figure_svg(figure: Any) -> bytes:
    """A figure as SVG, the same bytes at every call."""
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
