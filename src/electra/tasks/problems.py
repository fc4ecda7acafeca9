"""A problem from its facts, as a fine-tuned model keeps them."""

from collections.abc import Callable

from electra.errors import CheckpointError
from electra.tasks.base import Facts, Problem
from electra.tasks.classification import Classification, Multilabel, Regression
from electra.tasks.squad import QuestionAnswering
from electra.tasks.tagging import Tagging

KINDS: dict[str, Callable[..., Problem]] = {
    "classification": Classification,
    "multilabel": Multilabel,
    "regression": Regression,
    "tagging": Tagging,
    "answering": QuestionAnswering,
}


def problem_from_dict(facts: Facts) -> Problem:
    """The problem that `Problem.facts` described; a model keeps beside it how long
    its texts are and how they are read: `max_length`, `long`, `longest`.

    Raises:
        CheckpointError: it is none that is known here.
    """
    facts = dict(facts)
    for name in ("max_length", "long", "longest"):
        facts.pop(name, None)
    kind = KINDS.get(facts.pop("kind", ""))
    if kind is None:
        raise CheckpointError(f"a task of an unknown kind; known are {', '.join(KINDS)}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()})
