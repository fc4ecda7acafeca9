"""A corpus of a few dozen articles, and how to prepare it."""

import hashlib
import json
from pathlib import Path
from random import Random
from typing import Any

from electra.preparation.config import PrepareConfig

WORDS = """
    ferry harbour island baker coffee timetable seven noon leaves comes back waits reads the an of to and with wall
    lamp rope quay gull storm cabin crew deck engine whistle ticket child aunt letter suitcase morning evening fog
""".split()  # noqa: SIM905 (read more easily than a list of strings)


def article(random: Random, sentences: int = 8) -> str:
    lines = [" ".join(random.choices(WORDS, k=random.randrange(4, 12))) for _ in range(sentences)]
    return " ".join(line.capitalize() + "." for line in lines)


def write_corpus(path: Path, count: int, *, seed: int = 0) -> Path:
    random = Random(seed)
    path.write_text("".join(json.dumps({"id": i, "text": article(random)}) + "\n" for i in range(count)))
    return path


def config(corpus: Path | str, out: Path, **options: Any) -> PrepareConfig:
    return PrepareConfig((str(corpus),), out, **{"vocabulary_size": 600, "workers": 1, **options})


def files(folder: Path) -> dict[str, str]:
    """Return the checksum of every file except the manifest, which has the time."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name not in ("manifest.json", "manifest.sha256")
    }
