"""`dragoman load soak`: serves a bundle for hours under mixed load, and counts as the server does."""

import asyncio
import shutil
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field
from pydantic_core import to_json
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict
from rich.console import Console

from loadtest.command import told
from loadtest.live_view import LiveView
from loadtest.reliability.soak import ADMIN_KEY, Soak, SoakResult, soak_kinds
from loadtest.scenario import ScenarioError
from loadtest.sentences import SentencesPath, SourceLanguage, TargetLanguage, read_sentences
from loadtest.served_process import ServedProcess, ServedProcessError
from serve.server_process import choose_ports, server_command

MEGABYTE = 1 << 20


class SoakCommand(BaseSettings):
    """Load a server for long with everything that clients and operators do to it, and compare the counts.

    A copy of the bundle is served in a process of its own. Four in five requests are good ones over all interfaces; the
    others are cancelled, have a tiny deadline, are invalid or too large. Meanwhile clients are killed, the model is
    replaced and metrics are read. In the end no request may have an outcome that its kind does not explain, the counts
    of the clients have to be those of /metrics, nothing may be left in the server, and it has to end as it should. Exit
    status 1 if anything else is found. The last line of the output is one JSON document.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_SOAK_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="folder made by `dragoman export`")
    rate: float = Field(20.0, gt=0, description="Requests per second, over all interfaces.")
    duration_seconds: float = Field(3600.0, gt=0, description="How long.")
    every_seconds: float = Field(
        10.0, gt=0, description="Until a client is killed and the model is replaced, again and again."
    )
    sentences: SentencesPath = None
    source_language: SourceLanguage = ""
    target_language: TargetLanguage = ""
    seed: int = Field(1, ge=0, description="Seed of the send times and of the choice of requests.")

    def cli_cmd(self) -> None:
        """Runs the soak, prints what was found, and exits with status 1 if anything is wrong."""
        with told("dragoman load soak"), TemporaryDirectory(prefix="dragoman-") as folder:
            models = Path(folder) / "models"
            ports = choose_ports(0, 0)
            try:
                bundle = Path(shutil.copytree(self.bundle, models / "soaked"))
                command = server_command(models, *ports)
                log = Path(folder) / "server.log"
                with ServedProcess.run(command, ports, log, {"DRAGOMAN_ADMIN_KEY": ADMIN_KEY}) as served:
                    result = asyncio.run(self.run(served, bundle))
            except (OSError, ServedProcessError) as error:
                raise ScenarioError(str(error)) from error
        print(format_soak(result))
        print(to_json(asdict(result)).decode())
        if result.problems:
            raise SystemExit(1)

    async def run(self, served: ServedProcess, bundle: Path) -> SoakResult:
        """Returns what a soak of a server finds, which is stopped afterwards.

        Raises:
            ScenarioError: if sentences cannot be read.
            ServedProcessError: if the server does not start, or does not end as it should.
        """
        sentences = read_sentences(self.sentences)
        await served.wait_ready()
        soak = Soak(served, bundle, soak_kinds(self.source_language, self.target_language), sentences, self.seed)
        with LiveView.open(Console(stderr=True)) as view:
            view.begin("soak")
            result = await soak.run(self.rate, self.duration_seconds, self.every_seconds, view.show)
        await served.stop()
        return result


def format_soak(result: SoakResult) -> str:
    """Returns what a soak found as lines."""
    lines = [
        f"{kind}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        for kind, outcomes in result.outcomes.items()
    ]
    memory = " to ".join(f"{size / MEGABYTE:.0f}" for size in result.resident_bytes)
    files = " to ".join(map(str, result.open_files))
    lines.append(
        f"{result.killed_clients} clients killed, {result.reloads} times another model; memory {memory} MiB, "
        f"open files {files}"
    )
    lines += [f"WRONG: {problem}" for problem in result.problems] or ["clients and server count the same"]
    return "\n".join(lines)
