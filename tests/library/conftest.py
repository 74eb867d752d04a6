"""An open translator with a real bundle, and programs of users."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

import dragoman
from tests.support.paths import ROOT

BUNDLE = ROOT / "bundles" / "multi30k-en-de"
# Distinct sentences; more than the chunks in flight hold.
TEXTS = [f"{number} {thing}." for number in range(2, 92) for thing in ("men sleep", "dogs run", "girls are singing")]


@pytest.fixture(scope="session")
def translator() -> Iterator[dragoman.Translator]:
    with dragoman.Translator(BUNDLE) as opened:
        yield opened


def run_program(program: str, **environment: str) -> str:
    """Runs a program of a user; returns its standard output, and expects nothing on standard error."""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
