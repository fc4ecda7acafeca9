"""The encoder of Transformer-XL and XLNet: attention masks, memory, two streams, FLOPs."""

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


def close(actual: Tensor | None, expected: Tensor | None) -> None:
    assert actual is not None and expected is not None
    torch.testing.assert_close(actual, expected, atol=1e-11, rtol=1e-11)


@torch.no_grad()
@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
def test_padding_changes_no_token(config: EncoderConfig) -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder(config)
    memory = network.encode(*batch(5)).memory_YBMD
    output = network.encode(ids_BL, segment_ids_BL, TOKENS_BL, memory_YBMD=memory, permutation_BLL=permutation())
    other = network.encode(
        ids_BL.masked_fill(~TOKENS_BL, 7), segment_ids_BL, TOKENS_BL, memory_YBMD=memory,
        permutation_BLL=permutation(),
    )  # fmt: skip
    close(output.states_BND[TOKENS_BL], other.states_BND[TOKENS_BL])
    close(output.memory_YBMD, other.memory_YBMD)
    for row, length in enumerate(LENGTHS_B.tolist()):
        one = slice(row, row + 1), slice(0, length)
        unpadded = network.encode(
            ids_BL[one], segment_ids_BL[one], memory_YBMD=memory[:, one[0]],
            permutation_BLL=permutation()[one[0], :length, :length],
        )  # fmt: skip
        close(output.states_BND[one], unpadded.states_BND)
        close(output.memory_YBMD[:, one[0]], unpadded.memory_YBMD)


@torch.no_grad()
def test_a_later_token_changes_nothing_before_it() -> None:
    ids_BL, _ = batch()
    network, memory = encoder(LEFT), encoder(LEFT).encode(*batch(5)).memory_YBMD
    changed_BL = ids_BL.clone()
    changed_BL[:, 6] = (ids_BL[:, 6] + 1) % 60
    output = network.encode(ids_BL, memory_YBMD=memory, targets_BN=TARGETS_BN)
    other = network.encode(changed_BL, memory_YBMD=memory, targets_BN=TARGETS_BN)
    assert torch.equal(output.states_BND[:, :6], other.states_BND[:, :6])
    assert (output.states_BND[:, 6:] != other.states_BND[:, 6:]).any(-1).all()
    # The query stream sees what is before it only.
    changed_BN = (output.targets_BND != other.targets_BND).any(-1)
    assert torch.equal(changed_BN, TARGETS_BN > 6)


@torch.no_grad()
@pytest.mark.parametrize("segments", [False, True])
def test_memory_of_one_block_equals_a_longer_input(segments: bool) -> None:
    """The memory of one block holds embeddings, which do not depend on earlier tokens."""
    config = replace(LEFT, layers=1, memory_length=12, type_vocabulary_size=1 + segments)
    ids_BL, segment_ids_BL = batch()
    earlier_BL, _ = batch(3)
    given = (segment_ids_BL,) if segments else ()
    before = (torch.zeros_like(segment_ids_BL),) if segments else ()
    network = encoder(config)
    output = network.encode(ids_BL, *given, memory_YBMD=network.encode(earlier_BL, *before).memory_YBMD)
    together = network.encode(
        torch.cat([earlier_BL, ids_BL], 1),
        *(torch.cat([a, b], 1) for a, b in zip(before, given, strict=True)),
    )
    close(output.states_BND, together.states_BND[:, 12:])


@torch.no_grad()
def test_memory_is_the_last_tokens_of_each_row() -> None:
    """The rows have 12, 5 and 9 tokens, then 2, 0 and 12. The inputs of one block are embeddings."""
    network = encoder(replace(CONFIG, layers=1))
    (first_BL, _), (second_BL, _) = batch(), batch(3)
    lengths_B = torch.tensor([2, 0, 12])
    memory = network.encode(first_BL, None, TOKENS_BL).memory_YBMD
    assert memory.shape == (1, 3, 7, 32) and (memory[0, 1, :2] == 0).all()
    close(memory[0, 1, 2:], network.embeddings.token(first_BL[1, :5]))
    memory = network.encode(
        second_BL, None, torch.arange(12) < lengths_B[:, None], memory_YBMD=memory
    ).memory_YBMD  # fmt: skip
    for row in range(3):
        read = torch.cat([first_BL[row, : LENGTHS_B[row]], second_BL[row, : lengths_B[row]]])[-7:]
        close(memory[0, row, 7 - len(read) :], network.embeddings.token(read))


@torch.no_grad()
def test_a_memory_grows_and_empty_places_are_masked() -> None:
    config = replace(CONFIG, memory_length=30)
    ids_BL, segment_ids_BL = batch()
    network = encoder(config)
    memory = network.encode(*batch(3)).memory_YBMD
    assert memory.shape[2] == 12
    padded = torch.cat([torch.zeros(3, 3, 4, 32, dtype=torch.float64), memory], 2)
    output = network.encode(ids_BL, segment_ids_BL, memory_YBMD=padded)
    expected = network.encode(ids_BL, segment_ids_BL, memory_YBMD=memory)
    close(output.states_BND, expected.states_BND)
    assert expected.memory_YBMD.shape[2] == 24 and output.memory_YBMD.shape[2] == 28
    close(output.memory_YBMD[:, :, 4:], expected.memory_YBMD)
    assert network.encode(ids_BL, memory_YBMD=expected.memory_YBMD).memory_YBMD.shape[2] == 30
    assert encoder(replace(config, memory_length=0)).encode(ids_BL).memory_YBMD is None


@torch.no_grad()
@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
def test_rows_with_a_new_document_have_no_memory(config: EncoderConfig) -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder(config)
    memory = network.encode(*batch(3)).memory_YBMD
    new_document_B = torch.tensor([False, True, False])
    output = network.encode(ids_BL, segment_ids_BL, TOKENS_BL, memory_YBMD=memory, new_document_B=new_document_B)
    continued = network.encode(ids_BL, segment_ids_BL, TOKENS_BL, memory_YBMD=memory)
    restarted = network.encode(ids_BL, segment_ids_BL, TOKENS_BL)
    for row, expected in enumerate((continued, restarted, continued)):
        close(output.states_BND[row], expected.states_BND[row])
        close(output.memory_YBMD[:, row], expected.memory_YBMD[:, row])
    assert (output.memory_YBMD[:, 1, :2] == 0).all()  # the row has five tokens


def test_no_gradient_enters_the_memory() -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder()
    memory = network.encode(*batch(3)).memory_YBMD
    assert memory.grad_fn is None
    memory.requires_grad_()
    output = network.encode(ids_BL, segment_ids_BL, memory_YBMD=memory, targets_BN=TARGETS_BN)
    (output.states_BND.square().sum() + output.targets_BND.sum()).backward()
    assert memory.grad is None and not output.memory_YBMD.requires_grad
    assert all(parameter.grad is not None for parameter in network.parameters())


@torch.no_grad()
@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
def test_a_target_never_sees_its_own_token(config: EncoderConfig) -> None:
    """With a permutation, its state depends on the tokens before it in the permutation, and on no others."""
    ids_BL, segment_ids_BL = batch()
    network, order_BLL = encoder(config), permutation()
    memory = network.encode(*batch(3)).memory_YBMD
    allowed_BLL = order_BLL.tril() if config.direction == "left" else order_BLL

    def targets(ids_BL: Tensor) -> Tensor:
        return network.encode(
            ids_BL, segment_ids_BL, memory_YBMD=memory, permutation_BLL=order_BLL, targets_BN=TARGETS_BN
        ).targets_BND  # fmt: skip

    expected = targets(ids_BL)
    visible_BNL = gather_positions(allowed_BLL, TARGETS_BN)
    for _ in range(2):  # visible tokens have seen other tokens in earlier blocks
        visible_BNL = visible_BNL | ((visible_BNL.double() @ allowed_BLL.double()) > 0)
    for position in range(12):
        changed_BL = ids_BL.clone()
        changed_BL[:, position] = (ids_BL[:, position] + 1) % 60
        changed_BN = (targets(changed_BL) != expected).any(-1)
        assert not changed_BN[position == TARGETS_BN].any()
        assert torch.equal(changed_BN, visible_BNL[:, :, position])


@torch.no_grad()
def test_a_fully_masked_target_depends_on_no_token() -> None:
    network = encoder()
    nothing_BLL = torch.zeros(3, 12, 12, dtype=torch.bool)
    output = [
        network.encode(batch(seed)[0], permutation_BLL=nothing_BLL, targets_BN=TARGETS_BN) for seed in (1, 3)
    ]
    assert torch.equal(output[0].targets_BND, output[1].targets_BND) and output[0].states_BND.isfinite().all()
    assert output[0].targets_BND.isfinite().all()


@pytest.mark.parametrize("config", [CONFIG, LEFT], ids=["both", "left"])
@pytest.mark.parametrize("layers", [1, 3])
def test_states_at_some_positions_equal_those_of_all(config: EncoderConfig, layers: int) -> None:
    network = encoder(replace(config, layers=layers))
    memory = network.encode(*batch(3)).memory_YBMD
    weights_BND, results = torch.randn(3, 3, 32, dtype=torch.float64), []
    given: dict[str, Any] = {
        "attention_mask_BL": TOKENS_BL, "memory_YBMD": memory, "targets_BN": TARGETS_BN,
        "permutation_BLL": permutation(),
    }  # fmt: skip
    for positions_BN in (None, TARGETS_BN):
        output = network.encode(*batch(), **given, positions_BN=positions_BN)
        states_BND = gather_positions(output.states_BND, TARGETS_BN) if positions_BN is None else output.states_BND
        loss = ((states_BND + 2 * output.targets_BND) * weights_BND).sum()
        grads = torch.autograd.grad(loss, list(network.parameters()))
        results.append([states_BND, output.targets_BND, output.memory_YBMD, *grads])
    for from_all, from_some in zip(*results, strict=True):
        close(from_some, from_all)
    targets_only = network.encode(*batch(), **given, positions_BN=TARGETS_BN[:, :0])
    assert targets_only.states_BND.shape == (3, 0, 32)
    close(targets_only.targets_BND, results[0][1])


def test_one_segment_equals_no_segment_ids() -> None:
    ids_BL, segment_ids_BL = batch()
    network = encoder()
    close(network.encode(ids_BL, torch.zeros_like(ids_BL)).states_BND, network.encode(ids_BL).states_BND)
    assert (
        network.encode(ids_BL, segment_ids_BL).states_BND - network.encode(ids_BL).states_BND
    ).abs().max() > 1e-3
    without_segments = encoder(replace(CONFIG, type_vocabulary_size=1))
    close(without_segments(ids_BL, segment_ids_BL), without_segments(ids_BL))
    close(network(ids_BL, inputs_embeds_BLE=network.embeddings.token(ids_BL)), network(ids_BL))


def test_the_seed_decides_dropout() -> None:
    network = encoder(replace(CONFIG, dropout=0.2, attention_dropout=0.3)).float().train()
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        states.append(network.encode(*batch(), targets_BN=TARGETS_BN).targets_BND)
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_training_reduces_the_loss(precision: torch.dtype) -> None:
    network = encoder(replace(CONFIG, initializer_range=0.02, linear_initializer_range=0.02)).float().train()
    optimizer, losses = torch.optim.Adam(network.parameters(), 3e-3), []
    (ids_BL, segment_ids_BL), memory = batch(), None
    for _ in range(30):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            output = network.encode(
                ids_BL, segment_ids_BL, memory_YBMD=memory, permutation_BLL=permutation(), targets_BN=TARGETS_BN
            )
            memory, logits = output.memory_YBMD, output.targets_BND @ network.embeddings.token.weight.T
            target_ids_BN = gather_positions(ids_BL, TARGETS_BN)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), target_ids_BN.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_weights_are_initialized_as_the_config_says() -> None:
    torch.manual_seed(0)
    network = RelativeEncoder(replace(CONFIG, hidden_size=128, embedding_size=128))
    attention = network.blocks[0].attention
    for parameter in (attention.content_bias, attention.segments.weight, network.query_stream.weight):
        assert 0.15 < parameter.std() < 0.35
    assert attention.query.bias is None and attention.key_value.bias is None
    with pytest.raises(AssertionError, match="without a query stream"):
        RelativeEncoder(CONFIG, query_stream=False)(*batch(), targets_BN=TARGETS_BN)


def test_invalid_configs_are_refused() -> None:
    def problems(**settings: Any) -> str:
        return "\n".join(problems_of(replace(CONFIG, **settings)))

    assert not problems() and not problems(direction="left", memory_length=0)
    assert "it must equal hidden_size, 32; got 16" in problems(embedding_size=16)
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
def test_flops_equal_the_count_of_torch(
    config: EncoderConfig, targets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attend_plain(*arguments: Any) -> Tensor:
        *inputs, p = arguments
        assert p == 0
        return relative_attention.attend_plain(*inputs, 1.0)

    network = encoder(config)
    memory = network.encode(*batch(3)).memory_YBMD
    monkeypatch.setattr(relative_attention, "attend_by_head", attend_plain)
    ids_BL, segment_ids_BL = batch()
    for rows, outputs, segments in ((1, None, True), (3, 2, False)):
        with FlopCounterMode(display=False) as counter:
            network.encode(
                ids_BL[:rows], segment_ids_BL[:rows] if segments else None, memory_YBMD=memory[:, :rows],
                targets_BN=TARGETS_BN[:rows] if targets else None,
                positions_BN=None if outputs is None else TARGETS_BN[:rows, :outputs],
            )  # fmt: skip
        terms = relative_terms(
            config, 12, memory=7, targets=targets, outputs=outputs, segments=segments, batch_size=rows
        )  # fmt: skip
        assert rows * sum(terms.values()) == pytest.approx(counter.get_total_flops(), abs=0.5)
