"""Plant the errors of tests/mutations.toml, one at a time, and see whether the named tests fail: `make mutate`.

    python scripts/mutate.py [NAME ...]

Each error is planted in a copy of src; the working tree stays as it is. The named tests first run without an
error, because a test that fails anyway would prove nothing. The exit status is 1 if an error is not caught.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = "tests/mutations.toml"
ALL_PASSED, SOME_FAILED = 0, 1
"""Exit statuses of pytest; with another one it could not run the tests."""


class MutationError(Exception):
    """The list does not fit the sources, or the tests cannot be run."""


@dataclass(frozen=True)
class Mutation:
    """A planted error.

    Attributes:
        file: the file with the error, relative to the root.
        text: a text that occurs in it exactly once.
        replacement: what the error puts in its place.
        tests: test files, or `FILE::FUNCTION`, of which at least one must fail.
    """

    name: str
    file: str
    text: str
    replacement: str
    tests: tuple[str, ...]

    def planted(self, root: Path) -> str:
        """The content of the file with the error.

        Raises:
            MutationError: the text does not occur exactly once.
        """
        content = (root / self.file).read_text(encoding="utf-8")
        if (count := content.count(self.text)) != 1:
            raise MutationError(
                f"{LIST}: {self.name}: its text occurs {count} times in {self.file}, and must occur once; correct "
                "the text"
            )
        return content.replace(self.text, self.replacement)


def read_mutations(root: Path) -> list[Mutation]:
    """Read the list; each entry is a table with the name of the error."""
    entries = tomllib.loads((root / LIST).read_text(encoding="utf-8"))
    return [Mutation(name, **{**entry, "tests": tuple(entry["tests"])}) for name, entry in entries.items()]


def select(mutations: Sequence[Mutation], names: Sequence[str]) -> list[Mutation]:
    """The mutations with these names, or all of them if no name is given.

    Raises:
        MutationError: there is no mutation of a name.
    """
    by_name = {mutation.name: mutation for mutation in mutations}
    if unknown := [name for name in names if name not in by_name]:
        raise MutationError(f"{LIST} has no {unknown[0]!r}; it has {', '.join(by_name)}")
    return [by_name[name] for name in names] or list(mutations)


def failed_test(tests: Sequence[str], source: Path, *, root: Path) -> str | None:
    """Run test files with the package of a source folder; return the first test that fails. None: all pass.

    Raises:
        MutationError: pytest cannot run the tests.
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    folders = settings["tool"]["pytest"]["ini_options"]["pythonpath"]
    paths = [source if folder == "src" else root / folder for folder in folders]
    options = ["-q", "-rfE", "-x", "-p", "no:cacheprovider", "-o", f"pythonpath={' '.join(map(str, paths))}"]
    environment = {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",  # two contents of a file could have the same size and time
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they load slowly
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=root,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode not in (ALL_PASSED, SOME_FAILED):
        raise MutationError(f"pytest cannot run {' '.join(tests)}:\n{done.stdout[-2000:]}")
    if done.returncode == ALL_PASSED:
        return None
    summary = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return summary[0].split()[1] if summary else tests[0]


def run(mutations: Sequence[Mutation], *, root: Path) -> int:
    """Plant the mutations one by one, and print a line for each; return the number of those that were caught.

    Raises:
        MutationError: the list does not fit the sources, or a named test fails without an error.
    """
    planted = [mutation.planted(root) for mutation in mutations]  # all are checked before anything runs
    caught = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(root / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("models", "pyproject.toml"):  # the package finds its included models beside src
            Path(folder, name).symlink_to(root / name)
        tests = sorted({test for mutation in mutations for test in mutation.tests})
        if failed := failed_test(tests, source, root=root):
            raise MutationError(f"{failed} fails without a planted error; correct it first")
        for mutation, content in zip(mutations, planted, strict=True):
            file = Path(folder, mutation.file)
            original, start = file.read_bytes(), time.monotonic()
            file.write_text(content, encoding="utf-8")
            failed = failed_test(mutation.tests, source, root=root)
            file.write_bytes(original)
            caught += failed is not None
            verdict = f"caught by {failed}" if failed else "NOT CAUGHT"
            print(f"{mutation.name}: {verdict} ({time.monotonic() - start:.0f} s)", flush=True)
    return caught


def main() -> None:
    try:
        mutations = select(read_mutations(ROOT), sys.argv[1:])
        caught = run(mutations, root=ROOT)
    except MutationError as error:
        sys.exit(str(error))
    print(f"{caught} of {len(mutations)} planted errors are caught ({caught / len(mutations):.0%})")
    sys.exit(caught < len(mutations))


if __name__ == "__main__":
    main()
