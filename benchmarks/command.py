"""`dragoman bench QUESTION`: measures the plan of a question and writes the report."""

import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, CliPositionalArg, NoDecode, SettingsConfigDict

from benchmarks.harness.plan import BenchmarkPlan
from benchmarks.harness.report import ReportFiles
from dragoman.model.provenance import Provenance, command_line

Question = Literal["offline", "service", "translate", "profile", "memories"]
# Where a plan is, if not in a module of its name.
_PLACES = {"memories": "features.memories"}
# The settings of a plan are joined with commas on the command line and in the environment, and may contain commas.
COMMA_BEFORE_SETTING = re.compile(r",(?=[a-z_.]+=)")
Settings = Annotated[
    tuple[str, ...],
    NoDecode,
    BeforeValidator(lambda value: COMMA_BEFORE_SETTING.split(value) if isinstance(value, str) else value),
]


class BenchCommand(BaseSettings):
    """Answers a question about speed by a measurement, and compares Dragoman with other systems.

    offline: the engine and other inference libraries: throughput, latency, memory and quality. service: the overhead
    of the service over its engine. translate: `dragoman translate` of a file. profile: the phases of an engine step.
    memories: look-ups in a translation memory, and its import.

    The plan of a question has its parameters: the models, the systems and the load. --show-plan prints it with its
    defaults. --plan and --set override them. All systems take turns in every round. A table shows the median of the
    rounds, and the median and range of a ratio within a round, which is Dragoman's figure divided by the system's. Use
    an idle machine.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_BENCH_", frozen=True, extra="forbid")

    question: CliPositionalArg[Question] = Field(description="what to measure")
    plan: Path | None = Field(None, description="YAML file that overrides defaults of the plan")
    set: Settings = Field(
        (),
        description="a field of the plan, as random.d_model=64; repeat it for several fields",
        json_schema_extra={"placeholder": "KEY=VALUE"},
    )
    rounds: int | None = Field(None, ge=1, description="turns of each system; default: as in the plan")
    out: Path = Field(Path("bench"), description="folder for QUESTION.md and QUESTION.json")
    show_plan: bool = Field(False, description="print the plan with its defaults, and exit")

    def cli_cmd(self) -> None:
        """Measures, prints and writes the results; raises SystemExit with the reason, if one of these fails."""
        place = _PLACES.get(self.question, self.question)
        question: type[BenchmarkPlan] = resolve_name(f"benchmarks.{place}:{self.question.capitalize()}Plan")
        if self.show_plan:
            if self.set or self.plan:
                question.read(self.plan, self.set)
            print(question.describe())
            return
        rounds = [] if self.rounds is None else [f"rounds={self.rounds}"]
        files = ReportFiles(self.question, self.out)
        plan = question.read(self.plan, [*self.set, *rounds])
        files.prepare()
        report = plan.measure()
        command = command_line("bench", self, positional="question")
        provenance = Provenance.now(command, question.libraries, report.threads)
        print(f"{report}\n\n{provenance}")
        files.write(report, plan.model_dump(mode="json"), provenance)
