"""Tags of the vocabulary, from treebanks or from a tagger."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from small_corpus import config, write_corpus

from electra.commands.data.tags import TagsConfig, run
from electra.config import check
from electra.data.shards import TokenData
from electra.data.tags import TagTable
from electra.data.tokenizer import load_tokenizer
from electra.errors import ConfigError
from electra.preparation import document_batches, token_tags
from electra.preparation.run import prepare

WORDS = [("the", "DET"), ("fox", "NOUN"), ("follows", "VERB"), ("the", "DET"), ("road", "NOUN"), (".", "PUNCT")]


def treebank(path: Path) -> Path:
    lines = [f"{i}\t{word}\t_\t{tag}\t" + "\t".join("_" * 6) for i, (word, tag) in enumerate(WORDS, start=1)]
    path.write_text("\n".join(lines) + "\n\n")
    return path


def test_a_treebank_tags_the_vocabulary(data_folder: Path, tmp_path: Path) -> None:
    before = {path.name for path in data_folder.iterdir()}
    try:
        result = run(TagsConfig(data_folder, conllu=(treebank(tmp_path / "a.conllu"),)))
        table = TagTable.read(data_folder)
    finally:
        (data_folder / "tags.json").unlink(missing_ok=True)
    assert table is not None and table.names == ("?", "DET", "NOUN", "PUNCT", "VERB")
    tokenizer = load_tokenizer(TokenData.open(data_folder, verify=False).tokenizer_path)
    for word, tag in WORDS:
        [token, *others] = tokenizer.encode(word, add_special_tokens=False).ids
        assert others or table.names[table.tags_V[token]] == tag
    (console := Console(width=100, record=True)).print(result)
    assert "a tag is known for" in (shown := console.export_text()) and "DET" in shown
    assert {path.name for path in data_folder.iterdir()} == before


def test_one_shard_gives_all_sentences_that_a_tagger_reads(data_folder: Path) -> None:
    data = TokenData.open(data_folder, verify=False)
    assert len(data.train.shards) == 1 and len(token_tags._read_words(data, 9)) == 9


def test_a_tagger_reads_sentences_of_every_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[list[str]] = []

    class Tagger:
        problem = SimpleNamespace(reads_words=True)

        def __init__(self, model: str, device: str) -> None: ...

        def __call__(self, sentences: list[list[str]]) -> list[dict[str, list[str]]]:
            read.extend(sentences)
            return [{"tags": ["NOUN"] * len(words)} for words in sentences]

    monkeypatch.setattr(document_batches, "BATCH_ITEMS", 8)
    monkeypatch.setattr(token_tags, "Predictor", Tagger)
    prepare(config(write_corpus(tmp_path / "a.jsonl", 24), tmp_path / "data", shard_tokens=400))
    data = TokenData.open(tmp_path / "data")
    shards, tokenizer = data.train.shards, load_tokenizer(data.tokenizer_path)
    assert len(shards) == 3
    token_tags.tag_vocabulary(data, tagger="tagger", sentences=2 * len(shards))
    texts = [tokenizer.decode(shard.tokens[: shard.sentence_ends[1]].tolist()) for shard in shards]
    assert "".join(map("".join, read)) == "".join(texts).replace(" ", "")


@pytest.mark.parametrize("options", [{}, {"conllu": (Path("a"),), "tagger": "b"}])
def test_one_source_of_tags_is_needed(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either --conllu FILE or --tagger FOLDER"):
        check(TagsConfig(tmp_path, **options))  # type: ignore[arg-type]
