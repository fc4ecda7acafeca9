"""What many tests share: a small text of our own, and the shards made of it."""

import json
import os
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["shared_fixtures", "object_store"]

SUBJECTS = [
    "the gardener",
    "a young sailor",
    "the old clock",
    "my neighbour",
    "the river",
    "every teacher",
    "a fox",
]
VERBS = ["watches", "carries", "follows", "remembers", "repairs", "forgets", "paints"]
OBJECTS = ["the garden", "a wooden boat", "the long road", "an open window", "the heavy bread", "a quiet town"]
PLACES = [
    "in the morning",
    "behind the mill",
    "near the harbour",
    "under the bridge",
    "after the storm",
    "at night",
]


def seed_torch(name: str) -> None:
    """Seed PyTorch by this name, if it is imported: weights then depend on no other test."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(zlib.crc32(f"{os.environ.get('TEST_SEED', '0')} {name}".encode()))


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    seed_torch(f"{request.node.nodeid} {fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    seed_torch(item.nodeid)


@pytest.fixture(autouse=True)
def messages_of_the_command_line() -> Iterator[None]:
    """Messages of errors name options, as the command shows them, also in tests of functions; see test_errors."""
    from electra.errors import on_command_line

    with on_command_line():
        yield


def sentence(draw: random.Random) -> str:
    words = " ".join(draw.choice(choices) for choices in (SUBJECTS, VERBS, OBJECTS, PLACES))
    return f"{words[0].upper()}{words[1:]}."


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .jsonl of 400 documents of 4 to 30 sentences, the same at every run."""
    draw = random.Random(0)
    path = tmp_path_factory.mktemp("corpus") / "stories.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(400):
            text = " ".join(sentence(draw) for _ in range(draw.randint(4, 30)))
            file.write(json.dumps({"id": number, "text": text}) + "\n")
    return path


@pytest.fixture(scope="session")
def data_folder(corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same text prepared, with a vocabulary of 600. Tests must not write to it."""
    from electra.preparation.config import PrepareConfig
    from electra.preparation.run import prepare

    out = tmp_path_factory.mktemp("data") / "stories"
    prepare(PrepareConfig(corpus=(str(corpus_file),), out=out, vocabulary_size=600, workers=1))
    return out
