"""The figures of `electra analyze generator`: of all masked tokens, and by how common the original is.

Shapes: n masked tokens, V vocabulary, S texts.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import entropy
from tokenizers import Tokenizer

from electra.analysis.frequency import FrequencyBands, padded
from electra.analysis.group_bootstrap import Resamples
from electra.analysis.proposals import Likeness, Masked, Proposals
from electra.data import tokenizer as tokenizers
from electra.data.tags import TagTable
from electra.errors import DataError
from electra.serving.masked_token_predictor import MaskedTokenPredictor

TOP = (1, 5, 10, 50)
BINS = 10
SHOWN_TOKENS = 24
"""Of an example, so that it fits on a few lines."""
SHOWN_PROPOSALS = 5

Facts = dict[str, Any]


def ways_to_be_alike(tokenizer: Tokenizer, bands: FrequencyBands, tags: TagTable | None) -> list[Likeness]:
    """Tag (where the data have tags), first letter, whether a word begins there, and frequency band."""
    size = len(bands.band_V)
    every_V = np.ones(size, bool)
    tokens = [tokenizer.id_to_token(number) or "" for number in range(size)]
    letters = [token.removeprefix("##").lstrip("Ġ▁")[:1].lower() for token in tokens]
    _, letter_V = np.unique(letters, return_inverse=True)
    found = []
    if tags is not None:
        tag_V = padded(tags.tags_V, size)
        found.append(Likeness("tag", tag_V, tag_V > 0))
    found.append(Likeness("first letter", letter_V.astype(np.int64), np.array([bool(one) for one in letters])))
    try:
        goes_on_V = padded(tokenizers.continuations(tokenizer).astype(np.int64), size)
        found.append(Likeness("kind of piece", goes_on_V, every_V))
    except DataError:  # a tokenizer that does not say so
        pass
    return [*found, Likeness("frequency band", bands.band_V, every_V)]


def reading(
    found: Proposals,
    *,
    bands: FrequencyBands,
    ways: Sequence[Likeness],
    counts_V: NDArray[np.int64],
    resamples: int,
) -> Facts:
    """All figures of one model, share of masks and temperature.

    Args:
        counts_V: of tokens in the text of training, for what fakes by frequency alone would be like.
    """
    tokens = len(found.original_n)
    drawing = Resamples(texts := int(found.text_n.max()) + 1, count=resamples)
    each_n = {
        "loss": found.loss_n,
        "entropy": found.entropy_n,
        "original": found.probability_n,
        "same": found.shown_n == found.original_n,
        **{f"top_{k}": found.rank_n < k for k in TOP},
    }
    values_Sx = np.stack([np.bincount(found.text_n, weights=one, minlength=texts) for one in each_n.values()], 1)
    sizes_Sx = np.repeat(np.bincount(found.text_n, minlength=texts)[:, None], len(each_n), 1)
    estimates = drawing.ratios(values_Sx, sizes_Sx)
    return {
        "tokens": tokens,
        **{name: asdict(one) for name, one in zip(each_n, estimates, strict=True) if one is not None},
        "perplexity": float(np.exp(min(found.loss_n.mean(), 700.0))),
        "special": float(found.special_n.mean()),
        "calibration": calibration(found.top_probability_n, found.rank_n == 0),
        "alike": [_alike(found, number, way, counts_V) for number, way in enumerate(ways)],
        "diversity": diversity(found.original_n, found.shown_n),
        "bands": list(_by_band(found, bands)),
    }


def calibration(confidence_n: NDArray[np.float64], right_n: NDArray[np.bool_]) -> Facts:
    """Whether the likeliest token is right as often as its probability says (Guo et al. 2017): the error is the
    mean distance of the two in bins of as many tokens by their probability."""
    parts = np.array_split(np.argsort(confidence_n, kind="stable"), BINS)
    bins = [
        {
            "tokens": len(part),
            "probability": float(confidence_n[part].mean()),
            "right": float(right_n[part].mean()),
        }
        for part in parts
        if len(part)
    ]
    error = sum(one["tokens"] * abs(one["probability"] - one["right"]) for one in bins) / len(confidence_n)
    return {"error": float(error), "bins": bins}


def diversity(original_n: NDArray[np.int64], shown_n: NDArray[np.int64]) -> Facts:
    """Different tokens among the fakes, and the entropy (in nats) of how often each comes; of the tokens that they
    replaced the same. Both are of as many tokens, so they can be compared."""
    fake_n = original_n != shown_n
    found: Facts = {"fakes": int(fake_n.sum())}
    for name, tokens in (("fakes", shown_n[fake_n]), ("text", original_n[fake_n])):
        counts = np.unique(tokens, return_counts=True)[1]
        found |= {
            f"distinct_{name}": len(counts),
            f"entropy_{name}": float(entropy(counts)) if len(counts) else 0.0,
        }
    return found


def _alike(found: Proposals, number: int, way: Likeness, counts_V: NDArray[np.int64]) -> Facts:
    """How many of the fakes are like the original, and how many would be that are drawn by frequency alone.

    By probabilities, not by draws: nothing hangs on the seed.
    """
    known_n = way.known_V[found.original_n]
    original_n = found.original_n[known_n]
    chance_V = counts_V / counts_V.sum()
    class_C = np.bincount(way.class_V, weights=chance_V)
    own_n = chance_V[original_n]
    fakes, chances = (1 - found.probability_n[known_n]).sum(), (1 - own_n).sum()
    return {
        "name": way.name,
        "tokens": len(original_n),
        "fakes": float(found.alike_Kn[number][known_n].sum() / fakes) if fakes else None,
        "chance": float((class_C[way.class_V[original_n]] - own_n).sum() / chances) if chances else None,
    }


def _by_band(found: Proposals, bands: FrequencyBands) -> Any:
    """Figures by the band of the original; and the shares of the fakes, and of what they replaced, in the band."""
    fake_n = found.shown_n != found.original_n
    fakes = max(1, int(fake_n.sum()))
    band_n, shown_n = bands.band_V[found.original_n], bands.band_V[found.shown_n]
    for number, name in enumerate(bands.names):
        inside_n = band_n == number
        if inside_n.any() or (shown_n == number).any():
            few = not inside_n.any()
            yield {
                "name": name,
                "tokens": int(inside_n.sum()),
                "loss": None if few else float(found.loss_n[inside_n].mean()),
                "entropy": None if few else float(found.entropy_n[inside_n].mean()),
                "original": None if few else float(found.probability_n[inside_n].mean()),
                **{f"top_{k}": None if few else float((found.rank_n[inside_n] < k).mean()) for k in TOP},
                "share_of_fakes": float((shown_n[fake_n] == number).sum() / fakes),
                "share_of_replaced": float((band_n[fake_n] == number).sum() / fakes),
            }


def examples(predictor: MaskedTokenPredictor, masked: Masked, *, count: int) -> list[Facts]:
    """Beginnings of texts with masks, and the likeliest tokens for each."""
    tokenizer, special = predictor.tokenizer, predictor.batcher.special
    several = [i for i, where in enumerate(masked.places) if (where < SHOWN_TOKENS).sum() > 1][:count]
    found = []
    for text in several:
        where = masked.places[text][masked.places[text] < SHOWN_TOKENS]
        ids = list(masked.ids[text][:SHOWN_TOKENS])
        masks: list[Facts] = []
        # All masks of the text are there, as when it was measured; those of its beginning are shown.
        for _, part, log_probabilities_nV in predictor([masked.ids[text]], [masked.places[text]]):
            for place, row_V in zip(part.tolist(), log_probabilities_nV.exp(), strict=True):
                if place < SHOWN_TOKENS:
                    top = row_V.topk(min(SHOWN_PROPOSALS, len(row_V)))
                    masks.append({
                        "original": _word(tokenizer, ids[place]),
                        "probability": float(row_V[masked.ids[text][place]]),
                        "proposals": [
                            [_word(tokenizer, token), float(value)]
                            for token, value in zip(top.indices.tolist(), top.values.tolist(), strict=True)
                        ],
                    })  # fmt: skip
        for place in where.tolist():
            ids[place] = special.mask
        found.append({"text": tokenizer.decode(ids, skip_special_tokens=False), "masks": masks})
    return found


def _word(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.id_to_token(token) or f"<{token}>"
