"""The results of `electra analyze parts-of-speech` as tables and as a figure: which words look replaced, and
why."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of, windowed_notes
from electra.reports.figures import new_figure
from electra.reports.tables import NO_INTERVAL_NOTE, NumericTable, format_number, format_with_interval

TITLE = "Words that look replaced"
FIGURE_DESCRIPTION = (
    "by part of speech, and by frequency, position and word piece: how often originals are suspected and fakes "
    "missed, as measured and at equal difficulty"
)

MOSTLY_MISSED = 0.9
"""If at least this fraction of the fakes is missed, a lower threshold is suggested."""

Part = Mapping[str, Any]
Groups = Mapping[str, Sequence[Part]]


def build_tables(results: Results) -> list[Table]:
    """The discriminator's errors; the generator's proposals; effects of all properties at once; suspected
    tokens."""
    tables = [_discriminator_table(results), _generator_table(results)]
    if any(results["effects"].values()):
        tables.append(_effects_table(results))
    if results["suspects"]:
        tables.append(_suspects_table(results))
    return tables


def build_notes(results: Results) -> list[str]:
    """What was measured on what, and how to distinguish bias from difficulty."""
    frequencies = (
        "the treebank itself"
        if results["frequencies"] is None
        else f"the training text of {results['frequencies']}"
    )
    notes = [
        f"{results['data']}: {count_of(results['sentences'], 'sentence')}, {count_of(results['words'], 'word')}; "
        f"{count_of(results['draws'], 'draw')} of {results['share']:.0%} of the tokens at temperature "
        f"{results['temperature']:g}, measured together; "
        f"intervals: 95%, {results['resamples']} resamples of the sentences; {NO_INTERVAL_NOTE}",
        "A token is suspected if its probability of being replaced is above "
        f"{results['threshold']:g}. Suspected (false positives): tokens of the original text (clean), and tokens "
        "of the corrupted text that were not replaced (untouched). Missed (false negatives): fakes that are not "
        "suspected. A fake belongs to the groups of the original word. Frequencies are ranks of tokens in "
        f"{frequencies} (top 100: without the top 10); the rank of a word is that of its rarest token.",
        "Bias and difficulty: if more fakes are missed in one group than in another, they may be more difficult "
        "there, because the generator gave them a higher probability. At equal difficulty, the fakes of each "
        "group are weighted so that their probabilities are distributed as those of all fakes (clean tokens: the "
        "probabilities of the originals at masked positions). The remaining difference comes from the "
        "discriminator. Probabilities of which a group has few tokens are left out; a group that lacks half of "
        "all has no such value.",
        "Effects come from a logistic regression on all properties at once: log-odds of an error relative to the "
        "mean token, other properties equal; intervals treat sentences as clusters. Difficulty is known by tenths "
        "of the tokens: it still varies within a tenth, and a little of it may remain in both.",
    ]
    notes += windowed_notes(results, "sentences")
    if results["rebuilt"]:
        notes.append(
            f"{count_of(results['rebuilt'], 'sentence')} without a text (# text = ...), or with a text of other "
            "words, read as words joined with spaces"
        )
    from electra.objectives.config import scores_of  # needs torch, which takes seconds to import

    [overall] = results["groups"]["all tokens"]
    if scores_of(results["objective"]) == "energy":
        notes.append(
            f"The objective was {results['objective']}: the logits are energies, so read the AUC, not the rates"
        )
    elif overall["missed"] and overall["missed"]["value"] >= MOSTLY_MISSED:
        replaced = overall["fakes"] / (overall["tokens"] * results["draws"])
        notes.append(
            f"Hardly any token looks replaced at {results['threshold']:g}, as is usual for small networks and "
            f"short training: --threshold {replaced:.2g}, the fraction of replaced tokens, is more informative"
        )
    return notes


def _fill_groups(table: Table, results: Results, cells: Callable[[Part], Sequence[str]]) -> Table:
    """Add a row for each group, below the name of its property."""
    for title, groups in results["groups"].items():
        if len(groups) == 1 and title == "all tokens":
            table.add_row(title, *cells(groups[0]), end_section=True)
            continue
        table.add_row(title, style="italic")
        for group in groups:
            table.add_row(f"  {group['name']}", *cells(group), end_section=group is groups[-1])
    return table


def _discriminator_table(results: Results) -> Table:
    columns = (
        "tokens", "clean suspected %", "untouched suspected %", "fakes", "missed %", "AUC",
        "log-odds: clean", "untouched", "fakes",
    )  # fmt: skip
    table = NumericTable("", *columns, title=f"{results['model']}: the discriminator's errors")

    def cells(group: Part) -> Sequence[str]:
        return (
            f"{group['tokens']:,}", _percent(group["clean_suspected"]), _percent(group["untouched_suspected"]),
            f"{group['fakes']:,}", _percent(group["missed"]), _number(group["auc"], 3),
            _number(group["clean_logit"]), _number(group["untouched_logit"]), _number(group["fake_logit"]),
        )  # fmt: skip

    return _fill_groups(table, results, cells)


def _generator_table(results: Results) -> Table:
    columns = (
        "masked", "p of the original", "log p", "entropy", "sample is the original", "log p of the fake",
        "equal difficulty: missed %", "clean suspected %",
    )  # fmt: skip
    title = "the generator's proposals, and both errors at equal difficulty"
    table = NumericTable("", *columns, title=title)

    def cells(group: Part) -> Sequence[str]:
        same = "" if group["same"] is None else f"{group['same']['value']:.1%}"
        return (
            f"{group['places']:,}", _number(group["original_probability"], 3),
            _number(group["original_log_probability"]), _number(group["entropy"]), same,
            _number(group["fake_log_probability"]),
            _percent(group["missed_at_equal_difficulty"]), _percent(group["clean_suspected_at_equal_difficulty"]),
        )  # fmt: skip

    return _fill_groups(table, results, cells)


def _effects_table(results: Results) -> Table:
    columns = ("fakes", "missed: effect", "clean tokens", "suspected: effect")
    table = NumericTable("", *columns, title="effects in log-odds, all properties at once")
    sides = [results["effects"][key] or {} for key in ("missed", "clean_suspected")]
    for factor in dict.fromkeys(name for side in sides for name in side):
        by_level = [{effect["level"]: effect for effect in side.get(factor, ())} for side in sides]
        # The bins of the generator's probability have other bounds for fakes than for originals.
        levels = list(dict.fromkeys(level for side in by_level for level in side))
        table.add_row(factor, style="italic")
        for level in levels:
            cells = [cell for side in by_level for cell in _effect_cells(side.get(level))]
            table.add_row(f"  {level}", *cells, end_section=level == levels[-1])
    return table


def _effect_cells(effect: Part | None) -> tuple[str, str]:
    if effect is None:
        return "", ""
    interval = effect["low"], effect["high"]
    return f"{effect['tokens']:,}", format_with_interval(effect["value"], interval, 2, sign=True)


def _suspects_table(results: Results) -> Table:
    table = NumericTable("token", "tag", "tokens", "clean suspected", title="original tokens suspected most often")
    for token in results["suspects"]:
        table.add_row(token["token"], token["tag"], f"{token['tokens']:,}", f"{token['rate']:.0%}")
    return table


def draw(results: Results) -> Any:
    """Above: by tag. Below: by the other properties. Left: suspected originals. Right: missed fakes."""
    others = {title: groups for title, groups in results["groups"].items() if title != "all tokens"}
    tags = {"tag": others.pop("tag")}
    heights = [len(_lines(groups)) for groups in (tags, others)]
    figure = new_figure(12, 2 + 0.22 * sum(heights))
    grid = figure.subplots(2, 2, gridspec_kw={"height_ratios": heights})
    for (left, right), groups in zip(grid, (tags, others), strict=True):
        _draw_suspected(left, groups, results)
        _draw_missed(right, groups, results)
    grid[0][0].set_title("suspected originals")
    grid[0][1].set_title("missed fakes")
    for axes in grid.flat:
        axes.grid(alpha=0.3, axis="x")
        axes.set_xlim(-0.02 * axes.get_xlim()[1], None)  # so that markers at 0 are not cut off
        axes.set_xlabel("fraction")
    for axes in grid[0]:
        axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.06), ncols=3)
    title = f"{results['model']} on {results['data']}, threshold {results['threshold']:g}; dotted: all tokens"
    figure.suptitle(title, fontsize=10)
    return figure


def _draw_suspected(axes: Any, groups: Groups, results: Results) -> None:
    _label_lines(axes, groups)
    _draw_points(axes, groups, "clean_suspected", "o", "C0", -0.25, "clean text")
    _draw_points(axes, groups, "untouched_suspected", "s", "C1", 0.0, "untouched tokens of corrupted text")
    _draw_points(
        axes, groups, "clean_suspected_at_equal_difficulty", "D", "0.5", 0.25, "clean text, at equal difficulty"
    )
    _draw_overall(axes, results, "clean_suspected")


def _draw_missed(axes: Any, groups: Groups, results: Results) -> None:
    _label_lines(axes, groups)
    _draw_points(axes, groups, "missed", "o", "C3", -0.15, "fakes")
    _draw_points(axes, groups, "missed_at_equal_difficulty", "D", "0.5", 0.15, "fakes, at equal difficulty")
    _draw_overall(axes, results, "missed")


def _label_lines(axes: Any, groups: Groups) -> None:
    """A line for each property's name and for each group."""
    lines = _lines(groups)
    axes.set_yticks(range(len(lines)), [name for name, _ in lines], fontsize=8)
    axes.tick_params(axis="y", length=0)
    for (_, group), label in zip(lines, axes.get_yticklabels(), strict=True):
        label.set_fontweight("bold" if group is None else "normal")
    axes.set_ylim(len(lines) - 0.4, -0.6)


def _lines(groups: Groups) -> list[tuple[str, Part | None]]:
    """The name of each line, and the group that it shows; None for the name of a property."""
    lines: list[tuple[str, Part | None]] = []
    for title, part in groups.items():
        lines += [(title, None), *((group["name"], group) for group in part)]
    return lines


def _draw_points(axes: Any, groups: Groups, key: str, marker: str, color: str, offset: float, label: str) -> None:
    points = [
        (index + offset, group[key])
        for index, (_, group) in enumerate(_lines(groups))
        if group is not None and group[key] is not None
    ]
    x = [value["value"] for _, value in points]
    errors = [[abs(value["value"] - value[end]) for _, value in points] for end in ("low", "high")]
    y = [position for position, _ in points]
    style: dict[str, Any] = {"fmt": marker, "color": color, "markersize": 4, "elinewidth": 1, "label": label}
    axes.errorbar(x, y, xerr=errors, **style)


def _draw_overall(axes: Any, results: Results, key: str) -> None:
    (overall,) = results["groups"]["all tokens"]
    if overall[key] is not None:
        axes.axvline(overall[key]["value"], color="0.6", linestyle=":", linewidth=1)


def _percent(value: Part | None) -> str:
    if value is None:
        return ""
    return format_with_interval(100 * value["value"], (100 * value["low"], 100 * value["high"]), 1)


def _number(value: Part | None, digits: int = 2) -> str:
    return "" if value is None else format_number(value["value"], digits)
