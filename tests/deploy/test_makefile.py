"""`make bench` runs the command of every table on the benchmark page."""

import re
import shlex
import subprocess

from tests.support.paths import ROOT


def test_make_bench_fills_every_place_of_the_page() -> None:
    dry_run = ["make", "--dry-run", "--always-make", "bench", "BENCH_RUN=some/bundle", "ROUNDS=2"]
    printed = subprocess.run(dry_run, cwd=ROOT, check=True, capture_output=True, encoding="utf-8").stdout
    calls = [shlex.split(line) for line in printed.splitlines() if "dragoman bench" in line]
    places = re.findall(r"<!-- (\w+) -->", (ROOT / "docs/measurements/benchmarks.md").read_text(encoding="utf-8"))
    assert [call[2] for call in calls] == places
    for call in calls:
        assert call[call.index("--document") + 1] == "docs/measurements/benchmarks.md"
        assert call[call.index("--rounds") + 1] == "2"
        assert {"run=some/bundle", "bundle=some/bundle"} & set(call)
