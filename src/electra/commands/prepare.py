"""`electra prepare`: a corpus becomes a tokenizer and token shards.

    sources ──survey──▶ sample, held-out rule ──tokenizer──▶ tokenizer.json
    sources ──batches──▶ workers: sentences, ids ──in order──▶ shards ──▶ unigram counts, fakes ──▶ manifest

Work is committed every now and then to progress.json; the same command goes on from there after a kill, and ends
with the same bytes, but for the date and the seconds in the manifest.
"""

import errno
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tokenizers import Tokenizer
from tyro.conf import Positional, arg

from electra import durable
from electra.data import tokenizer as tokenizers_
from electra.data.shards import (
    MANIFEST,
    SPLITS,
    TOKENIZER,
    TokenData,
    read_manifest,
    token_dtype,
)
from electra.errors import ConfigError, DataError
from electra.preparation.cleaning import Filters, Seen
from electra.preparation.corpus import Source, find_sources, remove_spool
from electra.preparation.document_batches import batches
from electra.preparation.dry_run import PreparePlan, plan
from electra.preparation.encoding import encode_in_order
from electra.preparation.manifest import write_finished
from electra.preparation.progress import PROGRESS, Progress, check_same_options
from electra.preparation.report import PrepareResult
from electra.preparation.shard_writer import SplitWriter
from electra.preparation.survey import SAMPLE, choose_heldout, survey
from electra.preparation.workers import usable_processors
from electra.readers.base import Document, DocumentRule, Item

logger = logging.getLogger(__name__)

REJECTS, SEEN = "rejects.jsonl", "seen.hashes"
COMMIT_CHARACTERS = 1 << 26  # some seconds of work between two commits
UNIGRAM_SAMPLE = 2_000_000  # characters; its trainer takes ten times the time and memory of the others


@dataclass(frozen=True)
class PrepareConfig:
    """The command line of `electra prepare`."""

    corpus: Annotated[Positional[tuple[str, ...]], arg(metavar="CORPUS...", help_behavior_hint="(required)")]
    """Files (.txt .jsonl .csv .tsv .parquet, each also .gz or .zst), folders, patterns, - for standard input, or
    hub:NAME[:CONFIG] for a data set of the Hugging Face hub."""
    out: Path
    """The folder to write."""
    tokenizer: Path | None = None
    """A tokenizer.json, a BERT vocab.txt, or a folder with one. Without it a tokenizer is trained."""
    model: tokenizers_.Kind = "wordpiece"
    """The kind of tokenizer to train: wordpiece, bpe (byte-level) or unigram."""
    vocabulary_size: int = 30522
    """Entries of a trained tokenizer; fewer suit a small corpus (4096 for a few megabytes)."""
    lowercase: bool | None = None
    """Fold case. By default wordpiece does, bpe and unigram do not, and a vocab.txt says it by its entries."""
    strip_accents: bool | None = None
    """Take accents off letters. By default as lowercase for wordpiece; bpe and unigram do not."""
    text_column: str | None = None
    """The column or key that holds the text. By default it is found."""
    documents: DocumentRule = "blank-line"
    """What ends a document in a .txt file: a blank line, or only the end of the file."""
    deduplicate: bool = False
    """Leave out documents that are copies of an earlier one, letter for letter."""
    least_characters: int = 0
    """Leave out shorter documents."""
    most_characters: int = 0
    """Leave out longer documents; 0: none is too long."""
    language: tuple[str, ...] = ()
    """Leave out documents in other languages than these, given by their codes (en de); needs the extra
    `language`."""
    heldout: float = 0.01
    """The share held out for evaluation, chosen by a hash of each document's text."""
    workers: int | None = None
    """Processes that tokenise. By default one for each processor. The result does not depend on it."""
    shard_tokens: int = 1 << 24
    """Tokens in a shard, about."""
    dry_run: bool = False
    """Print what would be read, how much it is and how long it would take, and stop. Nothing is written."""

    def problems(self) -> Iterator[str]:
        """What is wrong with the settings."""
        if not 0 < self.heldout <= 0.5:
            yield f"heldout = {self.heldout} must be above 0 (nothing is measured without) and at most 0.5"
        if self.workers is not None and self.workers < 1:
            yield f"workers = {self.workers} must be at least 1"
        if self.tokenizer is None and self.vocabulary_size < 512:
            yield f"vocabulary_size = {self.vocabulary_size} must be at least 512"
        if self.shard_tokens < 1:
            yield f"shard_tokens = {self.shard_tokens} must be at least 1"
        yield from self.filters.problems()

    @property
    def filters(self) -> Filters:
        """What documents must be like."""
        return Filters(self.least_characters, self.most_characters, self.language)


def run(config: PrepareConfig) -> PrepareResult | PreparePlan:
    """Turn a corpus into a tokenizer and token shards, with a held-out part and a manifest.

    The same command goes on where it was after a kill or a crash. Lines that are no documents (broken JSON, broken
    UTF-8) are counted and listed in rejects.jsonl with their place and reason.

    Examples:
        electra prepare articles.jsonl.zst --out DATA
        electra prepare texts/ "more/*.csv" --text-column body --tokenizer vocab.txt --out DATA
    """
    if problems := list(config.problems()):
        raise ConfigError("\n".join(problems))
    given = None
    if config.tokenizer is not None:
        given = tokenizers_.load(config.tokenizer, lowercase=config.lowercase, strip_accents=config.strip_accents)
    if config.dry_run:
        return _dry_run(config, given)
    return _prepare(config, given)


def _dry_run(config: PrepareConfig, given: Tokenizer | None) -> PreparePlan:
    files = [name for name in config.corpus if name != "-"]  # to look at standard input would be to read it
    kind = f"{config.model}, {config.vocabulary_size:,} entries, to be trained"
    return plan(
        find_sources(files, out=config.out, text_column=config.text_column) if files else [],
        documents=config.documents,
        settings={"tokenizer": str(config.tokenizer) if given else kind, "written to": str(config.out)},
        workers=config.workers or usable_processors(),
        training=given is None,
    )


def _prepare(config: PrepareConfig, given: Tokenizer | None) -> PrepareResult:
    started = time.monotonic()
    settings = _settings(config, given)
    if (config.out / MANIFEST).is_file():
        return _finished(config, settings)

    sources = find_sources(config.corpus, out=config.out, text_column=config.text_column)
    config.out.mkdir(parents=True, exist_ok=True)
    progress = Progress.open(config.out, {**settings, "sources": _described(sources)})
    if progress.heldout is None:
        _survey(config, sources, given, progress)
    else:
        logger.info("Going on with %s after %d documents", config.out, progress.documents)
    tokenizer = tokenizers_.load(config.out / TOKENIZER)
    started -= progress.seconds
    try:
        splits = _encode(config, sources, tokenizer, progress, started)
        if not splits["train"]:
            raise DataError("The corpus gave no token to train on; is it text that the tokenizer knows?")
        manifest = write_finished(config.out, tokenizer, splits, progress, started)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DataError(
            f"{config.out}: the disk is full; make room and run the same command again: it goes on from there"
        ) from error
    _tidy(config.out)
    return PrepareResult(config.out, manifest)


def _tidy(out: Path) -> None:
    """Delete what only a preparation that goes on needs, and what those that were killed have left."""
    for name in (PROGRESS, SEEN):
        (out / name).unlink(missing_ok=True)
    remove_spool(out)
    for left in out.glob(".*.partial"):
        left.unlink()


def _settings(config: PrepareConfig, given: Tokenizer | None) -> dict[str, Any]:
    """The settings that the result depends on, as JSON."""
    settings: dict[str, Any] = {"corpus": list(config.corpus)}
    if given is not None:
        settings |= {"tokenizer": str(config.tokenizer), "tokenizer_entries": tokenizers_.describe(given)}
    else:
        settings |= {name: getattr(config, name) for name in ("model", "vocabulary_size")}
    shared = ("lowercase", "strip_accents", "text_column", "documents", "heldout", "shard_tokens")
    settings |= {name: getattr(config, name) for name in shared}
    filtering = {
        "deduplicate": config.deduplicate, "least_characters": config.least_characters,
        "most_characters": config.most_characters, "language": list(config.language),
    }  # fmt: skip
    return settings | {name: value for name, value in filtering.items() if value}


def _described(sources: list[Source]) -> list[dict[str, Any]]:
    return [{"name": source.name, "bytes": source.size, "column": source.column} for source in sources]


def _finished(config: PrepareConfig, settings: dict[str, Any]) -> PrepareResult:
    """What is there already, if it was made from the same corpus with the same settings.

    Raises:
        DataError: it was not, or its files are missing or damaged.
    """
    manifest = read_manifest(config.out)
    before = dict(manifest["made"]["options"])
    sources = before.pop("sources", None)  # merged data have none
    check_same_options(config.out, before, settings)
    if "-" not in config.corpus:  # standard input cannot be compared
        found = find_sources(config.corpus, out=config.out, text_column=config.text_column)
        check_same_options(config.out, {"sources": sources}, {"sources": _described(found)})
    logger.info("%s was prepared before; comparing its files with their checksums", config.out)
    TokenData.open(config.out)
    _tidy(config.out)  # the kill may have come between the manifest and that
    return PrepareResult(config.out, manifest, before=True)


def _survey(config: PrepareConfig, sources: list[Source], given: Tokenizer | None, progress: Progress) -> None:
    """Writes the tokenizer and settles which documents are held out."""
    size = 0 if given else UNIGRAM_SAMPLE if config.model == "unigram" else SAMPLE
    items = chain.from_iterable(source.read(config.documents) for source in sources)
    watched = _watched(items, "Looking over the corpus")
    seen = survey(watched, sample_size=size, filters=config.filters, copies=not config.deduplicate)
    if not seen.documents and seen.left_out:
        raise DataError(
            f"All {seen.left_out:,} documents were left out by the filters; nothing is there to prepare"
        )
    if not seen.documents:
        reason = f"; every line was rejected, the first: {seen.first_reject}" if seen.first_reject else ""
        raise DataError(f"The corpus has no document: {', '.join(config.corpus)}{reason}")
    if given is None:
        logger.info("Training a %s vocabulary of %d entries", config.model, config.vocabulary_size)
    tokenizer = given or tokenizers_.train(
        seen.sample,
        kind=config.model,
        vocabulary_size=config.vocabulary_size,
        lowercase=config.lowercase,
        strip_accents=config.strip_accents,
    )
    durable.write_text(config.out / TOKENIZER, tokenizer.to_str(pretty=True))
    progress.heldout = choose_heldout(seen, config.heldout)
    progress.total_characters = seen.read if seen.complete else None
    progress.save(config.out)


def _watched(items: Iterable[Item], what: str) -> Iterator[Item]:
    characters, said = 0, 0
    for item in items:
        characters += len(item.text) if isinstance(item, Document) else 0
        if characters - said >= 10_000_000:
            said = characters
            logger.info(
                "%s: %d million characters", what, characters // 1_000_000, extra={"progress": (characters, None)}
            )
        yield item


def _seen(config: PrepareConfig, progress: Progress) -> Seen:
    """The hashes of all documents so far, from the file that they are written to."""
    path, seen = config.out / SEEN, Seen()
    path.touch()
    if path.stat().st_size < 8 * progress.documents:
        raise DataError(f"{path}: it is cut off; delete {config.out} and run the command again")
    os.truncate(path, 8 * progress.documents)
    seen.add(np.fromfile(path, np.uint64))
    return seen


def _encode(
    config: PrepareConfig, sources: list[Source], tokenizer: Tokenizer, progress: Progress, started: float
) -> dict[str, list[dict[str, Any]]]:
    """Writes the shards, committing now and then; their records, by split."""
    assert progress.heldout is not None
    dtype = token_dtype(tokenizers_.vocabulary_size(tokenizer))
    seen = _seen(config, progress) if config.deduplicate else None
    work = batches(
        sources, documents=config.documents, rule=progress.heldout, filters=config.filters, seen=seen,
        start=progress.position,
    )  # fmt: skip
    rejects_path = config.out / REJECTS
    rejects_path.touch()
    os.truncate(rejects_path, progress.rejects_bytes)

    with ExitStack() as stack:
        rejects = stack.enter_context(rejects_path.open("ab"))
        hashes = stack.enter_context((config.out / SEEN).open("ab")) if seen is not None else None
        train, heldout = (
            stack.enter_context(
                SplitWriter(config.out, split, dtype, config.shard_tokens, progress.writers.get(split))
            )
            for split in SPLITS
        )
        encoded = encode_in_order(tokenizer, work, workers=config.workers or usable_processors())
        stack.enter_context(closing(encoded))

        def commit() -> None:
            rejects.flush()
            os.fsync(rejects.fileno())
            if hashes is not None:
                hashes.flush()
                os.fsync(hashes.fileno())
            progress.writers = {"train": train.commit(), "heldout": heldout.commit()}
            progress.seconds = time.monotonic() - started
            progress.save(config.out)

        read = committed = 0
        for batch, trained, held in encoded:
            lines = "".join(json.dumps(asdict(reject), ensure_ascii=False) + "\n" for reject in batch.rejects)
            rejects.write(raw := lines.encode())
            if hashes is not None:
                hashes.write(np.array(batch.hashes, np.uint64).tobytes())
            full = [train.add(trained), heldout.add(held)]
            progress.add(batch, unknown=trained.unknown + held.unknown, rejects_bytes=len(raw))
            logger.info("Encoding", extra={"progress": (progress.read, progress.total_characters)})
            read += batch.read
            if any(full) or read - committed >= COMMIT_CHARACTERS:
                commit()
                committed = read
        commit()
        return {"train": train.finish(), "heldout": heldout.finish()}
