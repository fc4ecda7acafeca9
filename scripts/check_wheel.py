"""Check what the wheel and the sdist contain, and try the wheel in an empty environment: `make dist`.

    python scripts/check_wheel.py DIST

The environment has the wheel and its core dependencies, but no extra. There, the commands
in WORKING must work, and commands that need an extra must name it. This takes about a minute.
"""

import os
import pydoc_data.topics
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE_FILES = (".py", ".toml", ".jinja", ".html", ".js", "py.typed")
PROJECT_FILES = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}

WORKING = [
    "prepare texts.txt --out DATA --vocabulary-size 1000",
    "pretrain electra-nano --data DATA --out RUN --train.steps 20",
    "score RUN --json text",
    "score wiki-tiny text",
    "export RUN --out EXPORT",
    "status RUN",
    "report RUN",
    "flops electra-small",
    "finetune RUN --kind classification --data labels.csv --out TASK --train.epochs 1",
    "predict TASK text",
]
"""Commands that need no extra; each may read the results of earlier ones."""
REFUSED = {
    "serve RUN": "serve",
    "export RUN --to onnx --out ONNX": "onnx",
    "prepare texts.txt --language en --out OTHER": "language",
    "prepare hub:someone/texts --out OTHER": "hub",
    "data fetch s3://bucket/data --out OTHER": "remote",
    "analyze rescore RUN --data texts.txt": "speech",
}
"""Commands that need an extra, and its name."""


def main() -> None:
    (dist,) = map(Path, sys.argv[1:])
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_files(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        electra = install(wheel, Path(folder, "environment"))
        work = Path(folder, "work")
        work.mkdir()
        (work / "texts.txt").write_text("\n\n".join(pydoc_data.topics.topics.values()), encoding="utf-8")
        (work / "labels.csv").write_text(
            "text,label\n" + 20 * "a good text,yes\na bad text,no\n", encoding="utf-8"
        )
        for command in WORKING:
            status, output = run(electra, command, work)
            if status:
                sys.exit(f"electra {command}: exit status {status}\n{output}")
            print(f"electra {command}: works", flush=True)
        for command, extra in REFUSED.items():
            status, output = run(electra, command, work)
            if status != 2 or f'pip install "electra[{extra}]"' not in output:
                sys.exit(f"electra {command}: does not name the extra {extra}\n{output}")
            print(f"electra {command}: names the extra {extra}", flush=True)


def check_files(wheel: Path, sdist: Path) -> None:
    """Compare the files of both with those of src/electra and models: the same ones, and nothing else."""
    source = ROOT / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "electra").rglob("*")
        if path.name.endswith(PACKAGE_FILES)
    }
    in_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.partition("/")[2] for member in archive if member.isfile()}
    listed = subprocess.run(["git", "ls-files", "models"], cwd=ROOT, check=True, capture_output=True, text=True)
    models = set(listed.stdout.split())
    compare(wheel, in_wheel, expected | {f"electra/{name}" for name in models})
    compare(sdist, in_sdist, {f"src/{name}" for name in expected} | models | PROJECT_FILES)


def compare(archive: Path, names: set[str], expected: set[str]) -> None:
    if names != expected:
        sys.exit(
            f"{archive.name} lacks {sorted(expected - names)[:5]}, and should not have "
            f"{sorted(names - expected)[:5]}; see [tool.hatch.build] in pyproject.toml"
        )
    print(f"{archive.name}: {len(names)} files", flush=True)


def install(wheel: Path, environment: Path) -> Path:
    """Make an environment with the wheel and its core dependencies; return the path of its `electra`."""
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = [environment / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", wheel], check=True)
    return environment / "bin/electra"


def run(electra: Path, command: str, folder: Path) -> tuple[int, str]:
    """Run a command outside the repository; return its exit status and its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [electra, *command.split()],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    return done.returncode, done.stdout.decode()


if __name__ == "__main__":
    main()
