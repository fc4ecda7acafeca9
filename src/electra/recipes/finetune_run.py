"""One run of a fine-tuning: one seed, from the pre-trained weights to predictions."""

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from electra.config import load_config, to_toml
from electra.data.sampling import epoch_rows, step_seed
from electra.data.tokenizer import special_tokens
from electra.errors import CheckpointError, DataError
from electra.export.huggingface import Pretrained
from electra.modeling.encoder import Encoder
from electra.recipes.finetune_config import FinetuneConfig
from electra.reports.metrics import read_metrics
from electra.tasks import squad_files
from electra.tasks.base import Outputs, Prediction, Reading, Rows, Task, TaskBatch, collate
from electra.tasks.few import part
from electra.tasks.fine_tuning import FineTuning, rate_scales
from electra.training.ahead import Ahead
from electra.training.checkpoint import CheckpointConfig
from electra.training.evaluation import EvaluationConfig
from electra.training.precision import Precision
from electra.training.run_folder import RunFolder, agree, open_run
from electra.training.train_config import TrainConfig
from electra.training.trainer import Feed, Outcome, Rules, Trainer

logger = logging.getLogger(__name__)

SILENT = ("loss spike", "tokens/s falling", "corpus too small", "still warming up")
"""What the watch of a pre-training says and what is nothing strange where batches differ in length."""
DEV, BEST = "dev", "best.safetensors"
FEW_STEPS = 50
MAY_CHANGE = ("out", "data.path")
"""Settings that say where something lies now."""


@dataclass(frozen=True)
class Setting:
    """What the runs of a fine-tuning have in common."""

    config: FinetuneConfig
    task: Task
    rows: dict[str, Rows]
    pretrained: Pretrained
    precision: Precision
    device: torch.device

    @property
    def pad(self) -> int:
        return special_tokens(self.pretrained.tokenizer).pad

    @property
    def reading(self) -> Reading:
        return Reading(self.pretrained.tokenizer, self.config.data.max_length)

    @cached_property
    def identity(self) -> dict[str, str]:
        """Fingerprints of the data and of the encoder's weights."""
        weights = hashlib.sha256()
        for _, tensor in sorted(self.pretrained.encoder.state_dict().items()):
            weights.update(tensor.numpy().tobytes())
        return {"data": _fingerprint(self.rows["train"], self.rows[DEV]), "model": weights.hexdigest()}

    @property
    def judged(self) -> list[str]:
        """Splits besides train and dev whose examples have answers."""
        return [
            split for split, rows in self.rows.items()
            if split not in ("train", DEV) and (rows.targets or "labels" in rows.token_targets)
        ]  # fmt: skip

    def step(self) -> Callable[[], None]:
        """A forward and a backward pass, to be timed; the first one, which never counts, makes the network."""

        @cache
        def made() -> tuple[FineTuning, TaskBatch]:
            batches = micro_batches(self.config, self.rows["train"], 0, pad=self.pad, device=self.device)
            return new_module(self, self.config.seed), batches[0]

        def step() -> None:
            module, batch = made()
            module(batch).loss.backward()
            module.zero_grad(set_to_none=True)

        return step


@dataclass(frozen=True)
class SeedResult:
    """What came of one seed.

    Attributes:
        metrics: figures on dev by name.
        failed: why the run counts as failed; None where it does not.
        seconds: of its steps; evaluations are not in it.
    """

    seed: int
    metrics: dict[str, float]
    failed: str | None
    steps: int
    seconds: float
    identity: dict[str, str] = field(default_factory=dict)
    """What it was trained from: fingerprints of the data and of the encoder."""
    others: dict[str, dict[str, float]] = field(default_factory=dict)
    """Figures on further splits that have answers (MNLI's mismatched part, a test part), by split."""


@dataclass(frozen=True)
class Trained:
    """A seed that is finished: its network, and what that says of the further splits that have answers."""

    result: SeedResult
    module: FineTuning
    predictions: dict[str, list[Prediction]]


def run_seed(setting: Setting, seed: int, folder: Path) -> Trained | Outcome:
    """Train one seed in its folder, or go on with it; the outcome alone where it was stopped by a signal."""
    config = replace(setting.config, seeds=1, seed=seed)
    run = open_run(folder, fresh=False)
    if run.config.exists():
        agree(run, config, settled={}, ignore=MAY_CHANGE)
    module = new_module(setting, seed)
    rows = training_rows(setting, seed)
    trainer, judge = _trainer(setting, config, run, module, rows)
    outcome = trainer.run()
    if outcome.stopped_by is not None:
        return outcome
    outputs, examples, problem = judge.final(), setting.task.splits[DEV], setting.task.problem
    predictions = problem.predictions(examples, setting.rows[DEV], outputs)
    metrics = problem.score(examples, predictions)
    module.problem = problem.settled(metrics)
    if module.problem is not problem:
        predictions = module.problem.predictions(examples, setting.rows[DEV], outputs)
        metrics = module.problem.score(examples, predictions)
    write_predictions(run.path, DEV, predictions)
    failed = why_failed(predictions, examples)
    if trainer.progress.skipped:
        logger.warning("%s steps were not finite and were skipped", trainer.progress.skipped)
    said = {split: predict(setting, module, split) for split in setting.judged}
    others = {split: module.problem.score(setting.task.splits[split], said[split]) for split in said}
    seconds = round(trainer.progress.seconds, 3)
    result = SeedResult(seed, metrics, failed, outcome.step, seconds, setting.identity, others)
    return Trained(result, module, said)


def remove_checkpoints(folder: Path) -> None:
    """Of a seed that is finished; its figures and predictions stay."""
    shutil.rmtree(RunFolder(folder).checkpoints, ignore_errors=True)
    (folder / BEST).unlink(missing_ok=True)


def new_module(setting: Setting, seed: int) -> FineTuning:
    """The pre-trained encoder, copied, under a new head."""
    torch.manual_seed(seed)
    share, trained = setting.config.train.dropout, setting.pretrained.encoder
    encoder = Encoder(replace(trained.config, dropout=share, attention_dropout=share))
    encoder.load_state_dict(trained.state_dict())
    module = FineTuning(encoder, setting.task.problem, reduction=setting.config.optimizer.reduction)
    return module.to(setting.device)


def training_rows(setting: Setting, seed: int) -> Rows:
    """The rows to learn from; of a part of the examples, that of the seed."""
    data, task = setting.config.data, setting.task
    if data.fraction == 1 and not data.shots:
        return setting.rows["train"]
    few = part(task.splits["train"], fraction=data.fraction, shots=data.shots, seed=seed)
    return task.problem.encode(task.learnt(few), setting.reading)


def step_count(config: FinetuneConfig, rows: Rows) -> int:
    """Steps of a run."""
    return max(1, math.ceil(config.train.epochs * math.ceil(len(rows) / config.train.batch_size)))


def micro_batches(
    config: FinetuneConfig, rows: Rows, step: int, *, pad: int, device: torch.device
) -> list[TaskBatch]:
    """The batches of a step, a function of the step and the seed alone."""
    size = config.train.batch_size
    at_once = config.train.micro_batch_size or size
    chosen = epoch_rows(step, seed=config.seed, batch_size=size, examples=len(rows))
    return [
        collate(
            rows, chosen[start : start + at_once], pad=pad, seed=step_seed(config.seed, step, micro_step=start)
        ).to(device)
        for start in range(0, len(chosen), at_once)
    ]


def predict(setting: Setting, module: FineTuning, split: str) -> list[Prediction]:
    """What a trained network says of a split."""
    return module.problem.predictions(
        setting.task.splits[split], setting.rows[split], _outputs(setting, module, split)
    )


def _outputs(setting: Setting, module: FineTuning, split: str) -> list[Outputs]:
    with setting.precision.autocast(setting.device):
        return module.outputs(setting.rows[split], pad=setting.pad, device=setting.device)


def why_failed(predictions: Sequence[Prediction], examples: Sequence[Any]) -> str | None:
    """A run whose predictions on dev are all alike has not learnt: it gives the commonest answer, or none."""
    if "value" in predictions[0]:
        values = torch.tensor([prediction["value"] for prediction in predictions])
        answers = torch.tensor([float(example.answer) for example in examples])
        return "its values hardly differ" if len(values) > 1 and values.std() < 0.01 * answers.std() else None
    said = {
        json.dumps(answer)
        for prediction in predictions
        for answer in (
            prediction["tags"] if "tags" in prediction
            else [next(prediction[key] for key in ("label", "labels", "answer") if key in prediction)]
        )
    }  # fmt: skip
    asked = {str(answers) for example in examples if (answers := _answer(example)) is not None}
    return f"it answers {next(iter(said))} throughout" if len(said) == 1 < len(asked) else None


def _answer(example: Any) -> Any:
    """What is right for an example of any kind."""
    return next(
        (
            getattr(example, name)
            for name in ("answer", "tags", "answers")
            if getattr(example, name, None) is not None
        ),
        None,
    )


class Judge:
    """Looks at dev as a run goes on, keeps the best weights where they are wanted, and says when it is enough."""

    def __init__(self, setting: Setting, module: FineTuning, run: RunFolder) -> None:
        self.setting, self.module, self.run = setting, module, run
        self.key = f"eval/{setting.task.problem.metric}"
        self.best = run.path / BEST
        self.outputs: list[Outputs] | None = None  # of the last evaluation

    def evaluate(self, _: int) -> dict[str, float]:
        """Figures on dev."""
        self.outputs = _outputs(self.setting, self.module, DEV)
        problem, examples = self.setting.task.problem, self.setting.task.splits[DEV]
        metrics = problem.score(examples, problem.predictions(examples, self.setting.rows[DEV], self.outputs))
        figures = {f"eval/{name}": value for name, value in metrics.items()}
        if self.setting.config.evaluation.keep == "best" and figures[self.key] > max(
            self._before(), default=-math.inf
        ):
            partial = self.best.with_name(f".{self.best.name}.partial")
            save_file({name: p.detach().contiguous() for name, p in self.module.named_parameters()}, partial)
            partial.replace(self.best)
        return figures

    def enough(self, evaluation: dict[str, Any]) -> bool:
        """Whether so many evaluations have brought nothing better."""
        patience, values = self.setting.config.evaluation.patience, self._before()
        return bool(patience) and len(values) - 1 - values.index(max(values)) >= patience

    def final(self) -> list[Outputs]:
        """Outputs on dev of the weights that count, which the network has from here on."""
        if self.setting.config.evaluation.keep == "best":
            self.module.load_state_dict(load_file(self.best), strict=True)
            self.outputs = None
        return self.outputs or _outputs(self.setting, self.module, DEV)

    def _before(self) -> list[float]:
        """The figures of the evaluations so far, of which a resumed run has those before its checkpoint."""
        return [float(figures[self.key]) for figures in read_metrics(self.run.path).evaluations]


def _trainer(
    setting: Setting, config: FinetuneConfig, run: RunFolder, module: FineTuning, rows: Rows
) -> tuple[Trainer, Judge]:
    steps = step_count(config, rows)
    epoch = math.ceil(len(rows) / config.train.batch_size)
    judge = Judge(setting, module, run)
    if steps < FEW_STEPS:
        logger.warning("only %s steps: so few hardly change anything; give more --train.epochs", steps)
    looks = config.evaluation.keep == "best" or config.evaluation.patience

    def made(step: int) -> list[TaskBatch]:
        return micro_batches(config, rows, step, pad=setting.pad, device=setting.device)

    trainer = Trainer(
        module,
        TrainConfig(
            steps=steps,
            batch_size=config.train.batch_size,
            micro_batch_size=config.train.micro_batch_size,
            seed=config.seed,
            precision=setting.precision.name,
            device=config.train.device,
            report_every=config.train.report_every,
        ),
        optimizer=config.optimizer.for_steps(steps),
        feed=Feed(
            made if setting.device.type == "cpu" else Ahead(made),
            epochs=lambda steps: steps / epoch,
            length=max(1, round(float(rows.lengths.mean()))),
            identity={**setting.identity, "training part": _fingerprint(rows)},
        ),
        evaluation=EvaluationConfig(every=config.evaluation.every or (epoch if looks else steps)),
        evaluate=judge.evaluate,
        checkpoint=CheckpointConfig(every=max(epoch, math.ceil(steps / 10))),
        tracking=config.tracking,
        run=run,
        config_text=lambda _: to_toml(config),
        texts={},
        precision=setting.precision,
        device=setting.device,
        rules=Rules(
            rate_scales=rate_scales(module, config.optimizer.layer_decay, mode=config.optimizer.layer_decay_mode),
            evaluate_first=False,
            enough=judge.enough,
            silent=SILENT,
        ),
    )
    return trainer, judge


def _fingerprint(*parts: Rows) -> str:
    digest = hashlib.sha256()
    for rows in parts:
        digest.update(rows.ids.tobytes() + rows.starts.tobytes())
        for values in (*rows.targets.values(), *rows.token_targets.values()):
            digest.update(values.tobytes())
    return digest.hexdigest()


def write_predictions(folder: Path, split: str, predictions: Sequence[Prediction]) -> None:
    """Predictions as JSON lines, whole or not at all; those of questions also as SQuAD's script takes them."""
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in predictions)
    RunFolder.write_text(folder / f"{split}.jsonl", lines)
    if predictions and "null_odds" in predictions[0]:
        squad_files.write_predictions(folder, predictions)


def read_result(setting: Setting, seed: int, folder: Path) -> SeedResult | None:
    """The result of a seed that was finished before.

    Raises:
        CheckpointError: with other settings.
    """
    path = folder / "result.json"
    if not path.is_file():
        return None
    agree(RunFolder(folder), replace(setting.config, seeds=1, seed=seed), settled={}, ignore=MAY_CHANGE)
    try:
        found = SeedResult(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); remove it to run this seed again") from error
    if odd := [name for name, value in setting.identity.items() if found.identity.get(name) != value]:
        raise CheckpointError(
            f"{folder} was trained with another {' and another '.join(odd)}; give another --out, or "
            "start beside it with --fresh"
        )
    return found


def config_of(folder: Path) -> FinetuneConfig:
    """The config of a fine-tuning's folder, or of a seed's."""
    return load_config(FinetuneConfig, RunFolder(folder).config)
