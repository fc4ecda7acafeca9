"""What a model card says of the network that an objective trains."""

from dataclasses import dataclass
from typing import Literal

ELECTRA_PAPER = "[Clark et al., ICLR 2020](https://arxiv.org/abs/2003.10555)"


@dataclass(frozen=True)
class ModelDescription:
    """The parts of a model card that depend on the objective, in Markdown.

    Attributes:
        title: heading of the card.
        text: the first paragraph: what the network was trained to do, with the paper.
        tag: the training objective among the tags of the Hugging Face Hub.
        head: what the network predicts: whether a token was replaced, or tokens of the vocabulary, with or without
            a hidden layer in front.
        fills_masks: whether it predicts the token at a [MASK].
        generator: name of the networks beside it, whose shape is [generator]; None: there are none.
        uses: what it is good for, in addition to fine-tuning and embeddings.
        limits: what to be careful about.
    """

    title: str
    text: str
    tag: str = "replaced-token-detection"
    head: Literal["discriminator", "generator", "language-model"] = "discriminator"
    fills_masks: bool = False
    generator: str | None = None
    uses: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
