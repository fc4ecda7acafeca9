"""The tokenizer's files of a Hugging Face folder, out and in."""

import math
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors

from electra.data import tokenizer as tokenizers
from electra.data.tokenizer import describe_tokenizer, load_tokenizer
from electra.errors import CheckpointError, DataError
from electra.json_files import json_text, read_json
from electra.modeling.encoders.base import EncoderConfig


def tokenizer_files(tokenizer: Tokenizer, max_length: int, *, segments: bool = True) -> dict[str, str]:
    """The texts of the tokenizer's files by name.

    Args:
        segments: whether the network tells two segments apart; one that has a single row of them is given none.
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
    facts = describe_tokenizer(tokenizer)
    settings: dict[str, Any] = {
        # Bert's class rebuilds the tokenizer from its vocabulary; this one takes tokenizer.json as it is.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        **names,
    }
    theirs = _for_transformers(tokenizer, special.mask)
    files = {"tokenizer.json": theirs.to_str(pretty=True), "special_tokens_map.json": json_text(names)}
    if facts["kind"] == "wordpiece":
        settings |= {"do_lower_case": facts["lowercase"], "strip_accents": facts["strip_accents"]}
        entries = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        if [i for _, i in entries] == list(range(len(entries))):  # a line is an id
            files["vocab.txt"] = "".join(f"{entry}\n" for entry, _ in entries)
    return files | {"tokenizer_config.json": json_text(settings)}


def _for_transformers(tokenizer: Tokenizer, mask: int) -> Tokenizer:
    """The tokenizer as it goes out: with the same ids of every text in which no special token is named.

    Here such a name is plain text; there it is the token, so that people can fill masks. A byte-level tokenizer
    must then cut the text around it as in training, where [MASK] stands for a word with the space before it. And
    characters of tokens go without that space there, as RoBERTa's do: an answer begins with its first letter.
    """
    pieces = tokenizers.byte_level_options(tokenizer)
    if pieces is None:
        return tokenizer
    found = Tokenizer.from_str(tokenizer.to_str())
    name = tokenizer.id_to_token(mask)
    found.add_special_tokens([AddedToken(name, lstrip=True, normalized=False, special=True)])
    if pieces.add_prefix_space:
        # ByteLevel would set a space before each stretch between special tokens: " ." behind [MASK], not ".".
        settings: dict[str, Any] = {key: value for key, value in tokenizers.SPACE_PREFIX.items() if key != "type"}
        first: Any = pre_tokenizers.Metaspace(**settings)
        then: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pieces.use_regex)
        found.pre_tokenizer = pre_tokenizers.Sequence([first, then])
    trimmed: Any = processors.ByteLevel(add_prefix_space=pieces.add_prefix_space, trim_offsets=True)
    found.post_processor = processors.Sequence([trimmed, found.post_processor])
    return found


def read_tokenizer(folder: Path, config: EncoderConfig) -> tuple[Tokenizer, int]:
    """The tokenizer of a folder, and the longest input in tokens.

    Raises:
        DataError: it cannot be read, lacks a special token, or its longest input is no number.
        CheckpointError: it has more entries than the network has rows.
    """
    tokenizer = load_tokenizer(folder)
    agree(tokenizer, config, folder)
    # Where transformers knows no limit, it writes 1e30.
    length = read_json(folder / "tokenizer_config.json", optional=True).get("model_max_length") or math.inf
    if not isinstance(length, int | float) or not length >= 1:
        raise DataError(f"{folder / 'tokenizer_config.json'}: model_max_length is {length!r}, which is no length")
    if not config.position_table and length < 1e9:
        return tokenizer, int(length)
    return tokenizer, int(min(length, config.max_positions))


def agree(tokenizer: Tokenizer, config: EncoderConfig, source: Path) -> None:
    """Refuse a tokenizer that has more entries than the network has rows."""
    entries = tokenizers.vocabulary_size(tokenizer)
    if entries > config.vocabulary_size:
        raise CheckpointError(
            f"{source}: the tokenizer has {entries} entries, the token table only {config.vocabulary_size} rows; "
            "one of the two belongs to another model"
        )
