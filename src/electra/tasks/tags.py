"""Tags that mark spans of words: their schemes, the spans that they mark, and the metrics of tags and spans.

A tag is a letter, or a letter, "-" and a type ("B-NP"). The schemes:

    bio     B begins each span, I continues it (IOB2)
    iob1    I throughout; B begins a span only directly after another one of the same type
    bioes   B begins, I continues, E ends, S is a span of one word
    bmes    the same with M for I
    bilou   the same with L for E and U for S
    none    tags that mark no spans, such as parts of speech
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

Scheme = Literal["bio", "iob1", "bioes", "bmes", "bilou", "none"]
Span = tuple[int, int, str]
"""First word, the word after the last one, type."""

LETTERS: dict[Scheme, str] = {"bio": "BIIB", "iob1": "IIII", "bioes": "BIES", "bmes": "BMES", "bilou": "BILU"}
"""By scheme, the letters of the first, an inner and the last word of a span, and of a span of one word."""
MEANINGS = {letter: letter for letter in "OBIES"} | {"M": "I", "L": "E", "U": "S", "[": "S", "]": "S"}
"""Every letter that marks spans, with its letter in BIOES; conlleval's brackets are spans of one word."""

BEGINNING = frozenset("BS")
CLOSED = frozenset("OES")
"""Letters after which no span continues."""


def split_tag(tag: str) -> tuple[str, str]:
    """Return the letter of a tag (in BIOES if it is one of `MEANINGS`) and its type. O has no type."""
    letter, _, span_type = tag.partition("-")
    letter = MEANINGS.get(letter, letter)
    return letter, "" if letter == "O" else span_type


def extract_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of one sentence, also if the tags violate their scheme, as conlleval reads them.

    A span begins at B or S, and at every tag other than O that follows O, E, S or another type. It ends where the
    next one begins, before O, and with E or S. (conlleval.pl of 2000 does not know S, and lets B continue a span
    after E; here the rule of its later editions applies.)
    """
    spans: list[Span] = []
    start = -1
    previous, previous_type = "O", ""
    for position, tag in enumerate(tags):
        letter, span_type = split_tag(tag)
        begins = letter != "O" and (letter in BEGINNING or previous in CLOSED or span_type != previous_type)
        if start >= 0 and (begins or letter == "O"):
            spans.append((start, position, previous_type))
            start = -1
        if begins:
            start = position
        previous, previous_type = letter, span_type
    if start >= 0:
        spans.append((start, len(tags), previous_type))
    return spans


def spans_to_tags(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the tags of a sentence of `length` words with these spans, which are in order and do not overlap."""
    first, inside, last, single = [*LETTERS[scheme]]
    tags = ["O"] * length
    previous_end, previous_type = -1, ""
    for start, end, span_type in spans:
        letters = single if end - start == 1 else first + inside * (end - start - 2) + last
        if scheme == "iob1" and (start, span_type) == (previous_end, previous_type):
            letters = "B" + letters[1:]
        tags[start:end] = [f"{letter}-{span_type}" if span_type else letter for letter in letters]
        previous_end, previous_type = end, span_type
    return tags


def convert_scheme(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return the same spans in another scheme."""
    return spans_to_tags(extract_spans(tags), len(tags), scheme)


def count_violations(tags: Sequence[str], scheme: Scheme) -> int:
    """Return the number of tags that differ from those that the scheme has for the same spans."""
    if scheme == "none":
        return 0
    return sum(tag != valid for tag, valid in zip(tags, convert_scheme(tags, scheme), strict=True))


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """Return the scheme of a file's tags: one that has all their letters, and that the fewest tags violate."""
    sentences = [*sentences]
    seen = {tag for tags in sentences for tag in tags}
    letters = {tag.partition("-")[0] for tag in seen}
    has_types = any(split_tag(tag)[1] for tag in seen)
    # Letters without types mark spans (for example of word segmentation) only if there is a B: {"S", "O"} may be
    # subject and object.
    if not letters <= MEANINGS.keys() or letters <= {"O"} or not (has_types or "B" in letters):
        return "none"
    if letters <= {*"OBI"}:
        bio = sum(count_violations(tags, "bio") for tags in sentences)
        return "iob1" if sum(count_violations(tags, "iob1") for tags in sentences) < bio else "bio"
    one_letter_each: tuple[Scheme, ...] = ("bioes", "bmes", "bilou")
    return next((scheme for scheme in one_letter_each if letters <= {"O", *LETTERS[scheme]}), "none")


def later_tag(tag: str) -> str:
    """Return the tag in BIOES of the later parts of a word with this tag: its span goes on, up to its end."""
    return {"B": "I", "S": "E"}.get(tag[:1], tag[:1]) + tag[1:]


def bio_tag(tag: str) -> str:
    """Return a tag of BIOES as B-TYPE or I-TYPE, which are the only ones that transformers' pipeline joins.

    B and S become B, I and E become I. A span without a type has the type SPAN, because the pipeline needs one.
    """
    letter, span_type = split_tag(tag)
    return tag if letter == "O" else f"{'B' if letter in BEGINNING else 'I'}-{span_type or 'SPAN'}"


def bioes_tags(span_types: Iterable[str]) -> set[str]:
    """Return every BIOES tag of spans of these types, also those that do not occur in the data."""
    return {"O"} | {
        f"{letter}-{span_type}" if span_type else letter for span_type in span_types for letter in LETTERS["bioes"]
    }


def span_types(tags: Iterable[str]) -> list[str]:
    """Return the types of the spans, sorted."""
    return sorted({span_type for tag in tags for letter, span_type in [split_tag(tag)] if letter != "O"})


def span_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the metrics of conlleval, from 0 to 1: span_f1, precision, recall, accuracy, and span_f1/TYPE."""
    in_gold: Counter[str] = Counter()
    in_predicted: Counter[str] = Counter()
    in_both: Counter[str] = Counter()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_spans, predicted_spans = _set_of_spans(tuple(gold_tags)), _set_of_spans(tuple(predicted_tags))
        in_gold.update(span_type for *_, span_type in gold_spans)
        in_predicted.update(span_type for *_, span_type in predicted_spans)
        in_both.update(span_type for *_, span_type in gold_spans & predicted_spans)
    precision, recall, f1 = f_score(in_both.total(), in_predicted.total(), in_gold.total())
    scores = {"span_f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy(gold, predicted)}
    for span_type in sorted(in_gold | in_predicted):
        if span_type:
            counts = in_both[span_type], in_predicted[span_type], in_gold[span_type]
            scores[f"span_f1/{span_type}"] = f_score(*counts)[2]
    return scores


@lru_cache(maxsize=100_000)  # a bootstrap scores the same sentences a thousand times
def _set_of_spans(tags: tuple[str, ...]) -> frozenset[Span]:
    return frozenset(extract_spans(tags))


def detection_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], positive: str
) -> dict[str, float]:
    """Return f0.5 (which weighs recall half as much), precision and recall of detecting the words with one tag."""
    pairs = Counter(
        (gold_tag == positive, predicted_tag == positive)
        for gold_tags, predicted_tags in zip(gold, predicted, strict=True)
        for gold_tag, predicted_tag in zip(gold_tags, predicted_tags, strict=True)
    )
    both = pairs[True, True]
    precision, recall, f = f_score(both, both + pairs[False, True], both + pairs[True, False], beta=0.5)
    return {"f0.5": f, "precision": precision, "recall": recall}


def accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the share of words with the right tag."""
    correct = total = 0
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        correct += sum(a == b for a, b in zip(gold_tags, predicted_tags, strict=True))
        total += len(gold_tags)
    return correct / total if total else 0.0


def f_score(both: int, predicted: int, gold: int, beta: float = 1.0) -> tuple[float, float, float]:
    """Return precision, recall and their weighted harmonic mean; 0 where the divisor is 0, as in conlleval."""
    precision = both / predicted if predicted else 0.0
    recall = both / gold if gold else 0.0
    weight = beta**2
    divisor = weight * precision + recall
    return precision, recall, (1 + weight) * precision * recall / divisor if divisor else 0.0
