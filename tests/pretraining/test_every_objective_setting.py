"""Every setting of every objective, and of masking, changes a step as its documentation says.

A new setting without an entry fails. An objective without the documented figures of the one that an entry is about
must at least change its step.
"""

import functools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from setting_changes import Change, Step, differs, make_config, make_step, same, settings_in

from electra.errors import ConfigError
from electra.objectives.generator_objective import DRAWING
from electra.preparation.config import PrepareConfig
from electra.preparation.run import prepare
from electra.pretraining.config import PretrainConfig
from electra.registry import objectives

SETTINGS = settings_in(PretrainConfig, "objective", "masking")
OBJECTIVES = {
    "replaced-token": (),
    "masked-lm": (),
    "electric": (),
    "replace-mlm": (),
    "all-tokens-mlm": (),
    "adversarial": (),
    "adversarial, gumbel": ("objective.adversary=gumbel",),
    "two-stage": ("objective.first_stage=encoder",),
    "causal-lm": ("model.kind=relative", "model.direction=left", "model.type_vocabulary_size=1"),
    "permutation-lm": ("model.kind=relative",),
}
"""Every kind of objective, with the settings that it needs."""
DESCRIBED = "replaced-token"
"""The objective that the checks are about, unless only others have the setting."""
INHERITED = ("adversarial", "two-stage")
REFUSED = {
    *((kind, name) for kind in INHERITED for name in ("fakes", "frequency_share", "unigram_power")),
    *(("adversarial", name) for name in (
        "top_k", "sample_unmasked", "sampling_dropout", "disallow_correct", "correction_weight",
        "correction_negatives", "correction_negatives_share", "keep_masked_share", "sharing=all",
    )),
    *(("two-stage", f"sharing={value}") for value in ("detached", "disentangled")),
    *(("electric", f"sharing={value}") for value in ("tokens", "detached", "disentangled", "all")),
    *(("electric", f"discriminator_positions={value}") for value in ("masked", "random")),
    *(("adversarial, reinforce", name) for name in ("temperature", "final_temperature")),
    *(("adversarial, gumbel", name) for name in ("sentence_loss", "sentence_weight")),
}  # fmt: skip
"""Settings, or values, that an objective has by inheritance and refuses."""
ALONE = ("objective.sharing=none", "generator.width=1", "objective.first_stage=generator")
TWICE = ("masking.replacement=true", "masking.share=0.5")


def disc(step: Step) -> float:
    """The loss of the full-size network that reads replaced tokens."""
    return step.part("discriminator_loss") + step.part("encoder_loss")


def shared(step: Step) -> int:
    """The number of parameters that both networks have."""
    ours, theirs = (set(network.parameters()) for network in (step.objective.encoder, step.objective.generator))
    return len(ours & theirs)


def most_likely(step: Step) -> bool:
    """Whether every sample is the most likely token of the generator (or another one that is nearly as likely)."""
    generator, mask = step.objective.generator, step.objective.attention_mask(step.batch)
    states_nD = generator.states(step.batch, step.masking, mask)
    logits_nV = generator.head.logits(states_nD, generator.table_VE)[step.masking.used_BN.flatten()]
    chosen_n = logits_nV.gather(1, step.samples[:, None]).squeeze(1)
    return bool((chosen_n >= logits_nV.amax(1) - 1e-3).all())


def frequency(step: Step, ids: torch.Tensor) -> float:
    """The mean number of occurrences of tokens in the text."""
    return float(step.objective.vocabulary.counts_V[ids].double().mean())


def run_length(step: Step) -> float:
    """The mean number of chosen tokens in a row."""
    chosen_BL = (
        torch.zeros_like(step.ids).scatter_add_(1, step.masking.positions_BN, step.masking.used_BN.long()) > 0
    )
    begins_BL = chosen_BL & ~torch.nn.functional.pad(chosen_BL, (1, 0))[:, :-1]
    return int(chosen_BL.sum()) / int(begins_BL.sum())


def cuts_words(step: Step, other: Step) -> bool:
    """Whether a part of a word is chosen without the rest of it; the other step knows where words begin."""
    chosen_BL = (
        torch.zeros_like(step.ids).scatter_add_(1, step.masking.positions_BN, step.masking.used_BN.long()) > 0
    )
    continues_BL = other.objective.vocabulary.continues_V[step.ids][:, 1:] & (step.ids > 4)[:, :-1]
    assert continues_BL.any()
    return bool((chosen_BL[:, 1:] != chosen_BL[:, :-1])[continues_BL].any())


def count(name: str) -> Callable[[Step], int]:
    return lambda step: int(step.objective.counts(step.batch)[name])


def used(step: Step) -> int:
    return int(step.masking.used_BN.sum())


def shows(step: Step) -> tuple[float, float, float]:
    """The shares of chosen positions that show [MASK], their own token, and another token."""
    shown_n, own_n = step.at_slots(step.masking.input_ids_BL), step.at_slots(step.ids)
    masked_n = shown_n == step.objective.vocabulary.special.mask
    kept_n = shown_n == own_n
    return tuple(float(x_n.float().mean()) for x_n in (masked_n, kept_n, ~masked_n & ~kept_n))  # type: ignore


def repeated(step: Step) -> torch.Tensor:
    """Where a position was drawn more than once (B, L)."""
    return torch.zeros_like(step.ids).scatter_add_(1, step.masking.positions_BN, step.masking.used_BN.long()) > 1


def row_seeds(step: Step, epoch: int) -> dict[int, int]:
    """The seed of each row of the text in the middle of an epoch."""
    first = next(number for number in range(10_000) if step.parts.batches.epochs(number) > epoch + 0.3)
    last = next(number for number in range(10_000) if step.parts.batches.epochs(number) > epoch + 0.7)
    rows = [row for number in range(first, last) for row in step.parts.batches.describe_rows(number)]
    return {row["row"]: row["seed"] for row in rows}


def repeats_seeds(step: Step) -> bool:
    first, second = row_seeds(step, 0), row_seeds(step, 1)
    both = first.keys() & second.keys()
    assert len(both) > 20
    return all(first[row] == second[row] for row in both)


def close(one: float, two: float) -> bool:
    return one == pytest.approx(two, rel=1e-4)


PAIRS = "objective.sentence_loss=order"
CORRECTED = "objective.correction_weight=1"
CHANGES: dict[str, list[Change]] = {
    "objective.sentence_loss": [
        Change(value, lambda b, a: close(a.loss - a.part("sentence_loss"), disc(a) + a.part("generator_loss")))
        for value in ("next", "order")
    ],
    "objective.sentence_weight": [
        Change("3", lambda b, a: close(a.loss - b.loss, 2 * b.part("sentence_loss")), (PAIRS,))
    ],
    "objective.discriminator_weight": [Change("5", lambda b, a: close(a.loss - b.loss, 4 * disc(b)))],
    "objective.generator_weight": [
        Change("3", lambda b, a: close(a.loss - b.loss, 2 * b.part("generator_loss")), step=0)
    ],
    "objective.fakes": [
        *(
            Change(value, lambda b, a: a.objective.generator is None and not torch.equal(a.corrupted, b.corrupted))
            for value in ("uniform", "unigram", "bigram", "trigram")
        ),
        Change("unigram", lambda b, a: frequency(a, a.samples) > 2 * frequency(b, b.samples),
               ("objective.fakes=uniform",)),
    ],
    "objective.unigram_power": [
        Change("0", lambda b, a: frequency(a, a.samples) < 0.5 * frequency(b, b.samples),
               ("objective.fakes=unigram",))
    ],
    "objective.frequency_share": [
        Change("0.5", lambda b, a: "generator_loss" in b.output.parts and "generator_loss" not in a.output.parts),
        Change("0.5", same, step=6),
    ],
    "objective.temperature": [Change("1e-4", lambda b, a: most_likely(a) and not most_likely(b))],
    "objective.final_temperature": [
        Change("1e-4", lambda b, a: a.objective.generator.sampling.temperature < 0.2 and differs(b, a), step=9),
        Change("1e-4", same, step=0),
    ],
    "objective.top_k": [Change("1", lambda b, a: most_likely(a) and not most_likely(b))],
    "objective.sharing": [
        Change("none", lambda b, a: shared(b) == 3 and shared(a) == 0),
        Change("tokens", lambda b, a: shared(b) == 3 and shared(a) == 1),
        Change("detached", lambda b, a: not a.gradients.keys() & {"encoder.embeddings.token.weight"}),
        Change("disentangled", lambda b, a: "encoder.embeddings.token.difference" in a.gradients),
        Change("all", lambda b, a: a.objective.encoder is a.objective.generator.encoder, ("generator.width=1",)),
    ],
    "objective.share_norm": [Change("true", lambda b, a: shared(a) == shared(b) + 2)],
    "objective.sample_unmasked": [
        Change("false", lambda b, a: bool((b.corrupted != b.ids)[b.masking.input_ids_BL == b.ids].any())
               and not (a.corrupted != a.ids)[a.masking.input_ids_BL == a.ids].any(),
               ("masking.mask_share=0.5",))
    ],
    "objective.sampling_dropout": [
        Change("false", lambda b, a: DRAWING in a.objective.networks(32)
               and DRAWING not in b.objective.networks(32)
               and not torch.equal(b.corrupted, a.corrupted), ("model.dropout=0.5", "generator.hidden_size=32")),
    ],
    "objective.disallow_correct": [
        Change("true", lambda b, a: bool((b.samples == b.at_slots(b.ids)).any())
               and not (a.samples == a.at_slots(a.ids)).any(),
               ("masking.share=0.9", "train.batch_size=128")),
    ],
    "objective.discriminator_positions": [
        Change("all", lambda b, a: count("discriminator")(a) == int(a.batch.lengths_B.sum())),
        Change("masked", lambda b, a: count("discriminator")(a) == used(a) < count("discriminator")(b)),
        Change("random", lambda b, a: count("discriminator")(a) == used(a) < count("discriminator")(b)),
    ],
    "objective.correction_weight": [
        Change("2", lambda b, a: close(a.loss - b.loss, 2 * a.part("correction_loss")) and a.loss > b.loss)
    ],
    "objective.correction_negatives": [
        Change("5", lambda b, a: 0 < a.part("correction_loss") < 0.9 * b.part("correction_loss"), (CORRECTED,))
    ],
    "objective.correction_negatives_share": [
        Change("0.5", lambda b, a: a.part("correction_loss") > 1.1 * b.part("correction_loss"),
               (CORRECTED, "objective.correction_negatives=5"), step=6),
    ],
    "objective.keep_masked_share": [
        Change("0.5", lambda b, a: 0.3 < (a.samples == 4).float().mean() < 0.7 and not (b.corrupted == 4).any(),
               (CORRECTED,)),
    ],
    "objective.adversary": [
        *(
            Change(value, lambda b, a: "reward" in b.output.parts and "reward" not in a.output.parts,
                   ("objective.adversary=reinforce",))
            for value in ("gumbel", "gumbel-straight")
        ),
        Change("gumbel-straight", lambda b, a: differs(b, a), ("objective.adversary=gumbel",)),
    ],
    "objective.anneal": [
        Change("linear", lambda b, a: b.objective.adversarial_share == 1 and a.objective.adversarial_share == 0),
        Change("linear", lambda b, a: close(a.objective.adversarial_share, 0.3), step=3),
        Change("cosine", lambda b, a: 0 < a.objective.adversarial_share < 0.25, step=3),
    ],
    "objective.first_share": [
        *(Change("0.2", lambda b, a: not disc(b) and disc(a) > 0, ALONE, step=step) for step in (2, 3)),
        Change("0.2", same, ALONE, step=1),
    ],
    "objective.first_stage": [
        Change("encoder", lambda b, a: all(name.startswith("generator.") for name in b.gradients)
               and not any(name.startswith("generator.") for name in a.gradients), ALONE, step=0),
    ],
    "objective.hand_over": [
        Change("false", lambda b, a: copies_generator(b) and not copies_generator(a), ALONE, step=5),
    ],
    "masking.kind": [
        Change("frequency", lambda b, a: frequency(a, a.at_slots(a.ids)) < 0.9 * frequency(b, b.at_slots(b.ids))),
        Change("words", lambda b, a: cuts_words(b, a) and not cuts_words(a, a), ("masking.share=0.4",)),
        Change("spans", lambda b, a: run_length(a) > run_length(b), ("masking.share=0.4",)),
        Change("ngrams", lambda b, a: run_length(a) > run_length(b),
               ("masking.share=0.4", "masking.kind=words")),
    ],
    "masking.frequency_power": [
        Change("0", lambda b, a: frequency(a, a.at_slots(a.ids)) > 1.1 * frequency(b, b.at_slots(b.ids)),
               ("masking.kind=frequency",)),
    ],
    "masking.span_length": [
        Change("8", lambda b, a: run_length(a) > run_length(b), ("masking.kind=spans", "masking.share=0.4"))
    ],
    "masking.ngram_length": [
        Change("1", lambda b, a: run_length(a) < run_length(b), ("masking.kind=ngrams", "masking.share=0.4"))
    ],
    "masking.copies": [
        Change("1", lambda b, a: repeats_seeds(a) and not repeats_seeds(b), ("train.batch_size=200",))
    ],
    "masking.share": [Change("0.3", lambda b, a: 1.8 < used(a) / used(b) < 2.5)],
    "masking.mask_share": [
        Change("0.5", lambda b, a: 0.75 < shows(b)[0] < 0.95 and 0.4 < shows(a)[0] < 0.6 and shows(a)[2] == 0)
    ],
    "masking.random_share": [Change("0.15", lambda b, a: shows(b)[2] == 0 and 0.08 < shows(a)[2] < 0.22)],
    "masking.replacement": [
        Change("true", lambda b, a: bool(repeated(a).any()) and not repeated(b).any(), ("masking.share=0.5",))
    ],
    "masking.count_special": [Change("true", lambda b, a: used(a) > used(b), ("masking.share=0.3",))],
    "masking.average_repeats": [
        Change("true", lambda b, a: bool((a.corrupted != b.corrupted).any())
               and not (a.corrupted != b.corrupted)[~repeated(b)].any(), TWICE)
    ],
    "masking.spare_first_position": [
        Change("true", lambda b, a: bool((b.masking.input_ids_BL != b.ids)[:, 0].any())
               and not (a.masking.input_ids_BL != a.ids)[:, 0].any() and not (a.corrupted != a.ids)[:, 0].any(),
               ("packing.builder=stream", "masking.share=0.5"))
    ],
}  # fmt: skip


def copies_generator(step: Step) -> bool:
    ours, theirs = (network.parameters() for network in (step.objective.encoder, step.objective.generator.encoder))
    return all(map(torch.equal, ours, theirs))


OTHERS = {"objective.kind": "chooses the objective, and OBJECTIVES has them all"}
"""Settings without an entry, and the reason."""


@pytest.fixture(scope="module", autouse=True)
def _products_are_not_timed() -> Iterator[None]:
    """It takes a second on some machines, and only console output depends on it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("electra.training.precision.product_flops", lambda dtype, device: 1e9)
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data with frequent and rare words, most of which are cut into pieces."""
    draw, folder = random.Random(0), tmp_path_factory.mktemp("words")
    syllables = [first + last for first in "bdfgklmnprst" for last in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(1500)]
    shares = [1 / rank for rank in range(1, len(words) + 1)]
    with (folder / "words.jsonl").open("w", encoding="utf-8") as file:
        for _ in range(150):
            sentences = [" ".join(draw.choices(words, shares, k=draw.randint(4, 9))) for _ in range(10)]
            file.write(json.dumps({"text": ". ".join(sentences)}) + "\n")
    corpus = (str(folder / "words.jsonl"),)
    prepare(PrepareConfig(corpus=corpus, out=folder / "data", vocabulary_size=512, workers=1, heldout=0.1))
    return folder / "data"


@pytest.fixture(scope="module")
def step(data: Path) -> Callable[[tuple[str, ...], int], Step]:
    """Steps without a change, each of which is made once."""
    return functools.cache(functools.partial(make_step, data))


def kind_of(objective: str) -> str:
    return objective.partition(",")[0]


def cases() -> Iterator[tuple[str, str, Change]]:
    """Every change of every objective that has the setting; those of masking with one objective only."""
    for name, setting in SETTINGS.items():
        of_objective = name.startswith("objective.")
        for objective in OBJECTIVES if of_objective else (DESCRIBED,):
            if not of_objective or not setting.kinds or kind_of(objective) in setting.kinds:
                yield from ((objective, name, change) for change in CHANGES.get(name, []))


def is_described(objective: str, name: str) -> bool:
    """Whether the checks of a setting are about an objective."""
    kinds = SETTINGS[name].kinds or tuple(OBJECTIVES)
    return objective == (DESCRIBED if DESCRIBED in kinds else kinds[0])


@pytest.mark.parametrize(
    ("objective", "name", "change"), list(cases()), ids=lambda x: x.value if isinstance(x, Change) else x
)
def test_a_change_has_its_documented_effect(
    objective: str, name: str, change: Change, step: Callable[[tuple[str, ...], int], Step], data: Path
) -> None:
    kind = kind_of(objective)
    before = (f"objective.kind={kind}", *OBJECTIVES[objective], *change.base)
    after = (*before, f"{name}={change.value}")
    short = name.removeprefix("objective.")
    names = {kind, objective if "," in objective else f"{objective}, reinforce"}
    if REFUSED & {(one, value) for one in names for value in (short, f"{short}={change.value}")}:
        with pytest.raises(ConfigError):
            make_config(data, after)
        return
    number = change.step if change.step is not None else 7 if kind == "two-stage" else 0
    first = step(before, number)
    second = make_step(data, after, number, weights=first.initial)
    check = change.check if is_described(objective, name) or change.check is same else differs
    assert check(first, second)


def test_every_setting_has_an_entry() -> None:
    assert SETTINGS.keys() == CHANGES.keys() | OTHERS.keys() and not CHANGES.keys() & OTHERS.keys()
    assert set(objectives.names()) == {kind_of(objective) for objective in OBJECTIVES}
