"""Recorded training steps of google-research/electra, replayed with our code and compared tensor by tensor.

    python benchmarks/replay.py FOLDER...

A FOLDER holds config.json and replay.npz: five steps of the original with every relevant tensor. Batches, masks
and samples are the recorded ones; networks, objectives, optimizer, schedule and gradient clipping are those of
our training. Prints the largest relative difference of each kind of tensor. Exit status 1 if one is above the
tolerance.

Shapes: B batch, L length, N slots a row, V vocabulary.
"""

import argparse
import copy
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from electra.config import load_config
from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.base import attention_mask
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.base import Objective
from electra.objectives.config import GeneratorConfig, ObjectiveConfig
from electra.objectives.electric import Electric
from electra.objectives.masked_lm import MaskedLanguageModel
from electra.objectives.masking import Masking, attention_mask_of
from electra.objectives.replaced_token import ReplacedToken
from electra.pretraining.config import PretrainConfig, build_objective
from electra.training.optim import build_optimizer
from electra.training.schedule import learning_rate
from electra.training.update import clip_grad_norm
from replay_names import Arrays, Named, join_variables, names, split_parameters, with_prefix
from replay_race import explain_reads

TOLERANCE = 1e-4
SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)


@dataclass(frozen=True)
class Comparison:
    """The largest difference of one kind of tensor, relative to the largest recorded number."""

    name: str
    difference: float
    tensors: int
    worst: str


def replay(folder: Path) -> list[Comparison]:
    """Compare every recorded tensor of a folder with ours."""
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with np.load(folder / "replay.npz") as stored:
        recorded: dict[str, np.ndarray] = {name: stored[name] for name in stored.files}
    config = settings_of(settings, recorded)
    objective, ours = load_start(config, recorded)
    optimizer = build_optimizer(objective, config.optimizer)
    differences = Differences()
    steps = sum(name.endswith("/input_ids") for name in recorded)
    assert config.train.steps is not None
    for step in range(steps):
        at, later = (with_prefix(recorded, f"step{number}") for number in (step, step + 1))
        for name, found in one_step(objective, at, config):
            differences.add(name, found, at[name], f"step {step}")
        gradients = [parameter.grad.clone() for parameter, _ in ours if parameter.grad is not None]
        update(objective, optimizer, config, step, later or recorded, ours)
        if step == 0:
            found_gradients, note = explain_gradients(gradients, [p.detach() for p, _ in ours], recorded, config)
            for gradient, (_, theirs) in zip(found_gradients, ours, strict=True):
                expected = join_variables(recorded, "step0/grad", theirs)
                differences.add("gradients", gradient, expected, theirs[0] + note)
        optimizer.zero_grad(set_to_none=True)
    for parameter, theirs in ours:
        differences.add("final parameters", parameter, join_variables(recorded, "final", theirs), theirs[0])
    return differences.found()


def load_start(config: PretrainConfig, recorded: Arrays) -> tuple[Objective, Named]:
    """The objective with the recorded weights, and its parameters with their recorded names."""
    objective = build_objective(config, SPECIAL).train()
    ours = names(objective)
    with torch.no_grad():
        for parameter, theirs in ours:
            parameter.copy_(join_variables(recorded, "init", theirs))
    return objective, ours


def explain_gradients(
    gradients: list[Tensor], updated: list[Tensor], recorded: Arrays, config: PretrainConfig
) -> tuple[list[Tensor], str]:
    """The gradients as the original recorded them, with a note if a race affected them (replay_race.py)."""
    objective, ours = load_start(config, recorded)
    expected = [join_variables(recorded, "step0/grad", theirs) for _, theirs in ours]
    difference = max(map(relative, gradients, expected))
    if difference <= TOLERANCE:
        return gradients, ""

    def backward() -> None:
        for _ in one_step(objective, with_prefix(recorded, "step0"), config):
            pass

    found = explain_reads(
        backward, ours, split_parameters(ours, updated), split_parameters(ours, expected), tolerance=TOLERANCE
    )
    note = f"; {found.updated_reads} of {found.reads} reads saw updated weights; if none had: {difference:.1e}"
    return [torch.cat([found.gradients[name] for name in theirs]) for _, theirs in ours], note


def update(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    config: PretrainConfig,
    step: int,
    later: Arrays,
    ours: Named,
) -> None:
    """One update, at one of two learning rates, whichever agrees with the recording.

    The original reads its step counter for the schedule and increments it in the same run of the graph, in no
    fixed order, so a recorded update uses the rate of its own step or of the next one. Both are tried; the one
    that agrees with the next recorded step (or the recorded end) is kept.
    """
    weights = [parameter.detach().clone() for parameter, _ in ours]
    gradients = [None if parameter.grad is None else parameter.grad.clone() for parameter, _ in ours]
    clip_grad_norm(optimizer, objective.parameters(), config.optimizer.gradient_clip)
    state = copy.deepcopy(optimizer.state_dict())
    outcomes = []
    for counted in (step, step + 1):
        rate = learning_rate(
            counted,
            peak=config.optimizer.learning_rate,
            warmup_steps=config.optimizer.warmup(config.train.steps),
            steps=config.train.steps,
            warmup_over_decay=config.optimizer.warmup_over_decay,
        )
        with torch.no_grad():
            for (parameter, _), before, gradient in zip(ours, weights, gradients, strict=True):
                parameter.copy_(before)
                parameter.grad = None if gradient is None else gradient.clone()  # the last try has scaled it
        optimizer.load_state_dict(copy.deepcopy(state))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        if "mlm_logits" in later:
            batch, masking = recorded_batch(later)
            found = slot_logits(objective, batch, masking).view(later["mlm_logits"].shape)
            difference = float((found - torch.from_numpy(later["mlm_logits"])).abs().max())
        else:
            ends = [(parameter, join_variables(later, "final", theirs)) for parameter, theirs in ours]
            difference = max(float((parameter.detach() - end).abs().max()) for parameter, end in ends)
        outcomes.append((difference, [p.detach().clone() for p, _ in ours], copy.deepcopy(optimizer.state_dict())))
    _, weights, state = min(outcomes, key=lambda outcome: outcome[0])
    with torch.no_grad():
        for (parameter, _), after in zip(ours, weights, strict=True):
            parameter.copy_(after)
    optimizer.load_state_dict(state)


def settings_of(settings: Arrays, recorded: Arrays) -> PretrainConfig:
    """Return our config for the original's settings, on top of the preset `faithful`.

    A generator with separate embeddings has the recorded embedding size, for which the original has no setting.
    """
    shape = settings["model_hparam_overrides"]
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    model = BertConfig(
        layers=layers,
        hidden_size=hidden,
        embedding_size=settings.get("embedding_size") or hidden,
        feed_forward_size=shape["intermediate_size"],
        heads=shape["num_attention_heads"],
        vocabulary_size=settings["vocab_size"],
        max_positions=shape["max_position_embeddings"],
        dropout=shape["hidden_dropout_prob"],
        attention_dropout=shape["attention_probs_dropout_prob"],
    )
    narrow = round(hidden * settings.get("generator_hidden_size", 0.25))
    generator = GeneratorConfig(
        hidden_size=narrow,
        layers=round(layers * settings.get("generator_layers", 1.0)),
        feed_forward_size=4 * narrow,
        heads=max(1, narrow // 64),
    )
    sharing = "embeddings"
    if not settings.get("untied_generator", True):
        sharing = "all"
        generator = GeneratorConfig(
            hidden_size=hidden, layers=layers, feed_forward_size=model.feed_forward_size, heads=model.heads
        )
    elif settings.get("untied_generator_embeddings", False):
        sharing = "none"
        network = "generator_ltr" if settings.get("electric_objective", False) else "generator"
        size = recorded[f"init/{network}/embeddings/word_embeddings"].shape[1]
        generator = replace(generator, embedding_size=size)
    config = load_config(PretrainConfig, "faithful")
    objective_class, own_settings = ObjectiveConfig.variant(
        asdict(config.objective) | objective_settings(settings, sharing)
    )
    return replace(
        config,
        model=model,
        generator=generator,
        objective=objective_class(**own_settings),
        masking=replace(config.masking, share=settings.get("mask_prob", 0.15)),
        packing=replace(config.packing, sequence_length=settings["max_seq_length"]),
        optimizer=replace(
            config.optimizer,
            learning_rate=settings["learning_rate"],
            warmup_steps=settings["num_warmup_steps"],
            weight_decay=settings.get("weight_decay_rate", 0.01),
        ),
        train=replace(config.train, steps=settings["num_train_steps"], batch_size=settings["train_batch_size"]),
    )


def objective_settings(settings: Arrays, sharing: str) -> dict[str, Any]:
    """Return our settings of the objective for the original's settings."""
    electra, electric = settings.get("electra_objective", True), settings.get("electric_objective", False)
    return {
        "kind": "electric" if electric else "replaced-token" if electra else "masked-lm",
        "sharing": sharing,
        "share_norm": sharing != "none",
        "generator_weight": settings.get("gen_weight", 1.0),
        "discriminator_weight": settings.get("disc_weight", 50.0),
        "temperature": settings.get("temperature", 1.0),
        "disallow_correct": settings.get("disallow_correct", False),
    }


def one_step(objective: Objective, at: Arrays, config: PretrainConfig) -> Iterator[tuple[str, Tensor]]:
    """Forward and backward pass of one recorded step; the results, by the names of the recording."""
    batch, masking = recorded_batch(at)
    ids_BL, lengths_B, used_BN = batch.input_ids_BL, batch.lengths_B, masking.used_BN
    counts = {**objective.counts(batch)}
    if not isinstance(objective, Electric):
        counts["generator"] = used_BN.sum()

    yield "mlm_logits", (logits_BNV := slot_logits(objective, batch, masking).view(*used_BN.shape, -1))
    if isinstance(objective, MaskedLanguageModel):
        output = objective(batch, counts, masking=masking)
    else:
        samples_n = masking.gather(torch.from_numpy(at["corrupted_input_ids"]).long())
        output = objective(batch, counts, masking=masking, samples_n=samples_n)
        yield "corrupted_input_ids", output.debug["corrupted_ids"]
        inside_BL = torch.arange(ids_BL.shape[1]) < lengths_B[:, None]
        yield "is_replaced", output.debug["replaced"]
        yield (
            "disc_probs",
            torch.where(inside_BL, output.debug["logits"].sigmoid(), torch.from_numpy(at["disc_probs"])),
        )
        yield "disc_loss", output.parts["discriminator_loss"]
    output.loss.backward()
    if isinstance(
        objective, Electric
    ):  # what is recorded there is the loss at the slots, not the one that is minimised
        originals_n = masking.gather(ids_BL)[used_BN.flatten()]
        yield "mlm_loss", F.cross_entropy(logits_BNV[used_BN], originals_n)
    else:
        yield "mlm_loss", output.parts["generator_loss"]
    yield "total_loss", output.loss


def recorded_batch(at: Arrays) -> tuple[Batch, Masking]:
    """A recorded batch and the masks and samples drawn for it."""
    ids_BL = torch.from_numpy(at["input_ids"]).long()
    lengths_B = torch.from_numpy(at["input_mask"]).sum(1).long()
    batch = Batch(ids_BL, torch.from_numpy(at["segment_ids"]).long(), lengths_B, seed=0)
    positions_BN = torch.from_numpy(at["masked_lm_positions"]).long()
    used_BN = torch.from_numpy(at["masked_lm_weights"]) > 0
    shown_BL = torch.from_numpy(at["masked_input_ids"]).long()
    masked_BN = used_BN & (shown_BL.gather(1, positions_BN) == SPECIAL.mask)
    masking = Masking(positions_BN, used_BN, masked_BN, shown_BL)
    text_slots_BN = masking.gather(ids_BL).view_as(positions_BN)
    assert torch.equal(text_slots_BN[used_BN], torch.from_numpy(at["masked_lm_ids"]).long()[used_BN])
    return batch, masking


@torch.no_grad()
def slot_logits(objective: Objective, batch: Batch, masking: Masking) -> Tensor:
    """The generator's logits (B × N, V) at the slots."""
    if isinstance(objective, Electric):
        hidden_nE = masking.gather(objective.cloze(batch, attention_mask_of(batch)))
        return hidden_nE @ objective.left.embeddings.token.weight.T + objective.cloze_head.bias
    if isinstance(objective, MaskedLanguageModel):
        x_nD, _ = objective.states(batch, masking, objective.memory)
        return objective.head.logits(x_nD, objective.encoder.embeddings.token.weight)
    assert isinstance(objective, ReplacedToken) and objective.generator is not None
    generator = objective.generator
    mask_BL = attention_mask(batch.lengths_B, batch.input_ids_BL.shape[1])
    return generator.head.logits(generator.states(batch, masking, mask_BL), generator.table_VE)


def relative(found: Tensor, expected: Any) -> float:
    """The largest difference, relative to the largest number expected."""
    ours, theirs = found.detach().double(), torch.as_tensor(np.asarray(expected)).double()
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    difference = float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-12))
    return difference if math.isfinite(difference) else math.inf


class Differences:
    """The worst tensor of each kind."""

    def __init__(self) -> None:
        self.worst: dict[str, Comparison] = {}

    def add(self, name: str, found: Tensor, expected: Any, where: str) -> None:
        difference = relative(found, expected)
        before = self.worst.get(name)
        worse = before is None or difference > before.difference
        self.worst[name] = Comparison(
            name,
            difference if before is None or worse else before.difference,
            1 + (before.tensors if before else 0),
            where if before is None or worse else before.worst,
        )

    def found(self) -> list[Comparison]:
        return list(self.worst.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    failed = False
    for folder in parser.parse_args().folders:
        if folder.is_file():  # golden/* also names what lies beside the recordings
            continue
        if not (folder / "replay.npz").is_file():
            parser.error(f"{folder} holds no recording (replay.npz, config.json)")
        print(f"\n{folder.name}\n")
        print("| tensor | largest relative difference | compared | worst |")
        print("|---|---|---|---|")
        for row in replay(folder):
            print(f"| {row.name} | {row.difference:.1e} | {row.tensors} | {row.worst} |")
            failed |= not row.difference <= TOLERANCE
    print(f"\n{'above' if failed else 'all within'} {TOLERANCE:.0e}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
