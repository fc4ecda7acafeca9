"""electra-tiny and the same step with transformers' classes: tokens and metrics after the same time.

    python benchmarks/pretrain_tiny.py [DATA] [--minutes 5] [--out RUN] [--dropout 0]

DATA is made by `electra prepare`; without it, ../shared's English Wikipedia is prepared with BERT's vocabulary.
Both read the same rows in the same order, 64 x 128 tokens per step, have networks of the same shapes and the same
precision (float32), and are evaluated on the same held-out rows. The time of ours is that of `electra pretrain`,
including co-occurrence counts, checkpoints and evaluations; the peer only makes steps. Each runs in its own
process, because ours changes how its process keeps freed memory. With MALLOC_MMAP_THRESHOLD_=1073741824 and
MALLOC_TRIM_THRESHOLD_=2147483647 in the environment, the peer does the same.
"""

import argparse
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import electra
from electra.data.collate import Batch
from electra.data.shards import TokenData
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.build import build_batches, heldout_batches
from peer import PeerConfig, Text, TransformersPeer

SHARED = Path(__file__).parents[1] / "../shared/data"


def prepared(out: Path) -> Path:
    corpus, vocabulary = SHARED / "corpora" / "enwiki.jsonl.zst", SHARED / "vocab" / "bert-uncased"
    prepare(PrepareConfig(corpus=(str(corpus),), out=out, tokenizer=vocabulary))
    return out


def ours(data: Path, out: Path, minutes: float) -> dict[str, Any]:
    start = time.monotonic()
    config = electra.load_config(
        "electra-tiny", {"data": data, "out": out, "train.minutes": minutes, "train.precision": "float32"}
    )
    result = electra.pretrain(config)
    evaluation = result.outcome.evaluation
    return {
        "tokens": evaluation["tokens"],
        "minutes": (time.monotonic() - start) / 60,
        "masked_lm_accuracy": evaluation["eval/masked_lm_accuracy"],
        "discriminator_auc": evaluation["eval/discriminator_auc"],
        "unigram_auc": evaluation["eval/unigram_auc"],
    }


def peer(data: Path, minutes: float, dropout: float, save: Path | None = None) -> dict[str, Any]:
    opened = TokenData.open(data, verify=False)
    config = electra.load_config("electra-tiny", {"data": data})
    micro_batches = build_batches(config, opened, torch.device("cpu")).micro_batches
    network = TransformersPeer(
        PeerConfig(
            vocabulary_size=opened.vocabulary_size, dropout=dropout, generator_heads=1, pad_id=opened.special.pad
        )
    )
    # The length is estimated from the speed of a few steps, as ours does it.
    start, tokens, step = time.monotonic(), 0, 0
    while minutes and (network.steps is None or step < network.steps):
        batch = micro_batches(step)[0]
        network.step(batch.input_ids_BL, batch.segment_ids_BL, batch.lengths_B)
        tokens, step = tokens + int(batch.lengths_B.sum()), step + 1
        spent = time.monotonic() - start
        if network.steps is None and spent > 0.06 * 60 * minutes:
            network.steps = int(60 * minutes / spent * step)
    spent = time.monotonic() - start
    if save is not None:
        network.discriminator.save_pretrained(save)
        shutil.copy(opened.tokenizer_path, save)
    texts = [_text(*pair) for pair in heldout_batches(config, opened, torch.device("cpu"))]
    return {"tokens": tokens, "minutes": spent / 60, **network.evaluate(texts)}


def alone(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Call a function in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _text(batch: Batch, unigram: Batch) -> Text:
    return Text(batch.input_ids_BL, batch.segment_ids_BL, batch.lengths_B, unigram.input_ids_BL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dropout", type=float, nargs="*", default=[0.0, 0.1], help="of the peer; ours has 0")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or Path(folder) / "run"
        data = arguments.data or prepared(Path(folder) / "data")
        rows = {"ours": alone(ours, data, out, arguments.minutes)}
        for dropout in arguments.dropout:
            rows[f"transformers, dropout {dropout}"] = alone(peer, data, arguments.minutes, dropout)
    print(f"processor: {torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads\n")
    print("| | tokens | tokens/s | masked-LM accuracy | AUC, own fakes | AUC, unigram fakes | minutes |")
    print("|---|---|---|---|---|---|---|")
    for name, row in rows.items():
        speed = row["tokens"] / row["minutes"] / 60
        print(
            f"| {name} | {row['tokens']:,} | {speed:,.0f} | {row['masked_lm_accuracy']:.3f} "
            f"| {row['discriminator_auc']:.3f} | {row['unigram_auc']:.3f} | {row['minutes']:.1f} |"
        )
    for name in list(rows)[1:]:
        print(f"\ntokens of ours / {name}: {rows['ours']['tokens'] / rows[name]['tokens']:.2f}")


if __name__ == "__main__":
    main()
