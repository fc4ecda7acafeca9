"""Display names are the shortest ends of paths that differ."""

from pathlib import Path

import pytest

from electra.export.display_name import display_names


def test_names_are_short_and_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert display_names(["a/run", "b/other"]) == ["run", "other"]
    assert display_names(["a/run", "b/run", "c"]) == ["a run", "b run", "c"]
    study = ["electra/1/seed-0/run", "electra/1/seed-0/run/export/generator", "bert/1/seed-0/run"]
    assert display_names(study) == ["electra", "electra generator", "bert"]
    assert display_names(["s/electra/1/seed-0/run"]) == ["electra"]
    assert display_names(["electra/1/seed-0/run", "bert/0.5/seed-1/run", "tagger"]) == [
        "electra",
        "bert",
        "tagger",
    ]
    assert display_names(["electra/1/seed-0/run", "electra/1/seed-1/run"]) == ["seed-0 electra", "seed-1 electra"]
    assert display_names(["electra/1/seed-0/run", "electra/0.5/seed-0/run"]) == [
        "1 seed-0 electra",
        "0.5 seed-0 electra",
    ]
    assert display_names(["me/electra/1.0", "/run"]) == ["1.0", "run"], "not runs of a study"
    assert display_names(["me/small", "you/small"]) == ["me small", "you small"]
    assert display_names(["x/run/export/generator", "x/run"]) == ["run generator", "run"]
    assert display_names(["x/run", "x/run", "y"]) == ["run (1)", "run (2)", "y"], "the same model twice"
    assert display_names(["x/tuned/model", "model"]) == ["tuned", "model"]
    monkeypatch.chdir(tmp_path)
    assert display_names(["."]) == [tmp_path.name]
    assert display_names(["generator", "google/electra-small"]) == ["generator", "electra-small"]
