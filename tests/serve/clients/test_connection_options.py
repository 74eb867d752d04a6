"""The connection options of commands: the resulting settings, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from export.evaluate.command import EvaluateCommand
from loadtest.command import LoadCommand
from loadtest.scenario import ScenarioError
from serve.clients.options import ConnectionOptions
from serve.clients.translate import TranslateCommand
from serve.files import FileError
from tests.support.certificates import Authority

KEY = "not-to-be-told"
Make = Callable[..., ConnectionOptions]


def evaluate(**options: Any) -> ConnectionOptions:
    return EvaluateCommand(system="grpc://127.0.0.1:1", data=("multi30k:en-de",), **options)


@pytest.fixture(params=[TranslateCommand, LoadCommand, evaluate], ids=["translate", "load", "evaluate"])
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a command."""
    command: Make = request.param
    return command


@pytest.fixture(name="authority")
def _authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files_of(authority: Authority) -> dict[str, Path]:
    issued = authority.issue("client", "somebody")
    return {
        "tls_ca_file": authority.file,
        "tls_certificate_file": issued["certificate"],
        "tls_key_file": issued["key"],
    }


def refusal(**options: Any) -> str:
    with pytest.raises(FileError) as raised:
        TranslateCommand(**options).connection()
    return str(raised.value)


def test_the_environment_of_each_command_says_how_its_server_is_reached(
    make: Make, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = str(type(make()).model_config["env_prefix"])
    monkeypatch.setenv(f"{prefix}API_KEY", KEY)
    files = files_of(authority)
    for name, path in files.items():
        monkeypatch.setenv(f"{prefix}{name.upper()}", str(path))
    connection = make().connection(timeout_seconds=7)
    assert connection.metadata == (("authorization", f"Bearer {KEY}"),)
    assert [connection.ca_file, connection.certificate_file, connection.key_file] == list(files.values())
    assert (connection.encrypted, connection.timeout_seconds) == (True, 7)


def test_without_options_there_is_neither_tls_nor_a_key(make: Make) -> None:
    connection = make().connection("http://127.0.0.1:8000")
    assert (connection.encrypted, connection.credentials, connection.ssl_context()) == (False, None, None)
    assert connection.metadata == ()


def test_nothing_that_is_shown_of_a_command_holds_the_key(make: Make) -> None:
    command = make(api_key=KEY)
    assert KEY not in f"{command!r} {command} {command.connection()!r} {json.dumps(command.model_dump(mode='json'))}"


@pytest.mark.parametrize("key", ["", " ", "two words", "line\n", "Schl\u00fcssel"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    message = refusal(api_key=key)
    assert message.startswith("--api-key: expected visible ASCII characters")
    assert not key.strip() or key not in message


@pytest.mark.parametrize(
    ("given", "missing"),
    [("tls_key_file", "tls-certificate-file"), ("tls_certificate_file", "tls-key-file")],
)
def test_a_certificate_and_its_key_go_together(given: str, missing: str, authority: Authority) -> None:
    path = files_of(authority)[given]
    assert refusal(**{given: path}) == f"--{given.replace('_', '-')}: {path}: expected --{missing} too"


def test_a_file_that_is_not_what_it_should_be_is_told(authority: Authority, tmp_path: Path) -> None:
    files = files_of(authority)
    other = authority.issue("other")["key"]
    assert refusal(tls_ca_file=tmp_path / "none") == f"--tls-ca-file: {tmp_path / 'none'}: No such file or directory"
    assert refusal(tls_ca_file=other) == f"--tls-ca-file: {other}: not a certificate in PEM"
    assert refusal(**files | {"tls_certificate_file": other}).startswith(f"--tls-certificate-file: {other}: not a cert")
    assert refusal(**files | {"tls_key_file": other}).startswith(f"--tls-key-file: {other}: not the key of the cert")


@pytest.mark.parametrize("option", ["tls", "tls_ca_file"])
def test_tls_and_an_address_that_says_none_do_not_go_together(option: str, authority: Authority) -> None:
    command = TranslateCommand(**{"tls": True} if option == "tls" else {option: authority.file})
    with pytest.raises(FileError, match=f"^--{option.replace('_', '-')}: expected .*https://, got http://$"):
        command.connection("grpc://127.0.0.1:8001", "http://127.0.0.1:8000")


def test_an_address_that_says_tls_says_so_of_both_interfaces_of_a_load() -> None:
    assert LoadCommand(rest_url="https://127.0.0.1:8000").targets.security.encrypted


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://host:1", "http://", "http://host:many", "http://[::1", "http://host/v1"]
)
def test_a_load_has_a_base_url(url: str) -> None:
    with pytest.raises(ScenarioError, match=r"^rest-url: "):
        _ = LoadCommand(rest_url=url).targets


def test_a_password_in_a_base_url_is_refused_and_not_shown() -> None:
    """Reports would contain the password."""
    with pytest.raises(ScenarioError) as raised:
        _ = LoadCommand(rest_url=f"https://somebody:{KEY}@host:8000").targets
    assert KEY not in str(raised.value)
