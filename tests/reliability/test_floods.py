"""R38: floods of hostile traffic, with eight well-behaved clients next to them."""

import asyncio
from pathlib import Path

import pytest

from tests.support.attacks.families import FAMILIES
from tests.support.floods import Transport, run_flood, serve_under_attack
from tests.support.processes import fake_command
from tests.support.promises import AddRow

# Fewer than the attackers have connections. Not over gRPC, which cannot limit connections per address.
DESCRIPTORS = 300
QUICK = ("missing bodies", "streams reset", "glossary bombs")
# The comparison at equal CPU load ends after that time.
LOADED_SECONDS = 20.0
HANDSHAKES = [name for name, family in FAMILIES.items() if not family.handshake]
# A family, its transport, and a limit of descriptors.
Flood = tuple[str, Transport, int | None]
ENCRYPTED: list[Flood] = [
    *((name, "tls", None) for name in (*HANDSHAKES, "opened and closed", "half headers", "unread answers")),
    *((name, "mutual", None) for name in ("missing bodies", "streams left", "closed windows")),
]
SCARCE: list[Flood] = [(name, "plain", DESCRIPTORS) for name in ("idle", "half headers", "missing bodies")]
PLAIN: list[Flood] = [(name, "plain", None) for name in FAMILIES]


@pytest.mark.promise("R38")
@pytest.mark.parametrize("flood", [*PLAIN, *SCARCE, *ENCRYPTED], ids=lambda flood: "-".join(map(str, flood)))
def test_a_flood_harms_nobody(
    bundle_path: Path, tmp_path: Path, add_row: AddRow, flood_seconds: float, *, thorough: bool, flood: Flood
) -> None:
    """Quick runs compare no latencies."""
    name, transport, descriptors = flood
    if not thorough and (name not in QUICK or transport != "plain" or descriptors is not None):
        pytest.skip("a flood of a minute: run with --thorough")
    command = fake_command(bundle_path, "open", "--state-dir", str(tmp_path / "state"))
    with serve_under_attack(command, tmp_path, transport, descriptors=descriptors) as served:
        loaded_seconds = min(flood_seconds, LOADED_SECONDS) if thorough else 0.0
        found = asyncio.run(run_flood(served, name, flood_seconds, loaded_seconds=loaded_seconds))
    limit = "" if descriptors is None else f", {descriptors} descriptors"
    title = f"{name}{'' if transport == 'plain' else f', {transport}'}{limit}"
    add_row("floods", found.cells(title))
    add_row("answers to floods", found.answers(title))
    print(found.cells(title), found.answers(title))
    assert list(found.problems()) == []
