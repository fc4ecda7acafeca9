"""A run, loaded once, and a server of it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from small_server import serving, write_run

from electra.serving.http.hosted_model import HostedModel


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("served") / "my-run")


@pytest.fixture(scope="session")
def served(run_folder: Path) -> HostedModel:
    return HostedModel(str(run_folder), device="cpu")


@pytest.fixture(scope="module")
def client(served: HostedModel) -> Iterator[httpx.Client]:
    with serving(served) as (address, _), httpx.Client(base_url=address, timeout=20) as client:
        yield client
