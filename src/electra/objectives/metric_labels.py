"""The names of metrics for people: in console lines, tables, figures, reports and model cards."""

from collections.abc import Collection

METRIC_LABELS = {
    "eval/discriminator_auc": "AUC on replaced tokens",
    "eval/unigram_auc": "AUC on unigram fakes",
    "eval/discriminator_average_precision": "discriminator average precision",
    "eval/discriminator_precision": "discriminator precision at 0.5",
    "eval/discriminator_recall": "discriminator recall at 0.5",
    "eval/discriminator_loss": "discriminator loss",
    "eval/majority_loss": "loss of the majority class",
    "eval/replaced_share": "fraction of replaced tokens",
    "eval/masked_lm_accuracy": "masked-LM accuracy",
    "eval/masked_lm_sample_accuracy": "masked-LM accuracy of samples",
    "eval/masked_lm_loss": "masked-LM loss",
    "eval/generator_entropy": "masked-LM entropy (nats)",
    "eval/encoder_masked_lm_accuracy": "masked-LM accuracy, large network",
    "eval/restored_accuracy": "accuracy at chosen positions",
    "eval/restored_loss": "loss at chosen positions",
    "eval/filled_accuracy": "accuracy at [MASK]",
    "eval/filled_loss": "loss at [MASK]",
    "eval/perplexity": "perplexity per token",
    "eval/language_model_accuracy": "next-token accuracy",
    "eval/language_model_loss": "next-token loss",
    "eval/permutation_lm_accuracy": "permutation-LM accuracy",
    "eval/permutation_lm_loss": "permutation-LM loss",
    "loss": "training loss",
    "generator_loss": "generator loss",
    "discriminator_loss": "discriminator loss",
    "encoder_loss": "encoder loss",
    "correction_loss": "correction loss",
    "adversarial_loss": "adversarial loss",
    "baseline_loss": "baseline loss",
    "sentence_loss": "segment-pair loss",
    "language_model_loss": "language-model loss",
    "permutation_lm_loss": "permutation-LM loss",
}
"""By the key in metrics.jsonl."""


BESIDE_GENERATOR = ("discriminator_loss", "encoder_loss")
"""The losses of the network for which a generator makes replacements."""


def metric_label(key: str) -> str:
    """The label of a metric; of an unknown one its key in words."""
    return METRIC_LABELS.get(key) or key.removeprefix("eval/").replace("_", " ")


def is_masked_lm(loss: str, measured: Collection[str]) -> bool:
    """Whether a loss is that of a masked language model that is trained alone: it has the key of a generator.

    Args:
        measured: the keys of everything that was measured in the same steps or the same run.
    """
    return loss == "generator_loss" and not any(name in measured for name in BESIDE_GENERATOR)
