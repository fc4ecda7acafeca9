"""A run that is loaded once, and a server of it."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from small_server import serving, write_run
from waiting import LIMIT

from electra.serving.http.hosted_model import HostedModel


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("hosted") / "my-run")


@pytest.fixture(scope="session")
def hosted(run_folder: Path) -> HostedModel:
    return HostedModel(str(run_folder), device="cpu")


@pytest.fixture(scope="module")
def client(hosted: HostedModel) -> Iterator[httpx.Client]:
    with serving(hosted) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        yield client
