"""`make measurements`: runs the commands of measurements.yaml, and fills in their places in docs/measurements.

A result in build/measurements counts while its commands, the version, the processor and the commit that changed its
`files` last stay the same. So a call continues an interrupted one. `dragoman bench` prints Markdown with the line of
its provenance. The output of other commands becomes a block of code, and gets that line here.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from dragoman.model.config import Section
from dragoman.model.provenance import Provenance, fill, processor
from dragoman.model.versions import installed_versions

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("onnxruntime", "ctranslate2", "sacrebleu", "numpy")
# A quiet measurement starts if other programs take at most this share of all CPUs.
MAX_BUSY_SHARE, BUSY_SECONDS = 0.05, 5.0


class Measurement(Section):
    """The commands whose output fills the place `measured: NAME` of `page`, as lines of a shell in the root.

    Of an output that is no Markdown, lines that match `lines` are kept. `needs` names an otherwise idle machine, or a
    network, which only a call by name uses. A change of `files` makes a result stale. `minutes` are those of two cores.
    """

    page: str
    commands: tuple[str, ...]
    minutes: int
    needs: tuple[Literal["quiet", "network"], ...] = ()
    files: tuple[str, ...] = ("serve", "model", "export", "benchmarks", "bundles")
    lines: str = ""

    def conditions(self) -> dict[str, object]:
        """Returns what a result depends on; the commit has a `+` if its files differ from it."""
        commit = _git("log", "-1", "--format=%h", "--", *self.files)
        changed = "+" if _git("status", "--porcelain", "--", *self.files) else ""
        version = installed_versions(["dragoman"])["dragoman"]
        return {"commands": [*self.commands], "version": version, "processor": processor(), "commit": commit + changed}

    def measure(self) -> str:
        """Runs the commands and returns their output as Markdown; raises CalledProcessError if one fails."""
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        texts = []
        for command in self.commands:
            process = ["bash", "-euo", "pipefail", "-c", command]
            output = subprocess.run(process, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)  # noqa: S603 - those of the plan
            text = output.stdout.decode()
            if self.lines or "\nMeasured by `" not in text:
                kept = "\n".join(line for line in text.splitlines() if re.search(self.lines, line))
                provenance = Provenance.now(command, LIBRARIES, "all threads")
                text = f"{textwrap.indent(kept, ' ' * 4)}\n\n{provenance}" if kept else ""
            texts.append(text.strip("\n"))
        return "\n\n".join(filter(None, texts))


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()  # noqa: S603, S607 - the user's git


def read_measurements(path: Path) -> dict[str, Measurement]:
    """Returns the measurements of a file by name."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: Measurement.model_validate(fields) for name, fields in found.items()}


def busy_share() -> float:
    """Returns the share of all CPUs that was busy in the last seconds (Linux)."""

    def read() -> tuple[int, int]:
        counts = list(map(int, Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:]))
        return sum(counts), counts[3]

    total, idle = read()
    time.sleep(BUSY_SECONDS)
    later_total, later_idle = read()
    return 1 - (later_idle - idle) / (later_total - total)


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements by name, with the folders of their results and pages."""

    known: Mapping[str, Measurement]
    results: Path
    pages: Path
    busy_share: Callable[[], float] = busy_share

    def stored(self, name: str, conditions: Mapping[str, object]) -> str | None:
        """Returns the result of these conditions, if any; files that differ from their commit never give one."""
        path = self.results / f"{name}.json"
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        commit = str(conditions["commit"])
        return str(record["text"]) if record.get("conditions") == conditions and not commit.endswith("+") else None

    def measure(self, name: str) -> str:
        """Fills in a stored or new result; returns `fresh`, `measured`, or why it was refused or failed."""
        measurement, conditions = self.known[name], self.known[name].conditions()
        text = self.stored(name, conditions)
        share = self.busy_share() if text is None and "quiet" in measurement.needs else 0.0
        if share > MAX_BUSY_SHARE:
            return f"refused: other programs take {share:.0%} of the CPUs, expected at most {MAX_BUSY_SHARE:.0%}"
        state = "fresh" if text else "measured"
        if text is None:
            try:
                text = measurement.measure()
            except subprocess.CalledProcessError as error:
                return f"failed: {error}"
            if not text:
                return f"failed: lines: expected some that match {measurement.lines}, got none"
            self.results.mkdir(parents=True, exist_ok=True)
            record = {"conditions": conditions, "text": text}
            (self.results / f"{name}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
        page = self.pages / measurement.page
        page.write_text(fill(page.read_text(encoding="utf-8"), f"measured: {name}", text), encoding="utf-8")
        return state


def main() -> None:
    """Runs the measurements that have no fresh result. The status is 1 if one was refused or failed."""
    parser = argparse.ArgumentParser(description="Measures what pages state, and fills in their tables.")
    parser.add_argument("names", nargs="*", help="measurements; default: all that need no network")
    parser.add_argument("--plan", type=Path, default=Path(__file__).with_suffix(".yaml"), help="file of measurements")
    parser.add_argument("--results", type=Path, default=ROOT / "build/measurements", help="folder that keeps results")
    parser.add_argument("--pages", type=Path, default=ROOT / "docs/measurements", help="folder of the pages")
    options = parser.parse_args()
    known = read_measurements(options.plan)
    if unknown := set(options.names) - set(known):
        parser.error(f"names: expected some of {', '.join(known)}, got {', '.join(sorted(unknown))}")
    measurements, failed = Measurements(known, options.results, options.pages), False
    for name in options.names or [name for name, item in known.items() if "network" not in item.needs]:
        print(f"{name}: about {known[name].minutes} minutes", flush=True)
        state = measurements.measure(name)
        print(f"{name}: {state}", flush=True)
        failed |= state not in ("fresh", "measured")
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
