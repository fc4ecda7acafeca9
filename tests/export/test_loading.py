"""A MODEL is found in a run, an export or on the hub; what is none is explained."""

import subprocess
import sys

import pytest
import torch

from electra.errors import CheckpointError, MissingExtraError
from electra.export import loading
from electra.modeling.heads import MaskedLanguageModelHead


def test_a_model_is_found_in_a_run_and_its_export(export, tmp_path) -> None:  # type: ignore[no-untyped-def]
    run = tmp_path / "run"
    discriminator = export("discriminator", run / "export/discriminator")
    generator = export("generator", run / "export/generator")
    for model in (run, str(run), run / "export", discriminator):
        assert loading.find_model(model) == discriminator
    assert isinstance(loading.load_pretrained(generator).head, MaskedLanguageModelHead)
    encoder, tokenizer = loading.load(run)
    ids_BL = torch.tensor([tokenizer.encode("the cat").ids])
    assert encoder(ids_BL).shape == (1, ids_BL.shape[1], 32)


def test_loading_a_model_does_not_load_the_compiler(export) -> None:  # type: ignore[no-untyped-def]
    script = "import sys, electra; electra.load(sys.argv[1]); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, export()], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", "importing the compiler takes a second or two"


def test_messages_about_paths_that_are_not_models(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    run = tmp_path / "run"
    checkpoint = run / "checkpoints/step-00000100"
    checkpoint.mkdir(parents=True)
    (run / "config.toml").write_text("")
    (checkpoint / "state.json").write_text("{}")
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "empty").mkdir()
    for model, message in (
        (run, f"electra export {run}"),
        (checkpoint, f"electra export {run} --checkpoint step-00000100"),
        (tmp_path / "file.txt", "is a file"),
        (tmp_path / "empty", "is not a model"),
        (tmp_path / "nowhere", "there is no folder"),
        ("./some/where", "there is no folder"),
    ):
        with pytest.raises(CheckpointError) as caught:
            loading.load(model)
        assert message in str(caught.value)


def test_an_id_is_downloaded(export, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    hub = pytest.importorskip("huggingface_hub")
    folder = export()
    downloads = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        downloads.append((name, allow_patterns))
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    loading.load("someone/a-model")
    assert [name for name, _ in downloads] == ["someone/a-model"] and "model.safetensors" in downloads[0][1]
    assert not any("bin" in pattern for pattern in downloads[0][1])


def test_an_id_without_network_or_library_says_what_to_do(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    hub = pytest.importorskip("huggingface_hub")

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    with pytest.raises(CheckpointError, match=r"someone/a-model cannot be downloaded from .*: no route to host"):
        loading.load("someone/a-model")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r'pip install "electra\[hub\]"'):
        loading.load("someone/a-model")
