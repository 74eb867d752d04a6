"""What the processes of a service share: everything that the supervisor has imported before it forks."""

import json
import subprocess
import sys

from tests.support.paths import ROOT

# Starts a service in this process, and prints the modules from before and those that it imported.
_START = """
import asyncio, json, sys
import dragoman.serve.commands.serve, dragoman.serve.supervisor.supervisor
from dragoman.serve import app, settings

before = set(sys.modules)

async def start():
    stop = asyncio.Event()
    chosen = settings.ServeSettings(bundle=sys.argv[1], engines=1, http_port=0, grpc_port=0)
    service = await app.build_service(chosen, None)
    await service.listen()
    running = asyncio.create_task(service.run(stop))
    await service.ready.wait()
    print(json.dumps([sorted(before), sorted(set(sys.modules) - before)]))
    stop.set()
    await running

asyncio.run(start())
"""


def test_a_process_imports_nothing_after_the_fork_and_nothing_for_the_openapi_document_alone() -> None:
    command = [sys.executable, "-c", _START, str(ROOT / "bundles" / "multi30k-en-de")]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    before, after = json.loads(next(line for line in result.stdout.splitlines() if line.startswith("[[")))
    assert after == []
    assert not {"fastapi", "pydantic.v1"} & set(before)
