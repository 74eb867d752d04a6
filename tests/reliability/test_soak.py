"""R30, R33, R35: a server under mixed load, whose clients are killed and whose model is replaced."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman import command_line
from dragoman.loadtest.reliability.replicas import Replicas
from dragoman.loadtest.reliability.soak import MAX_GROWTH_MEBIBYTES, MIX, MORE, growth_per_hour, leaks, mismatches
from dragoman.loadtest.server_metrics import ServerState
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support import served_fakes
from tests.support.cases import cases
from tests.support.fake_bundles import direction, put_bundle
from tests.support.promises import Measured

CASES = cases(__file__)

pytestmark = pytest.mark.usefixtures("forked_servers")

SOAK = "dragoman.loadtest.reliability.soak"
# Limit of R30 for a long run.
LONG_SECONDS, GROWTH_MEBIBYTES_PER_HOUR = 1800.0, 1.0


@pytest.fixture
def command(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments that soak a server with fake models."""
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("alpha beta.\none two three.\n", encoding="utf-8")
    monkeypatch.setattr(f"{SOAK}.server_command", lambda models, *ports: served_fakes.command(models, ports))
    return [str(put_bundle(tmp_path / "bundle", tokenizer, direction("en-de"))), f"--sentences={sentences}"]


def soak(command: list[str], capsys: pytest.CaptureFixture[str], seconds: float) -> tuple[dict[str, Any], object]:
    """Returns the findings of a soak and the exit status of the command."""
    times = [f"--duration-seconds={seconds}", f"--every-seconds={max(0.7, seconds / 1000)}"]
    try:
        # With this seed, two seconds of load have requests of every kind.
        command_line.run("load soak", [*command, "--rate=120", "--seed=4", *times])
        status = None
    except SystemExit as ended:
        status = ended.code
    (found,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rounds"]
    return found, status


@pytest.mark.promise("R35")
@pytest.mark.promise("R33")
@pytest.mark.promise("R30")
def test_a_server_withstands_mixed_load(
    command: list[str], capsys: pytest.CaptureFixture[str], measured: Measured, soak_seconds: float
) -> None:
    found, status = soak(command, capsys, soak_seconds)
    assert (found["problems"], status) == ([], None)
    figures, sent = found["figures"], Counter[str]()
    for kind, outcomes in found["outcomes"].items():
        assert outcomes, f"{kind}: none was sent"
        sent[kind.partition(",")[0]] += sum(outcomes.values())
    assert figures["reloads"] > 0
    assert figures["killed_clients"] > 0
    growth = figures.get("growth_mebibytes_per_hour")
    if soak_seconds >= LONG_SECONDS:
        assert growth <= GROWTH_MEBIBYTES_PER_HOUR
    counts = ", ".join(f"{count:,} {kind}" for kind, count in sent.items())
    mishaps = f"{figures['killed_clients']} killed clients, {figures['reloads']} reloads"
    measured("R35", f"{soak_seconds:.0f} s: {counts}, {mishaps}; unexpected: 0")
    measured("R33", f"{sent.total():,} requests, counted by clients and server alike")
    memory = f"memory {figures['memory_mebibytes_before']} to {figures['memory_mebibytes']} MiB"
    grown = "" if growth is None else f", growth {growth:+.1f} MiB per hour in the second half"
    files, threads = (f"{figures[name] - figures[f'{name}_before']:+}" for name in ("open_files", "threads"))
    measured("R30", f"{soak_seconds:.0f} s: {memory}{grown}; open files {files}, threads {threads}")


def test_an_outcome_that_a_kind_does_not_explain_is_a_problem(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blank texts are rejected although answers are expected."""
    monkeypatch.setattr(f"{SOAK}.MIX", [("blank", {"grpc": 1}, {"text": " "}, frozenset({"ok"}))])
    found, status = soak(command, capsys, 0.5)
    assert status == 1
    assert ["INVALID_ARGUMENT" in problem for problem in found["problems"]] == [True]


def test_counts_that_cannot_be_reconciled_are_a_problem(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is not idle in time before the load, so there are no first counts."""
    idle, readings = Replicas.idle, itertools.count()

    async def late(replicas: Replicas) -> list[ServerState | None]:
        return await idle(replicas) if next(readings) else [None]

    monkeypatch.setattr(Replicas, "idle", late)
    found, status = soak(command, capsys, 0.5)
    assert status == 1
    assert ["metrics" in problem for problem in found["problems"]] == [True]


def test_four_fifths_of_the_mix_are_valid() -> None:
    weights = {name: sum(weights.values()) for name, weights, *_ in MIX}
    assert (sum(weights.values()), weights["greedy"] + weights["beam 4"]) == (100, 80)


@pytest.mark.parametrize("name", ["open_files", "threads", "growth_mebibytes_per_hour"])
def test_a_leak_is_a_problem(name: str) -> None:
    limits = {"open_files": MORE, "threads": MORE, "growth_mebibytes_per_hour": 2 * MAX_GROWTH_MEBIBYTES}
    figures = dict.fromkeys(("open_files_before", "threads_before"), 0.0) | limits
    assert list(leaks(figures, 3600.0)) == []
    assert len(list(leaks(figures | {name: limits[name] + 1}, 3600.0))) == 1


def test_the_growth_of_memory_is_measured_despite_noise() -> None:
    noise = np.random.default_rng(1).normal(scale=2.0, size=1800)
    steady = [(float(second), 200.0 + value) for second, value in enumerate(noise)]
    assert abs(growth_per_hour(steady)) < GROWTH_MEBIBYTES_PER_HOUR
    assert growth_per_hour([(second, value + second / 400) for second, value in steady]) > GROWTH_MEBIBYTES_PER_HOUR


SEEN: dict[str, dict[str, int]] = CASES["counts of the client"]
COUNTED: dict[str, int] = CASES["counts of the server"]


def test_equal_counts_match_and_unknown_outcomes_are_tolerated() -> None:
    """Of the four requests with an unknown outcome, the server answered one, dropped two and never received one."""
    assert list(mismatches(SEEN, COUNTED, {})) == []


@pytest.mark.parametrize(("method", "outcome", "count"), CASES["a different count is reported"])
def test_a_different_count_is_reported(method: str, outcome: str, count: int) -> None:
    (found,) = mismatches(SEEN, {**COUNTED, f"{method} {outcome}": count}, {})
    assert found.startswith(f"{method}: {'server' if outcome == 'cancelled' else outcome}: ")


def test_requests_of_killed_clients_are_tolerated_up_to_their_number() -> None:
    counted = {**COUNTED, "rest translate_stream cancelled": 4}
    assert list(mismatches(SEEN, counted, {"rest-stream": 4})) == []
    assert len(list(mismatches(SEEN, counted, {"rest-stream": 3}))) == 1
