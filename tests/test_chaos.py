"""Chaos in short: a server with fake models is killed, a client is killed, and no request goes uncounted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.load.chaos import LOST_CONNECTION, MISHAPS, PROTOCOLS, ChaosRound, Mishap, run_round
from loadtest.load.chaos_command import format_round
from loadtest.load.client import OK
from loadtest.load.scenario import RequestKind
from loadtest.load.served_process import ServedProcess, ServedProcessError
from serve.server_process import choose_ports
from tests import served_fakes

KINDS = [RequestKind(name=protocol, protocol=protocol, timeout_seconds=5) for protocol in PROTOCOLS]


@pytest.fixture(scope="module", name="served")
def _served(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    ports = choose_ports(0, 0)
    log = tmp_path_factory.mktemp("chaos") / "server.log"
    with ServedProcess.run(served_fakes.command(bundle_path, ports), ports, log) as served:
        asyncio.run(served.wait_ready())
        yield served


def run(served: ServedProcess, mishap: Mishap[ServedProcess], seconds: float) -> ChaosRound:
    main = run_round(served, mishap, KINDS, ["alpha beta.", "one two three."], rate=40.0, seconds=seconds, seed=1)
    return asyncio.run(main)


def mishap(name: str) -> Mishap[ServedProcess]:
    return next(each for each in MISHAPS if each.name == name)


def test_a_killed_client_takes_its_own_requests_along_and_no_others(served: ServedProcess) -> None:
    found = run(served, mishap("client killed"), 4.0)
    assert found.problems == []
    assert 0 < found.lost < found.sent
    assert found.outcomes == {OK: found.sent - found.lost}


def test_a_server_that_was_killed_is_missed_and_found_again(served: ServedProcess) -> None:
    """Its clients are told so by errors; all of them have an answer once it is back."""
    found = run(served, mishap("server killed"), 2.5)
    assert found.problems == []
    assert found.lost == 0
    assert sum(found.outcomes.values()) == found.sent
    assert LOST_CONNECTION & set(found.outcomes)
    assert found.asked_afterwards > 0


def test_what_should_not_be_is_told(served: ServedProcess) -> None:
    """A server that is killed when nothing was to happen."""

    async def kill(server: ServedProcess, _generators: object) -> None:
        await mishap("server killed").happen(server, _generators)  # type: ignore[arg-type]

    found = run(served, Mishap("nothing", kill, frozenset({OK})), 1.0)
    assert any("not to be expected" in problem for problem in found.problems)
    assert "WRONG: " in format_round(found)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    ports = choose_ports(0, 0)
    command = served_fakes.command(tmp_path / "nowhere", ports)
    with (
        ServedProcess.run(command, ports, tmp_path / "server.log") as served,
        pytest.raises(ServedProcessError, match=r"ended with status 1: .*nowhere"),
    ):
        asyncio.run(served.wait_ready())
