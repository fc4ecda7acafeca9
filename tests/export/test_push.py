"""Uploads to the Hugging Face hub, with a hub that only writes down what it gets."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi
from small_model import write_model
from small_run import command

from electra.cli import main
from electra.errors import ConfigError
from electra.export.push import push_folder

NAMES = {"README.md", "config.json", "model.safetensors", "special_tokens_map.json", "tokenizer.json",
         "tokenizer_config.json"}  # fmt: skip


class FakeHub:
    """The calls of HfApi in order, and the files of the commit."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        self.files: dict[str, bytes] = {}

    def create_repo(self, repository: str, **options: Any) -> None:
        self.calls.append(("create", repository, options))

    def create_commit(self, repository: str, operations: list[Any], **options: Any) -> Any:
        self.calls.append(("commit", repository, options))
        self.files = {one.path_in_repo: Path(one.path_or_fileobj).read_bytes() for one in operations}
        return SimpleNamespace(commit_url=f"https://hub/{repository}/commit/1")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub()
    monkeypatch.setattr(HfApi, "create_repo", fake.create_repo)
    monkeypatch.setattr(HfApi, "create_commit", fake.create_commit)
    return fake


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = write_model(tmp_path / "model")
    (folder / ".secret").write_text("hidden")
    (folder / "onnx").mkdir()
    return folder


def test_an_upload_is_one_commit_of_the_files(hub: FakeHub, model: Path) -> None:
    upload = push_folder(model, "me/small")
    assert hub.calls == [
        ("create", "me/small", {"private": True, "exist_ok": True}),
        ("commit", "me/small", {"commit_message": "Upload a model"}),
    ]
    assert hub.files.keys() >= NAMES and not hub.files.keys() & {".secret", "onnx"}
    assert all((model / name).read_bytes() == content for name, content in hub.files.items())
    assert upload.sizes == {name: len(content) for name, content in hub.files.items()}
    assert "https://hub/me/small/commit/1" in str(upload)


def test_a_dry_run_lists_the_files_and_contacts_nobody(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("somebody was contacted"))
    before = sorted(model.rglob("*"))
    assert main(["export", str(model), "--push", "me/small", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "nothing was sent" in printed
    assert f"{(model / 'model.safetensors').stat().st_size:,} bytes  model.safetensors" in printed
    assert sorted(model.rglob("*")) == before


@pytest.mark.parametrize("name", ["a/b/c", "me/sp ace", "me/..", ""])
def test_a_name_that_the_hub_does_not_allow_is_refused(hub: FakeHub, model: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"push: .* is no OWNER/NAME of the hub: "):
        push_folder(model, name)
    assert not hub.calls


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_name_without_an_owner_is_refused_before_the_export(
    hub: FakeHub, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    monkeypatch.setattr("electra.commands.export._export", lambda *_: pytest.fail("it was exported"))
    assert main(["export", str(model), "--to", "onnx", "--push", "small", *more]) == 2
    assert "push: 'small' has no owner; give OWNER/small" in " ".join(capsys.readouterr().err.split())
    assert not hub.calls


def test_a_hub_that_refuses_is_an_error_in_words(
    hub: FakeHub, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("401 Client Error\nmore lines")

    monkeypatch.setattr(HfApi, "create_repo", refuse)
    with pytest.raises(ConfigError, match=r"me/small could not be written: 401 Client Error\n.*HF_TOKEN"):
        push_folder(model, "me/small")


def test_only_local_models_are_uploaded(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "google/electra-small-discriminator", "--push", "me/small"]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["export", "wiki-tiny", "--dry-run"]) == 2
    assert "--dry-run is for --push" in capsys.readouterr().err
    assert not hub.calls


def test_the_models_beside_an_uploaded_one_are_named(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("encoder", "averaged", "of-somebody-else"):
        write_model(tmp_path / f"{name}-").rename(tmp_path / name)
    assert main(["export", str(tmp_path / "averaged"), "--push", "me/small"]) == 0
    assert "the folder averaged alone, without encoder beside it;" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "of-somebody-else"), "--push", "me/small"]) == 0
    assert "beside it" not in capsys.readouterr().err


def test_a_run_is_exported_and_its_discriminator_uploaded(
    hub: FakeHub, data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(command(data_folder, run, "--train.steps", "2")) == 0
    out = ["--out", str(tmp_path / "early")]
    assert main(["export", str(run), *out, "--push", "me/early", "--dry-run"]) == 0
    assert not (tmp_path / "early").exists() and not hub.calls
    said = "the upload is the folder discriminator alone, without generator beside it; to upload another folder"
    assert said in capsys.readouterr().err
    assert main(["export", str(run), *out, "--push", "me/early"]) == 0
    weights = tmp_path / "early" / "discriminator" / "model.safetensors"
    assert hub.files["model.safetensors"] == weights.read_bytes()
    assert "uploaded to me/early" in capsys.readouterr().out
    assert main(["export", str(run), "--to", "onnx", "--push", "me/onnx"]) == 0
    assert hub.files["model.onnx"] == (run / "export" / "onnx" / "discriminator" / "model.onnx").read_bytes()
