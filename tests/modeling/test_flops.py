"""Terms that are small, or that no network of the package has; the rest: tests/commands/test_flops.py."""

import torch
from configs import make_encoder_config
from torch.utils.flop_counter import FlopCounterMode

from electra.modeling.flops import Network, encoder_terms, forward_terms
from electra.modeling.heads import MaskedLanguageModelHead


def test_cross_attention_costs_as_much_as_attention() -> None:
    network = Network(layers=3, hidden_size=64, vocabulary_size=100, output_share=0.5)
    terms = encoder_terms(network, 32, "modern")
    with_cross = encoder_terms(Network(**{**vars(network), "cross_attention": True}), 32, "modern")
    assert any("attention" in name for name in terms)
    for name, flops in terms.items():
        assert with_cross[name] == (2 * flops if "attention" in name else flops), name


def test_a_head_that_projects_costs_what_torch_counts() -> None:
    config = make_encoder_config(kind="modernbert", hidden_size=32, embedding_size=16, vocabulary_size=50)
    network = Network.from_config(config, head="masked-lm", masked_share=0.25)
    terms = forward_terms(network, 32, "modern")
    of_head = sum(flops for name, flops in terms.items() if name not in encoder_terms(network, 32, "modern"))
    head = MaskedLanguageModelHead(config)
    with FlopCounterMode(display=False) as counter:
        head.logits(torch.randn(8, 32), torch.randn(50, 16))
    assert head.projection is not None and of_head == counter.get_total_flops()
