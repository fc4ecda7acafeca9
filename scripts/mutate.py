"""Plant the errors of tests/mutations/, one at a time, and see whether the named tests fail: `make mutate`.

    python scripts/mutate.py [NAME ...]

Each error is planted in a copy of src; the working tree stays as it is. The named tests first run without an
error, because a test that fails anyway would prove nothing. A run of all errors writes its verdicts into
docs/results/planted-errors.md. The exit status is 1 if an error is not caught.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = "tests/mutations"
"""A file for each package."""
PAGE = ROOT / "docs/results/planted-errors.md"
BEGIN, END = "<!-- make mutate: begin -->", "<!-- make mutate: end -->"
ALL_PASSED, SOME_FAILED = 0, 1
"""Exit statuses of pytest; with another one it could not run the tests."""
PRELOADED = ("torch._dynamo", "scipy.stats", "sklearn.metrics", "safetensors.torch", "tokenizers")
"""Modules that tests need and that load slowly; the first optimizer of a process needs the first one."""
LIMIT = 120
"""Seconds for one test, since an error can make a loop endless."""


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
    """Read the lists; each entry is a table with the name of the error.

    Raises:
        MutationError: two errors have the same name.
    """
    mutations: dict[str, Mutation] = {}
    for path in sorted((root / LIST).glob("*.toml")):
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if name in mutations:
                raise MutationError(f"{path}: there are two errors with the name {name!r}; rename one")
            mutations[name] = Mutation(name, **{**entry, "tests": tuple(entry["tests"])})
    return list(mutations.values())


def select(mutations: Sequence[Mutation], names: Sequence[str]) -> list[Mutation]:
    """The mutations with these names, or all of them if no name is given.

    Raises:
        MutationError: there is no mutation of a name.
    """
    by_name = {mutation.name: mutation for mutation in mutations}
    if unknown := [name for name in names if name not in by_name]:
        raise MutationError(f"{LIST} has no {unknown[0]!r}; it has {', '.join(by_name)}")
    return [by_name[name] for name in names] or list(mutations)


class PytestServer:
    """Runs pytest with the package of a source folder, in processes that start quickly (pytest_server.py)."""

    def __init__(self, source: Path, *, root: Path) -> None:
        self.source, self.root = source, root
        command = [sys.executable, str(Path(__file__).with_name("pytest_server.py")), *PRELOADED]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> "PytestServer":
        return self

    def __exit__(self, *error: object) -> None:
        self.server.communicate()

    def __call__(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Return the exit status and what pytest printed."""
        assert self.server.stdin and self.server.stdout
        environment = {
            "PYTHONPATH": str(self.source),
            "PYTHONDONTWRITEBYTECODE": "1",  # two contents of a file could have the same size and time
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # they load slowly
        }
        with tempfile.NamedTemporaryFile("r") as output:
            order = {"folder": str(self.root), "environment": environment, "output": output.name}
            print(json.dumps({**order, "arguments": list(arguments)}), file=self.server.stdin, flush=True)
            return int(self.server.stdout.readline()), output.read()


def failed_test(tests: Sequence[str], pytest: PytestServer) -> str | None:
    """Run test files; return the first test that fails. None: all pass.

    Raises:
        MutationError: pytest cannot run the tests.
    """
    root, source = pytest.root, pytest.source
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    folders = settings["tool"]["pytest"]["ini_options"]["pythonpath"]
    paths = [source if folder == "src" else root / folder for folder in folders]
    options = ["-q", "-rfE", "-x", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-o", f"timeout={LIMIT}"]
    status, printed = pytest([*options, "-o", f"pythonpath={' '.join(map(str, paths))}", *tests])
    if status not in (ALL_PASSED, SOME_FAILED):
        raise MutationError(f"pytest cannot run {' '.join(tests)}:\n{printed[-2000:]}")
    if status == ALL_PASSED:
        return None
    failures = [line for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failures[0].split()[1] if failures else tests[0]


def run(mutations: Sequence[Mutation], *, root: Path) -> dict[str, str | None]:
    """Plant the mutations one by one, and print a line for each; return the test that caught each, or None.

    Raises:
        MutationError: the list does not fit the sources, or a named test fails without an error.
    """
    planted = [mutation.planted(root) for mutation in mutations]  # all are checked before anything runs
    caught: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(root / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("models", "pyproject.toml"):  # the package finds its included models beside src
            Path(folder, name).symlink_to(root / name)
        with PytestServer(source, root=root) as pytest:
            tests = sorted({test for mutation in mutations for test in mutation.tests})
            if failed := failed_test(tests, pytest):
                raise MutationError(f"{failed} fails without a planted error; correct it first")
            for mutation, content in zip(mutations, planted, strict=True):
                file = Path(folder, mutation.file)
                original, start = file.read_bytes(), time.monotonic()
                file.write_text(content, encoding="utf-8")
                caught[mutation.name] = failed = failed_test(mutation.tests, pytest)
                file.write_bytes(original)
                verdict = f"caught by {failed}" if failed else "NOT CAUGHT"
                print(f"{mutation.name}: {verdict} ({time.monotonic() - start:.0f} s)", flush=True)
    return caught


def summary(caught: Mapping[str, str | None]) -> str:
    """The number of errors, and of those that are caught."""
    count = sum(test is not None for test in caught.values())
    return f"{count} of {len(caught)} planted errors are caught ({count / len(caught):.0%})"


def write_page(page: Path, mutations: Sequence[Mutation], caught: Mapping[str, str | None]) -> None:
    """Replace the table between the two marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = []
    for one in mutations:
        test = caught[one.name]
        verdict = "**not caught**" if test is None else f"`{test.partition('[')[0]}`"
        lines.append(f"| {one.name.replace('-', ' ')} | `{one.file.removeprefix('src/electra/')}` | {verdict} |")
    table = "\n".join(["| Error | File | Caught by |", "| --- | --- | --- |", *lines])
    page.write_text(f"{before}{BEGIN}\n\n{summary(caught)}.\n\n{table}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    names = sys.argv[1:]
    try:
        mutations = select(read_mutations(ROOT), names)
        caught = run(mutations, root=ROOT)
    except MutationError as error:
        sys.exit(str(error))
    print(summary(caught))
    if not names:
        write_page(PAGE, mutations, caught)
    sys.exit(None in caught.values())


if __name__ == "__main__":
    main()
