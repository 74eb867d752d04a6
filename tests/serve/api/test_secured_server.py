"""A server with mutual TLS and a key, loaded and evaluated by the commands; nothing that they write holds the key."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dragoman
from loadtest.clients import Targets
from loadtest.generator import Generators
from serve.clients.channel import ClientSettings
from tests.support.certificates import Authority
from tests.support.live import LiveService, run_service

KEY = "not-to-be-told"
PROTOCOLS = ("grpc", "grpc-stream", "grpc-many", "rest", "rest-stream")
SCENARIO = f"""
sentences: sentences.txt
warm_up_seconds: 0
requests: {json.dumps([{"name": name, "protocol": name} for name in PROTOCOLS])}
phases: [{{name: steady, arrivals: constant, rate: 60, duration_seconds: 0.5}}]
"""
LINES = "alpha beta.\none two three.\n"


@pytest.fixture(scope="module", name="authority")
def _authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module", name="ca_file")
def _ca_file(authority: Authority) -> Path:
    """Written once: the service would read it again."""
    return authority.file


@pytest.fixture(scope="module", name="secured")
def _secured(bundle_path: Path, authority: Authority, ca_file: Path) -> Iterator[LiveService]:
    """A service that tells nobody anything, not even its metrics, who has no certificate and key."""
    closed: dict[str, Any] = {"tls_client_ca_file": ca_file, "api_keys": KEY, "open_metrics": False}
    with run_service(bundle_path, **authority.settings(), **closed) as live:
        yield live


@pytest.fixture(scope="module", name="trusting")
def _trusting(ca_file: Path) -> list[str]:
    """The option by which a client knows the server."""
    return ["--tls-ca-file", str(ca_file)]


@pytest.fixture(scope="module", name="known")
def _known(authority: Authority, trusting: list[str]) -> list[str]:
    """Those by which the server knows the client, too, but for the key."""
    issued = authority.issue("client", "somebody")
    return [*trusting, "--tls-certificate-file", str(issued["certificate"]), "--tls-key-file", str(issued["key"])]


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> str:
    for language in ("en", "de"):
        (tmp_path / f"few.{language}").write_text(LINES)
    return f"files:{tmp_path / 'few.en'},{tmp_path / 'few.de'}"


def https_url(live: LiveService) -> str:
    return f"https://127.0.0.1:{live.service.http_port}"


def load(live: LiveService, folder: Path, *options: str) -> dict[str, Any]:
    """Sends requests of every protocol; returns the only run of the report that is in the folder then."""
    (folder / "sentences.txt").write_text(LINES)
    (folder / "all.yaml").write_text(SCENARIO)
    # No machine is late by so much.
    where = ["--grpc-target", live.grpc_target, "--rest-url", https_url(live), "--max-lag-seconds", "60"]
    dragoman.run("load", [*where, "--scenario", str(folder / "all.yaml"), "--out", str(folder / "out"), *options])
    (run,) = json.loads((folder / "out" / "load.json").read_bytes())["runs"]
    assert set(run["kinds"]) == set(PROTOCOLS)
    return dict(run)


def errors_of(run: dict[str, Any]) -> dict[str, set[str]]:
    """Returns what became of the requests of each protocol, if none was answered."""
    assert run["all"]["ok"] == 0
    return {name: set(kind["errors"]) for name, kind in run["kinds"].items()}


def test_a_load_over_every_protocol_is_answered_and_the_metrics_are_read(
    secured: LiveService,
    known: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DRAGOMAN_LOAD_API_KEY", KEY)
    run = load(secured, tmp_path, *known)
    assert run["all"]["sent"] == run["all"]["ok"] == 30
    assert run["server"] is not None
    document = json.loads((tmp_path / "out" / "load.json").read_bytes())
    assert "--tls-key-file" in document["command"]
    written = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert len(written) == 2
    assert KEY not in "".join([*written, *capfd.readouterr()])


def test_a_load_with_a_wrong_key_is_refused_and_says_so(
    secured: LiveService, known: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = f"{KEY}-either"
    run = load(secured, tmp_path, *known, "--api-key", wrong)
    refused = {name: {"UNAUTHENTICATED" if name.startswith("grpc") else "401 unauthorized"} for name in PROTOCOLS}
    assert errors_of(run) == refused
    assert run["server"] is None
    written = [path.read_text() for path in (tmp_path / "out").iterdir()]
    assert wrong not in "".join([*written, *capfd.readouterr()])


def test_a_load_without_a_certificate_is_refused_and_says_so(
    secured: LiveService, trusting: list[str], tmp_path: Path
) -> None:
    run = load(secured, tmp_path, *trusting, "--api-key", KEY)
    assert errors_of(run) == {
        name: {"UNAVAILABLE" if name.startswith("grpc") else "401 unauthorized"} for name in PROTOCOLS
    }


def test_no_command_line_of_a_process_that_sends_load_holds_the_key(secured: LiveService, ca_file: Path) -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("this system does not tell the command lines of processes")
    targets = Targets(secured.grpc_target, https_url(secured), 1, ClientSettings(ca_file=ca_file, api_key=KEY))
    assert KEY not in repr(targets)

    async def command_lines() -> dict[int, bytes]:
        async with Generators.run(1, targets, {"rest"}) as generators:
            lines = read_command_lines()
            assert set(generators.process_ids) <= set(lines)
            return lines

    assert [number for number, line in asyncio.run(command_lines()).items() if KEY.encode() in line] == []


def read_command_lines() -> dict[int, bytes]:
    """Returns what all processes were called with."""
    lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            lines[int(path.parent.name)] = path.read_bytes()
    return lines


def test_an_evaluation_is_answered_over_both_interfaces(
    secured: LiveService, known: list[str], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_EVALUATE_API_KEY", KEY)
    output, figures = tmp_path / "output", tmp_path / "figures.json"
    written = []
    for url in (f"grpc://{secured.grpc_target}", https_url(secured)):
        dragoman.run("evaluate", [url, "--data", data, "--output", str(output), "--json", str(figures), *known])
        written.append(output.read_text())
        assert json.loads(figures.read_text())["system"] == {"name": url, "kind": "server"}
        assert KEY not in figures.read_text()
    assert written[0] == written[1]
    assert written[0].count("\n") == 2


def evaluation_refusal(url: str, data: str, *options: str) -> str:
    with pytest.raises(SystemExit) as ended:
        dragoman.run("evaluate", [url, "--data", data, *options])
    return str(ended.value.code)


def test_an_evaluation_with_a_wrong_key_ends_with_the_refusal(
    secured: LiveService, known: list[str], data: str
) -> None:
    grpc_url, rest_url = f"grpc://{secured.grpc_target}", https_url(secured)
    refused = "authorization: expected `Bearer` and a key"
    assert evaluation_refusal(grpc_url, data, *known, "--api-key", "wrong") == (
        f"dragoman evaluate: {grpc_url}: en-de, sentence 1: UNAUTHENTICATED: {refused}"
    )
    assert evaluation_refusal(rest_url, data, *known, "--api-key", "wrong") == (
        f"dragoman evaluate: {rest_url}: en-de, sentence 1: unauthorized: {refused}"
    )


def test_an_evaluation_by_a_client_that_does_not_know_the_authority_asks_nothing(
    secured: LiveService, data: str
) -> None:
    before = secured.metric("requests_total")
    assert "CERTIFICATE_VERIFY_FAILED" in evaluation_refusal(https_url(secured), data)
    assert secured.metric("requests_total") == before


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("load", ["--rest-url", "http://127.0.0.1:1"]),
        ("evaluate", ["http://127.0.0.1:1", "--data", "files:none.en,none.de"]),
    ],
)
def test_options_that_do_not_fit_together_end_a_command_with_one_line(
    command: str, arguments: list[str], tmp_path: Path
) -> None:
    for options, problem in (
        (["--tls"], "--tls: given beside an address with http://, expected https://"),
        (["--tls-key-file", str(tmp_path)], f"--tls-key-file: {tmp_path}: expected --tls-certificate-file beside it"),
    ):
        with pytest.raises(SystemExit) as ended:
            dragoman.run(command, [*arguments, *options])
        assert ended.value.code == f"dragoman {command}: {problem}"
