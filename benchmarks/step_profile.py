"""`dragoman profile`: where the time of an engine's step goes, phase by phase and operator by operator.

Composes the other modules: opens a bundle, runs the engine under a steady load for each number of rows, once for its
phases and once with the profiler of ONNX Runtime, and prints tables.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from tqdm import tqdm

from benchmarks.profile_result import ProfileResult
from benchmarks.profile_table import format_profile
from benchmarks.profiling import GraphTimes
from benchmarks.step_phases import StepTimes
from benchmarks.systems.steady_engine import SteadyEngine, SteadyLoad
from model.provenance import Provenance, command_line
from serve.bundle.bundle import Bundle, BundleError
from serve.bundle.manifest import Manifest
from serve.runtime.cpu import Sessions
from serve.settings import ServeSettings

LIBRARIES = ("onnxruntime", "numpy")


class ProfileCommand(BaseSettings):
    """Tells where the time of an engine's step goes.

    The scheduler, engine and runtime of the server run in this process under a steady load: every row is taken, and a
    new sequence starts whenever one has ended. A stopwatch is put around their phases from outside; the server itself
    measures none of this. Then the same is done with the profiler of ONNX Runtime switched on, which slows every node
    down by about a microsecond: read its shares rather than its sums.

    A phase's median and p99 are over the steps that have it; its share is of all steps. Run it on a quiet machine.
    """

    model_config = SettingsConfigDict(
        env_prefix="DRAGOMAN_PROFILE_", frozen=True, extra="forbid", cli_shortcuts={"json-file": "json"}
    )

    bundle: CliPositionalArg[Path] = Field(description="folder made by `dragoman export`")
    rows: tuple[Annotated[int, Field(gt=0)], ...] = Field((1, 8, 32), min_length=1, description="rows of every step")
    beam_size: int = Field(1, gt=0, description="rows of a sequence")
    source_tokens: int = Field(20, gt=1, description="length of each source, end token included")
    target_tokens: int = Field(32, gt=0, description="length of each target")
    steps: int = Field(300, gt=1, description="steps that are measured for each number of rows")
    threads: int = Field(1, gt=0, description="ONNX Runtime threads of the engine")
    heaviest: int = Field(8, ge=0, description="so many of the heaviest nodes are named")
    json_file: Path | None = Field(None, description="file that gets all figures")

    def cli_cmd(self) -> None:
        """Measures and prints."""
        try:
            bundle = Bundle.open(self.bundle)
            self._check(bundle.manifest)
            threads = f"threads of the engine: {self.threads}"
            provenance = Provenance.now(command_line("profile", self, positional="bundle"), LIBRARIES, threads)
            results = self._measure(bundle)
            print(f"{format_profile(results, self.heaviest)}\n\n{provenance}")
            if self.json_file is not None:
                figures = {"provenance": asdict(provenance), "results": [asdict(result) for result in results]}
                self.json_file.write_text(f"{json.dumps(figures, indent=1)}\n", encoding="utf-8")
        except (BundleError, OSError) as error:
            raise SystemExit(f"dragoman profile: {error}") from error

    def _check(self, manifest: Manifest) -> None:
        for option, value, most in (
            ("source-tokens", self.source_tokens, manifest.max_source_tokens),
            ("target-tokens", self.target_tokens, manifest.max_target_tokens),
        ):
            if value > most:
                raise SystemExit(f"dragoman profile: {option}: {value}: expected at most {most}, as the bundle takes")
        file = self.json_file
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            raise SystemExit(f"dragoman profile: json: {file}: expected a file in a folder that exists")
        for rows in self.rows:
            if rows % self.beam_size:
                raise SystemExit(f"dragoman profile: rows: {rows}: expected a multiple of the beam size")

    def _measure(self, bundle: Bundle) -> list[ProfileResult]:
        sessions = Sessions.load(bundle, self.threads)
        loads = [self._load(rows) for rows in dict.fromkeys(self.rows)]
        steps = 2 * len(loads) * (2 * self.target_tokens + self.steps)
        with tqdm(total=steps, unit=" steps", disable=None) as progress:
            return [
                ProfileResult(
                    load.rows,
                    self._phases(sessions, load, progress.update),
                    self._operators(bundle, load, progress.update),
                )
                for load in loads
            ]

    def _load(self, rows: int) -> SteadyLoad:
        budget = ServeSettings().prefill_token_budget
        return SteadyLoad(rows, self.beam_size, self.source_tokens, self.target_tokens, budget)

    def _phases(self, sessions: Sessions, load: SteadyLoad, advance: Callable[[], Any]) -> StepTimes:
        engine = SteadyEngine(sessions, load)
        engine.run(engine.warm_up_steps, advance)
        return StepTimes.of(engine.run(self.steps, advance))

    def _operators(self, bundle: Bundle, load: SteadyLoad, advance: Callable[[], Any]) -> GraphTimes:
        with TemporaryDirectory(prefix="dragoman-") as folder:
            sessions = Sessions.load(bundle, self.threads, profile_prefix=Path(folder) / "decoder")
            engine = SteadyEngine(sessions, load)
            engine.run(engine.warm_up_steps, advance)
            engine.run(self.steps, advance)
            return GraphTimes.read(Path(sessions.decoder.end_profiling()), self.steps)
