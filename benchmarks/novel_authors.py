"""Write a task of a domain from a corpus of novels: who wrote this paragraph, asked of a novel never read before.

    python benchmarks/novel_authors.py BOOKS.jsonl.zst OUT [--paragraphs 60]

The ids of the corpus are `Author/Title.md`. Of each author with two books or more, the smallest book with enough
paragraphs is held out: OUT/novel-authors/train.csv has paragraphs of the other books, dev.csv of the held-out
ones, and OUT/corpus.jsonl is the corpus without the held-out books, for continuing an encoder. So what is measured
is style, not the names of a novel that both parts have in common (series have some). The choice follows a hash of
each paragraph: it is the same on every machine.
"""

import argparse
import csv
import hashlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import zstandard

SHORTEST, LONGEST = 200, 500
"""Characters of a paragraph: enough to judge, and at most 128 tokens or so."""


class Book(NamedTuple):
    """One document of the corpus, and its paragraphs of prose."""

    document: dict[str, str]
    paragraphs: list[str]

    @property
    def author(self) -> str:
        return self.document["id"].partition("/")[0]


def read(path: Path) -> list[Book]:
    """The books of a corpus."""
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        documents = [json.loads(line) for line in io.TextIOWrapper(stream, encoding="utf-8")]
    return [Book(document, paragraphs_of(document["text"])) for document in documents]


def paragraphs_of(text: str) -> list[str]:
    """Paragraphs of medium length below the title, author and year."""
    body = text.partition("-------\n")[2]
    found = (re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", body))
    return [part for part in found if SHORTEST <= len(part) <= LONGEST and not part.startswith("#")]


def choose(paragraphs: Iterable[str], number: int) -> list[str]:
    """At most so many different paragraphs, in the order of their hashes."""
    return sorted(set(paragraphs), key=lambda one: hashlib.sha256(one.encode()).digest())[:number]


def write_table(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    """A table with the columns text and label."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("books", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--paragraphs", type=int, default=60, help="of each author, in each part, at most")
    options = parser.parse_args()
    books = read(options.books)
    by_author = defaultdict(list)
    for book in books:
        if 2 * len(book.paragraphs) >= options.paragraphs:
            by_author[book.author].append(book)
    held_out = {
        author: min(own, key=lambda book: len(book.paragraphs))
        for author, own in sorted(by_author.items())
        if len(own) > 1
    }
    tables = options.out / "novel-authors"
    tables.mkdir(parents=True, exist_ok=True)
    train = {
        author: [part for book in by_author[author] if book is not dev for part in book.paragraphs]
        for author, dev in held_out.items()
    }
    dev = {author: book.paragraphs for author, book in held_out.items()}
    for name, parts in (("train", train), ("dev", dev)):
        rows = [(text, author) for author, own in parts.items() for text in choose(own, options.paragraphs)]
        write_table(tables / f"{name}.csv", rows)
    with (options.out / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for book in books:
            if held_out.get(book.author) is not book:
                file.write(json.dumps(book.document, ensure_ascii=False) + "\n")
    print(len(held_out), "authors; held out:", ", ".join(book.document["id"] for book in held_out.values()))


if __name__ == "__main__":
    main()
