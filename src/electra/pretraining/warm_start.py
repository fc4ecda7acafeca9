"""Initial weights of a run: random, from counts of the data, or from pre-trained networks."""

import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from electra.config import problems_of
from electra.data.cooccurrence import cooccurrence_table
from electra.data.shards import TokenData
from electra.errors import CheckpointError, ConfigError
from electra.export.loading import load_pretrained
from electra.export.pretrained import Pretrained, head_kind
from electra.modeling.encoders.base import ACTIVATIONS, EncoderConfig, EncoderModule, kinds_with
from electra.modeling.heads import LanguageModelHead, MaskedLanguageModelHead, ReplacedTokenHead
from electra.modeling.sharing import load_standalone
from electra.objectives.base import ExportableNetwork, Objective
from electra.objectives.config import GeneratorConfig, ObjectiveConfig, scores_of
from electra.pretraining.config import PretrainConfig
from electra.pretraining.init_config import InitConfig
from electra.pretraining.masked_lm_head import initialize_masked_lm_head, load_masked_lm_head
from electra.pretraining.second_stage import FirstStage, load_first_stage, load_weights, with_shapes_of_first_stage

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WarmStart:
    """The pre-trained networks that a run starts from.

    Attributes:
        discriminator, generator: None: a new network.
        masked_lm_head: of the discriminator, if the run trains such a head; None: a new one.
        first_stage: the run whose weights are taken.
        notes: what was changed in them, for the log of the run.
    """

    discriminator: Pretrained | None = None
    masked_lm_head: MaskedLanguageModelHead | None = None
    generator: Pretrained | None = None
    first_stage: FirstStage | None = None
    notes: tuple[str, ...] = ()


def load_warm_start(config: PretrainConfig) -> WarmStart:
    """Load the networks that [init] names.

    Raises:
        CheckpointError: a network cannot be loaded, or the generator is not a masked language model.
        DataError: a tokenizer cannot be read.
    """
    init = config.init
    if init.from_ is not None:
        return WarmStart(first_stage=load_first_stage(init.from_))
    discriminator = None if init.discriminator is None else load_pretrained(init.discriminator, quiet=True)
    if discriminator is not None and init.generator_layers:
        return _with_copied_generator(discriminator, init.generator_layers, str(init.discriminator))
    if init.discriminator is not None and discriminator is not None and config.objective.exports_masked_lm:
        head = load_masked_lm_head(init.discriminator, discriminator)
        if head is discriminator.head:  # it is not for detection
            discriminator = replace(discriminator, head=None)
        return WarmStart(discriminator, head)
    if init.generator is None:
        return WarmStart(discriminator)
    generator = load_pretrained(_generator_folder(init.generator), quiet=True)
    if not isinstance(generator.head, MaskedLanguageModelHead):
        what = "has no head" if generator.head is None else "is a discriminator"
        if isinstance(generator.head, LanguageModelHead):
            what = "is a causal or permutation language model"
        raise CheckpointError(
            f"init.generator: {init.generator} {what}; a generator is a masked language model with its head, "
            "such as RUN/export/generator"
        )
    if generator.head.activation is not ACTIVATIONS["gelu"]:
        raise CheckpointError(
            f"init.generator: the head of {init.generator} has another activation than GELU, which generators have"
        )
    return WarmStart(discriminator, generator=generator)


def _with_copied_generator(discriminator: Pretrained, layers: int, name: str) -> WarmStart:
    """Return a start whose generator is a copy of the first blocks of the discriminator.

    Raises:
        ConfigError: it has not more blocks.
    """
    shape = discriminator.encoder.config
    if layers >= shape.layers:
        raise ConfigError(f"init.generator_layers: is {layers}, but {name} has {shape.layers} blocks; take fewer")
    encoder = replace(shape, layers=layers).as_generator().build()
    names = encoder.state_dict().keys()
    encoder.load_state_dict(
        {key: value for key, value in discriminator.encoder.state_dict().items() if key in names}
    )
    head = copy.deepcopy(discriminator.head)  # a transfer to another vocabulary changes each head
    if not isinstance(head, MaskedLanguageModelHead) or head.activation is not ACTIVATIONS["gelu"]:
        head = None
    note = f"the generator is a copy of {name}, cut to the first {layers} of {shape.layers} blocks"
    generator = replace(discriminator, encoder=encoder, head=head, pairs=None, unused=(), renamed={})
    return WarmStart(discriminator, generator=generator, notes=(note,))


def _generator_folder(model: str) -> str | Path:
    """The generator's folder in a run or an export; any other model is the generator itself."""
    for folder in (Path(model) / "export/generator", Path(model) / "generator"):
        if folder.is_dir():
            return folder
    return model


def with_shapes(config: PretrainConfig, start: WarmStart) -> PretrainConfig:
    """Set the shapes in the config to those of the pre-trained networks.

    Raises:
        ConfigError: the networks do not fit together, or do not fit the rest of the config.
    """
    if start.first_stage is not None:
        return with_shapes_of_first_stage(config, start.first_stage)
    if start.discriminator is None and start.generator is None:
        return config
    config = replace(config, init=_with_trained_lengths(config.init, start))
    problems: list[str] = []
    if config.objective.fakes == "frozen" and start.generator is not None and start.generator.head is None:
        problems.append(
            f"init.generator_layers: {config.init.discriminator} has no masked-LM head, and objective.fakes "
            "frozen does not train one; give init.generator, or set objective.fakes generator"
        )
    if start.discriminator is not None:
        problems += _kind_problems(config, start.discriminator.encoder.config)
        config = replace(config, model=_with_shape(config.model, start.discriminator.encoder.config))
    elif start.generator is not None:  # a frozen one, for a fresh discriminator
        size = start.generator.encoder.config.vocabulary_size
        config = replace(config, model=replace(config.model, vocabulary_size=size))
    if config.objective.sharing == "all":
        config = replace(config, generator=_generator_config(config.model, config.model))
    elif start.generator is not None:
        config = replace(config, generator=_generator_config(start.generator.encoder.config, config.model))
    if start.generator is not None and not problems:
        problems += _generator_problems(start.discriminator, start.generator.encoder, config)
    if not problems:  # otherwise these problems only follow from the others
        problems += [*problems_of(config.model), *problems_of(config.generator)]
        problems += [*config.problems(), *config.shape_problems()]
    if problems:
        lines = "\n".join(f"  {problem}" for problem in dict.fromkeys(problems))
        raise ConfigError(f"a run cannot start from these networks:\n{lines}")
    return config


def _with_trained_lengths(init: InitConfig, start: WarmStart) -> InitConfig:
    """Note the longest inputs in the training of the pre-trained networks."""
    if (main := start.discriminator) is not None:
        init = replace(init, trained_length=main.trained_length or main.max_length)
    if (generator := start.generator) is not None:
        init = replace(init, generator_trained_length=generator.trained_length or generator.max_length)
    return init


def with_shapes_of_run(config: PretrainConfig, run: PretrainConfig) -> PretrainConfig:
    """Set the shapes in the config to those of an existing run, if both start from pre-trained networks."""
    if config.init.has_generator and run.init.has_generator:
        config = replace(config, generator=run.generator)
    if config.init.discriminator and run.init.discriminator:
        config = replace(config, model=_with_shape(config.model, run.model))
    return config


@torch.no_grad()
def initialize(objective: Objective, config: PretrainConfig, data: TokenData, start: WarmStart) -> None:
    """Set the initial weights of a fresh objective.

    Pre-trained networks are loaded. The other settings of [init] are for fresh networks only.
    """
    init, networks = config.init, objective.exportable_networks()
    for note in start.notes:
        logger.info("%s", note)
    if start.first_stage is not None:
        load_weights(objective, config, start.first_stage)
        return
    if (start.generator is None or start.generator.head is None) and init.output_bias == "unigram":
        unigram_counts_V = torch.from_numpy(data.unigram_counts).float()
        for bias_V in objective.output_biases():
            counts_V = torch.ones_like(bias_V)
            counts_V[: len(unigram_counts_V)] += unigram_counts_V
            bias_V.copy_((counts_V / counts_V.sum()).log())
    if start.discriminator is None and start.generator is not None:
        _load_weights(networks.pop("generator"), start.generator, str(init.generator), config.objective)
    if start.discriminator is not None:
        main, generator = networks.get("discriminator") or networks["encoder"], networks.get("generator")
        if start.generator is not None:
            _load_weights(
                networks["generator"], start.generator, init.generator or "the generator", config.objective
            )
        elif generator is not None and generator.encoder is not main.encoder:
            shape = generator.encoder.config
            logger.info("the generator is fresh: %s layers of %s", shape.layers, shape.hidden_size)
        _load_weights(
            main, start.discriminator, str(init.discriminator), config.objective,
            keep_tables=start.generator is not None,
        )  # fmt: skip
        if config.objective.exports_masked_lm:
            initialize_masked_lm_head(networks["encoder"], start.masked_lm_head)
        return
    encoders = list({id(network.encoder): network.encoder for network in networks.values()}.values())
    if init.token_table == "cooccurrence":
        _start_from_cooccurrence(encoders, data)
    if init.attention == "neighbours":  # it may add a vector to the token table
        for encoder in encoders:
            if "neighbor-start" in encoder.config.capabilities:
                encoder.attend_to_neighbors()


def _kind_problems(config: PretrainConfig, shape: EncoderConfig) -> Iterator[str]:
    """Problems if the objective or settings of [model] need another kind of encoder than the pre-trained one."""
    folder, objective = config.init.discriminator, config.objective
    model = _with_shape(config.model, shape)
    if missing := objective.encoder_capabilities - model.capabilities:
        suitable_kinds = kinds_with(objective.encoder_capabilities)
        hint = f", such as one of kind {', '.join(suitable_kinds)}" if suitable_kinds else ""
        yield (
            f"init.discriminator: {folder} is of kind {shape.kind}, and objective.kind {objective.kind} needs "
            f"{', '.join(sorted(missing))}; start from another network{hint}, or choose another objective"
        )
    if shape.kind == config.model.kind:
        return
    unsupported = [
        f"model.{name} {value}"
        for name in config.model.run_settings
        if name not in shape.run_settings
        and (value := getattr(config.model, name)) != getattr(type(config.model), name)
    ]
    if unsupported:
        yield (
            f"init.discriminator: {folder} is of kind {shape.kind}, and {' and '.join(unsupported)} "
            f"{'needs' if len(unsupported) == 1 else 'need'} kind {config.model.kind}; start from a folder of "
            "that kind, or take another preset"
        )


def _with_shape(model: EncoderConfig, shape: EncoderConfig) -> EncoderConfig:
    """The shape of the pre-trained weights, with settings of the run such as dropout."""
    return shape.with_run_settings_of(model)


def _generator_config(shape: EncoderConfig, model: EncoderConfig) -> GeneratorConfig:
    """The [generator] settings for a generator of this shape, given the discriminator."""
    kind = "" if shape.kind == GeneratorConfig().encoder_kind(model) else shape.kind
    return GeneratorConfig(
        kind=kind,
        hidden_size=shape.hidden_size,
        embedding_size=0 if shape.embedding_size == model.embedding_size else shape.embedding_size,
        layers=shape.layers,
        feed_forward_size=shape.feed_forward_size,
        heads=shape.heads,
    )


def _generator_problems(
    discriminator: Pretrained | None, generator: EncoderModule, config: PretrainConfig
) -> Iterator[str]:
    """Problems of a pre-trained generator: another shape than needed, or shared weights that differ."""
    expected, sharing = config.generator.encoder(config.model), config.objective.sharing
    if sharing != "none":
        expected = replace(expected, embedding_size=config.model.embedding_size)
    shape = generator.config.shape()
    problems = [
        f"init.generator: its {name} is {shape.get(name)}, but must be {value}"
        for name, value in expected.shape().items()
        if shape.get(name) != value
    ]
    yield from problems
    if any("embedding_size" in problem for problem in problems):
        yield "init.generator: tables of another width cannot be shared; set objective.sharing none"
    if problems or sharing in ("none", "disentangled") or discriminator is None:
        return
    tables = ["token"] if sharing == "tokens" else ["token", "position", "segment"]
    shared = [*tables, *(["norm"] if config.objective.share_norm else [])]
    prefixes = ("",) if sharing == "all" else tuple(f"embeddings.{name}." for name in shared)
    state_dict = generator.state_dict()
    for name, tensor in discriminator.encoder.state_dict().items():
        difference = float((tensor - state_dict[name]).abs().max()) if name.startswith(prefixes) else 0.0
        if difference:
            yield (
                f"init.generator: its {name} differs from the discriminator's (by up to {difference:.2g}), but "
                f"objective.sharing {sharing} shares it; set objective.sharing none or disentangled, or leave "
                "init.generator out"
            )


def _load_weights(
    network: ExportableNetwork,
    pretrained: Pretrained,
    name: str,
    objective: ObjectiveConfig,
    *,
    keep_tables: bool = False,
) -> None:
    """Load a pre-trained encoder, and its head if it is of the same kind.

    Args:
        keep_tables: tables that the discriminator reads from the generator (`objective.sharing` detached or
            disentangled) are pre-trained already. Otherwise they get the values of this encoder's.

    Raises:
        ConfigError: the head has another activation than the objective's.
    """
    state_dict = pretrained.encoder.state_dict()
    if "query_stream.weight" not in network.encoder.state_dict():  # the objective has no query stream
        state_dict.pop("query_stream.weight", None)
    load_standalone(network.encoder, state_dict, keep_tables=keep_tables)
    old, new = pretrained.encoder.config.direction, network.encoder.config.direction
    if old != new:
        labels = {"left": "left-to-right", "both": "bidirectional"}
        logger.info("%s was %s; in this run it is %s", name, labels[old], labels[new])
    fresh = type(network.head) is not type(pretrained.head)
    if isinstance(network.head, ReplacedTokenHead):  # energies are not log-odds
        fresh |= scores_of(pretrained.objective) != objective.scores
    if not fresh:
        assert pretrained.head is not None
        assert isinstance(network.head, type(pretrained.head))
        if getattr(network.head, "activation", None) is not getattr(pretrained.head, "activation", None):
            raise ConfigError(
                f"{name}: its head has another activation than the head of this objective (embeddings as wide as "
                "the states are exported as BERT, whose head has the activation of the blocks); start from "
                "another network"
            )
        network.head.load_state_dict(pretrained.head.state_dict())
    if network.pairs is not None and pretrained.pairs is not None:
        network.pairs.load_state_dict(pretrained.pairs.state_dict())
    logger.info(
        "starting from %s, %s layers of %s; the head is %s", name, network.encoder.config.layers,
        network.encoder.config.hidden_size, "fresh" if fresh else "pre-trained",
    )  # fmt: skip
    heads = [] if pretrained.head is None or not fresh else [f"its head ({head_kind(pretrained.head)})"]
    heads += ["its head for pairs of segments"] if pretrained.pairs is not None and network.pairs is None else []
    _log_differences(pretrained, name, heads)


def _log_differences(pretrained: Pretrained, name: str, unused_heads: list[str]) -> None:
    """Log what the run does not use of a folder, and which tensors are stored under other names."""
    if unused := [*unused_heads, *pretrained.unused]:
        logger.info("not used of %s: %s", name, ", ".join(unused))
    if pretrained.renamed:
        stored, today = next(iter(pretrained.renamed.items()))
        logger.info(
            "%s tensors of %s have names of another form, and are used: for example %s as %s",
            len(pretrained.renamed), name, stored, today,
        )  # fmt: skip


def _start_from_cooccurrence(encoders: list[EncoderModule], data: TokenData) -> None:
    """Set token embeddings from co-occurrence counts, with the standard deviation of the random initialization."""
    logger.info("counting co-occurrences of tokens, for the initial token embeddings")
    for size in {encoder.config.embedding_size for encoder in encoders}:
        vectors_VE = torch.from_numpy(
            cooccurrence_table(data.train, vocabulary_size=data.vocabulary_size, size=size)
        )
        occurs_V1 = vectors_VE.abs().amax(1, keepdim=True) > 0
        for encoder in encoders:
            weight_VE = encoder.embeddings.token.weight
            if weight_VE.shape[1] == size:
                rows_VE = weight_VE[: len(vectors_VE)]  # there may be rows behind the vocabulary
                rows_VE.copy_(torch.where(occurs_V1, vectors_VE * encoder.config.initializer_range, rows_VE))
