"""Damaged requests over REST, documents and glossaries, with well-behaved clients next to them."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx

from tests.support.attacks.fuzz_service import fuzz
from tests.support.floods import Served, Traffic, serve_under_attack
from tests.support.fuzzing import Fuzzed
from tests.support.live import WAIT_SECONDS
from tests.support.processes import fake_command

SECONDS, THOROUGH_SECONDS = 2.0, 600.0
SEED = 7


async def attack(served: Served, seconds: float) -> tuple[Counter[str], Traffic]:
    return await asyncio.gather(fuzz(served.targets.rest, seconds, SEED), served.ask(seconds))


def test_damaged_requests_cause_no_error_of_the_server(bundle_path: Path, tmp_path: Path, *, thorough: bool) -> None:
    command = fake_command(bundle_path, "open", "--state-dir", str(tmp_path / "state"))
    with (
        serve_under_attack(command, tmp_path) as served,
        httpx.Client(base_url=served.targets.rest, timeout=WAIT_SECONDS, trust_env=False) as probe,
    ):
        problems, traffic = asyncio.run(attack(served, THOROUGH_SECONDS if thorough else SECONDS))
        Fuzzed(served, probe).check()
    assert not problems
    assert traffic.latencies
    # Damaged requests that are valid may fill the queue.
    assert all(error.endswith(("queue_full", "RESOURCE_EXHAUSTED")) for error in traffic.errors)
