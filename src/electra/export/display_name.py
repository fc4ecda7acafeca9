"""Display names of models and runs in tables, figures, reports and model cards."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

NETWORKS = ("discriminator", "generator", "encoder")
"""Names of the folders of a run's networks, which do not identify the run."""
UNNAMED = ("export", "model")
"""Names of folders that identify neither a run nor a network."""
STUDY_RUN = re.compile(r"(?P<arm>[^/]+)/(?P<share>[\d.]+)/(?P<seed>seed-\d+)/run")
"""The folders of a run in a study; the arm identifies it."""


def display_names(models: Sequence[str | Path]) -> list[str]:
    """Return the display names of MODELs: the shortest ends of their paths that differ from each other.

    The name of a network includes the run: RUN/export/generator is "RUN generator". If the same model is given
    twice, the names are numbered. A run of a study has the name of its arm, with the seed and the share of the
    budget only if necessary. The owner of a Hugging Face id is left out if no other id has the same name.
    """
    parts = [_study_run_parts(_naming_parts(model)) for model in models]
    sizes = {names: 2 if len(names) > 1 and names[-1] in NETWORKS else 1 for names in parts}
    while True:
        short = {names: " ".join(names[-size:]) for names, size in sizes.items()}
        counts = Counter(short.values())
        ambiguous = [names for names in sizes if counts[short[names]] > 1 and sizes[names] < len(names)]
        if not ambiguous:
            break
        for names in ambiguous:
            sizes[names] += 1
    result = [short[names] for names in parts]
    return [
        f"{name} ({result[: number + 1].count(name)})" if result.count(name) > 1 else name
        for number, name in enumerate(result)
    ]


def display_name(model: str | Path) -> str:
    """Return the display name of one MODEL."""
    return display_names([model])[0]


def _study_run_parts(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The folders of a study's run with the arm last, before the network if there is one."""
    network = parts[-1:] if parts[-1] in NETWORKS else ()
    run = parts[: len(parts) - len(network)]
    if match := STUDY_RUN.fullmatch("/".join(run[-4:])):
        run = (*run[:-4], match["share"], match["seed"], match["arm"])
    return run + network


def _naming_parts(model: str | Path) -> tuple[str, ...]:
    """The folders in the path of a MODEL that identify it."""
    path = Path(model).absolute() if Path(model).is_dir() else Path(model)  # so that "." has a name
    return tuple(part for part in path.parts if part not in UNNAMED) or path.parts
