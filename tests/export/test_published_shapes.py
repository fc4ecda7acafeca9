"""config.json of released models, as they are published, and networks of those shapes without values."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from electra.export import huggingface
from electra.modeling.heads import MaskedLanguageModelHead

transformers: Any = pytest.importorskip("transformers")

MODERNBERT = {
    "architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": False,
    "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 50281, "decoder_bias": True,
    "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 50282,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "initializer_cutoff_factor": 2.0, "initializer_range": 0.02,
    "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 10000.0, "max_position_embeddings": 8192,
    "mlp_bias": False, "mlp_dropout": 0.0, "norm_bias": False, "norm_eps": 1e-05, "pad_token_id": 50283,
    "position_embedding_type": "absolute", "sep_token_id": 50282, "tie_word_embeddings": True,
    "torch_dtype": "float32", "vocab_size": 50368,
}  # fmt: skip
"""ModernBERT (Warner et al. 2024), without its size."""
ETTIN = {**MODERNBERT, "local_rope_theta": 160000.0, "position_embedding_type": "sans_pos"}
"""Ettin (Weller et al. 2025)."""
MMBERT = {
    **ETTIN, "vocab_size": 256000, "pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 1, "eos_token_id": 1,
    "sep_token_id": 1, "mask_token_id": 4, "sparse_prediction": False, "sparse_pred_ignore_index": -100,
}  # fmt: skip
"""mmBERT (Marone et al. 2025), with Gemma's vocabulary."""
DEBERTA = {
    "model_type": "deberta-v2", "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1, "initializer_range": 0.02, "max_position_embeddings": 512,
    "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": "p2c|c2p", "layer_norm_eps": 1e-7, "max_relative_positions": -1,
    "position_biased_input": False, "attention_head_size": 64, "type_vocab_size": 0, "vocab_size": 128100,
}  # fmt: skip
"""DeBERTaV3 (He et al. 2023). Generators have half of the blocks."""
MODELS: dict[str, tuple[dict[str, Any], tuple[int, int, int, int]]] = {
    "ettin-17m": (ETTIN, (7, 256, 384, 4)),
    "ettin-32m": (ETTIN, (10, 384, 576, 6)),
    "ettin-68m": (ETTIN, (19, 512, 768, 8)),
    "ettin-150m": (ETTIN, (22, 768, 1152, 12)),
    "modernbert-base": (MODERNBERT, (22, 768, 1152, 12)),
    "modernbert-large": (MODERNBERT, (28, 1024, 2624, 16)),
    "mmbert-small": (MMBERT, (22, 384, 1152, 6)),
    "mmbert-base": (MMBERT, (22, 768, 1152, 12)),
    "deberta-v3-xsmall": (DEBERTA, (12, 384, 1536, 6)),
    "deberta-v3-xsmall-generator": (DEBERTA, (6, 384, 1536, 6)),
    "deberta-v3-small": (DEBERTA, (6, 768, 3072, 12)),
    "deberta-v3-small-generator": (DEBERTA, (3, 768, 3072, 12)),
    "deberta-v3-base": (DEBERTA, (12, 768, 3072, 12)),
    "deberta-v3-base-generator": (DEBERTA, (6, 768, 3072, 12)),
}
"""Fields of config.json; layers, hidden size, feed-forward size and heads."""
SIZES = "num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"


def published_tensors(folder: Path, name: str) -> dict[str, torch.Tensor]:
    """The tensors of transformers' masked language model, on the meta device, by the names in released files."""
    config = transformers.AutoConfig.from_pretrained(folder)
    config.legacy = False  # DeBERTaV3 was released with the names of the newer head
    with torch.device("meta"):
        model = transformers.AutoModelForMaskedLM.from_config(config)
        tensors = dict(model.named_parameters())  # tied ones once, as in the files
        if config.model_type == "deberta-v2" and not name.endswith("generator"):
            size = config.hidden_size
            for part, shape in (("dense.weight", (size, size)), ("classifier.weight", (1, size))):
                tensors[f"mask_predictions.{part}"] = torch.empty(shape)
    return tensors


@pytest.fixture
def load_without_values(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`huggingface.load` of a folder that has a config.json only."""

    def load(folder: Path, tensors: dict[str, torch.Tensor]) -> Any:
        monkeypatch.setattr(huggingface, "read_weights", lambda _: tensors)
        monkeypatch.setattr(huggingface, "read_tokenizer", lambda _, config: (None, config.max_positions))
        monkeypatch.setattr(torch.Tensor, "isfinite", lambda _: torch.tensor(True))
        return huggingface.load(folder)

    return load


@pytest.mark.parametrize("name", MODELS)
def test_a_released_model_has_the_tensors_of_our_network(
    tmp_path: Path, load_without_values: Any, name: str
) -> None:
    fields, sizes = MODELS[name]
    (tmp_path / "config.json").write_text(json.dumps({**fields, **dict(zip(SIZES, sizes, strict=True))}))
    published = published_tensors(tmp_path, name)
    pretrained = load_without_values(tmp_path, dict(published))
    config = pretrained.encoder.config
    assert (config.layers, config.hidden_size, config.feed_forward_size, config.heads) == sizes
    is_discriminator = any(key.startswith("mask_predictions.") for key in published)
    assert (pretrained.head is None) == is_discriminator
    assert is_discriminator or isinstance(pretrained.head, MaskedLanguageModelHead)
    heads = ("mask_predictions.", "lm_predictions.") if is_discriminator else ()
    assert set(pretrained.unused) == {key for key in published if key.startswith(heads)}
    modules = [pretrained.encoder, *([] if pretrained.head is None else [pretrained.head])]
    used = [value for key, value in published.items() if not (heads and key.startswith(heads))]
    assert sum(one.numel() for module in modules for one in module.parameters()) == sum(
        map(torch.Tensor.numel, used)
    )
    if fields["model_type"] == "modernbert":
        thetas = config.rope_theta, config.local_rope_theta
        assert thetas == (160_000, fields["local_rope_theta"]) and config.local_window == 128
    else:
        assert (config.position_buckets, config.max_positions) == (256, 512)
        assert config.content_to_position and config.position_to_content and config.relative_norm
