"""Asks a server of this container whether it is live: `python -m dragoman.serve.commands.health`.

It asks every TCP address on which a process of the container listens. So it needs neither flags nor environment nor
file of the server, and process 1 may be another program. The certificate is not verified, because the request does not
leave the container.
"""

import ipaddress
import re
import ssl
import sys
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

SECONDS = 2.0
# State of a listening socket in /proc/net/tcp (Linux, include/net/tcp_states.h).
LISTENING = "0A"


def listening_addresses(process: Path) -> Iterator[tuple[str, int]]:
    """Yields the TCP addresses and ports on which a process listens; `process` is its folder in /proc."""
    sockets = set()
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                sockets.add(match[1])
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in sockets:
                address, _, port = fields[1].partition(":")
                yield _read_address(address), int(port, 16)


def _read_address(digits: str) -> str:
    """Returns where clients reach a listening address of /proc/net/tcp."""
    # Each group of 32 bits has the byte order of the machine.
    groups = (int(digits[start : start + 8], 16) for start in range(0, len(digits), 8))
    address = ipaddress.ip_address(b"".join(group.to_bytes(4, sys.byteorder) for group in groups))
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return "127.0.0.1" if address.is_unspecified else str(address)


def is_live(address: str, port: int) -> bool:
    """Returns whether the server at an address answers /healthz, over HTTP or HTTPS."""
    # The server may require a client certificate for everything but its probes.
    trusting = ssl._create_unverified_context()  # noqa: S323, SLF001 - see the docstring of the module
    for connection in (
        HTTPConnection(address, port, timeout=SECONDS),
        HTTPSConnection(address, port, timeout=SECONDS, context=trusting),
    ):
        try:
            connection.request("GET", "/healthz")
            if connection.getresponse().status == HTTPStatus.OK:
                return True
        except (HTTPException, OSError):
            pass  # gRPC, or the other scheme
        finally:
            connection.close()
    return False


def has_live_server(processes: Path) -> bool:
    """Returns whether one of the processes is a live server; `processes` is a folder such as /proc."""
    addresses = set[tuple[str, int]]()
    for process in processes.glob("[0-9]*"):
        with suppress(OSError):  # of another user, or ended meanwhile
            addresses.update(listening_addresses(process))
    return any(is_live(address, port) for address, port in sorted(addresses))


if __name__ == "__main__":
    sys.exit(0 if has_live_server(Path("/proc")) else "no port of this container answers /healthz")
