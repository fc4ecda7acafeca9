"""What is left of an encoder in a network that was continued from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from configs import make_encoder_config
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from electra.analysis.encoder_change import (
    ALPHA,
    DOCUMENTS,
    ROW_TOKENS,
    EncoderChange,
    explained_variance,
    measure_encoder_changes,
)
from electra.analysis.held_out_text import sample_document_rows
from electra.data.shards import Split, TokenData
from electra.data.tokenizer import load_tokenizer, special_tokens
from electra.errors import DataError
from electra.export.pretrained import Pretrained


@pytest.fixture(scope="module")
def data(held_out_data: Path) -> TokenData:
    return TokenData.open(held_out_data)


def network(data: TokenData, *, noise: float = 0.0, scale: float = 1.0) -> Pretrained:
    """The same network at each call, but for noise on the weights of its blocks and their scale."""
    torch.manual_seed(0)
    encoder = make_encoder_config(
        layers=2, hidden_size=32, embedding_size=32, feed_forward_size=64, heads=2, max_positions=64,
        vocabulary_size=data.manifest["tokenizer"]["vocabulary_size"], initializer_range=0.5,
        linear_initializer_range=0.5,
    ).build().eval()  # fmt: skip
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.blocks.parameters():
            parameter.mul_(scale).add_(noise * torch.randn_like(parameter))
    return Pretrained(encoder, None, load_tokenizer(data.tokenizer_path), None, 64)


def test_less_is_left_the_more_the_weights_have_changed(data: TokenData) -> None:
    original = network(data)
    changed = [network(data, noise=noise) for noise in (0.0, 0.05, 0.2, 1.0)]
    same, *others = measure_encoder_changes(original, changed, data.heldout)
    assert same.recovered == pytest.approx((1.0, 1.0), abs=1e-3) and same.similarity == pytest.approx((1.0, 1.0))
    shares = [sum(change.recovered) for change in (same, *others)]
    assert shares == sorted(shares, reverse=True) and shares[-1] < 0.8 * shares[0]
    similarities = [sum(change.similarity) for change in (same, *others)]
    assert similarities == sorted(similarities, reverse=True)
    assert all(0 < share < 1 for change in others for share in change.from_tokens)


def test_inputs_are_no_longer_than_those_of_the_training(
    data: TokenData, caplog: pytest.LogCaptureFixture
) -> None:
    original, continued = network(data), replace(network(data, noise=0.05), trained_length=16)
    with caplog.at_level("WARNING", logger="electra"):
        measure_encoder_changes(original, [continued], data.heldout)
    assert not caplog.records


def test_a_network_is_overwritten_when_it_tells_no_more_than_the_token_embeddings(data: TokenData) -> None:
    kept, lost = measure_encoder_changes(
        network(data), [network(data, noise=0.02), network(data, noise=2.0)], data.heldout
    )
    assert not kept.overwritten and lost.overwritten
    # The blocks count together: the last one alone may well have changed.
    assert not EncoderChange((1.0, 0.2), (0.99, 0.1), (0.6, 0.3)).overwritten
    assert EncoderChange((1.0, 0.2), (0.7, 0.1), (0.6, 0.3)).overwritten
    assert EncoderChange((1.0,), (float("nan"),), (0.6,)).overwritten


def test_the_explained_variance_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    x_ND, test_x_MD = (random.normal(3.0, 2.0, (count, 6)).astype(np.float32) for count in (80, 40))
    map_DD = random.normal(size=(6, 4))
    y_ND, test_y_MD = (
        (x @ map_DD + 5 + random.normal(size=(len(x), 4))).astype(np.float32) for x in (x_ND, test_x_MD)
    )
    mean_D, deviation_D = x_ND.mean(0), x_ND.std(0)
    ridge = Ridge(alpha=ALPHA).fit((x_ND - mean_D) / deviation_D, y_ND)
    expected = r2_score(
        test_y_MD, ridge.predict((test_x_MD - mean_D) / deviation_D), multioutput="variance_weighted"
    )
    assert explained_variance(x_ND, y_ND, test_x_MD, test_y_MD) == pytest.approx(expected, abs=1e-5)


def test_one_document_cannot_be_split(data: TokenData) -> None:
    shard = data.heldout.shards[0]
    end = int(shard.document_ends[0])
    one = replace(shard, document_ends=shard.document_ends[:1], sentence_ends=shard.sentence_ends[:end])
    with pytest.raises(DataError, match="only one document"):
        measure_encoder_changes(network(data), [], Split((one,)))


def test_the_map_is_fitted_on_other_documents_than_it_is_tested_on(data: TokenData) -> None:
    """The same figure by hand: row by row, and scikit-learn's ridge regression."""
    original, other = network(data), network(data, noise=0.3)
    [change] = measure_encoder_changes(original, [other], data.heldout)
    rows = sample_document_rows(data.heldout, documents=DOCUMENTS, length=ROW_TOKENS, row=62, seed=0)
    special = special_tokens(original.tokenizer, "x")
    inputs = [torch.tensor([[special.classify, *ids, special.separate]]) for ids in rows.ids]
    with torch.no_grad():
        x_ND, y_ND = (
            torch.cat([one.encoder(ids_1L, None, None)[0, 1:-1] for ids_1L in inputs]).double().numpy()
            for one in (other, original)
        )
    test_N = np.concatenate(
        [np.full(len(ids), document % 2 == 1) for ids, document in zip(rows.ids, rows.documents, strict=True)]
    )
    scaled_ND = (x_ND - x_ND[~test_N].mean(0)) / x_ND[~test_N].std(0)
    ridge = Ridge(alpha=ALPHA).fit(scaled_ND[~test_N], y_ND[~test_N])
    predicted_MD = ridge.predict(scaled_ND[test_N])
    expected = r2_score(y_ND[test_N], predicted_MD, multioutput="variance_weighted")
    assert change.recovered[-1] == pytest.approx(expected, abs=1e-3)
    in_sample = Ridge(alpha=ALPHA).fit(scaled_ND[test_N], y_ND[test_N])
    flattering = r2_score(y_ND[test_N], in_sample.predict(scaled_ND[test_N]), multioutput="variance_weighted")
    assert flattering > expected + 3e-3
