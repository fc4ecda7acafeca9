"""Pictures without a window, and their files."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def new_figure(width: float, height: float) -> Any:
    """An empty figure of so many inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, whatever the machine
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.1)  # inches, so that names do not touch the edge
    figure = Figure(figsize=(width, height), layout=margins)
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, out: Path, name: str, *, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """NAME.png and NAME.svg in a folder, whole or not there."""
    files = [out / f"{name}.{one}" for one in formats]
    for file in files:
        partial = file.with_name(f".{secrets.token_hex(4)}.{file.name}")
        figure.savefig(partial, dpi=130)
        partial.replace(file)
    return files
