"""Measures how a version of the server stands attacks that once shut it: `python -m tests.support.attacks.findings`.

The attacks come from this tree. `--tree` names the tree of the server, so that versions can be compared. `--only`
chooses findings by their numbers.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from dragoman.serve.host.server_process import HOST, reserve_ports
from tests.support.attacks.load_findings import ENDLESS, MANIFESTS, import_findings, reload_findings
from tests.support.floods import MEBIBYTE, run_flood, serve_under_attack
from tests.support.live import NO_TLS

# Number of the finding, title, family, and hard limit of descriptors.
FLOODS = (
    ("H1", "bodies that never come", "missing bodies", None),
    ("H2", "answers that are not read", "unread answers", None),
    ("H3", "half headers, 256 descriptors", "half headers", 256),
    ("H4", "gRPC streams left open", "streams left", None),
    ("H4", "gRPC streams reset at once", "streams reset", None),
    ("M1", "texts that grow when normalized", "long characters", None),
    ("M1", "texts with many sentences", "many sentences", None),
    ("M1", "nested JSON", "nested JSON", None),
)
NUMBERS = ("H1", "H2", "H3", "H4", "H5", "M1", "M2", "M3", "M4", "M5")
READY_SECONDS = 60.0
ANSWER_SECONDS = 5.0
# The server looks at its files that often, at least.
WATCHED_SECONDS = 5.0
MAX_REQUESTS = 2_000
SLOW = {"text": "A dog runs. " * 100}


class Server:
    """A server whose log goes to a pipe, and its REST clients."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self._url = url

    def status(self, path: str = "/v1/translate", *, key: str = "k1", json: object = None) -> int | str:
        """Returns the status of a request, or the name of the error if it has no answer."""
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=self._url, timeout=ANSWER_SECONDS, trust_env=False, verify=NO_TLS) as client:
            try:
                if json is None:
                    return client.get(path, headers=headers).status_code
                return client.post(path, json=json, headers=headers).status_code
            except httpx.HTTPError as error:
                return type(error).__name__

    def wait_ready(self) -> None:
        """Waits until the server is ready."""
        end_seconds = time.monotonic() + READY_SECONDS
        while self.status("/readyz") != httpx.codes.OK:
            if time.monotonic() > end_seconds or self.process.poll() is not None:
                raise TimeoutError("the server is not ready")
            time.sleep(0.1)


@contextmanager
def serve_to_pipe(program: Sequence[str], tree: Path, keys: Path) -> Iterator[Server]:
    """Runs a server that writes its log to a pipe, which no process reads."""
    keys.write_text("k1\n", encoding="ascii")
    with reserve_ports(0, 0) as (http_port, grpc_port):
        ports = [f"--http-port={http_port}", f"--grpc-port={grpc_port}", f"--api-keys-file={keys}"]
        process = subprocess.Popen(
            [*program, *ports], stderr=subprocess.PIPE, env=environment(tree), start_new_session=True
        )
        try:
            server = Server(process, f"http://{HOST}:{http_port}")
            server.wait_ready()
            yield server
        finally:
            process.kill()
            process.wait()


def environment(tree: Path) -> dict[str, str]:
    """Returns the environment of a server of another tree."""
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}


def broken_log(program: Sequence[str], tree: Path, keys: Path) -> Iterator[str]:
    """Yields how a server behaves after the reader of its log has gone."""
    with serve_to_pipe(program, tree, keys) as server:
        if server.process.stderr is not None:
            server.process.stderr.close()
        yield f"right key {server.status(json={'text': 'A dog.'})}"
        yield f"wrong key {server.status(json={'text': 'A dog.'}, key='k0')}, bad request {server.status(json={})}"
        for key in ("k2", "k3"):
            keys.write_text(f"{key}\n", encoding="ascii")
            time.sleep(WATCHED_SECONDS)
            found = {each: server.status(json={"text": "A dog."}, key=each) for each in ("k1", "k2", "k3")}
            yield f"only {key} valid: {', '.join(f'{each} {status}' for each, status in found.items())}"
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(server.status, json=SLOW, key="k3")
            time.sleep(0.05)
            server.process.send_signal(signal.SIGTERM)
            yield f"SIGTERM: request in flight {answer.result()}, exit status {server.process.wait(READY_SECONDS)}"


def full_pipe(program: Sequence[str], tree: Path, keys: Path) -> Iterator[str]:
    """Yields how many requests a server answers while no process reads its log."""
    with serve_to_pipe(program, tree, keys) as server:
        answered = 0
        while answered < MAX_REQUESTS and server.status(json={"text": "A dog."}) == httpx.codes.OK:
            answered += 1
        yield f"{answered:,} of {MAX_REQUESTS:,} requests answered, then /healthz {server.status('/healthz')}"


def flood_rows(program: Sequence[str], tree: Path, seconds: float, only: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Yields a row of the table for each flood, each with a server of its own."""
    for number, title, name, descriptors in FLOODS:
        if number not in only:
            continue
        with TemporaryDirectory() as folder:
            path = Path(folder)
            with serve_under_attack(program, path, descriptors=descriptors, environment=environment(tree)) as served:
                alone = asyncio.run(served.ask(seconds))
                found = asyncio.run(run_flood(served, name, seconds))
        traffic, before, after = found.traffic, found.before, found.after
        yield {
            "finding": f"{number}: {title}",
            "requests / errors": f"{traffic.requests:,} / {traffic.errors.total():,}",
            "median alone / under attack, ms": f"{alone.percentile_ms(50):.1f} / {traffic.percentile_ms(50):.1f}",
            "p99 alone / under attack, ms": f"{alone.percentile_ms(99):.1f} / {traffic.percentile_ms(99):.1f}",
            "memory before / after, MiB": f"{before.memory_bytes / MEBIBYTE:.0f} / {after.memory_bytes / MEBIBYTE:.0f}",
            "descriptors before / after": f"{before.descriptors} / {after.descriptors}",
            "log, kB": f"{found.log_bytes / 1000:,.0f}",
        }


def main() -> None:
    """Prints a table of floods, and a list of the other findings."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--tree", type=Path, default=Path.cwd(), help="tree of the server (default: this one)")
    parser.add_argument("--bundle", type=Path, required=True, help="bundle to serve")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each flood")
    parser.add_argument("--only", nargs="+", choices=NUMBERS, default=NUMBERS, help="findings (default: all)")
    given = parser.parse_args()
    program = [sys.executable, "-m", "dragoman", "serve", str(given.bundle.resolve())]
    program += ["--host", HOST, "--lame-duck-seconds", "0"]
    for number, cells in enumerate(flood_rows(program, given.tree, given.seconds, given.only)):
        if not number:
            print(f"| {' | '.join(cells)} |\n|{' --- |' * len(cells)}")
        print(f"| {' | '.join(cells.values())} |", flush=True)
    other = environment(given.tree)
    with TemporaryDirectory() as folder:
        keys = Path(folder) / "keys"
        facts = {
            "H5: reader of the log gone": partial(broken_log, program, given.tree, keys),
            "M2: log pipe full": partial(full_pipe, program, given.tree, keys),
            "M3: reload without end": partial(reload_findings, given.bundle, other, ENDLESS),
            "M4: hostile manifests": partial(reload_findings, given.bundle, other, MANIFESTS),
            "M5: import": partial(import_findings, other),
        }
        for title, find in facts.items():
            if title[:2] in given.only:
                print(f"- {title}: {'; '.join(find())}", flush=True)


if __name__ == "__main__":
    main()
