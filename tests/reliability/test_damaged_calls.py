"""R31: gRPC calls with damaged fields, HPACK blocks and frames, over servers of their own."""

import asyncio
from pathlib import Path

import pytest

from tests.support.attacks.fuzz import OK, Fuzzing
from tests.support.floods import serve_under_attack
from tests.support.processes import fake_command
from tests.support.promises import Measured

pytestmark = pytest.mark.usefixtures("forked_servers")

SHORT_RUNS, LONG_RUNS = 2, 200
CONVERSATIONS = 100
# gRPC ends a call with this status, UNKNOWN, if its handler raised.
RAISED = "grpc-status 2"


@pytest.mark.promise("R31")
def test_damaged_calls_harm_nobody(bundle_path: Path, tmp_path: Path, measured: Measured, *, thorough: bool) -> None:
    fuzzing = Fuzzing()
    for seed in range(LONG_RUNS if thorough else SHORT_RUNS):
        with serve_under_attack(fake_command(bundle_path), tmp_path) as served:
            asyncio.run(fuzzing.run(served, seed, CONVERSATIONS))
    measured("R31", f"{fuzzing.conversations:,} damaged conversations, {fuzzing.statuses.total():,} health checks")
    print(fuzzing.report())
    assert not fuzzing.crashes
    assert RAISED not in fuzzing.answers
    assert set(fuzzing.statuses) == {OK}
