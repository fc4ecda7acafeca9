"""Rows of two documents against the same documents in rows of their own, for every objective that reads them."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from configs import make_objective_config
from contract import KINDS, SPECIAL, batch, objective
from torch import Tensor

from electra.data.collate import Batch
from electra.objectives import adversarial, electric, generator_objective, replaced_token, row_rng
from electra.objectives.masking import Masking
from electra.objectives.row_rng import Purpose

ROWS, LENGTH = 6, 16
BY_ROW = ("random positions", "correction, negatives", "correction, negatives first")
"""Random positions of the discriminator, and negatives, are drawn for a row, whatever its documents."""
PACKED = [name for name, (config, _) in KINDS.items() if config.reads_packed_rows and name not in BY_ROW]


@dataclass(frozen=True)
class Packing:
    """Which of the positions of six rows (index in the flattened rows) the three packed rows hold, -1: padding."""

    indices_BL: Tensor
    documents_D2: Tensor

    @classmethod
    def of(cls, lengths_B: Tensor) -> "Packing":
        indices_BL, documents = torch.full((ROWS // 2, 2 * LENGTH), -1), []
        for row, length in enumerate(lengths_B.tolist()):
            start = 0 if row % 2 == 0 else int(lengths_B[row - 1])
            indices_BL[row // 2, start : start + length] = row * LENGTH + torch.arange(length)
            documents.append((row // 2 * 2 * LENGTH + start, length))
        return cls(indices_BL, torch.tensor(documents))

    def pack(self, x_BL: Tensor, padding: Any = 0) -> Tensor:
        return torch.where(self.indices_BL >= 0, x_BL.flatten()[self.indices_BL], padding)

    def pack_slots(self, x_BN: Tensor) -> Tensor:
        return x_BN.reshape(ROWS // 2, -1)

    def batch(self, whole: Batch) -> Batch:
        ids_BL = self.pack(whole.input_ids_BL, SPECIAL.pad)
        return Batch(
            ids_BL, torch.zeros_like(ids_BL), (self.indices_BL >= 0).sum(1), whole.seed,
            seeds_B=torch.arange(ROWS // 2), documents_D2=self.documents_D2,
        )  # fmt: skip

    def masking(self, masking: Masking) -> Masking:
        starts_D = self.documents_D2[:, 0] % (2 * LENGTH)
        positions_BN = self.pack_slots(masking.positions_BN + starts_D[:, None])
        used_BN, masked_BN = self.pack_slots(masking.used_BN), self.pack_slots(masking.masked_BN)
        return Masking(positions_BN, used_BN, masked_BN, self.pack(masking.input_ids_BL, SPECIAL.pad))


def draw_the_same(whole: Batch, packing: Packing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let objectives draw the same numbers for packed rows as for the rows of the documents."""

    def uniforms(seeds_B: Tensor, purpose: Purpose, count: int) -> Tensor:
        assert whole.seeds_B is not None
        drawn = row_rng.uniforms(whole.seeds_B, purpose, count if len(seeds_B) == ROWS else count // 2)
        if len(seeds_B) == ROWS:
            return drawn
        return packing.pack(drawn) if purpose == Purpose.RANDOM_POSITIONS else packing.pack_slots(drawn)

    for module in (adversarial, electric, generator_objective, replaced_token):
        if hasattr(module, "uniforms"):
            monkeypatch.setattr(module, "uniforms", uniforms)


def check(name: str, whole: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, packing = objective(name), Packing.of(whole.lengths_B)
    masking = ours.draw_masks(whole)  # type: ignore[operator]
    masks = {id(whole): masking, id(packed := packing.batch(whole)): packing.masking(masking)}
    monkeypatch.setattr(ours, "draw_masks", lambda one: masks[id(one)])
    draw_the_same(whole, packing, monkeypatch)
    results = []
    for one in (whole, packed):
        ours.zero_grad()
        output = ours(one)
        output.loss.backward()
        gradients = {key: p.grad.clone() for key, p in ours.named_parameters() if p.grad is not None}
        results.append((output, gradients))
    (output, expected), (packed_output, found) = results
    torch.testing.assert_close(packed_output.loss, output.loss, rtol=0, atol=1e-5)
    torch.testing.assert_close(packed_output.parts, output.parts, rtol=0, atol=1e-5)
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        torch.testing.assert_close(gradient, expected[key], rtol=0, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", PACKED)
def test_packed_documents_are_read_as_if_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, batch(ROWS, seed=5), monkeypatch)


def test_electric_reads_no_other_document_at_special_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"kind": "electric", "discriminator_positions": "all", "discriminator_weight": 5.0}
    monkeypatch.setitem(KINDS, "electric", (make_objective_config(**settings), KINDS["electric"][1]))
    whole = batch(ROWS, seed=5)  # in rows without padding, as padding is what [CLS] and [SEP] are next to there
    ids_BL = whole.input_ids_BL.where(whole.input_ids_BL > 4, 5)
    ids_BL[:, 0], ids_BL[:, -1] = SPECIAL.classify, SPECIAL.separate
    check("electric", replace(whole, input_ids_BL=ids_BL, lengths_B=torch.full((ROWS,), LENGTH)), monkeypatch)
