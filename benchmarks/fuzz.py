"""Damaged input in bulk: files of every kind that electra reads, damaged at random.

    python benchmarks/fuzz.py [--inputs 10000] [--seed 0] [--seconds 60] [--only NAME]
        [--json FILE] [--keep FOLDER]

Each input is a valid file (all are generated here) that is damaged in one to four places: bytes are flipped, cut
out, repeated or inserted, the end is cut off, words are replaced by others of the file or by ones that break
parsers. Checksums are then corrected, so that the code behind them is reached. The file must be read, or be
refused by an `ElectraError` with a message, within `--seconds` and with at most 200 MiB of additional memory.

Exit status 1 if anything else happened; `--keep` keeps those inputs.
"""

import argparse
import gzip
import hashlib
import json
import logging
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import zstandard

from electra.config import load_config, to_toml
from electra.data.example_index import read_index, write_index
from electra.data.examples import ExampleSet
from electra.data.packing import PackingConfig
from electra.data.shards import TokenData
from electra.data.tokenizer import describe_tokenizer, load_tokenizer
from electra.errors import ElectraError
from electra.export.loading import load_pretrained
from electra.finetuning.config import load_task_config
from electra.finetuning.load_task import load_task
from electra.preparation.config import PrepareConfig
from electra.preparation.corpus import find_sources
from electra.preparation.run import prepare
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.pretraining.run_status import read_run_status
from electra.reports.sections import build_sections
from electra.reports.study import read_study
from electra.studies.config import load_study
from electra.training.checkpoint import read_checkpoint

MEMORY = 200 << 20
SETTINGS = (
    "model.hidden_size=32", "model.embedding_size=32", "model.feed_forward_size=64", "model.heads=2",
    "model.layers=1", "generator.layers=1", "generator.hidden_size=16", "generator.feed_forward_size=32",
    "packing.sequence_length=32", "train.batch_size=8", "train.report_every=2", "train.precision=float32",
    "optimizer.warmup_steps=2", "evaluation.examples=16", "tracking.tensorboard=false", "train.steps=4",
)  # fmt: skip
NASTY = [
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"NaN", b"Infinity", b"-1", b"1e999", b"99999999999999999999",
    b"null", b"true", b"{}", b"[]", b'""', b"[" * 2000, b'{"a":' * 500, b"../../../etc/passwd", b"/dev/zero",
    b"\r\n", b"\t\t\t", b'"', b"'", b"=", b"\\ud800", "\u202e\u0000é".encode(), b"a" * 70000, b"0.0",
    b"4294967297",
]  # fmt: skip
WORDS = """
    ferry harbour island baker coffee timetable seven noon leaves comes back waits reads wall lamp rope
""".split()  # noqa: SIM905 (read more easily than a list of strings)


@dataclass(frozen=True)
class Target:
    """One kind of file.

    Attributes:
        file: the file in a folder that is broken.
        read: reads the folder.
        repaired: makes the checksums of a folder fit again.
        memory: bytes that reading may take.
    """

    name: str
    folder: Path
    file: str
    read: Callable[[Path], object]
    repaired: Callable[[Path], None] = lambda _: None
    memory: int = MEMORY


def damage(content: bytes, draw: random.Random) -> bytes:
    """The same content, damaged in some places."""
    for _ in range(draw.randint(1, 4)):
        size = len(content)
        at, end = sorted((draw.randint(0, size), draw.randint(0, size)))
        end = min(end, at + draw.choice((1, 4, 64, 4096)))
        match draw.randrange(8):
            case 0 if size:
                place = draw.randrange(size)
                content = content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]
            case 1:
                content = content[:at] + content[end:]
            case 2:
                content = content[:end] + content[at:end] + content[end:]
            case 3:
                content = content[:at] + draw.choice(NASTY) + content[at:]
            case 4:
                content = content[:at]
            case 5:
                content = content[:at] + draw.randbytes(end - at) + content[end:]
            case _:
                content = _exchange_word(content, draw)
    return content


def _exchange_word(content: bytes, draw: random.Random) -> bytes:
    """Replace one word or number by another, or by one that breaks parsers."""
    words = [word for word in content[:200_000].replace(b'"', b" ").replace(b",", b" ").split() if len(word) < 100]
    if not words:
        return content
    old = draw.choice(words)
    return content.replace(old, draw.choice((draw.choice(words), draw.choice(NASTY))), draw.choice((1, 1, -1)))


def targets(folder: Path) -> Iterator[Target]:
    """Valid files of every kind, and the function that reads each."""
    draw = random.Random(0)

    def text(words: int = 9) -> str:
        return " ".join(draw.choices(WORDS, k=words)).capitalize() + "."

    corpora = folder / "corpora"
    yield from _corpora(corpora, [" ".join(text() for _ in range(6)) for _ in range(120)])
    data, run = folder / "data", folder / "run"
    prepare(PrepareConfig(corpus=(str(corpora / "a.jsonl"),), out=data, vocabulary_size=512, workers=1))
    pretrain(load_config(PretrainConfig, "electra-tiny", [*SETTINGS, f"data={data}", f"out={run}"]))
    yield Target("manifest", data, "manifest.json", _examples, _manifest)
    for kind in ("tokens", "sentences", "documents"):
        yield Target(f"shard {kind}", data, f"train-00000.{kind}", _examples, _manifest)
    yield Target("unigram counts", data, "unigram.npy", _examples, _manifest)
    yield Target("tokenizer.json", data, "tokenizer.json", lambda path: _tokenizer(path / "tokenizer.json"))
    (vocabulary := folder / "vocabulary").mkdir()
    entries = load_tokenizer(data / "tokenizer.json").get_vocab()
    (vocabulary / "vocab.txt").write_text("\n".join(sorted(entries, key=lambda one: entries[one])))
    yield Target("vocab.txt", vocabulary, "vocab.txt", lambda path: _tokenizer(path / "vocab.txt"))

    (index := folder / "index").mkdir()
    opened, packing = TokenData.open(data), PackingConfig(sequence_length=32)
    write_index(index, opened.train, packing, seed=0, data="x")
    yield Target("index.json", index, "index.json", lambda path: read_index(path, packing, seed=0, data="x"))

    (presets := folder / "presets").mkdir()
    config = load_config(PretrainConfig, "electra-tiny", ["train.steps=10"])
    (presets / "run.toml").write_text(to_toml(config))
    yield Target("run.toml", presets, "run.toml", lambda path: load_config(PretrainConfig, path / "run.toml"))
    shipped = Path(__file__).parents[1] / "src/electra/presets/studies/generator-size.toml"
    shutil.copy(shipped, presets / "study.toml")
    yield Target("study.toml", presets, "study.toml", lambda path: load_study(str(path / "study.toml")))

    checkpoint = max((run / "checkpoints").glob("step-*"))
    for name in ("state.json", "model.safetensors", "optimizer.safetensors"):
        yield Target(f"checkpoint {name}", checkpoint, name, _checkpoint, _state)
    for name in ("metrics.jsonl", "config.toml", "environment.json", "ended.json"):
        yield Target(f"run {name}", run, name, lambda path: (read_run_status(path), build_sections([path])))
    export = run / "export" / "discriminator"
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        yield Target(f"model {name}", export, name, load_pretrained)

    yield from _tasks(folder, text)
    yield from _study(folder)


def _corpora(corpora: Path, texts: list[str]) -> Iterator[Target]:
    corpora.mkdir()
    (corpora / "a.txt").write_text("\n\n".join(texts))
    (corpora / "a.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": one}) + "\n" for i, one in enumerate(texts))
    )
    (corpora / "a.csv").write_text("id,text\n" + "".join(f'{i},"{one}"\n' for i, one in enumerate(texts)))
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), corpora / "a.parquet")
    for kind, packed in (("gz", gzip.compress), ("zst", zstandard.compress)):
        (corpora / f"a.jsonl.{kind}").write_bytes(packed((corpora / "a.jsonl").read_bytes()))
    for file in sorted(corpora.iterdir()):
        # A page of parquet says its own size, 2 GiB at most, and Arrow makes room for that.
        memory = (2 << 30) + MEMORY if file.suffix == ".parquet" else MEMORY
        yield Target(
            file.name, corpora, file.name, lambda path, name=file.name: _documents(path / name), memory=memory
        )  # fmt: skip


def _tasks(folder: Path, text: Callable[..., str]) -> Iterator[Target]:
    sentence = "the DT B-NP\nfox NN I-NP\nwatches VBZ B-VP\nthe DT B-NP\nmill NN I-NP\n. . O\n\n"
    (chunking := folder / "chunking").mkdir()
    for name in ("train.txt", "test.txt"):
        (chunking / name).write_text(sentence * 12)
    yield Target("CoNLL", chunking, "train.txt", lambda path: _task("chunking", path))
    (cola := folder / "CoLA").mkdir()
    for name in ("train", "dev"):
        (cola / f"{name}.tsv").write_text("".join(f"gj04\t{n % 2}\t*\t{text()}\n" for n in range(40)))
    yield Target("CoLA", cola, "train.tsv", lambda path: _task("cola", path))
    (similar := folder / "STS-B").mkdir()
    head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
    for name in ("train", "dev"):
        rows = (f"{n}\tg\tf\t2012\t{n}\ta\tb\t{text()}\t{text()}\t{n % 6}.0\n" for n in range(40))
        (similar / f"{name}.tsv").write_text(head + "".join(rows))
    yield Target("STS-B", similar, "train.tsv", lambda path: _task("sts-b", path))
    (squad := folder / "squad").mkdir()
    context = text(30)
    answer = context.split()[4]
    answers = [{"text": answer, "answer_start": context.index(answer)}]
    question = {"id": "1", "question": text(), "answers": answers}
    paragraphs = [{"context": context, "qas": [{**question, "id": str(n)}]} for n in range(12)]
    found = json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (squad / name).write_text(found)
    yield Target("SQuAD", squad, "train-v1.1.json", lambda path: _task("squad", path))
    (table := folder / "table").mkdir()
    for name in ("train", "dev"):
        (table / f"{name}.csv").write_text(
            "text,label\n" + "".join(f"{text()},{'ab'[n % 2]}\n" for n in range(40))
        )
    yield Target("own CSV", table, "train.csv", lambda path: _own(path))


def _study(folder: Path) -> Iterator[Target]:
    (study := folder / "study").mkdir()
    facts = {
        "study": "s", "title": "t", "base": "b", "control": "electra", "paper": "", "axis": "", "shares": [1.0],
        "reached": {}, "suite": ["a"], "tune": [], "flops": 1e9, "budget": 1.0, "data": "d",
        "precision": "float32",
        "arms": {"electra": {"says": "e", "control": "electra", "paper": 1.0, "line": "", "x": None}},
    }  # fmt: skip
    (study / "study.json").write_text(json.dumps(facts))
    result = {
        "arm": "electra", "share": 1.0, "seed": 0, "steps": 3, "failed": None, "tokens": 1, "flops": 1.0,
        "tasks": {"a": {"metric": "m", "values": [0.5], "failed": 0}}, "evaluation": {}, "reached": {},
        "blimp": None,
    }  # fmt: skip
    place = study / "runs/electra/1/seed-0/result.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(result))
    yield Target("study.json", study, "study.json", lambda path: read_study(path).tables())
    yield Target("result.json", study, "runs/electra/1/seed-0/result.json", lambda path: read_study(path).tables())
    (archive := folder / "archive").mkdir()
    (archive / "runs.jsonl").write_text(f"{json.dumps(facts)}\n{json.dumps(result)}\n")
    yield Target("runs.jsonl", archive, "runs.jsonl", lambda path: read_study(path).tables())


def _documents(path: Path) -> int:
    return sum(len(list(source.read())) for source in find_sources([str(path)], out=path.parent / "out"))


def _examples(path: Path) -> object:
    data = TokenData.open(path)
    return len(ExampleSet(data.train, PackingConfig(sequence_length=32), seed=0))


def _tokenizer(path: Path) -> object:
    found = load_tokenizer(path)
    return describe_tokenizer(found), found.encode("The ferry leaves at seven.").ids


def _checkpoint(path: Path) -> object:
    checkpoint = read_checkpoint(path)
    return checkpoint.tensors("model"), checkpoint.tensors("optimizer")


def _task(name: str, path: Path) -> object:
    return load_task(load_task_config({"model": "M", "task": name, "data.path": path}))


def _own(path: Path) -> object:
    return load_task(load_task_config({"model": "M", "kind": "classification", "data.path": path}))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _manifest(folder: Path) -> None:
    """Correct the checksums in a manifest, if it can be read, and that of the manifest itself."""
    path = folder / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
        for split in manifest["splits"].values():
            for record in split["shards"]:
                for kind in record["sha256"]:
                    record["sha256"][kind] = _sha256(folder / f"{record['name']}.{kind}")
        manifest["unigram_counts"] = _sha256(folder / "unigram.npy")
        path.write_text(json.dumps(manifest))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        pass
    (folder / "manifest.sha256").write_text(f"{_sha256(path)}  manifest.json\n")


def _state(folder: Path) -> None:
    path = folder / "state.json"
    try:
        state = json.loads(path.read_text())
        for name, facts in state["files"].items():
            facts |= {"bytes": (folder / name).stat().st_size, "sha256": _sha256(folder / name)}
        path.write_text(json.dumps(state))
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError):
        pass
    (folder / "state.sha256").write_text(f"{_sha256(path)}  state.json\n")


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise an error after this time."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def try_input(target: Target, draw: random.Random, folder: Path, *, seconds: int) -> tuple[str, str]:
    """The outcome of one input: read, refused, or an error that must not happen; and its description."""
    copy = folder / "input"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(target.folder, copy, ignore=shutil.ignore_patterns("checkpoints", "export"))
    file = copy / target.file
    file.write_bytes(damage(file.read_bytes(), draw))
    target.repaired(copy)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with time_limit(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(copy)
        outcome, how = "read", ""
    except ElectraError as error:
        outcome, how = "refused", str(error)
        if not how.strip():
            outcome = "refused without a word"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        outcome, how = type(error).__name__, traceback.format_exc()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > target.memory:
        outcome, how = "memory", f"{grown >> 20} MiB more"
    return outcome, how


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=60, help="time for one input; on a busy machine give more")
    parser.add_argument("--only", help="kinds of files whose names have this in them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="a folder for inputs that were neither read nor refused")
    options = parser.parse_args()
    logging.getLogger("electra").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    outcomes: dict[str, Counter[str]] = {}
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        every = [one for one in targets(folder) if not options.only or options.only in one.name]
        for target in every:
            target.read(target.folder)  # the good file itself; and libraries are loaded then
        for number in range(options.inputs):
            target = every[number % len(every)]
            draw = random.Random(f"{options.seed} {number}")
            outcome, how = try_input(target, draw, folder, seconds=options.seconds)
            outcomes.setdefault(target.name, Counter())[outcome] += 1
            if outcome not in ("read", "refused"):
                where = "\n".join(how.splitlines()[-6:])
                if (key := f"{target.name} {where}") not in seen:
                    seen.add(key)
                    print(f"--- input {number}, {target.name}: {outcome}\n{where}", flush=True)
                if options.keep:
                    shutil.copytree(folder / "input", options.keep / str(number))
    total: Counter[str] = sum(outcomes.values(), Counter())
    for kind, found in outcomes.items():
        print(f"{kind}: {', '.join(f'{count} {outcome}' for outcome, count in found.most_common())}")
    print(f"in all: {', '.join(f'{count} {outcome}' for outcome, count in total.most_common())}")
    if options.json:
        options.json.write_text(json.dumps({"inputs": sum(total.values()), **total}, indent=1) + "\n")
    return 0 if set(total) <= {"read", "refused"} else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
