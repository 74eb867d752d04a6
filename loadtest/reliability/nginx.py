"""nginx in front of three replicas, as `deploy/nginx` has it, on ports and in a folder of our choice.

The file is used as it is, but for ports and folder; who watches the replicas for nginx runs beside it. Knows nothing of
replicas but where they are; called by `loadtest.reliability.replicas`.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from loadtest.clients import Targets
from loadtest.served_process import POLL_SECONDS, ServedProcessError
from serve.server_process import HOST, read_last_line

# Of REST and of gRPC: nginx's own, and those of each replica.
PORTS = (8000, 8001, 8010, 8011, 8020, 8021, 8030, 8031)
FOLDER = "/run/dragoman"
STANDARD_OUTPUT = "/dev/stdout"
START_SECONDS = 20.0
STOP_SECONDS = 20.0
_PORT = re.compile(r"\b80[0-3][01]\b")


@dataclass(frozen=True, slots=True)
class Nginx:
    """nginx that runs.

    Attributes:
        folder: in place of /run/dragoman.
        targets: where it is asked.
    """

    folder: Path
    targets: Targets

    @classmethod
    @contextmanager
    def run(cls, deployed: Path, folder: Path, ports: Sequence[int], watch_seconds: float) -> Iterator[Self]:
        """Runs nginx, and who watches the replicas, until the block ends.

        Args:
            deployed: the folder with `nginx.conf` and `watch_replicas.sh`.
            folder: for everything that they write.
            ports: in place of `PORTS`.
            watch_seconds: between two probes of a replica.

        Raises:
            ServedProcessError: if nginx is not installed, or does not start.
        """
        program = find_nginx()
        if program is None:
            raise ServedProcessError("nginx is not installed")
        (folder / "out").mkdir(parents=True)
        text = (deployed / "nginx.conf").read_text(encoding="utf-8")
        (folder / "nginx.conf").write_text(moved(text, ports, folder), encoding="utf-8")
        urls = [f"http://{HOST}:{port}" for port in ports[2::2]]
        watch = [str(deployed / "watch_replicas.sh"), str(folder / "out"), *urls]
        settings = {"WATCH_SECONDS": str(watch_seconds)}
        with (
            _running(nginx_command(program, folder), folder / "nginx.log", {}) as process,
            _running(watch, folder / "watch.log", settings),
        ):
            _wait_for_port(process, ports[0], folder / "nginx.log")
            yield cls(folder, Targets(f"{HOST}:{ports[1]}", f"http://{HOST}:{ports[0]}"))

    def leaves_out(self, number: int) -> bool:
        """Tells whether it asks a replica nothing, counted from 0."""
        return (self.folder / "out" / str(number + 1)).exists()


def find_nginx() -> str | None:
    """Returns where nginx is; None: it is not installed. Debian keeps it where only root looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def nginx_command(program: str, folder: Path) -> list[str]:
    """Returns the command line of nginx with the configuration in a folder."""
    # Else root's nginx would work as somebody who may not look into a folder of root's.
    user = " user root;" if os.geteuid() == 0 else ""
    return [program, "-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", f"daemon off;{user}"]


def moved(text: str, ports: Sequence[int], folder: Path) -> str:
    """Returns a configuration with other ports, in the order of `PORTS`, and another folder."""
    others = dict(zip(PORTS, ports, strict=True))
    text = _PORT.sub(lambda port: str(others[int(port[0])]), text)
    return text.replace(FOLDER, str(folder)).replace(STANDARD_OUTPUT, str(folder / "requests.log"))


@contextmanager
def _running(command: Sequence[str], log: Path, settings: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program and all that it starts."""
    with log.open("wb") as file:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **settings}
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(STOP_SECONDS)


def _wait_for_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline_seconds = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((HOST, port), timeout=START_SECONDS).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_seconds:
                raise ServedProcessError(f"nginx did not start: {read_last_line(log)}") from None
            time.sleep(POLL_SECONDS)
        else:
            return
