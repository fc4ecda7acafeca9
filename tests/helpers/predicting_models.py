"""Fine-tuned models of every kind, with random heads that give different predictions for different texts."""

from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer

from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.task_heads import TextHead
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import Problem
from electra.tasks.classification import Classification
from electra.tasks.conll import Sentence
from electra.tasks.multilabel import Multilabel
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.regression import Regression
from electra.tasks.tagging import build_tagging_task

TEXTS = ["the cat sat on the mat", "a dog", "my homework, ate a dog", "on the mat", "a cat sat"]
PAIRS = [("a dog sat", "the mat"), ("my cat", "a homework on the mat"), ("on", "my homework ate the cat")]
TAGGED = Sentence(("a", "dog", "cat"), ("O", "B-PET", "B-CAT"), "a.txt", 1)
PROBLEMS: dict[str, Problem] = {
    "labels": Classification(("accuracy",), labels=("bad", "good", "fair")),
    "pair": Classification(("accuracy",), pair=True, labels=("no", "yes")),
    "multilabel": Multilabel(("micro_f1",), labels=("sea", "land", "sky")),
    "regression": Regression(("error",), low=1.0, high=5.0),
    "tagging": build_tagging_task("pets", {"train": [TAGGED]}).problem,
    "answering": QuestionAnswering(max_question=8, stride=8),
}

Models = Callable[[str], str]


def mean_logits(encoder: BertEncoder, head: TextHead, tokenizer: Tokenizer) -> torch.Tensor:
    rows = [torch.tensor([tokenizer.encode(text).ids]) for text in TEXTS]
    return torch.stack([head.eval()(encoder.eval()(ids_BL))[0] for ids_BL in rows]).mean(0)


def write_models(folder: Path) -> Models:
    """A function that returns the folder of a model by its name in `PROBLEMS`, and writes it first if needed."""
    train_tokenizer(TEXTS * 5, vocabulary_size=90).save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    config = BertConfig(
        layers=1, hidden_size=16, embedding_size=16, feed_forward_size=32, heads=2, max_positions=40,
        vocabulary_size=90, initializer_range=1.0, linear_initializer_range=1.0,
    )  # fmt: skip
    encoder = BertEncoder(config)

    def model(name: str) -> str:
        if not (folder / name).exists():
            problem = PROBLEMS[name]
            torch.manual_seed(1)
            head = problem.build_head(config)
            if isinstance(head, TextHead):
                with torch.no_grad():  # so that no label is always the most likely
                    head.prediction.bias -= mean_logits(encoder, head, load_tokenizer(folder / "tokenizer.json"))
            huggingface.save(
                folder / name / "model", encoder=encoder, head=head, card="", task=problem.to_dict(),
                tokenizer_json=folder / "tokenizer.json",
            )  # fmt: skip
        return str(folder / name)

    return model
