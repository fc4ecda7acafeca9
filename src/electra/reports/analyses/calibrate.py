"""What `electra analyze calibrate` found, as tables and as a picture: whether probabilities are right."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from electra.reports.analysis import Facts, count_of
from electra.reports.figures import new_figure
from electra.reports.notes import windowed_notes
from electra.reports.tables import NumericTable, format_number, format_with_interval

TITLE = "Whether the probabilities of having been replaced are right"
SHOWS = "reliability diagrams, raw and corrected, and how often each probability is given"

REPLACED, REAL = "replaced tokens", "fitted to real errors"
ERRORS = {"expected_calibration_error": "ECE", "brier": "Brier", "negative_log_likelihood": "log loss"}
PARTS = ("reliability", "resolution", "uncertainty", "residual")
EXPECTING = {"estimated": "estimated", "given": "as given", "true": "true"}
"""How the share of wrong words is called that a correction was shifted to."""


def tables(facts: Facts) -> list[Table]:
    """On replaced tokens and on real errors: errors of calibration, and the parts of the Brier score."""
    return [table for place in _places(facts) for table in (_errors(*place), _parts(*place))]


def _places(facts: Facts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield REPLACED, facts["replaced"]
    if facts["errors"]:
        yield "real errors", facts["errors"]


def notes(facts: Facts) -> list[str]:
    """What was measured, and whether shifting the prior helped."""
    replaced, errors = facts["replaced"], facts["errors"]
    chosen = next(row for row in replaced["rows"] if row["chosen"])
    found = [
        f"{facts['model']}: {count_of(facts['documents'], 'held-out document')}, {facts['tokens']:,} tokens in "
        f"rows of {facts['row']}; the generator drew in {facts['wanted_share']:.0%} of the places, and "
        f"{replaced['share']:.1%} became other tokens",
        "corrections were fitted on one half of the documents and judged on the other; chosen: "
        f"{chosen['correction']}{_named(chosen)}",
        f"ECE in {facts['bins']} bins of equal width, the adaptive one, reliability and resolution in as "
        f"many of equal mass; 95 % intervals: {facts['resamples']:,} resamples of documents (for real errors of "
        "sentences), with the same bins",
        "noise makes an ECE larger, and a resample has more of it than the data: an ECE may lie at the lower end "
        "of its interval, or below it",
    ]
    if errors:
        found.append(
            f"{errors['data']}: {count_of(errors['sentences'], 'sentence')} judged, {errors['words']:,} words, "
            f"{errors['share']:.1%} of them wrong; a word has the highest probability of its tokens; a share of "
            f"wrong words is estimated (by EM, without labels), or counted (true), in the other "
            f"{count_of(errors['fitted_sentences'], 'sentence')}"
        )
        found += windowed_notes(errors, "sentences")
        found += [_verdict(row) for row in errors["rows"] if row["prior"] in EXPECTING]
    if facts["stored"]:
        found.append(f"{facts['stored']} is stored beside the model, for electra score --calibrated")
    if facts.get("not_stored"):
        found.append(f"no correction is stored: {facts['not_stored']}")
    return found


def _named(row: Mapping[str, Any]) -> str:
    if "temperature" in row:
        return f", temperature {row['temperature']:.3f}"
    if "slope" in row:
        return f", {row['slope']:.3f} times the log-odds {row['intercept']:+.3f}"
    return f", {row['knots']} knots" if "knots" in row else ""


def _verdict(row: Mapping[str, Any]) -> str:
    """Whether a shift of the prior helped, by the log-likelihood."""
    change = row["difference"]["negative_log_likelihood"]
    low, high = change["interval"]
    what = "helps" if high < 0 else "harms" if low > 0 else "makes no sure difference"
    return (
        f"{row['correction']}, shifted to {row['expected']:.1%} ({EXPECTING[row['prior']]}): {what}; log loss "
        f"{format_with_interval(change['value'], change['interval'], 4, sign=True)}"
    )


def _first(row: Mapping[str, Any]) -> str:
    """The cell that says which correction it is."""
    name = f"{row['correction']} *" if row.get("chosen") else str(row["correction"])
    prior = row.get("prior", "as trained")
    if prior == "as trained":
        return name
    return (
        f"{name}, {prior}" if prior == REAL else f"{name}, {format_number(row['expected'], 4)} {EXPECTING[prior]}"
    )


def _errors(where: str, place: Mapping[str, Any]) -> Table:
    title = f"{where}: {place['share']:.1%} of the judged ones" + "; *: chosen" * (where == REPLACED)
    table = NumericTable("correction", "mean p", *ERRORS.values(), title=title)
    for row in place["rows"]:
        table.add_row(
            _first(row),
            format_number(row["mean_probability"]["value"], 4),
            *(_shown(row[name]) for name in ERRORS),
        )
    return table


def _parts(where: str, place: Mapping[str, Any]) -> Table:
    title = f"{where}: Brier = reliability - resolution + uncertainty + residual"
    columns = ("brier", *PARTS)
    table = NumericTable("correction", "Brier", *PARTS, "adaptive ECE", title=title)
    for row in place["rows"]:
        figures = [format_number(row[name]["value"], 5) for name in (*columns, "adaptive_calibration_error")]
        table.add_row(_first(row), *figures)
    return table


def _shown(found: Mapping[str, Any]) -> str:
    return format_with_interval(found["value"], found["interval"], 4)


def figure(facts: Facts) -> Any:
    """A reliability diagram of each kind of data, above how often each probability was given."""
    places = list(_places(facts))
    drawing = new_figure(5.5 * len(places), 6)
    grid = drawing.subplots(2, len(places), squeeze=False, height_ratios=(3, 1), sharex="col")
    for column, (where, place) in enumerate(places):
        _diagram(grid[0][column], grid[1][column], _drawn(place["rows"]), facts["bins"])
        grid[0][column].set(title=f"{where}, {place['share']:.1%} of all", ylabel="share that is so")
        grid[1][column].set(xlabel="probability", ylabel="how many", yscale="log")
    drawing.suptitle(f"{facts['model']}: reliability in bins of as many items each", fontsize=10)
    return drawing


def _drawn(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Label, color and row of what is drawn: of shifts those of the chosen correction, but not to the true share,
    which nobody has."""
    number = 0
    for row in rows:
        prior = row.get("prior", "as trained")
        if row["correction"] == "none" and prior == "as trained":
            yield "as it is", "0.3", row
        elif row["correction"] != "none" and prior != "true":
            yield _first(row).replace(" *", ", chosen"), f"C{number}", row
            number += 1


def _diagram(above: Any, below: Any, drawn: Iterator[tuple[str, str, Mapping[str, Any]]], bins: int) -> None:
    highest = 0.0
    for size, (label, color, row) in enumerate(drawn):
        x, y = ([one[name] for one in row["equal_mass"]] for name in ("probability", "share"))
        # The first ones are larger, so that they are seen where others lie on them.
        above.plot(x, y, "o-", markersize=max(3, 8 - 2 * size), linewidth=1, color=color, label=label)
        highest = max(highest, *x, *y)
        counts = [0] * bins
        for one in row["equal_width"]:
            counts[min(int(one["probability"] * bins), bins - 1)] = one["count"]
        edges = [number / bins for number in range(bins + 1)]
        below.stairs(counts, edges, color=color, fill=size == 0, alpha=0.3 if size == 0 else 1, baseline=0.5)
    highest = min(1.0, highest * 1.05)
    above.plot([0, highest], [0, highest], ":", color="0.5", linewidth=1)
    above.set(xlim=(0, highest), ylim=(0, highest))
    for axes in (above, below):
        axes.grid(alpha=0.3)
    above.legend(frameon=False, fontsize=8)
