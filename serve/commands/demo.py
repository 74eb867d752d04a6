"""`dragoman demo`: starts a server for a bundle, translates a few sentences over both interfaces, and keeps serving.

A failed request ends the demo with an error.
"""

import asyncio
import json
import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field
from pydantic_settings import BaseSettings, CliPositionalArg, SettingsConfigDict

from dragoman.model.errors import INTERRUPTED, reason_of
from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.rest import RestClient
from dragoman.serve.host.server_process import HOST, ServerProcess, reserve_ports, server_command

Client = RestClient | AsyncTranslationClient

# Sentences of the demo grammar with another word order in German.
DEFAULT_SENTENCES = (
    "Does the man close the window?",
    "I know that the boy must not drive to the garden.",
    "Tomorrow he must find sixty-nine lamps at the station.",
    "The man brings her a pear although the hungry farmers eat her expensive soup.",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A translation, the sum of its natural log-probabilities, and the time to the end of the response."""

    protocol: str
    source: str
    translation: str
    score: float
    milliseconds: float


class DemoCommand(BaseSettings):
    """Serve a bundle, translate a few sentences over REST and gRPC, and keep serving until Ctrl-C."""

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_DEMO_", frozen=True, extra="forbid")

    bundle: CliPositionalArg[Path] = Field(description="Folder written by `dragoman export`")
    oneshot: bool = Field(False, description="Stop the server after the sentences")
    http_port: int = Field(8000, ge=0, le=65535, description="Port of REST; 0: a free port")
    grpc_port: int = Field(8001, ge=0, le=65535, description="Port of gRPC; 0: a free port")
    sentences: Path | None = Field(
        None, description="UTF-8 file, one sentence per line (default: 4 built-in sentences)"
    )
    start_seconds: float = Field(120.0, gt=0, description="Time for the server to become ready")

    def cli_cmd(self) -> None:
        """Runs the demo; raises UserError if the server does not start or ends unexpectedly, or a request fails."""
        sentences = self._read_sentences()
        try:
            self._run(sentences)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None

    def _run(self, sentences: Sequence[str]) -> None:
        with ExitStack() as stack:
            try:
                http_port, grpc_port = stack.enter_context(reserve_ports(self.http_port, self.grpc_port))
            except OSError as error:
                ports = f"{self.http_port}, {self.grpc_port}: {error.strerror}"
                raise SystemExit(f"dragoman demo: ports: {ports}: expected free ports, or 0") from error
            command = server_command(self.bundle, http_port, grpc_port)
            print(f"$ dragoman {shlex.join(command[3:])}", flush=True)
            log = Path(stack.enter_context(TemporaryDirectory(prefix="dragoman-demo-"))) / "server.log"
            server = stack.enter_context(ServerProcess.run(command, http_port, log))
            server.wait_until_ready(self.start_seconds)
            body, answers = asyncio.run(translate(http_port, grpc_port, sentences))
            print(f"\n$ {curl_command(http_port, sentences[0])}\n{body}\n")
            print(format_table(answers), flush=True)
            if not self.oneshot:
                print(format_addresses(http_port, grpc_port, log), flush=True)
                server.wait_for_interrupt()
        print("The server has stopped.")

    def _read_sentences(self) -> Sequence[str]:
        if self.sentences is None:
            return DEFAULT_SENTENCES
        try:
            lines = self.sentences.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SystemExit(f"dragoman demo: sentences: {self.sentences}: {reason_of(error)}") from error
        sentences = [line for line in lines if line.strip()]
        if not sentences:
            raise SystemExit(f"dragoman demo: sentences: {self.sentences}: expected at least one nonblank line")
        return sentences


async def translate(http_port: int, grpc_port: int, sentences: Sequence[str]) -> tuple[str, list[Answer]]:
    """Returns the first JSON body, and all answers over REST and gRPC; raises TranslationError if a request fails."""
    async with RestClient.open(HOST, http_port) as rest, AsyncTranslationClient.open(f"{HOST}:{grpc_port}") as grpc:
        response = await rest.post({"text": sentences[0]})
        clients: list[tuple[str, Client]] = [("REST", rest), ("gRPC", grpc)]
        return response.text, [await _answer(*client, sentence) for sentence in sentences for client in clients]


async def _answer(protocol: str, client: Client, sentence: str) -> Answer:
    started_seconds = time.monotonic()
    (translation,) = (await client.translate(sentence)).translations
    milliseconds = (time.monotonic() - started_seconds) * 1000
    return Answer(protocol, sentence, translation.text, translation.score, milliseconds)


def curl_command(http_port: int, sentence: str) -> str:
    """Returns the curl command of the same REST request."""
    body = shlex.quote(json.dumps({"text": sentence}, ensure_ascii=False))
    return f"curl http://{HOST}:{http_port}/v1/translate --header 'content-type: application/json' --data {body}"


def format_table(answers: Sequence[Answer]) -> str:
    """Returns the answers as a table."""
    rows = [("source", "translation", "score", "ms", "protocol")]
    rows += [
        (answer.source, answer.translation, f"{answer.score:.3f}", f"{answer.milliseconds:.1f}", answer.protocol)
        for answer in answers
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (zip(row, "<<>><", widths, strict=True) for row in rows)
    return "\n".join("  ".join(f"{cell:{side}{width}}" for cell, side, width in line).rstrip() for line in lines)


def format_addresses(http_port: int, grpc_port: int, log: Path) -> str:
    """Returns the addresses of the server, for the terminal."""
    url = f"http://{HOST}:{http_port}"
    return (
        f"\nStill serving; Ctrl-C stops it.\n"
        f"  try it   {url}/docs\n"
        f"  metrics  {url}/metrics\n"
        f"  ready?   {url}/readyz\n"
        f"  log      {log}\n"
        f"  gRPC     {HOST}:{grpc_port}, with reflection: grpcurl -plaintext {HOST}:{grpc_port} list"
    )
