"""A PostgreSQL server of its own for tests, from Debian's package."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine

# The server refuses to run as root.
UNPRIVILEGED = "nobody"
BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
START_SECONDS = 60.0
# Files of tests need not survive a loss of power.
QUICK = "-c fsync=off -c full_page_writes=off -c synchronous_commit=off -c max_connections=200"


@contextmanager
def run_postgresql() -> Iterator[str]:
    """Yields the address of a new server; skips the test if none is installed."""
    if not BINARIES:
        pytest.skip("needs PostgreSQL: tests/install_postgresql.sh")
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    try:
        initialize = [str(BINARIES[-1] / "initdb"), *["--username=dragoman", "--auth=trust", "--no-sync"]]
        initialize.append(str(folder / "data"))
        subprocess.run(initialize, check=True, user=user, stdout=subprocess.DEVNULL, cwd=folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [str(BINARIES[-1] / "postgres"), "-D", str(folder / "data"), "-k", str(folder)]
        command += ["-h", "127.0.0.1", "-p", str(port)]
        with (folder.parent / f"{folder.name}.log").open("w") as log:
            server = subprocess.Popen([*command, *QUICK.split()], user=user, stderr=log, cwd=folder)
            try:
                _wait_ready(server, port)
                yield f"postgresql://dragoman:secret@127.0.0.1:{port}/postgres"
            finally:
                server.terminate()
                server.wait()
    finally:
        shutil.rmtree(folder)
        (folder.parent / f"{folder.name}.log").unlink(missing_ok=True)


def new_database(url: str, name: str) -> str:
    """Creates a database on a server, and returns its address."""
    engine = create_engine(url.replace("postgresql:", "postgresql+pg8000:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return f"{url.rpartition('/')[0]}/{name}"


def _wait_ready(server: subprocess.Popen[bytes], port: int) -> None:
    deadline_seconds = time.monotonic() + START_SECONDS
    ready = [str(BINARIES[-1] / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-U", "dragoman", "-d", "postgres"]
    while subprocess.run(ready, stdout=subprocess.DEVNULL, check=False).returncode:
        assert server.poll() is None
        assert time.monotonic() < deadline_seconds
        time.sleep(0.05)
