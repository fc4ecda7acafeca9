"""How often a discriminator finds the one word of a sentence that does not fit.

    python benchmarks/odd_words.py MODEL [MODEL ...] [--surprisal] [--misses]

odd_words.txt beside this script has 200 sentences, each with one word of another kind in brackets. They were
written for this test. A sentence is solved if the changed word has the highest probability of all its words; the
probability of a word is the highest of its tokens. With --surprisal the words are ranked by their surprisal to the
masked language model beside the discriminator. Chance is one in the number of words.
"""

import argparse
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import electra
from electra.serving.scorer import ScoredText
from electra.serving.surprisal import SurprisalText

SENTENCES = Path(__file__).with_suffix(".txt")
WORD = re.compile(r"\w+")


def read(path: Path) -> Iterator[tuple[str, int]]:
    """Each sentence without its brackets, and where the odd word begins."""
    for line in path.read_text().splitlines():
        before, odd, after = re.split(r"[\[\]]", line)
        yield before + odd + after, len(before)


def words_by_probability(text: str, scored: ScoredText) -> list[tuple[float, int, str]]:
    """Probability, start and text of each word of letters or digits, the most likely first."""
    words = []
    for match in WORD.finditer(text):
        inside = [
            float(probability)
            for (start, end), probability in zip(scored.offsets, scored.probabilities, strict=True)
            if start < match.end() and end > match.start()
        ]
        words.append((max(inside, default=0.0), match.start(), match.group()))
    return sorted(words, reverse=True)


def words_by_surprisal(scored: SurprisalText) -> list[tuple[float, int, str]]:
    """Surprisal, start and text of each word of letters or digits, the most surprising first."""
    rows = zip(scored.surprisals.tolist(), scored.offsets, scored.words, strict=True)
    return sorted(
        ((surprisal, start, word) for surprisal, (start, _), word in rows if WORD.match(word)), reverse=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a run, an export folder, or an ONNX folder")
    parser.add_argument("--surprisal", action="store_true", help="rank words by their surprisal")
    parser.add_argument("--misses", action="store_true", help="list the sentences that are not solved")
    options = parser.parse_args()
    sentences = list(read(SENTENCES))
    texts = [text for text, _ in sentences]
    for model in options.models:
        loaded = electra.load(model)
        if options.surprisal:
            ranked = [words_by_surprisal(s) for s in loaded.surprisal(texts)]
        else:
            ranked = [words_by_probability(s.text, s) for s in loaded.score(texts)]
        places = [
            next(place for place, (_, start, _) in enumerate(words) if start == odd)
            for words, (_, odd) in zip(ranked, sentences, strict=True)
        ]
        solved = [place == 0 for place in places]
        chance = statistics.mean(1 / len(words) for words in ranked)
        print(
            f"{model}: {sum(solved)} of {len(solved)}, {statistics.mean(solved):.1%} (chance {chance:.1%}); "
            f"among the first three {sum(place < 3 for place in places) / len(places):.1%}"
        )
        if options.misses:
            for text, words, one in zip(texts, ranked, solved, strict=True):
                if not one:
                    print(f"  {words[0][2]} ({words[0][0]:.2f}): {text}")


if __name__ == "__main__":
    main()
