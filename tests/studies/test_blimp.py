"""BLiMP's accuracy of a run: by the discriminator, and by the masked language model of the same size."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_model import TEXTS, write_model

from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.likelihood import load_likelihood_scorer
from electra.studies.runs import BLIMP_SCORES, _score_blimp


@pytest.mark.parametrize(("key", "head"), [("blimp", {}), ("blimp_pll", {"head": MaskedLanguageModelHead})])
def test_each_network_counts_by_its_own_score(key: str, head: dict[str, Any], tmp_path: Path) -> None:
    network, names = BLIMP_SCORES[key]
    model = write_model(tmp_path / network, **head)
    setup: Any = SimpleNamespace(tasks=tmp_path, device="cpu")
    assert _score_blimp(setup, model, names) is None, "no files"
    (tmp_path / "blimp").mkdir()
    pairs = [{"sentence_good": good, "sentence_bad": bad} for good in TEXTS for bad in TEXTS if good != bad]
    (tmp_path / "blimp/one.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    scores = dict(zip(TEXTS, load_likelihood_scorer(model, device="cpu")(TEXTS).scores[names[0]], strict=True))
    better = sum(scores[pair["sentence_good"]] > scores[pair["sentence_bad"]] for pair in pairs)
    assert _score_blimp(setup, model, names) == pytest.approx(better / len(pairs))
    assert _score_blimp(setup, tmp_path / "none", names) is None, "no such network"
    (other,) = {one for one in BLIMP_SCORES if one != key}
    assert _score_blimp(setup, model, BLIMP_SCORES[other][1]) is None, "no such score"
