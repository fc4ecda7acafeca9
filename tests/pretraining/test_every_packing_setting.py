"""Every setting of packing changes the rows of an epoch as its documentation says. A setting without an entry
fails."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest
import torch
from setting_changes import Change, make_config, settings_in

from electra.data.examples import ExampleSet
from electra.data.shards import TokenData
from electra.data.tokenizer import load_tokenizer
from electra.pretraining.build import build_batches
from electra.pretraining.config import PretrainConfig

SETTINGS = settings_in(PretrainConfig, "packing")
Segments = list[list[int]]


@dataclass(frozen=True)
class Epoch:
    """The rows of the first epoch, as a run reads them.

    Attributes:
        rows: token ids and segment ids of each row, without padding.
        stop: the id of the full stop, which ends every sentence.
    """

    data: TokenData
    rows: list[tuple[list[int], list[int]]]
    stop: int

    @cached_property
    def lengths(self) -> list[int]:
        return [len(ids) for ids, _ in self.rows]

    @cached_property
    def segments(self) -> list[Segments]:
        """The tokens of each segment of each row, without special tokens."""
        special = set(self.data.special.ids)
        found: list[Segments] = []
        for ids, numbers in self.rows:
            found.append([[] for _ in range(1 + max(numbers))])
            for token, number in zip(ids, numbers, strict=True):
                if token not in special:
                    found[-1][number].append(token)
        return found

    @property
    def text(self) -> Counter[int]:
        """How often each token occurs in the text."""
        return Counter(token for shard in self.data.train.shards for token in shard.tokens.tolist())

    @property
    def packed(self) -> Counter[int]:
        """How often each token occurs in the rows."""
        return Counter(token for row in self.segments for segment in row for token in segment)

    @property
    def pairs_share(self) -> float:
        return sum(len(row) == 2 for row in self.segments) / len(self.rows)

    def shorter(self, length: int) -> float:
        """The share of rows with fewer tokens."""
        return sum(one < length for one in self.lengths) / len(self.rows)

    def count(self, token: int) -> int:
        """The largest number of occurrences of a token in a row."""
        return max(ids.count(token) for ids, _ in self.rows)

    @property
    def shortest_segment(self) -> int:
        return min(len(segment) for row in self.segments for segment in row)


def separates_documents(epoch: Epoch) -> bool:
    return epoch.count(epoch.data.special.separate) > 1


def ends_with_sentences(epoch: Epoch) -> bool:
    return all(row[-1][-1] == epoch.stop for row in epoch.segments)


def sentences(epoch: Epoch) -> int:
    """The largest number of sentences in a segment."""
    return max(segment.count(epoch.stop) for row in epoch.segments for segment in row)


def runs_on(epoch: Epoch) -> bool:
    """Whether all rows are full windows without [CLS]."""
    return set(epoch.lengths) == {32} and epoch.count(epoch.data.special.classify) == 0


CHANGES = {
    "packing.builder": [
        Change("contiguous", lambda b, a: a.packed == a.text and b.packed < b.text, ("packing.builder=original",)),
        Change("original", lambda b, a: a.packed < a.text and b.packed == b.text),
        Change("sentence-pairs", lambda b, a: sentences(a) == 1 < sentences(b) and a.pairs_share > 0.9),
        Change("full-sentences", lambda b, a: a.pairs_share == 0 and separates_documents(a)
               and ends_with_sentences(a) and not ends_with_sentences(b)),
        Change("doc-sentences", lambda b, a: a.pairs_share == 0 and not separates_documents(a)
               and ends_with_sentences(a)),
        Change("packed", lambda b, a: a.count(a.data.special.classify) > 1, ("packing.sequence_length=128",)),
        Change("stream", lambda b, a: runs_on(a) and not runs_on(b)),
    ],
    "packing.sequence_length": [Change("48", lambda b, a: max(b.lengths) == 32 and max(a.lengths) == 48)],
    "packing.one_segment_share": [
        Change("0.9", lambda b, a: b.pairs_share > 0.6 and a.pairs_share < 0.15),
        Change("0.9", lambda b, a: b.pairs_share > 0.6 and a.pairs_share < 0.15, ("packing.builder=original",)),
    ],
    "packing.short_share": [
        Change("0.8", lambda b, a: a.shorter(25) > 0.4 > 0.2 > b.shorter(25)),
        Change("0.8", lambda b, a: a.shorter(25) > 1.5 * b.shorter(25), ("packing.builder=original",)),
    ],
    "packing.minimum_length": [
        Change("12", lambda b, a: b.shortest_segment < 12 <= a.shortest_segment),
        Change("16", lambda b, a: b.shortest_segment < 16 <= a.shortest_segment,
               ("packing.builder=packed", "packing.sequence_length=48")),
    ],
}  # fmt: skip


def read_epoch(folder: Path, overrides: tuple[str, ...]) -> Epoch:
    data, config = TokenData.open(folder, verify=False), make_config(folder, overrides)
    count = len(ExampleSet(data.train, config.packing, seed=config.train.seed))
    config = replace(config, train=replace(config.train, batch_size=count))
    (batch,) = build_batches(config, data, torch.device("cpu")).micro_batches(0)
    rows = [
        (ids[:length], segments[:length])
        for ids, segments, length in zip(
            batch.input_ids_BL.tolist(), batch.segment_ids_BL.tolist(), batch.lengths_B.tolist(), strict=True
        )
    ]
    return Epoch(data, rows, load_tokenizer(data.tokenizer_path).get_vocab()["."])


def cases() -> Iterator[tuple[str, Change]]:
    yield from ((name, change) for name, changes in CHANGES.items() for change in changes)


@pytest.mark.parametrize(("name", "change"), list(cases()), ids=lambda x: x.value if isinstance(x, Change) else x)
def test_a_change_has_its_documented_effect(name: str, change: Change, data_folder: Path) -> None:
    before = read_epoch(data_folder, change.base)
    assert change.check(before, read_epoch(data_folder, (*change.base, f"{name}={change.value}")))


def test_every_setting_has_an_entry() -> None:
    assert CHANGES.keys() == SETTINGS.keys()
