"""The predictions of a masked language model for single positions."""

from pathlib import Path

import numpy as np
import pytest
from small_model import TEXTS, write_model

from electra.data.tokenizer import vocabulary_size
from electra.errors import CheckpointError
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.fill_mask import FillMask, MaskQuery


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def proposer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FillMask:
    folder = tmp_path_factory.mktemp("proposals") / "model"
    return FillMask(write_model(folder, kind=request.param, head=MaskedLanguageModelHead), device="cpu")


def test_all_probabilities_sum_to_one_without_special_tokens(proposer: FillMask) -> None:
    ids = proposer.tokenizer.encode(TEXTS[0], add_special_tokens=False).ids
    (actual,) = proposer([MaskQuery(ids, 1, top_k=400)])
    assert sum(p for _, p in actual.proposals) == pytest.approx(1, abs=1e-4)
    falling = [p for _, p in actual.proposals]
    assert falling == sorted(falling, reverse=True)
    likely = [token for token, p in actual.proposals if p > 0]
    assert not any(token.startswith("[") and token.endswith("]") for token in likely)
    assert actual.probability in falling
    assert len(falling) == vocabulary_size(proposer.tokenizer) < 400  # the other rows pad the table


def test_predictions_are_in_the_order_of_the_queries(proposer: FillMask) -> None:
    every = [
        MaskQuery(proposer.tokenizer.encode(text, add_special_tokens=False).ids, place)
        for text in TEXTS
        for place in (2, 0)
    ]
    together = proposer(every)
    for place, actual in zip(every, together, strict=True):
        (alone,) = proposer([place])
        assert [token for token, _ in alone.proposals] == [token for token, _ in actual.proposals]
        assert alone.probability == pytest.approx(actual.probability, abs=1e-5)


def test_the_context_of_a_position_in_a_long_text(proposer: FillMask) -> None:
    ids = proposer.tokenizer.encode(" ".join(TEXTS * 20), add_special_tokens=False).ids
    size = proposer.predictor.batcher.max_tokens
    for place in (0, len(ids) // 2, len(ids) - 1):
        start = min(max(0, place - size // 2), len(ids) - size)
        window, position = ids[start : start + size], place - start
        assert proposer([MaskQuery(ids, place)]) == proposer([MaskQuery(window, position)])
        [(_, _, log_probabilities_1V)] = proposer.predictor([window], [np.array([position])])
        odds_V = log_probabilities_1V[0, : vocabulary_size(proposer.tokenizer)].exp()
        odds_V[list(proposer.predictor.batcher.special.ids)] = 0
        [actual] = proposer([MaskQuery(ids, place)])
        assert actual.probability == pytest.approx(float(odds_V[ids[place]] / odds_V.sum()), rel=1e-4)


def test_a_discriminator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="predicts no masked tokens"):
        FillMask(write_model(tmp_path / "model"))
