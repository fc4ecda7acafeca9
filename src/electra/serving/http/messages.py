"""What clients ask, as the API takes it. Every field is checked, and others than these are refused."""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

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


Message = TypeVar("Message", bound=Request)


def limited(message: type[Message], limits: Limits) -> type[Message]:
    """The same message with a server's limits, as its OpenAPI shows them."""
    text = Annotated[str, Field(max_length=limits.characters)]
    items = Field(min_length=1, max_length=limits.texts)
    fields: dict[str, Any] = {
        Texts: {"texts": (Annotated[list[text], items], ...)},
        Inputs: {"texts": (Annotated[list[text | Annotated[list[text], Field(min_length=1)]], items], ...)},
        Places: {"text": (text, ...)},
    }[message]
    made: type[Message] = create_model(message.__name__, __base__=message, **fields)
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
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in _place(errors[0]["loc"]))
        what = errors[0]["msg"]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise Refusal(422, f"{where[1:]}: {what}{more}" if where else f"{what}{more}") from None


def _place(location: tuple[int | str, ...]) -> list[int | str]:
    """Where in the message it is, without pydantic's names of types behind the number of an item."""
    return [part for number, part in enumerate(location) if number == 0 or isinstance(part, int)]
