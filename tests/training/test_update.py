"""One update: it never waits for the device, skips steps that are not finite, and works with compiled networks."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from loop import NextId
from loop import batch_of as text_batch
from torch import nn

from electra.config import load_config
from electra.data.collate import Batch, StreamState
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.bert import BertEncoder
from electra.objectives.base import Counts, Objective, StepOutput
from electra.pretraining.config import PretrainConfig, build_objective
from electra.training.config import OptimizerConfig
from electra.training.optim import build_optimizer
from electra.training.precision import Precision
from electra.training.update import Update, clip_grad_norm, compile_encoders

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
SHAPE = {
    "layers": 1, "hidden_size": 16, "embedding_size": 8, "heads": 2, "feed_forward_size": 32,
    "vocabulary_size": 300, "max_positions": 16,
}  # fmt: skip
SMALL = ["train.steps=10", "packing.sequence_length=16", *(f"model.{name}={size}" for name, size in SHAPE.items())]


def objective_of(*settings: str) -> Objective:
    torch.manual_seed(0)
    config = load_config(PretrainConfig, "electra-tiny", [*SMALL, *settings])
    return build_objective(config, SPECIAL).train()


def batch_of(rows: int = 4, length: int = 16, seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    ids_BL = torch.randint(5, 300, (rows, length), generator=random)
    lengths_B = torch.arange(length, length - rows, -1)
    ids_BL[torch.arange(length) >= lengths_B[:, None]] = SPECIAL.pad
    ids_BL[:, 0] = SPECIAL.classify
    return Batch(ids_BL, torch.zeros_like(ids_BL), lengths_B, seed=seed)


def update_of(objective: nn.Module) -> Update:
    config = load_config(PretrainConfig, "electra-tiny", ["train.steps=10"]).optimizer
    precision = Precision("float32", "", 0.0)
    optimizer = build_optimizer(objective, config)
    return Update(objective, optimizer, gradient_clip=1.0, precision=precision, device=torch.device("cpu"))


class Still(torch.optim.SGD):
    def step(self, closure: object = None) -> None: ...  # type: ignore[override]


class NoNumbers:
    """A generator of a device that is not there."""

    def __init__(self, device: Any = None) -> None: ...

    def manual_seed(self, seed: int) -> None:
        return None  # which is what the draws then get as their generator


REMEMBERS = [
    "model.positions=relative", "model.memory_length=24", "model.type_vocabulary_size=1",
    "model.embedding_size=16", "init.attention=random", "packing.builder=stream",
]  # fmt: skip


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["model.dropout=0.1", "model.attention_dropout=0.1"],
        ["objective.kind=masked-lm"],
        ["objective.kind=electric"],
        ["objective.sampling_dropout=false"],
        ["masking.replacement=true", "masking.average_repeats=true", "objective.sharing=none"],
        [*REMEMBERS, "objective.kind=causal-lm", "model.direction=left"],
        [*REMEMBERS, "objective.kind=permutation-lm"],
        [*REMEMBERS, "objective.sharing=tokens"],
    ],
)
def test_nothing_in_a_step_waits_for_the_device(settings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    objective = objective_of(*settings)
    monkeypatch.setattr(torch, "Generator", NoNumbers)
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *a, **k: nullcontext())
    # Tensors of this device have shapes and no values: whatever asks for one raises.
    device = torch.device("meta")
    objective = objective.to(device)
    ids_BL = torch.zeros(4, 16, dtype=torch.long, device=device)
    batch = Batch(ids_BL, ids_BL, torch.full((4,), 16, device=device), seed=0)
    if "packing.builder=stream" in settings:
        continued = StreamState(ids_BL[:, 0], torch.zeros(4, dtype=torch.bool, device=device))
        batch = replace(batch, stream_state=continued)
    optimizer = Still(objective.parameters(), lr=0.1)  # the fused AdamW does not know this device
    update = Update(
        objective, optimizer, gradient_clip=1.0, precision=Precision("float32", "", 0.0), device=device
    )
    figures = update([batch, batch], 1e-3)
    assert all(value.device == device for value in figures.values())
    for asked in (figures["loss"].item, figures["applied"].nonzero):
        with pytest.raises(
            (RuntimeError, NotImplementedError)
        ):  # and so would such a question in the step have done
            asked()


def test_a_large_gradient_is_clipped_and_a_small_one_is_not() -> None:
    weights = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))]
    for size in (0.1, 10.0):
        plain = [nn.Parameter(weight.detach().clone()) for weight in weights]
        ours = [nn.Parameter(weight.detach().clone()) for weight in weights]
        for parameter in (*plain, *ours):
            parameter.grad = torch.full_like(parameter, size)
        optimizers = [torch.optim.AdamW(group, lr=0.1, eps=1e-3, fused=True) for group in (plain, ours)]
        norm = nn.utils.clip_grad_norm_(plain, 1.0)
        assert torch.equal(clip_grad_norm(optimizers[1], ours, 1.0), norm)
        for optimizer in optimizers:
            optimizer.step()
        for a, b in zip(plain, ours, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spoil", [lambda loss: loss * torch.nan, lambda loss: loss + torch.inf])
def test_a_step_that_is_not_finite_changes_neither_weights_nor_moments(
    spoil: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """Also if the loss alone is infinite, and every gradient is a number."""
    objective = objective_of()
    update, batch = update_of(objective), batch_of()
    update([batch], 1e-3)
    before = copy.deepcopy((objective.state_dict(), update.optimizer.state_dict()["state"]))
    forward = objective.forward

    def poisoned(batch: Batch, counts: Counts | None = None) -> StepOutput:
        output = forward(batch, counts)
        return replace(output, loss=spoil(output.loss))

    objective.forward = poisoned  # type: ignore[assignment]
    assert not update([batch], 1e-3)["applied"]
    torch.testing.assert_close(
        (objective.state_dict(), update.optimizer.state_dict()["state"]), before, rtol=0, atol=0
    )
    del objective.forward
    assert update([batch], 1e-3)["applied"]


def test_each_batch_has_its_own_dropout() -> None:
    update = update_of(NextId(dropout=0.5))
    one = text_batch(0, 0, 4)
    losses = [float(update([replace(one, seed=seed)], 0.0)["loss"]) for seed in (0, 1, 2, 0)]
    assert len(set(losses)) == 3 and losses[0] == losses[3]


def test_each_parameter_has_its_share_of_the_rate() -> None:
    objective = NextId(dropout=0.0)
    scales = {name: 0.25 if name.startswith("net.0") else 1.0 for name, _ in objective.named_parameters()}
    config = OptimizerConfig(weight_decay=0.0, epsilon=1e-12)
    optimizer = build_optimizer(objective, config, rate_scales=scales)
    update = Update(
        objective, optimizer, gradient_clip=1.0, precision=Precision("float32", "", 0.0),
        device=torch.device("cpu"),
    )  # fmt: skip
    before = {name: parameter.detach().clone() for name, parameter in objective.named_parameters()}
    update([text_batch(0, 0, 4)], 0.01)
    for name, parameter in objective.named_parameters():
        moved = float((parameter.detach() - before[name]).abs().amax())
        assert moved == pytest.approx(0.01 * scales[name], rel=1e-3), "Adam's first step is as long as the rate"


@pytest.mark.parametrize("kind", ["replaced-token", "electric"])
def test_compiled_networks_make_the_same_update(kind: str) -> None:
    losses = []
    for compiled in (False, True):
        objective = objective_of(f"objective.kind={kind}", "model.dropout=0", "model.attention_dropout=0")
        if compiled:  # without the code generator, which would take long: whether the graphs are whole and right
            compile_encoders(objective, backend="eager")
        update = update_of(objective)
        losses.append([float(update([batch_of(seed=step)], 1e-2)["loss"]) for step in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][0] != pytest.approx(losses[0][2], rel=1e-3)


def test_more_networks_than_compiled_versions_of_a_function() -> None:
    for number in range(10):
        objective = objective_of("objective.kind=masked-lm", f"model.hidden_size={16 + 2 * number}")
        compile_encoders(objective, backend="eager")
        with torch.no_grad():
            assert torch.isfinite(objective.eval()(batch_of()).loss)


@pytest.mark.parametrize("kind", ["replaced-token", "electric", "masked-lm"])
def test_every_encoder_is_compiled(kind: str) -> None:
    objective = objective_of(f"objective.kind={kind}")
    compile_encoders(objective, backend="eager")
    encoders = [module for module in objective.modules() if isinstance(module, BertEncoder)]
    assert encoders and all(encoder._compiled_call_impl is not None for encoder in encoders)


def test_compiled_networks_have_dropout() -> None:
    objective = objective_of("model.dropout=0.1", "model.attention_dropout=0.1")
    compile_encoders(objective, backend="eager")
    logits = [objective.encoder(batch_of().input_ids_BL) for _ in range(2)]
    assert not torch.equal(*logits)
