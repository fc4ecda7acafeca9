"""Folders that are not what a verb needs: the message says what they are."""

from pathlib import Path

import pytest

from electra.errors import CheckpointError, ConfigError, DataError
from electra.export.loading import find_model
from electra.preparation.corpus import find_sources
from electra.pretraining.export import export_run
from electra.serving.text_files import check_suffix


def test_prepared_data_is_neither_a_model_nor_a_corpus(tmp_path: Path) -> None:
    for name in ("manifest.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match="is prepared data, not a model; give a run that was trained on it"):
        find_model(tmp_path)
    with pytest.raises(DataError, match="is prepared data already, not text; give it to electra pretrain --data"):
        find_sources([str(tmp_path)], out=tmp_path / "out")


def test_a_missing_folder_in_an_existing_one_is_not_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(CheckpointError, match="there is no folder run/onnx; give a run, an export"):
        find_model("run/onnx")
    with pytest.raises(CheckpointError, match=r"is not a model: .*\n  give a run, an export"):
        find_model("run")


@pytest.mark.parametrize("folder", [".", "model"])
def test_only_runs_are_exported(folder: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint; give the folder of a run"):
        export_run(tmp_path)
    with pytest.raises(CheckpointError, match="none: there is no such folder; give the folder of a run"):
        export_run(tmp_path / "none")
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "config.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"not the folder of a run: .* is a Hugging Face or ONNX folder already"
    ):
        export_run(tmp_path)


def test_another_ending_of_an_output_file_is_refused() -> None:
    check_suffix(Path("scores.JSONL"), (".jsonl",))
    with pytest.raises(ConfigError, match=r"--output: s.xyz must end in .jsonl$"):
        check_suffix(Path("s.xyz"), (".jsonl",))
    with pytest.raises(ConfigError, match=r"--output: s.xyz must end in .jsonl, .csv or .tsv$"):
        check_suffix(Path("s.xyz"), (".jsonl", ".csv", ".tsv"))
