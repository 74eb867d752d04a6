"""The example of Ray Serve on a local cluster, with the shipped configuration."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import httpx
import pytest
import yaml

from dragoman import ModelError, Translator
from dragoman.serve.bundle.bundle import Bundle, write_golden
from dragoman.serve.host.server_process import reserve_ports
from tests.support.bundles import reseal
from tests.support.paths import ROOT
from tests.support.served import WAIT_SECONDS

pytest.importorskip("ray", reason="needs the library: pip install 'ray[serve]'")
pytestmark = pytest.mark.timeout(1500)
BODY = {"text": ["Good morning!", "Open the file."], "source_language": "en", "target_language": "de"}
# Ray starts about six processes, and each imports everything: minutes on a busy machine.
START_SECONDS = 600.0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with one replica."""
    folder = tmp_path_factory.mktemp("ray")
    config = yaml.safe_load((ROOT / "deploy/ray/dragoman.yaml").read_text())
    config["applications"][0]["args"]["engines"] = 1
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


@pytest.mark.parametrize("body", ["{", '{"text": "no list"}', '{"text": ["fine"], "target_language": "xx"}'])
def test_an_invalid_request_is_rejected_with_the_reason(url: str, body: str) -> None:
    answer = httpx.post(url, content=body, timeout=WAIT_SECONDS)
    assert answer.status_code == HTTPStatus.BAD_REQUEST
    assert answer.json()["error"]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # of Ray
def test_a_replica_with_wrong_golden_sentences_is_never_healthy(tmp_path: Path) -> None:
    from examples.ray_serve import Replica  # noqa: PLC0415 - needs Ray

    wrong = Path(shutil.copytree(ROOT / "bundles" / "multi30k-en-de", tmp_path / "wrong"))
    first, *others = Bundle.open(wrong).golden
    write_golden(wrong, (first.model_copy(update={"target_ids": first.target_ids[1:]}), *others))
    replica = Replica(str(reseal(wrong)), {"text": ["Hello."]}, engines=1)
    for _ in range(2):
        with pytest.raises(ModelError, match="golden sentence"):
            asyncio.run(replica.check_health())
