"""The requests and responses of the API.

Every field of a request is validated, and unknown fields are refused. The types of the responses are for the
OpenAPI description and the type checker; responses are not validated.
"""

import re
from typing import (
    Annotated,
    Any,
    NotRequired,  # pydantic needs this one before Python 3.12
    TypeVar,
)

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from electra.serving.http.limits import APIError, Limits

MAX_POSITIONS = 64
"""Tokens of a text for which one request can ask for proposals."""
MAX_PROPOSALS = 50
REPORTED_ERRORS = 3
"""Errors of a request in one message."""
MAX_NAME_CHARACTERS = 200
"""Characters of an unknown field name in a message."""
MESSAGES = {
    "extra_forbidden": "unknown field; the fields are {fields}",
    "missing": "is missing",
    "too_short": "give at least {min_length}",
    "too_long": "{actual_length:,} items, at most {max_length:,}; send the rest in another request",
    "string_too_long": "{characters:,} characters, at most {max_length:,} (--characters); split the text",
    "less_than_equal": "must be at most {le}",
    "greater_than_equal": "must be at least {ge}",
    "model_type": "give an object with the fields {fields}",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "int_type": "must be an integer",
}
"""Our messages for pydantic's types of errors. Other types have pydantic's message."""
LONE_SURROGATE = re.compile(r"Invalid JSON: .*hex escape at (line \d+ column \d+)")
"""pydantic's messages for an escape such as \\ud83d without the other half of its character."""


class ModelRequest(BaseModel):
    """The fields of all requests."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: Annotated[int, Field(description="1, or 2 if the server has two models", ge=1)] = 1


class TextsRequest(ModelRequest):
    """Texts."""

    texts: list[str]


class PredictRequest(ModelRequest):
    """Texts, pairs of texts, or lists of words, as the task of the model needs."""

    texts: list[str | list[str]]
    top: Annotated[
        int | None, Field(ge=1, description="number of labels with scores, the highest first; by default all")
    ] = None


class ProposalsRequest(ModelRequest):
    """Tokens of a text."""

    text: str
    tokens: Annotated[
        list[Annotated[int, Field(ge=0)]],
        Field(
            min_length=1,
            max_length=MAX_POSITIONS,
            description="indices of tokens, from 0, as in the result of /score",
        ),
    ]
    count: Annotated[int, Field(ge=1, le=MAX_PROPOSALS, description="number of proposals for each token")] = 5


class ScoredTokens(TypedDict):
    """The tokens of a text, the offsets of each (start and end, in code points), and their values.

    `continues`: whether a token belongs to the word of the token before it. `unknown`: whether it is not in the
    vocabulary, so that its values mean nothing.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    continues: list[bool]
    unknown: list[bool]
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
    """The index of a token, its own probability, and the proposals with theirs."""

    token: int
    probability: float
    proposals: list[Proposal]


class ProposalsResponse(TypedDict):
    model: str
    generator: str
    places: list[TokenProposals]


Schema = TypeVar("Schema", bound=ModelRequest)


def with_limits(schema: type[Schema], limits: Limits) -> type[Schema]:
    """A subclass of a request schema with the limits of a server, for validation and for OpenAPI."""
    text = Annotated[str, Field(max_length=limits.characters)]
    items = Field(min_length=1, max_length=limits.texts)
    parts = Annotated[list[text], Field(min_length=1)]
    fields: dict[type[ModelRequest], dict[str, Any]] = {
        TextsRequest: {"texts": (Annotated[list[text], items], ...)},
        PredictRequest: {"texts": (Annotated[list[text | parts], items], ...)},
        ProposalsRequest: {"text": (text, ...)},
    }
    limited: type[Schema] = create_model(schema.__name__, __base__=schema, **fields[schema])
    return limited


def parse_request(schema: type[Schema], body: bytes) -> Schema:
    """Validate the body of a request.

    Raises:
        APIError: 422, with the first errors.
    """
    fields = ", ".join(schema.model_fields)
    if not body.strip():
        raise APIError(422, f"the body is empty; send a JSON object with the fields {fields}")
    try:
        return schema.model_validate_json(body)
    except ValidationError as error:
        message = _describe(error, fields)
        if found := LONE_SURROGATE.fullmatch(message):
            message = (
                f"the text has a lone surrogate ({found[1]} of the body), which is not Unicode text; send "
                "the whole character"
            )
        raise APIError(422, message) from None


def _describe(error: ValidationError, fields: str) -> str:
    """The errors with their locations; unknown fields first, because they may be misspelled names."""
    errors: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for one in error.errors(include_url=False):
        errors.setdefault(_location(one["loc"]), []).append(one)
    # If a value can have one of several types, report the errors of the type that it is most like.
    outer = {location[:length] for location in errors for length in range(len(location))}
    locations = [location for location in errors if location not in outer]
    locations.sort(key=lambda location: errors[location][0]["type"] != "extra_forbidden")
    reported = [_path(location) + _message(errors[location], fields) for location in locations[:REPORTED_ERRORS]]
    more = f" (and {len(locations) - REPORTED_ERRORS:,} more)" if len(locations) > REPORTED_ERRORS else ""
    return "; ".join(reported) + more


def _location(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """pydantic's location of an error without the names of types after the index of an item."""
    return tuple(part for number, part in enumerate(location) if number == 0 or isinstance(part, int))


def _path(location: tuple[int | str, ...]) -> str:
    if not location:
        return ""
    name = str(location[0])
    name = name if len(name) <= MAX_NAME_CHARACTERS else name[:MAX_NAME_CHARACTERS] + "…"
    return name + "".join(f"[{part}]" for part in location[1:]) + ": "


def _message(errors: list[ErrorDetails], fields: str) -> str:
    """The errors at one location: those that are not about the type, if there are any."""
    errors = [one for one in errors if not one["type"].endswith("_type")] or errors
    messages = (
        MESSAGES.get(one["type"], "{msg}").format(
            **one.get("ctx", {}), fields=fields, msg=one["msg"], characters=len(str(one["input"]))
        )
        for one in errors
    )
    return "; or ".join(dict.fromkeys(messages))
