"""What the weights of a run start from: random numbers, counts of the data, or networks trained before."""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from electra.data.cooccurrence import cooccurrence_table
from electra.data.shards import TokenData
from electra.data.tokenizer import describe_tokenizer, load_tokenizer
from electra.errors import CheckpointError, ConfigError, DataError
from electra.export.huggingface import Pretrained
from electra.export.loading import find, load_pretrained
from electra.modeling.encoders.bert import ACTIVATIONS, Encoder, EncoderConfig
from electra.modeling.encoders.build import AnyEncoder
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.init import attend_to_neighbours
from electra.objectives.base import ExportableNetwork
from electra.objectives.config import GeneratorConfig, ObjectiveKind
from electra.pretraining.config import RELATIVE, AnyObjective, InitConfig, PretrainConfig

logger = logging.getLogger(__name__)

SHAPE = (
    "layers",
    "hidden_size",
    "embedding_size",
    "feed_forward_size",
    "heads",
    "vocabulary_size",
    "positions",
    "max_positions",
    "type_vocabulary_size",
    "share_layers",
    "layer_groups",
    "activation",
    "layer_norm_epsilon",
)
"""What weights fix of a network; dropout and the like are the run's own."""


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
        fixed += [f"model.{name}" for name in SHAPE] + ["init.token_table", "init.attention"]
    if init.generator is not None:
        fixed += [f"generator.{field.name}" for field in fields(GeneratorConfig)] + ["init.output_bias"]
    if found := sorted(set(fixed) & set(given)):
        raise ConfigError(f"{', '.join(found)}: decided by the networks that [init] names; leave it out")


IDLE: dict[ObjectiveKind, tuple[str, ...]] = {
    "causal-lm": ("generator.", "masking."),
    "permutation-lm": ("generator.", "masking.mask_share", "masking.random_share"),
}
"""Settings that an objective never looks at, by the beginning of their names; presets may have them."""


def refuse_unused(kind: ObjectiveKind, given: Collection[str]) -> None:
    """Refuse settings that were given by name although nothing follows from them.

    Raises:
        ConfigError: naming each one.
    """
    if found := sorted(name for name in given if name.startswith(IDLE.get(kind, ("-",)))):
        what = "no generator" if kind == "permutation-lm" else "no generator and no masks"
        raise ConfigError(f"{', '.join(found)}: {kind} has {what}; leave it out")


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
        problems += _other_positions(config, start.discriminator.encoder.config)
        config = replace(config, model=_shaped(config.model, start.discriminator.encoder.config))
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
        problems += [*config.model.problems(), *config.generator.problems()]
        problems += [*config.problems(), *config.shape_problems()]
    if problems:
        raise ConfigError("a run cannot start from these networks:\n" + "\n".join(f"  {p}" for p in problems))
    return config


def with_shapes_of_run(config: PretrainConfig, run: PretrainConfig) -> PretrainConfig:
    """The config with the shapes of a run that has begun, where both start from networks trained before."""
    if config.init.generator and run.init.generator:
        config = replace(config, generator=run.generator)
    if config.init.discriminator and run.init.discriminator:
        config = replace(config, model=_shaped(config.model, run.model))
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
def initialize(objective: AnyObjective, config: PretrainConfig, data: TokenData, start: WarmStart) -> None:
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
        _take(towers.pop("generator"), start.generator, str(init.generator), config.objective.kind)
    if start.discriminator is not None:
        main = towers.get("discriminator") or towers["encoder"]
        _take(main, start.discriminator, str(init.discriminator), config.objective.kind)
        if start.generator is not None:
            _take(towers["generator"], start.generator, str(init.generator), config.objective.kind)
        elif "generator" in towers and towers["generator"].encoder is not main.encoder:
            shape = towers["generator"].encoder.config
            logger.info("the generator is fresh: %s layers of %s", shape.layers, shape.hidden_size)
        return
    encoders = list({id(tower.encoder): tower.encoder for tower in towers.values()}.values())
    if init.attention == "neighbours":
        for encoder in encoders:
            if isinstance(encoder, Encoder):  # relative positions need no such start
                attend_to_neighbours(encoder)
    if init.token_table == "cooccurrence":
        _count_table(encoders, data)


def _other_positions(config: PretrainConfig, shape: EncoderConfig) -> Iterator[str]:
    """What is asked for needs other positions than those of the network that is continued."""
    folder, kind = config.init.discriminator, config.objective.kind
    if shape.positions == "relative":
        if kind not in RELATIVE:
            yield (
                f"init.discriminator: {folder} has relative positions, and {kind} needs learnt ones; start from "
                f"another type of network, or set objective.kind to one of {', '.join(RELATIVE)}"
            )
        return
    asked = [f"objective.kind {kind}"] if kind in ("causal-lm", "permutation-lm") else []
    asked += [
        f"model.{name} {value}"
        for name in ("direction", "memory_length")
        if (value := getattr(config.model, name)) != getattr(EncoderConfig, name)
    ]
    if asked:
        yield (
            f"init.discriminator: {folder} has learnt positions, and {' and '.join(asked)} "
            f"{'needs' if len(asked) == 1 else 'need'} relative ones; start from a folder of type xlnet, or take "
            "another preset"
        )


def _shaped(model: EncoderConfig, shape: EncoderConfig) -> EncoderConfig:
    return replace(model, **{name: getattr(shape, name) for name in SHAPE})


def _generator(shape: EncoderConfig, model: EncoderConfig) -> GeneratorConfig:
    """The settings of a generator of a certain shape beside a discriminator."""
    return GeneratorConfig(
        hidden_size=shape.hidden_size,
        embedding_size=0 if shape.embedding_size == model.embedding_size else shape.embedding_size,
        layers=shape.layers,
        feed_forward_size=shape.feed_forward_size,
        heads=shape.heads,
        positions=shape.positions,
    )


def _unlike(discriminator: Pretrained | None, generator: AnyEncoder, config: PretrainConfig) -> Iterator[str]:
    """Where a generator cannot stand beside a discriminator: another shape, or other weights that are shared."""
    expected, sharing = config.generator.encoder(config.model), config.objective.sharing
    if sharing != "none":
        expected = replace(expected, embedding_size=config.model.embedding_size)
    found = [
        f"init.generator: its {name} is {here}, where {wanted} is needed"
        for name in SHAPE
        if (here := getattr(generator.config, name)) != (wanted := getattr(expected, name))
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


def _take(tower: ExportableNetwork, pretrained: Pretrained, name: str, objective: ObjectiveKind) -> None:
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
        fresh |= (pretrained.objective == "electric") != (objective == "electric")
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


def _count_table(encoders: list[AnyEncoder], data: TokenData) -> None:
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
