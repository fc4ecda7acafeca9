"""The vocabulary of a run: that of its data, also for pre-trained networks that have another one."""

import logging
from dataclasses import replace

from tokenizers import Tokenizer

from electra.data.shards import TokenData
from electra.data.tokenizer import describe_tokenizer, load_tokenizer, vocabulary_size
from electra.errors import ConfigError, DataError
from electra.export.loading import find_model
from electra.modeling.encoders.base import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.vocabulary_transfer import find_sources, transfer_bias, with_tokenizer
from electra.pretraining.warm_start import WarmStart

logger = logging.getLogger(__name__)


def with_vocabulary_of(config: PretrainConfig, data: TokenData) -> EncoderConfig:
    """Set the vocabulary size of the model to that of the data.

    Networks with trained weights keep their own, which may be larger: released models fill their tables up to a
    multiple of some number of rows.

    Raises:
        ConfigError: the config has another size.
    """
    model, init = config.model, config.init
    if any(source is not None for source in (init.from_, init.discriminator, init.generator)):
        return model
    if model.vocabulary_size not in (0, data.vocabulary_size):
        raise ConfigError(
            f"model.vocabulary_size is {model.vocabulary_size}, but the tokenizer of {data.folder} has "
            f"{data.vocabulary_size} entries; set it to 0, or prepare the data with the right tokenizer"
        )
    return replace(model, vocabulary_size=data.vocabulary_size)


def with_vocabulary_transfer(start: WarmStart, data: TokenData, config: PretrainConfig) -> WarmStart:
    """Return the pre-trained networks for the vocabulary of the data (`init.vocabulary`).

    Raises:
        DataError: the vocabularies differ, and `init.vocabulary` is same; or a tokenizer cannot be compared.
    """
    init = config.init
    networks = {"discriminator": start.discriminator, "generator": start.generator}
    tokenizer, notes = load_tokenizer(data.tokenizer_path), list(start.notes)
    if start.first_stage is not None:
        path = start.first_stage.tokenizer_json
        _check_vocabulary(load_tokenizer(path), tokenizer, data, str(start.first_stage.folder), str(path))
    for name, pretrained in networks.items():
        if pretrained is None:
            continue
        source = getattr(init, name) or str(init.discriminator)
        if init.vocabulary == "same":
            hint = f"{find_model(source)}, or give it the vocabulary of the data with --init.vocabulary transfer"
            _check_vocabulary(pretrained.tokenizer, tokenizer, data, source, hint)
            continue
        sources = find_sources(pretrained.tokenizer, tokenizer, fresh=init.vocabulary == "fresh")
        if name == "discriminator" and start.masked_lm_head is not None:
            transfer_bias(start.masked_lm_head, sources, used=vocabulary_size(pretrained.tokenizer))
        networks[name] = with_tokenizer(pretrained, tokenizer, sources, seed=config.train.seed)
        notes.append(f"vocabulary of {source} ({init.vocabulary}): {sources}")
    return replace(
        start, discriminator=networks["discriminator"], generator=networks["generator"], notes=tuple(notes)
    )


def _check_vocabulary(
    tokenizer: Tokenizer, data_tokenizer: Tokenizer, data: TokenData, name: str, hint: str
) -> None:
    """Refuse data with another vocabulary than the tokenizer of a pre-trained network.

    Args:
        hint: the tokenizer to prepare the data with, for the message.

    Raises:
        DataError: the vocabularies differ.
    """
    ids, model_ids = data_tokenizer.get_vocab(), tokenizer.get_vocab()
    differing = sorted(token for token in ids.keys() | model_ids.keys() if ids.get(token) != model_ids.get(token))
    if differing:
        examples = ", ".join(
            f"{token!r} is {ids.get(token, 'no entry')} in the data, "
            f"{model_ids.get(token, 'no entry')} in the model"
            for token in differing[:3]
        )
        raise DataError(
            f"{data.folder} was prepared with another vocabulary than {name}: {len(differing):,} entries differ "
            f"({examples}); prepare the data with --tokenizer {hint}"
        )
    case = [describe_tokenizer(one)["lowercase"] for one in (data_tokenizer, tokenizer)]
    if case[0] != case[1]:
        logger.warning("%s was trained on %s text, the data is not", name, "lowercase" if case[1] else "cased")
