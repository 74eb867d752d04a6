"""Serves fake models as `dragoman serve` serves real ones; tests kill, stop and start it.

Arguments: bundle folder, REST port, gRPC port, settings as JSON. On SIGUSR1 its models hang.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dragoman.serve.app import build_service
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.settings import ServeSettings
from tests.support.fake_bundles import load_fakes
from tests.support.fakes import FakeModel

SETTINGS: dict[str, Any] = {"host": "127.0.0.1", "lame_duck_seconds": 0, "drain_seconds": 30, "slots": 8, "engines": 2}


def command(bundle: Path, ports: tuple[int, int], **settings: Any) -> list[str]:
    return [sys.executable, "-m", "tests.support.served_fakes", str(bundle), *map(str, ports), json.dumps(settings)]


async def _serve(bundle: Path, http_port: int, grpc_port: int, given: dict[str, Any]) -> None:
    settings = ServeSettings(bundle=bundle, http_port=http_port, grpc_port=grpc_port, **{**SETTINGS, **given})
    hanging = threading.Event()

    def load(settings: ServeSettings, bundle: Bundle) -> list[FakeModel]:
        models = load_fakes(settings, bundle)
        for model in models:
            model.on_step = lambda: _hang_if(hanging)
        return models

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, hanging.set)
    service = await build_service(settings, load)
    await service.listen()
    await service.run(stop)


def _hang_if(hanging: threading.Event) -> None:
    if hanging.is_set():
        threading.Event().wait()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])))
