"""The names of metrics and losses for people."""

import pytest

from electra.objectives.metric_labels import loss_label, metric_label


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("eval/unigram_auc", "AUC on unigram fakes"),
        ("eval/discriminator_average_precision", "discriminator average precision"),
        ("span_f1", "span F1"),
        ("eval/span_f1", "span F1"),
        ("span_f1/PER", "span F1 of PER"),
        ("f0.5", "F0.5"),
        ("matthews", "Matthews correlation"),
        ("my_own", "my own"),
    ],
)
def test_metrics_of_pre_training_and_of_tasks_have_one_table(key: str, label: str) -> None:
    assert metric_label(key) == label


def test_the_loss_of_a_masked_language_model_is_no_generators() -> None:
    assert loss_label("generator_loss", has_generator=True) == "generator loss"
    assert loss_label("generator_loss", has_generator=False) == "masked-LM loss"
    assert loss_label("sentence_loss", has_generator=False) == "segment-pair loss"
