"""Write the model card of a run: the networks, their training and data, held-out metrics, and examples of use."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Literal

from electra import __version__
from electra.durations import describe_duration
from electra.export.formats.base import format_of_encoder
from electra.export.loading import is_hub_id
from electra.export.markdown import code_span, escaped
from electra.export.pretrained import HeadKind
from electra.modeling.encoders.base import EncoderConfig
from electra.objectives.config import GeneratorConfig, ObjectiveConfig
from electra.objectives.description import ModelDescription
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.metric_labels import metric_label

SECOND_TITLE = "ELECTRA discriminator as a masked language model"
AVERAGED_TITLE = "Text encoder with averaged weights"
CardKind = Literal["discriminator", "generator", "encoder", "averaged", "run"]
"""The folder for which a card is written: one of the exports, or the run's folder above them."""

TEMPLATE = Path(__file__).with_name("model_card.md.jinja")
WEAK = 0.6
"""Below this AUC a card says that the discriminator has learned almost nothing."""

_METRICS = (
    "eval/discriminator_auc", "eval/unigram_auc", "eval/discriminator_average_precision",
    "eval/discriminator_precision", "eval/discriminator_recall", "eval/discriminator_loss", "eval/majority_loss",
    "eval/replaced_share", "eval/masked_lm_accuracy", "eval/masked_lm_sample_accuracy", "eval/masked_lm_loss",
    "eval/generator_entropy",
)  # fmt: skip
"""The metrics that come first in the card, in this order."""
_RESULTS = {
    "eval/discriminator_auc": "roc_auc",
    "eval/discriminator_average_precision": "average_precision",
    "eval/masked_lm_accuracy": "accuracy",
    "eval/masked_lm_loss": "loss",
}
"""The metrics that the hub shows with a model, and the hub's name for each kind of metric."""
_SHAPE = {
    "layers": "layers",
    "hidden_size": "hidden size",
    "feed_forward_size": "feed-forward size",
    "heads": "attention heads",
    "embedding_size": "embedding size",
    "vocabulary_size": "vocabulary",
}


def model_card(
    kind: CardKind,
    *,
    config: Mapping[str, Any],
    trained_length: int,
    progress: Mapping[str, Any],
    evaluation: Mapping[str, Any],
    environment: Mapping[str, Any],
    half: bool = False,
) -> str:
    """Return the text of a README.md, with the front matter that the Hugging Face hub reads.

    The card has no paths of the machine that trained: only names of data files, and only the sections of the
    config.

    Args:
        kind: the folder for which the card is written; "run" is the folder above the exports.
        config: the run's config.toml as a dictionary.
        trained_length: the longest input in tokens that the network was trained on, in this run or before.
        progress: the amount of training: step, tokens, flops, seconds.
        evaluation: the last evaluation: keys that start with `eval/`, and its step.
        environment: the run's environment.json; its `data` describes the data.
        half: whether the weights are stored in float16.
    """
    import jinja2

    templates = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    objective, encoder, generator, masking = _configs(config)
    about = objective.describe(masking)
    is_second = kind == "encoder" and objective.exports_masked_lm
    average = config.get("init", {}).get("average", 0.0) if kind == "averaged" else 0.0
    fills_masks = (kind == "generator" or about.fills_masks or is_second) and not average
    data, start = environment.get("data", {}), _start(config)
    if average:  # the evaluation measured the trained weights
        evaluation = {}
    return templates.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        kind=kind,
        about=about,
        title=_title(kind, about, is_second=is_second),
        average=average,
        is_second=is_second,
        half=half,
        path=_paths(kind),
        fills_masks=fills_masks,
        base=_base_model(config),
        sources=[source.removeprefix("hub:") for source in _sources(data) if source.startswith("hub:")],
        measured_on=_measured_on(_sources(data)),
        rows=config.get("packing", {}).get("sequence_length", trained_length),
        length=trained_length,
        longest=(generator if kind == "generator" else encoder).longest_input(trained_length),
        data=_data(data),
        training=_training(config, objective, _main_network(about), progress, environment),
        settings=_settings(config),
        start=start and code_span(start),
        version=__version__,
        **_network_values(objective, about, encoder, generator),
        **_metric_values(objective, about, evaluation, progress, fills_masks=fills_masks, continued=bool(start)),
    )


def _title(kind: CardKind, about: ModelDescription, *, is_second: bool) -> str:
    titles: dict[CardKind, str] = {"generator": "ELECTRA generator", "averaged": AVERAGED_TITLE}
    return SECOND_TITLE if is_second else titles.get(kind, about.title)


def _start(config: Mapping[str, Any]) -> str | None:
    """The name of the run or of the network that the run continues, without its path."""
    init: Mapping[str, Any] = config.get("init", {})
    if run := init.get("from"):
        return _source(run)
    return _model(discriminator) if (discriminator := init.get("discriminator")) else None


def _base_model(config: Mapping[str, Any]) -> str | None:
    """The model of the hub that the run continues. A run, of which the path can look like an id, is none."""
    init: Mapping[str, Any] = config.get("init", {})
    discriminator = init.get("discriminator")
    return discriminator if discriminator and not init.get("from") and _is_from_hub(discriminator) else None


def _main_network(about: ModelDescription) -> str:
    """The network that users fine-tune."""
    return "discriminator" if about.head == "discriminator" else "encoder"


def _network_values(
    objective: ObjectiveConfig, about: ModelDescription, encoder: EncoderConfig, generator: EncoderConfig
) -> dict[str, Any]:
    """The values of the template that describe the networks."""
    main = _main_network(about)
    classes = {main: _transformers_class(encoder, about.head), "generator": None}
    if objective.accepts_pretrained_generator:
        classes["generator"] = _transformers_class(generator, "generator")
    return {
        "main": main,
        "classes": classes,
        "has_generator": objective.accepts_pretrained_generator,
        "exports_masked_lm": objective.exports_masked_lm,
        "is_energy": objective.scores == "energy",
        "model_type": _model_type(encoder, about.head) if classes[main] else "electra",
        "shape": _shape(encoder, generator),
    }


def _metric_values(
    objective: ObjectiveConfig,
    about: ModelDescription,
    evaluation: Mapping[str, Any],
    progress: Mapping[str, Any],
    *,
    fills_masks: bool,
    continued: bool,
) -> dict[str, Any]:
    """The values of the template that describe the last evaluation."""
    untrained = evaluation.get("step") == 0 < progress.get("step", 0)
    if untrained:  # the evaluation measured random weights
        evaluation = {}
    # The AUC of energies must not rank models, because energies do not detect replaced tokens.
    is_energy, auc = objective.scores == "energy", evaluation.get("eval/discriminator_auc")
    # The metrics do not show what a continued network learned before.
    is_weak = auc is not None and auc < WEAK and not is_energy and not continued
    return {
        "results": [] if is_energy else _results(evaluation, fills_masks=fills_masks),
        "metrics": _metrics(evaluation, has_generator=about.generator is not None),
        "step": _number(evaluation.get("step", progress.get("step"))),
        "last_step": _number(progress.get("step")),
        "untrained": untrained,
        "weak": f"{auc:.3f}" if is_weak else None,
    }


def _configs(config: Mapping[str, Any]) -> tuple[ObjectiveConfig, EncoderConfig, EncoderConfig, MaskingConfig]:
    """The objective, the main encoder, the generator's encoder, and the masking of a run."""
    objective_class, objective = ObjectiveConfig.variant(config.get("objective", {}))
    encoder_class, encoder = EncoderConfig.variant(config.get("model", {}))
    generator_class, generator = GeneratorConfig.variant(config.get("generator", {}))
    encoder_config = encoder_class(**encoder)
    masking = MaskingConfig(**config.get("masking", {}))
    return (
        objective_class(**objective), encoder_config, generator_class(**generator).encoder(encoder_config), masking
    )  # fmt: skip


def _model_type(encoder: EncoderConfig, head: HeadKind) -> str:
    """The `model_type` of an exported network."""
    checkpoint_format = format_of_encoder(encoder)
    if head in ("generator", "language-model"):
        return checkpoint_format.language_model_type(encoder)
    return checkpoint_format.model_types[0]


def _transformers_class(encoder: EncoderConfig, head: HeadKind) -> str | None:
    """transformers' class for the encoder with its head; None: there is none."""
    return format_of_encoder(encoder).architecture(_model_type(encoder, head), head)


def _paths(kind: CardKind) -> dict[str, str]:
    """The paths of the exports, relative to the folder of the card."""
    networks = ("discriminator", "generator", "encoder")
    if kind == "run":
        return {name: f"export/{name}" for name in networks}
    return {name: "." if name == kind else f"../{name}" for name in networks}


def _shape(encoder: EncoderConfig, generator: EncoderConfig) -> list[tuple[str, str, str]]:
    """The settings of both networks: label, value of the encoder, value of the generator."""
    return [
        (name, _number(getattr(encoder, key) or None), _number(getattr(generator, key) or None))
        for key, name in _SHAPE.items()
    ]


def _data(data: Mapping[str, Any]) -> str:
    statistics, tokenizer = data.get("statistics", {}), data.get("tokenizer", {})
    amounts = [
        f"{_number(statistics[name])} {name}"
        for name in ("documents", "characters", "tokens")
        if statistics.get(name) is not None
    ]
    names = _sources(data)
    sentences = [f"{', '.join(amounts)}." if amounts else "Not described."]
    if names:
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        sentences.append(f"Sources: {', '.join(map(code_span, names[:5]))}{more}.")
    if tokenizer:
        case = {True: "lowercased", False: "case kept"}.get(tokenizer.get("lowercase"), "case unknown")
        kind = escaped(str(tokenizer.get("kind", "unknown kind")))
        entries = _number(tokenizer.get("vocabulary_size"))
        sentences.append(
            f"Tokenizer: {kind}, {entries} entries, {case}, "
            f"{statistics.get('characters_per_token', 0):.2f} characters a token, "
            f"{statistics.get('unknown_share', 0):.2%} unknown."
        )
    return "\n".join(sentences)


def _sources(data: Mapping[str, Any]) -> list[str]:
    """The names of the data files, and ids of data sets of the hub, which begin with hub:."""
    return [_source(source["name"]) for source in data.get("made", {}).get("options", {}).get("sources", [])]


def _measured_on(sources: list[str]) -> dict[str, str]:
    """The data set in the hub's form: a short name (`type`) and a full name."""
    if not sources:
        return {"type": "unknown", "name": "held-out documents"}
    first = sources[0].removeprefix("hub:")
    more = f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""
    short = first if sources[0].startswith("hub:") else first.partition(".")[0] or first
    return {"type": short, "name": f"held-out documents of {first}{more}"}


def _results(evaluation: Mapping[str, Any], *, fills_masks: bool) -> list[dict[str, str]]:
    """The metrics of one network in the hub's form, without metrics that were not measured."""
    prefix = "eval/masked_lm" if fills_masks else "eval/discriminator"
    return [
        {"type": kind, "name": metric_label(key), "value": f"{evaluation[key]:.4f}"}
        for key, kind in _RESULTS.items()
        if key.startswith(prefix) and evaluation.get(key) is not None
    ]


def _model(name: str) -> str:
    """A model in the card: an id of the hub, or the name of a folder without its path."""
    return name if _is_from_hub(name) else _source(name)


def _is_from_hub(name: str) -> bool:
    return is_hub_id(name) and not Path(name).exists()


def _warmup(optimizer: Mapping[str, Any]) -> str:
    if steps_before := optimizer.get("steps_before"):
        return f"the learning-rate schedule is that of a run after {_number(steps_before)} steps"
    if optimizer.get("warmup_steps") == 0:
        most = optimizer.get("max_warmup_steps", 10_000)
        return f"warm-up over the first tenth of the run (at most {_number(most)} step{'s' * (most > 1)})"
    return f"{_number(optimizer.get('warmup_steps'))} steps of warm-up"


def _source(name: str) -> str:
    """The name of a data file without its path, which would describe the machine; ids of the hub are kept."""
    return name if name.startswith("hub:") else PurePath(name).name or name


def _training(
    config: Mapping[str, Any],
    objective: ObjectiveConfig,
    main: str,
    progress: Mapping[str, Any],
    environment: Mapping[str, Any],
) -> str:
    train = config.get("train", {})
    masking, optimizer = config.get("masking", {}), config.get("optimizer", {})
    start = _start(config)
    processor = environment.get("accelerator") or environment.get("processor", "an unknown processor")
    lines = [
        f"Continued from {code_span(start)}." if start else "",
        f"{_number(progress.get('step'))} steps of {_number(train.get('batch_size'))} rows of "
        f"{_number(config.get('packing', {}).get('sequence_length'))} tokens: "
        f"{_number(progress.get('tokens'))} tokens, {progress.get('flops') or 0:.2e} floating-point operations, "
        f"{describe_duration(progress.get('seconds') or 0)}, in {train.get('precision')} on "
        f"{escaped(str(processor))}.",
        f"Peak learning rate {optimizer.get('learning_rate')}; {_warmup(optimizer)}.",
        f"{masking.get('share', 0):.0%} of the tokens are predicted.",
        _losses(objective, main),
    ]
    return "\n".join(filter(None, lines))


def _losses(objective: ObjectiveConfig, main: str) -> str:
    """The weights of the losses, and what the networks share; empty for one network with one loss."""
    weight, correction = (getattr(objective, f"{name}_weight", 0.0) for name in ("discriminator", "correction"))
    sentences = []
    if correction:
        sentences.append(
            f"Weight of the {main}'s loss {weight}, of the loss for restoring the original tokens {correction}."
        )
    elif objective.has_generator:
        sentences.append(f"Weight of the {main}'s loss {weight}.")
    if objective.has_generator:
        sentences.append(f"Shared by the networks: {objective.sharing}.")
    return " ".join(sentences)


def _settings(config: Mapping[str, Any]) -> str:
    import tomli_w

    # The settings outside the sections are paths on this machine. The names of pre-trained networks may be paths,
    # too.
    sections = {name: dict(value) for name, value in config.items() if isinstance(value, dict)}
    for name, describe in (("from", _source), ("discriminator", _model), ("generator", _model)):
        if name in (init := sections.get("init", {})):
            init[name] = describe(init[name])
    return tomli_w.dumps(sections).strip()


def _metrics(evaluation: Mapping[str, Any], *, has_generator: bool) -> list[tuple[str, str]]:
    """Labels and values: first `_METRICS` in their order, then all other metrics."""
    others = sorted(key for key in evaluation.keys() - {*_METRICS} if key.startswith("eval/"))
    keys = [key for key in (*_METRICS, *others) if key in evaluation]
    values = [(escaped(metric_label(key)), evaluation[key]) for key in keys]
    return [
        (label if has_generator else label.removeprefix("generator: "), "–" if value is None else f"{value:.4f}")
        for label, value in values
    ]


def _number(value: Any) -> str:
    return "unknown" if value is None else f"{value:,}"
