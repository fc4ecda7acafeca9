"""What every objective must do, whatever it trains."""

import math
from dataclasses import replace

import pytest
import torch
from contract import KINDS, MODEL, SPECIAL, TABLES, WORDS, batch, objective, rows

from electra.data.collate import UNPAIRED, Batch
from electra.modeling.flops import training_flops
from electra.objectives.base import Objective
from electra.pretraining.config import PretrainConfig, build_objective

each = pytest.mark.parametrize("name", KINDS)


def gradients(ours: Objective) -> dict[str, torch.Tensor]:
    found = {n: p.grad.clone() for n, p in ours.named_parameters() if p.grad is not None}
    ours.zero_grad()
    return found


def corrupted(whole: Batch) -> Batch:
    """The batch with other words here and there."""
    random = torch.Generator().manual_seed(0)
    ids_BL, shape = whole.input_ids_BL, whole.input_ids_BL.shape
    chosen_BL = (torch.rand(shape, generator=random) < 0.15) & (ids_BL > 4)
    words_BL = torch.randint(5, 5 + WORDS, shape, generator=random)
    return replace(whole, input_ids_BL=torch.where(chosen_BL, words_BL, ids_BL))


@each
def test_it_learns_a_toy_language(name: str) -> None:
    ours, steps = objective(name), 200
    optimizer = torch.optim.AdamW(ours.parameters(), lr=3e-3)
    heldout = batch(256, seed=10_000)
    figure, enough = judged(ours, name, heldout), 0.3
    if "discriminator" in ours.exportable_networks() and not learns_alone(name):
        # Random weights have an AUC up to .57; few positions teach slowly.
        enough = 0.6 if name.endswith("positions") else 0.65
    assert figure < enough - 0.02
    for step in range(steps):
        ours.begin_step(step, steps)
        ours(batch(16, seed=step)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 19 and (figure := judged(ours, name, heldout)) > enough:
            break
    assert figure > enough


def learns_alone(name: str) -> bool:
    # Electric: its cloze model learns this fast, its energies do not.
    return name.endswith(("masked-lm", "causal-lm", "permutation-lm", "electric"))


def judged(ours: Objective, name: str, heldout: Batch) -> float:
    """The largest of the held-out figures that say whether the objective has learned."""
    names = {
        "discriminator": ("eval/discriminator_auc", "eval/unigram_auc"), "encoder": ("eval/restored_accuracy",),
        "alone": ("eval/masked_lm_accuracy", "eval/language_model_accuracy", "eval/permutation_lm_accuracy"),
    }  # fmt: skip
    figures = ours.evaluate([(heldout, corrupted(heldout))])
    kind = "alone" if learns_alone(name) else next(iter(ours.exportable_networks()))
    return max(figures.get(key, 0.0) for key in names[kind])


@each
@pytest.mark.parametrize("step", [3, 8], ids=["early", "late"])
def test_micro_batches_are_the_batch(name: str, step: int) -> None:
    ours, whole = objective(name), batch(12, seed=3)
    ours.begin_step(step, 10)
    once = ours(whole)
    once.loss.backward()
    expected = gradients(ours)
    parts = [rows(whole, slice(0, 5)), rows(whole, slice(5, 12))]
    counts = [ours.counts(part) for part in parts]
    totals = {key: counts[0][key] + counts[1][key] for key in counts[0]}
    outputs = [ours(part, totals) for part in parts]
    for output in outputs:
        output.loss.backward()
    torch.testing.assert_close(outputs[0].loss + outputs[1].loss, once.loss, rtol=1e-5, atol=1e-6)
    for key, value in once.parts.items():
        torch.testing.assert_close(outputs[0].parts[key] + outputs[1].parts[key], value, rtol=1e-5, atol=1e-6)
    found = gradients(ours)
    assert found.keys() == expected.keys()
    for key, gradient in found.items():
        torch.testing.assert_close(gradient, expected[key], rtol=1e-4, atol=1e-6, msg=key)


@each
def test_a_step_follows_from_weights_batch_and_number(name: str) -> None:
    """So a run that goes on from a checkpoint ends as if it had not been stopped."""
    ours, resumed = objective(name), objective(name)
    for step in range(8):
        ours.begin_step(step, 10)
    with torch.no_grad():  # as a checkpoint has them
        for mine, theirs in zip(resumed.parameters(), ours.parameters(), strict=True):
            mine.copy_(theirs)
    resumed.begin_step(7, 10)
    for one in (ours, resumed):
        one(batch(4, seed=1)).loss.backward()
    expected, found = gradients(ours), gradients(resumed)
    assert expected.keys() == found.keys() and all(torch.equal(expected[n], found[n]) for n in expected)


@each
def test_evaluation_is_repeatable_and_changes_nothing(name: str) -> None:
    ours = objective(name)
    ours.train()
    one = batch(8, seed=1)
    copy = replace(one, input_ids_BL=torch.where(torch.rand(8, 16) < 0.1, 5, one.input_ids_BL))
    first, second = (ours.evaluate([(one, copy)]) for _ in range(2))
    assert first == second and first and all(key.startswith("eval/") for key in first)
    assert ours.training and all(module.training for module in ours.modules() if list(module.parameters()))


@pytest.mark.parametrize("name", ["causal-lm", "permutation-lm"])
def test_the_held_out_loss_is_the_mean_over_all_targets(name: str) -> None:
    ours, batches = objective(name), [batch(8, seed=1), batch(2, seed=2)]
    losses = [float(ours(one).loss.detach()) for one in batches]
    counts = [sum(float(count) for count in ours.counts(one).values()) for one in batches]
    evaluated = ours.evaluate([(one, one) for one in batches])
    [held_out] = [value for key, value in evaluated.items() if key.endswith("_loss")]
    mean = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / sum(counts)
    assert counts[0] != counts[1] and held_out == pytest.approx(mean, rel=1e-5)


@each
def test_a_batch_without_words_has_a_finite_loss(name: str) -> None:
    ours, one = objective(name), batch(4, seed=0)
    ours.begin_step(1, 10)
    empty = replace(one, input_ids_BL=torch.where(one.input_ids_BL > 4, SPECIAL.pad, one.input_ids_BL))
    ours(empty).loss.backward()
    assert all(gradient.isfinite().all() for gradient in gradients(ours).values())
    assert all(math.isfinite(value) for value in ours(empty).parts.values())


@each
def test_networks_have_names_and_flops_in_both_conventions(name: str) -> None:
    ours = objective(name)
    assert ours.exportable_networks().keys() <= {"discriminator", "generator", "encoder"}
    for step in (2, 8):
        ours.begin_step(step, 10)
        for convention in ("modern", "paper"):
            assert training_flops(ours.networks(16), 16, convention) > 0  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["replaced-token", "top 3", "masked positions", "replace-mlm", "all-tokens-mlm"])
def test_no_gradient_flows_through_samples(name: str) -> None:
    ours = objective(name)
    ours.config = replace(ours.config, generator_weight=0.0)  # type: ignore[union-attr]
    ours(batch(8, seed=2)).loss.backward()
    inside = ("generator.encoder.blocks", "generator.head")
    assert not any(g.any() for n, g in gradients(ours).items() if n.startswith(inside))


@pytest.mark.parametrize("name", ["gumbel", "gumbel-straight"])
def test_a_gradient_flows_through_soft_samples(name: str) -> None:
    ours = objective(name)
    ours.adversarial_share = 1.0  # type: ignore[assignment, union-attr]
    ours(batch(8, seed=2)).loss.backward()
    found = gradients(ours)
    assert found["generator.encoder.blocks.0.feed_forward.inner.weight"].abs().sum() > 0


def test_a_frozen_generator_gets_no_gradient() -> None:
    ours = objective("frozen generator")
    assert any(name.startswith("generator.") for name, _ in ours.named_parameters())
    ours(batch(8, seed=2)).loss.backward()
    found = gradients(ours)
    assert found and not any(name.startswith("generator.") for name in found)


def test_the_discriminator_starts_from_the_generator_which_is_then_frozen() -> None:
    ours = objective("generator first")
    ours.begin_step(4, 10)
    ours(batch(8, seed=2)).loss.backward()
    assert all(n.startswith("generator.") for n in gradients(ours))
    trained = [parameter.detach().clone() for parameter in ours.generator.encoder.parameters()]  # type: ignore
    assert not all(map(torch.equal, trained, ours.encoder.parameters()))
    ours.begin_step(5, 10)
    for network in (ours.encoder, ours.generator.encoder):  # type: ignore[union-attr]
        assert all(map(torch.equal, trained, network.parameters())), "the generator has the trained weights"
    ours(batch(8, seed=2)).loss.backward()
    found = gradients(ours)
    assert found and not any(n.startswith("generator.") for n in found)


def test_detached_tables_are_trained_by_the_generator_only() -> None:
    ours = objective("tables detached")
    ours.config = replace(ours.config, generator_weight=0.0)  # type: ignore[union-attr]
    ours(batch(8, seed=2)).loss.backward()
    table = "encoder.embeddings.token.table.weight"
    found = gradients(ours)
    assert table in dict(ours.named_parameters()) and not found[table].any()
    ours = objective("tables disentangled")
    ours.config = replace(ours.config, generator_weight=0.0)  # type: ignore[union-attr]
    ours(batch(8, seed=2)).loss.backward()
    found = gradients(ours)
    assert not found[table].any() and found["encoder.embeddings.token.difference"].any()


PAIRED = ("replaced-token", "masked-lm", "replace-mlm", "all-tokens-mlm", "reinforce")


@pytest.mark.parametrize("name", PAIRED)
def test_a_sentence_loss_can_be_added_to_any_objective(name: str) -> None:
    config, generator = KINDS[name]
    torch.manual_seed(0)
    settings = PretrainConfig(model=MODEL, generator=generator, objective=replace(config, sentence_loss="order"))
    ours = build_objective(settings, SPECIAL, TABLES)

    def pairs(seed: int) -> Batch:
        one = batch(16, seed=seed)
        labels_B = torch.randint(2, (16,), generator=torch.Generator().manual_seed(seed))
        labels_B[0] = UNPAIRED
        ids_BL = one.input_ids_BL.clone()
        ids_BL[labels_B == 1, 1:7] = 5  # a word that comes again and again stands for what is wrong
        return replace(one, input_ids_BL=ids_BL, sentences_B=labels_B)

    optimizer, rates = torch.optim.AdamW(ours.parameters(), lr=3e-3), []
    for step in range(60):
        ours.begin_step(step, 60)
        output = ours(pairs(step))
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rates.append(float(output.parts["sentence_accuracy"]))
    assert sum(rates[-10:]) / 10 > 0.9
    whole, labels_B = pairs(100), pairs(100).sentences_B
    assert labels_B is not None
    parts = [replace(rows(whole, some), sentences_B=labels_B[some]) for some in (slice(0, 5), slice(5, 16))]
    counts = [ours.counts(part) for part in parts]
    totals = {key: counts[0][key] + counts[1][key] for key in counts[0]}
    halves = torch.stack([ours(part, totals).loss for part in parts]).sum()
    torch.testing.assert_close(halves, ours(whole).loss, rtol=1e-4, atol=1e-5)
