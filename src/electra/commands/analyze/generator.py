"""`electra analyze generator`: what a generator, or any masked language model, proposes on held-out text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from electra.analysis.frequency import FrequencyBands, padded
from electra.commands.analyze.context import check_vocabulary
from electra.data import tokenizer as tokenizers
from electra.data.shards import TokenData
from electra.data.tags import TagTable
from electra.errors import CheckpointError, ConfigError
from electra.reports.analysis import AnalysisReport, names_of, prepare_out, reported

if TYPE_CHECKING:
    from electra.analysis.proposals import Likeness, Masked
    from electra.export.huggingface import Pretrained

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeGeneratorConfig:
    """The command line of `electra analyze generator`."""

    models: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="MODEL...", help_behavior_hint="(required)"),
    ]
    """Runs, export folders, Hugging Face folders or ids: of a run, or of a discriminator beside its generator, the
    generator; else a masked language model."""
    data: Path
    """The folder that `electra prepare` made, whose held-out text is masked."""
    checkpoints: bool = False
    """Measure each checkpoint that a run still has, not its export."""
    share: tuple[float, ...] = (0.15,)
    """Of each text's tokens that are masked: one reading for each of these."""
    temperature: tuple[float, ...] = (1.0,)
    """That logits are divided by: one reading for each of these, too."""
    texts: int = 500
    """At most so many stretches of held-out text, from all over it."""
    length: int = 0
    """Tokens of each at most; 0: as many as the model reads that reads least, and 126 at most."""
    examples: int = 3
    """Beginnings of texts that are shown with masks and proposals."""
    resamples: int = 500
    """Of the texts, for the intervals."""
    seed: int = 0
    """Of the masks, the draws and the resamples."""
    out: Path | None = None
    """A folder for generator.json, generator.png and generator.svg; those that are there are replaced."""

    def problems(self) -> Iterator[str]:
        if not self.models:
            yield "MODEL: name at least one model"
        for name, least in (("texts", 1), ("length", 0), ("examples", 0), ("resamples", 1), ("seed", 0)):
            if getattr(self, name) < least:
                yield f"--{name}: must be at least {least}, got {getattr(self, name)}"
        if not self.share or not all(0 < one < 1 for one in self.share) or len({*self.share}) < len(self.share):
            yield f"--share: give shares between 0 and 1, each once, got {_listed(self.share)}"
        unusable = not self.temperature or not all(0.01 <= one <= 100 for one in self.temperature)
        if unusable or len({*self.temperature}) < len(self.temperature):
            yield f"--temperature: give numbers from 0.01 to 100, each once, got {_listed(self.temperature)}"


@dataclass(frozen=True)
class Source:
    """A network that is to be measured: an export, or a checkpoint after so many steps."""

    name: str
    step: int | None
    load: Callable[[], Pretrained]


@dataclass(frozen=True)
class Measure:
    """What all networks are measured on."""

    config: AnalyzeGeneratorConfig
    data: TokenData
    masked: dict[float, Masked]
    bands: FrequencyBands
    ways: list[Likeness]


def run(config: AnalyzeGeneratorConfig) -> AnalysisReport:
    """Measure what a generator proposes for masked tokens: how well, how like the original, how diverse.

    All models read the same texts with the same masks. Over training: --checkpoints measures each checkpoint that
    a run has kept (checkpoint.keep, checkpoint.milestone_every).

    Examples:
        electra analyze generator RUN --data DATA --out generator
        electra analyze generator RUN1 RUN2 --data DATA --checkpoints --temperature 0.5 1 --share 0.15 0.4
    """
    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    prepare_out(config.out)
    data = TokenData.open(config.data, verify=False)
    named = zip(config.models, names_of(config.models), strict=True)
    sources = [source for model, name in named for source in _sources(model, name, config)]
    heads = [_checked(source, data) for source in sources]  # a mistake is to be found before any is measured
    measure = _measure(config, data, heads)
    models = []
    for number, source in enumerate(sources):
        logger.info("Reading with generators", extra={"progress": (number, len(sources))})
        models.append(_measured(source, measure))
    first = measure.masked[config.share[0]]
    facts = {
        "data": data.folder.resolve().name,
        "fingerprint": data.fingerprint,
        "texts": len(first.ids),
        "tokens": sum(map(len, first.ids)),
        "length": max(map(len, first.ids)),
        "resamples": config.resamples,
        "seed": config.seed,
        "tags": any(way.name == "tag" for way in measure.ways),
        "models": models,
    }
    return reported("generator", facts, config.out)


def _measure(config: AnalyzeGeneratorConfig, data: TokenData, heads: list[tuple[int, int]]) -> Measure:
    """Texts, masks, bands and ways to be alike.

    Args:
        heads: of each network the longest input and the rows of its vocabulary.
    """
    from electra.analysis.generator import ways_to_be_alike
    from electra.analysis.proposals import Masked, stretches

    length = config.length or min(126, *(longest - 2 for longest, _ in heads))
    ids = stretches(data.heldout, texts=config.texts, length=length)
    masked = {share: Masked.drawn(ids, share=share, seed=config.seed) for share in config.share}
    bands = FrequencyBands.of(padded(data.unigram_counts, max(rows for _, rows in heads)))
    tokenizer = tokenizers.load(data.tokenizer_path)
    return Measure(config, data, masked, bands, ways_to_be_alike(tokenizer, bands, TagTable.read(data.folder)))


def _measured(source: Source, measure: Measure) -> dict[str, Any]:
    """What generator.json says of one network."""
    from electra.analysis.generator import examples, reading
    from electra.analysis.proposals import proposals
    from electra.serving.masked_token_predictor import MaskedTokenPredictor

    config, readings = measure.config, []
    predictor = MaskedTokenPredictor(source.load())
    counts_V = padded(measure.data.unigram_counts, len(measure.bands.band_V))
    for share, masked in measure.masked.items():
        found = proposals(
            predictor, masked, temperatures=config.temperature, ways=measure.ways,
            special=measure.data.special.ids,
        )  # fmt: skip
        for temperature, one in found.items():
            figures = reading(
                one, bands=measure.bands, ways=measure.ways, counts_V=counts_V, resamples=config.resamples
            )
            readings.append({"share": share, "temperature": temperature} | figures)
    shown = examples(predictor, measure.masked[config.share[0]], count=config.examples)
    return {"model": source.name, "step": source.step, "readings": readings, "examples": shown}


def _sources(model: str, name: str, config: AnalyzeGeneratorConfig) -> list[Source]:
    from electra.export.loading import generator_beside, load_pretrained
    from electra.training.checkpoint import CheckpointConfig, Checkpoints
    from electra.training.run_folder import RunFolder

    if not config.checkpoints:
        folder = generator_beside(model) or model
        return [Source(name, None, lambda: load_pretrained(folder))]
    checkpoints = Checkpoints(RunFolder(Path(model)).checkpoints, CheckpointConfig())
    if not checkpoints.names():
        raise CheckpointError(
            f"{model} holds no checkpoint, so nothing is known of its training; leave --checkpoints out, or give "
            "the folder of a run that has its checkpoints"
        )
    return [
        Source(name, int(each.removeprefix("step-")), _loader(checkpoints.folder / each))
        for each in checkpoints.names()
    ]


def _loader(checkpoint: Path) -> Callable[[], Pretrained]:
    """Of the generator of a checkpoint, or of the masked language model that was trained alone."""
    from electra.export.huggingface import Pretrained
    from electra.modeling.heads import MaskedLanguageModelHead
    from electra.pretraining.export import load_trained, longest_input
    from electra.training.checkpoint import read_checkpoint

    def load() -> Pretrained:
        found = read_checkpoint(checkpoint)
        config, objective = load_trained(found)
        towers = objective.exportable_networks()
        tower = towers.get("generator") or towers.get("encoder")
        if tower is None or not isinstance(tower.head, MaskedLanguageModelHead):
            raise CheckpointError(
                f"{checkpoint} has no generator: objective.kind is {config.objective.kind}, objective.fakes "
                f"{config.objective.fakes}; give a run that trains a generator or a masked language model"
            )
        tokenizer = tokenizers.load(checkpoint / "tokenizer.json")
        kind = config.objective.kind
        return Pretrained(tower.encoder.eval(), tower.head.eval(), tokenizer, kind, longest_input(config))

    return load


def _checked(source: Source, data: TokenData) -> tuple[int, int]:
    """The longest input of a network and the rows of its vocabulary, once it is known that it can be measured."""
    from electra.modeling.heads import MaskedLanguageModelHead

    pretrained = source.load()
    if not isinstance(pretrained.head, MaskedLanguageModelHead):
        raise CheckpointError(
            f"{source.name} predicts no masked tokens; give a masked language model, or a run with a generator "
            "(RUN/export/generator)"
        )
    check_vocabulary(pretrained.tokenizer, source.name, data)
    if pretrained.max_length < 3:
        raise CheckpointError(f"{source.name}: inputs of {pretrained.max_length} tokens leave no room for a text")
    return pretrained.max_length, pretrained.encoder.config.vocabulary_size


def _listed(numbers: tuple[float, ...]) -> str:
    return ", ".join(f"{number:g}" for number in numbers) or "none"
