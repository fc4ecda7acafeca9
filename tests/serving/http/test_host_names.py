"""The names that a server answers to."""

import httpx
import pytest
from small_server import serving
from waiting import LIMIT

from electra.serving.http.host_names import HostNames
from electra.serving.http.hosted_model import HostedModel

LOOPBACK = ["localhost", "LOCALHOST:8000", "my.localhost", "127.0.0.1:80", "127.0.0.2", "[::1]:8000", "localhost."]
FOREIGN = [
    "evil.example",
    "localhost.evil.example:8000",
    "8.8.8.8",
    "[2001:db8::1]:80",
    "",
    "127.0.0.1.evil.example",
]


@pytest.mark.parametrize("bound", ["127.0.0.1", "::1", "localhost"])
def test_a_server_of_this_machine_answers_to_loopback_names_only(bound: str) -> None:
    names = HostNames(bound)
    assert all(names.include(host.encode()) for host in LOOPBACK)
    assert not any(names.include(host.encode()) for host in FOREIGN)


def test_the_bound_address_and_further_names() -> None:
    names = HostNames("192.168.0.5", ["Models.example.org"])
    assert all(names.include(host) for host in (b"192.168.0.5:8000", b"models.example.org", b"localhost"))
    assert not names.include(b"192.168.0.6") and not names.include(b"example.org")
    assert HostNames("my-machine").include(b"my-machine:8000")
    assert HostNames(others=["*"]).include(b"evil.example")


@pytest.mark.parametrize("bound", ["0.0.0.0", "::"])
def test_all_addresses_of_the_machine_but_no_other_names(bound: str) -> None:
    names = HostNames(bound)
    assert names.include(b"10.1.2.3:8000") and names.include(b"[2001:db8::1]:80")
    assert not names.include(b"evil.example") and not names.include(b"\xff")


def test_a_request_without_the_header_is_not_from_a_browser() -> None:
    assert HostNames().include(None)


def test_other_names_get_421(hosted: HostedModel) -> None:
    with serving(hosted) as (address, _), httpx.Client(base_url=address, timeout=LIMIT) as client:
        for path in ("/", "/health", "/models"):
            assert client.get(path, headers={"Host": "localhost"}).status_code == 200
            refused = client.get(path, headers={"Host": "evil.example"})
            assert refused.status_code == 421
        assert refused.json()["error"].startswith(
            "this server does not answer to the name 'evil.example'; to allow it: electra serve MODEL "
            "--allowed-host NAME"
        )
        sent = client.post("/score", json={"texts": ["a"]}, headers={"Host": "evil.example:8000"})
        assert sent.status_code == 421
    with serving(hosted, names=HostNames(others=["evil.example"])) as (address, _):
        assert httpx.get(f"{address}/health", headers={"Host": "evil.example"}, timeout=LIMIT).status_code == 200
