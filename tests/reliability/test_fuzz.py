"""Damaged requests over REST, documents and glossaries, with a well-behaved client next to them."""

from pathlib import Path

from tests.support.attacks.fuzz_service import fuzz
from tests.support.processes import fake_command

SECONDS, THOROUGH_SECONDS = 4.0, 600.0
SEED = 7


def test_damaged_requests_cause_no_error_of_the_server(bundle_path: Path, tmp_path: Path, *, thorough: bool) -> None:
    found = fuzz(fake_command(bundle_path), tmp_path, THOROUGH_SECONDS if thorough else SECONDS, SEED)
    assert found.answers["probe rest: ok"] > 0
    assert found.answers["probe grpc: ok"] > 0
    assert not found.problems
