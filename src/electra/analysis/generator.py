"""The results of `electra analyze generator`: metrics over all masked tokens, and by frequency of the original.

Shapes: n masked tokens, V vocabulary, S texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import entropy
from tokenizers import Tokenizer

from electra.analysis.frequency import FrequencyBands, pad_counts
from electra.analysis.group_bootstrap import GroupBootstrap
from electra.analysis.held_out_text import evenly_spaced_segments
from electra.analysis.load_models import check_vocabulary
from electra.analysis.proposals import MaskedTexts, Proposals, TokenClasses, measure_proposals
from electra.data import tokenizer as tokenizers
from electra.data.shards import TokenData
from electra.data.tags import TagTable
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, DataError
from electra.export.pretrained import Pretrained
from electra.modeling.heads import MaskedLanguageModelHead
from electra.serving.masked_token_predictor import MaskedTokenPredictor

TOP = (1, 5, 10, 50)
BINS = 10
EXAMPLE_TOKENS = 24
"""Tokens of an example, so that it fits on a few lines."""
EXAMPLE_PROPOSALS = 5
MAX_LENGTH = 126
"""Tokens of a text if the user sets no length."""

Results = dict[str, Any]


def check_generator(pretrained: Pretrained, name: str, data: TokenData) -> None:
    """Check that a network can be measured on prepared data.

    Raises:
        CheckpointError: it does not predict masked tokens, or its inputs are too short.
        DataError: the data has another vocabulary.
    """
    if not isinstance(pretrained.head, MaskedLanguageModelHead):
        raise CheckpointError(
            f"{name} predicts no masked tokens; give a masked language model, or a run with a generator "
            "(RUN/export/generator)"
        )
    check_vocabulary(pretrained.tokenizer, name, data)
    if pretrained.max_length < 3:
        raise CheckpointError(f"{name}: inputs of {pretrained.max_length} tokens have no room for a text")


@dataclass(frozen=True)
class GeneratorBenchmark:
    """Masked texts and token classes on which all networks are measured.

    Attributes:
        masked: the texts with masks, by the fraction of masked tokens.
        bands: frequency bands of tokens in the training text.
        classes: classifications by which a fake may be similar to the original.
    """

    data: TokenData
    masked: dict[float, MaskedTexts]
    bands: FrequencyBands
    classes: list[TokenClasses]

    @classmethod
    def create(
        cls,
        data: TokenData,
        shapes: Sequence[tuple[int, int]],
        *,
        texts: int,
        length: int,
        shares: Sequence[float],
        seed: int,
    ) -> "GeneratorBenchmark":
        """Sample texts and masks.

        Args:
            shapes: the longest input and the number of embeddings of each network that will be measured.
            texts: the maximum number of texts.
            length: the maximum number of tokens of each; 0: as many as fit, at most `MAX_LENGTH`.
            shares: fractions of masked tokens.
        """
        length = length or min(MAX_LENGTH, *(longest - 2 for longest, _ in shapes))
        ids = evenly_spaced_segments(data.heldout, texts=texts, length=length)
        masked = {share: MaskedTexts.sample(ids, share=share, seed=seed) for share in shares}
        rows = max(embeddings for _, embeddings in shapes)
        bands = FrequencyBands.from_counts(pad_counts(data.unigram_counts, rows))
        classes = token_classes(load_tokenizer(data.tokenizer_path), bands, TagTable.read(data.folder))
        return cls(data, masked, bands, classes)

    def measure(
        self, network: Pretrained, *, temperatures: Sequence[float], resamples: int, examples: int,
        device: str = "auto",
    ) -> Results:  # fmt: skip
        """The results of one network for generator.json, computed on a device (`resolve_device`)."""
        predictor = MaskedTokenPredictor(network, device=device)
        counts_V = pad_counts(self.data.unigram_counts, len(self.bands.band_V))
        readings = []
        for share, masked in self.masked.items():
            by_temperature = measure_proposals(
                predictor, masked, temperatures=temperatures, classes=self.classes, special=self.data.special.ids
            )
            for temperature, proposals in by_temperature.items():
                summary = summarize_proposals(
                    proposals, bands=self.bands, classes=self.classes, counts_V=counts_V, resamples=resamples
                )
                readings.append({"share": share, "temperature": temperature} | summary)
        first = next(iter(self.masked.values()))
        return {"readings": readings, "examples": example_proposals(predictor, first, count=examples)}


def token_classes(tokenizer: Tokenizer, bands: FrequencyBands, tags: TagTable | None) -> list[TokenClasses]:
    """Classify tokens by tag (if the data has tags), first letter, start of a word or not, and frequency band."""
    size = len(bands.band_V)
    all_V = np.ones(size, bool)
    tokens = [tokenizer.id_to_token(number) or "" for number in range(size)]
    letters = [token.removeprefix("##").lstrip("Ġ▁")[:1].lower() for token in tokens]
    _, letter_V = np.unique(letters, return_inverse=True)
    classes = []
    if tags is not None:
        tag_V = pad_counts(tags.tags_V, size)
        classes.append(TokenClasses("tag", tag_V, tag_V > 0))
    has_letter_V = np.array([bool(letter) for letter in letters])
    classes.append(TokenClasses("first letter", letter_V.astype(np.int64), has_letter_V))
    try:
        continuation_V = pad_counts(tokenizers.continuation_mask(tokenizer).astype(np.int64), size)
        classes.append(TokenClasses("kind of piece", continuation_V, all_V))
    except DataError:  # the tokenizer does not mark the start of words
        pass
    return [*classes, TokenClasses("frequency band", bands.band_V, all_V)]


def summarize_proposals(
    proposals: Proposals,
    *,
    bands: FrequencyBands,
    classes: Sequence[TokenClasses],
    counts_V: NDArray[np.int64],
    resamples: int,
) -> Results:
    """Summarize the proposals of one model for one fraction of masks and one temperature.

    Args:
        counts_V: counts of tokens in the training text, for the chance level of fakes sampled by frequency alone.
    """
    texts = int(proposals.text_n.max()) + 1
    bootstrap = GroupBootstrap(texts, count=resamples)
    values = {
        "loss": proposals.loss_n,
        "entropy": proposals.entropy_n,
        "original": proposals.probability_n,
        "same": proposals.sampled_n == proposals.original_n,
        **{f"top_{k}": proposals.rank_n < k for k in TOP},
    }
    sums_Sx = np.stack(
        [np.bincount(proposals.text_n, weights=value_n, minlength=texts) for value_n in values.values()], 1
    )
    sizes_Sx = np.repeat(np.bincount(proposals.text_n, minlength=texts)[:, None], len(values), 1)
    estimates = bootstrap.ratios(sums_Sx, sizes_Sx)
    return {
        "tokens": len(proposals.original_n),
        **{
            name: asdict(estimate)
            for name, estimate in zip(values, estimates, strict=True)
            if estimate is not None
        },
        "perplexity": float(np.exp(min(proposals.loss_n.mean(), 700.0))),
        "special": float(proposals.special_n.mean()),
        "calibration": top_token_calibration(proposals.top_probability_n, proposals.rank_n == 0),
        "alike": [_similarity(proposals, number, one, counts_V) for number, one in enumerate(classes)],
        "diversity": measure_diversity(proposals.original_n, proposals.sampled_n),
        "bands": list(_by_band(proposals, bands)),
    }


def top_token_calibration(confidence_n: NDArray[np.float64], correct_n: NDArray[np.bool_]) -> Results:
    """The expected calibration error of the most probable token (Guo et al. 2017), in bins of equally many
    tokens."""
    parts = np.array_split(np.argsort(confidence_n, kind="stable"), BINS)
    bins = [
        {
            "tokens": len(part),
            "probability": float(confidence_n[part].mean()),
            "right": float(correct_n[part].mean()),
        }
        for part in parts
        if len(part)
    ]
    error = sum(part["tokens"] * abs(part["probability"] - part["right"]) for part in bins) / len(confidence_n)
    return {"error": float(error), "bins": bins}


def measure_diversity(original_n: NDArray[np.int64], sampled_n: NDArray[np.int64]) -> Results:
    """The number of distinct tokens among the fakes, and the entropy (in nats) of their frequencies.

    The same of the tokens that they replaced, which are equally many and therefore comparable.
    """
    fake_n = original_n != sampled_n
    results: Results = {"fakes": int(fake_n.sum())}
    for name, tokens in (("fakes", sampled_n[fake_n]), ("text", original_n[fake_n])):
        counts = np.unique(tokens, return_counts=True)[1]
        results |= {
            f"distinct_{name}": len(counts),
            f"entropy_{name}": float(entropy(counts)) if len(counts) else 0.0,
        }
    return results


def _similarity(proposals: Proposals, number: int, classes: TokenClasses, counts_V: NDArray[np.int64]) -> Results:
    """The fraction of fakes in the original's class, and the same if fakes were drawn by frequency alone.

    They are computed from probabilities, not from samples, so they do not depend on the seed.
    """
    known_n = classes.known_V[proposals.original_n]
    original_n = proposals.original_n[known_n]
    unigram_V = counts_V / counts_V.sum()
    class_C = np.bincount(classes.class_V, weights=unigram_V)
    own_n = unigram_V[original_n]
    fakes, chances = (1 - proposals.probability_n[known_n]).sum(), (1 - own_n).sum()
    return {
        "name": classes.name,
        "tokens": len(original_n),
        "fakes": float(proposals.same_class_Kn[number][known_n].sum() / fakes) if fakes else None,
        "chance": float((class_C[classes.class_V[original_n]] - own_n).sum() / chances) if chances else None,
    }


def _by_band(proposals: Proposals, bands: FrequencyBands) -> Iterator[Results]:
    """Metrics by the original's band, and the fractions of fakes and of replaced tokens in each band."""
    fake_n = proposals.sampled_n != proposals.original_n
    fakes = max(1, int(fake_n.sum()))
    band_n, sampled_band_n = bands.band_V[proposals.original_n], bands.band_V[proposals.sampled_n]
    for number, name in enumerate(bands.names):
        inside_n = band_n == number
        if not inside_n.any() and not (sampled_band_n == number).any():
            continue
        values = {
            "loss": proposals.loss_n,
            "entropy": proposals.entropy_n,
            "original": proposals.probability_n,
            **{f"top_{k}": proposals.rank_n < k for k in TOP},
        }
        yield {
            "name": name,
            "tokens": int(inside_n.sum()),
            **{
                key: float(value_n[inside_n].mean()) if inside_n.any() else None for key, value_n in values.items()
            },
            "share_of_fakes": float((sampled_band_n[fake_n] == number).sum() / fakes),
            "share_of_replaced": float((band_n[fake_n] == number).sum() / fakes),
        }


def example_proposals(predictor: MaskedTokenPredictor, masked: MaskedTexts, *, count: int) -> list[Results]:
    """The beginnings of some texts with masks, and the most probable tokens for each mask."""
    tokenizer, special = predictor.tokenizer, predictor.batcher.special
    texts = [i for i, where in enumerate(masked.positions) if (where < EXAMPLE_TOKENS).sum() > 1][:count]
    examples = []
    for text in texts:
        original, positions = masked.ids[text], masked.positions[text]
        masks: list[Results] = []
        # The whole text is read with all its masks, as when it was measured; only its beginning is shown.
        for _, part, log_probabilities_nV in predictor([original], [positions]):
            for position, row_V in zip(part.tolist(), log_probabilities_nV.exp(), strict=True):
                if position < EXAMPLE_TOKENS:
                    top = row_V.topk(min(EXAMPLE_PROPOSALS, len(row_V)))
                    masks.append({
                        "original": _token_name(tokenizer, original[position]),
                        "probability": float(row_V[original[position]]),
                        "proposals": [
                            [_token_name(tokenizer, token), float(value)]
                            for token, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)
                        ],
                    })  # fmt: skip
        ids = list(original[:EXAMPLE_TOKENS])
        for position in positions[positions < EXAMPLE_TOKENS].tolist():
            ids[position] = special.mask
        examples.append({"text": tokenizer.decode(ids, skip_special_tokens=False), "masks": masks})
    return examples


def _token_name(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.id_to_token(token) or f"<{token}>"
