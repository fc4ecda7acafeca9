"""The replaced-token objective against transformers' classes, step by step, and its parts."""

from dataclasses import replace
from typing import Literal

import pytest
import torch
from configs import make_objective_config
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.base import EncoderConfig
from electra.modeling.encoders.bert import BertConfig, BertEncoder
from electra.modeling.kernels.cross_entropy import Sampling
from electra.objectives.config import GeneratorConfig, ObjectiveConfig, ObjectiveParts
from electra.objectives.masking import Masking, replace_tokens, text_mask
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.replaced_token import ReplacedToken, ReplacedTokenConfig
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.vocabulary import Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
MODEL = BertConfig(
    layers=2, hidden_size=32, embedding_size=16, feed_forward_size=64, heads=2, vocabulary_size=300,
    max_positions=64, dropout=0.0, attention_dropout=0.0, initializer_range=0.3, linear_initializer_range=0.2,
)  # fmt: skip


def objective(
    config: ObjectiveConfig | None = None,
    *,
    model: EncoderConfig = MODEL,
    generator: int = 16,
    masking: MaskingConfig | None = None,
) -> ReplacedToken:
    torch.manual_seed(0)
    shape = GeneratorConfig(hidden_size=generator, heads=2 if generator == 32 else 0, feed_forward_size=64)
    parts = ObjectiveParts(model, shape, masking or MaskingConfig(), Vocabulary(SPECIAL, 300))
    return ReplacedToken(parts, config or ReplacedTokenConfig())


def batch(lengths: list[int], *, seed: int = 5) -> Batch:
    L = max(lengths)
    ids_BL = torch.randint(5, 300, (len(lengths), L), generator=torch.Generator().manual_seed(seed))
    segments_BL = (torch.arange(L) >= L // 2).long().expand(len(lengths), -1).clone()
    for row, length in enumerate(lengths):
        ids_BL[row, 0], ids_BL[row, L // 2 - 1], ids_BL[row, length - 1] = 2, 3, 3
        ids_BL[row, length:], segments_BL[row, length:] = 0, 0
    return Batch(ids_BL, segments_BL, torch.tensor(lengths), seed=seed)


def asked(positions: str, one: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions of the discriminator's loss, and the chosen positions."""
    ours = objective(make_objective_config(discriminator_positions=positions))  # type: ignore[arg-type]
    masking = ours.draw_masks(one)
    chosen_BL = torch.zeros_like(one.input_ids_BL).scatter_add_(1, masking.positions_BN, masking.used_BN.long())
    return ours.loss_mask(one, masking), chosen_BL > 0


def test_the_loss_of_electra_15_is_at_the_chosen_positions_only() -> None:
    asked_BL, chosen_BL = asked("masked", batch([60, 41, 17]))
    assert chosen_BL.sum() > 0 and torch.equal(asked_BL, chosen_BL)


def test_random_positions_are_as_many_and_independent_of_the_masks() -> None:
    one = batch([60] * 400)
    asked_BL, chosen_BL = asked("random", one)
    assert torch.equal(asked_BL.sum(1), chosen_BL.sum(1))
    text_BL = text_mask(one.input_ids_BL, SPECIAL)
    assert not (asked_BL & ~text_BL).any()
    text, each = int(text_BL[0].sum()), int(chosen_BL[0].sum())
    # The overlap of two draws without replacement is hypergeometric: each² / text in the mean.
    mean = each * each / text
    deviation = (mean * (1 - each / text) * (text - each) / (text - 1) / len(asked_BL)) ** 0.5
    assert float((asked_BL & chosen_BL).sum(1).float().mean()) == pytest.approx(mean, abs=5 * deviation)
    everywhere_L = asked_BL[:, text_BL[0]].float().mean(0)
    assert everywhere_L.min() > 0 and everywhere_L.max() < 3 * each / text


def test_text_is_all_but_special_tokens() -> None:
    one = batch([60, 41])
    assert torch.equal(asked("text", one)[0], text_mask(one.input_ids_BL, SPECIAL))
    assert torch.equal(asked("all", one)[0], torch.arange(60) < one.lengths_B[:, None])


def theirs(ours: BertEncoder) -> dict[str, int | float]:
    config = ours.config
    return {
        "vocab_size": config.vocabulary_size,
        "embedding_size": config.embedding_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feed_forward_size,
        "max_position_embeddings": config.max_positions,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


@pytest.mark.parametrize("lengths", [[24, 24], [24, 20, 17]])
@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_loss_and_gradient_equal_those_of_transformers(tmp_path, lengths: list[int], sharing: str) -> None:  # type: ignore[no-untyped-def]
    """The whole step written with transformers' networks, the plain loss, and the masks and samples of ours."""
    transformers = pytest.importorskip("transformers")
    from electra.export.formats.base import FolderConfig, Networks
    from electra.export.formats.bert import BertFormat

    config = make_objective_config(discriminator_weight=7.0, sharing=sharing)  # type: ignore[arg-type]
    ours = objective(config, generator=32 if sharing == "all" else 16)
    one = batch(lengths)
    output = ours(one)
    output.loss.backward()

    networks = {}
    for name, tower in ours.exportable_networks().items():
        kind = transformers.ElectraForPreTraining if name == "discriminator" else transformers.ElectraForMaskedLM
        network = kind(transformers.ElectraConfig(**theirs(tower.encoder)))
        folder_config = FolderConfig("electra", tower.encoder.config, pad_id=0)
        tensors = BertFormat().write_tensors(Networks(tower.encoder, tower.head), folder_config)
        network.load_state_dict(tensors, strict=False)
        networks[name] = network.eval()
    ids_BL, text_BL = one.input_ids_BL, text_mask(one.input_ids_BL, SPECIAL)
    mask_BL = (torch.arange(ids_BL.shape[1]) < one.lengths_B[:, None]).long()
    masking = ours.draw_masks(one)
    logits_BLV = networks["generator"](
        masking.input_ids_BL, token_type_ids=one.segment_ids_BL, attention_mask=mask_BL
    ).logits
    used = masking.used_BN.flatten()
    logits_NV, targets_N = masking.gather(logits_BLV)[used], masking.gather(ids_BL)[used]
    generator_loss = F.cross_entropy(logits_NV, targets_N)
    uniforms_N = uniforms(one.row_seeds, Purpose.SAMPLES, masking.used_BN.shape[1]).flatten()
    cumulative_NV = masking.gather(logits_BLV).softmax(-1).cumsum(-1)
    samples_N = torch.searchsorted(cumulative_NV, uniforms_N[:, None], right=True).squeeze(1).clamp(max=299)
    corrupted_BL = replace_tokens(ids_BL, samples_N, masking, MaskingConfig())
    logits_BL = networks["discriminator"](
        corrupted_BL, token_type_ids=one.segment_ids_BL, attention_mask=mask_BL
    ).logits
    labels = (corrupted_BL != ids_BL).float()[text_BL]
    discriminator_loss = F.binary_cross_entropy_with_logits(logits_BL[text_BL], labels)
    expected = generator_loss + 7.0 * discriminator_loss
    expected.backward()

    torch.testing.assert_close(output.parts["generator_loss"], generator_loss.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(output.loss, expected, rtol=1e-5, atol=1e-6)
    table = ours.encoder.embeddings.token.weight.grad
    parts = [network.electra.embeddings.word_embeddings.weight.grad for network in networks.values()]
    if sharing == "none":
        torch.testing.assert_close(table, parts[0], rtol=1e-4, atol=1e-6)
    else:  # both networks pull at the one table
        torch.testing.assert_close(table, parts[0] + parts[1], rtol=1e-4, atol=1e-6)


def every_second_is_right(one: Batch, masking: Masking) -> torch.Tensor:
    """Samples (n) that are the original token at every second slot, and another one at the others."""
    originals_n = masking.gather(one.input_ids_BL)
    return torch.where(torch.arange(len(originals_n)) % 2 == 0, originals_n, 5 + (originals_n - 4) % 295)


def test_a_sample_that_is_the_original_token_is_not_replaced() -> None:
    ours, one = objective(), batch([60, 41, 17])
    masking = ours.draw_masks(one)
    samples_n = every_second_is_right(one, masking)
    output = ours(one, masking=masking, samples_n=samples_n)
    replaced_BL = torch.zeros(3, 60, dtype=torch.bool)
    for slot in range(1, len(samples_n), 2):
        row, column = divmod(slot, masking.positions_BN.shape[1])
        if masking.used_BN[row, column]:
            replaced_BL[row, masking.positions_BN[row, column]] = True
    assert 0 < replaced_BL.sum() < masking.used_BN.sum()
    assert torch.equal(output.debug["replaced"], replaced_BL)
    text_BL = text_mask(one.input_ids_BL, SPECIAL)
    expected = F.binary_cross_entropy_with_logits(output.debug["logits"][text_BL], replaced_BL[text_BL].float())
    torch.testing.assert_close(output.parts["discriminator_loss"], expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(output.parts["replaced_share"], replaced_BL.sum() / text_BL.sum())


def test_a_held_out_sample_that_is_the_original_token_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, one = objective(make_objective_config(fakes="uniform")), batch([60, 41, 17])  # type: ignore[arg-type]
    samples_n = every_second_is_right(one, ours.draw_masks(one))
    monkeypatch.setattr(ours, "sample", lambda *_: samples_n)
    replaced = int(ours(one).debug["replaced"].sum())
    text_BL = text_mask(one.input_ids_BL, SPECIAL)
    found = ours.evaluate([(one, one)])
    assert replaced > 0 and found["eval/replaced_share"] == pytest.approx(replaced / int(text_BL.sum()))


@pytest.mark.parametrize("everywhere", [True, False])
def test_samples_may_stay_away_from_tokens_that_are_not_masked(everywhere: bool) -> None:
    config = make_objective_config(sample_unmasked=everywhere)
    ours, one = objective(config, masking=MaskingConfig(share=0.3, mask_share=0.5)), batch([60, 41, 17])
    masking = ours.draw_masks(one)
    others_n = 5 + (masking.gather(one.input_ids_BL) - 4) % 295  # never the original token
    replaced_BL = ours(one, masking=masking, samples_n=others_n).debug["replaced"]
    replaced_BN = replaced_BL.gather(1, masking.positions_BN)
    assert 0 < masking.masked_BN.sum() < masking.used_BN.sum()
    assert torch.equal(replaced_BN, masking.used_BN if everywhere else masking.masked_BN)


@pytest.mark.parametrize("dropout", [True, False])
def test_samples_may_be_drawn_without_dropout(dropout: bool) -> None:
    ours = objective(make_objective_config(sampling_dropout=dropout), model=replace(MODEL, dropout=0.5)).train()  # type: ignore[arg-type]
    corrupted = []
    for seed in range(2):
        torch.manual_seed(seed)
        corrupted.append(ours(batch([60, 41])).debug["corrupted_ids"])
    assert torch.equal(*corrupted) != dropout


def test_the_temperature_changes_from_the_first_to_the_final_one() -> None:
    ours = objective(make_objective_config(temperature=2.0, final_temperature=0.5, top_k=7, disallow_correct=True))
    found = []
    for step in (0, 50, 100):
        ours.begin_step(step, 100)
        assert ours.generator is not None
        found.append(ours.generator.sampling)
    assert found == [Sampling(temperature, True, 7) for temperature in (2.0, 1.25, 0.5)]


@pytest.mark.parametrize("positions", ["text", "all", "masked"])
def test_the_share_of_replaced_tokens_is_that_of_the_text(positions: Literal["text", "all", "masked"]) -> None:
    ours, one = objective(make_objective_config(discriminator_positions=positions)), batch([60, 41, 17])
    output, text_BL = ours(one), text_mask(one.input_ids_BL, SPECIAL)
    replaced_n = (output.debug["corrupted_ids"] != one.input_ids_BL)[text_BL]
    torch.testing.assert_close(output.parts["replaced_share"], replaced_n.float().mean())


@torch.no_grad()
def test_held_out_metrics_of_the_generator_are_of_the_tokens_that_are_not_visible() -> None:
    ours, one = objective(masking=MaskingConfig(share=0.3, mask_share=0.5)), batch([60, 41, 17])
    masking, mask_BL = ours.draw_masks(one), torch.arange(60) < one.lengths_B[:, None]
    hidden_n = masking.masked_BN.flatten()
    assert ours.generator is not None and 0 < hidden_n.sum() < masking.used_BN.sum()
    states_nD = ours.generator.states(one, masking, mask_BL)
    logits_nV = ours.generator.head.logits(states_nD, ours.generator.table_VE)[hidden_n]
    expected = F.cross_entropy(logits_nV, masking.gather(one.input_ids_BL)[hidden_n])
    assert ours.evaluate([(one, one)])["eval/masked_lm_loss"] == pytest.approx(float(expected), rel=1e-5)


def test_no_gradient_reaches_the_generator_through_the_samples() -> None:
    ours = objective(make_objective_config(sharing="none"))
    output = ours(batch([24, 24]))
    (output.loss - output.loss.detach()).backward()
    with_both = {n: p.grad.clone() for n, p in ours.generator.encoder.named_parameters() if p.grad is not None}
    ours.zero_grad()
    ours.config = replace(ours.config, discriminator_weight=0.0)
    ours(batch([24, 24])).loss.backward()
    for name, parameter in ours.generator.encoder.named_parameters():
        assert torch.equal(with_both[name], parameter.grad), name  # type: ignore[arg-type]


def test_the_networks_share_the_configured_weights() -> None:
    none, tables, everything = (
        objective(make_objective_config(sharing=sharing), generator=32)  # type: ignore[arg-type]
        for sharing in ("none", "embeddings", "all")
    )
    shared = [
        set(o.generator.encoder.parameters()) & set(o.encoder.parameters()) for o in (none, tables, everything)
    ]
    assert [len(names) for names in shared] == [0, 3, len(list(everything.encoder.parameters()))]


def test_the_same_seed_draws_the_same_masks_and_another_one_others() -> None:
    ours = objective()
    losses = [ours(batch([24, 24], seed=5)).loss.item() for _ in range(2)]
    assert losses[0] == losses[1]
    other = replace(batch([24, 24], seed=5), seed=6)
    assert ours(other).loss.item() != losses[0]


def test_counts_are_what_the_losses_are_means_over() -> None:
    ours = objective()
    counts = ours.counts(batch([24, 14]))
    # 24: [CLS] and two [SEP] leave 21 words, of which round(3.15) = 3 are chosen; 14: 11 words, 2 chosen
    assert {name: int(value) for name, value in counts.items()} == {
        "generator": 5,
        "discriminator": 32,
        "text": 32,
    }
    halved = ours(batch([24, 14]), {name: 2 * value for name, value in counts.items()})
    torch.testing.assert_close(2 * halved.loss, ours(batch([24, 14])).loss)


def test_evaluation_does_not_change_training() -> None:
    ours = objective(model=replace(MODEL, dropout=0.3))
    ours.train()
    torch.manual_seed(3)
    first = torch.rand(1)
    torch.manual_seed(3)
    one, two = (ours.evaluate([(batch([24, 20]), batch([24, 20], seed=9))]) for _ in range(2))
    assert ours.training and torch.equal(torch.rand(1), first)
    assert one == two
    assert 0 <= one["eval/unigram_auc"] <= 1 and one["eval/masked_lm_loss"] > 0


def test_evaluation_counts_the_unigram_copy_where_it_differs() -> None:
    ours = objective()
    one = batch([24, 24])
    copy = one.input_ids_BL.clone()
    copy[:, 5] = 299
    figures = ours.evaluate([(one, replace(one, input_ids_BL=copy))])
    logits_BL = ours.head(ours.encoder(copy, one.segment_ids_BL, None))
    text_BL = text_mask(one.input_ids_BL, SPECIAL)
    fakes, rest = logits_BL[:, 5], logits_BL[text_BL & (torch.arange(24) != 5)]
    expected = (fakes[:, None] > rest[None]).float().mean()  # the definition of the AUC
    assert figures["eval/unigram_auc"] == pytest.approx(float(expected), abs=1e-6)


def test_a_generator_has_the_discriminators_shape_by_default() -> None:
    shape = GeneratorConfig(hidden_size=64).encoder(BertConfig(layers=12, vocabulary_size=9))
    assert (shape.layers, shape.feed_forward_size, shape.heads, shape.embedding_size) == (12, 256, 1, 128)
    assert list(GeneratorConfig(hidden_size=100, heads=3).problems())
