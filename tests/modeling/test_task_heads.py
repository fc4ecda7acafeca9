"""Heads for texts, in the form of the paper and of transformers, and heads for tokens."""

import pytest
import torch

from electra.modeling.encoders.bert import BertConfig
from electra.modeling.task_heads import ConditionalSpanHead, SpanHead, TextHead, TokenHead

CONFIG = BertConfig(hidden_size=16, dropout=0.5)


@pytest.mark.parametrize("outputs", [1, 3, 8])
def test_a_linear_head_has_the_same_function_with_a_hidden_layer(outputs: int) -> None:
    torch.manual_seed(0)
    head = TextHead(CONFIG, outputs, hidden=False).double().eval()
    torch.nn.init.normal_(head.prediction.bias)
    hidden = head.with_hidden(CONFIG)
    assert hidden is not None and hidden.dense is not None and not hidden.training
    x_B1D = 5 * torch.randn(200, 1, 16, dtype=torch.float64)
    logits_BK = hidden.double()(x_B1D)
    # the copy was rounded to float32
    assert torch.allclose(logits_BK, head.float().double()(x_B1D), atol=1e-12, rtol=0)
    assert hidden.with_hidden(CONFIG) is hidden


def test_more_labels_than_half_the_units_have_no_hidden_form() -> None:
    assert TextHead(CONFIG, 9, hidden=False).with_hidden(CONFIG) is None


def test_the_text_head_reads_the_first_state_only() -> None:
    for hidden in (False, True):
        head = TextHead(CONFIG, 3, hidden=hidden).eval()
        x_BLD = torch.randn(4, 7, 16)
        logits_BK = head(x_BLD)
        assert logits_BK.shape == (4, 3) and torch.equal(logits_BK, head(x_BLD[:, :1]))
        assert head.reads_first_only


def test_dropout_is_active_only_while_training() -> None:
    torch.manual_seed(0)
    x_BLD = torch.randn(4, 7, 16)
    for head in (TextHead(CONFIG, 3, hidden=False), TextHead(CONFIG, 3, hidden=True), TokenHead(CONFIG, 3)):
        assert not torch.equal(head(x_BLD), head(x_BLD))
        head.eval()
        assert torch.equal(head(x_BLD), head(x_BLD))


def test_token_heads_give_logits_for_each_token() -> None:
    x_BLD = torch.randn(2, 5, 16)
    for head, outputs in ((TokenHead(CONFIG, 4).eval(), 4), (SpanHead(CONFIG).eval(), 2)):
        logits_BLK = head(x_BLD)
        assert logits_BLK.shape == (2, 5, outputs) and not head.reads_first_only
        expected_K = head.prediction.weight @ x_BLD[1, 3] + head.prediction.bias
        assert torch.allclose(logits_BLK[1, 3], expected_K, atol=1e-5)


def test_weights_have_glorot_initialization_and_biases_are_zero() -> None:
    torch.manual_seed(0)
    head = TextHead(BertConfig(hidden_size=256), 2, hidden=True)
    assert head.dense is not None
    for layer in (head.dense, head.prediction):
        deviation = (2 / (layer.in_features + layer.out_features)) ** 0.5
        assert 0.9 < float(layer.weight.detach().std()) / deviation < 1.1
        assert float(layer.weight.detach().abs().max()) <= 3**0.5 * deviation and not layer.bias.any()


def test_no_answer_is_predicted_from_cls_and_the_expected_start() -> None:
    torch.manual_seed(0)
    head = ConditionalSpanHead(CONFIG, answerable=True).eval()
    x_BLD, start_BL = torch.randn(2, 5, 16), torch.randn(2, 5)
    found_B = head.answerable_logits(x_BLD, start_BL)
    assert head.answerable_dense is not None and head.answerable is not None
    for x_LD, start_L, found in zip(x_BLD, start_BL, found_B, strict=True):
        expected_D = sum(share * x_D for share, x_D in zip(start_L.softmax(0), x_LD, strict=True))
        hidden = torch.nn.functional.gelu(head.answerable_dense(torch.cat([x_LD[0], expected_D])))
        torch.testing.assert_close(found, head.answerable(hidden)[0])
