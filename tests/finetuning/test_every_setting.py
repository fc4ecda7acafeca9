"""Every setting of a fine-tuning changes its steps or its files as its documentation says. A setting without an
entry fails."""

import csv
import functools
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from setting_changes import Change, settings_in
from small_model import write_model
from torch import Tensor

from electra.config import load_config
from electra.config_fields import settings
from electra.finetuning import seed_run
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.run import finetune
from electra.modeling.encoders.relative import RelativeConfig
from electra.modeling.heads import LanguageModelHead
from electra.tasks.base import IGNORE_INDEX
from electra.tasks.task_model import TaskModel
from electra.training.trainer import Trainer

SETTINGS = settings_in(FinetuneConfig, "", "data", "head", "optimizer", "train", "evaluation", "tracking")
PEAK = 0.01
BASE = (
    "model=SMALL", "train.precision=float32", "train.device=cpu", "train.batch_size=8", "train.epochs=2",
    "train.dropout=0", "train.report_every=1", f"optimizer.learning_rate={PEAK}", "optimizer.epsilon=1e-9",
    "optimizer.gradient_clip=1e6", "evaluation.every=1", "tracking.tensorboard=false",
)  # fmt: skip
TABLE = ("kind=classification", "data.path=TABLE", "data.text=text", "data.label=label")
"""The data, unless a change has others. Words in capitals are files and folders of the fixture."""
MOODS = (*TABLE, "data.label=mood")
"""10 rows are angry, 20 are calm, and 10 are glad."""
SCORES = ("kind=classification", "data.path=TABLE", "data.text=text", "data.label=score")
PAIRS = ("kind=pair", "data.path=TABLE", "data.text=text", "data.pair=body", "data.label=label")
MULTILABEL = ("kind=multilabel", "data.path=TABLE", "data.text=text", "data.label=topics")
TAGGING = ("kind=tagging", "data.path=TAGGED", "data.text=0", "data.label=1")
QUESTIONS = ("model=LONG", "kind=answering", "data.path=QUESTIONS", "data.train=asked.json")
NOISE = ("kind=classification", "data.path=TABLE", "data.text=text", "data.label=noise", "train.epochs=5",
         "data.dev_share=0.5", "seed=1")  # fmt: skip
ONE_STEP = ("train.epochs=0.01", "optimizer.warmup_share=0")
POSITIONS, TOKENS = "encoder.embeddings.position.weight", "encoder.embeddings.token.weight"
HEAD = "head.prediction.weight"


class Recorded(Trainer):
    """A trainer that keeps its initial weights, and is remembered."""

    every: list["Recorded"]

    def __init__(self, objective: TaskModel, *arguments: Any) -> None:
        super().__init__(objective, *arguments)
        self.initial = {name: p.detach().clone() for name, p in objective.named_parameters()}
        self.every.append(self)


@dataclass(frozen=True)
class Run:
    """A finished fine-tuning.

    Attributes:
        trainers: the trainer of each seed.
    """

    out: Path
    trainers: list[Recorded]

    @property
    def model(self) -> Any:
        return self.trainers[0].objective

    @cached_property
    def results(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "results.json").read_text())
        return found

    @property
    def seeds(self) -> list[int]:
        return [seed["seed"] for seed in self.results["seeds"]]

    @property
    def steps(self) -> int:
        return int(self.results["seeds"][0]["steps"])

    def series(self, name: str) -> list[float]:
        """A metric of the first seed, from its reports or evaluations."""
        path = self.out / f"seed-{self.seeds[0]}" / "metrics.jsonl"
        lines = map(json.loads, path.read_text().splitlines())
        return [line[name] for line in lines if name in line]

    @property
    def rates(self) -> list[float]:
        return self.series("learning_rate")

    @property
    def loss(self) -> float:
        """The loss of the first step."""
        return self.series("loss")[0]

    @property
    def accuracy(self) -> float:
        """The accuracy on dev of the weights that the first seed kept."""
        return float(self.results["seeds"][0]["metrics"]["accuracy"])

    @property
    def accuracies(self) -> list[float]:
        return self.series("eval/accuracy")

    def batches(self, step: int = 0) -> Sequence[Any]:
        return self.trainers[0].context.batches.micro_batches(step)

    @property
    def longest(self) -> int:
        """The most tokens of a row of the first epoch."""
        return max(int(batch.lengths_B.max()) for step in range(5) for batch in self.batches(step))

    @property
    def examples(self) -> int:
        """The number of different rows that the first seed was trained on."""
        batches = [batch for step in range(self.steps) for batch in self.batches(step)]
        return len({tuple(ids.tolist()) for batch in batches for ids in batch.input_ids_BL})

    @property
    def labels(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.model.problem.labels
        return found

    def weights(self, name: str) -> tuple[Tensor, Tensor]:
        """A parameter before and after the training of the first seed."""
        return self.trainers[0].initial[name], dict(self.model.named_parameters())[name].detach()

    def change(self, name: str) -> float:
        """The largest change of an element of a parameter."""
        before, after = self.weights(name)
        return float((after - before).abs().max())

    @property
    def untouched(self) -> float:
        """The factor by which embeddings of positions that no text has have changed."""
        before, after = self.weights(POSITIONS)
        return float((after[-1] / before[-1]).mean())

    @property
    def words(self) -> int:
        """The number of tokens with a tag in the first batch."""
        return sum(int((batch.targets["labels"] != IGNORE_INDEX).sum()) for batch in self.batches())

    def lines(self, split: str) -> list[dict[str, Any]]:
        path = self.out / (f"seed-{self.seeds[0]}/dev.jsonl" if split == "dev" else f"{split}.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


def is_close(one: float, two: float) -> bool:
    return one == pytest.approx(two, rel=2e-3)


def is_random(run: Run) -> bool:
    """Whether two passes of the same batch differ."""
    model, (batch,) = run.model.train(), run.batches()
    with torch.no_grad():
        return bool(model(batch).loss != model(batch).loss)


def depth(run: Run, decay: float) -> float:
    """How often the decay is in the first update of the embeddings, which lie below two blocks."""
    return math.log(run.change(TOKENS) / run.change(HEAD)) / math.log(decay)


def same_start(before: Run, after: Run, name: str) -> bool:
    return torch.equal(before.weights(name)[0], after.weights(name)[0])


def has(run: Run, module: str) -> bool:
    return any(name.startswith(f"head.{module}.") for name, _ in run.model.named_parameters())


def texts(run: Run, split: str = "dev", name: str = "text") -> set[str]:
    return {line[name] for line in run.lines(split)}


CHANGES = {
    "model": [Change("OTHER", lambda b, a: not same_start(b, a, TOKENS))],
    "init": [
        Change("random", lambda b, a: not same_start(b, a, TOKENS)
               and a.results["pretrained"] is None and b.results["pretrained"] is not None, ("seed=4",)),
    ],
    "task": [Change("views", lambda b, a: (b.results["task"], a.results["task"]) == ("classification", "views"))],
    "kind": [
        Change("regression", lambda b, a: (b.results["metric"], a.results["metric"]) == ("accuracy", "spearman"),
               SCORES),
    ],
    "out": [Change("ELSEWHERE", lambda b, a: a.out.name == "ELSEWHERE" and (a.out / "model").is_dir())],
    "seeds": [
        Change("3", lambda b, a: (b.seeds, a.seeds) == ([0], [0, 1, 2])
               and len({trainer.initial[HEAD].sum() for trainer in a.trainers}) == 3),
    ],
    "seed": [Change("4", lambda b, a: a.seeds == [4] and same_start(b, a, TOKENS) and not same_start(b, a, HEAD))],
    "data.path": [Change("SHORT", lambda b, a: (b.examples, a.examples) == (36, 18))],
    "data.train": [Change("short.csv", lambda b, a: (b.examples, a.examples) == (36, 18))],
    "data.dev": [Change("short.csv", lambda b, a: len(a.lines("dev")) == 20 and a.examples == 40)],
    "data.test": [
        Change("short.csv", lambda b, a: len(a.lines("test")) == 20 and not (b.out / "test.jsonl").exists()),
    ],
    "data.text": [Change("body", lambda b, a: not texts(b) & texts(a))],
    "data.pair": [
        Change("answer", lambda b, a: not texts(b, name="pair") & texts(a, name="pair")
               and texts(b) == texts(a), PAIRS),
    ],
    "data.label": [
        Change("mood", lambda b, a: (b.labels, a.labels) == (("bad", "good"), ("angry", "calm", "glad"))),
    ],
    "data.separator": [
        Change(";", lambda b, a: a.labels == ("art", "law", "sea") and "art;law" in b.labels, MULTILABEL),
    ],
    "data.class_weights": [
        Change('["good=3", "bad=3"]', lambda b, a: is_close(a.loss, 3 * b.loss)),
        Change("balanced", lambda b, a: a.labels == ("angry", "calm", "glad")
               and a.model.problem.weights == pytest.approx((4 / 3, 2 / 3, 4 / 3)) and a.loss != b.loss, MOODS),
    ],
    "data.dev_share": [Change("0.5", lambda b, a: (len(b.lines("dev")), len(a.lines("dev"))) == (4, 20))],
    "data.fraction": [Change("0.5", lambda b, a: (b.examples, a.examples) == (36, 18))],
    "data.shots": [Change("3", lambda b, a: (b.examples, a.examples) == (36, 6))],
    "data.max_length": [Change("9", lambda b, a: (b.longest, a.longest) == (16, 9))],
    "data.long": [
        Change("windows", lambda b, a: b.longest == 16 and a.longest > 24),
        Change("memory", lambda b, a: a.longest > 24 and a.loss != b.loss,
               ("model=MEMORY", *TABLE, "data.long=windows")),
    ],
    "data.longest": [Change("20", lambda b, a: b.longest > 20 == a.longest, (*TABLE, "data.long=windows"))],
    "head.text": [Change("hidden", lambda b, a: has(a, "dense") and not has(b, "dense"))],
    "head.span": [Change("plain", lambda b, a: has(b, "end_dense") and not has(a, "end_dense"), QUESTIONS)],
    "head.pieces": [Change("all", lambda b, a: 8 < b.words < a.words, TAGGING)],
    "optimizer.learning_rate": [
        Change("0.02", lambda b, a: a.rates == pytest.approx([2 * rate for rate in b.rates])),
        Change("0", lambda b, a: is_close(max(a.rates), 1e-3)),
    ],
    "optimizer.epsilon": [
        Change("1e6", lambda b, a: a.change(HEAD) < 1e-6 and is_close(b.change(HEAD), PEAK), ONE_STEP)
    ],
    "optimizer.weight_decay": [
        Change("0.5", lambda b, a: b.untouched == 1
               and is_close(a.untouched, math.prod(1 - 0.5 * 0.8**3 * rate for rate in a.rates))),
    ],
    "optimizer.gradient_clip": [
        Change("1e-6", lambda b, a: a.change(HEAD) < 1e-4 * PEAK < b.change(HEAD),
               (*ONE_STEP, "optimizer.epsilon=1e-2")),
    ],
    "optimizer.bias_correction": [
        Change("false", lambda b, a: is_close(a.change(HEAD), 0.1 / 0.001**0.5 * b.change(HEAD)), ONE_STEP)
    ],
    "optimizer.warmup_over_decay": [Change("true", lambda b, a: a.rates[0] == 0 < b.rates[0])],
    "optimizer.layer_decay": [
        Change("0.5", lambda b, a: is_close(depth(b, 0.8), 3) and is_close(depth(a, 0.5), 3), ONE_STEP)
    ],
    "optimizer.layer_decay_mode": [
        Change("google", lambda b, a: is_close(depth(b, 0.8), 3) and is_close(depth(a, 0.8), 4), ONE_STEP)
    ],
    "optimizer.reduction": [Change("sum", lambda b, a: is_close(a.loss, 8 * b.loss))],
    "optimizer.warmup_share": [
        Change("0.5", lambda b, a: (b.rates.index(max(b.rates)), a.rates.index(max(a.rates))) == (0, 4))
    ],
    "train.batch_size": [
        Change("4", lambda b, a: [len(run.batches()[0].lengths_B) for run in (b, a)] == [8, 4]
               and (b.steps, a.steps) == (10, 18)),
    ],
    "train.micro_batch_size": [
        Change("2", lambda b, a: [len(batch.lengths_B) for batch in a.batches()] == [2] * 4
               and len(b.batches()) == 1 and is_close(a.loss, b.loss)),
    ],
    "train.precision": [Change("bfloat16", lambda b, a: a.loss != b.loss == pytest.approx(a.loss, rel=0.05))],
    "train.report_every": [Change("5", lambda b, a: (len(b.rates), len(a.rates)) == (10, 2))],
    "train.epochs": [
        Change("3", lambda b, a: (b.steps, a.steps) == (10, 15)),
        Change("0", lambda b, a: a.steps == 300, ("evaluation.every=1000", "train.batch_size=16")),
    ],
    "train.dropout": [Change("0.4", lambda b, a: is_random(a) and not is_random(b))],
    "evaluation.every": [
        Change("3", lambda b, a: (len(b.accuracies), len(a.accuracies)) == (10, 4)),
        Change("0", lambda b, a: len(a.accuracies) == 1),
    ],
    "evaluation.keep": [
        Change("best", lambda b, a: b.accuracy == b.accuracies[-1] < max(b.accuracies) == a.accuracy, NOISE)
    ],
    "evaluation.patience": [
        Change("2", lambda b, a: a.steps == a.accuracies.index(max(a.accuracies)) + 3 < b.steps, NOISE),
    ],
    "tracking.tensorboard": [
        Change("true", lambda b, a: [any(run.out.rglob("events.out*")) for run in (b, a)] == [False, True])
    ],
    "tracking.on_event": [
        Change('echo "$ELECTRA_EVENT $ELECTRA_STEP" >> "$ELECTRA_RUN/heard"', lambda b, a: heard(a) == [
            "checkpoint 10", "finished 10", "started 0"
        ] and json.loads((a.out / "ended.json").read_text())["message"] == f"accuracy {a.accuracy:.4f}, seed 0"),
    ],
}  # fmt: skip
OTHERS = {
    "tracking.tracker": "tests/training/test_trackers.py",
    "train.device": "needs a GPU",
}
"""Settings without an entry, and the reason."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, make_model: Callable[[Sequence[str], int, int], str]) -> Path:
    """Models and data, by the names that changes use."""
    folder, draw = tmp_path_factory.mktemp("files"), random.Random(0)
    write_model(folder / "small").rename(folder / "SMALL")
    write_model(folder / "other", initializer_range=0.2).rename(folder / "OTHER")
    write_model(
        folder / "memory", encoder=RelativeConfig, head=LanguageModelHead, memory_length=20, type_vocabulary_size=1
    ).rename(folder / "MEMORY")
    (folder / "LONG").symlink_to(make_model(["The cat and the dog sat on the mat"] * 9, 150, 80))
    rows = [
        {
            "text": text(draw, f"cat {number}"), "body": text(draw, f"dog {number}"),
            "answer": text(draw, f"mat {number}"), "label": ("good", "bad")[number % 2],
            "mood": ("calm", "angry", "glad", "calm")[number % 4], "score": number % 3,
            "topics": ("sea", "art;law", "law", "art")[number % 4], "noise": draw.choice(("yes", "no")),
        }
        for number in range(40)
    ]  # fmt: skip
    for name, count in (("TABLE/train", 40), ("TABLE/short", 20), ("SHORT/train", 20)):
        write_table(folder / f"{name}.csv", rows[:count])
    (folder / "TAGGED").mkdir()
    (folder / "TAGGED/train.txt").write_text("the O\nhomeworks B-X\ncat O\nsatonmat I-X\n\n" * 20)
    (folder / "QUESTIONS").mkdir()
    answers = [{"text": "the mat", "answer_start": 15}]
    asked = [
        {"context": context, "qas": [{"id": str(number), "question": "on what?", "answers": answers}]}
        for number, context in enumerate(["The cat sat on the mat", "The dog sat on the mat"] * 10)
    ]
    (folder / "QUESTIONS/asked.json").write_text(json.dumps({"data": [{"paragraphs": asked}]}))
    return folder


def heard(run: Run) -> list[str]:
    """What the commands of events wrote. They run side by side."""
    return sorted((run.out / "heard").read_text().splitlines())


def text(draw: random.Random, first: str) -> str:
    """A text that is longer than a row of the small model."""
    return " ".join([first, *draw.choices(["dog", "mat", "homework", "and", "twice", "sat"], k=24)])


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[tuple[str, ...]], Run]]:
    """Makes fine-tunings from overrides, each of them once."""

    @functools.cache
    def made(overrides: tuple[str, ...]) -> Run:
        out = tmp_path_factory.mktemp("out") / "out"
        named = [re.sub(r"=([A-Z]+)$", rf"={files}/\1", override) for override in (*BASE, *overrides)]
        config = load_config(FinetuneConfig, None, [f"out={out}", *named])
        Recorded.every = []
        finetune(config)
        assert config.out is not None
        return Run(config.out, Recorded.every)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(seed_run, "Trainer", Recorded)
        # These take time, and nothing here depends on them.
        patched.setattr("electra.training.precision.product_flops", lambda dtype, device: 1e9)
        yield made


def cases() -> Iterator[tuple[str, Change]]:
    yield from ((name, change) for name, changes in CHANGES.items() for change in changes)


@pytest.mark.parametrize(("name", "change"), list(cases()), ids=lambda x: x.value if isinstance(x, Change) else x)
def test_a_change_has_its_documented_effect(
    name: str, change: Change, run: Callable[[tuple[str, ...]], Run]
) -> None:
    names_data = any(override.startswith("data.path=") for override in change.base)
    base = change.base if names_data else (*TABLE, *change.base)
    assert change.check(run(base), run((*base, f"{name}={change.value}")))


def test_every_setting_has_an_entry() -> None:
    assert SETTINGS.keys() == CHANGES.keys() | OTHERS.keys() and not CHANGES.keys() & OTHERS.keys()
    assert {setting.name for setting in settings(FinetuneConfig)} == SETTINGS.keys(), "a section is missing"
