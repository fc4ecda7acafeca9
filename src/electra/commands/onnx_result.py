"""What `electra export --to onnx` returns."""

from collections.abc import Sequence
from dataclasses import dataclass

from electra.analysis.quantization import QuantizationEffect
from electra.export.onnx.check import TOLERANCE
from electra.export.onnx.speed import Timed
from electra.export.onnx.write import OnnxWritten

MEBIBYTE = 2**20


@dataclass(frozen=True)
class OnnxExport:
    """A folder that was written, what 8 bits cost (None: it was not measured), and how quick it is."""

    written: OnnxWritten
    quality: QuantizationEffect | None
    times: Sequence[Timed]

    def __str__(self) -> str:
        written = self.written
        lines = [
            f"{written.folder} ({written.kind}, {written.bytes / MEBIBYTE:.1f} MiB)",
            f"  the graph in 32 bits is within {written.difference:.1e} of PyTorch's network "
            f"({TOLERANCE:.0e} is the most)",
        ]
        if self.quality is not None:
            lines.append(f"  {self.quality}")
        lines += [f"  {_line(one)}" for one in self.times]
        return "\n".join(lines)


@dataclass(frozen=True)
class OnnxResult:
    """All folders of an export."""

    exports: Sequence[OnnxExport]

    def __str__(self) -> str:
        return "\n".join(map(str, self.exports))


def _line(times: Timed) -> str:
    read = (
        f"1 text of {times.tokens} tokens"
        if times.rows == 1
        else f"{times.rows} texts, {times.tokens} tokens in all"
    )
    ours, theirs = (1000 * times.median(name) for name in ("onnx", "torch"))
    return (
        f"{read}: {ours:.1f} ms, PyTorch {theirs:.1f} ms ({times.ratio('onnx'):.1f} times as quick), on one thread"
    )
