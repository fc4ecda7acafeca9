"""The network that a config describes, whatever its positions."""

from electra.modeling.encoders.bert import Encoder, EncoderConfig
from electra.modeling.encoders.relative import RelativeEncoder

AnyEncoder = Encoder | RelativeEncoder


def build_encoder(config: EncoderConfig, *, query_stream: bool = False) -> AnyEncoder:
    """A fresh network.

    Args:
        query_stream: whether one with relative positions has a second stream of states (see `RelativeEncoder`).
    """
    if config.positions == "relative":
        return RelativeEncoder(config, query_stream=query_stream)
    return Encoder(config)
