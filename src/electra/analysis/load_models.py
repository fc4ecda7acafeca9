"""Checks and loading that several analyses share."""

from tokenizers import Tokenizer

from electra.data.shards import TokenData
from electra.data.tokenizer import load_tokenizer
from electra.errors import CheckpointError, DataError
from electra.export.loading import find_generator
from electra.serving.masked_token_predictor import MaskedTokenPredictor
from electra.serving.scorer import Scorer


def check_vocabulary(tokenizer: Tokenizer, name: str, data: TokenData) -> None:
    """Raise a DataError if data were prepared with a different vocabulary than the model's."""
    if load_tokenizer(data.tokenizer_path).get_vocab() != tokenizer.get_vocab():
        raise DataError(
            f"{data.folder} was prepared with another vocabulary than that of {name}; prepare the text again with "
            "--tokenizer and that model's folder"
        )


def load_generator(model: str, generator: str | None, scorer: Scorer) -> MaskedTokenPredictor:
    """Load the generator that replaces tokens for a discriminator, on the device of its scorer.

    Args:
        model: the discriminator.
        generator: a masked language model, or a run that has one; None: the generator next to the discriminator.

    Raises:
        CheckpointError: there is none.
        DataError: its vocabulary is not the discriminator's.
    """
    name = generator or find_generator(model)
    if name is None:
        raise CheckpointError(
            f"{model} has no generator next to it that could replace tokens; name one: --generator MODEL (such as "
            "RUN/export/generator, or another masked language model with the same vocabulary)"
        )
    predictor = MaskedTokenPredictor(find_generator(name) or name, device=scorer.backend.device)
    if scorer.tokenizer.get_vocab() != predictor.tokenizer.get_vocab():
        raise DataError(
            f"{model} and {name} have different vocabularies; give a generator with the discriminator's vocabulary"
        )
    return predictor
