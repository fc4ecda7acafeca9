"""Write and read the tokenizer's files of a Hugging Face folder."""

import json
import math
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import describe_tokenizer, load_tokenizer, normalizer_parts
from electra.errors import CheckpointError, DataError
from electra.json_files import json_text, read_json
from electra.modeling.encoders.base import EncoderConfig


def tokenizer_files(tokenizer: Tokenizer, max_length: int, *, segments: bool = True) -> dict[str, str]:
    """Return the contents of the tokenizer's files, by file name.

    Args:
        max_length: the longest input in tokens, special tokens included.
        segments: whether the network has an embedding for each of two segments, so that it needs `token_type_ids`.
    """
    special = tokenizers.special_tokens(tokenizer)
    names = {
        role: tokenizer.id_to_token(token)
        for role, token in (
            ("cls_token", special.classify),
            ("mask_token", special.mask),
            ("pad_token", special.pad),
            ("sep_token", special.separate),
            ("unk_token", special.unknown),
        )
    }
    description = describe_tokenizer(tokenizer)
    settings: dict[str, Any] = {
        # BertTokenizer would rebuild the tokenizer from its vocabulary; this class loads tokenizer.json.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        **names,
    }
    exported = _for_transformers(tokenizer, special.mask)
    files = {"tokenizer.json": exported.to_str(pretty=True), "special_tokens_map.json": json_text(names)}
    if description["kind"] == "wordpiece":
        settings |= {"do_lower_case": description["lowercase"], "strip_accents": description["strip_accents"]}
        entries = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        # In a vocab.txt the number of a line is an id, and all other rules are BERT's.
        rules = [part["type"] for part in normalizer_parts(json.loads(tokenizer.to_str())["normalizer"])]
        if [i for _, i in entries] == list(range(len(entries))) and rules == ["BertNormalizer"]:
            files["vocab.txt"] = "".join(f"{entry}\n" for entry, _ in entries)
    return files | {"tokenizer_config.json": json_text(settings)}


def _for_transformers(tokenizer: Tokenizer, mask: int) -> Tokenizer:
    """Return the tokenizer for transformers. Texts without special tokens have the same ids.

    The text "[MASK]" is plain text for electra. In transformers it is the special token, so that users can fill
    masks. Near it, a byte-level tokenizer must split the text as in training, where [MASK] replaces a word and the
    space before it. The offsets of tokens exclude that space, as in RoBERTa's tokenizer, so that an answer begins
    with its first letter.
    """
    options = tokenizers.byte_level_options(tokenizer)
    if options is None:
        return tokenizer
    exported = Tokenizer.from_str(tokenizer.to_str())
    name = tokenizer.id_to_token(mask)
    exported.add_special_tokens([AddedToken(name, lstrip=True, normalized=False, special=True)])
    if options.add_prefix_space:
        # ByteLevel would add a space after each special token: " ." after [MASK] instead of ".".
        settings: dict[str, Any] = {key: value for key, value in tokenizers.SPACE_PREFIX.items() if key != "type"}
        metaspace: Any = pre_tokenizers.Metaspace(**settings)
        byte_level: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=options.use_regex)
        exported.pre_tokenizer = pre_tokenizers.Sequence([metaspace, byte_level])
    trim_offsets: Any = processors.ByteLevel(add_prefix_space=options.add_prefix_space, trim_offsets=True)
    exported.post_processor = processors.Sequence([trim_offsets, exported.post_processor])
    return exported


def read_tokenizer(folder: Path, config: EncoderConfig) -> tuple[Tokenizer, int]:
    """Return the tokenizer of a folder, and the longest input in tokens.

    Raises:
        DataError: the tokenizer cannot be read or lacks a special token, or `model_max_length` is not a length.
        CheckpointError: the tokenizer has more entries than the token table has rows.
    """
    tokenizer = load_tokenizer(folder)
    check_vocabulary_size(tokenizer, config, folder)
    # transformers writes 1e30 if there is no limit.
    length = read_json(folder / "tokenizer_config.json", optional=True).get("model_max_length") or math.inf
    if not isinstance(length, int | float) or not length >= 1:
        raise DataError(
            f"{folder / 'tokenizer_config.json'}: model_max_length must be at least 1, found {length!r}"
        )
    if not config.limits_length and length < 1e9:
        return tokenizer, int(length)
    return tokenizer, int(min(length, config.max_positions))


def check_vocabulary_size(tokenizer: Tokenizer, config: EncoderConfig, source: Path) -> None:
    """Check that the token table has a row for each entry of the tokenizer.

    Raises:
        CheckpointError: the tokenizer has more entries than the table has rows.
    """
    entries = tokenizers.vocabulary_size(tokenizer)
    if entries > config.vocabulary_size:
        raise CheckpointError(
            f"{source}: the tokenizer has {entries} entries, but the token table has only "
            f"{config.vocabulary_size} rows; the tokenizer or the weights belong to another model"
        )
