"""Documents longer than a discriminator's input, read with memory and in windows: which fakes it finds, how fast.

    OMP_NUM_THREADS=1 python benchmarks/long_texts.py MODEL BOOKS.jsonl.zst --characters 12000 [--titles T ...]

Of each document a passage is taken, and 15 % of its words are replaced by other words of the same passage. The
area under the ROC curve is over all tokens; seconds are the processor's, which other work on the machine does not
lengthen by making us wait. All passages are given at once, then one alone.
"""

import argparse
import re
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from electra.readers.read import read_records
from electra.serving.batching import LongTextMode
from electra.serving.scorer import Scorer

SHARE = 0.15
Passage = tuple[str, list[tuple[int, int]]]
"""A text, and the characters of the words that were replaced."""


def with_fakes(text: str, seed: int) -> Passage:
    """The text with some words replaced by others that stand in it."""
    draw = np.random.default_rng(seed)
    words = re.findall(r"[A-Za-z]{2,}", text)
    fakes: list[tuple[int, int]] = []
    parts: list[str] = []
    length = 0
    for part in re.split(r"([A-Za-z]{2,})", text):
        if re.fullmatch(r"[A-Za-z]{2,}", part) and draw.random() < SHARE:
            other = words[draw.integers(len(words))]
            if other != part:
                part = other
                fakes.append((length, length + len(part)))
        parts.append(part)
        length += len(part)
    return "".join(parts), fakes


def measured(scorer: Scorer, passages: list[Passage]) -> tuple[float, float, int]:
    """The area under the curve, tokens a second of the processor, and tokens."""
    start = time.process_time()
    found = scorer([text for text, _ in passages])
    seconds = time.process_time() - start
    replaced, logits = [], []
    for (_, fakes), scored in zip(passages, found, strict=True):
        inside = {character for first, end in fakes for character in range(first, end)}
        replaced += [first in inside for first, _ in scored.offsets]
        logits.append(scored.logits)
    return float(roc_auc_score(replaced, np.concatenate(logits))), len(replaced) / seconds, len(replaced)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("documents", type=Path)
    parser.add_argument("--titles", nargs="*", help="of the documents to take; left out: the first eight")
    parser.add_argument("--skip", type=int, default=5000, help="characters before the passage")
    parser.add_argument("--characters", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    texts = []
    for _, record in read_records(options.documents):
        if options.titles is None or any(title in record["title"] for title in options.titles):
            texts.append(record["text"][options.skip :][: options.characters])
        if options.titles is None and len(texts) == 8:
            break
    ways: tuple[LongTextMode, ...] = ("memory", "windows")
    scorers = {way: Scorer(options.model, device="cpu", long=way) for way in ways}
    for name, chosen in ((f"{len(texts)} passages", texts), ("one", texts[:1])):
        found: dict[str, list[tuple[float, float, int]]] = {way: [] for way in ways}
        for seed in range(options.rounds):
            passages = [with_fakes(text, seed) for text in chosen]
            for way in ways:  # in turn, on the same texts
                found[way].append(measured(scorers[way], passages))
        for way in ways:
            areas, rates, tokens = zip(*found[way], strict=True)
            print(
                f"{name}, {tokens[0]:,} tokens, {way}: AUC {statistics.mean(areas):.4f} "
                f"({min(areas):.4f}–{max(areas):.4f}), {statistics.median(rates):,.0f} tokens/s "
                f"({min(rates):,.0f}–{max(rates):,.0f})"
            )


if __name__ == "__main__":
    main()
