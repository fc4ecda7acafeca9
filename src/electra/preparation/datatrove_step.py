"""A step for datatrove pipelines that writes token shards: what `electra prepare` does, on a cluster.

    pipeline = [JsonlReader(...), GopherQualityFilter(), ..., TokenShards("SHARDS", "DATA/tokenizer.json")]
    SlurmPipelineExecutor(pipeline, tasks=1000, ...).run()

    electra data merge SHARDS/part-*-of-01000 --out DATA

Needs the extra `corpus`. examples/clean_corpus.py is a complete pipeline.
"""

import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from datatrove.data import Document, DocumentsPipeline
from datatrove.pipeline.base import PipelineStep
from fsspec.core import url_to_fs

from electra.data.shards import MANIFEST, SPLITS, TOKENIZER, token_dtype
from electra.data.tokenizer import load_tokenizer, vocabulary_size
from electra.errors import ConfigError
from electra.preparation.deduplication import HASHES, document_hash
from electra.preparation.document_batches import BATCH_CHARACTERS, BATCH_ITEMS, Batch
from electra.preparation.encoding import DocumentEncoder, Text
from electra.preparation.manifest import finish_data
from electra.preparation.progress import Progress
from electra.preparation.shard_writer import SplitWriter
from electra.preparation.survey import HeldoutRule

logger = logging.getLogger(__name__)


class TokenShards(PipelineStep):  # type: ignore[misc]  # datatrove has no types
    """Encodes the documents that it receives and passes them on.

    Each task writes one folder, OUTPUT/part-RANK-of-TASKS, of ordinary prepared data; `electra data merge` joins
    these folders. A task without documents writes none. A task that is run again replaces its folder.
    """

    name = "electra: token shards"
    type = "💽 - WRITER"

    def __init__(
        self,
        output_folder: str | Path,
        tokenizer: str | Path,
        *,
        heldout: float = 0.01,
        shard_tokens: int = 1 << 24,
    ) -> None:
        """
        Args:
            output_folder: a path that all tasks can read, or a URL for fsspec (s3://bucket/folder): then each task
                writes into a temporary folder and uploads that.
            tokenizer: a tokenizer.json, a BERT vocab.txt, or a folder with one, as for `electra prepare`; all
                tasks must be able to read it.
            heldout: the fraction that is held out for evaluation; a hash of each document's text decides which.
            shard_tokens: approximate number of tokens in a shard.

        Raises:
            ConfigError: `heldout` or `shard_tokens` is out of range.
            DataError: the tokenizer cannot be read.
        """
        super().__init__()
        if not 0 < heldout <= 0.5:
            raise ConfigError(f"heldout: must be above 0 and at most 0.5, got {heldout}")
        if shard_tokens < 1:
            raise ConfigError(f"shard_tokens: must be at least 1, got {shard_tokens}")
        load_tokenizer(Path(tokenizer))
        self.output_folder = str(output_folder)
        self.tokenizer = Path(tokenizer)
        self.heldout = heldout
        self.shard_tokens = shard_tokens

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Write the documents, and yield them."""
        store, root = url_to_fs(self.output_folder)
        part = f"{root}/part-{rank:05d}-of-{world_size:05d}"
        if store.exists(part):  # of an earlier attempt; never two attempts in one folder
            store.rm(part, recursive=True)
        with tempfile.TemporaryDirectory() as temporary:
            local = "file" in store.protocol
            folder = Path(part if local else temporary)
            folder.mkdir(parents=True, exist_ok=True)
            yield from self._write(data, folder)
            if not (folder / MANIFEST).is_file():
                logger.info("Task %d of %d had no text", rank, world_size)
                if local:
                    shutil.rmtree(folder)
            elif not local:
                for path in sorted(
                    folder.iterdir(), key=lambda path: path.name == MANIFEST
                ):  # the manifest comes last
                    store.put_file(str(path), f"{part}/{path.name}")

    def _write(self, data: DocumentsPipeline, folder: Path) -> Iterator[Document]:
        started = time.monotonic()
        tokenizer = load_tokenizer(self.tokenizer)
        (folder / TOKENIZER).write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
        rule = HeldoutRule(round(self.heldout * HASHES))
        options = {"pipeline": "datatrove", "tokenizer": str(self.tokenizer), "heldout": self.heldout}
        progress = Progress(options, heldout=rule)
        encode, dtype = DocumentEncoder(tokenizer), token_dtype(vocabulary_size(tokenizer))
        train, heldout = (SplitWriter(folder, split, dtype, self.shard_tokens) for split in SPLITS)
        batch, texts = Batch((0, 0)), list[Text]()

        def write() -> None:
            trained, held = encode(texts)
            train.add(trained)
            heldout.add(held)
            progress.add(batch, unknown=trained.unknown + held.unknown, rejects_bytes=0)
            self.stat_update("tokens", value=len(trained.tokens) + len(held.tokens), unit="batch")

        with train, heldout:
            for document in data:
                with self.track_time():
                    digest = document_hash(document.text)
                    texts.append(Text(document.text, rule.share(digest)))
                    batch.hashes.append(digest)
                    batch.characters += len(document.text)
                    self.stat_update("total")
                    self.update_doc_stats(document)
                    if batch.characters >= BATCH_CHARACTERS or len(texts) >= BATCH_ITEMS:
                        write()
                        batch, texts = Batch((0, 0)), []
                yield document
            with self.track_time():
                write()
                records = {"train": train.finish(), "heldout": heldout.finish()}
                if any(records.values()):
                    finish_data(folder, tokenizer, records, progress, started=started)
