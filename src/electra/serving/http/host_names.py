"""Which names in the Host header of a request a server answers to.

A page of a foreign site whose name is made to point to this machine (DNS rebinding) can read what the server
answers, because for the browser both are the same site. Its requests have the foreign name as their host.
"""

import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
"""A host name as browsers send it, without a port."""


@dataclass(frozen=True)
class HostNames:
    """The names of a server.

    Attributes:
        bound: the address that it listens on, as in `--host`.
        others: further names, as in `--allowed-host`; *: any name.
    """

    bound: str = "127.0.0.1"
    others: Collection[str] = ()

    def include(self, header: bytes | None) -> bool:
        """Whether a request with this Host header is for the server.

        It is if the name is one of the loopback interface, the bound address, or one of the others. If the server
        listens on all addresses of the machine, every numeric address is its own: browsers send one only if it is
        in the address bar. A request without the header is not from a browser.
        """
        if header is None or "*" in self.others:
            return True
        name = _without_port(header.decode("latin-1")).lower().rstrip(".")
        if name in {self.bound.lower(), "localhost", *map(str.lower, self.others)} or name.endswith(".localhost"):
            return True
        address = _address(name)
        if address is None:
            return False
        bound = _address(self.bound)
        return address.is_loopback or address == bound or (bound is not None and bound.is_unspecified)


def _without_port(host: str) -> str:
    """The name or the address of `name:port` or `[address]:port`."""
    host = host.strip()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
