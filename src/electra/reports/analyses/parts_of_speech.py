"""What `electra analyze parts-of-speech` found, as tables and as a picture: which words look replaced, and why."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts, count_of
from electra.reports.figures import new_figure
from electra.reports.notes import windowed_notes
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_number, format_with_interval

TITLE = "Which words look replaced"
SHOWS = (
    "by part of speech, and by frequency, position and piece of word: how often originals are suspected and fakes "
    "missed, as measured and at equal difficulty"
)

HARDLY_ANY = 0.9
"""From so large a share of missed fakes on, a lower threshold says more."""

Part = Mapping[str, Any]


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
    text_of_ranks = (
        "the treebank itself" if facts["frequencies"] is None else f"the training text of {facts['frequencies']}"
    )
    found = [
        f"{facts['data']}: {count_of(facts['sentences'], 'sentence')}, {count_of(facts['words'], 'word')}; "
        f"{count_of(facts['draws'], 'draw')} of {facts['share']:.0%} of the tokens at temperature "
        f"{facts['temperature']:g}, measured together; "
        f"intervals: 95 %, {facts['resamples']} resamples of the sentences; {NO_INTERVAL_NOTE}",
        f"A token is suspected where its probability of having been replaced is above {facts['threshold']:g}. "
        "Suspected: of the tokens of the text as it is (clean), and of those of the corrupted text that are as "
        "they were (untouched): false positives. Missed: of the fakes those that are not suspected: false "
        "negatives. A fake is in the groups of the word that stood there. Frequencies are ranks of tokens in "
        f"{text_of_ranks} (top 100: behind the top 10); that of a word is that of its rarest token.",
        "Bias and difficulty: where more fakes are missed in one group than in another, they may be harder there, "
        "because the generator held them likelier. At equal difficulty each group's fakes count as if their "
        "probabilities were spread as those of all fakes are (clean tokens: the originals' probabilities, where "
        "they were masked): what is left of a difference is the discriminator's own. Probabilities of which a "
        "group has few tokens are left out there, and a group that lacks half of all has no such figure.",
        "The effects are of a logistic regression with all properties at once: log-odds of an error beside those "
        "of the mean token, other properties equal; its intervals take sentences as clusters. Difficulty is known "
        "by tenths of the tokens: within a tenth it still differs, and a little of it may be left in both.",
    ]
    found += windowed_notes(facts, "sentences")
    if facts["rebuilt"]:
        found.append(
            f"{count_of(facts['rebuilt'], 'sentence')} without a text (# text = ...), or with one of other words, "
            "read with a blank between each two words"
        )
    [every] = facts["groups"]["all tokens"]
    if facts["objective"] == "electric":
        found.append("The model was trained by Electric: its logits are energies, so read the AUC, not the rates")
    elif every["missed"] and every["missed"]["value"] >= HARDLY_ANY:
        replaced = every["fakes"] / (every["tokens"] * facts["draws"])
        found.append(
            f"Hardly anything looks replaced at {facts['threshold']:g}, as of networks that are small or were "
            f"trained for a short time: --threshold {replaced:.2g}, the share of replaced tokens, says more"
        )
    return found


def _filled(table: Table, facts: Facts, cells: Callable[[Part], Sequence[str]]) -> Table:
    """The table with a line for each group, under the name of the property that it is of."""
    for title, part in facts["groups"].items():
        if len(part) == 1 and title == "all tokens":
            table.add_row(title, *cells(part[0]), end_section=True)
            continue
        table.add_row(title, style="italic")
        for one in part:
            table.add_row(f"  {one['name']}", *cells(one), end_section=one is part[-1])
    return table


def _discriminator(facts: Facts) -> Table:
    columns = (
        "tokens", "clean suspected %", "untouched suspected %", "fakes", "missed %", "AUC",
        "log-odds: clean", "untouched", "fakes",
    )  # fmt: skip
    table = NumericTable("", *columns, title=f"{facts['model']}: what the discriminator says")

    def cells(one: Part) -> Sequence[str]:
        return (
            f"{one['tokens']:,}", _rate(one["clean_suspected"]), _rate(one["untouched_suspected"]),
            f"{one['fakes']:,}", _rate(one["missed"]), _number(one["auc"], 3), _number(one["clean_logit"]),
            _number(one["untouched_logit"]), _number(one["fake_logit"]),
        )  # fmt: skip

    return _filled(table, facts, cells)


def _generator(facts: Facts) -> Table:
    columns = (
        "places", "p of the original", "log p", "entropy", "draw is the original", "log p of the fake",
        "equal difficulty: missed %", "clean suspected %",
    )  # fmt: skip
    title = "what the generator proposes there, and both errors at equal difficulty"
    table = NumericTable("", *columns, title=title)

    def cells(one: Part) -> Sequence[str]:
        same = "" if one["same"] is None else f"{one['same']['value']:.1%}"
        return (
            f"{one['places']:,}", _number(one["original_probability"], 3),
            _number(one["original_log_probability"]), _number(one["entropy"]), same,
            _number(one["fake_log_probability"]),
            _rate(one["missed_at_equal_difficulty"]), _rate(one["clean_suspected_at_equal_difficulty"]),
        )  # fmt: skip

    return _filled(table, facts, cells)


def _effects(facts: Facts) -> Table:
    columns = ("fakes", "missed: effect", "clean tokens", "suspected: effect")
    table = NumericTable("", *columns, title="effects, in log-odds, all properties at once")
    sides = [facts["effects"][key] or {} for key in ("missed", "clean_suspected")]
    for factor in dict.fromkeys(name for side in sides for name in side):
        both = [{one["level"]: one for one in side.get(factor, ())} for side in sides]
        # The bins of the generator's probability have other bounds for fakes than for originals.
        levels = list(dict.fromkeys(level for side in both for level in side))
        table.add_row(factor, style="italic")
        for level in levels:
            cells = [cell for side in both for cell in _effect(side.get(level))]
            table.add_row(f"  {level}", *cells, end_section=level == levels[-1])
    return table


def _effect(one: Part | None) -> tuple[str, str]:
    if one is None:
        return "", ""
    return f"{one['tokens']:,}", format_with_interval(one["value"], (one["low"], one["high"]), 2, sign=True)


def _suspects(facts: Facts) -> Table:
    table = NumericTable("token", "tag", "tokens", "clean suspected", title="most often suspected, unchanged")
    for one in facts["suspects"]:
        table.add_row(one["token"], one["tag"], f"{one['tokens']:,}", f"{one['rate']:.0%}")
    return table


def figure(facts: Facts) -> Any:
    """Above by tag, below by the other properties: on the left originals suspected, on the right fakes missed."""
    parts = {title: part for title, part in facts["groups"].items() if title != "all tokens"}
    tags = {"tag": parts.pop("tag")}
    rows = [len(_lines(some)) for some in (tags, parts)]
    drawing = new_figure(12, 2 + 0.22 * sum(rows))
    axes = drawing.subplots(2, 2, gridspec_kw={"height_ratios": rows})
    for line, some in zip(axes, (tags, parts), strict=True):
        _suspected(line[0], some, facts)
        _missed(line[1], some, facts)
    axes[0][0].set_title("originals that are suspected")
    axes[0][1].set_title("fakes that are missed")
    for one in axes.flat:
        one.grid(alpha=0.3, axis="x")
        one.set_xlim(-0.02 * one.get_xlim()[1], None)  # marks at 0 are whole
        one.set_xlabel("share")
    for one in axes[0]:
        one.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=3)
    title = f"{facts['model']} on {facts['data']}, threshold {facts['threshold']:g}; dotted: all tokens"
    drawing.suptitle(title, fontsize=10)
    return drawing


Parts = Mapping[str, Sequence[Part]]


def _suspected(axes: Any, parts: Parts, facts: Facts) -> None:
    _labelled(axes, parts)
    _points(axes, parts, "clean_suspected", "o", "C0", -0.25, "clean text")
    _points(axes, parts, "untouched_suspected", "s", "C1", 0.0, "untouched tokens of corrupted text")
    _points(
        axes, parts, "clean_suspected_at_equal_difficulty", "D", "0.5", 0.25, "clean text, at equal difficulty"
    )
    _mean(axes, facts, "clean_suspected")


def _missed(axes: Any, parts: Parts, facts: Facts) -> None:
    _labelled(axes, parts)
    _points(axes, parts, "missed", "o", "C3", -0.15, "fakes")
    _points(axes, parts, "missed_at_equal_difficulty", "D", "0.5", 0.15, "fakes, at equal difficulty")
    _mean(axes, facts, "missed")


def _labelled(axes: Any, parts: Parts) -> None:
    """A line for each property's name and for each group."""
    lines = _lines(parts)
    axes.set_yticks(range(len(lines)), [name for name, _ in lines], fontsize=8)
    axes.tick_params(axis="y", length=0)
    for (_, one), label in zip(lines, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if one is None else "normal")
    axes.set_ylim(len(lines) - 0.4, -0.6)


def _lines(parts: Parts) -> list[tuple[str, Part | None]]:
    """Names, and the figures of those that are groups."""
    found: list[tuple[str, Part | None]] = []
    for title, part in parts.items():
        found += [(title, None), *((one["name"], one) for one in part)]
    return found


def _points(axes: Any, parts: Parts, key: str, marker: str, color: str, offset: float, label: str) -> None:
    found = [
        (place + offset, one[key])
        for place, (_, one) in enumerate(_lines(parts))
        if one is not None and one[key] is not None
    ]
    x = [one["value"] for _, one in found]
    spread = [[abs(one["value"] - one[end]) for _, one in found] for end in ("low", "high")]
    y = [place for place, _ in found]
    style: dict[str, Any] = {"fmt": marker, "color": color, "markersize": 4, "elinewidth": 1, "label": label}
    axes.errorbar(x, y, xerr=spread, **style)


def _mean(axes: Any, facts: Facts, key: str) -> None:
    (every,) = facts["groups"]["all tokens"]
    if every[key] is not None:
        axes.axvline(every[key]["value"], color="0.6", linestyle=":", linewidth=1)


def _rate(one: Part | None) -> str:
    """In percent, with its interval."""
    return (
        "" if one is None else format_with_interval(100 * one["value"], (100 * one["low"], 100 * one["high"]), 1)
    )


def _number(one: Part | None, digits: int = 2) -> str:
    return "" if one is None else format_number(one["value"], digits)
