"""A run whose discriminator also fills masks is exported as two networks that stock tools read."""

from pathlib import Path

import pytest
import torch
from small_run import config

import electra
from electra.export.loading import find_generator
from electra.pretraining.run import pretrain


def test_it_scores_and_fills_masks(data_folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    exported = pretrain(
        config(
            data_folder, tmp_path / "run", "model.kind=modernbert", "model.type_vocabulary_size=1",
            "packing.one_segment_share=1.0", "objective.fakes=unigram", "objective.keep_masked_share=0.5",
            "objective.correction_weight=1.0", "objective.correction_negatives=8", "train.steps=12",
        )
    ).exported  # fmt: skip
    assert exported is not None and set(exported.folders) == {"discriminator", "generator"}
    assert all(difference is not None and difference < 1e-4 for difference in exported.differences.values())
    assert find_generator(tmp_path / "run") == tmp_path / "run" / "export" / "generator"
    [scored] = electra.load(tmp_path / "run").score(["The cat sat on the mat."])
    assert len(scored.tokens) == len(scored.probabilities) > 5
    model = transformers.AutoModelForMaskedLM.from_pretrained(exported.folders["generator"])
    encoder = transformers.AutoModelForTokenClassification.from_pretrained(exported.folders["discriminator"]).model
    weights = dict(model.model.named_parameters())
    assert all(torch.equal(weights[name], one) for name, one in encoder.named_parameters()), "one network"
