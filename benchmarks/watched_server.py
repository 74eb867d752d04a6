"""`python -m benchmarks.watched_server`: a server as `dragoman serve` starts it, whose CPU time is watched.

It takes the options of `dragoman serve`, and one for the port where it shows the CPU seconds of its process and those
of the runs of ONNX Runtime. Started by `benchmarks.service_load`.
"""

from functools import partial

from prometheus_client import CollectorRegistry, start_http_server
from pydantic import Field
from pydantic_settings import CliApp, SettingsConfigDict

from benchmarks.cpu_times import CpuTimesCollector
from benchmarks.service import RunClock
from benchmarks.systems.engine import watched
from serve.app import serve
from serve.registry.engine_models import load_models
from serve.server_process import HOST
from serve.settings import ServeSettings


class WatchedServer(ServeSettings):
    """Serves as `dragoman serve` does, and shows where its CPU time goes."""

    model_config = SettingsConfigDict(
        cli_prog_name="watched_server", cli_kebab_case=True, cli_implicit_flags=True, cli_avoid_json=True
    )

    watch_port: int = Field(ge=1, le=65535, description="Port of 127.0.0.1 where CPU times are shown.")

    def cli_cmd(self) -> None:
        """Serves until a signal.

        Raises:
            SystemExit: if engines have several threads, the port is taken, or there is nothing to serve.
        """
        for settings in (self, *map(self.of_model, self.models)):
            if settings.engine_threads != 1:
                problem = "expected 1: the work of others than the engine's own thread would be missed"
                raise SystemExit(f"watched_server: --threads-per-engine: {settings.engine_threads}: {problem}")
        clock = RunClock()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(CpuTimesCollector(clock.read))
        try:
            start_http_server(self.watch_port, HOST, registry)
        except OSError as error:
            raise SystemExit(f"watched_server: --watch-port: {self.watch_port}: {error.strerror}") from error
        serve(self, load=partial(load_models, change=lambda sessions: watched(sessions, clock)))


if __name__ == "__main__":
    CliApp.run(WatchedServer)
