"""Asks a server of this machine whether it is live, for the health check of a container: `python -m serve.health`.

It asks every TCP port on which process 1 listens. So it needs neither flags nor environment nor file of the server. The
certificate is not verified, because the request goes to this machine.
"""

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


def listening_ports(process: Path) -> Iterator[int]:
    """Yields the TCP ports on which a process listens; `process` is its folder in /proc."""
    sockets = set()
    for descriptor in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if found := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                sockets.add(found[1])
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING and fields[9] in sockets:
                yield int(fields[1].rpartition(":")[2], 16)


def is_live(port: int) -> bool:
    """Returns whether the server at a port of this machine answers /healthz, over HTTP or HTTPS."""
    # The server may require a client certificate for everything but its probes.
    trusting = ssl._create_unverified_context()  # noqa: S323, SLF001 - see the docstring of the module
    for connection in (
        HTTPConnection("127.0.0.1", port, timeout=SECONDS),
        HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=trusting),
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


if __name__ == "__main__":
    live = any(is_live(port) for port in listening_ports(Path("/proc/1")))
    sys.exit(0 if live else "no port of process 1 answers /healthz")
