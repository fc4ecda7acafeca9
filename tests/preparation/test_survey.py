from random import Random

import pytest

from electra.preparation import survey
from electra.preparation.deduplication import document_hash
from electra.preparation.run import _log_progress
from electra.preparation.survey import HeldoutRule, choose_heldout, survey_corpus
from electra.readers.base import Document, Reject


def documents(count: int, *, length: int = 100) -> list[Document]:
    return [Document(f"{i} ".ljust(length, "x"), "a.txt", i) for i in range(count)]


def held(rule: HeldoutRule, corpus: list[Document]) -> list[Document]:
    return [document for document in corpus if rule.share(document_hash(document.text)) == 1.0]


def test_a_large_corpus_holds_out_the_share() -> None:
    corpus = documents(20_000)
    rule = choose_heldout(survey_corpus(corpus), 0.01)
    assert 190 <= len(held(rule, corpus)) <= 230 and rule.tail_of is None


@pytest.mark.parametrize(("count", "expected"), [(1000, 10), (100, 8), (80, 8), (40, 4), (10, 1)])
def test_a_small_corpus_holds_out_some_documents_but_not_too_many(count: int, expected: int) -> None:
    corpus = documents(count)
    assert len(held(choose_heldout(survey_corpus(corpus), 0.01), corpus)) == expected


def test_a_large_share_is_held_out_of_a_small_corpus_too() -> None:
    corpus = documents(500)
    assert 75 <= len(held(choose_heldout(survey_corpus(corpus), 0.2), corpus)) <= 125


def test_small_documents_next_to_a_huge_one_are_not_all_held_out() -> None:
    # A huge document with a high hash, so that it does not stop the selection.
    huge = next(text for i in range(99) if document_hash(text := f"huge {i} " * 50_000) > 0.9 * 2**64)
    corpus = [*documents(100), Document(huge, "b.txt", 1)]
    assert len(held(choose_heldout(survey_corpus(corpus), 0.1), corpus)) == 50


@pytest.mark.parametrize("corpus", [documents(1), documents(1) * 50, documents(3)])
def test_too_few_documents_hold_out_the_end_of_one(corpus: list[Document]) -> None:
    rule = choose_heldout(survey_corpus(corpus), 0.01)
    assert held(rule, corpus) == []
    shares = {document: rule.share(document_hash(document.text)) for document in corpus}
    assert sorted(shares.values())[:-1] == [0.0] * (len(shares) - 1)
    assert max(shares.values()) == pytest.approx(0.02 * len(shares))


def test_the_order_does_not_matter() -> None:
    corpus = documents(500)
    shuffled = Random(0).sample(corpus, len(corpus))
    one, other = survey_corpus(corpus, sample_characters=5000), survey_corpus(shuffled, sample_characters=5000)
    assert one.sample == other.sample
    assert choose_heldout(one, 0.02) == choose_heldout(other, 0.02)


def test_the_sample_is_bounded_and_from_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SAMPLE_PIECE", 30)
    sample = survey_corpus(documents(1000), sample_characters=3000).sample
    assert 3000 <= sum(map(len, sample)) < 3030
    assert any(piece.startswith("x") for piece in sample), "later pieces of documents too"
    assert len({piece.split()[0] for piece in sample if not piece.startswith("x")}) > 20
    assert survey_corpus(documents(10), sample_characters=0).sample == []


def test_the_sample_is_not_the_held_out_part() -> None:
    corpus = documents(1000)
    survey_of_all = survey_corpus(corpus, sample_characters=5000)
    texts = {document.text for document in held(choose_heldout(survey_of_all, 0.05), corpus)}
    sampled = set(survey_of_all.sample)
    assert len(texts) >= 40 and len(sampled) >= 40 and len(texts & sampled) < 15


def test_a_small_corpus_is_sampled_whole() -> None:
    corpus = documents(10)
    assert sorted(survey_corpus(corpus).sample) == sorted(document.text for document in corpus)


def test_the_survey_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SURVEY_CHARACTERS", 1000)
    seen = survey_corpus([Reject("a", 7, "broken"), *documents(50)])
    assert not seen.complete and seen.documents == 10
    assert seen.first_reject == "a, line 7: broken"
    assert survey_corpus(documents(10)).complete


def test_the_progress_of_reading_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    items = [Document("a" * 4_000_000, "a.txt", 1), Reject("a.txt", 2, "the line is too long")] * 6
    assert list(_log_progress(items)) == items
    assert [record.progress for record in caplog.records] == [(12_000_000, None), (24_000_000, None)]  # type: ignore[attr-defined]
