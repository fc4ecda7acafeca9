"""Floating-point operations of a forward pass, from a config alone.

Convention: a multiply-add is 2 operations, only matrix products count, and embedding look-ups are free.
Training costs three times the forward pass (the backward pass is two products for each forward one).
"""

from electra.modeling.encoder import EncoderConfig


def encoder_flops(config: EncoderConfig, length: int, *, wanted: float = 1.0) -> float:
    """Forward FLOPs for one token in an input of `length` tokens.

    Args:
        wanted: share of the tokens whose states are wanted; in the last block, others have keys and values only.
    """
    hidden = config.hidden_size
    keys_and_values = 2 * hidden * hidden
    # query and output projections, scores and the weighted sum of the values, feed-forward layers
    asking = 2 * hidden * hidden + 2 * length * hidden + 2 * hidden * config.feed_forward_size
    joint = config.embedding_size * hidden if config.embedding_size != hidden else 0
    return 2.0 * (config.layers * keys_and_values + (config.layers - 1 + wanted) * asking + joint)


def masked_language_model_flops(config: EncoderConfig) -> float:
    """Forward FLOPs of the masked language model's head for one chosen position."""
    return 2.0 * config.embedding_size * (config.hidden_size + config.vocabulary_size)


def replaced_token_flops(config: EncoderConfig) -> float:
    """Forward FLOPs of the discriminator's head for one token."""
    return 2.0 * config.hidden_size * (config.hidden_size + 1)
