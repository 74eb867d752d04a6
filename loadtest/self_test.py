"""`dragoman load self-test`: proves that the generator charges a stall of the server to every request it delays.

A signal stops a server that answers at once. The latencies are then known: requests that arrive during the stall wait
for its end, spread evenly from its whole length down to zero. A closed loop hides the stall because its users wait and
send fewer requests (coordinated omission).

Run as a program with a port, this module is that server. It parses only lengths, so that it answers the hundreds of
requests that queue during a stall within moments.
"""

import asyncio
import re
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from pydantic import Field, model_validator
from pydantic_core import to_json
from pydantic_settings import BaseSettings, SettingsConfigDict
from rich.console import Console

from dragoman.loadtest.measurement import stall
from dragoman.loadtest.reliability.replicas import START_SECONDS, start_replicas
from dragoman.loadtest.scenario import ConstantPhase, RequestKind, Scenario, read_sentences
from dragoman.loadtest.session import LiveView, LoadSession
from dragoman.loadtest.tables import milliseconds
from dragoman.serve.host.server_process import HOST

# Largest relative deviation of the measured percentile from the expected one.
TOLERANCE = 0.1
# Largest share of the expected latency that a closed loop may show; otherwise the comparison proves nothing.
SHOWN_BY_CLOSED_LOOP = 0.1
STALL_BEGINS_AT = 1 / 3
# After the stall all answers arrive at once.
PROCESSES, MAX_LAG_SECONDS = 2, 0.1


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """The p99 that both loops measured of a stall; `sent` and `unanswered` are of the open loop."""

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

    The expected p99 is the stall minus 1 % of the run. By default that is 2 s minus 1 % of 60 s: 1.4 s. The open loop
    must measure it within 10 %. A closed loop with one user, run for comparison, hardly shows the stall. The test takes
    twice the duration. The exit status is 1 if the generator is wrong.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_SELF_TEST_", frozen=True, extra="forbid")

    rate: float = Field(100.0, gt=0, description="Requests per second, at equal intervals.")
    duration_seconds: float = Field(60.0, gt=0, description="Length of each of the two runs.")
    stall_seconds: float = Field(2.0, gt=0, description="Length of the server's stall, a third into the run.")

    @model_validator(mode="after")
    def _check_stall(self) -> Self:
        hidden_seconds, rest_seconds = self.duration_seconds / 100, (1 - STALL_BEGINS_AT) * self.duration_seconds
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
            ("p99 expected", result.expected_seconds),
            ("p99 of the open loop", result.open_seconds),
            ("p99 of a CLOSED LOOP with one user", result.closed_seconds),
        ):
            print(f"{label}: {milliseconds(seconds)} ms")
        print(f"{result.sent} sent, {result.unanswered} unanswered; {result.void or 'the generator was on time'}")
        print(to_json({**asdict(result), "passed": result.passed}).decode())
        if not result.passed:
            raise SystemExit(1)

    async def run(self) -> SelfTestResult:
        """Measures a stall with both loops."""
        phase = ConstantPhase(rate=self.rate, duration_seconds=self.duration_seconds)
        kind = RequestKind(protocol="rest", timeout_seconds=10 * self.stall_seconds + 10)
        limits = {"warm_up_seconds": 0, "max_lag_seconds": MAX_LAG_SECONDS}
        scenario = Scenario(requests=(kind,), phases=(phase,), **limits)
        command = [sys.executable, "-m", "dragoman.loadtest.self_test"]
        found = []
        with (
            TemporaryDirectory(prefix="dragoman-") as folder,
            start_replicas(lambda ports: [*command, str(ports[0])], Path(folder), 1) as (server,),
            LiveView.open(Console(stderr=True)) as view,
        ):
            await asyncio.to_thread(server.wait_until_ready, START_SECONDS)
            for name, users in (("open loop", None), ("closed loop", 1)):
                async with LoadSession.open(
                    scenario, read_sentences(None), server.targets, view, processes=PROCESSES, cpus=(), users=users
                ) as session:
                    found.append(await asyncio.gather(self._stall(server.process_id), session.run(name)))
        (stalled_seconds, (opened,)), (_, (closed,)) = found
        open_seconds, closed_seconds = (
            0.0 if run.all.latency_seconds is None else run.all.latency_seconds.p99 for run in (opened, closed)
        )
        sent, expected_seconds = opened.all.sent, stalled_seconds - self.duration_seconds / 100
        unanswered = sent - opened.all.ok
        return SelfTestResult(
            stalled_seconds, expected_seconds, open_seconds, closed_seconds, sent, unanswered, opened.void
        )

    async def _stall(self, process_id: int) -> float:
        """Stalls the server a third into the run; returns the actual length of the stall."""
        await asyncio.sleep(STALL_BEGINS_AT * self.duration_seconds)
        begun_seconds = time.monotonic()
        await stall(process_id, self.stall_seconds)
        return time.monotonic() - begun_seconds


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


async def _serve(port: int) -> None:
    # Connections made during a stall wait in the kernel's queue. A full queue would delay them by a SYN retry of one
    # second.
    server = await asyncio.start_server(_answer, HOST, port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
