"""`electra analyze context`: the loss of a causal language model by memory length, and the speed of reading."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra.commands.analyze.options import Models, missing_models
from electra.config import NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from torch import Tensor

    from electra.reports.analysis import AnalysisReport
    from electra.serving.causal_language_model import CausalLanguageModel

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnalyzeContextConfig:
    """The command line of `electra analyze context`."""

    models: Models
    """Causal language models: runs, export folders, Hugging Face folders or ids."""
    data: Path
    """A folder of prepared data (electra prepare), whose held-out documents are read."""
    memory: tuple[int, ...] = (0, 32, 64, 128, 256, 512, 1024)
    """Numbers of remembered tokens; the loss is measured with each."""
    window: NonNegativeInt = 0
    """Number of tokens read at once; 0: the same as in training."""
    documents: PositiveInt = 16
    """Maximum number of documents (the longest)."""
    length: PositiveInt = 2048
    """Maximum number of tokens of each document, from its beginning."""
    speed: bool = True
    """Do not measure the speed of reading with memory, compared with a sliding window that is computed again for
    each token."""
    speed_tokens: PositiveInt = 64
    """Number of tokens whose sliding windows are timed."""
    device: str = "auto"
    """Device to compute on: auto, cpu, cuda, cuda:1 or mps. auto: a CUDA GPU if there is one, else the CPU."""
    out: Path | None = None
    """Folder for context.json, context.png and context.svg; existing ones are replaced. Default: no files."""

    def problems(self) -> Iterator[str]:
        yield from missing_models(self.models)
        if not self.memory or min(self.memory) < 0 or len(set(self.memory)) < len(self.memory):
            yield "--memory: give different lengths of 0 or more"


def run(config: AnalyzeContextConfig) -> AnalysisReport:
    """Measure the loss of a causal language model by memory length, and the speed of reading with memory.

    The loss is that of held-out documents, overall and by the position of tokens in their document; "early" means
    within the first 256 tokens.

    Examples:
        electra analyze context RUN --data DATA --out context
        electra analyze context RUN1 RUN2 --data DATA --memory 0 128 512 --length 4096 --no-speed
    """
    from electra.analysis.held_out_text import longest_documents
    from electra.analysis.load_models import check_vocabulary
    from electra.data.shards import TokenData
    from electra.export.display_name import display_names
    from electra.export.loading import load_pretrained
    from electra.reports.analysis import make_output_folder, save_report
    from electra.serving.causal_language_model import CausalLanguageModel

    make_output_folder(config.out)
    data = TokenData.open(config.data, verify=False)
    documents = longest_documents(
        data.heldout, separate=data.special.separate, documents=config.documents, length=config.length
    )
    models = []
    for model, name in zip(config.models, display_names(config.models), strict=True):
        pretrained = load_pretrained(model)  # all models, so that a mistake is found before the first is measured
        models.append((name, CausalLanguageModel.from_pretrained(pretrained, model, device=config.device)))
        check_vocabulary(pretrained.tokenizer, model, data)
    results = {
        "data": data.fingerprint, "documents": len(documents),
        "tokens": sum(len(document) - 1 for document in documents), "length": config.length,
        "models": [_measure(config, name, model, documents) for name, model in models],
    }  # fmt: skip
    return save_report("context", results, config.out)


def _measure(
    config: AnalyzeContextConfig, name: str, model: CausalLanguageModel, documents: list[Tensor]
) -> dict[str, Any]:
    """The results of one model for context.json."""
    from electra.analysis.context import ContextLosses
    from electra.analysis.context_speed import measure_speed
    from electra.serving.causal_language_model import compute_token_losses

    window, readings, speeds = config.window or model.window, [], []
    for number, memory in enumerate(config.memory):
        logger.info("Reading with %s", name, extra={"progress": (number, len(config.memory))})
        losses = compute_token_losses(model, documents, window=window, memory=memory)
        readings.append(asdict(ContextLosses.summarize(memory, losses)))
    timed = sorted(memory for memory in config.memory if memory and config.speed)
    for number, memory in enumerate(timed):
        logger.info("Timing %s", name, extra={"progress": (number, len(timed))})
        speed = measure_speed(model, documents[0], window=window, memory=memory, tokens=config.speed_tokens)
        if speed is not None:  # the document is long enough
            speeds.append(asdict(speed) | {"times": speed.times})
    return {
        "model": name,
        "window": window,
        "trained_memory": model.encoder.config.memory_length,
        "readings": readings,
        "speeds": speeds,
    }
