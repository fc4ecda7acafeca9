"""The estimated time and memory of a fine-tuning."""

import pytest
from rich.console import Console

from electra.finetuning.config import load_task_config
from electra.finetuning.dry_run import FinetuneEstimate


@pytest.mark.parametrize(("seeds", "total"), [(1, "13m 00s"), (3, "33m 00s")])
def test_the_total_time_is_that_of_all_seeds(seeds: int, total: str) -> None:
    config = load_task_config({"model": "RUN", "task": "cola", "data.path": "GLUE", "seeds": seeds})
    estimate = FinetuneEstimate(
        config, parameters=1_000, rows=320, steps=10, preparation=60, seconds=600, predictions=120, memory=2**30
    )
    (console := Console(width=120, record=True)).print(estimate)
    shown = console.export_text()
    assert "10m 00s" in shown.partition("time of each seed, about")[2].partition("\n")[0]
    assert total in shown.partition("total time, including loading")[2].partition("\n")[0]
