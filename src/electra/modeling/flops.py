"""Floating-point operations of a forward pass, from a config alone.

Convention: a multiply-add is 2 operations, only matrix products count, and embedding look-ups are free.
Training costs three times the forward pass (the backward pass is two products for each forward one).
"""

from electra.modeling.encoder import EncoderConfig


def encoder_flops(config: EncoderConfig, length: int) -> float:
    """Forward FLOPs for one token in an input of `length` tokens."""
    hidden = config.hidden_size
    projections = 4 * hidden * hidden  # query, key, value and output
    attention = 2 * length * hidden  # scores, and the weighted sum of the values
    feed_forward = 2 * hidden * config.feed_forward_size
    joint = config.embedding_size * hidden if config.embedding_size != hidden else 0
    return 2.0 * (config.layers * (projections + attention + feed_forward) + joint)


def masked_language_model_flops(config: EncoderConfig) -> float:
    """Forward FLOPs of the masked language model's head for one chosen position."""
    return 2.0 * config.embedding_size * (config.hidden_size + config.vocabulary_size)


def replaced_token_flops(config: EncoderConfig) -> float:
    """Forward FLOPs of the discriminator's head for one token."""
    return 2.0 * config.hidden_size * (config.hidden_size + 1)
