"""The parts of a pre-training run: objective, batches, precision and held-out evaluation."""

import hashlib
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from electra.data.collate import Batch, collate
from electra.data.example_index import ExampleIndex, read_index, write_index
from electra.data.examples import ExampleSet
from electra.data.mixture import Mixture
from electra.data.ngrams import trigram_table
from electra.data.sampling import Rows, Sampler, step_seed
from electra.data.shards import Split, TokenData
from electra.data.streams import StreamOrder, check_stream
from electra.data.tags import TAGS, TagTable
from electra.data.tokenizer import continuation_mask, load_tokenizer
from electra.errors import ConfigError, DataError
from electra.modeling.device import resolve_device
from electra.modeling.flops import Documents
from electra.objectives.base import Objective
from electra.objectives.masking import WHOLE_WORDS
from electra.objectives.stream_memory import stream_memories
from electra.pretraining.config import PretrainConfig, build_objective
from electra.pretraining.warm_start import WarmStart, initialize
from electra.training.allocator import keep_freed_memory
from electra.training.batch_source import BatchSource, prefetch
from electra.training.distributed import (
    broadcast_object,
    is_local_main_process,
    is_main_process,
    rank,
    run_and_wait,
    world_size,
)
from electra.training.precision import PRECISIONS, Precision, choose_precision
from electra.training.run_folder import RunFolder
from electra.training.trackers import require_tracker
from electra.training.update import compile_encoders

logger = logging.getLogger(__name__)

HELDOUT_ROWS = 32
"""Rows per evaluation batch. Independent of the run's batch size, so that all runs are evaluated on the same
masks."""
MIN_WINDOWS = 16
"""Minimum number of consecutive windows in a row of a held-out stream."""
PLANNED_TOKENS = 20_000_000
"""The first shards with at least so many tokens tell a plan how long the documents of packed rows are."""
INDEX_TOKENS = 100_000_000
"""Training data with at least so many tokens is packed once, into an index in the run's folder."""


def open_data(config: PretrainConfig) -> tuple[TokenData, Path]:
    """Open the data of a run; return it and the output folder.

    Raises:
        MissingExtraError: the library of the tracker is not installed.
        ConfigError: one of them is missing, there is no such device, or the batch size is not a multiple of the
            number of processes.
        DataError: the data is damaged or too small, or does not fit the config.
    """
    if config.data is None or config.out is None:
        raise ConfigError("a run needs --data (made by `electra prepare`) and --out, the folder to write to")
    # Check everything that is possible before anything is written or takes long.
    wanted = config.train.device
    if world_size() > 1 and wanted not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            f"train.device: is {wanted}, but with several processes it can only be auto, cpu or cuda"
        )
    resolve_device(wanted, option="train.device")
    require_tracker(config.tracking.tracker)
    _check_batch_sizes(config)
    open_verified = partial(TokenData.open, config.data, verified=RunFolder(config.out).read_verified())
    data = run_and_wait(open_verified if is_local_main_process() else None)
    data = data or TokenData.open(config.data, verify=False)
    if not data.manifest["splits"]["heldout"]["tokens"]:
        raise DataError(f"{data.folder}: has no held-out text, because the text is too short; prepare more text")
    check_data(config, data)
    return data, config.out


@dataclass(frozen=True)
class RunParts:
    """The parts of a run, ready for its first step."""

    objective: Objective
    batches: BatchSource
    precision: Precision
    device: torch.device


def build(config: PretrainConfig, data: TokenData, warm_start: WarmStart | None) -> RunParts:
    """Build the objective with its initial weights, the batches, and the precision.

    Args:
        config: resolved (see resolve.py).
        warm_start: pre-trained networks to start from; None: the weights come from a checkpoint, which is read
            later.
    """
    device = resolve_device(config.train.device, option="train.device")
    if device.type == "cpu":
        keep_freed_memory()
    torch.manual_seed(config.train.seed)
    objective = build_objective(
        config,
        data.special,
        vocabulary_tables(config, data) | _trigrams(config, data),
        entries=data.vocabulary_size,
    )
    if warm_start is not None:
        initialize(objective, config, data, warm_start)
    if device.type == "mps":
        objective = objective.float()  # some tables are float64, which Apple's GPUs lack
    objective = objective.to(device)
    batches = build_batches(config, data, device)
    precision = _precision(config, objective, batches, device)
    logger.info("%s on %s: %s", precision.name, device, precision.reason)
    if config.packing.packs_documents:
        _log_document_attention(objective, device, PRECISIONS[precision.name])
    if device.type == "mps" and config.train.compile == "on":
        logger.warning("train.compile: is on, but nothing is compiled for Apple's GPUs")
    if _is_compiled(config, device):
        compile_encoders(objective)
        logger.info("the first step is slow, because it compiles the encoders")
    return RunParts(objective, batches, precision, device)


def _log_document_attention(objective: Objective, device: torch.device, dtype: torch.dtype) -> None:
    """Say how each encoder computes attention in packed rows."""
    encoders = {id(network.encoder): name for name, network in reversed(objective.exportable_networks().items())}
    for name, network in objective.exportable_networks().items():
        if encoders[id(network.encoder)] != name:
            continue  # the same encoder with another head
        in_one_call = network.encoder.config.attends_in_one_call(device, dtype)
        how = "all documents in one call" if in_one_call else "documents of similar length together"
        logger.info("attention in packed rows, %s: %s", name, how)


def check_data(config: PretrainConfig, data: TokenData) -> None:
    """Check that the data have what the packing and the objective need.

    Raises:
        ConfigError: the data cannot be read as a stream.
        DataError: the objective needs part-of-speech tags, and the data have none; or there is too little
            held-out text.
    """
    if config.packing.streams:
        check_stream(data, length=config.packing.sequence_length, batch_size=config.train.batch_size)
    if config.objective.needs_tags and not (data.folder / TAGS).is_file():
        raise DataError(f"{data.folder}: has no part-of-speech tags; run `electra data tags {data.folder}`")


def vocabulary_tables(config: PretrainConfig, data: TokenData) -> dict[str, torch.Tensor]:
    """Tables over the vocabulary, computed from the data. They are padded where the model has more rows than the
    tokenizer has entries.

    Raises:
        DataError: the part-of-speech tags belong to another vocabulary, or the tokenizer does not mark word
        starts.
    """
    tables = {"counts_V": torch.from_numpy(data.unigram_counts.astype(np.int64))}
    if config.masking.kind in WHOLE_WORDS:
        tables["continues_V"] = torch.from_numpy(continuation_mask(load_tokenizer(data.tokenizer_path)))
    if config.objective.needs_tags and (tags := TagTable.read(data.folder)):
        if len(tags.tags_V) != data.vocabulary_size:
            raise DataError(
                f"{data.folder / TAGS} belongs to another vocabulary; make it again with `electra data tags`"
            )
        tables["tags_V"] = torch.from_numpy(tags.tags_V)
    size = config.model.vocabulary_size
    return {name: F.pad(table, (0, size - len(table))) for name, table in tables.items()}


def _trigrams(config: PretrainConfig, data: TokenData) -> dict[str, torch.Tensor]:
    """The trigrams of the training text, if replaced tokens are drawn from them."""
    if not config.objective.needs_trigrams:
        return {}
    logger.info("sorting trigrams of the training text, to draw replaced tokens from")
    table_M = trigram_table(data.train, size=config.model.vocabulary_size, special=data.special.ids)
    return {"trigrams_M": torch.from_numpy(table_M)}


def _check_batch_sizes(config: PretrainConfig) -> None:
    """Check that the batch can be divided among the processes.

    Raises:
        ConfigError: the batch size, or a smaller one during the ramp, is not a multiple of the number of
            processes.
    """
    ramp, batch = config.train.batch_ramp_steps, config.train.batch_size
    sampler = Sampler(seed=0, batch_size=batch, examples=batch, ramp_steps=ramp, world_size=world_size())
    for first in {-(-third * ramp // 3) for third in range(4)}:  # the first step of each size
        sampler.rows(first)


def _is_compiled(config: PretrainConfig, device: torch.device) -> bool:
    # The shapes of packed rows differ from batch to batch, and each would be compiled (the config refuses "on").
    automatic = device.type == "cuda" and not config.packing.packs_documents
    enabled = config.train.compile == "on" or (config.train.compile == "auto" and automatic)
    return enabled and device.type != "mps" and (config.train.sharding == "none" or world_size() == 1)


def build_batches(config: PretrainConfig, data: TokenData, device: torch.device) -> BatchSource:
    """The batches of the training split."""
    index = _open_index(config, data) if data.train.tokens >= INDEX_TOKENS and config.out is not None else None
    examples = ExampleSet(data.train, config.packing, seed=config.train.seed, index=index)
    if len(examples) == 0:
        raise DataError(f"{data.folder}: the training split has no text; prepare a larger corpus")
    order = _example_order(config, data, examples)
    train, share = config.train, config.train.batch_size // world_size()
    micro_batch_size = min(train.micro_batch_size or share, share)

    sampler = Sampler(
        seed=train.seed,
        batch_size=train.batch_size,
        examples=len(examples),
        ramp_steps=train.batch_ramp_steps,
        rank=rank(),
        world_size=world_size(),
        copies=config.masking.copies,
        order=order,
    )

    def micro_batches(step: int) -> list[Batch]:
        indices, seeds = sampler.rows(step), sampler.seeds(step)
        starts = range(0, len(indices), micro_batch_size)
        return [
            collate(
                examples,
                indices[start : start + micro_batch_size],
                special=data.special,
                seed=step_seed(train.seed, step, micro_step=rank() * len(starts) + number),
                seeds=seeds[start : start + micro_batch_size],
                sentences=config.objective.sentence_loss,
                reset=isinstance(order, StreamOrder) and order.restarts(step),
                first_row=start,
                trim=device.type == "cpu" and not _is_compiled(config, device),
            ).to(device)
            for number, start in enumerate(starts)
        ]

    return BatchSource(
        prefetch(micro_batches, device),
        epochs=lambda steps: (
            order.epochs(train.sequences(steps)) if order else train.sequences(steps) / len(examples)
        ),
        sequence_length=config.packing.sequence_length,
        documents=tuple(examples.document_lengths().items()) if config.packing.packs_documents else None,
        identity=identity(config, data),
        describe_rows=lambda step: _describe_rows(
            data, micro_batches(step), sampler.rows(step), sampler.seeds(step)
        ),
    )


def _describe_rows(data: TokenData, batches: list[Batch], rows_B: Rows, seeds_B: Rows) -> list[dict[str, Any]]:
    """The number, seed and text of each row of a step."""
    tokenizer = load_tokenizer(data.tokenizer_path)
    texts = [tokenizer.decode(ids) for batch in batches for ids in batch.input_ids_BL.tolist()]
    return [
        {"row": int(row), "seed": int(seed), "text": text}
        for row, seed, text in zip(rows_B, seeds_B, texts, strict=True)
    ]


def packed_documents(config: PretrainConfig, data: TokenData) -> Documents | None:
    """The documents of which packed rows of the training split consist; None: each row is one document."""
    if not config.packing.packs_documents:
        return None
    ends = np.cumsum([len(shard.tokens) for shard in data.train.shards])
    split = Split(data.train.shards[: int(np.searchsorted(ends, PLANNED_TOKENS)) + 1])
    return tuple(ExampleSet(split, config.packing, seed=config.train.seed).document_lengths().items())


def _example_order(config: PretrainConfig, data: TokenData, examples: ExampleSet) -> Mixture | StreamOrder | None:
    """The order of examples for mixtures and streams; None for plain data.

    Raises:
        ConfigError: the text is too short for the batch.
        DataError: a part of a mixture has no example.
    """
    if config.packing.streams:
        return StreamOrder(len(examples), config.train.batch_size)
    if not data.mixture:
        return None
    shards, weights = zip(*data.mixture, strict=True)
    counts = examples.count_examples(shards)
    if 0 in counts:
        raise DataError(f"{data.folder}: part {counts.index(0) + 1} of the mixture has no text to train on")
    return Mixture(counts, weights)


def _open_index(config: PretrainConfig, data: TokenData) -> ExampleIndex:
    """Open the index of packed examples in the run's folder; the main process writes it if it does not exist."""
    assert config.out is not None
    folder, packing, seed = RunFolder(config.out).index, config.packing, config.train.seed
    read = partial(read_index, folder, packing, seed=seed, data=data.fingerprint)
    write = None
    if is_main_process() and read() is None:
        logger.info("packing %s tokens into examples, once; kept in %s", f"{data.train.tokens:,}", folder)
        write = partial(write_index, folder, data.train, packing, seed=seed, data=data.fingerprint)
    run_and_wait(write)
    if (index := read()) is None:
        raise DataError(f"{folder}: no index of these data; do all processes see the same files?")
    return index


def identity(config: PretrainConfig, data: TokenData) -> dict[str, str]:
    """Fingerprints of the data. A run can only be resumed with the same ones."""
    if not config.objective.needs_tags:
        return {"data": data.fingerprint}
    return {"data": data.fingerprint, "tags": hashlib.sha256((data.folder / TAGS).read_bytes()).hexdigest()}


def heldout_batches(
    config: PretrainConfig, data: TokenData, device: torch.device
) -> Iterator[tuple[Batch, Batch]]:
    """Held-out batches, each with a copy in which tokens are replaced by frequency; independent of the run's seed.

    In a stream, rows continue from batch to batch here, too: each row reads at least `MIN_WINDOWS` windows, if
    there are so many. Interim evaluations use the first of them.
    """
    examples = ExampleSet(data.heldout, config.packing, seed=0)
    if len(examples) == 0:
        raise DataError(f"{data.folder}: the held-out split has no text; prepare it with a larger --heldout")
    count, size = min(config.evaluation.examples, len(examples)), HELDOUT_ROWS
    if config.packing.streams:
        size = max(1, min(HELDOUT_ROWS, count // MIN_WINDOWS))
        count -= count % size
    sampler = Sampler(seed=0, batch_size=count, examples=len(examples))
    if config.packing.streams:
        rows = StreamOrder(count, size).locate(np.arange(count), seed=0)[1]
    else:
        rows = sampler.rows(0)
    seeds = sampler.seeds(0)
    for start in range(0, count, size):
        part = slice(start, start + size)
        collate_rows = partial(
            collate, examples, rows[part], special=data.special, seed=step_seed(0, start), seeds=seeds[part],
            trim=False, reset=start == 0,
        )  # fmt: skip
        yield collate_rows().to(device), collate_rows(source="unigram").to(device)


def evaluation(
    config: PretrainConfig, data: TokenData, objective: Objective, precision: Precision, device: torch.device
) -> Callable[[int], dict[str, float]]:
    """A function that evaluates the objective on a number of held-out examples."""
    batches = list(heldout_batches(config, data, device))
    for memory in stream_memories(objective).values():
        memory.evaluation_length = config.evaluation.memory_length
    # Shapes differ from training, so they would be compiled again.
    eager = partial(torch.compiler.set_stance, "force_eager") if _is_compiled(config, device) else nullcontext

    def evaluate(examples: int) -> dict[str, float]:
        with precision.autocast(device), eager():
            return objective.evaluate(batches[: math.ceil(examples / len(batches[0][0].lengths_B))])

    return evaluate


def _precision(
    config: PretrainConfig, objective: Objective, batches: BatchSource, device: torch.device
) -> Precision:
    batch = batches.micro_batches(0)[0]

    def step() -> None:
        objective(batch).loss.backward()
        objective.zero_grad(set_to_none=True)

    if steps := config.train.steps:
        objective.begin_step(steps - 1, steps)  # all networks are trained at the end of a run with stages
    precision = Precision(**broadcast_object(asdict(choose_precision(config.train.precision, device, step))))
    if steps:
        objective.begin_step(0, steps)
    for memory in stream_memories(objective).values():  # forget the batch of the measurement
        memory.restore(None)
    return precision
