"""A progress bar on stderr for callers of Python, to whom no log is shown: all that the library prints."""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

OnReport = Callable[[Mapping[str, Any], int | None], None]


def shows_bar(progress: bool | None) -> bool:
    """Whether to show a bar: as asked for; None: in a terminal or a notebook, if the log does not show the
    progress already, as it does on the command line."""
    if progress is not None:
        return progress
    is_live = sys.stderr.isatty() or "ipykernel" in sys.modules
    return is_live and not logging.getLogger("electra").isEnabledFor(logging.INFO)


@contextlib.contextmanager
def progress_bar(name: str, *, shown: bool, on_report: OnReport = lambda *_: None) -> Iterator[OnReport]:
    """Show step, time left and loss until the block ends; yield the function to call with each report.

    The bar appears with the first report, at its step: a resumed run does not start at 0. Log messages are written
    above the bar, not into its line.

    Args:
        shown: whether there is a bar.
        on_report: called with each report, too.
    """
    if not shown:
        yield on_report
        return
    from tqdm.auto import tqdm
    from tqdm.contrib.logging import logging_redirect_tqdm

    bar: Any = None

    def report(metrics: Mapping[str, Any], steps: int | None) -> None:
        nonlocal bar
        on_report(metrics, steps)
        if bar is not None and bar.total is None and steps is not None:  # in a notebook, a bar keeps its length
            bar.close()
            bar = None
        if bar is None:
            first = metrics["step"]
            bar = tqdm(desc=name, total=steps, initial=first, unit="step", leave=steps is not None)
        bar.total = steps
        if "loss" in metrics:
            bar.set_postfix(loss=f"{metrics['loss']:.4f}", refresh=False)
        bar.update(metrics["step"] - bar.n)
        bar.refresh()

    try:
        with logging_redirect_tqdm(tqdm_class=tqdm):
            yield report
    finally:
        if bar is not None:
            bar.close()
