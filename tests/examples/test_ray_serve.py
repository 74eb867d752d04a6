"""The example of Ray Serve with the shipped configuration: a replica in this process, and a local cluster."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman import ModelError, Translator
from dragoman.serve.bundle.bundle import Bundle, write_golden
from dragoman.serve.host.server_process import reserve_ports
from tests.support.bundles import reseal
from tests.support.paths import ROOT
from tests.support.served import WAIT_SECONDS

NEEDS_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="needs the library: pip install 'ray[serve]'")
pytestmark = [pytest.mark.timeout(1500), NEEDS_RAY]
BODY = {"text": ["Good morning!", "Open the file."], "source_language": "en", "target_language": "de"}
OF_RAY = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
# Ray starts about six processes, and each imports everything: minutes on a busy machine.
START_SECONDS = 600.0


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """The shipped configuration with one engine."""
    found: dict[str, Any] = yaml.safe_load((ROOT / "deploy/ray/dragoman.yaml").read_text())
    found["applications"][0]["args"]["engines"] = 1
    return found


@pytest.fixture(scope="module")
def url(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of a cluster with one replica."""
    if not pytestconfig.getoption("thorough"):
        pytest.skip("starts a cluster: run with --thorough")
    folder = tmp_path_factory.mktemp("ray")
    config["applications"][0]["deployments"][0].update(autoscaling_config={"max_replicas": 1})
    own = {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    # Otherwise Ray writes a token into the home folder, and ends processes that start slowly.
    own |= {"RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": str(int(START_SECONDS))}
    own |= {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(START_SECONDS)}
    command = [sys.executable, "-m", "tests.support.served_ray", str(folder / "ray.yaml")]
    with reserve_ports(0, 0) as (port, _), (folder / "log").open("w") as log:
        config["http_options"].update(host="127.0.0.1", port=port)
        (folder / "ray.yaml").write_text(yaml.safe_dump(config))
        with subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, **own}) as process:
            deadline, found = time.monotonic() + START_SECONDS, f"http://127.0.0.1:{port}"
            try:
                while not answers(found):
                    starting = process.poll() is None and time.monotonic() < deadline
                    assert starting, (folder / "log").read_text()[-2000:]
                    time.sleep(0.5)
                yield found
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(WAIT_SECONDS)


def answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.post(url, json=BODY, timeout=WAIT_SECONDS).status_code == HTTPStatus.OK
    return False


def test_concurrent_requests_get_the_translations_of_the_library(url: str) -> None:
    with Translator("included", engines=1) as translator:
        translations = translator.translate(BODY["text"], source_language="en", target_language="de")
        expected = [translation.text for translation in translations]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: httpx.post(url, json=BODY, timeout=WAIT_SECONDS).json(), range(8)))
    assert found == [{"translations": expected}] * 8


async def ask(replica: Callable[[Request], Awaitable[Response]], *bodies: str) -> list[httpx.Response]:
    """Sends bodies of requests to a replica, all at once."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (await replica(Request(scope, receive)))(scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://replica") as client:
        return await asyncio.gather(*(client.post("/", content=body) for body in bodies))


@OF_RAY
def test_a_replica_of_the_shipped_configuration_translates_and_rejects_with_the_reason(config: dict[str, Any]) -> None:
    from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415 - needs Ray

    from examples.ray_serve import Replica  # noqa: PLC0415 - needs Ray

    assert ServeDeploySchema.model_validate(config).applications[0].import_path == "examples.ray_serve:build"
    replica = Replica(**config["applications"][0]["args"])
    invalid = ("{", '{"text": "no list"}', '{"text": ["fine"], "target_language": "xx"}')

    async def serve() -> list[httpx.Response]:
        await replica.check_health()
        return await ask(replica, json.dumps(BODY), *invalid)

    translated, *rejected = asyncio.run(serve())
    assert len(translated.json()["translations"]) == len(BODY["text"])
    assert [answer.status_code for answer in rejected] == [HTTPStatus.BAD_REQUEST] * len(invalid)
    assert all(answer.json()["error"] for answer in rejected)


@OF_RAY
def test_a_replica_with_wrong_golden_sentences_is_never_healthy(tmp_path: Path) -> None:
    from examples.ray_serve import Replica  # noqa: PLC0415 - needs Ray

    wrong = Path(shutil.copytree(ROOT / "bundles" / "multi30k-en-de", tmp_path / "wrong"))
    first, *others = Bundle.open(wrong).golden
    write_golden(wrong, (first.model_copy(update={"target_ids": first.target_ids[1:]}), *others))
    replica = Replica(str(reseal(wrong)), {"text": ["Hello."]}, engines=1)
    for _ in range(2):
        with pytest.raises(ModelError, match="golden sentence"):
            asyncio.run(replica.check_health())
