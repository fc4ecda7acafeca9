"""The corpus of the quickstart, which every machine has: the documentation of Python and the installed packages.

It has the docstrings of the standard library and of the installed distributions, pydoc's topics and the long
descriptions of the distributions. Markup is removed, and only English prose is kept. A document is one module (or
one topic, or one description), with one paragraph per line. Nothing is imported or downloaded. Only files that
belong to Python or a distribution are read, so the corpus has no text of the user.
"""

from __future__ import annotations

import contextlib
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
from electra.preparation.prose import find_docstrings, keep_letters, prose_sentences, split_paragraphs
from electra.preparation.workers import map_in_order, usable_processors

logger = logging.getLogger(__name__)

CLEANING = 2
"""Version of the rules here and in prose.py; increase it when they change, because the cache depends on it."""

SHORTEST_DOCUMENT = 50
"""Words. An example with a shorter document would be mostly padding."""

LONG_SENTENCE = 8
"""Words. A sentence of at least this length is kept once in the corpus; shorter ones may be repeated."""

FILES_PER_TASK = 32
"""Number of source files that a worker process gets at once: enough to make the transfer cheap."""

PYTHON = "python"
"""Name of the source with the standard library and pydoc's topics."""

_SUFFIXES = {".py", ".pyi", ".pyx", ".pxi"}
_LEFT_OUT = re.compile(
    r"(^|/)(tests?|testing|_testing|test_[^/]*|[^/]*_tests?|conftest|[^/]*_pb2(_grpc)?|idle_test|encodings|_*licen[cs]es?)"
    r"(/|\.py[ix]?$)"
)
"""Tests, generated files, tables of character sets, texts of licenses."""


@dataclass(frozen=True)
class Documentation:
    """The collected corpus; `str` gives one line for people."""

    path: Path
    """JSON lines, one object per document: `id`, `title`, `text` (one paragraph per line)."""
    licenses: Path
    """JSON file: every source of the text with its version, license and number of words."""
    words: int
    documents: int
    cached: bool
    """Whether the text comes from the user's cache."""

    def __str__(self) -> str:
        origin = "from the cache" if self.cached else "collected"
        return f"{self.documents:,} documents, {self.words:,} words ({origin}); licenses in {self.licenses}"


@dataclass(frozen=True)
class Source:
    """A distribution, or Python itself."""

    name: str
    version: str
    license: str
    root: Path = field(repr=False)
    files: tuple[str, ...] = field(repr=False)
    """Source files below `root`, sorted."""
    texts: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Further documents as (title, text): topics, the long description."""


def collect_documentation(out: Path, *, words: int = 4_000_000) -> Documentation:
    """Write the documentation on this machine to `out` (JSON lines), and a record of its licenses next to it.

    The text is the same for the same Python and the same installed packages. It is kept in the user's cache
    (`$XDG_CACHE_HOME/electra`, else `~/.cache/electra`) and copied from there the next time.

    Args:
        out: file to write, e.g. `documentation.jsonl`; `documentation.licences.json` is written next to it.
        words: stop after the document in which this number is reached; there may be fewer.

    Raises:
        DataError: there is no documentation: this Python has no source files.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    licenses = out.with_suffix(".licences.json")
    folder = cache_folder()
    cache = folder and folder / f"documentation-{fingerprint(words)}"
    if cache and (record := _read_record(cache)):
        shutil.copyfile(cache / "documentation.jsonl", out)
        shutil.copyfile(cache / "licences.json", licenses)
        return Documentation(out, licenses, record["words"], record["documents"], cached=True)
    total, documents = _write(out, licenses, words=words)
    if cache:
        _fill_cache(cache, out, licenses)
    return Documentation(out, licenses, total, documents, cached=False)


# --- where the text comes from ---------------------------------------------------------------------------


def find_sources() -> list[Source]:
    """Return Python and the installed distributions, by name, without this package, which is in development."""
    distributions: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if name and name.lower() != "electra":
            distributions.setdefault(name.lower(), distribution)  # Python imports the first one on the path
    return [_python(), *(_source(distributions[name]) for name in sorted(distributions))]


def _python() -> Source:
    from pydoc_data.topics import topics

    root = Path(sysconfig.get_paths()["stdlib"])
    other_folders = {"site-packages", "dist-packages", "test"}  # large, and read as distributions or not at all
    folders = [root, *(child for child in root.iterdir() if child.is_dir() and child.name not in other_folders)]
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
        _find_license(distribution),
        Path(str(distribution.locate_file(""))),
        tuple(sorted(name for name in files if not _LEFT_OUT.search(name))),
        (("description", description),) if description else (),
    )


def _find_license(distribution: metadata.Distribution) -> str:
    """Return the license of a distribution, from the most precise entry: SPDX, classifier, free text."""
    entries = distribution.metadata
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in entries.get_all("Classifier") or ()
        if text.startswith("License ::") and not text.endswith("OSI Approved")
    ]
    free_text = (entries["License"] or "").strip().splitlines() or [""]
    return entries["License-Expression"] or " AND ".join(classifiers) or free_text[0] or "not stated"


def fingerprint(words: int) -> str:
    """Return a hash of what decides the text: the cleaning rules, Python, the installed versions, the size."""
    installed_versions = sorted({(item.metadata["Name"] or "", item.version) for item in metadata.distributions()})
    parts = [CLEANING, sys.version, sys.prefix, words, installed_versions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


# --- reading and cleaning, in worker processes -----------------------------------------------------------

Text = list[list[str]]
"""A document: paragraphs, each a list of sentences."""


class _Cleaner:
    """Cleans texts, or the docstrings of files, in a worker process.

    A paragraph that the process has seen before is dropped. The process gets its tasks in their order, so the
    paragraph was in an earlier document, and `_Unseen` would drop it anyway.
    """

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, inputs: list[Path] | list[str]) -> list[Text]:
        return [self._clean(find_docstrings(_read(one)) if isinstance(one, Path) else [one]) for one in inputs]

    def _clean(self, texts: Iterable[str]) -> Text:
        document = []
        for text in texts:
            for paragraph in split_paragraphs(text):
                if (key := hash(paragraph)) not in self.seen:
                    self.seen.add(key)
                    if kept := list(prose_sentences(paragraph)):
                        document.append(kept)
        return document


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):  # deleted since, or written in another encoding
        return ""


# --- writing ---------------------------------------------------------------------------------------------


class _Unseen:
    """Drops what the corpus already has: paragraphs, compared by their letters, and long sentences."""

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
        key = hash(keep_letters(text))
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


Meta = tuple[Source, list[str]]
"""A source, and the titles of some of its documents."""


def _tasks(sources: Iterable[Source]) -> Iterator[tuple[Meta, list[Path] | list[str]]]:
    """Yield the paths or texts of some documents in the order of the corpus, in groups of an even size."""
    for source in sources:
        for start in range(0, len(source.files), FILES_PER_TASK):
            names = source.files[start : start + FILES_PER_TASK]
            yield (source, list(names)), [source.root / name for name in names]
        if source.texts:
            yield (source, [title for title, _ in source.texts]), [text for _, text in source.texts]


def _clean_all(sources: Iterable[Source]) -> Generator[tuple[Source, str, Text], None, None]:
    """Yield source, title and text of every document in order, cleaned by all processors."""
    with closing(map_in_order(_Cleaner, _tasks(sources), workers=usable_processors())) as results:
        for (source, titles), texts in results:
            for title, text in zip(titles, texts, strict=True):
                yield source, title, text


def _report(words: int, limit: int) -> None:
    logger.info("%s words of documentation", f"{words:,}", extra={"progress": (words, limit)})


def _write(out: Path, licenses: Path, *, words: int) -> tuple[int, int]:
    """Write the corpus and the record of licenses, and return the numbers of words and documents."""
    sources = find_sources()
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
                    _report(total, words)
                if total >= words:
                    break
        _report(total, total)  # there may be fewer words than are wanted
        if not documents:
            raise DataError(
                f"{sys.prefix}: this Python has no source files with docstrings, so there is no documentation; "
                "give `electra prepare` your own corpus"
            )
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    record = {
        "words": total,
        "documents": documents,
        "bytes": out.stat().st_size,
        "sources": [
            {"name": item.name, "version": item.version, "licence": item.license}
            | {"words": counts[item.name][0], "documents": counts[item.name][1]}
            for item in sources
            if counts[item.name][1]
        ],
    }
    write_json(licenses, record)
    return total, documents


# --- the cache -------------------------------------------------------------------------------------------


def cache_folder() -> Path | None:
    """Return the folder in which the text is kept between runs: `$XDG_CACHE_HOME/electra`, else
    `~/.cache/electra`; None: the user has no home, as in some containers."""
    if root := os.environ.get("XDG_CACHE_HOME"):
        return Path(root) / "electra"
    with contextlib.suppress(RuntimeError):
        return Path.home() / ".cache" / "electra"
    return None


def _read_record(cache: Path) -> dict[str, int] | None:
    """Return the record of a complete cache entry, else None."""
    try:
        record = json.loads((cache / "licences.json").read_text(encoding="utf-8"))
        intact = (cache / "documentation.jsonl").stat().st_size == record["bytes"]
    except (OSError, ValueError, KeyError):
        return None
    return record if intact else None


def _fill_cache(cache: Path, out: Path, licenses: Path) -> None:
    """Keep a copy for the next time. A cache that cannot be written is not an error: it only costs time."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{cache.name}.", dir=cache.parent))
        try:
            shutil.copyfile(out, draft / "documentation.jsonl")
            shutil.copyfile(licenses, draft / "licences.json")
            shutil.rmtree(cache, ignore_errors=True)  # a damaged one
            draft.replace(cache)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        logger.warning("The documentation cannot be cached and will be collected again the next time: %s", error)
