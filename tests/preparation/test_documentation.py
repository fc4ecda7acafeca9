"""The corpus of documentation, collected from a few small packages instead of the installed ones."""

import json
import logging
from importlib import metadata
from pathlib import Path

import pytest

from electra.errors import DataError
from electra.preparation import documentation
from electra.preparation.documentation import Documentation, Source, collect_documentation

SENTENCE = "This is sentence {} of the module {}, and it tells what the module is there for in plain words."
NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


def module(name: str, *more: str) -> str:
    body = "\n\n".join([*(SENTENCE.format(number, name) for number in NUMBERS), *more])
    function = f'def function():\n    """Return the value that the {name} function is called for."""\n'
    return f'"""{body}\n"""\n\n\n{function}'


def source(root: Path, name: str, files: dict[str, str], **more: tuple[tuple[str, str], ...]) -> Source:
    for file, text in files.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    return Source(name, "1.0", "MIT", root, tuple(files), **more)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """Two packages, a topic; the cache is in `tmp_path / "cache"`."""
    shared = "This very sentence stands in both of the packages and is long enough to count."
    actual = [
        source(
            tmp_path / "site",
            "first",
            {
                "first/apple.py": module("apple", shared),
                "first/short.py": '"""Too short to be a document of its own."""',
            },
            texts=(("topic truth", " ".join(SENTENCE.format(number, "truth") for number in NUMBERS)),),
        ),
        source(
            tmp_path / "site",
            "second",
            {"second/berry.py": module("berry", shared), "second/copy.py": module("apple"), "second/latin.py": ""},
        ),
    ]
    (tmp_path / "site/second/latin.py").write_bytes(b'"""caf\xe9"""')
    monkeypatch.setattr(documentation, "find_sources", lambda: actual)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return actual


def read(collected: Documentation) -> list[dict[str, str]]:
    return [json.loads(line) for line in collected.path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.usefixtures("packages")
def test_a_user_without_a_home_has_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", none)
    for _ in range(2):
        collected = collect_documentation(tmp_path / "out" / "documentation.jsonl")
        assert not collected.cached and len(read(collected)) == 3


@pytest.mark.usefixtures("packages")
def test_one_document_per_module_in_order_without_duplicates(tmp_path: Path) -> None:
    collected = collect_documentation(tmp_path / "out" / "documentation.jsonl")
    documents = read(collected)

    assert [item["id"] for item in documents] == [
        "first:first/apple.py",
        "first:topic truth",
        "second:second/berry.py",
    ]
    lines = documents[0]["text"].split("\n")
    assert lines[0] == SENTENCE.format("one", "apple")
    assert lines[-1] == "Return the value that the apple function is called for."
    assert "This very sentence" in documents[0]["text"]
    assert "This very sentence" not in documents[2]["text"]
    assert collected.documents == 3
    assert collected.words == sum(len(item["text"].split()) for item in documents)
    assert not collected.cached


@pytest.mark.usefixtures("packages")
def test_licenses_name_every_source_of_the_text(tmp_path: Path) -> None:
    collected = collect_documentation(tmp_path / "documentation.jsonl")
    record = json.loads(collected.licenses.read_text(encoding="utf-8"))

    assert collected.licenses == tmp_path / "documentation.licences.json"
    assert [(item["name"], item["version"], item["licence"]) for item in record["sources"]] == [
        ("first", "1.0", "MIT"),
        ("second", "1.0", "MIT"),
    ]
    assert sum(item["words"] for item in record["sources"]) == record["words"] == collected.words
    assert sum(item["documents"] for item in record["sources"]) == 3


def test_the_second_time_it_comes_from_the_cache(tmp_path: Path, packages: list[Source]) -> None:
    first = collect_documentation(tmp_path / "a.jsonl")
    packages.clear()  # without the cache there would be no text
    second = collect_documentation(tmp_path / "b.jsonl")

    assert second.cached
    assert (second.words, second.documents) == (first.words, first.documents)
    assert second.path.read_bytes() == first.path.read_bytes()
    assert second.licenses.read_bytes() == first.licenses.read_bytes()
    assert "from the cache" in str(second)


@pytest.mark.usefixtures("packages")
def test_a_damaged_cache_is_replaced_and_the_text_is_the_same(tmp_path: Path) -> None:
    first = collect_documentation(tmp_path / "a.jsonl")
    (kept,) = (tmp_path / "cache" / "electra").glob("documentation-*/documentation.jsonl")
    kept.write_bytes(kept.read_bytes()[:100])
    second = collect_documentation(tmp_path / "b.jsonl")

    assert not second.cached
    assert second.path.read_bytes() == first.path.read_bytes() == kept.read_bytes()
    assert len(list((tmp_path / "cache" / "electra").iterdir())) == 1


@pytest.mark.usefixtures("packages")
def test_the_progress_ends_at_its_total_if_there_are_fewer_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        collected = collect_documentation(tmp_path / "a.jsonl")
    *_, last = [record.progress for record in caplog.records if hasattr(record, "progress")]
    assert last == (collected.words, collected.words)


@pytest.mark.usefixtures("packages")
def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING):
        assert collect_documentation(tmp_path / "a.jsonl").documents == 3
    assert "cannot be cached" in caplog.text


@pytest.mark.usefixtures("packages")
def test_it_stops_at_the_number_of_words(tmp_path: Path) -> None:
    assert [item["id"] for item in read(collect_documentation(tmp_path / "a.jsonl", words=10))] == [
        "first:first/apple.py"
    ]
    assert len(read(collect_documentation(tmp_path / "a.jsonl", words=200))) == 2, (
        "another size is another entry of the cache"
    )


def test_nothing_found_is_an_error_and_leaves_no_file(tmp_path: Path, packages: list[Source]) -> None:
    packages.clear()
    with pytest.raises(DataError, match="your own corpus"):
        collect_documentation(tmp_path / "out" / "a.jsonl")
    assert list((tmp_path / "out").iterdir()) == []


def distribution(site: Path, name: str, header: str, files: list[str]) -> None:
    folder = site / f"{name}-2.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name}\nVersion: 2.0\n{header}\n\nThe long description.\n", encoding="utf-8"
    )
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in files), encoding="utf-8")
    for file in files:
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).touch()


def test_installed_distributions_give_sources_license_and_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        "b/z.py",
        "b/a.pyx",
        "b/tests/test_a.py",
        "b/conftest.py",
        "b/x_pb2.py",
        "b/data.txt",
        "b/vendor/licenses.py",
        "b/contest.py",
    ]
    distribution(tmp_path, "bee", "License-Expression: MIT", files)
    distribution(tmp_path, "ant", "License: long\nClassifier: License :: OSI Approved :: BSD License", [])
    distribution(tmp_path, "Cat", "License: Own licence", [])
    distribution(tmp_path, "dog", "Summary: nothing said", [])
    distribution(tmp_path, "electra", "License: Apache-2.0", ["electra/cli.py"])
    actual = list(metadata.distributions(path=[str(tmp_path)]))
    monkeypatch.setattr(metadata, "distributions", lambda: actual)

    python, *sources = documentation.find_sources()

    assert [(item.name, item.version, item.license) for item in sources] == [
        ("ant", "2.0", "BSD License"),
        ("bee", "2.0", "MIT"),
        ("Cat", "2.0", "Own licence"),
        ("dog", "2.0", "not stated"),
    ]
    assert sources[1].files == ("b/a.pyx", "b/contest.py", "b/z.py")
    assert sources[1].root == tmp_path
    assert sources[1].texts[0][1].strip() == "The long description."
    assert {"json/decoder.py", "textwrap.py"} <= set(python.files)
    assert not any(name.startswith(("test/", "site-packages/")) or "/test/" in name for name in python.files)
    assert "topic assert" in dict(python.texts)


def test_the_cache_key_changes_with_the_installed_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    before = documentation.fingerprint(10)
    assert documentation.fingerprint(10) == before != documentation.fingerprint(11)
    monkeypatch.setattr(metadata, "distributions", list)
    assert documentation.fingerprint(10) != before
