"""Tags of the vocabulary, from treebanks."""

from pathlib import Path

import pytest
from rich.console import Console

from electra.commands.data.tags import TagsConfig, run
from electra.config import check
from electra.data.shards import TokenData
from electra.data.tags import TagTable
from electra.data.tokenizer import load_tokenizer
from electra.errors import ConfigError

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


@pytest.mark.parametrize("options", [{}, {"conllu": (Path("a"),), "tagger": "b"}])
def test_one_source_of_tags_is_needed(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either --conllu FILE or --tagger FOLDER"):
        check(TagsConfig(tmp_path, **options))  # type: ignore[arg-type]
