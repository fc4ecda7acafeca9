"""Pre-train text encoders as discriminators: from text to a model that loads in transformers."""

__version__ = "0.1.0"
