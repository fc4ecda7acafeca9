"""The corpus that every machine already has: the documentation of Python and of the installed packages.

Docstrings of the standard library and of the installed distributions, pydoc's topics and the distributions'
long descriptions, cleaned of markup until English prose is left. One document is one module (one topic, one
description), one paragraph a line. Nothing is imported or downloaded, and only files that Python or a
distribution owns are read, so no text of the user's own gets in.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from electra.errors import DataError
from electra.json_files import write_json
from electra.preparation.prose import docstrings, letters, paragraphs, sentences
from electra.preparation.workers import map_in_order, usable_processors

logger = logging.getLogger(__name__)

CLEANING = 2
"""Version of the rules here and in prose.py; to be raised with them, since it is part of the cache's key."""

SHORTEST_DOCUMENT = 50
"""Words. A shorter document would leave a packed example mostly padding."""

LONG_SENTENCE = 8
"""Words. A sentence as long as this is kept once in the corpus; a shorter one may well recur in other company."""

FILES_A_TASK = 32
"""Source files handed to a worker process at a time: enough to make the hand-over cheap."""

PYTHON = "python"
"""Name of the source that holds the standard library and pydoc's topics."""

_SUFFIXES = {".py", ".pyi", ".pyx", ".pxi"}
_LEFT_OUT = re.compile(
    r"(^|/)(tests?|testing|_testing|test_[^/]*|[^/]*_tests?|conftest|[^/]*_pb2(_grpc)?|idle_test|encodings|_*licen[cs]es?)"
    r"(/|\.py[ix]?$)"
)
"""Tests, generated files, tables of character sets, texts of licences."""


@dataclass(frozen=True)
class Documentation:
    """The collected corpus and what is known of it; `str` gives one line for people."""

    path: Path
    """JSON lines, one object a document: `id`, `title`, `text` (one paragraph a line)."""
    licences: Path
    """JSON: every source of the text with its version, licence and number of words."""
    words: int
    documents: int
    cached: bool
    """Whether the text was taken from the user's cache, not collected anew."""

    def __str__(self) -> str:
        origin = "from the cache" if self.cached else "collected"
        return f"{self.documents:,} documents, {self.words:,} words ({origin}); licences in {self.licences}"


@dataclass(frozen=True)
class Source:
    """A distribution, or Python itself."""

    name: str
    version: str
    licence: str
    root: Path = field(repr=False)
    files: tuple[str, ...] = field(repr=False)
    """Source files below `root`, sorted."""
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Further documents as (title, text): topics, the long description."""


def collect_documentation(out: Path, *, words: int = 4_000_000) -> Documentation:
    """Write this machine's documentation to `out` (JSON lines), and a record of its licences beside it.

    The text is the same for the same Python and the same installed packages. It is kept in the user's cache
    (`$XDG_CACHE_HOME/electra`, else `~/.cache/electra`) and taken from there the next time.

    Args:
        out: File to write, e.g. `documentation.jsonl`; `documentation.licences.json` will lie beside it.
        words: Stop after the document in which this number is reached. Less is written if there is less.

    Raises:
        DataError: No documentation was found: this Python comes without its sources.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    licences = out.with_suffix(".licences.json")
    cache = cache_folder() / f"documentation-{fingerprint(words)}"
    kept = _read_record(cache)
    if kept is not None:
        shutil.copyfile(cache / "documentation.jsonl", out)
        shutil.copyfile(cache / "licences.json", licences)
        return Documentation(out, licences, kept["words"], kept["documents"], cached=True)
    total, documents = _write(out, licences, words=words)
    _fill_cache(cache, out, licences)
    return Documentation(out, licences, total, documents, cached=False)


# --- where the text comes from ---------------------------------------------------------------------------


def installed() -> list[Source]:
    """Python and the installed distributions, by name; this package is left out, being under development."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if name and name.lower() != "electra":
            found.setdefault(name.lower(), distribution)  # the first on the path is the one that is imported
    return [_python(), *(_source(found[name]) for name in sorted(found))]


def _python() -> Source:
    from pydoc_data.topics import topics

    root = Path(sysconfig.get_paths()["stdlib"])
    elsewhere = {"site-packages", "dist-packages", "test"}  # large, so not even walked through
    folders = [root, *(child for child in root.iterdir() if child.is_dir() and child.name not in elsewhere)]
    paths = (path for folder in folders for path in (folder.glob if folder == root else folder.rglob)("*.py"))
    files = (path.relative_to(root).as_posix() for path in paths)
    return Source(
        PYTHON,
        sys.version.split()[0],
        "PSF-2.0",
        root,
        tuple(sorted(name for name in files if not _LEFT_OUT.search(name))),
        tuple((f"topic {name}", text) for name, text in sorted(topics.items())),
    )


def _source(distribution: metadata.Distribution) -> Source:
    files = (file.as_posix() for file in distribution.files or () if file.suffix in _SUFFIXES)
    description = str(distribution.metadata.json.get("description", ""))
    return Source(
        distribution.metadata["Name"],
        distribution.version,
        _licence(distribution),
        Path(str(distribution.locate_file(""))),
        tuple(sorted(name for name in files if not _LEFT_OUT.search(name))),
        (("description", description),) if description else (),
    )


def _licence(distribution: metadata.Distribution) -> str:
    """What the distribution says of its licence, in the order of precision: SPDX, classifier, free text."""
    said = distribution.metadata
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in said.get_all("Classifier") or ()
        if text.startswith("License ::") and not text.endswith("OSI Approved")
    ]
    free_text = (said["License"] or "").strip().splitlines() or [""]
    return said["License-Expression"] or " AND ".join(classifiers) or free_text[0] or "not stated"


def fingerprint(words: int) -> str:
    """Hash of what decides the text: the cleaning rules, Python, the installed versions, the size asked for."""
    installed_versions = sorted({(item.metadata["Name"] or "", item.version) for item in metadata.distributions()})
    decisive = [CLEANING, sys.version, sys.prefix, words, installed_versions]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]


# --- reading and cleaning, in worker processes -----------------------------------------------------------

Text = list[list[str]]
"""A document: paragraphs, each a list of sentences."""


class _Cleaner:
    """Cleans texts, or the docstrings of files, in a worker process.

    A paragraph that the process has seen before is dropped. It gets its tasks in their order, so the paragraph was
    in an earlier document, and `_Unseen` would drop it anyway.
    """

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, inputs: list[Path] | list[str]) -> list[Text]:
        return [self._clean(docstrings(_read(one)) if isinstance(one, Path) else [one]) for one in inputs]

    def _clean(self, texts: Iterable[str]) -> Text:
        document = []
        for text in texts:
            for block in paragraphs(text):
                if (key := hash(block)) not in self.seen:
                    self.seen.add(key)
                    if kept := list(sentences(block)):
                        document.append(kept)
        return document


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # deleted since, or written in another encoding
        return ""


# --- writing ---------------------------------------------------------------------------------------------


class _Unseen:
    """Drops what the corpus already has: paragraphs by their letters, and long sentences anywhere."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, document: Text) -> Iterator[str]:
        for paragraph in document:
            if self._new(" ".join(paragraph)):
                long = [len(sentence.split()) >= LONG_SENTENCE for sentence in paragraph]
                kept = paragraph
                if len(paragraph) > 1:
                    kept = [
                        text
                        for text, is_long in zip(paragraph, long, strict=True)
                        if not is_long or self._new(text)
                    ]
                if kept:
                    yield " ".join(kept)

    def _new(self, text: str) -> bool:
        key = hash(letters(text))
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


Meta = tuple[Source, list[str]]
"""A source, and the titles of some of its documents."""


def _tasks(sources: Iterable[Source]) -> Iterator[tuple[Meta, list[Path] | list[str]]]:
    """Yield the paths or texts of some documents in the order of the corpus, in groups of an even size."""
    for source in sources:
        for start in range(0, len(source.files), FILES_A_TASK):
            names = source.files[start : start + FILES_A_TASK]
            yield (source, list(names)), [source.root / name for name in names]
        if source.texts:
            yield (source, [title for title, _ in source.texts]), [text for _, text in source.texts]


def _clean_all(sources: Iterable[Source]) -> Generator[tuple[Source, str, Text], None, None]:
    """Yield source, title and text of every document in order, cleaned by all processors."""
    with closing(map_in_order(_Cleaner, _tasks(sources), workers=usable_processors())) as results:
        for (source, titles), texts in results:
            for title, text in zip(titles, texts, strict=True):
                yield source, title, text


def _write(out: Path, licences: Path, *, words: int) -> tuple[int, int]:
    """Write corpus and record, each in one move at the end; returns the numbers of words and documents."""
    sources = installed()
    counts = {source.name: [0, 0] for source in sources}
    total = documents = 0
    unseen = _Unseen()
    draft = out.with_name(f"{out.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8") as file, closing(_clean_all(sources)) as stream:
            for source, title, text in stream:
                lines = list(unseen(text))
                size = sum(len(line.split()) for line in lines)
                if size < SHORTEST_DOCUMENT:
                    continue
                document = {"id": f"{source.name}:{title}", "title": title, "text": "\n".join(lines)}
                file.write(json.dumps(document) + "\n")
                counts[source.name][0] += size
                counts[source.name][1] += 1
                total, documents = total + size, documents + 1
                if documents % 100 == 0:
                    logger.info("%s words of documentation", f"{total:,}", extra={"progress": (total, words)})
                if total >= words:
                    break
        if not documents:
            raise DataError(
                f"No documentation found in {sys.prefix}: this Python has no sources with docstrings. "
                "Give `electra prepare` a corpus of your own."
            )
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    record = {
        "words": total,
        "documents": documents,
        "bytes": out.stat().st_size,
        "sources": [
            {"name": item.name, "version": item.version, "licence": item.licence}
            | {"words": counts[item.name][0], "documents": counts[item.name][1]}
            for item in sources
            if counts[item.name][1]
        ],
    }
    write_json(licences, record)
    return total, documents


# --- the cache -------------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Where the text is kept between runs: `$XDG_CACHE_HOME/electra`, else `~/.cache/electra`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "electra"


def _read_record(cache: Path) -> dict[str, int] | None:
    """Words and documents of a complete cache entry, else None."""
    try:
        record = json.loads((cache / "licences.json").read_text(encoding="utf-8"))
        intact = (cache / "documentation.jsonl").stat().st_size == record["bytes"]
    except (OSError, ValueError, KeyError):
        return None
    return record if intact else None


def _fill_cache(cache: Path, out: Path, licences: Path) -> None:
    """Keep a copy for the next time. A cache that cannot be written costs time only, hence no error."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{cache.name}.", dir=cache.parent))
        try:
            shutil.copyfile(out, draft / "documentation.jsonl")
            shutil.copyfile(licences, draft / "licences.json")
            shutil.rmtree(cache, ignore_errors=True)  # left there damaged
            draft.replace(cache)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        logger.warning("The documentation is not cached, and will be collected anew the next time: %s", error)
