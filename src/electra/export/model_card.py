"""The model card of a run: what it is, what it was trained on and how, what it reached, how to use it."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Literal

from electra import __version__
from electra.export.loading import is_id
from electra.modeling.encoders.base import EncoderConfig
from electra.objectives.config import GeneratorConfig
from electra.objectives.metric_labels import metric_label

Facts = Mapping[str, Any]
CardKind = Literal["discriminator", "generator", "encoder", "run"]
"""Which folder a card is for: one of the exports, or the run's folder above them."""

TEMPLATE = Path(__file__).with_name("model_card.md.jinja")
WEAK = 0.6
"""Below this AUC a card says that the discriminator has hardly learnt anything."""

RESTORING = ("replace-mlm", "all-tokens-mlm")
"""Objectives whose network says what stood in place of fakes."""

_METRICS = (
    "eval/discriminator_auc", "eval/unigram_auc", "eval/discriminator_average_precision",
    "eval/discriminator_precision", "eval/discriminator_recall", "eval/discriminator_loss", "eval/majority_loss",
    "eval/replaced_share", "eval/masked_lm_accuracy", "eval/masked_lm_sample_accuracy", "eval/masked_lm_loss",
    "eval/generator_entropy",
)  # fmt: skip
"""The metrics that come first in the card."""
_RESULTS = {
    "eval/discriminator_auc": "roc_auc",
    "eval/discriminator_average_precision": "average_precision",
    "eval/masked_lm_accuracy": "accuracy",
    "eval/masked_lm_loss": "loss",
}
"""The metrics that the hub shows with a model, and the hub's name for the kind of each."""
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
    config: Facts,
    progress: Facts,
    evaluation: Facts,
    environment: Facts,
) -> str:
    """The text of a README.md, with the front matter that the Hugging Face hub reads.

    It holds no path of the machine that trained: of the data's sources it names the files, of the config the
    sections.

    Args:
        kind: which folder the card is for; "run" is the one above the exports.
        config: the run's config.toml as a dictionary.
        progress: how far the run went: step, tokens, flops, seconds.
        evaluation: the last evaluation: keys that start with `eval/`, and its step.
        environment: the run's environment.json; its `data` says how the data was made and what it amounts to.
    """
    import jinja2

    templates = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    untrained = evaluation.get("step") == 0 < progress.get("step", 0)
    if untrained:  # measured before the first step: figures of random weights, not of these
        evaluation = {}
    auc = evaluation.get("eval/discriminator_auc")
    model, objective = config.get("model", {}), config.get("objective", {}).get("kind", "replaced-token")
    start = config.get("init", {}).get("discriminator")
    fills_masks = kind == "generator" or objective == "masked-lm"
    sources = _sources(environment.get("data", {}))
    return templates.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        kind=kind,
        objective=objective,
        title=_title(kind, objective),
        path=_paths(kind),
        restores=objective in RESTORING,
        others=config.get("masking", {}).get("random_share", 0) > 0,
        pairs=config.get("objective", {}).get("sentence_loss", "none") != "none",
        main="encoder" if objective in ("masked-lm", *RESTORING) else "discriminator",
        beside=_has_generator(config),
        is_bert=objective == "masked-lm" and model.get("embedding_size") == model.get("hidden_size"),
        fills_masks=fills_masks,
        base=start if start and is_id(start) and not Path(start).exists() else None,
        sources=[source.removeprefix("hub:") for source in sources if source.startswith("hub:")],
        # An energy is no detector: its AUC is no figure to rank models by.
        results=[] if objective == "electric" else _results(evaluation, fills_masks=fills_masks),
        measured_on=_measured_on(sources),
        shape=_shape(config),
        length=config.get("packing", {}).get("sequence_length", model.get("max_positions")),
        data=_data(environment.get("data", {})),
        training=_training(config, progress, environment),
        settings=_settings(config),
        figures=_figures(evaluation),
        step=_number(evaluation.get("step", progress.get("step"))),
        now=_number(progress.get("step")),
        untrained=untrained,
        # An energy is no detector, and a network that was trained before has learnt what no figure here shows.
        weak=f"{auc:.3f}" if auc is not None and auc < WEAK and objective != "electric" and not start else None,
        start=_model(start) if start else None,
        version=__version__,
    )


def _title(kind: CardKind, objective: str) -> str:
    if objective == "masked-lm":
        return "Masked language model"
    if objective == "electric":
        return "Electric"
    if kind == "encoder" or (kind == "run" and objective in RESTORING):
        return "Text encoder that restores replaced tokens"
    return "ELECTRA generator" if kind == "generator" else "ELECTRA discriminator"


def _has_generator(config: Facts) -> bool:
    objective = config.get("objective", {})
    return objective.get("kind") not in ("masked-lm", "electric") and objective.get("fakes", "generator") in (
        "generator",
        "frozen",
    )


def _paths(kind: CardKind) -> dict[str, str]:
    """The exports as seen from the folder that holds the card."""
    towers = ("discriminator", "generator", "encoder")
    if kind == "run":
        return {tower: f"export/{tower}" for tower in towers}
    return {tower: "." if tower == kind else f"../{tower}" for tower in towers}


def _shape(config: Facts) -> list[tuple[str, str, str]]:
    """The two networks side by side; a generator takes from the discriminator what it does not set."""
    model, own = config.get("model", {}), config.get("generator", {})
    if own.get("width"):
        model_class, model_table = EncoderConfig.variant(model)
        generator_class, generator_table = GeneratorConfig.variant(own)
        shape = generator_class(**generator_table).encoder(model_class(**model_table))
        own = {key: getattr(shape, key) for key in _SHAPE}
    hidden = own.get("hidden_size")
    derived = {"feed_forward_size": 4 * hidden, "heads": max(1, hidden // 64)} if hidden else {}
    return [
        (
            name,
            _number(model.get(key) or None),
            _number(own.get(key) or derived.get(key) or model.get(key) or None),
        )
        for key, name in _SHAPE.items()
    ]


def _data(data: Facts) -> str:
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
        sentences.append(f"Sources: {', '.join(f'`{name}`' for name in names[:5])}{more}.")
    if tokenizer:
        case = {True: "lowercased", False: "case kept"}.get(tokenizer.get("lowercase"), "case unknown")
        kind, entries = tokenizer.get("kind", "unknown kind"), _number(tokenizer.get("vocabulary_size"))
        sentences.append(
            f"Tokenizer: {kind}, {entries} entries, {case}, "
            f"{statistics.get('characters_per_token', 0):.2f} characters a token, "
            f"{statistics.get('unknown_share', 0):.2%} unknown."
        )
    return "\n".join(sentences)


def _sources(data: Facts) -> list[str]:
    """The names of the data's files, and ids of data sets of the hub, which begin with hub:."""
    return [_source(source["name"]) for source in data.get("made", {}).get("options", {}).get("sources", [])]


def _measured_on(sources: list[str]) -> dict[str, str]:
    """The data set of the hub's entry, which wants a short name and a full one."""
    if not sources:
        return {"type": "unknown", "name": "held-out documents"}
    first = sources[0].removeprefix("hub:")
    more = f" and {len(sources) - 1:,} more" if len(sources) > 1 else ""
    short = first if sources[0].startswith("hub:") else first.partition(".")[0] or first
    return {"type": short, "name": f"held-out documents of {first}{more}"}


def _results(evaluation: Facts, *, fills_masks: bool) -> list[dict[str, str]]:
    """The figures of one network in the hub's form; those that were not measured are left out."""
    beginning = "eval/masked_lm" if fills_masks else "eval/discriminator"
    return [
        {"type": kind, "name": metric_label(key), "value": f"{evaluation[key]:.4f}"}
        for key, kind in _RESULTS.items()
        if key.startswith(beginning) and evaluation.get(key) is not None
    ]


def _model(name: str) -> str:
    """An id of the hub as it is; of a folder its name alone."""
    return name if is_id(name) and not Path(name).exists() else _source(name)


def _warmup(optimizer: Facts) -> str:
    before = optimizer.get("steps_before")
    if before:
        return f"on the schedule of a run that had gone {_number(before)} steps"
    return f"{_number(optimizer.get('warmup_steps'))} steps of warm-up"


def _source(name: str) -> str:
    """The file's name: a whole path says more of a machine than of the data."""
    return name if name.startswith("hub:") else PurePath(name).name or name


def _training(config: Facts, progress: Facts, environment: Facts) -> str:
    train, objective = config.get("train", {}), config.get("objective", {})
    masking, optimizer = config.get("masking", {}), config.get("optimizer", {})
    start = config.get("init", {}).get("discriminator")
    lines = [
        f"Continued from `{_model(start)}`." if start else "",
        f"{_number(progress.get('step'))} steps of {_number(train.get('batch_size'))} rows of "
        f"{_number(config.get('packing', {}).get('sequence_length'))} tokens: "
        f"{_number(progress.get('tokens'))} tokens, {progress.get('flops') or 0:.2e} floating-point operations, "
        f"{_duration(progress.get('seconds') or 0)}, in {train.get('precision')} on "
        f"{environment.get('accelerator') or environment.get('processor', 'an unknown processor')}.",
        f"Peak learning rate {optimizer.get('learning_rate')}, {_warmup(optimizer)}; "
        f"{masking.get('share', 0):.0%} of the tokens chosen for prediction.",
    ]
    if objective.get("kind") != "masked-lm":
        judge = "encoder" if objective.get("kind") in RESTORING else "discriminator"
        lines.append(
            f"Weight of the {judge}'s loss {objective.get('discriminator_weight')}; shared by the networks: "
            f"{objective.get('sharing')}."
        )
    return "\n".join(filter(None, lines))


def _settings(config: Facts) -> str:
    import tomli_w

    # What stands outside the sections is where data and run lie on one machine, and so may be where a run began.
    sections = {name: dict(value) for name, value in config.items() if isinstance(value, dict)}
    for name in {"discriminator", "generator"} & sections.get("init", {}).keys():
        sections["init"][name] = _model(sections["init"][name])
    return tomli_w.dumps(sections).strip()


def _figures(evaluation: Facts) -> list[tuple[str, str]]:
    """Labels and values of `_METRICS`, in this order; then those of all other metrics."""
    others = sorted(key for key in evaluation.keys() - {*_METRICS} if key.startswith("eval/"))
    values = [(metric_label(key), evaluation[key]) for key in (*_METRICS, *others) if key in evaluation]
    return [(label, "–" if value is None else f"{value:.4f}") for label, value in values]


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.1f} minutes"


def _number(value: Any) -> str:
    return "unknown" if value is None else f"{value:,}"
