"""The tables of errors by group: each group of a property has a row."""

from rich.table import Table

from electra.reports.analyses.parts_of_speech import _fill_groups


def test_each_group_has_a_row_below_the_name_of_its_property() -> None:
    groups = {
        "all tokens": [{"name": "all tokens", "tokens": 3}],
        "tag": [{"name": "DET", "tokens": 1}, {"name": "NOUN", "tokens": 2}],
        "piece": [{"name": "whole", "tokens": 3}],
    }
    table = _fill_groups(Table("", "tokens"), {"groups": groups}, lambda group: [str(group["tokens"])])
    names, tokens = (list(column.cells) for column in table.columns)
    assert names == ["all tokens", "tag", "  DET", "  NOUN", "piece", "  whole"]
    assert tokens == ["3", "", "1", "2", "", "3"]
