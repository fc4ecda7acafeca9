"""A run whose discriminator also fills masks is exported with two heads, which stock tools read."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_run import config

import electra
from electra.cli import main
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError
from electra.export.huggingface import _rounded
from electra.export.loading import find_generator, find_masked_lm, load_pretrained
from electra.export.parity import TOLERANCE
from electra.modeling.heads import MaskedLanguageModelHead
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.run import pretrain
from electra.pretraining.vocabulary_transfer import find_sources

MODERN = "model.kind=modernbert", "model.type_vocabulary_size=1", "packing.one_segment_share=1.0"


@pytest.mark.parametrize("network", [MODERN, ("model.embedding_size=32",)], ids=["modern", "bert"])
def test_it_scores_and_fills_masks(network: tuple[str, ...], data_folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    exported = pretrain(
        config(
            data_folder, tmp_path / "run", *network, "objective.fakes=unigram", "objective.keep_masked_share=0.5",
            "objective.correction_weight=1.0", "objective.correction_negatives=8", "train.steps=12",
        )
    ).exported  # fmt: skip
    assert exported is not None and set(exported.folders) == {"discriminator", "encoder"}
    assert all(difference is not None and difference < TOLERANCE for difference in exported.differences.values())
    [scored] = electra.load(tmp_path / "run").score(["The cat sat on the mat."])
    assert len(scored.tokens) == len(scored.probabilities) > 5
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported.folders["encoder"])
    if network == MODERN:
        assert type(model).__name__ == "ModernBertForMaskedLM"
    table_VE = electra.load(exported.folders["discriminator"]).encoder.embeddings.token.weight
    same = [torch.equal(one, table_VE) for one in model.parameters() if one.shape == table_VE.shape]
    assert any(same), "one network"
    card = (exported.folders["encoder"] / "README.md").read_text()
    assert 'pipeline("fill-mask", model=".")' in card


PLUS = (
    "objective.fakes=unigram", "objective.keep_masked_share=0.5", "objective.correction_weight=1.0",
    "train.steps=2",
)  # fmt: skip


def filling_head(run: Path, name: str = "encoder") -> dict[str, torch.Tensor]:
    head = load_pretrained(run / "export" / name).head
    assert isinstance(head, MaskedLanguageModelHead)
    return head.state_dict()


def continue_without_training(data: Path, out: Path, model: Path | str, *overrides: str) -> Path:
    """A run that starts from a model and changes next to nothing."""
    still = "optimizer.learning_rate=1e-12", f"init.discriminator={model}"
    return pretrain(config(data, out, *MODERN, *PLUS, *still, *overrides)).run


@pytest.fixture(scope="module")
def plus(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrain(config(data_folder, tmp_path_factory.mktemp("runs") / "plus", *MODERN, *PLUS)).run


@pytest.fixture(scope="module")
def masked(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = "objective.kind=masked-lm", "train.steps=2"
    return pretrain(config(data_folder, tmp_path_factory.mktemp("runs") / "masked", *MODERN, *settings)).run


@pytest.mark.parametrize("source", ["run", "export/discriminator", "masked"])
def test_a_network_is_continued_with_its_head(
    source: str, plus: Path, masked: Path, data_folder: Path, tmp_path: Path
) -> None:
    model = masked if source == "masked" else plus if source == "run" else plus / source
    run = continue_without_training(data_folder, tmp_path / "run", model)
    for key, tensor in filling_head(run).items():
        expected = filling_head(masked if source == "masked" else plus)[key]
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-6)
    log = (run / "log.txt").read_text()
    assert "the head that fills masks is pre-trained" in log and "not used of" not in log


@pytest.mark.parametrize("source", ["plus", "masked"])
def test_its_bias_is_transferred_to_another_vocabulary_once(
    source: str, plus: Path, masked: Path, corpus_file: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    prepare(PrepareConfig(corpus=(str(corpus_file),), out=data, model="bpe", vocabulary_size=700, workers=1))
    first = plus if source == "plus" else masked
    run = continue_without_training(data, tmp_path / "run", first, "init.vocabulary=transfer")
    old = filling_head(first)
    tokenizers = (load_tokenizer(folder / "export/encoder/tokenizer.json") for folder in (first, run))
    means = [
        torch.stack([old["bias"][piece] for piece in pieces]).mean() if pieces else old["bias"].mean()
        for pieces in find_sources(*tokenizers).pieces
    ]
    new = filling_head(run)
    assert len(means) == len(new["bias"]) != len(old["bias"])
    torch.testing.assert_close(new.pop("bias"), torch.stack(means), rtol=0, atol=1e-6)
    for key, tensor in new.items():
        torch.testing.assert_close(tensor, old[key], rtol=0, atol=1e-6)


def test_the_head_of_another_network_beside_it_is_not_taken(
    plus: Path, data_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = tmp_path / "first"
    shutil.copytree(plus, first)
    other = pretrain(config(data_folder, tmp_path / "other", *MODERN, *PLUS, "train.seed=1")).run
    shutil.rmtree(first / "export" / "encoder")
    run = continue_without_training(data_folder, tmp_path / "without", first)
    assert "the head that fills masks is fresh" in (run / "log.txt").read_text()
    shutil.copytree(other / "export" / "encoder", first / "export" / "encoder")
    run = continue_without_training(data_folder, tmp_path / "mixed", first)
    assert "is another network than the discriminator beside it" in caplog.text
    assert "the head that fills masks is fresh" in (run / "log.txt").read_text()


def test_weights_are_stored_in_float16_and_computed_with_in_float32(data_folder: Path, tmp_path: Path) -> None:
    pretrain(config(data_folder, tmp_path / "run", "train.steps=2"))
    half = tmp_path / "half"
    assert main(["export", str(tmp_path / "run"), "--dtype", "float16", "--out", str(half)]) == 0
    for network in ("discriminator", "generator"):
        stored = load_file(half / network / "model.safetensors")
        full = load_file(tmp_path / "run/export" / network / "model.safetensors")
        assert stored.keys() == full.keys()
        for name, tensor in stored.items():
            torch.testing.assert_close(tensor, full[name].half(), rtol=0, atol=0)
        assert "stored in float16" in (half / network / "README.md").read_text()
        weights = electra.load(half / network).encoder.embeddings.token.weight
        assert weights.dtype == torch.float32 and torch.equal(weights, weights.half().float())
    transformers = pytest.importorskip("transformers")
    assert transformers.AutoModel.from_pretrained(half / "discriminator").dtype == torch.float32


def test_what_float16_cannot_hold_is_refused(
    data_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(config(data_folder, tmp_path / "run", *MODERN, "model.embedding_size=16", "train.steps=1"))
    export = ["export", str(tmp_path / "run"), "--dtype", "float16", "--out", str(tmp_path / "half")]
    assert main(export) == 2
    assert "stored as a product of two cannot be rounded" in " ".join(capsys.readouterr().err.split())
    assert main([*export, "--to", "onnx"]) == 2
    assert "--dtype is for hf; for ONNX give --quantize int8" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="name has numbers that are too large"):
        _rounded("name", torch.tensor([1e6]), torch.float16)


def test_its_proposals_come_from_the_other_head_and_it_is_no_generator(data_folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    export = run / "export"
    for name in ("discriminator", "encoder"):
        (export / name).mkdir(parents=True)
        (export / name / "config.json").write_text("{}")
    for model in (run, export, export / "discriminator"):
        assert find_masked_lm(model) == export / "encoder" and find_generator(model) is None
    assert find_masked_lm(export / "encoder") is None
    (export / "discriminator" / "config.json").unlink()
    assert find_masked_lm(run) is None, "the only network of a masked language model"
