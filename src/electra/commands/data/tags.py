"""`electra data tags`: add a part of speech to each token of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import PositiveInt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from electra.data.tags import TagTable

TAGS_SHOWN = 20


@dataclass(frozen=True)
class TagsConfig:
    """The command line of `electra data tags`."""

    data: tyro.conf.Positional[Path]
    """Folder that electra prepare made; tags.json is written into it."""
    conllu: tuple[Path, ...] = ()
    """Treebanks in CoNLL-U; the tags are in their fourth column (UPOS)."""
    tagger: str | None = None
    """Folder that electra finetune --task upos (or any other tagging task) made; it tags sentences of the data."""
    sentences: PositiveInt = 5000
    """Number of sentences of the data that the tagger reads."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""

    def problems(self) -> Iterator[str]:
        if bool(self.conllu) == (self.tagger is not None):
            yield "give either --conllu FILE or --tagger FOLDER"


@dataclass(frozen=True)
class TagsResult:
    """The table of tags, and how often each token occurs."""

    path: Path
    table: TagTable
    counts_V: NDArray[np.float64]

    def __rich__(self) -> RenderableType:
        import numpy as np

        tags_V, names, total = self.table.tags_V, self.table.names, max(1, self.counts_V.sum())
        shares = np.bincount(tags_V, weights=self.counts_V, minlength=len(names)) / total
        sizes = np.bincount(tags_V, minlength=len(names))
        table = Table("tag", "tokens of the vocabulary", "share of the text", title_justify="left")
        for number in np.argsort(-shares)[:TAGS_SHOWN]:
            table.add_row(names[number], f"{sizes[number]:,}", f"{shares[number]:.1%}")
        covered = self.counts_V[tags_V > 0].sum() / total
        return Group(table, f"{self.path}: a tag is known for {covered:.1%} of the text")


def run(config: TagsConfig) -> TagsResult:
    """Give each token of the vocabulary the most frequent tag of the words that contain it.

    With --objective.fakes same-tag, pre-training samples fakes with the same part of speech as the original.

    Examples:
        electra data tags DATA --conllu en_ewt-ud-train.conllu
        electra data tags DATA --tagger OUT-UPOS
    """
    import numpy as np

    from electra.data.shards import TokenData
    from electra.preparation.token_tags import tag_vocabulary

    data = TokenData.open(config.data, verify=False)
    table = tag_vocabulary(
        data, treebanks=config.conllu, tagger=config.tagger, sentences=config.sentences, device=config.device
    )
    counts_V = data.unigram_counts.astype(np.float64).copy()
    counts_V[list(data.special.ids)] = 0
    return TagsResult(table.write(config.data), table, counts_V)
