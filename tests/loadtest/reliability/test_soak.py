"""A short soak: every disturbance happens at least once, and the counts of clients and server match."""

import asyncio
from pathlib import Path

import pytest

from loadtest.reliability.soak import (
    ADMIN_KEY,
    LASTING_SECONDS,
    MOST_GROWTH_BYTES,
    Soak,
    SoakKind,
    SoakResult,
    format_soak,
    growth,
    soak_kinds,
)
from loadtest.scenario import RequestKind
from loadtest.served_process import ServedProcess
from model.tokenizer.tokenizer import Tokenizer
from serve.server_process import choose_ports
from tests.support import served_fakes
from tests.support.live import direction, put_bundle

SENTENCES = ("alpha beta.", "one two three.")


def test_four_fifths_of_the_mix_are_valid() -> None:
    kinds = soak_kinds("", "")
    assert sum(kind.requests.weight for kind in kinds) == 100
    names = ("greedy", "beam")
    assert sum(kind.requests.weight for kind in kinds if kind.requests.name.startswith(names)) == 80


def soak(folder: Path, bundle: Path, kinds: list[SoakKind], seconds: float) -> SoakResult:
    ports = choose_ports(0, 0)
    command = served_fakes.command(bundle.parent, ports)

    async def run(served: ServedProcess) -> SoakResult:
        await served.wait_ready()
        result = await Soak(served, bundle, kinds, SENTENCES, seed=1).run(60.0, seconds, 0.7, lambda _run: None)
        await served.stop()
        return result

    with ServedProcess.run(command, ports, folder / "server.log", {"DRAGOMAN_ADMIN_KEY": ADMIN_KEY}) as served:
        return asyncio.run(run(served))


@pytest.fixture(name="bundle")
def _bundle(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    return put_bundle(tmp_path / "models" / "soaked", tokenizer, direction("en-de"))


def test_the_counts_of_clients_and_server_match(bundle: Path, tmp_path: Path) -> None:
    result = soak(tmp_path, bundle, soak_kinds("", ""), 2.5)
    assert result.problems == []
    assert result.reloads > 0
    assert result.killed_clients > 0
    assert all(result.outcomes.values()), "every kind was sent"
    assert "WRONG: " not in format_soak(result)
    assert all(result.resident_bytes)


def test_memory_may_grow_only_in_the_first_half() -> None:
    half_bytes = 10 * MOST_GROWTH_BYTES
    assert list(growth((0, half_bytes, half_bytes + MOST_GROWTH_BYTES), LASTING_SECONDS)) == []
    grown = (half_bytes, half_bytes, half_bytes + 2 * MOST_GROWTH_BYTES)
    (problem,) = growth(grown, LASTING_SECONDS)
    assert problem.startswith("memory: ")
    assert list(growth(grown, LASTING_SECONDS - 1)) == []


def test_an_outcome_that_a_kind_does_not_explain_is_reported(bundle: Path, tmp_path: Path) -> None:
    """Blank texts are rejected although answers are expected."""
    kind = SoakKind(RequestKind(name="blank", text=" "), frozenset({"ok"}))
    result = soak(tmp_path, bundle, [kind], 0.5)
    assert len(result.problems) == 1
    assert "x INVALID_ARGUMENT: " in result.problems[0]
