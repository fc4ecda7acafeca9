"""Training steps of BERT, RoBERTa and ALBERT on a CPU: ours, and transformers' classes used skillfully.

    OMP_NUM_THREADS=1 python benchmarks/masked_encoders.py [--precisions float32 bfloat16] [--rounds 9]

Both run alternately in this process, on the same random rows without padding, with the same dropout: forward and
backward passes of both losses (tokens, and sentence pairs if the encoder has such a loss), no optimizer. Ours
samples its masks in the step; the peer gets them. The peer computes logits only at the masked positions and uses
PyTorch's fused attention. Values are medians over the rounds; a ratio compares times of the same round. With one
thread, times are processor seconds.

Shapes: B batch, L length, N slots a row, D hidden size.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

from electra.config import load_config
from electra.data.collate import Batch
from electra.data.tokenizer import SpecialTokens
from electra.objectives.masked_lm import MaskedLanguageModel
from electra.pretraining.config import PretrainConfig, build_objective
from electra.training.allocator import keep_freed_memory
from encoders import backward, compare, parse_options

Step = Callable[[], float]
SPECIAL = SpecialTokens(0, 1, 2, 3, 4)
PRESETS = {"bert": "bert-mini", "roberta": "roberta-tiny", "albert": "albert-tiny"}
CLASSES = {"bert": "BertForPreTraining", "roberta": "RobertaForMaskedLM", "albert": "AlbertForPreTraining"}


def settings(name: str, options: argparse.Namespace) -> PretrainConfig:
    size = options.hidden_size
    config = load_config(PretrainConfig, PRESETS[name])
    return replace(
        config,
        model=replace(
            config.model, layers=options.layers, hidden_size=size, feed_forward_size=4 * size, heads=options.heads,
            embedding_size=size // 2 if name == "albert" else size, vocabulary_size=options.vocabulary,
            dropout=options.dropout, attention_dropout=options.dropout, max_positions=options.length,
        ),
        masking=replace(config.masking, kind="uniform"),  # n-grams want to know where words begin
    )  # fmt: skip


def batch(name: str, options: argparse.Namespace) -> Batch:
    B, L = options.rows, options.length
    random = torch.Generator().manual_seed(1)
    ids_BL = torch.randint(5, options.vocabulary, (B, L), generator=random)
    ids_BL[:, 0], ids_BL[:, L // 2], ids_BL[:, -1] = SPECIAL.classify, SPECIAL.separate, SPECIAL.separate
    segments_BL = (torch.arange(L) > L // 2).long().expand(B, -1)
    pairs_B = None if name == "roberta" else torch.randint(2, (B,), generator=random)
    return Batch(ids_BL, segments_BL, torch.full((B,), L), seed=1, sentences_B=pairs_B)


def ours(name: str, options: argparse.Namespace) -> Step:
    torch.manual_seed(0)
    objective = build_objective(settings(name, options), SPECIAL).train()
    given = batch(name, options)
    return lambda: backward(objective(given).loss, objective)


def peer(name: str, options: argparse.Namespace) -> Step:
    torch.manual_seed(0)
    config, given = settings(name, options), batch(name, options)
    objective = build_objective(config, SPECIAL)
    assert isinstance(objective, MaskedLanguageModel)
    masking = objective.draw_masks(given)
    model = config.model
    shape = {
        "vocab_size": model.vocabulary_size, "hidden_size": model.hidden_size, "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads, "intermediate_size": model.feed_forward_size,
        "hidden_dropout_prob": model.dropout, "attention_probs_dropout_prob": model.attention_dropout,
        "max_position_embeddings": model.max_positions + 1, "pad_token_id": 0,
    }  # fmt: skip
    if name == "albert":
        shape |= {"embedding_size": model.embedding_size, "hidden_act": "gelu_new"}
    architecture = getattr(transformers, CLASSES[name])
    network = architecture(architecture.config_class(**shape)).train()
    base = getattr(network, name)
    words: Callable[[Tensor], Tensor] = {
        "bert": lambda x: network.cls.predictions(x),
        "roberta": lambda x: network.lm_head(x),
        "albert": lambda x: network.predictions(x),
    }[name]
    used_n = masking.used_BN.flatten()
    rows_n = torch.arange(options.rows)[:, None].expand_as(masking.positions_BN).flatten()[used_n]
    positions_n, targets_n = masking.positions_BN.flatten()[used_n], masking.gather(given.input_ids_BL)[used_n]
    types_BL = None if name == "roberta" else given.segment_ids_BL

    def step() -> float:
        found = base(masking.input_ids_BL, token_type_ids=types_BL)
        loss = F.cross_entropy(words(found[0][rows_n, positions_n]).float(), targets_n)
        if given.sentences_B is not None:
            pairs = network.cls.seq_relationship if name == "bert" else network.sop_classifier
            loss = loss + F.cross_entropy(pairs(found[1]).float(), given.sentences_B)
        return backward(loss, network)

    return step


def main() -> None:
    sizes = {
        "layers": 4, "hidden-size": 256, "heads": 4, "rows": 32, "length": 128, "vocabulary": 8_192, "rounds": 9,
    }  # fmt: skip
    options = parse_options(__doc__, sizes, list(PRESETS))
    keep_freed_memory()
    transformers.logging.set_verbosity_error()
    compare(
        {
            name: {"ours": ours(name, options), "transformers": peer(name, options)}
            for name in PRESETS
            if options.only in (None, name)
        },
        options,
    )


if __name__ == "__main__":
    main()
