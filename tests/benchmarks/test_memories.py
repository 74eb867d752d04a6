"""`dragoman bench memories` imports pairs, and looks texts up."""

from pathlib import Path

import pytest

from benchmarks.features import memories
from benchmarks.features.memories import MemoriesPlan


def test_look_ups_are_measured_and_compared_with_a_search_of_all_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memories, "IDLE_SECONDS", 0.01)
    plan = MemoriesPlan(pairs=500, lookups=20, sample=20, clients=2, rounds=1, state_dir=tmp_path)
    whole, look_ups = plan.measure().tables
    assert whole.figures("import, pairs/s", "500 pairs")[0] > 0
    assert whole.figures("texts with similar pairs", "500 pairs") == whole.figures("of them found", "500 pairs") != [0]
    assert list(look_ups.columns)[::2] == ["idle", "equal, 2 at a time", "similar, 2 at a time"]
    assert all(look_ups.figures("event loop waits, p99, ms", column)[0] >= 0 for column in look_ups.columns)
    assert (
        0
        < look_ups.figures("p50, ms", "equal, 1 at a time")[0]
        <= look_ups.figures("longest, ms", "equal, 1 at a time")[0]
    )
    # The folder keeps the memory.
    assert "import, pairs/s" not in plan.measure().tables[0].rows
