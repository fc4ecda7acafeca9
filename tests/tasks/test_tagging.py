import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers
from torch import nn

from electra.errors import DataError
from electra.modeling.encoders.bert import BertConfig
from electra.preparation.config import TokenizerKind
from electra.preparation.tokenizer_training import train_tokenizer
from electra.tasks.base import IGNORE_INDEX, InputSpec, Outputs, Rows, Task, collate
from electra.tasks.catalog import load_problem
from electra.tasks.config import DataConfig, HeadConfig
from electra.tasks.conll import Sentence
from electra.tasks.tagging import Tagging, build_tagging_task, split_windows
from electra.tasks.tagging_datasets import TASKS
from electra.tasks.tags import Scheme, convert_scheme

TEXTS = [
    "The ferry leaves the harbour at seven and comes back at noon; Ms. O'Hara sells tickets to North Island.",
    "Whoever misses the ferry waits, and whoever waits reads the timetable: it is nailed to the harbour wall.",
    "渡轮七点离开港口，中午回来。岛上有一家咖啡馆。王小明在北京。",
] * 20
LINES = [
    "The:O ferry:O leaves:O North:B-LOC Island:I-LOC harbour:I-LOC",
    "Ms.:B-PER O'Hara:I-PER \u200b:O sells:O tickets:O , :O Seven:B-PER Sisters:B-LOC",
    "王:B-PER 小:I-PER 明:I-PER 在:O 北京:B-LOC 。:O",
    "\u0000:O \u200b:O",
]


def sentence(line: str, source: str = "train.txt") -> Sentence:
    pairs = [part.rpartition(":") for part in line.split(" ") if ":" in part]
    return Sentence(tuple(word for word, _, _ in pairs), tuple(tag for *_, tag in pairs), source, 1)


EXAMPLES = [sentence(line) for line in LINES]


def tokenizer(kind: TokenizerKind = "wordpiece") -> Tokenizer:
    return train_tokenizer(TEXTS, kind=kind, vocabulary_size=400, lowercase=False)


def oracle(problem: Tagging, rows: Rows, sure: float = 0.9) -> list[Outputs]:
    """Outputs of a head that knows the targets, and predicts another label elsewhere."""
    actual: list[Outputs] = []
    for start, end in zip(rows.starts[:-1], rows.starts[1:], strict=True):
        targets = rows.token_targets["labels"][start:end]
        probabilities = np.zeros((end - start, len(problem.labels)), np.float32)
        probabilities[np.arange(end - start), np.where(targets == IGNORE_INDEX, 1, targets)] = sure
        actual.append({"probabilities": probabilities})
    return actual


def tagging(examples: Sequence[Sentence] = EXAMPLES) -> Tagging:
    problem = build_tagging_task("names", {"train": examples}).problem
    assert isinstance(problem, Tagging)
    return problem


def test_labels_are_the_closed_set_of_bioes_and_are_restored_from_their_fields() -> None:
    problem = tagging()
    kinds = [f"{letter}-{kind}" for letter in "BEIS" for kind in ("LOC", "PER")]
    assert problem.labels == ("O", *kinds) and (problem.scheme, problem.metric) == ("bio", "span_f1")
    assert load_problem(json.loads(json.dumps(problem.to_dict()))) == problem


def test_outputs_are_named_for_transformers_by_b_and_i() -> None:
    names = [f"{letter}-{kind}" for letter in "BIIB" for kind in ("LOC", "PER")]
    assert tagging().exported_names == ("O", *names)
    parts_of_speech = Tagging(("E-X", "S"), "none", "accuracy", "S")
    assert parts_of_speech.exported_names == ("E-X", "S")
    segments = Tagging(("O", "B", "E", "I", "S"), "bio", "span_f1", "O")
    assert segments.exported_names == ("O", "B-SPAN", "I-SPAN", "I-SPAN", "B-SPAN")


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("max_length", [64, 12, 5, 3])
@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes"])
def test_every_word_gets_its_tag_back_in_the_files_scheme(
    kind: TokenizerKind, max_length: int, scheme: Scheme
) -> None:
    examples = [replace(one, tags=tuple(convert_scheme(one.tags or (), scheme))) for one in EXAMPLES]
    problem = tagging(examples)
    assert problem.scheme == scheme
    rows = problem.encode(examples, InputSpec(tokenizer(kind), max_length))
    assert rows.lengths.max() <= max_length and rows.cut == ()
    predictions = problem.decode(examples, rows, oracle(problem, rows))
    assert [tuple(prediction["tags"]) for prediction in predictions] == [example.tags for example in examples]
    assert [tuple(prediction["words"]) for prediction in predictions] == [example.words for example in examples]
    assert problem.compute_metrics(examples, predictions)["span_f1"] == 1.0


@pytest.mark.parametrize("max_length", [64, 5])
def test_later_tokens_of_a_word_can_be_labeled_as_the_rest_of_its_span(max_length: int) -> None:
    examples = [sentence("harbours:B-LOC North:O O'Hara:B-PER Seven:I-PER")]
    problem = replace(tagging(examples), pieces="all")
    words, spec = tokenizer(), InputSpec(tokenizer(), max_length)
    expected = [
        problem.labels.index(label if token == 0 else later)
        for word, label, later in zip(
            examples[0].words, ("S-LOC", "O", "B-PER", "E-PER"), ("E-LOC", "O", "I-PER", "E-PER"), strict=True
        )
        for token in range(len(words.encode(word, add_special_tokens=False).ids))
    ]
    rows = problem.encode(examples, spec)
    labels = rows.token_targets["labels"]
    assert labels[labels != IGNORE_INDEX].tolist() == expected
    assert problem.decode(examples, rows, oracle(problem, rows))[0]["tags"] == [*(examples[0].tags or ())]
    assert "labels" not in problem.encode([replace(examples[0], tags=None)], spec).token_targets
    parts = build_tagging_task("x", {"train": [sentence("harbours:NN North:JJ")]}, pieces="all").problem
    targets = parts.encode([sentence("harbours:NN North:JJ")], spec).token_targets["labels"]
    assert {*targets.tolist()} == {IGNORE_INDEX, 0, 1} and (targets == IGNORE_INDEX).sum() % 2 == 0


def test_the_first_token_of_a_word_is_labeled() -> None:
    words = tokenizer()
    (example,) = examples = [sentence("harbours:B-LOC North:O O'Hara:B-PER Seven:I-PER")]
    problem = tagging(examples)
    rows = problem.encode(examples, InputSpec(words, 64))
    alone = [words.encode(word, add_special_tokens=False).ids for word in example.words]
    assert max(map(len, alone)) > 1
    assert rows.ids.tolist()[1:-1] == [token for tokens in alone for token in tokens]
    labels = [
        [problem.labels.index(label), *[IGNORE_INDEX] * (len(tokens) - 1)]
        for label, tokens in zip(("S-LOC", "O", "B-PER", "E-PER"), alone, strict=True)
    ]
    expected = [IGNORE_INDEX, *(label for word in labels for label in word), IGNORE_INDEX]
    assert rows.token_targets["labels"].tolist() == expected


def test_a_word_without_tokens_gets_the_fallback_and_shifts_nobody() -> None:
    problem = tagging()
    rows = problem.encode(EXAMPLES, InputSpec(tokenizer(), 64))
    _, second, _, fourth = problem.decode(EXAMPLES, rows, oracle(problem, rows))
    assert second["words"][2] == "\u200b" and second["tags"][2] == "O" and second["scores"][2] == 0.0
    assert second["scores"][3] == 0.9 and second["tags"][-2:] == ["B-PER", "B-LOC"]
    assert (fourth["tags"], fourth["scores"]) == (["O", "O"], [0.0, 0.0])
    plain = build_tagging_task("pos", {"train": [sentence("a:DET b:NOUN c:NOUN \u200b:SYM")]}).problem
    assert isinstance(plain, Tagging) and plain.fallback == "NOUN"
    examples = [sentence("a:DET \u200b:NOUN")]
    rows = plain.encode(examples, InputSpec(tokenizer(), 64))
    assert plain.decode(examples, rows, oracle(plain, rows))[0]["tags"] == ["DET", "NOUN"]


def test_windows_show_each_token_once_where_it_has_most_context() -> None:
    for length in range(40):
        for capacity in range(1, 12):
            actual = split_windows(length, capacity)
            assert all(0 <= start <= left <= right <= end <= length for start, end, left, right in actual)
            assert all(end - start <= capacity for start, end, *_ in actual)
            kept = [token for *_, left, right in actual for token in range(left, right)]
            assert kept == list(range(length))

            def context(token: int, window: tuple[int, int, int, int], length: int = length) -> int:
                start, end, *_ = window  # the sentence's own ends cut nothing off
                return min(token - start if start else length, end - 1 - token if end < length else length)

            for window in actual:
                for token in range(window[2], window[3]):
                    seen_by = [other for other in actual if other[0] <= token < other[1]]
                    assert context(token, window) >= max(context(token, other) for other in seen_by) - 1
                    if length > capacity > 3:
                        assert context(token, window) >= capacity // 4 - 1


def test_a_long_sentence_counts_each_word_once() -> None:
    example = sentence(" ".join(["North:B-LOC", "Island:I-LOC", "waits:O"] * 50))
    problem = tagging([example])
    rows = problem.encode([example, EXAMPLES[0]], InputSpec(tokenizer(), 16))
    assert rows.examples.tolist()[:3] == [0, 0, 0] and rows.examples[-1] == 1
    assert (rows.token_targets["labels"] != IGNORE_INDEX).sum() == 150 + 6


def test_a_bpe_without_a_prefix_space_reads_words_as_in_a_text() -> None:
    bpe = tokenizer("bpe")
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rows = tagging().encode(EXAMPLES[:1], InputSpec(bpe, 64))
    joined = bpe.encode(" ".join(EXAMPLES[0].words), add_special_tokens=False).ids
    assert rows.ids.tolist()[1:-1] == joined


def test_losses_are_sums_over_labeled_tokens() -> None:
    problem = tagging()
    rows = problem.encode(EXAMPLES, InputSpec(tokenizer(), 64))
    batch = collate(rows, np.arange(4), pad=0)
    torch.manual_seed(0)
    head = problem.build_head(BertConfig(hidden_size=8)).eval()
    x_BLD = torch.randn(*batch.input_ids_BL.shape, 8)
    losses_B = problem.losses(head, x_BLD, batch)
    probabilities = problem.outputs(problem.logits(head, x_BLD, batch), batch)["probabilities"]
    assert probabilities.dtype == torch.float32 and probabilities.shape == (*x_BLD.shape[:2], 9)
    for row in range(4):
        each = [
            -probabilities[row, place, label].log().item()
            for place, label in enumerate(batch.targets["labels"][row].tolist())
            if label != IGNORE_INDEX
        ]
        assert losses_B[row].item() == pytest.approx(sum(each), rel=1e-5)
    assert losses_B[3].item() == 0.0
    assert problem.count_targets(batch) == (batch.targets["labels"] != IGNORE_INDEX).sum() > 9


def test_a_head_learns_words_by_heart() -> None:
    examples = EXAMPLES[:1]  # no two of its words begin alike
    problem = tagging(examples)
    rows = problem.encode(examples, InputSpec(tokenizer(), 8))
    batch = collate(rows, np.arange(len(rows)), pad=0)
    torch.manual_seed(0)
    table = nn.Embedding(400, 32)
    head = problem.build_head(BertConfig(hidden_size=32)).eval()
    optimizer = torch.optim.Adam([*head.parameters(), *table.parameters()], 0.05)
    for _ in range(40):
        loss = problem.losses(head, table(batch.input_ids_BL), batch).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        actual = problem.outputs(problem.logits(head, table(batch.input_ids_BL), batch), batch)[
            "probabilities"
        ].numpy()
    outputs: list[Outputs] = [{"probabilities": row} for row in actual]
    scores = problem.compute_metrics(examples, problem.decode(examples, rows, outputs))
    assert scores["span_f1"] == scores["span_f1/LOC"] == scores["accuracy"] == 1.0


def test_sentences_without_tags_are_predicted() -> None:
    problem = tagging()
    example = Sentence(("North", "Island"), None, "new.txt", 1)
    rows = problem.encode([example], InputSpec(tokenizer(), 64))
    assert rows.token_targets == {}
    probabilities = np.zeros((rows.lengths[0], 9), np.float32)
    probabilities[1:3, problem.labels.index("E-LOC")] = 0.51234
    (prediction,) = problem.decode([example], rows, [{"probabilities": probabilities}])
    assert prediction["words"] == ["North", "Island"] and prediction["scores"][0] == 0.5123
    assert prediction["tags"][0] == "B-LOC", "a lone E is read as conlleval reads it"


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (["a:O b:O"], {}, r"train\.txt: every word has the same tag \('O' \(2 times\)\)"),
        ([" ".join(f"a:{i}" for i in range(1001))], {}, r"train\.txt: there are 1,001 different tags"),
        (["a:X b:Y"], {"metric": "span_f1"}, r"train\.txt: these tags mark no spans: 'X' \(1 times\), 'Y'"),
        (["a:c b:d"], {"metric": "f0.5", "positive": "i"}, r"train\.txt: no word has the tag 'i'"),
    ],
)
def test_unsuitable_tags_are_refused(lines: list[str], options: Mapping[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        build_tagging_task("x", {"train": [sentence(line) for line in lines]}, **options)  # type: ignore[arg-type]


def test_tags_that_train_does_not_have_are_refused() -> None:
    train_split = [sentence("a:B-X b:I-X c:O")]
    task = build_tagging_task("x", {"train": train_split, "dev": [sentence("a:S-X b:I-X c:E-X", "dev.txt")]})
    assert (
        task.notes[-1] == "dev: 1 sentences, 3 words, 3 tags that violate the scheme, read as conlleval reads them"
    )
    wrong = sentence("a:B-Y b:I-Y c:B-Y d:B-X", "dev.txt")
    with pytest.raises(DataError, match=r"dev\.txt: dev has tags .*: 'B-Y' \(2 times\), 'I-Y' \(1 times\); add"):
        build_tagging_task("x", {"train": train_split, "dev": [wrong]})
    with pytest.raises(DataError, match=r"'B-Y' \(1 times\); add"):  # however few they are
        build_tagging_task("x", {"train": train_split, "dev": [sentence("a:O " * 200 + "b:B-Y")]})


def test_some_tags_that_mark_no_spans_may_be_new() -> None:
    """Each split of a treebank has features that no other split has."""
    train_split, common = [sentence("a:X b:Y")], "a:X b:Y " * 60
    with pytest.raises(DataError, match=r"dev\.txt: dev has tags that train does not have: 'Z' \(2 times\); add"):
        build_tagging_task("x", {"train": train_split, "dev": [sentence(f"{common}a:Z b:Z", "dev.txt")]})
    dev = [sentence(f"{common}a:Z", "dev.txt")]
    task = build_tagging_task("x", {"train": train_split, "dev": dev})
    assert any(
        "dev has tags that train does not have: 'Z' (1 times); they count as errors" in n for n in task.notes
    )
    rows = task.problem.encode(dev, InputSpec(tokenizer(), 512))
    assert (rows.token_targets["labels"] != IGNORE_INDEX).sum() == 120
    said = [{"tags": ["X", "Y"] * 60 + ["X"]}]
    assert task.problem.compute_metrics(dev, said) == {"accuracy": pytest.approx(120 / 121)}


def folder(tmp_path: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def load(name: str, data: Path) -> Task:
    return TASKS[name].load_task(name, DataConfig(path=data), HeadConfig())


def words_of(task: Task, split: str) -> list[str]:
    return [word for example in task.splits[split] for word in example.words]


def test_dev_of_chunking_is_the_last_tenth_of_train(tmp_path: Path) -> None:
    text = "".join(f"w{i} NN B-NP\nx RB O\n\n" for i in range(20))
    task = load("chunking", folder(tmp_path, {"train.txt": text, "test.txt": text}))
    assert [len(task.splits[split]) for split in ("train", "dev", "test")] == [18, 2, 20]
    assert words_of(task, "dev") == ["w18", "x", "w19", "x"] and list(task.splits) == ["train", "dev", "test"]
    assert task.notes[0] == "there is no dev file: dev is the last tenth of train"
    (tmp_path / "dev.txt").write_text("a NN B-NP\n")
    assert words_of(load("chunking", tmp_path), "dev") == ["a"]


def test_treebanks_by_either_name(tmp_path: Path) -> None:
    line = "1\tHej\thej\tINTJ\tIJ\t_\t0\troot\t_\t_\n2\t!\t!\tPUNCT\tMAD\t_\t1\tpunct\t_\t_\n"
    for names in (["train", "dev", "test"], ["sv_lines-ud-train", "sv_lines-ud-dev", "sv_lines-ud-test"]):
        place = tmp_path / names[0]
        place.mkdir()
        folder(place, {f"{name}.conllu": line for name in names})
        problems = [load(name, place).problem for name in ("upos", "xpos")]
        assert [problem.metric for problem in problems] == ["accuracy"] * 2
        assert [problem.to_dict()["labels"] for problem in problems] == [("INTJ", "PUNCT"), ("IJ", "MAD")]


def test_error_detection_reads_both_formats_and_splits_dev_without_a_training_file(tmp_path: Path) -> None:
    kinds = "Er\t-\t-\nsein\tR:VERB\tist\n\t\t\n"
    place = folder(tmp_path, {"de_train.tsv": kinds, "de_dev.tsv": kinds, "en_dev.tsv": "a\tc\nb\ti\n\n" * 50})
    german = load("ged-de", place)
    assert german.splits["train"][0].tags == ("c", "i") and german.problem.metric == "f0.5"
    predictions = [{"words": ["Er", "sein"], "tags": ["i", "i"], "scores": [1.0, 1.0]}]
    scores = german.problem.compute_metrics(german.splits["dev"], predictions)
    assert scores == pytest.approx({"precision": 0.5, "recall": 1.0, "f0.5": 1.25 * 0.5 / (0.25 * 0.5 + 1)})
    english = load("ged-en", place)
    assert (len(english.splits["train"]), len(english.splits["dev"])) == (40, 10)
    lines = [{example.line for example in english.splits[split]} for split in ("train", "dev")]
    assert not lines[0] & lines[1] and english.splits == load("ged-en", place).splits
    assert "random four fifths" in english.notes[0]
    for corpus in ("fce", "realec"):
        (place / f"en_{corpus}_dev.tsv").write_text(f"{corpus}\tc\nb\ti\n\n" * 10)
        assert words_of(load(f"ged-en-{corpus}", place), "dev")[0] == corpus
        with pytest.raises(DataError, match=r"en_dev\.tsv and en_fce_dev\.tsv.* more specific task.* ged-en-fce"):
            load("ged-en", place)
    with pytest.raises(DataError, match=r"de_dev\.tsv and en_dev\.tsv.* match \*dev\.tsv"):
        load("ged", place)


def test_names_in_their_official_files(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- -X- O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n"
    task = load("ner-conll2003", folder(tmp_path, dict.fromkeys(("eng.train", "eng.testa", "eng.testb"), text)))
    assert isinstance(task.problem, Tagging) and task.problem.scheme == "iob1"
    assert words_of(task, "test") == ["EU", "rejects"]


@pytest.mark.parametrize("name", sorted(TASKS))
def test_messages_about_missing_files_name_their_source(name: str, tmp_path: Path) -> None:
    needed = "train" if name == "chunking" else "dev"  # whose file is never cut from another one
    with pytest.raises(DataError, match=rf"there is no .*{needed}.*, which {name} needs; it is part of "):
        load(name, tmp_path)


def test_random_tags_survive_the_network_and_back() -> None:
    source = random.Random(0)
    vocabulary = ["the", "ferry", "leaves", "harbours", "North", "渡轮", "\u200b", "O'Hara", "\u0000", "whoever"]
    alphabet = ["O", "B-A", "I-A", "B-B", "I-B"]
    examples = []
    for _ in range(50):
        words = [source.choice(vocabulary) for _ in range(source.randrange(1, 40))]
        tags = [source.choice(alphabet) if word not in "\u200b\u0000" else "O" for word in words]
        examples.append(Sentence(tuple(words), tuple(tags), "train.txt", 1))
    problem = tagging(examples)
    rows = problem.encode(examples, InputSpec(tokenizer(), 10))
    predictions = problem.decode(examples, rows, oracle(problem, rows))
    scores = problem.compute_metrics(examples, predictions)
    assert scores["span_f1"] == 1.0 and scores["accuracy"] < 1.0, "the tags are mended, the spans the same"


def test_a_test_file_can_have_words_alone(tmp_path: Path) -> None:
    tagged = "A B-X\ndog O\n\n" * 4
    for name, text in (("train", tagged), ("dev", tagged), ("test", "The\nend\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    for settings in ({}, {"text": "0", "label": "1"}):
        splits = Tagging.load_task("own", DataConfig(path=tmp_path, **settings), HeadConfig()).splits
        assert [(one.words, one.tags) for one in splits["test"]] == [(("The", "end"), None)]
    (tmp_path / "train.txt").rename(tmp_path / "other.txt")
    with pytest.raises(DataError, match=r"there is no training file; name one train\.txt, or choose"):
        Tagging.load_task("own", DataConfig(path=tmp_path), HeadConfig())
