"""The examples of `docs/clients.md` run, and its tables match the code."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from grpc import StatusCode

from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.channel import service_config
from dragoman.serve.clients.errors import KINDS
from dragoman.serve.errors import ERRORS
from dragoman.serve.settings import STREAM_PER_SLOT, ServeSettings
from tests.support.certificates import Authority
from tests.support.live import LiveService, run_service
from tests.support.paths import ROOT

pytestmark = pytest.mark.usefixtures("restored_logs")

TEXT = (ROOT / "docs" / "clients.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
PORT = "8001"


def example_with(words: str) -> str:
    (example,) = [item for item in EXAMPLES if words in item]
    return str(example)


def run(example: str, port: int) -> dict[str, Any]:
    assert f":{PORT}" in example or "Servicer" in example
    names: dict[str, Any] = {}
    exec(example.replace(f":{PORT}", f":{port}"), names)  # noqa: S102 - the example is part of the repository
    return names


def test_the_blocking_example(live: LiveService, capsys: pytest.CaptureFixture[str]) -> None:
    response = run(example_with('She dances."], target_language'), live.service.grpc_port)["response"]
    texts = [translation.text for translation in response.translations]
    assert [line.rpartition(" ")[0] for line in capsys.readouterr().out.splitlines()] == texts


def test_the_asyncio_example(live: LiveService, capsys: pytest.CaptureFixture[str]) -> None:
    run(example_with("asyncio.run"), live.service.grpc_port)
    beam, _, streamed = capsys.readouterr().out.partition("\n")
    assert streamed == live.post({"text": "She dances."}).json()["translations"][0]["text"]
    searched = live.post({"text": "She dances.", "options": {"beam_size": 4}}).json()
    assert beam == searched["translations"][0]["text"]


def test_the_example_of_errors(live: LiveService, capsys: pytest.CaptureFixture[str]) -> None:
    example = example_with("except BadRequestError")
    run(example, live.service.grpc_port)
    (said,) = re.findall(r"print\(.*\)  # (.*)", example)
    assert capsys.readouterr().out == f"{said}\n"


def test_a_nested_call_passes_its_context() -> None:
    client = AsyncMock(AsyncTranslationClient)
    servicer = run(example_with("ChatServicer"), 0)["ChatServicer"](client)
    asyncio.run(servicer.Answer(Mock(text="a"), "context"))
    client.translate.assert_awaited_once_with("a", target_language="de", call="context")


def test_the_example_of_many_texts(live: LiveService, capsys: pytest.CaptureFixture[str]) -> None:
    run(example_with("ManyItem("), live.service.grpc_port)
    lines = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["nothing"] == "INVALID_ARGUMENT: text[0]: blank, expected a sentence"
    for name, text in (("greeting", "Does the man close the window?"), ("farewell", "She dances.")):
        assert lines[name] == live.post({"text": text}).json()["translations"][0]["text"]


def test_the_example_of_tls(
    bundle_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    settings = {**authority.settings(), "tls_client_ca_file": authority.file, "api_keys": "secret"}
    authority.issue("client", "somebody")
    monkeypatch.chdir(tmp_path)
    with run_service(bundle_path, **settings) as live:
        run(example_with("ClientSettings("), live.service.grpc_port)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_service_config_is_that_of_the_clients() -> None:
    (config,) = re.findall(r"^```json\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert json.loads(config) == service_config(balanced=True)


def test_the_table_of_reasons_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| `([A-Z_]+)` \| (\d+) \| ?(?:(\d+) s )?\|$", TEXT, re.MULTILINE)
    statuses = [(error.reason.upper(), error.grpc_status, str(int(error.http_status))) for error in ERRORS]
    delays = ["" if error.retry_after_seconds is None else str(error.retry_after_seconds) for error in ERRORS]
    assert rows == [(*status, delay) for status, delay in zip(statuses, delays, strict=True)]


def test_the_table_of_classes_is_that_of_the_code() -> None:
    rows = dict(re.findall(r"^\| `([A-Za-z]+Error)` \| ([^|]+) \|", TEXT, re.MULTILINE))
    assert rows.pop("ServerFailedError") == "any other"
    classes = {StatusCode[status]: name for name, cell in rows.items() for status in re.findall("`([A-Z_]+)`", cell)}
    assert classes == {status: kind.__name__ for status, kind in KINDS.items()}


def test_the_table_of_connections_has_the_options_and_their_defaults() -> None:
    table = TEXT[TEXT.index("### Connections") : TEXT.index("### Health")]
    told: dict[str, str] = {}
    for options, defaults in re.findall(r"^\| [^|`]+ \| (`[^|]+`) \| ([^|]+) \|$", table, re.MULTILINE):
        told |= zip(re.findall("`--([a-z-]+)`", options), defaults.split(", "), strict=True)
    fields = {name.replace("_", "-"): field.default for name, field in ServeSettings.model_fields.items()}
    words = {2 << 20: "2 MiB"}
    expected = {name: words.get(fields[name], f"{fields[name]:g}") for name in told if fields[name] is not None}
    assert {name: item for name, item in told.items() if name in expected} == expected
    assert {name: told[name] for name in told.keys() - expected.keys()} == {
        "stream-unanswered-texts": f"{STREAM_PER_SLOT} for each slot"
    }
