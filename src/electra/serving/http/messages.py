"""What clients ask, and what they are given.

Every field of a request is checked, and others than these are refused. The forms of the answers are for the API's
description and the type checker; answers are not checked when they go out.
"""

from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic reads no others before Python 3.12
    TypeVar,
)

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from typing_extensions import TypedDict

from electra.serving.http.limits import Limits, Refusal

PLACES = 64
"""Tokens of a text for which proposals may be asked at once."""
PROPOSALS = 50


class Request(BaseModel):
    """What all requests have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[int, Field(description="1, or 2 where the server has two models", ge=1, le=2)] = 1


class Texts(Request):
    """Texts."""

    texts: list[str]


class Inputs(Request):
    """Texts, or pairs of texts, or lists of words: as the model's task has it."""

    texts: list[str | list[str]]


class Places(Request):
    """Tokens of a text."""

    text: str
    tokens: Annotated[
        list[Annotated[int, Field(ge=0)]],
        Field(min_length=1, max_length=PLACES, description="numbers of tokens, from 0, as /score counts them"),
    ]
    count: Annotated[int, Field(ge=1, le=PROPOSALS, description="proposals for each token")] = 5


class ScoredTokens(TypedDict):
    """A text's tokens, the characters of each (from, to; code points), and their figures."""

    tokens: list[str]
    offsets: list[tuple[int, int]]
    probabilities: NotRequired[list[float]]
    log_probabilities: NotRequired[list[float]]
    pseudo_log_likelihood: NotRequired[float]


class Scores(TypedDict):
    model: str
    objective: str
    results: list[ScoredTokens]


class Rank(TypedDict):
    score: float | None
    sum: float
    tokens: int


class Ranks(TypedDict):
    model: str
    best: int
    order: list[int]
    results: list[Rank]


class Embeddings(TypedDict):
    model: str
    dimension: int
    embeddings: list[list[float]]


class Predictions(TypedDict):
    model: str
    task: str
    predictions: list[dict[str, Any]]


class Proposal(TypedDict):
    token: str
    probability: float


class ProposedPlace(TypedDict):
    """A token's number, its own probability, and others with theirs."""

    token: int
    probability: float
    proposals: list[Proposal]


class Proposals(TypedDict):
    model: str
    generator: str
    places: list[ProposedPlace]


Message = TypeVar("Message", bound=Request)


def limited(message: type[Message], limits: Limits) -> type[Message]:
    """The same message with a server's limits, as its OpenAPI shows them."""
    text = Annotated[str, Field(max_length=limits.characters)]
    items = Field(min_length=1, max_length=limits.texts)
    kinds: dict[type[Request], dict[str, Any]] = {
        Texts: {"texts": (Annotated[list[text], items], ...)},
        Inputs: {"texts": (Annotated[list[text | Annotated[list[text], Field(min_length=1)]], items], ...)},
        Places: {"text": (text, ...)},
    }
    made: type[Message] = create_model(message.__name__, __base__=message, **kinds[message])
    return made


def parsed(message: type[Message], body: bytes) -> Message:
    """A request's body as a message.

    Raises:
        Refusal: 422, with the first thing that is wrong with it.
    """
    try:
        return message.model_validate_json(body)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        places = [_place(one["loc"]) for one in errors]
        # Of something that may have one of several forms: what is wrong with the one that it is most like.
        place = max((one for one in places if one[: len(places[0])] == places[0]), key=len)
        what = "; or ".join({one["msg"]: 0 for one, there in zip(errors, places, strict=True) if there == place})
        others = len({*places} - {place[:length] for length in range(len(place) + 1)})
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
        more = f" (and {others} more)" if others else ""
        raise Refusal(422, f"{where[1:]}: {what}{more}" if where else f"{what}{more}") from None


def _place(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where in the message it is, without pydantic's names of types behind the number of an item."""
    return tuple(part for number, part in enumerate(location) if number == 0 or isinstance(part, int))
