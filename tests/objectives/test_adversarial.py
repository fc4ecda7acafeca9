"""The adversarial gradients against formulas written down plainly, and what the generator does to D."""

import math
from typing import Any

import pytest
import torch
from configs import make_objective_config
from torch.nn import functional as F

from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.modeling.encoders.bert import BertConfig
from electra.objectives.adversarial import Adversarial
from electra.objectives.config import GeneratorConfig, ObjectiveParts
from electra.objectives.masking_config import MaskingConfig
from electra.objectives.row_rng import Purpose, uniforms
from electra.objectives.vocabulary import Vocabulary

SPECIAL = SpecialTokens(pad=0, unknown=1, classify=2, separate=3, mask=4)
V, SHARE, WEIGHT = 40, 0.4, 3.0
MODEL = BertConfig(
    layers=1, hidden_size=16, embedding_size=8, feed_forward_size=32, heads=2, vocabulary_size=V,
    max_positions=32, dropout=0.0, attention_dropout=0.0, initializer_range=0.3, linear_initializer_range=0.3,
)  # fmt: skip


def objective(**settings: Any) -> Adversarial:
    torch.manual_seed(0)
    config = make_objective_config(
        kind="adversarial", discriminator_weight=WEIGHT, generator_weight=0.7, **settings
    )
    generator = GeneratorConfig(hidden_size=16, feed_forward_size=32, heads=2)
    parts = ObjectiveParts(MODEL, generator, MaskingConfig(share=0.25), Vocabulary(SPECIAL, V))
    ours = Adversarial(parts, config)
    ours.adversarial_share = SHARE
    return ours


def batch() -> Batch:
    ids_BL = torch.randint(5, V, (6, 20), generator=torch.Generator().manual_seed(3))
    ids_BL[:, 0], ids_BL[:, -1] = SPECIAL.classify, SPECIAL.separate
    return Batch(ids_BL, torch.zeros_like(ids_BL), torch.full((6,), 20), seed=3)


def gradients(loss: torch.Tensor, ours: Adversarial) -> dict[str, torch.Tensor]:
    ours.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in ours.named_parameters() if p.grad is not None}


def the_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("share", [SHARE, 1.0])
def test_reinforce_is_the_formula(share: float) -> None:
    """loss_G = (1 - α) L_MLM - α Σ (R - b) log p(x̂), a mean over the chosen positions, with b = -log sigmoid(w
    h); and the cross-entropy of that sigmoid with exp(-R)."""
    ours, one = objective(), batch()
    ours.adversarial_share = share
    masking = ours.draw_masks(one)
    output = ours(one, masking=masking)
    assert ours.generator is not None
    states_nD = ours.generator.states(one, masking, None)
    log_p_nV = ours.generator.head.logits(states_nD, ours.generator.table_VE).log_softmax(-1)
    targets_n, used_n = masking.gather(one.input_ids_BL), masking.used_BN.flatten()
    samples_n = masking.gather(output.debug["corrupted_ids"])
    replaced_BL = (output.debug["corrupted_ids"] != one.input_ids_BL).float()
    logits_BL = ours.head(ours.encoder(output.debug["corrupted_ids"], one.segment_ids_BL, None))
    losses_BL = F.binary_cross_entropy_with_logits(logits_BL, replaced_BL, reduction="none")
    reward_n = masking.gather(losses_BL.detach())
    sure_n, right_n = ours.baseline(states_nD.detach()).squeeze(-1).sigmoid(), (-reward_n).exp()
    of_baseline = -right_n * sure_n.log() - (1 - right_n) * (1 - sure_n).log()
    rows = torch.arange(len(samples_n))
    likelihood = -log_p_nV[rows, targets_n]
    by_reward = -(reward_n + sure_n.detach().log()) * log_p_nV[rows, samples_n]
    of_g = ((1 - share) * likelihood + share * by_reward + of_baseline)[used_n].mean()
    text_BL = (one.input_ids_BL != SPECIAL.classify) & (one.input_ids_BL != SPECIAL.separate)
    plain = 0.7 * of_g + WEIGHT * losses_BL[text_BL].mean()
    torch.testing.assert_close(output.loss, plain, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output.parts["reward"], reward_n[used_n].mean())
    the_same(gradients(output.loss, ours), gradients(plain, ours))


def test_the_reward_of_a_correct_guess_is_that_of_an_original_token(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, one = objective(), batch()
    assert ours.generator is not None
    masking = ours.draw_masks(one)
    originals_n, used_n = masking.gather(one.input_ids_BL), masking.used_BN.flatten()
    predict = ours.generator.predict
    monkeypatch.setattr(ours.generator, "predict", lambda *given: (predict(*given)[0], originals_n))
    output = ours(one, masking=masking)
    assert not output.debug["replaced"].any()
    loss_BL = F.softplus(output.debug["logits"])  # of the label "original"
    torch.testing.assert_close(output.parts["reward"], masking.gather(loss_BL)[used_n].mean())


@pytest.mark.parametrize("adversary", ["gumbel", "gumbel-straight"])
def test_gumbel_reverses_the_gradient_of_the_discriminators_loss(adversary: str) -> None:
    """That of G is (1 - α) of the likelihood's, less α of the mean of D's loss over the chosen positions."""
    ours, one = objective(adversary=adversary, sharing="none", temperature=0.7), batch()
    masking = ours.draw_masks(one)
    found = gradients(ours(one, masking=masking).loss, ours)
    assert ours.generator is not None
    states_nD = ours.generator.states(one, masking, None)
    logits_nV = ours.generator.head.logits(states_nD, ours.generator.table_VE)
    targets_n, used_n = masking.gather(one.input_ids_BL), masking.used_BN.flatten()
    uniforms_nV = uniforms(one.row_seeds, Purpose.NOISE, masking.positions_BN.shape[1] * V).view(-1, V)
    noisy_nV = logits_nV - torch.log(-torch.log(uniforms_nV.clamp(min=1e-7)))
    soft_nV, samples_n = (noisy_nV / 0.7).softmax(-1), noisy_nV.argmax(-1)
    if adversary == "gumbel-straight":
        soft_nV = soft_nV + (F.one_hot(samples_n, V) - soft_nV).detach()
    ids_BL = ours.replace_tokens(one, masking, samples_n)
    table_VE = ours.encoder.embeddings.token.weight
    inputs_embeds_BLE = F.one_hot(ids_BL, V).float() @ table_VE
    rows_n = torch.arange(6).repeat_interleave(masking.positions_BN.shape[1])[used_n]
    inputs_embeds_BLE = inputs_embeds_BLE.index_put(
        (rows_n, masking.positions_BN.flatten()[used_n]), (soft_nV @ table_VE)[used_n]
    )
    logits_BL = ours.head(ours.encoder(ids_BL, one.segment_ids_BL, None, inputs_embeds_BLE=inputs_embeds_BLE))
    losses_BL = F.binary_cross_entropy_with_logits(
        logits_BL, (ids_BL != one.input_ids_BL).float(), reduction="none"
    )
    text_BL = (one.input_ids_BL != SPECIAL.classify) & (one.input_ids_BL != SPECIAL.separate)
    of_d = gradients(WEIGHT * losses_BL[text_BL].mean(), ours)
    states_nD = ours.generator.states(one, masking, None)
    logits_nV = ours.generator.head.logits(states_nD, ours.generator.table_VE)
    likelihood = F.cross_entropy(logits_nV[used_n], targets_n[used_n])
    expected = {**of_d, **gradients(0.7 * (1 - SHARE) * likelihood, ours)}
    for name in expected:
        if name.startswith("generator."):
            # D's loss is a mean over all of text; G's is one over the chosen positions, with G's own weight.
            expected[name] = expected[name] - 0.7 * SHARE * of_d[name] / WEIGHT * text_BL.sum() / used_n.sum()
    the_same(found, expected)


@pytest.mark.parametrize("adversary", ["gumbel", "gumbel-straight"])
def test_held_out_samples_do_not_depend_on_the_temperature(adversary: str) -> None:
    figures = []
    for temperature in (0.1, 2.0):
        ours = objective(adversary=adversary, temperature=temperature)
        figures.append(ours.evaluate([(batch(), batch())]))
        assert ours.generator is not None and ours.generator.sampling.temperature == temperature
    assert figures[0] == figures[1]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"adversary": "gumbel", "sentence_loss": "next"}, "would reach the generator through soft samples"),
        ({"sampling_dropout": False}, "learns from unmodified samples; set it to True"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], problem: str) -> None:
    (found,) = make_objective_config(kind="adversarial", **settings).problems()
    assert problem in found
    others = {name: value for name, value in settings.items() if name != "adversary"}
    assert not list(make_objective_config(**others).problems())


@pytest.mark.parametrize(
    ("anneal", "shares"),
    [("none", [1, 1, 1, 1]), ("linear", [0, 0.25, 0.5, 1]), ("cosine", [0, (1 - math.sqrt(0.5)) / 2, 0.5, 1])],
)
def test_the_share_of_the_adversarial_loss_grows(anneal: str, shares: list[float]) -> None:
    ours = objective(anneal=anneal)
    ours.adversarial_share = float(anneal == "none")
    found = []
    for step in (0, 25, 50, 100):
        ours.begin_step(step, 100)
        found.append(ours.adversarial_share)
    assert found == pytest.approx(shares)


@pytest.mark.parametrize("adversary", ["reinforce", "gumbel", "gumbel-straight"])
def test_a_generator_trained_alone_fools_the_discriminator(adversary: str) -> None:
    ours, one = objective(adversary=adversary, sharing="none"), batch()
    ours.adversarial_share = 1.0
    optimizer = torch.optim.Adam(ours.parameters(), lr=3e-3)
    for step in range(60):  # first D alone, which gets somewhere
        ours(Batch(one.input_ids_BL, one.segment_ids_BL, one.lengths_B, seed=step)).loss.backward()
        for name, parameter in ours.named_parameters():
            if name.startswith("generator."):
                parameter.grad = None
        optimizer.step()
        optimizer.zero_grad()

    def loss_of_d() -> float:
        seeds = range(100, 110)
        fresh = [Batch(one.input_ids_BL, one.segment_ids_BL, one.lengths_B, seed=seed) for seed in seeds]
        with torch.no_grad():
            return sum(float(ours(other).parts["discriminator_loss"]) for other in fresh)

    before = loss_of_d()
    for step in range(60):
        ours(Batch(one.input_ids_BL, one.segment_ids_BL, one.lengths_B, seed=1000 + step)).loss.backward()
        for name, parameter in ours.named_parameters():
            if not name.startswith(("generator.", "baseline.")):
                parameter.grad = None
        optimizer.step()
        optimizer.zero_grad()
    assert loss_of_d() > 1.1 * before
