"""The result of a preparation: its statistics, and warnings about those that look wrong."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from tokenizers import Tokenizer, models


@dataclass(frozen=True)
class PrepareResult:
    """A finished data folder.

    Attributes:
        reused: whether it existed already, so that nothing was done.
    """

    folder: Path
    manifest: dict[str, Any]
    reused: bool = False

    def __rich__(self) -> RenderableType:
        statistics, splits = self.manifest["statistics"], self.manifest["splits"]
        tokenizer, seconds = self.manifest["tokenizer"], self.manifest["made"]["seconds"]
        speed = statistics["characters"] / 1e6 / max(seconds, 0.001)
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(style="dim")
        table.add_column()
        rows = {
            "documents": f"{statistics['documents']:,} ({statistics['duplicate_share']:.1%} of them copies)",
            "characters": f"{statistics['characters']:,}",
            "tokens": f"{splits['train']['tokens']:,} to train on, {splits['heldout']['tokens']:,} held out "
            f"({splits['heldout']['documents']:,} documents)",
            "characters per token": f"{statistics['characters_per_token']:.2f}",
            "unknown tokens": f"{statistics['unknown_share']:.3%}",
            **({"left out": _format_counts(statistics["left_out"])} if statistics.get("left_out") else {}),
            "rejected lines": f"{statistics['rejects']:,}"
            + (" (see rejects.jsonl)" if statistics["rejects"] else ""),
            "tokenizer": f"{tokenizer['kind']}, {tokenizer['vocabulary_size']:,} entries, "
            + ("lower case" if tokenizer["lowercase"] else "case kept"),
            "time": f"{seconds:.0f} s, {speed:.1f} million characters/s",
        }
        for name, value in rows.items():
            table.add_row(name, value)
        state = "was already prepared with these options; nothing to do" if self.reused else "is prepared"
        head = Text(f"{self.folder} {state}", style="bold")
        warnings = [Text(f"! {warning}", style="yellow") for warning in self.manifest["warnings"]]
        has_heldout = splits["heldout"]["tokens"] > 0
        next_step = (
            [Text(f"\nelectra pretrain electra-plus-tiny --data {self.folder} --out RUN")] if has_heldout else []
        )
        return Group(head, table, *warnings, *next_step)


def _format_counts(left_out: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())


def find_warnings(statistics: dict[str, Any], splits: dict[str, Any], *, tail: bool) -> Iterator[str]:
    """Yield what looks wrong in the statistics of a manifest, one sentence each, with what to do."""
    documents, rejects = statistics["documents"], statistics["rejects"]
    train, heldout = splits["train"], splits["heldout"]
    if documents == 1:
        yield "The corpus is one document; to have several, separate them by blank lines, or use several files"
    if tail and heldout["tokens"]:
        yield (
            "Too few documents to hold one out, so the held-out part is the end of a document that is also "
            "trained on; held-out metrics will be slightly too good"
        )
    if statistics["duplicate_share"] > 0.2:
        yield f"{statistics['duplicate_share']:.0%} of the documents are copies; --deduplicate leaves them out"
    if documents > 1 and statistics["characters"] / documents < 100:
        yield (
            f"Documents are very short ({statistics['characters'] / documents:.0f} characters on average); "
            "if lines belong together, do not separate them by blank lines"
        )
    if rejects > 0.01 * (documents + rejects):
        share = rejects / (documents + rejects)
        yield f"{share:.1%} of the lines ({rejects:,}) were rejected; rejects.jsonl says why"
    if not heldout["tokens"]:
        sentences = f"{train['sentences']:,} sentence{'s' * (train['sentences'] != 1)}"
        yield f"The text is too short to hold out a part ({sentences}), and `electra pretrain` needs one; add text"
    if train["tokens"] < 1_000_000:
        yield f"Only {train['tokens']:,} tokens to train on: a network will memorize them; give more text"


def vocabulary_warnings(tokenizer: Tokenizer, unknown_share: float, *, asked: int | None) -> Iterator[str]:
    """Yield a warning if many tokens are unknown, and one if few entries of the vocabulary are words.

    Args:
        asked: the number of entries that the tokenizer should have, if it was trained on this text; None: another
            one was given.
    """
    other = "train one on this text (leave out --tokenizer), or use"
    larger = "use a larger --vocabulary-size, or"
    if unknown_share > 0.01:
        yield (
            f"{unknown_share:.1%} of the tokens are unknown: the vocabulary does not have their characters; "
            f"{other if asked is None else larger} --model bpe, which knows every character"
        )
    entries = [entry.removeprefix("##") or entry for entry in tokenizer.get_vocab()]
    # Chinese characters do not count, because they are words.
    single = sum(len(entry) == 1 and not "㐀" <= entry <= "鿿" for entry in entries)
    if single > len(entries) / 2 and not isinstance(tokenizer.model, models.BPE):
        if asked is None:
            remedy = other
        elif len(entries) < asked:  # the text has no more
            remedy = "give more text, or use"
        else:
            remedy = f"use a larger --vocabulary-size ({4 * single:,} would do), or"
        yield (
            f"{single:,} of the {len(entries):,} entries of the vocabulary are single characters, so few are left "
            f"for words: {remedy} --model bpe"
        )
