"""The results of `electra analyze calibrate` as tables and as reliability diagrams."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from electra.reports.analysis import Results, count_of, windowed_notes
from electra.reports.figures import BEST_PLACE, new_figure
from electra.reports.tables import NumericTable, format_number, format_with_interval

TITLE = "Calibration of replaced-token probabilities"
FIGURE_DESCRIPTION = "reliability diagrams, raw and corrected, and how often each probability is predicted"

REPLACED, FITTED = "replaced tokens", "fitted to real errors"
ERRORS = {"expected_calibration_error": "ECE", "brier": "Brier", "negative_log_likelihood": "log loss"}
PARTS = ("reliability", "resolution", "uncertainty", "residual")
PRIORS = {"estimated": "estimated", "given": "given", "true": "true"}
"""Names of the error rates to which a correction was shifted."""

Row = Mapping[str, Any]


def build_tables(results: Results) -> list[Table]:
    """Calibration errors and the parts of the Brier score, on replaced tokens and on real errors."""
    return [
        table
        for name, dataset in _datasets(results)
        for table in (_errors_table(name, dataset), _parts_table(name, dataset))
    ]


def _datasets(results: Results) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield REPLACED, results["replaced"]
    if results["errors"]:
        yield "real errors", results["errors"]


def build_notes(results: Results) -> list[str]:
    """What was measured, and whether a shift of the prior helped."""
    replaced, errors = results["replaced"], results["errors"]
    selected = next(row for row in replaced["rows"] if row["chosen"])
    notes = [
        f"{results['model']}: {count_of(results['documents'], 'held-out document')}, {results['tokens']:,} tokens "
        f"in rows of {results['row']}; the generator sampled at {results['wanted_share']:.0%} of the positions, "
        f"and {replaced['share']:.1%} of the tokens were replaced by other tokens",
        "corrections were fitted on one half of the documents and evaluated on the other half; selected: "
        f"{selected['correction']}{_describe_parameters(selected)}",
        f"ECE: {results['bins']} bins of equal width; adaptive ECE, reliability and resolution: the same number "
        f"of bins with equally many items; 95% intervals: {results['resamples']:,} resamples of documents (for "
        "real errors: of sentences), with the same bins",
        "noise increases an ECE, and resamples have more of it than the data: an ECE may be at the lower end of "
        "its interval, or below it",
    ]
    if errors:
        notes.append(
            f"{errors['data']}: evaluated on {count_of(errors['sentences'], 'sentence')} with {errors['words']:,} "
            f"words, {errors['share']:.1%} of them wrong; the probability of a word is the highest of its tokens; "
            "error rates are estimated (by EM, without labels), or counted (true), on the other "
            f"{count_of(errors['fitted_sentences'], 'sentence')}"
        )
        notes += windowed_notes(errors, "sentences")
        notes += [_prior_note(row) for row in errors["rows"] if row["prior"] in PRIORS]
    if results["stored"]:
        notes.append(f"{results['stored']} is stored in the model's folder, for electra score --calibrated")
    if results.get("not_stored"):
        notes.append(f"no correction is stored: {results['not_stored']}")
    return notes


def _describe_parameters(row: Row) -> str:
    if "temperature" in row:
        return f", temperature {row['temperature']:.3f}"
    if "slope" in row:
        return f", {row['slope']:.3f} times the log-odds {row['intercept']:+.3f}"
    return f", {row['knots']} knots" if "knots" in row else ""


def _prior_note(row: Row) -> str:
    """Whether a shift of the prior helped, by the log-likelihood."""
    change = row["difference"]["negative_log_likelihood"]
    low, high = change["interval"]
    verdict = "better" if high < 0 else "worse" if low > 0 else "no significant difference"
    return (
        f"{row['correction']}, shifted to the {PRIORS[row['prior']]} error rate {row['expected']:.1%}: {verdict}; "
        f"log loss {format_with_interval(change['value'], change['interval'], 4, sign=True)}"
    )


def _row_name(row: Row) -> str:
    name = f"{row['correction']} *" if row.get("chosen") else str(row["correction"])
    prior = row.get("prior", "as trained")
    if prior == "as trained":
        return name
    return (
        f"{name}, {prior}" if prior == FITTED else f"{name}, {format_number(row['expected'], 4)} {PRIORS[prior]}"
    )


def _errors_table(name: str, dataset: Mapping[str, Any]) -> Table:
    title = f"{name}: {dataset['share']:.1%} of the evaluated ones" + "; *: selected" * (name == REPLACED)
    table = NumericTable("correction", "mean p", *ERRORS.values(), title=title)
    for row in dataset["rows"]:
        mean = format_number(row["mean_probability"]["value"], 4)
        errors = (format_with_interval(row[key]["value"], row[key]["interval"], 4) for key in ERRORS)
        table.add_row(_row_name(row), mean, *errors)
    return table


def _parts_table(name: str, dataset: Mapping[str, Any]) -> Table:
    title = f"{name}: Brier = reliability - resolution + uncertainty + residual"
    table = NumericTable("correction", "Brier", *PARTS, "adaptive ECE", title=title)
    for row in dataset["rows"]:
        keys = ("brier", *PARTS, "adaptive_calibration_error")
        table.add_row(_row_name(row), *(format_number(row[key]["value"], 5) for key in keys))
    return table


def draw(results: Results) -> Any:
    """A reliability diagram of each dataset, above a histogram of the probabilities."""
    datasets = list(_datasets(results))
    figure = new_figure(5.5 * len(datasets), 6)
    grid = figure.subplots(2, len(datasets), squeeze=False, height_ratios=(3, 1), sharex="col")
    for column, (name, dataset) in enumerate(datasets):
        _draw_diagram(grid[0][column], grid[1][column], _drawn_rows(dataset["rows"]), results["bins"])
        grid[0][column].set(title=f"{name}: {dataset['share']:.1%} of all", ylabel="observed frequency")
        grid[1][column].set(xlabel="predicted probability", ylabel="count", yscale="log")
    figure.suptitle(f"{results['model']}: reliability in bins with equally many items", fontsize=10)
    return figure


def _drawn_rows(rows: Sequence[Row]) -> Iterator[tuple[str, str, Row]]:
    """The label, color and row of what is drawn: of shifts only those of the selected correction, but not the
    shift to the true error rate, which is unknown in practice."""
    number = 0
    for row in rows:
        prior = row.get("prior", "as trained")
        if row["correction"] == "none" and prior == "as trained":
            yield "uncorrected", "0.3", row
        elif row["correction"] != "none" and prior != "true":
            yield _row_name(row).replace(" *", ", selected"), f"C{number}", row
            number += 1


def _draw_diagram(above: Any, below: Any, rows: Iterator[tuple[str, str, Row]], bins: int) -> None:
    highest = 0.0
    for number, (label, color, row) in enumerate(rows):
        x, y = ([part[key] for part in row["equal_mass"]] for key in ("probability", "share"))
        # The first markers are larger, so that they can be seen below others.
        above.plot(x, y, "o-", markersize=max(3, 8 - 2 * number), linewidth=1, color=color, label=label)
        highest = max(highest, *x, *y)
        counts = [0] * bins
        for part in row["equal_width"]:
            counts[min(int(part["probability"] * bins), bins - 1)] = part["count"]
        edges = [edge / bins for edge in range(bins + 1)]
        is_first = number == 0
        below.stairs(counts, edges, color=color, fill=is_first, alpha=0.3 if is_first else 1, baseline=0.5)
    highest = min(1.0, highest * 1.05)
    above.plot([0, highest], [0, highest], ":", color="0.5", linewidth=1)
    above.set(xlim=(0, highest), ylim=(0, highest))
    for axes in (above, below):
        axes.grid(alpha=0.3)
    above.legend(frameon=False, fontsize=8, **BEST_PLACE)
