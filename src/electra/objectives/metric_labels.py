"""The names of metrics for people: in console lines, tables, figures, reports and model cards."""

METRIC_LABELS = {
    "loss": "training loss",
    "discriminator_auc": "AUC on replaced tokens",
    "unigram_auc": "AUC on unigram fakes",
    "discriminator_precision": "discriminator precision at 0.5",
    "discriminator_recall": "discriminator recall at 0.5",
    "majority_loss": "loss of the majority class",
    "replaced_share": "fraction of replaced tokens",
    "masked_lm_accuracy": "masked-LM accuracy",
    "masked_lm_sample_accuracy": "masked-LM accuracy of samples",
    "masked_lm_loss": "masked-LM loss",
    "generator_entropy": "masked-LM entropy (nats)",
    "encoder_masked_lm_accuracy": "masked-LM accuracy, large network",
    "restored_accuracy": "accuracy at chosen positions",
    "restored_loss": "loss at chosen positions",
    "filled_accuracy": "accuracy at [MASK]",
    "filled_loss": "loss at [MASK]",
    "perplexity": "perplexity per token",
    "language_model_accuracy": "next-token accuracy",
    "language_model_loss": "next-token loss",
    "permutation_lm_accuracy": "permutation-LM accuracy",
    "permutation_lm_loss": "permutation-LM loss",
    "sentence_loss": "segment-pair loss",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "span_f1": "span F1",
    "f0.5": "F0.5",
    "matthews": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "error": "mean absolute error",
    "exact": "exact match",
    "HasAns_exact": "exact match, answerable",
    "HasAns_f1": "F1, answerable",
    "NoAns_exact": "exact match, unanswerable",
    "NoAns_f1": "F1, unanswerable",
    "best_exact": "best exact match",
    "best_threshold": "threshold of the best exact match",
    "best_f1": "best F1",
    "best_f1_threshold": "threshold of the best F1",
}
"""By the key in metrics.jsonl without eval/, or in results.json. Other metrics have their key in words."""


def metric_label(key: str) -> str:
    """The label of a metric; of a part of one, such as span_f1/PER, with the name of that part."""
    name, _, part = key.removeprefix("eval/").partition("/")
    label = METRIC_LABELS.get(name) or name.replace("_", " ")
    return f"{label} of {part}" if part else label


def loss_label(key: str, *, has_generator: bool) -> str:
    """The label of a loss in training. That of a masked language model has the key of a generator's.

    Args:
        has_generator: whether the objective has a generator.
    """
    return metric_label("masked_lm_loss" if key == "generator_loss" and not has_generator else key)
