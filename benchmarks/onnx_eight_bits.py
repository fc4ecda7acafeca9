"""Ways to hold a discriminator's weights in 8 bits: how large, how good, how quick.

    python benchmarks/onnx_eight_bits.py RUN --data DATA [--rounds 40] [--texts 256] [--json FILE]

RUN is a run of replaced-token detection with its generator, DATA what `electra prepare` made. Quality is the area
under the ROC curve over the beginnings of held-out documents in which the generator replaced 15 % of the tokens,
the same ones for each way, and how far the logits are from PyTorch's (root mean square, in their standard
deviations). Times are those of single texts with one thread, in turn with PyTorch and the other ways, in this
process; medians, and the median of the ratios to the graph in 32 bits within a round. The machine should do
nothing else.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from electra import __version__
from electra.analysis.quantization import compare_on_texts
from electra.commands.onnx_quality import TOKENS, held_out_beginnings
from electra.data.shards import TokenData
from electra.export.huggingface import Pretrained
from electra.export.loading import generator_beside, load_pretrained
from electra.export.onnx.graph import MODEL
from electra.export.onnx.heads import build
from electra.export.onnx.model import load_onnx
from electra.export.onnx.speed import Timed, timed
from electra.export.onnx.write import quantized, save_onnx
from electra.serving.scorer import Scorer

LENGTHS = (13, 23, 59)


def graph(pretrained: Pretrained) -> Any:
    return build(pretrained)[0].model("electra", __version__)


def plain(pretrained: Pretrained, path: Path) -> None:
    path.write_bytes(graph(pretrained).SerializeToString())


def ours(pretrained: Pretrained, path: Path) -> None:
    path.write_bytes(quantized(build(pretrained, small_tables=True)[0].model("electra", __version__)))


def dynamic(*, unsigned: bool = False, **options: Any) -> Callable[[Pretrained, Path], None]:
    """onnxruntime's dynamic quantisation of the products with weights."""

    def write(pretrained: Pretrained, path: Path) -> None:
        from onnxruntime.quantization import QuantType, quantize_dynamic

        model = graph(pretrained)
        tables = {table.name for table in model.graph.initializer}
        others = [one.name for one in model.graph.node if one.op_type == "MatMul" and one.input[1] not in tables]
        kind = QuantType.QUInt8 if unsigned else QuantType.QInt8
        quantize_dynamic(
            model, path, op_types_to_quantize=["MatMul"], nodes_to_exclude=others, weight_type=kind, **options
        )

    return write


def in_blocks(pretrained: Pretrained, path: Path) -> None:
    """Blocks of 32 weights, each with a scale; activations are brought to 8 bits within the product."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(graph(pretrained), bits=8, block_size=32, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    path.write_bytes(quantizer.model.model.SerializeToString())


WAYS: dict[str, Callable[[Pretrained, Path], None]] = {
    "32 bits": plain,
    "8 bits, a scale a layer": dynamic(),
    "8 bits, a scale an output": dynamic(per_channel=True),
    "the same, 7 of the 8 bits used": dynamic(per_channel=True, reduce_range=True),
    "and the token table in 8 bits (--quantize int8)": ours,
    "8 bits without sign, a scale an output": dynamic(per_channel=True, unsigned=True),
    "8 bits in blocks of 32 (MatMulNBits)": in_blocks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    pretrained = load_pretrained(options.run)
    generator = generator_beside(options.run)
    assert generator is not None, "the run has no generator"
    beginnings = held_out_beginnings(
        TokenData.open(options.data, verify=False), min(TOKENS, pretrained.max_length - 2)
    )
    ids = list(islice(beginnings, options.texts))
    with tempfile.TemporaryDirectory() as temporary:
        folders = {name: Path(temporary) / str(number) for number, name in enumerate(WAYS)}
        for name, write in WAYS.items():
            save_onnx(pretrained, folders[name])
            write(pretrained, folders[name] / MODEL)
        times = list(timed(pretrained, folders, [(length,) for length in LENGTHS], rounds=options.rounds))
        facts = [judged(name, folders[name], pretrained, generator, ids, times) for name in WAYS]
    shape = pretrained.encoder.config
    print(f"{shape.layers} layers of {shape.hidden_size}; {torch.backends.cpu.get_cpu_capability()}; {len(ids)} "
          f"texts; PyTorch's AUC {facts[0]['torch']:.4f}\n")  # fmt: skip
    columns = " | ".join(f"{length} tokens, ms" for length in LENGTHS)
    print(f"| | MB | AUC | change | logits | {columns} |\n|---|---|---|---|---|{'---|' * len(LENGTHS)}")
    for one in facts:
        cells = " | ".join(f"{time['ms']:.2f}, {time['ratio']:.2f} ×" for time in one["times"])
        print(f"| {one['way']} | {one['megabytes']:.1f} | {one['auc']:.4f} | {one['auc'] - one['torch']:+.4f} | "
              f"{one['logits']:.3f} | {cells} |")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(facts, indent=1) + "\n")


def judged(
    name: str,
    folder: Path,
    pretrained: Pretrained,
    generator: Path | str,
    ids: list[list[int]],
    times: list[Timed],
) -> dict[str, Any]:
    model = load_onnx(folder)
    found = compare_on_texts(pretrained, model, ids, generator=load_pretrained(generator))
    wanted, given = (np.concatenate(Scorer(one, device="cpu").logits(ids)) for one in (pretrained, model))
    return {
        "way": name,
        "megabytes": (folder / MODEL).stat().st_size / 1e6,
        "auc": found.onnx,
        "torch": found.torch,
        "logits": float(np.sqrt(np.mean((wanted - given) ** 2)) / wanted.std()),
        "times": [{"ms": 1000 * one.median(name), "ratio": against_plain(one, name)} for one in times],
    }


def against_plain(one: Timed, name: str) -> float:
    pairs = zip(one.seconds["32 bits"], one.seconds[name], strict=True)
    return statistics.median(plain / seconds for plain, seconds in pairs)


if __name__ == "__main__":
    main()
