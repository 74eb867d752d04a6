"""`dragoman load`: measures a running server under open-loop load, over gRPC, REST or both in turn.

Composes the other modules: draws the plan, opens a client, runs the generator and prints the report, a table for people
and, as the last line, one JSON document.
"""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from tqdm import tqdm

from loadtest.arrivals import Arrivals, constant_arrivals, poisson_arrivals
from loadtest.clients import Languages, open_grpc_client, open_rest_client
from loadtest.generator import Client, run_open_loop
from loadtest.report import Report, format_table, summarize
from loadtest.sentences import DEFAULT_SENTENCES, draw_requests, read_sentences


class LoadCommand(BaseSettings):
    """Measure a running server under open-loop load.

    Requests are sent at times drawn beforehand, whether or not earlier ones were answered, and latency runs from the
    intended send time. If the generator itself is late, the run is void and the exit status is 1. The last line of the
    output is one JSON document.
    """

    model_config = SettingsConfigDict(env_prefix="DRAGOMAN_LOAD_", frozen=True, extra="forbid")

    protocol: Literal["grpc", "rest", "both"] = Field(
        "grpc", description="Interface to measure; 'both': one run after the other."
    )
    grpc_target: str = Field("127.0.0.1:8001", description="Host and port of the gRPC interface.")
    rest_url: str = Field("http://127.0.0.1:8000", description="Base URL of the REST interface.")
    rate: float = Field(20.0, gt=0, le=100_000, description="Requests per second, on average.")
    arrivals: Literal["poisson", "constant"] = Field("poisson", description="How send times are drawn.")
    duration_seconds: float = Field(30.0, gt=0, description="Length of the measured part of a run.")
    warm_up_seconds: float = Field(3.0, ge=0, description="Load before the measured part; not in the report.")
    sentences: Path | None = Field(None, description="UTF-8 file, a sentence per line. Default: ten built-in ones.")
    source_language: str = Field(
        "", description="ISO 639-1 code of the sentences, if the model reads several languages."
    )
    target_language: str = Field("", description="ISO 639-1 code of the translations, if the model writes several.")
    texts_per_request: int = Field(1, ge=1, description="Texts in one request.")
    timeout_seconds: float = Field(10.0, gt=0, le=3600, description="How long a request waits for its answer.")
    max_lag_seconds: float = Field(0.01, gt=0, description="The run is void if the generator's lag p99 exceeds it.")
    connections: int = Field(
        2, ge=1, description="gRPC connections; REST opens as many as there are requests in flight."
    )
    seed: int = Field(1, ge=0, description="Seed of the send times and of the choice of sentences.")

    def cli_cmd(self) -> None:
        """Runs the load, prints the report and exits with status 1 if a run is void."""
        sentences = self._read_sentences()
        protocols = ("grpc", "rest") if self.protocol == "both" else (self.protocol,)
        reports: list[Report] = []
        try:
            for protocol in protocols:
                reports.append(asyncio.run(self._run(protocol, sentences)))
                print(format_table(reports[-1]))
        except KeyboardInterrupt:
            raise SystemExit(130) from None
        void = any(report.void is not None for report in reports)
        document = {
            "settings": self.model_dump(mode="json"),
            "runs": [asdict(report) for report in reports],
            "void": void,
        }
        print(json.dumps(document))
        if void:
            raise SystemExit(1)

    def _read_sentences(self) -> tuple[str, ...]:
        if self.sentences is None:
            return DEFAULT_SENTENCES
        try:
            return read_sentences(self.sentences)
        except (OSError, ValueError) as error:
            raise SystemExit(f"dragoman load: sentences: {self.sentences}: {error}") from error

    async def _run(self, protocol: str, sentences: tuple[str, ...]) -> Report:
        arrivals = self._draw_arrivals()
        requests = draw_requests(sentences, len(arrivals), self.texts_per_request, self.seed)
        async with self._open_client(protocol) as client:
            with tqdm(total=len(arrivals), desc=protocol, unit=" requests", disable=None) as bar:
                samples = await run_open_loop(client, arrivals, requests, bar.update)
        return summarize(
            samples,
            protocol=protocol,
            warm_up_seconds=self.warm_up_seconds,
            duration_seconds=self.duration_seconds,
            texts_per_request=self.texts_per_request,
            max_lag_seconds=self.max_lag_seconds,
        )

    def _draw_arrivals(self) -> Arrivals:
        total_seconds = self.warm_up_seconds + self.duration_seconds
        if self.arrivals == "constant":
            return constant_arrivals(self.rate, total_seconds)
        return poisson_arrivals(self.rate, total_seconds, self.seed)

    def _open_client(self, protocol: str) -> AbstractAsyncContextManager[Client]:
        languages = Languages(self.source_language, self.target_language)
        if protocol == "grpc":
            return open_grpc_client(self.grpc_target, self.connections, self.timeout_seconds, languages)
        return open_rest_client(self.rest_url, self.timeout_seconds, languages)
