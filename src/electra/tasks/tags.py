"""Tags that mark spans of words: their schemes, how spans are read from them, and the scores of tags and spans.

A tag is a letter, or a letter, "-" and a type ("B-NP"). The schemes:

    bio     B begins each span, I continues it (IOB2)
    iob1    I throughout; B begins a span only directly behind another one of its type
    bioes   B begins, I continues, E ends, S is a span of one word
    bmes    the same with M for I
    bilou   the same with L for E and U for S
    none    tags that mark no spans, as parts of speech
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

Scheme = Literal["bio", "iob1", "bioes", "bmes", "bilou", "none"]
Span = tuple[int, int, str]
"""First word, the word behind the last one, type."""

LETTERS: dict[Scheme, str] = {"bio": "BIIB", "iob1": "IIII", "bioes": "BIES", "bmes": "BMES", "bilou": "BILU"}
"""By scheme the letters of the first, an inner and the last word, and of a single one."""
MEANINGS = {letter: letter for letter in "OBIES"} | {"M": "I", "L": "E", "U": "S", "[": "S", "]": "S"}
"""Every letter that marks spans, as the one of BIOES that it means; conlleval's brackets are spans of one word."""

BEGINNING = frozenset("BS")
CLOSED = frozenset("OES")
"""Letters behind which no span goes on."""


def split_tag(tag: str) -> tuple[str, str]:
    """Letter (as one of BIOES where it is one of `MEANINGS`) and type; O has no type."""
    letter, _, kind = tag.partition("-")
    letter = MEANINGS.get(letter, letter)
    return letter, "" if letter == "O" else kind


def extract_spans(tags: Sequence[str]) -> list[Span]:
    """The spans of one sentence, also where the tags break their scheme, as conlleval reads them.

    A span begins at B or S, and at whatever is not O behind O, E, S or another type. It ends where the next one
    begins, before O, and with E or S. (conlleval.pl of 2000 knows no S and lets B continue after E; there this is
    the rule of its later editions.)
    """
    found: list[Span] = []
    start = -1
    before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        letter, kind = split_tag(tag)
        begins = letter != "O" and (letter in BEGINNING or before in CLOSED or kind != kind_before)
        if start >= 0 and (begins or letter == "O"):
            found.append((start, place, kind_before))
            start = -1
        if begins:
            start = place
        before, kind_before = letter, kind
    if start >= 0:
        found.append((start, len(tags), kind_before))
    return found


def spans_to_tags(found: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The tags of a sentence of `length` words with these spans, which are in order and do not overlap."""
    first, inside, last, single = [*LETTERS[scheme]]
    tags = ["O"] * length
    end_before, kind_before = -1, ""
    for start, end, kind in found:
        letters = single if end - start == 1 else first + inside * (end - start - 2) + last
        if scheme == "iob1" and (start, kind) == (end_before, kind_before):
            letters = "B" + letters[1:]
        tags[start:end] = [f"{letter}-{kind}" if kind else letter for letter in letters]
        end_before, kind_before = end, kind
    return tags


def convert_scheme(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans in another scheme."""
    return spans_to_tags(extract_spans(tags), len(tags), scheme)


def count_violations(tags: Sequence[str], scheme: Scheme) -> int:
    """How many tags would have to be others for the spans to be written as the scheme says."""
    if scheme == "none":
        return 0
    return sum(tag != mended for tag, mended in zip(tags, convert_scheme(tags, scheme), strict=True))


def detect_scheme(sentences: Iterable[Sequence[str]]) -> Scheme:
    """The scheme of the tags of a file: the one that the letters allow and that fewer tags break."""
    sentences = [*sentences]
    seen = {tag for tags in sentences for tag in tags}
    letters = {tag.partition("-")[0] for tag in seen}
    typed = any(split_tag(tag)[1] for tag in seen)
    # Letters alone are spans (of word segmentation, say) only with a B: {"S", "O"} may be subject and object.
    if not letters <= MEANINGS.keys() or letters <= {"O"} or not (typed or "B" in letters):
        return "none"
    if letters <= {*"OBI"}:
        bio = sum(count_violations(tags, "bio") for tags in sentences)
        return "iob1" if sum(count_violations(tags, "iob1") for tags in sentences) < bio else "bio"
    one_letter_each: tuple[Scheme, ...] = ("bioes", "bmes", "bilou")
    return next((scheme for scheme in one_letter_each if letters <= {"O", *LETTERS[scheme]}), "none")


def bioes_tags(kinds: Iterable[str]) -> set[str]:
    """Every tag of BIOES for spans of these types, whether or not it has been seen."""
    return {"O"} | {f"{letter}-{kind}" if kind else letter for kind in kinds for letter in LETTERS["bioes"]}


def span_types(tags: Iterable[str]) -> list[str]:
    """The types, sorted."""
    return sorted({kind for tag in tags for letter, kind in [split_tag(tag)] if letter != "O"})


def span_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """What conlleval prints, as shares: span_f1, precision, recall, accuracy, and span_f1/TYPE for each type."""
    in_gold: Counter[str] = Counter()
    in_predicted: Counter[str] = Counter()
    in_both: Counter[str] = Counter()
    for answer, guess in zip(gold, predicted, strict=True):
        answers, guesses = _set_of_spans(tuple(answer)), _set_of_spans(tuple(guess))
        in_gold.update(kind for *_, kind in answers)
        in_predicted.update(kind for *_, kind in guesses)
        in_both.update(kind for *_, kind in answers & guesses)
    precision, recall, f1 = f_score(in_both.total(), in_predicted.total(), in_gold.total())
    scores = {"span_f1": f1, "precision": precision, "recall": recall, "accuracy": accuracy(gold, predicted)}
    for kind in sorted(in_gold | in_predicted):
        if kind:
            scores[f"span_f1/{kind}"] = f_score(in_both[kind], in_predicted[kind], in_gold[kind])[2]
    return scores


@lru_cache(maxsize=100_000)  # a bootstrap scores the same sentences a thousand times
def _set_of_spans(tags: tuple[str, ...]) -> frozenset[Span]:
    return frozenset(extract_spans(tags))


def detection_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], positive: str
) -> dict[str, float]:
    """f0.5 (for which recall counts half as much), precision and recall of finding the words with one tag."""
    pairs = Counter(
        (answer == positive, guess == positive)
        for answers, guesses in zip(gold, predicted, strict=True)
        for answer, guess in zip(answers, guesses, strict=True)
    )
    both = pairs[True, True]
    precision, recall, f = f_score(both, both + pairs[False, True], both + pairs[True, False], beta=0.5)
    return {"f0.5": f, "precision": precision, "recall": recall}


def accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of words whose tag is right."""
    right = total = 0
    for answers, guesses in zip(gold, predicted, strict=True):
        right += sum(answer == guess for answer, guess in zip(answers, guesses, strict=True))
        total += len(answers)
    return right / total if total else 0.0


def f_score(both: int, predicted: int, gold: int, beta: float = 1.0) -> tuple[float, float, float]:
    """Precision, recall and their weighted harmonic mean; 0 where there is nothing to divide by, as conlleval."""
    precision = both / predicted if predicted else 0.0
    recall = both / gold if gold else 0.0
    weight = beta**2
    below = weight * precision + recall
    return precision, recall, (1 + weight) * precision * recall / below if below else 0.0
