"""Folders in the form of released checkpoints: small networks of transformers' classes, and tokenizers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from electra.preparation.tokenizer_training import train_tokenizer


def modernbert_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Byte-level BPE without a space before the text; special tokens and runs of spaces are at the end."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    options: Any = {"vocab_size": 500, "initial_alphabet": alphabet, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**options))
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True, special=False) for n in (4, 3, 2)])
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in ("[UNK]", "[CLS]", "[SEP]", "[PAD]")])
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken(f"[unused{n}]", normalized=True, special=False) for n in range(6)])
    return with_template(tokenizer, "[CLS]", "[SEP]")


def deberta_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Unigram of SentencePiece; [MASK] is an added token behind the vocabulary."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    options: Any = {"vocab_size": 300, "special_tokens": special, "unk_token": "[UNK]", "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(**options))
    tokenizer.add_special_tokens([AddedToken("[MASK]", special=True)])
    return with_template(tokenizer, "[CLS]", "[SEP]")


def gemma_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """BPE of SentencePiece without a space before the text; <s> and </s> are tags of HTML, not special tokens."""
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    splitter: Any = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.pre_tokenizer = splitter
    options: Any = {"vocab_size": 400, "special_tokens": names, "show_progress": False}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**options))
    after: Any = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.pre_tokenizer = after
    tokenizer.decoder = decoders.Replace("▁", " ")
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in ("<s>", "</s>")])
    return with_template(tokenizer, "<bos>", "<eos>")


def with_template(tokenizer: Tokenizer, first: str, last: str) -> Tokenizer:
    """Add the special tokens around a text, and settings that files of transformers have."""
    ids = [(name, tokenizer.token_to_id(name)) for name in (first, last)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}", special_tokens=ids)
    tokenizer.enable_truncation(8192)
    return tokenizer


def word_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """BERT's WordPiece."""
    return train_tokenizer(list(texts), vocabulary_size=300)


def byte_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """RoBERTa's byte-level BPE."""
    return train_tokenizer(list(texts), kind="bpe", vocabulary_size=400)


ROBERTA = {"type_vocab_size": 1, "max_position_embeddings": 42}
BERT = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 40,
}  # fmt: skip
XLNET = {"d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 48, "mem_len": 0}
MODERN = {**BERT, "global_attn_every_n_layers": 3, "local_attention": 8, "max_position_embeddings": 128}
FOLDERS: dict[str, tuple[str, dict[str, Any], Callable[[Sequence[str]], Tokenizer]]] = {
    "electra": ("ElectraForPreTraining", {**BERT, "embedding_size": 16}, word_tokenizer),
    "bert": ("BertForPreTraining", BERT, word_tokenizer),
    "roberta": ("RobertaForMaskedLM", {**BERT, **ROBERTA}, byte_tokenizer),
    "albert": ("AlbertForMaskedLM", {**BERT, "embedding_size": 16}, word_tokenizer),
    "xlnet": ("XLNetLMHeadModel", XLNET, word_tokenizer),
    "modernbert": ("ModernBertForMaskedLM", MODERN, modernbert_tokenizer),
    "mmbert": ("ModernBertForMaskedLM", MODERN, gemma_tokenizer),
    "deberta-v2": (
        "DebertaV2ForMaskedLM",
        {
            **BERT, "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm",
            "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "max_relative_positions": -1,
            "position_biased_input": False, "type_vocab_size": 0, "layer_norm_eps": 1e-7,
        },
        deberta_tokenizer,
    ),
}  # fmt: skip
"""For each form transformers' class, the fields of its config, and the tokenizer."""


def write_released(folder: Path, form: str, texts: Sequence[str], *, padded: int = 13, **changes: Any) -> Any:
    """Write a folder, and return transformers' model.

    Args:
        padded: rows of the token table behind the vocabulary, which released models have to fill up a multiple
            of 64.
        changes: other values of the config.
    """
    import transformers

    class_name, fields, build_tokenizer = FOLDERS[form]
    tokenizer = build_tokenizer(texts)
    model_class: Any = getattr(transformers, class_name)
    ids = {name: tokenizer.token_to_id(name) for name in ("[PAD]", "<pad>", "[CLS]", "[SEP]", "<bos>", "<eos>")}
    known: dict[str, Any] = {
        "pad_token_id": ids["<pad>"] if ids["[PAD]"] is None else ids["[PAD]"],
        "bos_token_id": ids["<bos>"] if ids["[CLS]"] is None else ids["[CLS]"],
        "eos_token_id": ids["<eos>"] if ids["[SEP]"] is None else ids["[SEP]"],
    }
    if form in ("modernbert", "mmbert"):  # the defaults are ids of the released vocabulary
        known |= {"cls_token_id": known["bos_token_id"], "sep_token_id": known["eos_token_id"]}
    size = max(tokenizer.get_vocab().values()) + 1 + padded
    torch.manual_seed(0)
    model = model_class(model_class.config_class(vocab_size=size, **{**known, **fields, **changes}))
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return model
