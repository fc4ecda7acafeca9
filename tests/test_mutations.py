"""The list of planted errors fits the sources, and `make mutate` tells errors that are caught from others."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def mutate() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "scripts" / "mutate.py")
    assert spec and spec.loader
    module = sys.modules["mutate"] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    module.PRELOADED = ()
    yield module
    del sys.modules["mutate"]


def test_every_text_occurs_once_and_every_test_exists(mutate: ModuleType) -> None:
    for mutation in mutate.read_mutations(ROOT):
        content = (ROOT / mutation.file).read_text(encoding="utf-8")
        assert mutation.planted(ROOT) != content, mutation.name
        compile(mutation.planted(ROOT), mutation.file, "exec")
        assert mutation.tests, mutation.name
        for test in mutation.tests:
            file, _, function = test.partition("::")
            assert not function or f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), test
            assert (ROOT / file).is_file(), test


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose tests catch one of its two planted errors."""
    files = {
        "src/numbers_of_electra.py": "def double(x):\n    return 2 * x\n\ndef half(x):\n    return x / 2\n",
        "tests/test_numbers.py": (
            "from numbers_of_electra import double, half\n\ndef test_double():\n    assert double(3) == 6\n"
        ),
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n',
        "tests/mutations/numbers.toml": "".join(
            f'[{name}]\nfile = "src/numbers_of_electra.py"\ntext = "{text}"\nreplacement = "{other}"\n'
            'tests = ["tests/test_numbers.py"]\n'
            for name, text, other in (("doubled", "2 * x", "3 * x"), ("halved", "x / 2", "x / 3"))
        ),
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "models").mkdir()
    return tmp_path


def test_caught_errors_are_told_from_others(
    mutate: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (project / "src/numbers_of_electra.py").read_bytes()
    caught = mutate.run(mutate.read_mutations(project), root=project)
    assert caught == {"doubled": "tests/test_numbers.py::test_double", "halved": None}
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("doubled: caught by tests/test_numbers.py::test_double")
    assert second.startswith("halved: NOT CAUGHT")
    assert (project / "src/numbers_of_electra.py").read_bytes() == before
    (page := project / "page.md").write_text(f"# Errors\n\n{mutate.BEGIN}\nold\n{mutate.END}\n\nThe end.\n")
    mutate.write_page(page, mutate.read_mutations(project), caught)
    text = page.read_text()
    assert text.startswith("# Errors\n") and text.endswith(f"{mutate.END}\n\nThe end.\n") and "old" not in text
    assert "1 of 2 planted errors are caught (50%)" in text
    assert "| doubled | `src/numbers_of_electra.py` | `tests/test_numbers.py::test_double` |" in text
    assert "| halved | `src/numbers_of_electra.py` | **not caught** |" in text


def test_a_list_that_does_not_fit_is_refused(mutate: ModuleType, project: Path) -> None:
    mutations = mutate.read_mutations(project)
    assert [one.name for one in mutate.select(mutations, ["halved"])] == ["halved"]
    with pytest.raises(mutate.MutationError, match=r"has no 'third'; it has doubled, halved"):
        mutate.select(mutations, ["third"])
    source = project / "src/numbers_of_electra.py"
    source.write_text(source.read_text() + "\ndef quarter(x):\n    return x / 2 / 2\n")
    with pytest.raises(mutate.MutationError, match=r"halved: its text occurs 2 times in src/numbers"):
        mutate.run(mutations, root=project)


def test_a_test_that_fails_anyway_is_named(mutate: ModuleType, project: Path) -> None:
    test = project / "tests/test_numbers.py"
    test.write_text(test.read_text() + "    assert half(4) == 3\n")
    with pytest.raises(mutate.MutationError, match=r"test_numbers\.py::test_double fails without a planted error"):
        mutate.run(mutate.read_mutations(project), root=project)
