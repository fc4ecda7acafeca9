"""What `electra analyze parts-of-speech` found, as tables and as a picture: which words look replaced, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts
from electra.reports.pictures import blank

TITLE = "Which words look replaced"
SHOWS = (
    "by part of speech, and by frequency, position and piece of word: how often originals are suspected and fakes "
    "missed, as measured and at equal difficulty"
)

Part = Mapping[str, Any]
NEVER_FITTED = "-"


def tables(facts: Facts) -> list[Table]:
    """What the discriminator says; what the generator proposes; effects of all properties at once; suspects."""
    found = [_discriminator(facts), _generator(facts)]
    if any(facts["effects"].values()):
        found.append(_effects(facts))
    if facts["suspects"]:
        found.append(_suspects(facts))
    return found


def notes(facts: Facts) -> list[str]:
    """What was measured on what, and how to tell bias from difficulty."""
    counted = "the treebank itself" if facts["frequencies"] is None else f"the training text of {facts['frequencies']}"
    found = [
        f"{facts['data']}: {facts['sentences']:,} sentences, {facts['words']:,} words; {facts['draws']} draws of "
        f"{facts['share']:.0%} of the tokens at temperature {facts['temperature']:g}, measured together; intervals: "
        f"95 %, {facts['resamples']} resamples of the sentences",
        f"A token is suspected where its probability of having been replaced is above {facts['threshold']:g}. "
        "Suspected: of the tokens of the text as it is (clean), and of those of the corrupted text that are as they "
        "were (untouched): false positives. Missed: of the fakes those that are not suspected: false negatives. "
        "The groups are those of the original word. Frequencies are ranks of tokens in "
        f"{counted}; that of a word is that of its rarest token.",
        "Bias and difficulty: missed in one group more than in another, a fake may be harder there, because the "
        "generator held it likelier. 'At equal difficulty' weights each group's fakes as if their probabilities "
        "were spread as those of all (clean tokens: the original's probability, where it was masked). What "
        "is left of a difference is the discriminator's own. The effects are of a logistic regression with all "
        "properties at once: log-odds of an error beside those of the mean token, other properties equal; its "
        "intervals take sentences as clusters.",
    ]
    if facts["rebuilt"]:
        found.append(
            f"{facts['rebuilt']:,} sentences have no text of their own (# text = ...), or one with other words: their "
            "words were read with a blank between each two"
        )
    if facts["objective"] == "electric":
        found.append("The model was trained by Electric: its logits are energies, so read the AUC, not the rates")
    return found


def _rows(facts: Facts) -> list[tuple[str, Part, bool]]:
    """Name of the group, its figures, and whether it is the last of its grouping."""
    return [
        (one["name"] if title != "all tokens" else title, one, one is part[-1])
        for title, part in facts["groups"].items()
        for one in part
    ]


def _discriminator(facts: Facts) -> Table:
    columns = (
        "", "tokens", "clean suspected", "untouched suspected", "fakes", "missed", "AUC", "log-odds: clean",
        "untouched", "fakes",
    )  # fmt: skip
    table = Table(*columns, title=f"{facts['model']}: what the discriminator says", title_justify="left")
    for name, one, last in _rows(facts):
        table.add_row(
            name, f"{one['tokens']:,}", _rate(one["clean_suspected"]), _rate(one["untouched_suspected"]),
            f"{one['fakes']:,}", _rate(one["missed"]), _number(one["auc"], 3), _number(one["clean_logit"]),
            _number(one["untouched_logit"]), _number(one["fake_logit"]), end_section=last,
        )  # fmt: skip
    return table


def _generator(facts: Facts) -> Table:
    columns = (
        "", "places", "p(original)", "log p(original)", "entropy", "draw is the original", "log p(fake)",
        "missed, at equal difficulty", "clean suspected, at equal difficulty",
    )  # fmt: skip
    title = "what the generator proposes there, and the errors at equal difficulty"
    table = Table(*columns, title=title, title_justify="left")
    for name, one, last in _rows(facts):
        table.add_row(
            name, f"{one['places']:,}", _number(one["original_probability"], 3),
            _number(one["original_log_probability"]), _number(one["entropy"]), _rate(one["same"], short=True),
            _number(one["fake_log_probability"]), _rate(one["missed_at_equal_difficulty"]),
            _rate(one["clean_suspected_at_equal_difficulty"]), end_section=last,
        )  # fmt: skip
    return table


def _effects(facts: Facts) -> Table:
    columns = ("", "fakes", "missed: effect", "95 %", "clean tokens", "suspected: effect", "95 %")
    table = Table(*columns, title="effects, in log-odds, all properties at once", title_justify="left")
    sides = [facts["effects"][key] or {} for key in ("missed", "clean_suspected")]
    for factor in dict.fromkeys(name for side in sides for name in side):
        both = [{one["level"]: one for one in side.get(factor, ())} for side in sides]
        # The bins of the generator's probability have other bounds for fakes than for originals.
        levels = list(dict.fromkeys(level for side in both for level in side))
        for level in levels:
            cells = [cell for side in both for cell in _effect(side.get(level))]
            table.add_row(_level(factor, level), *cells, end_section=level == levels[-1])
    return table


def _level(factor: str, level: str) -> str:
    return f"p {level}" if factor == "generator's probability" else level


def _effect(one: Part | None) -> tuple[str, str, str]:
    if one is None:
        return "", "", ""
    return f"{one['tokens']:,}", f"{one['value']:+.2f}", f"{one['low']:+.2f} to {one['high']:+.2f}"


def _suspects(facts: Facts) -> Table:
    table = Table(
        "token", "tag", "tokens", "clean suspected", title="most often suspected, unchanged", title_justify="left"
    )
    for one in facts["suspects"]:
        table.add_row(one["token"], one["tag"], f"{one['tokens']:,}", f"{one['rate']:.0%}")
    return table


def figure(facts: Facts) -> Any:
    """Above by tag, below by the other properties: on the left originals suspected, on the right fakes missed."""
    tags = facts["groups"]["tag"]
    others = [
        part for title, part in facts["groups"].items() if title not in ("all tokens", "tag")
    ]
    rows = (len(tags), sum(map(len, others)) + len(others) - 1)
    drawing = blank(12, 2 + 0.24 * sum(rows))
    axes = drawing.subplots(2, 2, gridspec_kw={"height_ratios": rows})
    for line, parts in zip(axes, ([tags], others), strict=True):
        _suspected(line[0], parts, facts)
        _missed(line[1], parts, facts)
    axes[0][0].set_title("originals that are suspected")
    axes[0][1].set_title("fakes that are missed")
    for one in axes.flat:
        one.grid(alpha=0.3, axis="x")
        one.set_xlim(0, None)
        one.set_xlabel("share")
    for one in axes[0]:
        one.legend(frameon=False, fontsize=8)
    title = f"{facts['model']} on {facts['data']}, threshold {facts['threshold']:g}; dotted: all tokens"
    drawing.suptitle(title, fontsize=10)
    return drawing


def _suspected(axes: Any, parts: Sequence[Sequence[Part]], facts: Facts) -> None:
    _labelled(axes, parts)
    _points(axes, parts, "clean_suspected", "o", "C0", -0.2, "clean text")
    _points(axes, parts, "untouched_suspected", "s", "C1", 0.0, "untouched tokens of corrupted text")
    _points(axes, parts, "clean_suspected_at_equal_difficulty", "D", "0.5", 0.2, "clean text, at equal difficulty")
    _mean(axes, facts, "clean_suspected")


def _missed(axes: Any, parts: Sequence[Sequence[Part]], facts: Facts) -> None:
    _labelled(axes, parts)
    _points(axes, parts, "missed", "o", "C3", -0.15, "fakes")
    _points(axes, parts, "missed_at_equal_difficulty", "D", "0.5", 0.15, "fakes, at equal difficulty")
    _mean(axes, facts, "missed")


def _labelled(axes: Any, parts: Sequence[Sequence[Part]]) -> None:
    """A line a group, a gap between two properties."""
    places = _places(parts)
    axes.set_yticks(list(places), [one["name"] for part in parts for one in part], fontsize=8)
    axes.set_ylim(max(places) + 0.6, -0.6)


def _places(parts: Sequence[Sequence[Part]]) -> list[int]:
    starts = [sum(len(before) + 1 for before in parts[:number]) for number in range(len(parts))]
    return [start + i for start, part in zip(starts, parts, strict=True) for i in range(len(part))]


def _points(
    axes: Any, parts: Sequence[Sequence[Part]], key: str, marker: str, color: str, offset: float, label: str
) -> None:
    found = [
        (place + offset, one[key])
        for place, one in zip(_places(parts), (one for part in parts for one in part), strict=True)
        if one[key] is not None
    ]
    x = [one["value"] for _, one in found]
    spread = [[max(0, one["value"] - one["low"]) for _, one in found], [max(0, one["high"] - one["value"]) for _, one in found]]
    axes.errorbar(
        x, [place for place, _ in found], xerr=spread, fmt=marker, color=color, markersize=4, elinewidth=1, label=label
    )


def _mean(axes: Any, facts: Facts, key: str) -> None:
    (every,) = facts["groups"]["all tokens"]
    if every[key] is not None:
        axes.axvline(every[key]["value"], color="0.6", linestyle=":", linewidth=1)


def _rate(one: Part | None, *, short: bool = False) -> str:
    if one is None:
        return ""
    if short:
        return f"{one['value']:.1%}"
    return f"{one['value']:.1%} ({100 * one['low']:.1f}-{100 * one['high']:.1f})"


def _number(one: Part | None, digits: int = 2) -> str:
    return "" if one is None else f"{one['value']:.{digits}f}"
