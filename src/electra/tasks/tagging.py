"""Tagging: a tag for each word of a sentence, such as chunks, names, parts of speech or errors.

Shapes: B rows of a batch, L length, D hidden size, K labels, N tokens of a sentence, W words of a row.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from electra.data.tokenizer import special_tokens
from electra.errors import ConfigError, DataError
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.task_heads import TokenHead
from electra.tasks import conll, tags
from electra.tasks.base import (
    IGNORE_INDEX,
    InputSpec,
    Outputs,
    Prediction,
    Problem,
    Rows,
    Task,
    TaskBatch,
    Text,
    build_rows,
)
from electra.tasks.config import DataConfig, HeadConfig, Pieces
from electra.tasks.conll import Sentence
from electra.tasks.subsampling import stratified_split
from electra.tasks.tabular import SPLIT_SEED, find_files

Metric = Literal["span_f1", "accuracy", "f0.5"]

MAX_LABELS = 1_000
"""A column with more different tags than this is taken for a mistake."""
MAX_UNKNOWN_TAGS_SHARE = 0.01
"""Share of a split's words up to which tags that train does not have are counted as errors and not refused: the
test split of a treebank has features that no other split has."""
SCORE_DIGITS = 4
MAX_LISTED = 10  # tags in a message
OUTSIDE = "O"
NO_TRAINING_FILE = (
    "name one train.txt, or choose the files with --data.train FILE, --data.dev FILE and --data.test FILE"
)


@dataclass(frozen=True)
class Tagging(Problem):
    """Tags from a closed set.

    The network predicts tags of spans as BIOES, as in ELECTRA's own code. Examples and predictions have the scheme
    of the files. For transformers the outputs are named as in BIO.

    Attributes:
        labels: the labels that the network chooses from.
        scheme: the scheme of the files' tags.
        metric: the metric that runs are compared by.
        fallback: the label of a word that has no tokens (for example a control character).
        positive: the tag to detect, for f0.5.
        pieces: which tokens of a word are trained. Predictions are always those of the first one.
    """

    labels: tuple[str, ...]
    scheme: tags.Scheme
    metric: Metric
    fallback: str
    positive: str = ""
    pieces: Pieces = "first"
    kind, answer_key = "tagging", "tags"
    default_max_length, reads_words = 256, True
    purpose = "Predicts a tag for every word of a sentence, in the scheme of its training data."
    pipeline_tag, input_example = "token-classification", '"The old man saw the sea ."'

    @classmethod
    def load_task(cls, name: str, data: DataConfig, head: HeadConfig) -> Task:
        """Load text with one word per line, in columns. Without a dev file, dev is a part of train."""
        columns = _find_columns(data)
        files = find_files(data, fits=lambda _: True, remedy=NO_TRAINING_FILE)
        splits = {split: conll.read(file, columns) for split, file in files.items() if split != "test"}
        if "test" in files:
            splits["test"] = conll.read_test(files["test"], columns)
        notes: list[str] = []
        if "dev" not in splits:
            train = splits["train"]
            kept, held_out = stratified_split([""] * len(train), data.dev_share, seed=SPLIT_SEED)
            if not len(held_out):
                raise DataError(
                    f"{files['train']}: one sentence is not enough to split off a dev part; give --data.dev FILE"
                )
            splits |= {"train": [train[i] for i in kept], "dev": [train[i] for i in held_out]}
            notes.append(
                f"no dev file: {len(held_out):,} of the {len(train):,} training sentences are used for it"
            )
        return build_tagging_task(name, splits, notes=notes, pieces=head.pieces)

    def make_example(self, text: Text, number: int) -> Sentence:
        words = tuple(text.split()) if isinstance(text, str) else tuple(text)
        if not words:
            raise DataError(f"text {number + 1} has no words")
        return Sentence(words, None, f"text {number + 1}", 1)

    def describe_example(self, example: Sentence) -> dict[str, Any]:
        return {"gold": [*(example.tags or ())]}  # the words are in the prediction

    @property
    def exported_names(self) -> tuple[str, ...]:
        return self.labels if self.scheme == "none" else tuple(map(tags.bio_tag, self.labels))

    def build_head(self, config: EncoderConfig) -> TokenHead:
        return TokenHead(config, len(self.labels))

    def encode(self, examples: Sequence[Sentence], spec: InputSpec) -> Rows:
        """Return sentences as rows, with the target `labels` at tokens of words (`pieces`) if they have tags.

        A sentence that is too long for a row makes several rows that overlap. Each word is predicted in the row
        that shows the most context on both sides of it, so that no word is lost or counted twice.
        """
        special = special_tokens(spec.tokenizer)
        capacity = spec.max_length - 2
        tokens: list[list[int]] = []
        numbers: list[int] = []
        targets: list[NDArray[np.int64]] = []
        notes: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        encodings = tokenize_words([example.words for example in examples], spec.tokenizer)
        for number, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
            words_W, positions_W = _first_tokens(encoding)
            targets_N = self._token_targets(example, encoding)
            for start, end, kept_from, kept_to in split_windows(len(encoding.ids), capacity):
                kept = (kept_from <= positions_W) & (positions_W < kept_to)
                words, positions = words_W[kept], positions_W[kept] - start + 1
                target_L = np.full(end - start + 2, IGNORE_INDEX, np.int64)
                target_L[kept_from - start + 1 : kept_to - start + 1] = targets_N[kept_from:kept_to]
                tokens.append(encoding.ids[start:end])
                numbers.append(number)
                targets.append(target_L)
                notes.append((words, positions))
        tagged = any(example.tags is not None for example in examples)
        return build_rows(
            [(ids, None) for ids in tokens],
            (special.classify, special.separate),
            examples=numbers,
            token_targets={"labels": np.concatenate(targets)} if tagged else {},
            notes=notes,
        )

    def logits(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> dict[str, Tensor]:
        return {"logits": head(x_BLD)}

    def outputs(self, logits: dict[str, Tensor], batch: TaskBatch) -> dict[str, Tensor]:
        """Return the `probabilities` (B, L, K) of the labels at each token."""
        return {"probabilities": torch.softmax(logits["logits"].float(), dim=-1)}

    def losses(self, head: nn.Module, x_BLD: Tensor, batch: TaskBatch) -> Tensor:
        """Return the sum (B) of the cross-entropies of a row's labeled tokens."""
        logits_BKL, labels_BL = head(x_BLD).float().transpose(1, 2), batch.targets["labels"]
        return F.cross_entropy(logits_BKL, labels_BL, ignore_index=IGNORE_INDEX, reduction="none").sum(1)

    def count_targets(self, batch: TaskBatch) -> Tensor:
        return (batch.targets["labels"] != IGNORE_INDEX).sum().clamp(min=1)

    def probabilities(
        self, examples: Sequence[Sentence], rows: Rows, outputs: Sequence[Outputs]
    ) -> list[NDArray[np.float64]]:
        """Return the probabilities (W, K) of all labels for each sentence; 0 for words without tokens."""
        probabilities = [np.zeros((len(example.words), len(self.labels))) for example in examples]
        for example, (words, positions), output in zip(rows.examples.tolist(), rows.notes, outputs, strict=True):
            probabilities[example][words] = output["probabilities"][positions]
        return probabilities

    def decode(self, examples: Sequence[Sentence], rows: Rows, outputs: Sequence[Outputs]) -> list[Prediction]:
        """Return for each sentence its `words`, their `tags` in the files' scheme, and `scores`.

        A score is the probability of the predicted label; 0 for a word without tokens.
        """
        fallback = self.labels.index(self.fallback)
        probabilities = self.probabilities(examples, rows, outputs)
        scores = [each_WK.max(1) for each_WK in probabilities]
        predicted = [
            np.where(score_W > 0, each_WK.argmax(1), fallback)
            for each_WK, score_W in zip(probabilities, scores, strict=True)
        ]
        return [
            {
                "words": [*example.words],
                "tags": self._in_file_scheme([self.labels[label] for label in labels.tolist()]),
                "scores": [round(score, SCORE_DIGITS) for score in score_W.tolist()],
            }
            for example, labels, score_W in zip(examples, predicted, scores, strict=True)
        ]

    def format_prediction(self, prediction: Prediction, text: str) -> str:
        """Return the words, each with its tag, instead of the text."""
        pairs = zip(prediction["words"], prediction[self.answer_key], strict=True)
        return " ".join(f"{word}/{tag}" for word, tag in pairs)

    def compute_metrics(self, examples: Sequence[Sentence], predictions: Sequence[Prediction]) -> dict[str, float]:
        """Return those of `span_scores`, those of `detection_scores`, or the accuracy, depending on `metric`."""
        gold = [example.tags or () for example in examples]
        predicted = [prediction["tags"] for prediction in predictions]
        if self.metric == "span_f1":
            return tags.span_scores(gold, predicted)
        if self.metric == "f0.5":
            return tags.detection_scores(gold, predicted, self.positive)
        return {"accuracy": tags.accuracy(gold, predicted)}

    def unknown_tags(self, examples: Sequence[Sentence]) -> Counter[str]:
        """Count the tags of these sentences that the problem does not have."""
        types = {*tags.span_types(self.labels)}

        def is_known(tag: str) -> bool:
            if self.scheme == "none":
                return tag in self._indices
            letter, span_type = tags.split_tag(tag)
            return letter == OUTSIDE or (letter in tags.MEANINGS and span_type in types)

        seen = Counter(tag for example in examples for tag in example.tags or ())
        return Counter({tag: count for tag, count in seen.items() if not is_known(tag)})

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.labels)}

    def _in_file_scheme(self, labels: list[str]) -> list[str]:
        return labels if self.scheme == "none" else tags.convert_scheme(labels, self.scheme)

    def _token_targets(self, example: Sentence, encoding: Encoding) -> NDArray[np.int64]:
        """Return the number of each token's label (N); `IGNORE_INDEX` if it is not trained."""
        targets_W = self._targets(example)
        words_W, positions_W = _first_tokens(encoding)
        targets_N = np.full(len(encoding.ids), IGNORE_INDEX, np.int64)
        if self.pieces == "all":
            labeled_W, later_W = targets_W != IGNORE_INDEX, targets_W.copy()
            if self.scheme != "none":
                later_W[labeled_W] = self._later[targets_W[labeled_W]]
            targets_N[:] = later_W[np.array(encoding.word_ids, np.int64)]
        targets_N[positions_W] = targets_W[words_W]
        return targets_N

    @cached_property
    def _later(self) -> NDArray[np.int64]:
        """The label of later tokens of a word, for each label (K) of its first token: the span goes on."""
        return np.array([self._indices[tags.later_tag(label)] for label in self.labels], np.int64)

    def _targets(self, example: Sentence) -> NDArray[np.int64]:
        """Return the number of each word's label; `IGNORE_INDEX` without a label, or with one unknown to train."""
        if example.tags is None:
            return np.full(len(example.words), IGNORE_INDEX, np.int64)
        labels = example.tags if self.scheme == "none" else tags.convert_scheme(example.tags, "bioes")
        return np.array([self._indices.get(label, IGNORE_INDEX) for label in labels], np.int64)


def build_tagging_task(
    name: str,
    splits: Mapping[str, Sequence[Sentence]],
    *,
    metric: Metric | None = None,
    positive: str = "",
    notes: Sequence[str] = (),
    pieces: Pieces = "first",
) -> Task:
    """Return the task whose labels are the tags of the split `train`.

    Args:
        metric: None: span_f1 if the tags mark spans, else accuracy.
        positive: the tag to detect, for f0.5.
        notes: remarks about the data.
        pieces: which tokens of a word are trained.

    Raises:
        DataError: the tags of `train` cannot be used (there is only one, there are more than `MAX_LABELS`, they
            mark no spans but the metric is span_f1, or none is `positive`); or another split has tags that `train`
            does not have: any tags of spans, or other tags on more than `MAX_UNKNOWN_TAGS_SHARE` of its words.
    """
    seen = Counter(tag for example in splits["train"] for tag in example.tags or ())
    source = splits["train"][0].source
    scheme = "none" if metric == "f0.5" else tags.detect_scheme(example.tags or () for example in splits["train"])
    _check_tags(seen, source, scheme=scheme, metric=metric, positive=positive)
    labels = set(seen) if scheme == "none" else tags.bioes_tags(tags.span_types(seen))
    problem = Tagging(
        labels=tuple(sorted(labels, key=lambda label: (label != OUTSIDE, label))),
        scheme=scheme,
        metric=metric or ("accuracy" if scheme == "none" else "span_f1"),
        fallback=OUTSIDE if OUTSIDE in labels else seen.most_common(1)[0][0],
        positive=positive,
        pieces=pieces,
    )
    for split, examples in splits.items():
        if unknown := problem.unknown_tags(examples):
            note = f"{split} has tags that train does not have: {_list_tags(unknown)}"
            words = sum(len(example.words) for example in examples)
            if scheme != "none" or unknown.total() > MAX_UNKNOWN_TAGS_SHARE * words:
                raise DataError(
                    f"{examples[0].source}: {note}; add sentences with them to train, or remove them here"
                )
            notes = (*notes, f"{note}; they count as errors")
    counts = [_describe_split(split, examples, scheme) for split, examples in splits.items()]
    return Task(name, problem, splits, (*notes, f"{len(labels)} labels; tag scheme: {scheme}", *counts))


def _check_tags(
    seen: Counter[str], source: object, *, scheme: tags.Scheme, metric: Metric | None, positive: str
) -> None:
    """Check that the tags of the split `train`, with their numbers, can be learned.

    Raises:
        DataError: they cannot.
    """
    if len(seen) > MAX_LABELS:
        raise DataError(
            f"{source}: there are {len(seen):,} different tags, such as {_list_tags(seen)}; is this the right "
            "column?"
        )
    if len(seen) < 2:
        raise DataError(
            f"{source}: every word has the same tag ({_list_tags(seen) or 'none'}), so nothing can be learned; "
            "is this the right column?"
        )
    if metric == "span_f1" and scheme == "none":
        raise DataError(
            f"{source}: these tags mark no spans: {_list_tags(seen)}; name the column of the tags, or use accuracy"
        )
    if metric == "f0.5" and positive not in seen:
        raise DataError(f"{source}: no word has the tag {positive!r} to detect; the tags are {_list_tags(seen)}")


def split_windows(length: int, capacity: int) -> list[tuple[int, int, int, int]]:
    """Split `length` tokens into windows of at most `capacity` tokens, each overlapping the next by half.

    Returns:
        For each window: its start, its end, and the range of the tokens that have more context in it than in any
        other window.
    """
    if length <= capacity:
        return [(0, length, 0, length)]
    count = 1 + math.ceil((length - capacity) / (capacity - capacity // 2))
    starts = [i * (length - capacity) // (count - 1) for i in range(count)]
    middles = [(start + before + capacity) // 2 for before, start in pairwise(starts)]
    borders = [0, *middles, length]
    return [(start, start + capacity, *kept) for start, kept in zip(starts, pairwise(borders), strict=True)]


def tokenize_words(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[Encoding]:
    """Return the tokens of words, without special tokens. `word_ids` names the word of each token."""
    # A byte-level BPE expects a blank before each word but the first; other tokenizers add or drop it themselves.
    spaced = [[word if i == 0 else f" {word}" for i, word in enumerate(words)] for words in sentences]
    return tokenizer.encode_batch(spaced, is_pretokenized=True, add_special_tokens=False)


def _find_columns(data: DataConfig) -> conll.Columns:
    """Return the columns that the settings name.

    Raises:
        ConfigError: a setting is neither a number nor a field of CoNLL-U.
    """
    fields: dict[str, conll.Columns] = {"upos": conll.UPOS, "xpos": conll.XPOS, "feats": conll.FEATS}
    for setting, value, known in (("data.text", data.text, ()), ("data.label", data.label, tuple(fields))):
        if value is not None and value not in known and not value.removeprefix("-").isdigit():
            more = f", or for CoNLL-U {', '.join(known)}" if known else ""
            raise ConfigError(f"{setting}: {value!r} is not a column of tagged text; give a number from 0{more}")
    return fields.get(data.label or "") or conll.Columns(int(data.text or 0), int(data.label or -1))


def _first_tokens(encoding: Encoding) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the words (W) that have tokens, and the position of each one's first token."""
    words_N = np.array(encoding.word_ids, np.int64)
    positions_W = np.flatnonzero(np.diff(words_N, prepend=-1))
    return words_N[positions_W], positions_W


def _describe_split(split: str, examples: Sequence[Sentence], scheme: tags.Scheme) -> str:
    words = sum(len(example.words) for example in examples)
    note = f"{split}: {len(examples):,} sentences, {words:,} words"
    if any(example.tags is None for example in examples):
        return f"{note}, without tags"
    wrong = sum(tags.count_violations(example.tags or (), scheme) for example in examples)
    return f"{note}, {wrong:,} tags that violate the scheme, read as conlleval reads them" if wrong else note


def _list_tags(counts: Counter[str]) -> str:
    listed = ", ".join(f"{tag!r} ({count:,} times)" for tag, count in counts.most_common(MAX_LISTED))
    return listed + (f" and {len(counts) - MAX_LISTED:,} others" if len(counts) > MAX_LISTED else "")
