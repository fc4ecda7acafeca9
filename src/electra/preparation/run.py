"""Prepare a corpus: a tokenizer and token shards.

    sources ──survey──▶ sample, held-out rule ──train──▶ tokenizer.json
    sources ──batches──▶ workers: sentences, ids ──in order──▶ shards ──▶ unigram counts, fakes ──▶ manifest

The state of the work is committed to progress.json from time to time. After a kill, the same call resumes from
there and ends with the same bytes, except for the date and the seconds in the manifest.
"""

import errno
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from tokenizers import Tokenizer

from electra import durable
from electra.config import check
from electra.data.shards import MANIFEST, SPLITS, TOKENIZER, TokenData, read_manifest, token_dtype
from electra.data.tokenizer import describe_tokenizer, load_tokenizer, special_tokens, vocabulary_size
from electra.errors import DataError
from electra.export.included_models import find_included
from electra.folder_lock import hold
from electra.json_files import utf8
from electra.preparation.config import PrepareConfig
from electra.preparation.corpus import STANDARD_INPUT, Source, find_sources, remove_spool
from electra.preparation.deduplication import SeenHashes
from electra.preparation.document_batches import Batch, read_batches
from electra.preparation.encoding import Encoded, encode_in_order
from electra.preparation.manifest import finish_data
from electra.preparation.progress import PROGRESS, Progress, check_same_options
from electra.preparation.report import PrepareResult
from electra.preparation.scripts import takes_hangul_apart, unknown_scripts
from electra.preparation.shard_writer import SplitWriter
from electra.preparation.survey import SAMPLE_CHARACTERS, choose_heldout, survey_corpus
from electra.preparation.tokenizer_training import train_tokenizer
from electra.preparation.workers import usable_processors
from electra.readers.base import Document, Item
from electra.readers.lines import BROKEN_UTF8, CONVERT_ENCODING

logger = logging.getLogger(__name__)

REJECTS, SEEN = "rejects.jsonl", "seen.hashes"
COMMIT_CHARACTERS = 1 << 26  # some seconds of work between two commits
UNIGRAM_SAMPLE = 2_000_000  # characters; its trainer takes ten times the time and memory of the others


def prepare(config: PrepareConfig) -> PrepareResult:
    """Turn a corpus into a tokenizer and token shards with a held-out part and a manifest, or resume that work.

    Raises:
        ConfigError: the settings contradict each other.
        DataError: the corpus cannot be used, or the output folder holds something else.
    """
    check(config)
    started = time.monotonic()
    tokenizer = load_given_tokenizer(config)
    settings = _settings(config, tokenizer)
    if (config.out / MANIFEST).is_file():
        return _check_finished(config, settings)

    sources = find_sources(config.corpus, out=config.out, text_column=config.text_column)
    with hold(config.out, work="preparing these data"):
        if (config.out / MANIFEST).is_file():  # another process has finished them
            return _check_finished(config, settings)
        return _prepare(config, settings, sources, tokenizer, started=started)


def _prepare(
    config: PrepareConfig,
    settings: dict[str, Any],
    sources: list[Source],
    tokenizer: Tokenizer | None,
    *,
    started: float,
) -> PrepareResult:
    """Prepare data in a folder that no other process works in."""
    progress = Progress.open(config.out, {**settings, "sources": _describe_sources(sources)})
    if progress.heldout is None:
        _survey(config, sources, tokenizer, progress)
    else:
        logger.info("Resuming %s after %d documents", config.out, progress.documents)
    tokenizer = load_tokenizer(config.out / TOKENIZER)
    started -= progress.seconds
    try:
        splits = _Encoding(config, tokenizer, progress, started).run(sources)
        if not splits["train"]:
            raise DataError("The corpus gave no token to train on; is it text that the tokenizer knows?")
        manifest = finish_data(config.out, tokenizer, splits, progress, started=started)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise DataError(
            f"{config.out}: the disk is full; make room and run the same command again: it resumes from there"
        ) from error
    _clean_up(config)
    return PrepareResult(config.out, manifest)


def load_given_tokenizer(config: PrepareConfig) -> Tokenizer | None:
    """Return the tokenizer that the settings name; None: one is trained."""
    if config.tokenizer is None:
        return None
    path = config.tokenizer
    if included := find_included(path):
        path = included if (included / TOKENIZER).is_file() else included / "discriminator"
    return load_tokenizer(path, lowercase=config.lowercase, strip_accents=config.strip_accents)


def _settings(config: PrepareConfig, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the settings that the result depends on, as JSON."""
    settings: dict[str, Any] = {"corpus": list(config.corpus)}
    if tokenizer is not None:
        settings |= {"tokenizer": str(config.tokenizer), "tokenizer_entries": describe_tokenizer(tokenizer)}
    else:
        settings |= {name: getattr(config, name) for name in ("model", "vocabulary_size")}
    shared = ("lowercase", "strip_accents", "text_column", "documents", "heldout", "shard_tokens")
    settings |= {name: getattr(config, name) for name in shared}
    filtering = {
        "deduplicate": config.deduplicate, "least_characters": config.least_characters,
        "most_characters": config.most_characters, "language": list(config.language),
    }  # fmt: skip
    return settings | {name: value for name, value in filtering.items() if value}


def _describe_sources(sources: list[Source]) -> list[dict[str, Any]]:
    return [{"name": source.name, "bytes": source.size, "column": source.column} for source in sources]


def _check_finished(config: PrepareConfig, settings: dict[str, Any]) -> PrepareResult:
    """Return the data that are there already, if they were made from the same corpus with the same settings.

    Raises:
        DataError: they were not, or their files are missing or damaged.
    """
    manifest = read_manifest(config.out)
    before = dict(manifest["made"]["options"])
    sources = before.pop("sources", None)  # merged data have none
    check_same_options(config.out, before, settings)
    if STANDARD_INPUT not in config.corpus:  # it cannot be compared
        current = find_sources(config.corpus, out=config.out, text_column=config.text_column)
        check_same_options(config.out, {"sources": sources}, {"sources": _describe_sources(current)})
    logger.info("%s was prepared before; comparing its files with their checksums", config.out)
    TokenData.open(config.out)
    _clean_up(config)  # the previous run may have been killed before it did so
    return PrepareResult(config.out, manifest, reused=True)


def _clean_up(config: PrepareConfig) -> None:
    """Delete what only a resumed preparation needs, and the partial files of killed ones."""
    for name in (PROGRESS, SEEN):
        (config.out / name).unlink(missing_ok=True)
    remove_spool(config.out)
    for partial in config.out.glob(".*.partial"):
        partial.unlink()


def _survey(config: PrepareConfig, sources: list[Source], tokenizer: Tokenizer | None, progress: Progress) -> None:
    """Write the tokenizer, and decide which documents are held out."""
    size = 0 if tokenizer else UNIGRAM_SAMPLE if config.model == "unigram" else SAMPLE_CHARACTERS
    survey = survey_corpus(
        _log_progress(chain.from_iterable(source.read(config.documents) for source in sources)),
        sample_characters=size,
        document_filter=config.document_filter,
        deduplicate=config.deduplicate,
    )
    if not survey.documents and survey.left_out:
        raise DataError(
            f"All {survey.left_out:,} documents were left out by the filters; nothing is left to prepare"
        )
    remedy = f"; {CONVERT_ENCODING}" if BROKEN_UTF8 in (survey.first_reject or "") else ""
    if not survey.documents:
        reason = f"; every line was rejected, the first: {survey.first_reject}" if survey.first_reject else ""
        raise DataError(f"The corpus has no document: {', '.join(config.corpus)}{reason}{remedy}")
    if remedy:
        logger.warning("%s%s", survey.first_reject, remedy)
    if tokenizer is None:
        logger.info("Training a %s vocabulary of %d entries", config.model, config.vocabulary_size)
        tokenizer = train_tokenizer(
            survey.sample,
            kind=config.model,
            vocabulary_size=config.vocabulary_size,
            lowercase=config.lowercase,
            strip_accents=config.strip_accents,
        )
        if (entries := vocabulary_size(tokenizer)) < config.vocabulary_size:
            logger.warning(
                "the text has words for only %s of the %s entries of --vocabulary-size",
                f"{entries:,}", f"{config.vocabulary_size:,}",
            )  # fmt: skip
        if unknown := unknown_scripts(tokenizer, special_tokens(tokenizer).unknown, survey.sample):
            logger.warning(
                "most words in %s become [UNK]: the letters are too rare in the text for the vocabulary; if these "
                "words matter, use --model bpe, which knows every character, or leave them out of the text",
                " and ".join(f"{script} ({count:,} in the sample)" for script, count in unknown.items()),
            )
    if survey.has_hangul and takes_hangul_apart(tokenizer):
        logger.warning(
            "the text has Hangul, which the tokenizer takes apart (한 becomes three letters), as BERT's removal "
            "of accents does; for Korean, leave --tokenizer out, or give one that keeps accents"
        )
    durable.write_text(config.out / TOKENIZER, tokenizer.to_str(pretty=True))
    progress.heldout = choose_heldout(survey, config.heldout)
    progress.total_characters = survey.characters_read if survey.complete else None
    progress.save(config.out)


def _log_progress(items: Iterable[Item]) -> Iterator[Item]:
    characters, logged = 0, 0
    for item in items:
        characters += len(item.text) if isinstance(item, Document) else 0
        if characters - logged >= 10_000_000:
            logged = characters
            millions = characters // 1_000_000
            logger.info(
                "Surveying the corpus: %d million characters", millions, extra={"progress": (characters, None)}
            )
        yield item


class _Encoding:
    """Encodes a corpus into shards, from where `progress` ends, and commits from time to time."""

    def __init__(self, config: PrepareConfig, tokenizer: Tokenizer, progress: Progress, started: float) -> None:
        self.config, self.tokenizer, self.progress, self.started = config, tokenizer, progress, started

    def run(self, sources: list[Source]) -> dict[str, list[dict[str, Any]]]:
        """Write the shards and return their records, by split."""
        config, progress = self.config, self.progress
        assert progress.heldout is not None
        batches = read_batches(
            sources,
            documents=config.documents,
            heldout=progress.heldout,
            document_filter=config.document_filter,
            seen=self._read_seen() if config.deduplicate else None,
            start=progress.position,
        )
        with ExitStack() as stack:
            self.rejects = stack.enter_context(_open_log(config.out / REJECTS, progress.rejects_bytes))
            self.hashes = stack.enter_context((config.out / SEEN).open("ab")) if config.deduplicate else None
            dtype = token_dtype(vocabulary_size(self.tokenizer))
            self.train, self.heldout = (
                stack.enter_context(
                    SplitWriter(config.out, split, dtype, config.shard_tokens, progress.writers.get(split))
                )
                for split in SPLITS
            )
            workers = config.workers or usable_processors()
            encoded = stack.enter_context(closing(encode_in_order(self.tokenizer, batches, workers=workers)))
            read = committed = 0
            for batch, train, heldout in encoded:
                filled_shard = self._write(batch, train, heldout)
                logger.info("Encoding", extra={"progress": (progress.read, progress.total_characters)})
                read += batch.characters_read
                if filled_shard or read - committed >= COMMIT_CHARACTERS:
                    self._commit()
                    committed = read
            self._commit()
            return {"train": self.train.finish(), "heldout": self.heldout.finish()}

    def _write(self, batch: Batch, train: Encoded, heldout: Encoded) -> bool:
        """Write a batch; True when that filled a shard."""
        lines = "".join(json.dumps(asdict(reject), ensure_ascii=False) + "\n" for reject in batch.rejects)
        self.rejects.write(raw := utf8(lines))
        if self.hashes is not None:
            self.hashes.write(np.array(batch.hashes, np.uint64).tobytes())
        filled = [self.train.add(train), self.heldout.add(heldout)]
        self.progress.add(batch, unknown=train.unknown + heldout.unknown, rejects_bytes=len(raw))
        return any(filled)

    def _commit(self) -> None:
        for file in (self.rejects, self.hashes):
            if file is not None:
                file.flush()
                os.fsync(file.fileno())
        self.progress.writers = {"train": self.train.commit(), "heldout": self.heldout.commit()}
        self.progress.seconds = time.monotonic() - self.started
        self.progress.save(self.config.out)

    def _read_seen(self) -> SeenHashes:
        """Return the hashes of all documents so far, from the file that they are written to."""
        path, seen = self.config.out / SEEN, SeenHashes()
        size = 8 * self.progress.documents
        path.touch()
        if path.stat().st_size < size:
            raise DataError(f"{path}: it is cut off; delete {self.config.out} and run the command again")
        os.truncate(path, size)
        seen.add(np.fromfile(path, np.uint64))
        return seen


def _open_log(path: Path, size: int) -> IO[bytes]:
    """Open a file to append to it, without what was written after the last commit."""
    path.touch()
    os.truncate(path, size)
    return path.open("ab")
