"""Single texts and batches: PyTorch, onnxruntime, and onnxruntime with 8-bit weights.

    python benchmarks/onnx_speed.py [MODEL] [--presets electra-nano electra-small] [--rounds 40] [--json FILE]

MODEL is a run or any other model. Without one, discriminators with the presets' shapes, random weights and BERT's
vocabulary are used. All three compute the same batches of random tokens alternately in this process, with one
thread each; nothing else should run on the machine. Single texts have the 10th, 50th, 90th and 99th percentile of
the lengths of learner English, special tokens included; a batch has 32 rows with lengths spread over the same
range. Times are medians and quartiles; a ratio is the median of the ratios within the rounds. The quality of 8
bits is measured on sentences of the same text with randomly replaced tokens; with random weights, only the
difference of the logits has a meaning. For a fine-tuned model, `electra export --quantize int8` measures it.

(A file named onnx.py would shadow the package.)
"""

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from electra.analysis.quantization import compare_on_texts
from electra.config import load_config
from electra.data.tokenizer import load_tokenizer
from electra.export.loading import load_pretrained
from electra.export.onnx.model import OnnxModel, load_onnx
from electra.export.onnx.write import save_onnx
from electra.export.pretrained import Pretrained
from electra.modeling.encoders.bert import BertEncoder
from electra.modeling.heads import ReplacedTokenHead
from electra.pretraining.config import PretrainConfig, with_vocabulary
from electra.serving.scorer import Scorer
from onnx_timing import BatchTimes, time_batches

SHARED = Path(__file__).parents[1] / "../shared/data"
TEXT = SHARED / "tasks/ged/en_realec_dev.tsv"
BATCH_ROWS, SENTENCES = 32, 200


def untrained(preset: str) -> Pretrained:
    """A discriminator with a preset's shape and random weights."""
    config = with_vocabulary(load_config(PretrainConfig, preset)).model
    torch.manual_seed(0)
    tokenizer = load_tokenizer(SHARED / "vocab/bert-uncased")
    encoder, head = BertEncoder(config).eval(), ReplacedTokenHead(config).eval()
    return Pretrained(encoder, head, tokenizer, "replaced-token", config.max_positions)


def sentences() -> list[str]:
    blocks = TEXT.read_text(encoding="utf-8").split("\n\n")
    return [" ".join(line.split("\t")[0] for line in block.splitlines()) for block in blocks if block.strip()]


def batches(lengths: np.ndarray[Any, Any], longest: int) -> list[list[int]]:
    """Single texts of several lengths, and one batch."""
    lengths = np.minimum(lengths + 2, longest)  # with [CLS] and [SEP]
    singles = [[int(np.percentile(lengths, percent))] for percent in (10, 50, 90, 99)]
    percents = [100 * (row + 0.5) / BATCH_ROWS for row in range(BATCH_ROWS)]
    return [*singles, [int(np.percentile(lengths, percent)) for percent in percents]]


def table_row(times: BatchTimes) -> list[str]:
    cells = [f"1 × {times.tokens}" if times.rows == 1 else f"{times.rows} rows, {times.tokens} tokens"]
    for name, seconds in times.seconds.items():
        low, middle, high = np.percentile(np.array(seconds) * 1000, (25, 50, 75))
        ratio = "" if name == "torch" else f", **{times.ratio(name):.2f} ×**"
        cells.append(f"{middle:.2f} ({low:.2f}–{high:.2f}){ratio}")
    return cells


def quality(pretrained: Pretrained, models: dict[str, OnnxModel], texts: list[str]) -> dict[str, Any]:
    """The quality of each graph, and the difference between its logits and PyTorch's."""
    results: dict[str, Any] = {}
    if pretrained.task is not None:
        return results
    encodings = pretrained.tokenizer.encode_batch(texts[:SENTENCES], add_special_tokens=False)
    ids = [encoding.ids for encoding in encodings]
    for name, model in models.items():
        effect = compare_on_texts(pretrained, model, ids, texts=f"{SENTENCES} sentences")
        print(f"{name}: {effect}")
        results[name] = asdict(effect)
        if model.metadata.kind == "discriminator":
            torch_logits, onnx_logits = (
                np.concatenate(Scorer(each, device="cpu").logits(ids)) for each in (pretrained, model)
            )
            difference = float(np.sqrt(np.mean((torch_logits - onnx_logits) ** 2)) / torch_logits.std())
            print(f"{name}: logits differ by {difference:.4f} of their standard deviation (root mean square)")
            results[name]["logits"] = difference
            alone = np.concatenate([Scorer(model, device="cpu").logits([one])[0] for one in ids])
            mixed = float(np.sqrt(np.mean((onnx_logits - alone) ** 2)) / torch_logits.std())
            flips = int(((onnx_logits > 0) != (alone > 0)).sum())
            print(
                f"{name}: a text alone and in a batch differ by {mixed:.4f}; {flips} of {alone.size} tokens flip"
            )
            results[name]["alone"] = {"logits": mixed, "flips": flips, "tokens": alone.size}
    return results


def measure(name: str, pretrained: Pretrained, rounds: int) -> dict[str, Any]:
    texts = sentences()
    lengths = np.array(
        [len(encoding.ids) for encoding in pretrained.tokenizer.encode_batch(texts, add_special_tokens=False)]
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = {"float32": Path(folder) / "float32", "int8": Path(folder) / "int8"}
        sizes = {kind: save_onnx(pretrained, path, weights=kind).bytes for kind, path in paths.items()}  # type: ignore[arg-type]
        shape = pretrained.encoder.config
        processor = torch.backends.cpu.get_cpu_capability()
        print(f"\n{name}: {shape.layers} layers of {shape.hidden_size}; {processor}; "
              + ", ".join(f"{kind} {size / 2**20:.1f} MiB" for kind, size in sizes.items()))  # fmt: skip
        times = []
        print("\n| tokens | PyTorch, ms | onnxruntime, ms | 8 bits, ms |\n|---|---|---|---|")
        for batch_times in time_batches(pretrained, paths, batches(lengths, pretrained.max_length), rounds=rounds):
            times.append(asdict(batch_times))
            print(f"| {' | '.join(table_row(batch_times))} |", flush=True)
        models = {kind: load_onnx(path) for kind, path in paths.items()}
        print()
        results = quality(pretrained, models, texts)
    return {"model": name, "bytes": sizes, "times": times, "quality": results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--presets", nargs="+", default=["electra-nano", "electra-tiny", "electra-small"])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.model:
        networks = {options.model.name: load_pretrained(options.model)}
    else:
        networks = {preset: untrained(preset) for preset in options.presets}
    results = [measure(name, pretrained, options.rounds) for name, pretrained in networks.items()]
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
