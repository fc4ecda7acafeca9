"""The cost of a pre-training run, without starting it."""

from dataclasses import dataclass

import torch
from rich.console import Group, RenderableType
from rich.table import Table

from electra.config import to_toml
from electra.data.shards import TokenData
from electra.data.tokenizer import SpecialTokens
from electra.pretraining.build import packed_documents
from electra.pretraining.config import PretrainConfig, build_objective
from electra.pretraining.resolve import resolve, resolve_for_run, resolve_without_data
from electra.training.checkpoint import Checkpoints
from electra.training.cost_estimate import CostEstimate, estimate_cost
from electra.training.run_folder import RunFolder, check_out_folder


def dry_run(config: PretrainConfig, *, fresh: bool = False) -> "DryRun":
    """Estimate the cost of a run, and find out whether it would resume an existing one.

    Raises:
        ElectraError: the config, the data or the run's folder cannot be used.
    """
    run_folder = None if config.out is None or fresh else RunFolder(config.out)
    if run_folder:
        check_out_folder(run_folder)
    names = Checkpoints(run_folder.checkpoints, config.checkpoint).names() if run_folder else []
    documents = None
    if config.data is None:
        config = resolve_without_data(config, resumed=bool(names))
    else:
        data = TokenData.open(config.data, verify=False)
        resolved = resolve(config, data, resumed=bool(names))
        config = (resolve_for_run(resolved, run_folder) if run_folder else resolved).config
        documents = packed_documents(config, data)
    with torch.device("meta"):
        objective = build_objective(config, SpecialTokens(0, 1, 2, 3, 4))
    length = config.packing.sequence_length
    estimate = estimate_cost(objective, config.train, config.optimizer, length=length, documents=documents)
    return DryRun(config, estimate, int(names[-1].removeprefix("step-")) if names else None)


@dataclass(frozen=True)
class DryRun:
    """The resolved config of a run, and its cost.

    Attributes:
        resume_step: the step of the newest checkpoint in its folder; None: there is no checkpoint.
    """

    config: PretrainConfig
    cost: CostEstimate
    resume_step: int | None = None

    def __rich__(self) -> RenderableType:
        table = Table("", "", show_header=False)
        for name, value in self.cost.rows():
            table.add_row(name, value)
        if self.resume_step is not None:
            steps = self.config.train.steps
            of = "" if steps is None else f" of {steps:,}"
            then = "finished" if self.resume_step == steps else "would be resumed"
            table.add_row("already trained", f"{self.resume_step:,}{of} steps, {then}")
        return Group(to_toml(self.config), table)
