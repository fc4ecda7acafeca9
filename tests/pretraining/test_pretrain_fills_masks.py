"""A run whose discriminator also fills masks is exported with two heads, which stock tools read."""

from pathlib import Path

import pytest
import torch
from small_run import config

import electra
from electra.export.loading import find_generator, find_masked_lm
from electra.export.parity import TOLERANCE
from electra.pretraining.run import pretrain

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
