"""Scores and embeddings of 2,000 real sentences, compared with a plain loop over transformers.

    python benchmarks/score.py [MODEL] [--sentences 2000] [--seconds 60] [--preset electra-small] [--json FILE]
        [--documents 0] [--document-tokens 4000] [--document-batch 1]

MODEL is a run or a folder of a discriminator. Without one, an untrained network with the shape of
--preset is written. The sentences are learner English from ../shared, in the order of the file, without those
longer than the network's input. In each sentence, a tenth of the words are replaced by words of other
sentences. --documents adds parts of books and laws from ../shared, in turn, each cut to --document-tokens.

Ours is `Scorer` and `TextEncoder` with their defaults. The peer is what a skilled user writes: AutoTokenizer
and the model's class (with sdpa if it has that) in inference_mode, 32 sentences at a time in the given order,
padded to the longest, or --document-batch documents. Both run in float32 in this process, alternately, including
tokenization, and return an array per text; ours also returns the offsets of the tokens. Times are medians over
as many rounds as fit into --seconds, at least one. With one thread (OMP_NUM_THREADS=1), times are processor
seconds, so waiting for other processes does not count. A ratio compares times of the same round. States take as
long as embeddings, so they are only compared, for the first sentences. The area under the ROC curve is that of
the logits for replaced tokens. At the end, one run of `electra score` is timed from start to end.
"""

import argparse
import io
import itertools
import json
import operator
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
import zstandard
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

import electra
from electra.config import load_config
from electra.data.tokenizer import load_tokenizer
from electra.export import huggingface
from electra.export.loading import find_model
from electra.modeling.heads import ReplacedTokenHead
from electra.pretraining.config import PretrainConfig, with_vocabulary

SHARED = Path(__file__).parents[1] / "../shared/data"
REPLACED_SHARE = 0.1
PEER_BATCH = 32
clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
COMPARED = 10 * PEER_BATCH
"""Sentences whose states are compared."""
Arrays = list[NDArray[np.float32]]
Tasks = dict[str, tuple[Callable[[], Any], Callable[[], Any]]]
Times = dict[str, tuple[list[float], list[float]]]
Results = dict[str, tuple[Arrays, Arrays]]
"""Ours and the peer's, by task."""


def sentences(path: Path, tokenizer: Any, count: int) -> tuple[list[str], list[list[bool]]]:
    """Sentences with replaced words, and whether each word was replaced."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    words = [[line.split("\t")[0] for line in block.splitlines()] for block in blocks if block.strip()]
    everywhere = [word for sentence in words for word in sentence]
    draw = random.Random(0)
    texts: list[str] = []
    replaced: list[list[bool]] = []
    for sentence in words:
        new = [draw.choice(everywhere) if draw.random() < REPLACED_SHARE else word for word in sentence]
        text = " ".join(new)
        if len(texts) < count and len(tokenizer.tokenize(text)) + 2 <= tokenizer.model_max_length:
            texts.append(text)
            replaced.append([a != b for a, b in zip(new, sentence, strict=True)])
    return texts, replaced


def documents(tokenizer: Any, count: int, tokens: int) -> list[str]:
    """Parts of books and of laws, in turn, of so many tokens each, special tokens included."""
    found = []
    sources = [_parts(SHARED / f"corpora/{name}.jsonl.zst", tokens) for name in ("books", "german-law")]
    for text in itertools.islice(itertools.chain.from_iterable(zip(*sources, strict=False)), 2 * count):
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(offsets) > tokens - 2 and len(found) < count:
            found.append(text[: offsets[tokens - 3][1]])
    assert len(found) == count, "too few long documents"
    return found


def _parts(path: Path, tokens: int) -> Iterator[str]:
    """The texts of a corpus in parts of several characters a token."""
    with path.open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"):
            text, size = json.loads(line)["text"], 7 * tokens
            yield from (text[first : first + size] for first in range(0, len(text) - size, size))


def write_untrained(preset: str, folder: Path, length: int = 0) -> Path:
    """Write a discriminator with the shape of a preset, as pre-training would export it before its first step.

    Args:
        length: the longest input in training; 0: `model.max_positions`.
    """
    (folder / "tokenizer.json").write_text(load_tokenizer(SHARED / "vocab/bert-uncased").to_str())
    config = with_vocabulary(load_config(PretrainConfig, preset)).model
    torch.manual_seed(0)
    huggingface.save(
        folder / "model", encoder=config.build(), head=ReplacedTokenHead(config),
        tokenizer_json=folder / "tokenizer.json", card="", max_length=length or None,
    )  # fmt: skip
    return folder / "model"


class Peer:
    """The loop over transformers."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        name = json.loads((folder / "config.json").read_text())["architectures"][0]
        build = getattr(transformers, name).from_pretrained
        try:
            self.model = build(folder, attn_implementation="sdpa").eval()
        except ValueError:  # this class has no sdpa
            self.model = build(folder, attn_implementation="eager").eval()

    def _loop(
        self, texts: list[str], network: Callable[..., Tensor], *, size: int = PEER_BATCH, pooled: bool = False
    ) -> Arrays:
        found: Arrays = []
        for first in range(0, len(texts), size):
            batch = texts[first : first + size]
            inputs = self.tokenizer(batch, padding=True, truncation=True, return_tensors="pt")
            mask_BL = inputs["attention_mask"]
            with torch.inference_mode():
                values = network(**inputs)
                if pooled:
                    mask_BL1 = mask_BL[:, :, None].float()
                    found.extend(((values * mask_BL1).sum(1) / mask_BL1.sum(1)).numpy())
                    continue
            lengths = mask_BL.sum(1).tolist()
            found.extend(row[1 : length - 1] for row, length in zip(values.numpy(), lengths, strict=True))
        return found

    def _logits(self, **inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(**inputs).logits
        return logits if logits.ndim == 2 else logits[..., 1] - logits[..., 0]  # two labels: original, replaced

    def _states(self, **inputs: Tensor) -> Tensor:
        states_BLD: Tensor = self.model.base_model(**inputs).last_hidden_state
        return states_BLD

    def scores(self, texts: list[str], size: int = PEER_BATCH) -> Arrays:
        return self._loop(texts, self._logits, size=size)

    def states(self, texts: list[str]) -> Arrays:
        return self._loop(texts, self._states)

    def embeddings(self, texts: list[str]) -> Arrays:
        return self._loop(texts, self._states, pooled=True)

    def labels(self, texts: list[str], replaced: list[list[bool]]) -> NDArray[np.bool_]:
        """Whether each token of all texts belongs to a replaced word."""
        found = []
        for text, marks in zip(texts, replaced, strict=True):
            starts = np.cumsum([0, *(len(word) + 1 for word in text.split(" ")[:-1])])
            offsets = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
            owners = np.searchsorted(starts, [start for start, _ in offsets], side="right") - 1
            found.append(np.array(marks)[owners])
        return np.concatenate(found)


def padding(peer: Peer, texts: list[str]) -> float:
    """Tokens that the peer computes, with padding, per token of the texts."""
    lengths = list(map(len, peer.tokenizer(texts)["input_ids"]))
    batches = [lengths[first : first + PEER_BATCH] for first in range(0, len(lengths), PEER_BATCH)]
    return sum(max(batch) * len(batch) for batch in batches) / sum(lengths)


def measure(tasks: Tasks, seconds: float) -> tuple[Times, Results]:
    """The seconds of ours and the peer, run alternately, and their results."""
    times: Times = {name: ([], []) for name in tasks}
    results: Results = {}
    began, rounds = time.perf_counter(), 0
    while rounds == 0 or (time.perf_counter() - began) * (1 + 1 / rounds) < seconds:
        for name, pair in tasks.items():
            found = []
            for run, seconds_of in zip(pair, times[name], strict=True):
                start = clock()
                found.append(list(run()))
                seconds_of.append(clock() - start)
            results[name] = found[0], found[1]
        rounds += 1
    return times, results


def largest_difference(ours: Arrays, theirs: Arrays) -> float:
    assert [x.shape for x in ours] == [x.shape for x in theirs], "a different order or different tokens"
    return max(float(np.abs(x - y).max(initial=0)) for x, y in zip(ours, theirs, strict=True))


def command(model: Path, texts: list[str], folder: Path) -> float:
    """Seconds of one run of `electra score`."""
    (folder / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    arguments = [
        "score",
        str(model),
        "--input",
        str(folder / "in.txt"),
        "--json",
        "--output",
        str(folder / "out.jsonl"),
    ]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "electra", *arguments], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    lines = (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in lines] == texts, "a different order"
    return seconds


def print_table(times: Times, results: Results) -> dict[str, Any]:
    """Print a table, and return its values for JSON."""
    print("| | ours, seconds | texts/s | peer, seconds | speedup (of pairs) | largest difference |")
    print("|---|---|---|---|---|---|")
    facts = {}
    for name, (ours, theirs) in times.items():
        ratios = list(map(operator.truediv, theirs, ours))
        ratio = statistics.median(ratios)
        difference, median = largest_difference(*results[name]), statistics.median(ours)
        print(
            f"| {name} | {median:.2f} | {len(results[name][0]) / median:,.0f} | {statistics.median(theirs):.2f} "
            f"| {ratio:.2f} × ({min(ratios):.2f}–{max(ratios):.2f}) | {difference:.1e} |"
        )
        facts[name] = {"ours": ours, "peer": theirs, "ratio": ratio, "largest_difference": difference}
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument(
        "--preset", default="electra-small", help="shape of the untrained network, if no MODEL is given"
    )
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--document-tokens", type=int, default=4000)
    parser.add_argument("--document-batch", type=int, default=1, help="documents that the peer reads at once")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        length = options.document_tokens if options.documents else 0
        folder = find_model(options.model or write_untrained(options.preset, Path(name), length))
        peer, scorer = Peer(folder), electra.Scorer(folder, device="cpu")
        encoder = electra.TextEncoder(folder, device="cpu")
        file = SHARED / "tasks/ged/en_realec_dev.tsv"
        texts, replaced = sentences(file, peer.tokenizer, options.sentences)
        tasks: Tasks = {
            "scores": (lambda: [scored.logits for scored in scorer(texts)], lambda: peer.scores(texts)),
            "embeddings": (lambda: encoder.encode(texts), lambda: peer.embeddings(texts)),
        }
        if options.documents:
            long = documents(peer.tokenizer, options.documents, options.document_tokens)
            tasks[f"scores of documents of {options.document_tokens:,} tokens"] = (
                lambda: [scored.logits for scored in scorer(long)],
                lambda: peer.scores(long, options.document_batch),
            )
            scorer(long[:1]), peer.scores(long[:1], 1)  # warm-up
        for run in (scorer, encoder, encoder.encode, peer.scores):  # warm-up
            run(texts[:PEER_BATCH])
        times, results = measure(tasks, options.seconds)
        states = largest_difference(encoder(texts[:COMPARED]), peer.states(texts[:COMPARED]))
        whole = command(folder, texts, Path(name))
    labels, padding_ratio = peer.labels(texts, replaced), padding(peer, texts)
    areas = [float(roc_auc_score(labels, np.concatenate(logits))) for logits in results["scores"]]
    model, shape = str(options.model or options.preset), scorer.backend.encoder.config
    threads, processor = torch.get_num_threads(), torch.backends.cpu.get_cpu_capability()
    print(f"{model}: {shape.layers} layers of {shape.hidden_size}; float32, {processor}, {threads} threads;")
    print(f"{len(texts):,} sentences of {len(labels):,} tokens, {len(times['scores'][0])} rounds;")
    print(f"the peer computes {padding_ratio:.2f} tokens, with padding, per token of the texts\n")
    facts = print_table(times, results)
    print(f"\nlargest difference of states: {states:.1e}")
    print(f"area under the ROC curve: ours {areas[0]:.4f}, peer {areas[1]:.4f}")
    print(f"`electra score --json --output`: {whole:.1f} seconds from start to end")
    if options.json:
        about = {"model": model, "processor": processor, "threads": threads}
        more = {
            "sentences": len(texts),
            "tokens": len(labels),
            "padding": padding_ratio,
            "auc": areas,
            "command": whole,
        }
        options.json.write_text(json.dumps({**about, **more, **facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
