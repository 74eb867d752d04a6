"""`dragoman load self-test`: proves that the generator charges a stall of the server to every request it delays.

A signal stops a server that answers at once. The latencies are then known: requests that arrive during the stall wait
for its end, spread evenly from its whole length down to zero. A closed loop hides the stall because its users wait and
send fewer requests (coordinated omission).

Run as a program, this module is that server: it prints its port and serves until it is killed. It parses only lengths,
so that it answers the hundreds of requests that queue during a stall within moments.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Self

from pydantic import Field, model_validator
from pydantic_core import to_json
from pydantic_settings import BaseSettings, SettingsConfigDict

from dragoman.loadtest.clients import OK, Targets
from dragoman.loadtest.generator import Generators
from dragoman.loadtest.measurement import Run, measure, stall
from dragoman.loadtest.plan import draw_plan
from dragoman.loadtest.results import why_void
from dragoman.loadtest.samples import Samples, percentile
from dragoman.loadtest.scenario import ConstantPhase, RequestKind, Scenario, read_sentences
from dragoman.loadtest.tables import milliseconds
from dragoman.serve.host.server_process import HOST

# Largest relative deviation of the measured percentile from the expected one.
TOLERANCE = 0.1
# Largest share of the expected latency that a closed loop may show; otherwise the comparison proves nothing.
SHOWN_BY_CLOSED_LOOP = 0.1
STALL_BEGINS_AT = 1 / 3


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """What both loops measured of a stall of known length; `sent` and `unanswered` are of the open loop."""

    stall_seconds: float
    expected_seconds: float
    open_seconds: float
    closed_seconds: float
    sent: int
    unanswered: int
    void: str | None

    @property
    def passed(self) -> bool:
        """Whether the open loop measured the stall, and the closed loop did not."""
        return (
            self.void is None
            and self.unanswered == 0
            and abs(self.open_seconds - self.expected_seconds) <= TOLERANCE * self.expected_seconds
            and self.closed_seconds <= SHOWN_BY_CLOSED_LOOP * self.expected_seconds
        )


class SelfTestCommand(BaseSettings):
    """Prove the load generator on a server that stalls for a known time.

    The expected latency percentile is the stall minus the share of the run above the percentile. By default that is 2 s
    minus 1 % of 60 s: 1.4 s. The open loop must measure it within 10 %. A closed loop with one user, run for
    comparison, hardly shows the stall. The test takes twice the duration. The exit status is 1 if the generator is
    wrong.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_SELF_TEST_", frozen=True, extra="forbid")

    rate: float = Field(100.0, gt=0, description="Requests per second, at equal intervals.")
    duration_seconds: float = Field(60.0, gt=0, description="Length of each of the two runs.")
    stall_seconds: float = Field(2.0, gt=0, description="Length of the server's stall, a third into the run.")
    percentile: float = Field(99.0, gt=0, lt=100, description="Latency percentile to compare.")
    processes: int = Field(
        2, ge=1, description="Processes that generate load; after the stall all answers arrive at once."
    )
    max_lag_seconds: float = Field(
        0.1, gt=0, description="The test is void if the p99 of the generator's lag exceeds this."
    )

    @model_validator(mode="after")
    def _check_stall(self) -> Self:
        hidden_seconds = (1 - self.percentile / 100) * self.duration_seconds
        rest_seconds = (1 - STALL_BEGINS_AT) * self.duration_seconds
        if not hidden_seconds < self.stall_seconds < rest_seconds:
            raise ValueError(
                f"stall_seconds: expected more than {hidden_seconds:g}, the share of the run above the percentile, "
                f"and less than {rest_seconds:g}, the rest of the run, got {self.stall_seconds:g}"
            )
        return self

    def cli_cmd(self) -> None:
        """Runs the test and prints the result; exits with status 1 if the generator is wrong."""
        result = asyncio.run(self.run())
        for label, seconds in (
            ("stall of the server", result.stall_seconds),
            (f"p{self.percentile:g} expected", result.expected_seconds),
            (f"p{self.percentile:g} of the open loop", result.open_seconds),
            (f"p{self.percentile:g} of a CLOSED LOOP with one user", result.closed_seconds),
        ):
            print(f"{label}: {milliseconds(seconds)} ms")
        print(f"{result.sent} sent, {result.unanswered} unanswered; {result.void or 'the generator was on time'}")
        print(to_json({**asdict(result), "passed": result.passed}).decode())
        if not result.passed:
            raise SystemExit(1)

    async def run(self) -> SelfTestResult:
        """Measures a stall with both loops."""
        with _run_server() as (process, url):
            async with Generators.run(self.processes, Targets("", url), {"rest"}) as generators:
                stalled, samples = await self._run(generators, process, users=None)
                _, closed = await self._run(generators, process, users=1)
        return SelfTestResult(
            stalled,
            stalled - (100 - self.percentile) / 100 * self.duration_seconds,
            percentile(samples.latency, self.percentile) or 0.0,
            percentile(closed.latency, self.percentile) or 0.0,
            len(samples.begun),
            len(samples.begun) - samples.outcomes[OK],
            why_void(samples.lag, self.max_lag_seconds),
        )

    async def _run(self, generators: Generators, process: int, users: int | None) -> tuple[float, Samples]:
        """Returns the actual length of the stall, and the requests."""
        stalled_seconds = 0.0

        async def disturb(run: Run) -> None:
            nonlocal stalled_seconds
            await asyncio.sleep(STALL_BEGINS_AT * self.duration_seconds - run.now_seconds)
            begun_seconds = time.monotonic()
            await stall(process, self.stall_seconds)
            stalled_seconds = time.monotonic() - begun_seconds

        phase = ConstantPhase(rate=self.rate, duration_seconds=self.duration_seconds)
        kind = RequestKind(protocol="rest", timeout_seconds=10 * self.stall_seconds + 10)
        plan = draw_plan(Scenario(warm_up_seconds=0, requests=(kind,), phases=(phase,)), read_sentences(None), seed=1)
        run = await measure(generators, plan, users=users, disturb=disturb)
        return stalled_seconds, run.samples


@contextmanager
def _run_server() -> Iterator[tuple[int, str]]:
    """Runs the instant server until the block ends; yields its process id and base URL."""
    command = [sys.executable, "-m", "dragoman.loadtest.self_test"]
    # The server has a session of its own and gets no Ctrl-C: the command ends it.
    with subprocess.Popen(  # noqa: S603 - our own command line
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        if process.stdout is None:
            raise AssertionError("stdout is a pipe")
        try:
            yield process.pid, f"http://{HOST}:{int(process.stdout.readline())}"
        finally:
            process.kill()


_BODY = b'{"translations": [{}]}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request of a connection at once with one translation."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = _LENGTH.search(await reader.readuntil(b"\r\n\r\n"))
            await reader.readexactly(0 if length is None else int(length[1]))
            writer.write(_ANSWER)


async def _serve() -> None:
    # Connections made during a stall wait in the kernel's queue. A full queue would delay them by a SYN retry of one
    # second.
    server = await asyncio.start_server(_answer, HOST, 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
