"""Which columns of a table are read."""

from pathlib import Path

from electra.tasks.classification import Classification
from electra.tasks.config import DataConfig
from electra.tasks.table_columns import find_columns, find_text_columns


def test_of_several_usual_names_the_first_one_counts() -> None:
    """Not the first column of the file."""
    names = ["content", "score", "label", "text"]
    columns = find_columns(Path("t.csv"), names, DataConfig(), pairs=None, needs_label=True)
    assert columns == ("text", None, "label")


def test_predictions_read_the_pair_that_training_reads() -> None:
    names = ["premise", "hypothesis", "sentence2", "label"]
    columns = find_columns(Path("t.csv"), names, DataConfig(), pairs=None, needs_label=True)
    usual = Classification.column_names
    assert columns[:2] == ("premise", "hypothesis")
    assert columns[:2] == find_text_columns(Path("t.csv"), names, None, None, pairs=True, usual=usual)
