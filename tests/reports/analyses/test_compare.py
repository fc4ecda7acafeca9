"""The tables of a comparison of two networks."""

from electra.reports.analyses.compare import _probes_table


def test_a_probe_has_the_best_layer_of_each_network() -> None:
    interval = [0.125, 0.875]
    scores = [
        {
            "scores": one,
            "intervals": [interval] * 2,
            "selectivities": [0.5, 0.25],
            "selectivity_intervals": [interval] * 2,
        }
        for one in ([0.5, 0.75], [0.625, 0.375])
    ]
    results = {
        "models": [{"model": "one"}, {"model": "two"}],
        "probes": [{"name": "part of speech", "measure": "accuracy", "models": scores}],
    }
    table = _probes_table(results)
    assert [column.header for column in table.columns][:4] == ["probe", "", "encoder", "layer"]
    cells = [list(column.cells) for column in table.columns]
    assert cells[:4] == [["part of speech", ""], ["accuracy", ""], ["one", "two"], ["1", "0"]]
    scores_and_selectivities = [[one[:5] for one in column] for column in cells[4:]]
    assert scores_and_selectivities == [["0.750", "0.625"], ["0.250", "0.500"]]
