"""What a pre-training run is made of: the objective, its batches, its precision, its held-out figures."""

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
from electra.data.sampling import Sampler, step_seed
from electra.data.shards import TokenData
from electra.data.streams import StreamOrder, check_stream
from electra.data.tags import TAGS, TagTable
from electra.data.tokenizer import continuation_mask, load_tokenizer
from electra.errors import ConfigError, DataError
from electra.objectives.base import Objective
from electra.objectives.masking import WHOLE_WORDS
from electra.objectives.stream_memory import stream_memories
from electra.pretraining.config import PretrainConfig, build_objective
from electra.pretraining.warm_start import WarmStart, initialize
from electra.training.allocator import keep_freed_memory
from electra.training.batch_source import BatchSource, prefetch
from electra.training.device import resolve_device
from electra.training.distributed import (
    broadcast_object,
    is_local_main_process,
    is_main_process,
    rank,
    run_and_wait,
    world_size,
)
from electra.training.precision import Precision, choose_precision
from electra.training.run_folder import RunFolder
from electra.training.update import compile_encoders

logger = logging.getLogger(__name__)

HELDOUT_ROWS = 32
"""Rows that are evaluated at once; it does not depend on the run's batch, so that masks can be compared."""
STRETCH = 16
"""Windows that a row of a held-out stream reads one behind the other, or more."""
LARGE = 100_000_000
"""Tokens from which on a training part is packed once, into the run's folder, and not at every start."""


def open_data(config: PretrainConfig) -> tuple[TokenData, Path]:
    """The data of a run and the folder that it writes to.

    Raises:
        ConfigError: one of them is not named, there is no such device, or a batch does not divide among the
            processes.
        DataError: the data is damaged or too little, or is not what the config wants to read.
    """
    if config.data is None or config.out is None:
        raise ConfigError("a run needs --data (made by `electra prepare`) and --out, the folder to write to")
    # What can be refused is refused before anything is written or takes long.
    resolve_device(config.train.device)
    _check_shares(config)
    open_verified = partial(TokenData.open, config.data, verified=RunFolder(config.out).read_verified())
    data = run_and_wait(open_verified if is_local_main_process() else None)
    data = data or TokenData.open(config.data, verify=False)
    if not data.manifest["splits"]["heldout"]["tokens"]:
        raise DataError(f"{data.folder}: nothing is held out of so short a text; prepare it with more")
    check_data(config, data)
    return data, config.out


@dataclass(frozen=True)
class RunParts:
    """What a run trains and on what, ready for its first step."""

    objective: Objective
    batches: BatchSource
    precision: Precision
    device: torch.device


def build(config: PretrainConfig, data: TokenData, warm_start: WarmStart | None) -> RunParts:
    """Build the objective with its initial weights, the batches, and the precision.

    Args:
        config: resolved (see resolve.py).
        warm_start: networks to start from; None: the weights come from a checkpoint, which is read later.
    """
    device = resolve_device(config.train.device)
    if device.type == "cpu":
        keep_freed_memory()
    torch.manual_seed(config.train.seed)
    objective = build_objective(config, data.special, vocabulary_tables(config, data))
    check_data(config, data)
    if warm_start is not None:
        initialize(objective, config, data, warm_start)
    objective = objective.to(device)
    batches = build_batches(config, data, device)
    precision = _precision(config, objective, batches, device)
    logger.info("%s on %s: %s", precision.name, device, precision.reason)
    if _compiled(config, device):
        compile_encoders(objective)
        logger.info("the encoders are compiled in the first step, which therefore takes long")
    return RunParts(objective, batches, precision, device)


def check_data(config: PretrainConfig, data: TokenData) -> None:
    """Raises:
    ConfigError: a stream is wanted of data that cannot be one.
    DataError: fakes of the same part of speech are wanted, and the data have no tags; or too little is held out.
    """
    if config.packing.streams:
        check_stream(data, length=config.packing.sequence_length, batch_size=config.train.batch_size)
    if config.objective.needs_tags and not (data.folder / TAGS).is_file():
        raise DataError(f"{data.folder}: no tags of its tokens; make them with `electra data tags {data.folder}`")


def vocabulary_tables(config: PretrainConfig, data: TokenData) -> dict[str, torch.Tensor]:
    """What the data say of the vocabulary, which may have more rows than the tokenizer has entries.

    Raises:
        DataError: the tags of tokens are not those of this vocabulary, or nobody knows which tokens begin a word.
    """
    known = {"counts_V": torch.from_numpy(data.unigram_counts.astype(np.int64))}
    if config.masking.kind in WHOLE_WORDS:
        known["continues_V"] = torch.from_numpy(continuation_mask(load_tokenizer(data.tokenizer_path)))
    if config.objective.needs_tags and (tags := TagTable.read(data.folder)):
        if len(tags.tags_V) != data.vocabulary_size:
            raise DataError(
                f"{data.folder / TAGS} is of another vocabulary; make it again with `electra data tags`"
            )
        known["tags_V"] = torch.from_numpy(tags.tags_V)
    size = config.model.vocabulary_size
    return {name: F.pad(table, (0, size - len(table))) for name, table in known.items()}


def _check_shares(config: PretrainConfig) -> None:
    """Raises:
    ConfigError: a batch, of any size that it grows through, does not divide among the processes.
    """
    ramp, batch = config.train.batch_ramp_steps, config.train.batch_size
    sampler = Sampler(seed=0, batch_size=batch, examples=batch, ramp_steps=ramp, world_size=world_size())
    for first in {-(-third * ramp // 3) for third in range(4)}:  # the first step of each size
        sampler.rows(first)


def _compiled(config: PretrainConfig, device: torch.device) -> bool:
    wanted = config.train.compile == "on" or (config.train.compile == "auto" and device.type == "cuda")
    return wanted and (config.train.sharding == "none" or world_size() == 1)


def build_batches(config: PretrainConfig, data: TokenData, device: torch.device) -> BatchSource:
    """The batches of the training part."""
    index = _index(config, data) if data.train.tokens >= LARGE and config.out is not None else None
    examples = ExampleSet(data.train, config.packing, seed=config.train.seed, index=index)
    if len(examples) == 0:
        raise DataError(f"{data.folder}: its training part has no text; prepare a larger corpus")
    order = _order(config, data, examples)
    train, share = config.train, config.train.batch_size // world_size()
    at_once = min(train.micro_batch_size or share, share)

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

    def describe_rows(step: int) -> list[dict[str, Any]]:
        tokenizer = load_tokenizer(data.tokenizer_path)
        texts = [
            tokenizer.decode(batch_ids)
            for batch in micro_batches(step)
            for batch_ids in batch.input_ids_BL.tolist()
        ]
        return [
            {"row": int(row), "seed": int(seed), "text": text}
            for row, seed, text in zip(sampler.rows(step), sampler.seeds(step), texts, strict=True)
        ]

    def micro_batches(step: int) -> list[Batch]:
        indices, seeds = sampler.rows(step), sampler.seeds(step)
        starts = range(0, len(indices), at_once)
        return [
            collate(
                examples,
                indices[start : start + at_once],
                special=data.special,
                seed=step_seed(train.seed, step, micro_step=rank() * len(starts) + number),
                seeds=seeds[start : start + at_once],
                sentences=config.objective.sentence_loss,
                reset=isinstance(order, StreamOrder) and order.restarts(step),
                first_row=start,
                trim=device.type == "cpu" and not _compiled(config, device),
            ).to(device)
            for number, start in enumerate(starts)
        ]

    return BatchSource(
        prefetch(micro_batches, device),
        epochs=lambda steps: (
            order.epochs(train.sequences(steps)) if order else train.sequences(steps) / len(examples)
        ),
        sequence_length=config.packing.sequence_length,
        identity=identity(config, data),
        describe_rows=describe_rows,
    )


def _order(config: PretrainConfig, data: TokenData, examples: ExampleSet) -> Mixture | StreamOrder | None:
    """Whose turn it is, where the data are a mixture or a stream.

    Raises:
        ConfigError: the text is too short for the batch.
        DataError: a part has no example.
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


def _index(config: PretrainConfig, data: TokenData) -> ExampleIndex:
    """Where the examples lie, from files in the run's folder, which the leader writes where there are none."""
    assert config.out is not None
    folder, packing, seed = RunFolder(config.out).index, config.packing, config.train.seed
    known = partial(read_index, folder, packing, seed=seed, data=data.fingerprint)
    write = None
    if is_main_process() and known() is None:
        logger.info("packing %s tokens into examples, once; kept in %s", f"{data.train.tokens:,}", folder)
        write = partial(write_index, folder, data.train, packing, seed=seed, data=data.fingerprint)
    run_and_wait(write)
    if (found := known()) is None:
        raise DataError(f"{folder}: no index of these data; do all processes see the same files?")
    return found


def identity(config: PretrainConfig, data: TokenData) -> dict[str, str]:
    """Facts that a run must find again to go on."""
    if not config.objective.needs_tags:
        return {"data": data.fingerprint}
    return {"data": data.fingerprint, "tags": hashlib.sha256((data.folder / TAGS).read_bytes()).hexdigest()}


def heldout_batches(
    config: PretrainConfig, data: TokenData, device: torch.device
) -> Iterator[tuple[Batch, Batch]]:
    """The same held-out rows, masks and fakes every time, whatever the run's seed: as they are, and their copy.

    Those of a stream go on from batch to batch, too: each row reads a stretch of at least `STRETCH` windows,
    if there are so many; interim evaluations end earlier in it.
    """
    examples = ExampleSet(data.heldout, config.packing, seed=0)
    if len(examples) == 0:
        raise DataError(f"{data.folder}: its held-out part has no text; prepare it with a larger --heldout")
    count, size = min(config.evaluation.examples, len(examples)), HELDOUT_ROWS
    if config.packing.streams:
        size = max(1, min(HELDOUT_ROWS, count // STRETCH))
        count -= count % size
    sampler = Sampler(seed=0, batch_size=count, examples=len(examples))
    if config.packing.streams:
        chosen = StreamOrder(count, size).locate(np.arange(count), seed=0)[1]
    else:
        chosen = sampler.rows(0)
    seeds = sampler.seeds(0)
    for start in range(0, count, size):
        place = slice(start, start + size)
        read = partial(
            collate, examples, chosen[place], special=data.special, seed=step_seed(0, start), seeds=seeds[place],
            trim=False, reset=start == 0,
        )  # fmt: skip
        yield read().to(device), read(source="unigram").to(device)


def evaluation(
    config: PretrainConfig, data: TokenData, objective: Objective, precision: Precision, device: torch.device
) -> Callable[[int], dict[str, float]]:
    batches = list(heldout_batches(config, data, device))
    for memory in stream_memories(objective).values():
        memory.evaluation_length = config.evaluation.memory_length
    # Other shapes than in training: they would be compiled, too.
    eager = partial(torch.compiler.set_stance, "force_eager") if _compiled(config, device) else nullcontext

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

    chosen = Precision(**broadcast_object(asdict(choose_precision(config.train.precision, device, step))))
    for memory in stream_memories(objective).values():  # as if nothing had been read
        memory.restore(None)
    return chosen
