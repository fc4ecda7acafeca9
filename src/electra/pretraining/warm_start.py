"""What the weights of a run start from: random numbers, counts of the data, or networks trained before."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from electra.config import problems_of
from electra.data.cooccurrence import cooccurrence_table
from electra.data.shards import TokenData
from electra.data.tokenizer import describe_tokenizer, load_tokenizer
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export.loading import find, load_pretrained
from electra.export.pretrained import Pretrained
from electra.modeling.encoders.base import ACTIVATIONS, EncoderConfig, EncoderModule
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead
from electra.objectives.base import ExportableNetwork, Objective
from electra.objectives.config import GeneratorConfig, ObjectiveConfig, scores_of
from electra.pretraining.config import InitConfig, PretrainConfig
from electra.registry import encoders

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmStart:
    """The networks that a run continues; None: fresh ones."""

    discriminator: Pretrained | None = None
    generator: Pretrained | None = None


def refuse_fixed(init: InitConfig, given: Collection[str]) -> None:
    """Refuse settings that were given by name although the networks that a run starts from decide them.

    Raises:
        ConfigError: naming each one.
    """
    fixed = []
    if init.discriminator is not None:
        shape = {name for _, kind in encoders for name in kind().shape()}
        fixed += [f"model.{name}" for name in (*shape, "positions")] + ["init.token_table", "init.attention"]
    if init.generator is not None:
        names = [field.name for field in fields(GeneratorConfig)]
        fixed += [f"generator.{name}" for name in (*names, "positions")] + ["init.output_bias"]
    if found := sorted(set(fixed) & set(given)):
        raise ConfigError(f"{', '.join(found)}: decided by the networks that [init] names; leave it out")


def refuse_unused(objective: ObjectiveConfig, given: Collection[str]) -> None:
    """Refuse settings that were given by name although the objective does not read them; presets may have them.

    Raises:
        ConfigError: naming each one.
    """
    if found := sorted(name for name in given if name.startswith(objective.unused_settings or ("-",))):
        raise ConfigError(f"{', '.join(found)}: {objective.kind} has {objective.unused_reason}; leave it out")


def load_warm_start(config: InitConfig) -> WarmStart:
    """Read the folders that the config names.

    Raises:
        CheckpointError: one cannot be loaded, or the generator's has no masked language model.
        DataError: a tokenizer cannot be read.
    """
    discriminator = None if config.discriminator is None else load_pretrained(config.discriminator)
    if config.generator is None:
        return WarmStart(discriminator)
    generator = load_pretrained(_generator_of(config.generator))
    if not isinstance(generator.head, MaskedLanguageModelHead):
        what = "has no head" if generator.head is None else "is a discriminator"
        if isinstance(generator.head, LanguageModelHead):
            what = "predicts words in an order, not masked ones"
        raise CheckpointError(
            f"init.generator: {config.generator} {what}; a generator is a masked language model with its head, "
            "such as RUN/export/generator"
        )
    if generator.head.activation is not ACTIVATIONS["gelu"]:
        raise CheckpointError(
            f"init.generator: the head of {config.generator} has another activation than GELU, "
            "which is that of generators"
        )
    return WarmStart(discriminator, generator)


def _generator_of(model: str) -> str | Path:
    """Of a run or an export its generator; any other MODEL is one itself."""
    for folder in (Path(model) / "export/generator", Path(model) / "generator"):
        if folder.is_dir():
            return folder
    return model


def with_shapes(config: PretrainConfig, start: WarmStart) -> PretrainConfig:
    """The config with the shapes of the networks that the run starts from.

    Raises:
        ConfigError: what was loaded does not fit together, or not with the rest of the config.
    """
    if start.discriminator is None and start.generator is None:
        return config
    problems: list[str] = []
    if start.discriminator is not None:
        problems += _other_kind(config, start.discriminator.encoder.config)
        config = replace(config, model=_reshaped(config.model, start.discriminator.encoder.config))
    elif start.generator is not None:  # a frozen one, for a fresh discriminator
        size = start.generator.encoder.config.vocabulary_size
        config = replace(config, model=replace(config.model, vocabulary_size=size))
    if config.objective.sharing == "all":
        config = replace(config, generator=_generator(config.model, config.model))
    elif start.generator is not None:
        config = replace(config, generator=_generator(start.generator.encoder.config, config.model))
    if start.generator is not None and not problems:
        problems += _unlike(start.discriminator, start.generator.encoder, config)
    if not problems:  # they would name what follows from these
        problems += [*problems_of(config.model), *problems_of(config.generator)]
        problems += [*config.problems(), *config.shape_problems()]
    if problems:
        raise ConfigError("a run cannot start from these networks:\n" + "\n".join(f"  {p}" for p in problems))
    return config


def with_shapes_of_run(config: PretrainConfig, run: PretrainConfig) -> PretrainConfig:
    """The config with the shapes of a run that has begun, where both start from networks trained before."""
    if config.init.generator and run.init.generator:
        config = replace(config, generator=run.generator)
    if config.init.discriminator and run.init.discriminator:
        config = replace(config, model=_reshaped(config.model, run.model))
    return config


def with_vocabulary_of(config: PretrainConfig, data: TokenData) -> EncoderConfig:
    """The model with the vocabulary of the data; one that was trained before keeps its rows."""
    model = config.model
    if config.init.discriminator is not None:
        return model
    if model.vocabulary_size not in (0, data.vocabulary_size):
        raise ConfigError(
            f"model.vocabulary_size is {model.vocabulary_size}, but the tokenizer of {data.folder} has "
            f"{data.vocabulary_size} entries; leave the setting at 0 or prepare the data with the right tokenizer"
        )
    return replace(model, vocabulary_size=data.vocabulary_size)


def check_vocabulary(start: WarmStart, data: TokenData, init: InitConfig) -> None:
    """Refuse data whose ids mean other words than those that the networks know.

    Raises:
        DataError: the vocabularies differ.
    """
    if start.discriminator is None and start.generator is None:
        return
    ours = load_tokenizer(data.tokenizer_path)
    for pretrained, name in ((start.discriminator, init.discriminator), (start.generator, init.generator)):
        if pretrained is None or name is None:
            continue
        here, there = ours.get_vocab(), pretrained.tokenizer.get_vocab()
        differing = sorted(token for token in here.keys() | there.keys() if here.get(token) != there.get(token))
        if differing:
            examples = ", ".join(
                f"{token!r} is {here.get(token, 'no entry')} in the data's, {there.get(token, 'no entry')} there"
                for token in differing[:3]
            )
            raise DataError(
                f"{data.folder} was prepared with another vocabulary than that of {name}: {len(differing):,} "
                f"entries differ ({examples}); prepare the data with --tokenizer {find(name)}"
            )
        case = [describe_tokenizer(tokenizer)["lowercase"] for tokenizer in (ours, pretrained.tokenizer)]
        if case[0] != case[1]:
            logger.warning("%s was trained on %s text, the data is not", name, "lowercase" if case[1] else "cased")


@torch.no_grad()
def initialize(objective: Objective, config: PretrainConfig, data: TokenData, start: WarmStart) -> None:
    """Give a fresh objective the weights that its run starts from.

    What was trained before is taken as it is; the starts that are counted or built are for fresh networks alone.
    """
    init, towers = config.init, objective.exportable_networks()
    if start.generator is None and init.output_bias == "unigram":
        counted_V = torch.from_numpy(data.unigram_counts).float()
        for bias_V in objective.output_biases():
            counts_V = torch.ones_like(bias_V)
            counts_V[: len(counted_V)] += counted_V
            bias_V.copy_((counts_V / counts_V.sum()).log())
    if start.discriminator is None and start.generator is not None:
        _take(towers.pop("generator"), start.generator, str(init.generator), config.objective)
    if start.discriminator is not None:
        main = towers.get("discriminator") or towers["encoder"]
        _take(main, start.discriminator, str(init.discriminator), config.objective)
        if start.generator is not None:
            _take(towers["generator"], start.generator, str(init.generator), config.objective)
        elif "generator" in towers and towers["generator"].encoder is not main.encoder:
            shape = towers["generator"].encoder.config
            logger.info("the generator is fresh: %s layers of %s", shape.layers, shape.hidden_size)
        return
    encoders = list({id(tower.encoder): tower.encoder for tower in towers.values()}.values())
    if init.attention == "neighbours":
        for encoder in encoders:
            if "neighbor-start" in encoder.config.capabilities:
                encoder.attend_to_neighbors()
    if init.token_table == "cooccurrence":
        _count_table(encoders, data)


def _other_kind(config: PretrainConfig, shape: EncoderConfig) -> Iterator[str]:
    """The objective, or settings of [model], need another kind of network than the one that is continued."""
    folder, objective = config.init.discriminator, config.objective
    able = _reshaped(config.model, shape)
    if missing := objective.encoder_capabilities - able.capabilities:
        able_kinds = [name for name, kind in encoders if kind().capabilities >= objective.encoder_capabilities]
        hint = f", such as one of kind {', '.join(able_kinds)}" if able_kinds else ""
        yield (
            f"init.discriminator: {folder} is of kind {shape.kind}, and objective.kind {objective.kind} needs "
            f"{', '.join(sorted(missing))}; start from another network{hint}, or choose another objective"
        )
    if shape.kind == config.model.kind:
        return
    lost = [
        f"model.{name} {value}"
        for name in config.model.run_settings
        if name not in shape.run_settings
        and (value := getattr(config.model, name)) != getattr(type(config.model), name)
    ]
    if lost:
        yield (
            f"init.discriminator: {folder} is of kind {shape.kind}, and {' and '.join(lost)} "
            f"{'needs' if len(lost) == 1 else 'need'} kind {config.model.kind}; start from a folder of that kind, "
            "or take another preset"
        )


def _reshaped(model: EncoderConfig, shape: EncoderConfig) -> EncoderConfig:
    """The shape of trained weights, with the dropout and so on of the run."""
    return shape.with_run_settings_of(model)


def _generator(shape: EncoderConfig, model: EncoderConfig) -> GeneratorConfig:
    """The settings of a generator of a certain shape next to a discriminator."""
    kind = "" if shape.kind == GeneratorConfig().encoder_kind(model) else shape.kind
    return GeneratorConfig(
        kind=kind,
        hidden_size=shape.hidden_size,
        embedding_size=0 if shape.embedding_size == model.embedding_size else shape.embedding_size,
        layers=shape.layers,
        feed_forward_size=shape.feed_forward_size,
        heads=shape.heads,
    )


def _unlike(discriminator: Pretrained | None, generator: EncoderModule, config: PretrainConfig) -> Iterator[str]:
    """Where a generator cannot stand beside a discriminator: another shape, or other weights that are shared."""
    expected, sharing = config.generator.encoder(config.model), config.objective.sharing
    if sharing != "none":
        expected = replace(expected, embedding_size=config.model.embedding_size)
    here = generator.config.shape()
    found = [
        f"init.generator: its {name} is {here.get(name)}, where {wanted} is needed"
        for name, wanted in expected.shape().items()
        if here.get(name) != wanted
    ]
    yield from found
    if any("embedding_size" in problem for problem in found):
        yield "init.generator: tables of another width cannot be shared; set objective.sharing none"
    if found or sharing == "none" or discriminator is None:
        return
    tables = ["token"] if sharing == "tokens" else ["token", "position", "segment"]
    shared = [*tables, *(["norm"] if config.objective.share_norm else [])]
    prefixes = ("",) if sharing == "all" else tuple(f"embeddings.{name}." for name in shared)
    theirs = generator.state_dict()
    for name, tensor in discriminator.encoder.state_dict().items():
        difference = float((tensor - theirs[name]).abs().max()) if name.startswith(prefixes) else 0.0
        if difference:
            yield (
                f"init.generator: its {name} differs from the discriminator's (by up to {difference:.2g}), and "
                "the two are to be shared; set objective.sharing none, or leave init.generator out"
            )


def _take(tower: ExportableNetwork, pretrained: Pretrained, name: str, objective: ObjectiveConfig) -> None:
    """Copy an encoder, and its head where it predicts the same.

    Raises:
        ConfigError: the head has another activation than the objective's.
    """
    state = pretrained.encoder.state_dict()
    if "query_stream.weight" not in tower.encoder.state_dict():  # an objective of one stream
        state.pop("query_stream.weight", None)
    tower.encoder.load_state_dict(state)
    was, is_now = pretrained.encoder.config.direction, tower.encoder.config.direction
    if was != is_now:
        sides = {"left": "to the left alone", "both": "to both sides"}
        logger.info("%s looked %s; from here on it looks %s", name, sides[was], sides[is_now])
    fresh = type(tower.head) is not type(pretrained.head)
    if isinstance(tower.head, ReplacedTokenHead):  # an energy is no log-odds
        fresh |= scores_of(pretrained.objective) != objective.scores
    if not fresh:
        assert pretrained.head is not None
        assert isinstance(tower.head, type(pretrained.head))
        if getattr(tower.head, "activation", None) is not getattr(pretrained.head, "activation", None):
            raise ConfigError(
                f"{name}: its head has GELU, but a masked language model with embeddings as wide as its states "
                "goes out as a BERT, whose head has the activation of the blocks; it cannot be continued here"
            )
        tower.head.load_state_dict(pretrained.head.state_dict())
    if tower.pairs is not None and pretrained.pairs is not None:
        tower.pairs.load_state_dict(pretrained.pairs.state_dict())
    logger.info(
        "starting from %s, %s layers of %s; the head is %s",
        name, tower.encoder.config.layers, tower.encoder.config.hidden_size, "fresh" if fresh else "its own",
    )  # fmt: skip


def _count_table(encoders: list[EncoderModule], data: TokenData) -> None:
    """Token tables from counts; each keeps the deviation that it would have had with random numbers."""
    logger.info("counting which token follows which, for the token embeddings to start from")
    for size in {encoder.config.embedding_size for encoder in encoders}:
        counted_VE = torch.from_numpy(
            cooccurrence_table(data.train, vocabulary_size=data.vocabulary_size, size=size)
        )
        seen_V1 = counted_VE.abs().amax(1, keepdim=True) > 0
        for encoder in encoders:
            weight_VE = encoder.embeddings.token.weight
            if weight_VE.shape[1] == size:
                weight_VE.copy_(torch.where(seen_V1, counted_VE * encoder.config.initializer_range, weight_VE))
