"""Loaded models with random weights, biases and norms: every kind of encoder, and every kind of problem."""

from collections.abc import Callable
from typing import Any

import torch
from configs import make_encoder_config
from small_model import LENGTH, TEXTS

from electra.export.pretrained import Pretrained
from electra.modeling.encoders.base import EncoderConfig
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import Problem
from electra.tasks.classification import Classification
from electra.tasks.conll import Sentence
from electra.tasks.multilabel import Multilabel
from electra.tasks.question_answering import QuestionAnswering
from electra.tasks.regression import Regression
from electra.tasks.tagging import build_tagging_task
from electra.tasks.task_model import TaskModel

SHAPES: dict[str, dict[str, Any]] = {
    "electra": {},
    "one segment, square": {"embedding_size": 32, "type_vocabulary_size": 1, "activation": "silu"},
    "albert": {"share_layers": "all", "activation": "gelu_tanh"},
    "xlnet": {"kind": "relative", "embedding_size": 32},
    "to the left": {
        "kind": "relative", "embedding_size": 32, "direction": "left", "type_vocabulary_size": 1,
        "activation": "relu", "memory_length": 8,
    },
    # Local windows of one, of several and of a part of a row; the last block is local, global or between.
    "modernbert": {"kind": "modernbert", "local_window": 4, "layers": 4, "activation": "gelu"},
    "modernbert, square": {
        "kind": "modernbert", "embedding_size": 32, "local_window": 16, "layers": 3, "bias": True,
        "norm_bias": True,
    },
    "toward modernbert": {
        "kind": "modernbert", "norm": "post", "position_encoding": "learned", "gated_feed_forward": False,
        "type_vocabulary_size": 2, "local_window": 6, "global_every": 2, "final_norm": False,
    },
    "deberta": {"kind": "deberta", "position_buckets": 8, "activation": "gelu", "type_vocabulary_size": 0},
    "deberta, v2": {
        "kind": "deberta", "embedding_size": 32, "position_buckets": 0, "max_positions": 8, "activation": "gelu",
        "convolution_width": 3, "convolution_activation": "tanh", "share_position_projections": False,
        "relative_norm": False,
    },
}  # fmt: skip
PAIRS = [("The cat sat", "a dog"), ("A dog ate my homework, twice", "the mat the mat"), ("on", "the homework")]
LABELS = ("bad", "fair", "good")
TAGGED = build_tagging_task("x", {"train": [Sentence(("a", "dog"), ("O", "B-PET"), "a.txt", 1)]}).problem
PROBLEMS: dict[str, tuple[Problem, list[Any]]] = {
    "linear": (Classification(("accuracy",), labels=LABELS), TEXTS),
    "hidden": (Classification(("accuracy",), "hidden", labels=LABELS), TEXTS),
    "pair": (Classification(("accuracy",), pair=True, labels=LABELS), PAIRS),
    "multilabel": (Multilabel(("micro_f1",), labels=LABELS), TEXTS),
    "regression": (Regression(("error",), low=2.0, high=9.0), TEXTS),
    "tagging": (TAGGED, TEXTS),
    "plain span": (QuestionAnswering("plain", max_question=8, stride=4), PAIRS),
    "span": (QuestionAnswering(max_question=8, stride=4), PAIRS),
    "answerable span": (QuestionAnswering(impossible=True, max_question=8, stride=4), PAIRS),
}


def pretrained(
    shape: str, build_head: Callable[[EncoderConfig], Any] | None, problem: Problem | None = None
) -> Pretrained:
    """A network with random weights, biases and norms."""
    tokenizer = train_tokenizer(TEXTS * 5, vocabulary_size=150)
    torch.manual_seed(0)
    settings = {"embedding_size": 16, "layers": 2, "max_positions": 40, **SHAPES[shape]}
    config = make_encoder_config(
        hidden_size=32, feed_forward_size=48, heads=2, vocabulary_size=150,
        initializer_range=0.4, linear_initializer_range=0.2, **settings,
    )  # fmt: skip
    encoder = config.build().eval()
    head = None
    if problem is not None:
        head = TaskModel(encoder, problem).head.eval()
    elif build_head is not None:
        head = build_head(config).eval()
    for network in (encoder, head):
        for parameter in [] if network is None else network.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.2 * torch.randn_like(parameter)
    task = None if problem is None else problem.to_dict()
    return Pretrained(encoder, head, tokenizer, "replaced-token" if task is None else None, LENGTH + 8, task)
