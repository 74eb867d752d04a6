"""The phases of a native engine under a steady load: all rows are occupied, and a sequence starts whenever one ends.

The counters of the native loop have the seconds of encoder runs, decoder steps, search, and the rest: admission, the
delivery of results, and waiting for this process.
"""

from contextlib import closing
from itertools import cycle
from pathlib import Path

from pydantic import Field

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.plan import BenchmarkPlan, Positive
from benchmarks.harness.report import Figures, Report, Table
from benchmarks.harness.rounds import measure_rounds
from benchmarks.systems.native_engine import LiveNativeEngines, Phases, settings_of, specs_of
from benchmarks.systems.translating import draw_sentences
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.native.model import open_model

SEED = 1


class ProfilePlan(BenchmarkPlan):
    """The bundle and its load."""

    libraries = ("onnxruntime", "numpy")

    rounds: int = Field(1, ge=1, description="turns of each number of rows")
    bundle: Path = Field(description="bundle for the CPU with native graphs, made by `dragoman export`")
    rows: tuple[Positive, ...] = Field((1, 8, 32), min_length=1, description="rows of every step")
    beam_size: int = Field(1, gt=0, description="rows of a sequence")
    source_tokens: int = Field(20, gt=1, description="length of each source, EOS included")
    target_tokens: int = Field(32, gt=0, description="length of each target")
    steps: int = Field(300, gt=1, description="least measured steps per number of rows")
    threads: int = Field(1, gt=0, description="ONNX Runtime threads of the engine")

    def measure(self) -> Report:
        """Measures each number of rows."""
        bundle = Bundle.open(self.bundle)
        manifest = bundle.manifest
        for field in ("source_tokens", "target_tokens"):
            most, given = getattr(manifest, f"max_{field}"), getattr(self, field)
            if given > most:
                raise BenchmarkError(f"{field}: expected at most {most}, as the bundle allows, got {given}")
        for rows in self.rows:
            if rows % self.beam_size:
                raise BenchmarkError(f"rows: expected multiples of beam_size {self.beam_size}, got {rows}")
        model = open_model(bundle, self.threads)
        lengths = [(self.source_tokens, self.target_tokens)] * max(self.rows)
        specs = specs_of(draw_sentences(SEED, lengths, manifest.vocabulary_size, manifest.eos_id), self.beam_size)

        def profile(rows: int) -> dict[str, Figures]:
            with closing(LiveNativeEngines(bundle, settings_of(bundle, engines=1, slots=rows), model)) as engines:
                engines.occupy(cycle(specs), rows // self.beam_size)
                # After twice the target tokens all first sequences have ended.
                engines.wait(lambda: engines.phases.steps >= 2 * self.target_tokens)
                before = engines.phases
                engines.wait(lambda: engines.phases.since(before).steps >= self.steps)
                return phase_figures(engines.phases.since(before))

        found = measure_rounds(self.rows, self.rounds, "profile", profile)
        columns = {f"{rows} row{'' if rows == '1' else 's'}": rounds for rows, rounds in found.items()}
        tables = [
            Table(name, {rows: [repetition[name] for repetition in rounds] for rows, rounds in columns.items()})
            for name in next(iter(columns.values()))[0]
        ]
        return Report(tables, f"threads of the engine: {self.threads}")


def phase_figures(phases: Phases) -> dict[str, Figures]:
    """Returns the figures of an engine by table."""
    seconds = {name: getattr(phases, name) for name in ("encode", "step", "search", "rest")}
    whole = sum(seconds.values())
    return {
        "phase, us per step": {name: 1e6 * duration / phases.steps for name, duration in seconds.items()},
        "phase, % of the time": {name: 100 * duration / whole for name, duration in seconds.items()},
        "load": {"rows per step": phases.rows / phases.steps},
    }
