"""The encoder of Transformer-XL and XLNet: who sees whom, what is remembered, and what it costs."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from electra.config import problems_of
from electra.modeling.encoders.base import EncoderConfig, gather_positions
from electra.modeling.encoders.relative import RelativeConfig, RelativeEncoder, relative_terms
from electra.modeling.kernels import relative_attention

CONFIG = RelativeConfig(
    layers=3,
    hidden_size=32,
    embedding_size=32,
    feed_forward_size=48,
    heads=4,
    vocabulary_size=60,
    dropout=0.0,
    attention_dropout=0.0,
    initializer_range=0.3,
    linear_initializer_range=0.3,
    memory_length=7,
)
LEFT = replace(CONFIG, direction="left")
LENGTHS_B = torch.tensor([12, 5, 9])
TOKENS_BL = torch.arange(12) < LENGTHS_B[:, None]
TARGETS_BN = torch.tensor([[3, 11, 0], [4, 1, 0], [2, 8, 5]])


def encoder(config: EncoderConfig = CONFIG) -> RelativeEncoder:
    torch.manual_seed(0)
    return RelativeEncoder(config).double().eval()


def batch(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Ids and segments (3, 12)."""
    random = torch.Generator().manual_seed(seed)
    ids_BL, segment_ids_BL = torch.randint(60, (3, 12), generator=random), torch.arange(12).ge(6).long()
    return ids_BL, segment_ids_BL.expand(3, -1)


def permutation(seed: int = 2) -> Tensor:
    """True where the first of two positions comes later in a random order (3, 12, 12)."""
    order_BL = torch.rand(3, 12, generator=torch.Generator().manual_seed(seed)).argsort(1)
    return order_BL[:, :, None] > order_BL[:, None, :]


def close(found: Tensor | None, expected: Tensor | None) -> None:
    assert found is not None and expected is not None
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
def test_padding_changes_no_token(config: EncoderConfig) -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder(config)
    memory = network.read(*batch(5)).memory_YBMD
    found = network.read(ids_BL, segment_ids_BL, TOKENS_BL, memory_YBMD=memory, permutation_BLL=permutation())
    other = network.read(
        ids_BL.masked_fill(~TOKENS_BL, 7), segment_ids_BL, TOKENS_BL, memory_YBMD=memory,
        permutation_BLL=permutation(),
    )  # fmt: skip
    close(found.states_BND[TOKENS_BL], other.states_BND[TOKENS_BL])
    close(found.memory_YBMD, other.memory_YBMD)
    for row, length in enumerate(LENGTHS_B.tolist()):
        one = slice(row, row + 1), slice(0, length)
        alone = network.read(
            ids_BL[one], segment_ids_BL[one], memory_YBMD=memory[:, one[0]],
            permutation_BLL=permutation()[one[0], :length, :length],
        )  # fmt: skip
        close(found.states_BND[one], alone.states_BND)
        close(found.memory_YBMD[:, one[0]], alone.memory_YBMD)


@torch.no_grad()
def test_a_later_token_changes_nothing_before_it() -> None:
    ids_BL, _ = batch()
    network, memory = encoder(LEFT), encoder(LEFT).read(*batch(5)).memory_YBMD
    changed_BL = ids_BL.clone()
    changed_BL[:, 6] = (ids_BL[:, 6] + 1) % 60
    found = network.read(ids_BL, memory_YBMD=memory, targets_BN=TARGETS_BN)
    other = network.read(changed_BL, memory_YBMD=memory, targets_BN=TARGETS_BN)
    assert torch.equal(found.states_BND[:, :6], other.states_BND[:, :6])
    assert (found.states_BND[:, 6:] != other.states_BND[:, 6:]).any(-1).all()
    # The query stream sees what is before it only.
    changed_BN = (found.targets_BND != other.targets_BND).any(-1)
    assert torch.equal(changed_BN, TARGETS_BN > 6)


@torch.no_grad()
@pytest.mark.parametrize("segments", [False, True])
def test_one_block_remembers_as_if_it_had_read_on(segments: bool) -> None:
    """Its memory is of embeddings, which do not depend on what came before them."""
    config = replace(LEFT, layers=1, memory_length=12, type_vocabulary_size=1 + segments)
    ids_BL, segment_ids_BL = batch()
    earlier_BL, _ = batch(3)
    given = (segment_ids_BL,) if segments else ()
    before = (torch.zeros_like(segment_ids_BL),) if segments else ()
    network = encoder(config)
    found = network.read(ids_BL, *given, memory_YBMD=network.read(earlier_BL, *before).memory_YBMD)
    at_once = network.read(
        torch.cat([earlier_BL, ids_BL], 1),
        *(torch.cat([a, b], 1) for a, b in zip(before, given, strict=True)),
    )
    close(found.states_BND, at_once.states_BND[:, 12:])


@torch.no_grad()
def test_memory_is_the_last_tokens_of_each_row() -> None:
    """Rows of 12, 5 and 9 tokens, then of 2, none and 12: the inputs of one block are embeddings."""
    network = encoder(replace(CONFIG, layers=1))
    (first_BL, _), (second_BL, _) = batch(), batch(3)
    lengths_B = torch.tensor([2, 0, 12])
    memory = network.read(first_BL, None, TOKENS_BL).memory_YBMD
    assert memory.shape == (1, 3, 7, 32) and (memory[0, 1, :2] == 0).all()
    close(memory[0, 1, 2:], network.embeddings.token(first_BL[1, :5]))
    memory = network.read(
        second_BL, None, torch.arange(12) < lengths_B[:, None], memory_YBMD=memory
    ).memory_YBMD  # fmt: skip
    for row in range(3):
        read = torch.cat([first_BL[row, : LENGTHS_B[row]], second_BL[row, : lengths_B[row]]])[-7:]
        close(memory[0, row, 7 - len(read) :], network.embeddings.token(read))


@torch.no_grad()
def test_a_memory_grows_and_empty_slots_are_not_there() -> None:
    config = replace(CONFIG, memory_length=30)
    ids_BL, segment_ids_BL = batch()
    network = encoder(config)
    memory = network.read(*batch(3)).memory_YBMD
    assert memory.shape[2] == 12
    padded = torch.cat([torch.zeros(3, 3, 4, 32, dtype=torch.float64), memory], 2)
    found = network.read(ids_BL, segment_ids_BL, memory_YBMD=padded)
    expected = network.read(ids_BL, segment_ids_BL, memory_YBMD=memory)
    close(found.states_BND, expected.states_BND)
    assert expected.memory_YBMD.shape[2] == 24 and found.memory_YBMD.shape[2] == 28
    close(found.memory_YBMD[:, :, 4:], expected.memory_YBMD)
    assert network.read(ids_BL, memory_YBMD=expected.memory_YBMD).memory_YBMD.shape[2] == 30
    assert encoder(replace(config, memory_length=0)).read(ids_BL).memory_YBMD is None


@torch.no_grad()
@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
def test_fresh_rows_have_no_past(config: EncoderConfig) -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder(config)
    memory = network.read(*batch(3)).memory_YBMD
    fresh_B = torch.tensor([False, True, False])
    found = network.read(ids_BL, segment_ids_BL, TOKENS_BL, memory_YBMD=memory, new_document_B=fresh_B)
    going = network.read(ids_BL, segment_ids_BL, TOKENS_BL, memory_YBMD=memory)
    anew = network.read(ids_BL, segment_ids_BL, TOKENS_BL)
    for row, expected in enumerate((going, anew, going)):
        close(found.states_BND[row], expected.states_BND[row])
        close(found.memory_YBMD[:, row], expected.memory_YBMD[:, row])
    assert (found.memory_YBMD[:, 1, :2] == 0).all()  # it has read five tokens


def test_no_gradient_enters_the_memory() -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder()
    memory = network.read(*batch(3)).memory_YBMD
    assert memory.grad_fn is None
    memory.requires_grad_()
    found = network.read(ids_BL, segment_ids_BL, memory_YBMD=memory, targets_BN=TARGETS_BN)
    (found.states_BND.square().sum() + found.targets_BND.sum()).backward()
    assert memory.grad is None and not found.memory_YBMD.requires_grad
    assert all(parameter.grad is not None for parameter in network.parameters())


@torch.no_grad()
@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
def test_a_target_never_sees_its_own_token(config: EncoderConfig) -> None:
    """With a permutation its state depends on the tokens that come before it in it, and on nothing else."""
    ids_BL, segment_ids_BL = batch()
    network, order_BLL = encoder(config), permutation()
    memory = network.read(*batch(3)).memory_YBMD
    allowed_BLL = order_BLL.tril() if config.direction == "left" else order_BLL

    def targets(ids_BL: Tensor) -> Tensor:
        return network.read(
            ids_BL, segment_ids_BL, memory_YBMD=memory, permutation_BLL=order_BLL, targets_BN=TARGETS_BN
        ).targets_BND  # fmt: skip

    expected = targets(ids_BL)
    visible_BNL = gather_positions(allowed_BLL, TARGETS_BN)
    for _ in range(2):  # what a visible token has seen was visible too
        visible_BNL = visible_BNL | ((visible_BNL.double() @ allowed_BLL.double()) > 0)
    for position in range(12):
        changed_BL = ids_BL.clone()
        changed_BL[:, position] = (ids_BL[:, position] + 1) % 60
        changed_BN = (targets(changed_BL) != expected).any(-1)
        assert not changed_BN[position == TARGETS_BN].any()
        assert torch.equal(changed_BN, visible_BNL[:, :, position])


@torch.no_grad()
def test_a_target_that_may_see_nothing_has_a_state_that_depends_on_nothing() -> None:
    network = encoder()
    nothing_BLL = torch.zeros(3, 12, 12, dtype=torch.bool)
    found = [network.read(batch(seed)[0], permutation_BLL=nothing_BLL, targets_BN=TARGETS_BN) for seed in (1, 3)]
    assert torch.equal(found[0].targets_BND, found[1].targets_BND) and found[0].states_BND.isfinite().all()
    assert found[0].targets_BND.isfinite().all()


@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
@pytest.mark.parametrize("layers", [1, 3])
def test_states_at_certain_positions_are_those_of_all(config: EncoderConfig, layers: int) -> None:
    network = encoder(replace(config, layers=layers))
    memory = network.read(*batch(3)).memory_YBMD
    weights_BND, results = torch.randn(3, 3, 32, dtype=torch.float64), []
    given: dict[str, Any] = {
        "attention_mask_BL": TOKENS_BL, "memory_YBMD": memory, "targets_BN": TARGETS_BN,
        "permutation_BLL": permutation(),
    }  # fmt: skip
    for positions_BN in (None, TARGETS_BN):
        found = network.read(*batch(), **given, positions_BN=positions_BN)
        states_BND = gather_positions(found.states_BND, TARGETS_BN) if positions_BN is None else found.states_BND
        loss = ((states_BND + 2 * found.targets_BND) * weights_BND).sum()
        grads = torch.autograd.grad(loss, list(network.parameters()))
        results.append([states_BND, found.targets_BND, found.memory_YBMD, *grads])
    for every, some in zip(*results, strict=True):
        close(some, every)
    alone = network.read(*batch(), **given, positions_BN=TARGETS_BN[:, :0])
    assert alone.states_BND.shape == (3, 0, 32)
    close(alone.targets_BND, results[0][1])


def test_ids_of_one_segment_are_as_none() -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder()
    close(network.read(ids_BL, torch.zeros_like(ids_BL)).states_BND, network.read(ids_BL).states_BND)
    assert (network.read(ids_BL, segment_ids_BL).states_BND - network.read(ids_BL).states_BND).abs().max() > 1e-3
    one = encoder(replace(CONFIG, type_vocabulary_size=1))
    close(one(ids_BL, segment_ids_BL), one(ids_BL))
    close(network(ids_BL, tokens_BLE=network.embeddings.token(ids_BL)), network(ids_BL))


def test_a_seed_decides_what_is_dropped() -> None:
    network = encoder(replace(CONFIG, dropout=0.2, attention_dropout=0.3)).float().train()
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        states.append(network.read(*batch(), targets_BN=TARGETS_BN).targets_BND)
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_training_steps_lessen_the_loss(precision: torch.dtype) -> None:
    network = encoder(replace(CONFIG, initializer_range=0.02, linear_initializer_range=0.02)).float().train()
    optimizer, losses = torch.optim.Adam(network.parameters(), 3e-3), []
    (ids_BL, segment_ids_BL), memory = batch(), None
    for _ in range(30):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            found = network.read(
                ids_BL, segment_ids_BL, memory_YBMD=memory, permutation_BLL=permutation(), targets_BN=TARGETS_BN
            )
            memory, logits = found.memory_YBMD, found.targets_BND @ network.embeddings.token.weight.T
            words_BN = gather_positions(ids_BL, TARGETS_BN)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), words_BN.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_starts_from_the_ranges_of_the_config() -> None:
    torch.manual_seed(0)
    network = RelativeEncoder(replace(CONFIG, hidden_size=128, embedding_size=128))
    attention = network.blocks[0].attention
    for own in (attention.content_bias, attention.segments.weight, network.query_stream.weight):
        assert 0.15 < own.std() < 0.35
    assert attention.query.bias is None and attention.key_value.bias is None
    with pytest.raises(AssertionError, match="without a query stream"):
        RelativeEncoder(CONFIG, query_stream=False)(*batch(), targets_BN=TARGETS_BN)


def test_networks_that_are_none() -> None:
    def problems(**settings: Any) -> str:
        return "\n".join(problems_of(replace(CONFIG, **settings)))

    assert not problems() and not problems(direction="left", memory_length=0)
    assert "it is the hidden_size, 32; got 16" in problems(embedding_size=16)
    assert "must be even" in problems(hidden_size=33, embedding_size=33, heads=3)
    assert "memory_length: must be at least 0" in problems(memory_length=-1)


@pytest.mark.parametrize("name", ["memory_length", "direction", "share_layers"])
def test_settings_of_another_kind_are_refused(name: str) -> None:
    values = {"memory_length": 16, "direction": "left", "share_layers": "all"}
    kind = "relative" if name == "share_layers" else "bert"
    with pytest.raises(ValueError, match=f"{name}: needs kind"):
        EncoderConfig.variant({"kind": kind, name: values[name]})


@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
@pytest.mark.parametrize("targets", [0, 3])
def test_flops_are_what_torch_counts(config: EncoderConfig, targets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def plainly(*arguments: Any) -> Tensor:
        *given, share = arguments
        assert not share
        return relative_attention.attend_plain(*given, 1.0)

    network = encoder(config)
    memory = network.read(*batch(3)).memory_YBMD
    monkeypatch.setattr(relative_attention, "attend_by_head", plainly)
    ids_BL, segment_ids_BL = batch()
    for rows, wanted, segments in ((1, None, True), (3, 2, False)):
        with FlopCounterMode(display=False) as counter:
            network.read(
                ids_BL[:rows], segment_ids_BL[:rows] if segments else None, memory_YBMD=memory[:, :rows],
                targets_BN=TARGETS_BN[:rows] if targets else None,
                positions_BN=None if wanted is None else TARGETS_BN[:rows, :wanted],
            )  # fmt: skip
        terms = relative_terms(
            config, 12, memory=7, targets=targets, wanted=wanted, segments=segments, rows=rows
        )  # fmt: skip
        assert rows * sum(terms.values()) == pytest.approx(counter.get_total_flops(), abs=0.5)
