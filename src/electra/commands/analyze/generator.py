"""`electra analyze generator`: what a generator, or any masked language model, proposes on held-out text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from electra.commands.analyze.options import Models, missing_models
from electra.config import NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from electra.export.pretrained import Pretrained
    from electra.reports.analysis import AnalysisReport

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeGeneratorConfig:
    """The command line of `electra analyze generator`."""

    models: Models
    """Masked language models, or runs and discriminators with a generator next to them: runs, export folders,
    Hugging Face folders or ids."""
    data: Path
    """A folder of prepared data (electra prepare), whose held-out text is masked."""
    checkpoints: bool = False
    """Measure each checkpoint of a run instead of its export."""
    share: tuple[float, ...] = (0.15,)
    """Fractions of each text's tokens to mask; each is measured."""
    temperature: tuple[float, ...] = (1.0,)
    """Sampling temperatures; each is measured."""
    texts: PositiveInt = 500
    """Maximum number of segments of held-out text, spread evenly over it."""
    length: NonNegativeInt = 0
    """Maximum number of tokens of each segment; 0: what all models can read, at most 126."""
    examples: NonNegativeInt = 3
    """Number of texts whose beginnings are shown with masks and proposals."""
    resamples: PositiveInt = 500
    """Number of bootstrap resamples of the texts, for the intervals."""
    seed: NonNegativeInt = 0
    """Random seed."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for generator.json, generator.png and generator.svg; existing ones are replaced. Default: no
    files."""

    def problems(self) -> Iterator[str]:
        yield from missing_models(self.models)
        shares, temperatures = self.share, self.temperature
        if not shares or not all(0 < share < 1 for share in shares) or len({*shares}) < len(shares):
            yield f"--share: give different numbers above 0 and below 1, got {_join(shares)}"
        invalid = not temperatures or not all(0.01 <= temperature <= 100 for temperature in temperatures)
        if invalid or len({*temperatures}) < len(temperatures):
            yield f"--temperature: give different numbers from 0.01 to 100, got {_join(temperatures)}"


def run(config: AnalyzeGeneratorConfig) -> AnalysisReport:
    """Measure a generator's proposals for masked tokens: accuracy, similarity to the original, diversity.

    All models read the same texts with the same masks. To see the course of training, --checkpoints measures each
    checkpoint that a run has kept (checkpoint.keep, checkpoint.milestone_every).

    Examples:
        electra analyze generator RUN --data DATA --out generator
        electra analyze generator RUN1 RUN2 --data DATA --checkpoints --temperature 0.5 1 --share 0.15 0.4
    """
    from electra.analysis.generator import GeneratorBenchmark, check_generator
    from electra.data.shards import TokenData
    from electra.export.display_name import display_names
    from electra.reports.analysis import make_output_folder, save_report

    make_output_folder(config.out)
    data = TokenData.open(config.data, verify=False)
    names = zip(config.models, display_names(config.models), strict=True)
    sources = [source for model, name in names for source in _find_sources(model, name, config)]
    shapes = []
    for source in sources:  # all of them, so that a mistake is found before the first is measured
        network = source.load()
        check_generator(network, source.name, data)
        shapes.append((network.trained_length or network.max_length, network.encoder.config.vocabulary_size))
    benchmark = GeneratorBenchmark.create(
        data, shapes, texts=config.texts, length=config.length, shares=config.share, seed=config.seed
    )
    models = []
    for number, source in enumerate(sources):
        logger.info("Reading with generators", extra={"progress": (number, len(sources))})
        measured = benchmark.measure(
            source.load(), temperatures=config.temperature, resamples=config.resamples, examples=config.examples,
            device=config.device,
        )  # fmt: skip
        models.append({"model": source.name, "step": source.step, **measured})
    ids = benchmark.masked[config.share[0]].ids
    results = {
        "data": data.folder.resolve().name,
        "fingerprint": data.fingerprint,
        "texts": len(ids),
        "tokens": sum(map(len, ids)),
        "length": max(map(len, ids)),
        "resamples": config.resamples,
        "seed": config.seed,
        "tags": any(classes.name == "tag" for classes in benchmark.classes),
        "models": models,
    }
    return save_report("generator", results, config.out)


@dataclass(frozen=True)
class Source:
    """A network to be measured: an export, or the checkpoint of a step."""

    name: str
    step: int | None
    load: Callable[[], Pretrained]


def _find_sources(model: str, name: str, config: AnalyzeGeneratorConfig) -> list[Source]:
    from electra.errors import CheckpointError
    from electra.export.loading import find_generator, load_pretrained
    from electra.training.checkpoint import Checkpoints
    from electra.training.config import CheckpointConfig
    from electra.training.run_folder import RunFolder

    if not config.checkpoints:
        folder = find_generator(model) or model
        return [Source(name, None, lambda: load_pretrained(folder))]
    checkpoints = Checkpoints(RunFolder(Path(model)).checkpoints, CheckpointConfig())
    if not checkpoints.names():
        raise CheckpointError(
            f"{model} holds no checkpoint, so its training cannot be measured; leave --checkpoints out, or give "
            "the folder of a run with checkpoints"
        )
    return [
        Source(name, int(step.removeprefix("step-")), _checkpoint_loader(checkpoints.folder / step))
        for step in checkpoints.names()
    ]


def _checkpoint_loader(folder: Path) -> Callable[[], Pretrained]:
    """Loads the generator of a checkpoint, or its only network if that is a masked language model."""
    from electra.data.tokenizer import load_tokenizer
    from electra.errors import CheckpointError
    from electra.export.pretrained import Pretrained
    from electra.modeling.heads import MaskedLanguageModelHead
    from electra.objectives.base import NetworkName
    from electra.pretraining.export import load_objective, trained_length
    from electra.training.checkpoint import read_checkpoint

    def load() -> Pretrained:
        config, objective = load_objective(read_checkpoint(folder))
        networks = objective.exportable_networks()
        name: NetworkName = "generator" if "generator" in networks else "encoder"
        network = networks.get(name)
        kind = config.objective.kind
        if network is None or not isinstance(network.head, MaskedLanguageModelHead):
            raise CheckpointError(
                f"{folder} has no generator: objective.kind is {kind}, objective.fakes {config.objective.fakes}; "
                "give a run that trains a generator or a masked language model"
            )
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        encoder, head = network.encoder.eval(), network.head.eval()
        return Pretrained(encoder, head, tokenizer, kind, trained_length(config, name))

    return load


def _join(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:g}" for number in numbers) or "none"
