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
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from electra.serving.http.limits import APIError, Limits

PLACES = 64
"""Tokens of a text for which proposals may be asked at once."""
PROPOSALS = 50
NAMED = 3
"""Mistakes of a request that are named at once."""
SHOWN = 200
"""Characters that are shown of a name that a client made up."""
PLAIN = {
    "extra_forbidden": "there is no such field; there are {fields}",
    "missing": "it is missing",
    "too_short": "give at least {min_length}",
    "too_long": "{actual_length:,} of them, at most {max_length:,}; send the rest in another request",
    "string_too_long": "{characters:,} characters, at most {max_length:,} (--characters); split it",
    "less_than_equal": "give at most {le}",
    "greater_than_equal": "give at least {ge}",
    "model_type": "give an object with the fields {fields}",
    "string_type": "give a string",
    "list_type": "give a list",
    "int_type": "give a whole number",
}
"""pydantic's kinds of mistakes in our words; any other is in pydantic's."""


class ModelRequest(BaseModel):
    """What all requests have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[int, Field(description="1, or 2 where the server has two models", ge=1, le=2)] = 1


class TextsRequest(ModelRequest):
    """Texts."""

    texts: list[str]


class PredictRequest(ModelRequest):
    """Texts, or pairs of texts, or lists of words: as the model's task has it."""

    texts: list[str | list[str]]


class ProposalsRequest(ModelRequest):
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


class ScoreResponse(TypedDict):
    model: str
    objective: str
    results: list[ScoredTokens]


class RescoreResult(TypedDict):
    score: float | None
    sum: float
    tokens: int


class RescoreResponse(TypedDict):
    model: str
    best: int
    order: list[int]
    results: list[RescoreResult]


class EmbedResponse(TypedDict):
    model: str
    dimension: int
    embeddings: list[list[float]]


class PredictResponse(TypedDict):
    model: str
    task: str
    predictions: list[dict[str, Any]]


class Proposal(TypedDict):
    token: str
    probability: float


class TokenProposals(TypedDict):
    """A token's number, its own probability, and others with theirs."""

    token: int
    probability: float
    proposals: list[Proposal]


class ProposalsResponse(TypedDict):
    model: str
    generator: str
    places: list[TokenProposals]


Message = TypeVar("Message", bound=ModelRequest)


def with_limits(message: type[Message], limits: Limits) -> type[Message]:
    """The same message with a server's limits, as its OpenAPI shows them."""
    text = Annotated[str, Field(max_length=limits.characters)]
    items = Field(min_length=1, max_length=limits.texts)
    kinds: dict[type[ModelRequest], dict[str, Any]] = {
        TextsRequest: {"texts": (Annotated[list[text], items], ...)},
        PredictRequest: {
            "texts": (Annotated[list[text | Annotated[list[text], Field(min_length=1)]], items], ...)
        },
        ProposalsRequest: {"text": (text, ...)},
    }
    made: type[Message] = create_model(message.__name__, __base__=message, **kinds[message])
    return made


def parse_request(message: type[Message], body: bytes) -> Message:
    """A request's body as a message.

    Raises:
        Refusal: 422, with the first things that are wrong with it.
    """
    try:
        return message.model_validate_json(body)
    except ValidationError as error:
        raise APIError(422, _told(error, ", ".join(message.model_fields))) from None


def _told(error: ValidationError, fields: str) -> str:
    """The mistakes, each with its place: fields that there are not come first, since one of them may be another's
    name misspelt."""
    found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for one in error.errors(include_url=False):
        found.setdefault(_place(one["loc"]), []).append(one)
    # Of something that may have one of several forms: what is wrong with the one that it is most like.
    inner = {place[:length] for place in found for length in range(len(place))}
    places = [place for place in found if place not in inner]
    places.sort(key=lambda place: found[place][0]["type"] != "extra_forbidden")
    says = [_where(place) + _what(found[place], fields) for place in places[:NAMED]]
    more = f" (and {len(places) - NAMED:,} more)" if len(places) > NAMED else ""
    return "; ".join(says) + more


def _place(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where in the message it is, without pydantic's names of types behind the number of an item."""
    return tuple(part for number, part in enumerate(location) if number == 0 or isinstance(part, int))


def _where(place: tuple[int | str, ...]) -> str:
    if not place:
        return ""
    name = str(place[0])
    name = name if len(name) <= SHOWN else name[:SHOWN] + "…"
    return name + "".join(f"[{part}]" for part in place[1:]) + ": "


def _what(errors: list[ErrorDetails], fields: str) -> str:
    """What is wrong at one place. It has a form that is allowed where not all of its errors are about forms."""
    errors = [one for one in errors if not one["type"].endswith("_type")] or errors
    says = (
        PLAIN.get(one["type"], "{msg}").format(
            **one.get("ctx", {}), fields=fields, msg=one["msg"], characters=len(str(one["input"]))
        )
        for one in errors
    )
    return "; or ".join(dict.fromkeys(says))
