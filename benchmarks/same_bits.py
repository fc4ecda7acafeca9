"""Checksums of what every kind of run produces, to show that a refactor changed no bit.

    python benchmarks/same_bits.py before --work BEFORE              # on the old code
    python benchmarks/same_bits.py after --work AFTER --against BEFORE   # on the new code

The second command trains everything again and also resumes the interrupted runs that the old code left in BEFORE.
It prints every checksum that differs and exits with 1 when there is one. `--electra` names the command to run, so
that one script can test two checkouts. Everything runs on one thread; both must run on the same kind of processor.
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from safetensors import safe_open

STEPS = 30
SMALL = [
    "--train.batch_size", "8", "--train.precision", "float32", "--train.report_every", "5",
    "--evaluation.examples", "32", "--evaluation.interim_examples", "32", "--checkpoint.every", "10",
    "--checkpoint.keep", "5", "--optimizer.warmup_steps", "5",
]  # fmt: skip
RUNS: dict[str, tuple[list[str], list[str]]] = {
    "electra": (["electra-nano"], []),
    "electra-tiny": (["electra-tiny"], []),
    "micro-batches": (["electra-nano"], ["--train.micro_batch_size", "4", "--model.dropout", "0.1"]),
    "faithful": (["faithful-tiny"], ["--packing.sequence_length", "64"]),
    "disentangled": (["electra-nano"], ["--objective.sharing", "disentangled"]),
    "all-shared": (["electra-nano"], ["--objective.sharing", "all", "--generator.width", "1.0"]),
    "random-15": (["electra-nano", "objectives/random-15"], []),
    "masked-lm": (["electra-nano", "objectives/masked-lm"], []),
    "electric": (["electra-nano"], ["--objective.kind", "electric"]),
    "replace-mlm": (["electra-nano", "objectives/replace-mlm"], []),
    "all-tokens-mlm": (["electra-nano", "objectives/all-tokens-mlm"], []),
    "reinforce": (["electra-nano", "objectives/adversarial"], []),
    "gumbel": (["electra-nano", "objectives/adversarial-gumbel"], []),
    "annealed": (["electra-nano", "objectives/annealed"], []),
    "two-stage": (["electra-nano", "objectives/two-stage"], []),
    "two-stage-encoder": (["electra-nano", "objectives/bert-first"], []),
    "uniform-fakes": (["electra-nano", "objectives/uniform-fakes"], []),
    "unigram-fakes": (["electra-nano", "objectives/unigram-fakes"], []),
    "bert": (["electra-nano", "objectives/bert"], []),
    "albert": (["electra-nano", "objectives/albert"], []),
    "roberta": (["electra-nano", "objectives/roberta"], []),
    "transformer-xl": (["electra-nano", "objectives/transformer-xl"], ["--model.memory_length", "32"]),
    "xlnet": (["electra-nano", "objectives/xlnet"], []),
    "xlnet-memory": (["electra-nano", "objectives/xlnet-memory"], ["--model.memory_length", "32"]),
    "electra-memory": (["electra-nano", "objectives/electra-memory"], ["--model.memory_length", "32"]),
    "quickstart": (["quickstart"], []),
}
"""Presets and settings of each run."""
LARGE_PRESETS = (
    "electra-small", "electra-base", "bert-base", "albert-base", "xlnet-base", "txl-base", "roberta-base",
)  # fmt: skip
"""Presets whose FLOPs are counted, although they are not trained."""
EXPORTED_ONNX = ("electra", "bert", "albert", "electra-memory")
FINETUNINGS = {
    "classification": ["--kind", "classification", "--data.text", "text", "--data.label", "label"],
    "regression": ["--kind", "regression", "--data.text", "text", "--data.label", "value"],
    "tagging": ["--kind", "tagging"],
    "questions": ["--task", "squad"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the name of this state of the code, for the printed lines")
    parser.add_argument("--work", type=Path, required=True, help="folder for data, runs and checksums.json")
    parser.add_argument("--against", type=Path, help="the --work folder of the code to compare with")
    parser.add_argument("--electra", default=f"{sys.executable} -m electra", help="the command that runs electra")
    parser.add_argument("--only", nargs="*", help="only these runs")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time, one thread each")
    options = parser.parse_args()
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.electra.split(), work, options.against)
    bench.checksums["data"] = bench.prepare()
    names = [name for name in RUNS if not options.only or name in options.only]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(bench.pretrain, names))
        if not options.only:
            list(pool.map(bench.finetune, FINETUNINGS))
            bench.flops()
    path = work / "checksums.json"
    path.write_text(json.dumps(bench.checksums, indent=1, sort_keys=True) + "\n")
    print(f"{options.name}: {len(bench.checksums)} checksums in {path}")
    if options.against:
        sys.exit(compare(json.loads((options.against / "checksums.json").read_text()), bench.checksums))


def compare(before: dict[str, str], after: dict[str, str]) -> int:
    """Print the checksums that differ. Return 1 if there are any, else 0."""
    differing = [name for name in after if before.get(name.replace("resumed from old", "resumed")) != after[name]]
    for name in sorted(differing):
        print(f"DIFFERS  {name}")
    print(f"{len(after) - len(differing)} of {len(after)} checksums are the same")
    return int(bool(differing))


class Bench:
    """Runs the command in a folder and collects checksums by name."""

    def __init__(self, electra: list[str], work: Path, against: Path | None) -> None:
        self.electra, self.work, self.against = electra, work, against
        self.checksums: dict[str, str] = {}
        self.data = work / "data"

    def run(self, *arguments: str | Path, check: bool = True) -> str:
        done = subprocess.run(self.command(*arguments), env=environment(), capture_output=True, text=True)
        if check and done.returncode:
            raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
        return done.stdout

    def command(self, *arguments: str | Path) -> list[str]:
        return [*self.electra, *map(str, arguments)]

    def prepare(self) -> str:
        corpus = self.work / "corpus.jsonl"
        corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents()))
        if not self.data.exists():
            self.run(
                "prepare", corpus, "--out", self.data, "--vocabulary-size", "2000", "--heldout", "0.1",
                "--workers", "1",
            )  # fmt: skip
        return digest_files(self.data, "*.npy", "*.bin", "tokenizer.json")

    def pretrain(self, name: str) -> None:
        """Train without a stop, then killed and resumed, then resumed from the interrupted run of the old code."""
        whole, killed = self.work / name, self.work / f"{name}-killed"
        arguments = self.arguments(name)
        shutil.rmtree(whole, ignore_errors=True)
        self.run("pretrain", *arguments, "--out", whole)
        self.checksums[f"{name}: weights"] = weights(whole)
        self.checksums[f"{name}: reports"] = reports(whole)
        for export in sorted(path for path in (whole / "export").iterdir() if path.is_dir()):
            self.checksums[f"{name}: export of {export.name}"] = digest_files(export, "*.safetensors", "*.json")
        shutil.rmtree(killed, ignore_errors=True)
        self.kill(killed, arguments)
        shutil.rmtree(self.work / f"{name}-interrupted", ignore_errors=True)
        shutil.copytree(killed, self.work / f"{name}-interrupted")
        self.run("pretrain", *arguments, "--out", killed)
        self.checksums[f"{name}: resumed"] = weights(killed)
        if self.against:
            old = self.work / f"{name}-old"
            shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(self.against / f"{name}-interrupted", old)
            self.run("pretrain", *arguments, "--out", old)
            self.checksums[f"{name}: resumed from old"] = weights(old)
        if name in EXPORTED_ONNX:
            out = self.work / f"{name}-onnx"
            shutil.rmtree(out, ignore_errors=True)
            self.run("export", whole, "--to", "onnx", "--out", out)
            self.checksums[f"{name}: onnx"] = digest_files(out, "*.onnx")
        print(f"  {name}", flush=True)

    def arguments(self, name: str) -> list[str | Path]:
        presets, settings = RUNS[name]
        preset = presets[0]
        if len(presets) > 1:
            preset = str(self.work / f"{name}.toml")
            Path(preset).write_text(f"extends = {json.dumps(presets)}\n")
        return [preset, "--data", self.data, "--train.steps", str(STEPS), *SMALL, *settings]

    def kill(self, out: Path, arguments: list[str | Path]) -> None:
        """Start a run and kill it right after its first checkpoint."""
        with subprocess.Popen(
            self.command("pretrain", *arguments, "--out", out),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            while process.poll() is None and not any((out / "checkpoints").glob("step-*10")):
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
        assert any((out / "checkpoints").glob("step-*10")), out

    def finetune(self, name: str) -> None:
        data = self.work / f"task-{name}"
        shutil.rmtree(data, ignore_errors=True)
        TASK_FILES[name](data)
        out = self.work / f"finetuned-{name}"
        shutil.rmtree(out, ignore_errors=True)
        where = data / "train.csv" if name in ("classification", "regression") else data
        self.run(
            "finetune", self.work / "electra-tiny", *FINETUNINGS[name], "--data", where, "--out", out,
            "--seeds", "1", "--train.epochs", "1", "--train.batch_size", "8", "--train.precision", "float32",
        )  # fmt: skip
        results = json.loads((out / "results.json").read_text())
        self.checksums[f"finetuned {name}: metrics"] = digest(
            json.dumps([seed["metrics"] for seed in results["seeds"]]).encode()
        )
        self.checksums[f"finetuned {name}: weights"] = digest_files(out, "**/*.safetensors")
        print(f"  finetuned {name}", flush=True)

    def flops(self) -> None:
        presets = {presets[0] for presets, _ in RUNS.values()} | set(LARGE_PRESETS)
        for preset in sorted(presets):
            numbers = re.findall(r"[\d.,e+]*\d", self.run("flops", preset))
            self.checksums[f"flops {preset}"] = digest(" ".join(numbers).encode())


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_files(folder: Path, *patterns: str) -> str:
    """Return a digest of the names and contents of files."""
    paths = sorted({path for pattern in patterns for path in folder.rglob(pattern)})
    assert paths, f"{folder}: none of {patterns}"
    return digest("".join(f"{path.relative_to(folder)} {digest(path.read_bytes())}\n" for path in paths).encode())


def weights(run: Path) -> str:
    """Return a digest of the names and values of all tensors of the last checkpoint."""
    last = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.removeprefix("step-")))
    assert int(last.name.removeprefix("step-")) == STEPS, last
    lines = []
    for path in sorted(last.glob("*.safetensors")):
        with safe_open(path, "numpy") as tensors:
            lines += [
                f"{path.name} {key} {digest(tensors.get_tensor(key).tobytes())}" for key in sorted(tensors.keys())
            ]
    return digest("\n".join(lines).encode())


def reports(run: Path) -> str:
    """Return a digest of all metrics in metrics.jsonl, without times and speeds."""
    timed = (
        "seconds",
        "evaluation_seconds",
        "tokens_per_second",
        "flops_utilisation",
        "model_flops_utilisation",
        "time",
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [
        {name: value for name, value in line.items() if not any(word in name for word in timed)}
        for line in lines
        if not str(line.get("health", "")).startswith("tokens/s")  # a finding about the machine
    ]
    return digest(json.dumps(kept).encode())


WORDS = [
    "the", "a", "one", "some", "every", "old", "small", "green", "quiet", "river", "house", "teacher",
    "letter", "garden", "winter", "train", "window", "story", "bird", "walks", "reads", "opens", "carries",
    "finds", "keeps", "sees", "under", "near", "behind", "before", "after", "with", "without", "slowly",
    "often", "never", "again", "today", "paper", "stone", "music", "table", "doctor", "market", "answer",
    "question", "colour", "morning", "evening", "city", "village",
]  # fmt: skip


def documents(count: int = 400) -> list[str]:
    """Return random texts whose words depend on a topic. They are always the same."""
    rng = random.Random(26)
    texts = []
    for _ in range(count):
        topic = rng.sample(WORDS, 12)
        sentences = []
        for _ in range(rng.randint(3, 14)):
            words = [rng.choice(topic if rng.random() < 0.6 else WORDS) for _ in range(rng.randint(4, 14))]
            sentences.append(" ".join(words).capitalize() + ".")
        texts.append(" ".join(sentences))
    return texts


def write_table(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = ["text,label,value"]
    for number, text in enumerate(documents(80)):
        sentence = text.split(".")[0]
        rows.append(f"{sentence},{'yes' if 'the' in sentence.lower() else 'no'},{len(sentence) + number % 3}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")


def write_tags(folder: Path) -> None:
    folder.mkdir(parents=True)
    for part, texts in (("train", documents(60)), ("dev", documents(75)[60:])):
        lines = []
        for text in texts:
            words = text.split(".")[0].split()
            lines += [f"{word}\t{'B-THING' if len(word) > 5 else 'O'}" for word in words] + [""]
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")


def write_questions(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, texts in (("train-v1.1.json", documents(40)), ("dev-v1.1.json", documents(50)[40:])):
        paragraphs = []
        for number, text in enumerate(texts):
            answer = text.split()[3].strip(".")
            question = {
                "id": f"{name}-{number}",
                "question": f"What is near {text.split()[2]}?",
                "answers": [{"text": answer, "answer_start": text.index(answer)}],
            }
            paragraphs.append({"context": text, "qas": [question]})
        (folder / name).write_text(
            json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})
        )


TASK_FILES = {
    "classification": write_table,
    "regression": write_table,
    "tagging": write_tags,
    "questions": write_questions,
}


if __name__ == "__main__":
    main()
