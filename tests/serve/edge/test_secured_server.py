"""A server with mutual TLS and an API key, loaded and evaluated by the commands; no output contains the key."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dragoman import command_line
from dragoman.loadtest.clients import Targets
from dragoman.loadtest.generator import Generators
from dragoman.serve.clients.channel import ClientSettings
from tests.support.certificates import Authority
from tests.support.live import LiveService, run_service

KEY = "secret-key-of-the-test"
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
    """Writes the file once, because the service would reload it."""
    return authority.file


@pytest.fixture(scope="module", name="secured")
def _secured(bundle_path: Path, authority: Authority, ca_file: Path) -> Iterator[LiveService]:
    """A service that rejects every request without certificate and key, also for metrics."""
    closed: dict[str, Any] = {"tls_client_ca_file": ca_file, "api_keys": KEY, "open_metrics": False}
    with run_service(bundle_path, **authority.settings(), **closed) as live:
        yield live


@pytest.fixture(scope="module", name="trusting")
def _trusting(ca_file: Path) -> list[str]:
    return ["--tls-ca-file", str(ca_file)]


@pytest.fixture(scope="module", name="known")
def _known(authority: Authority, trusting: list[str]) -> list[str]:
    """The client options for TLS, without the API key."""
    issued = authority.issue("client", "client")
    return [*trusting, "--tls-certificate-file", str(issued["certificate"]), "--tls-key-file", str(issued["key"])]


@pytest.fixture(name="data")
def _data(tmp_path: Path) -> str:
    for language in ("en", "de"):
        (tmp_path / f"few.{language}").write_text(LINES)
    return f"files:{tmp_path / 'few.en'},{tmp_path / 'few.de'}"


def https_url(live: LiveService) -> str:
    return f"https://127.0.0.1:{live.service.http_port}"


def load(live: LiveService, folder: Path, *options: str) -> dict[str, Any]:
    """Sends requests over every protocol; returns the single run of the report in the folder."""
    (folder / "sentences.txt").write_text(LINES)
    (folder / "all.yaml").write_text(f"{SCENARIO}\nmax_lag_seconds: 60\n")  # no machine lags by that much
    where = ["--grpc-target", live.grpc_target, "--rest-url", https_url(live)]
    command_line.run("load", [*where, "--scenario", str(folder / "all.yaml"), "--out", str(folder / "out"), *options])
    (run,) = json.loads((folder / "out" / "load.json").read_bytes())["runs"]
    assert set(run["kinds"]) == set(PROTOCOLS)
    return dict(run)


def written_by(folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """Returns the report and all output of a load."""
    written = [path.read_text() for path in (folder / "out").iterdir()]
    assert len(written) == 2
    return "".join([*written, *capfd.readouterr()])


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
    assert "--tls-key-file" in json.loads((tmp_path / "out" / "load.json").read_bytes())["provenance"]["command"]
    assert KEY not in written_by(tmp_path, capfd)


def test_a_load_with_a_wrong_key_or_without_a_certificate_reports_unauthorized(
    secured: LiveService, known: list[str], trusting: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = f"{KEY}-either"
    for options, key, grpc_error in ((known, wrong, "UNAUTHENTICATED"), (trusting, KEY, "UNAVAILABLE")):
        folder = tmp_path / grpc_error
        folder.mkdir()
        run = load(secured, folder, *options, "--api-key", key)
        assert run["all"]["ok"] == 0
        assert {name: set(kind["errors"]) for name, kind in run["kinds"].items()} == {
            name: {grpc_error if name.startswith("grpc") else "401 unauthorized"} for name in PROTOCOLS
        }
        assert run["server"] is None
        assert key not in written_by(folder, capfd)


def test_no_command_line_of_a_process_that_sends_load_holds_the_key(secured: LiveService, ca_file: Path) -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("this system does not show the command lines of processes")
    targets = Targets(secured.grpc_target, https_url(secured), 1, ClientSettings(ca_file=ca_file, api_key=KEY))
    assert KEY not in repr(targets)

    async def command_lines() -> dict[int, bytes]:
        async with Generators.run(1, targets, {"rest"}) as generators:
            lines = read_command_lines()
            assert set(generators.process_ids) <= set(lines)
            return lines

    assert [number for number, line in asyncio.run(command_lines()).items() if KEY.encode() in line] == []


def read_command_lines() -> dict[int, bytes]:
    lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            lines[int(path.parent.name)] = path.read_bytes()
    return lines


def test_an_evaluation_is_answered_over_both_interfaces(
    secured: LiveService, known: list[str], data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAGOMAN_EVALUATE_API_KEY", KEY)
    output, figures = tmp_path / "output", tmp_path / "figures.json"
    written = []
    for url in (f"grpc://{secured.grpc_target}", https_url(secured)):
        command_line.run("evaluate", [url, "--data", data, "--output", str(output), "--json", str(figures), *known])
        written.append(output.read_text())
        assert json.loads(figures.read_text())["system"] == {"name": url, "kind": "server"}
        assert KEY not in figures.read_text()
    assert written[0] == written[1]
    assert written[0].count("\n") == 2


def evaluation_refusal(url: str, data: str, *options: str) -> str:
    with pytest.raises(SystemExit) as ended:
        command_line.run("evaluate", [url, "--data", data, *options])
    return str(ended.value.code)


def test_an_evaluation_with_a_wrong_key_ends_with_the_refusal(
    secured: LiveService, known: list[str], data: str
) -> None:
    grpc_url, rest_url = f"grpc://{secured.grpc_target}", https_url(secured)
    for url, reason in ((grpc_url, "UNAUTHENTICATED"), (rest_url, "unauthorized")):
        error = evaluation_refusal(url, data, *known, "--api-key", "wrong")
        assert error.startswith(f"dragoman evaluate: {url}: ")
        assert f": {reason}: authorization: " in error


def test_an_evaluation_that_does_not_trust_the_authority_sends_no_request(secured: LiveService, data: str) -> None:
    secured.settle()
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
        (["--tls"], "--tls: "),
        (["--tls-key-file", str(tmp_path)], f"--tls-key-file: {tmp_path}: "),
    ):
        with pytest.raises(SystemExit) as ended:
            command_line.run(command, [*arguments, *options])
        assert str(ended.value).startswith(f"dragoman {command}: {problem}")
