"""Write a corpus of at most so many words, the size of BabyLM's strict-small track, from several larger ones.

    python benchmarks/babylm_corpus.py OUT.jsonl CORPUS.jsonl.zst [CORPUS.jsonl.zst ...] [--words 10000000]

Each corpus (JSON lines with `id` and `text`) gives at most an equal share of the words. Its documents come in the
order of a hash of their ids, and the last one is cut at a line, so the result is the same on every machine. Words
are what white space separates.
"""

import argparse
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import zstandard


def documents(path: Path) -> Iterator[dict[str, str]]:
    """The documents of a corpus, in the order of a hash of their ids."""
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        found = [json.loads(line) for line in io.TextIOWrapper(stream, encoding="utf-8")]
    yield from sorted(found, key=lambda one: hashlib.sha256(str(one["id"]).encode()).digest())


def cut(text: str, words: int) -> str:
    """The first lines of a text with at most so many words."""
    lines, left = [], words
    for line in text.split("\n"):
        left -= len(line.split())
        if left < 0:
            break
        lines.append(line)
    return "\n".join(lines)


def choose(corpus: Path, words: int) -> Iterator[tuple[str, str]]:
    """Ids and texts of documents with so many words in all; of the last one only the first lines."""
    left = words
    for document in documents(corpus):
        text = document["text"]
        fits = len(text.split()) <= left
        if not fits:
            text = cut(text, left)
        left -= len(text.split())
        if text.strip():
            yield document["id"], text
        if not fits:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("corpora", type=Path, nargs="+")
    parser.add_argument("--words", type=int, default=10_000_000)
    options = parser.parse_args()
    with options.out.open("w", encoding="utf-8") as out:
        for corpus in options.corpora:
            words = count = 0
            for name, text in choose(corpus, options.words // len(options.corpora)):
                out.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
                words, count = words + len(text.split()), count + 1
            print(f"{corpus.name}: {words:,} words of {count:,} documents")


if __name__ == "__main__":
    main()
