"""The connection options of commands: the resulting settings, and refusals."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.export.evaluate.command import EvaluateCommand
from dragoman.loadtest.command import LoadCommand
from dragoman.model.errors import UsageError, UserError
from dragoman.serve.clients.options import ConnectionOptions
from dragoman.serve.clients.translate import TranslateCommand
from tests.support.certificates import Authority

KEY = "secret-key"
Make = Callable[..., ConnectionOptions]


def evaluate(**options: Any) -> ConnectionOptions:
    return EvaluateCommand(system="grpc://127.0.0.1:1", data=("multi30k:en-de",), **options)


@pytest.fixture(params=[TranslateCommand, LoadCommand, evaluate], ids=["translate", "load", "evaluate"])
def make(request: pytest.FixtureRequest) -> Make:
    command: Make = request.param
    return command


@pytest.fixture(name="authority")
def _authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files_of(authority: Authority) -> dict[str, Path]:
    issued = authority.issue("client", "somebody")
    return {"tls_ca_file": authority.file, "tls_certificate_file": issued["certificate"], "tls_key_file": issued["key"]}


def refusal(**options: Any) -> str:
    with pytest.raises(UserError) as raised:
        TranslateCommand(**options).connection()
    return str(raised.value)


def test_the_environment_of_each_command_configures_the_connection(
    make: Make, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = str(type(make()).model_config["env_prefix"])
    files = files_of(authority)
    for name, value in {**files, "api_key": KEY}.items():
        monkeypatch.setenv(f"{prefix}{name.upper()}", str(value))
    command = make()
    connection = command.connection(timeout_seconds=7)
    assert connection.metadata == (("authorization", f"Bearer {KEY}"),)
    assert [connection.ca_file, connection.certificate_file, connection.key_file] == list(files.values())
    assert (connection.encrypted, connection.timeout_seconds) == (True, 7)
    assert KEY not in f"{command!r} {command} {connection!r} {json.dumps(command.model_dump(mode='json'))}"


def test_the_default_has_neither_tls_nor_a_key(make: Make) -> None:
    connection = make().connection("http://127.0.0.1:8000")
    assert (connection.encrypted, connection.credentials, connection.ssl_context()) == (False, None, None)
    assert connection.metadata == ()


@pytest.mark.parametrize("key", ["", " ", "two words", "line\n", "Schl\u00fcssel"])
def test_a_key_that_is_no_header_value_is_rejected_and_not_shown(key: str) -> None:
    message = refusal(api_key=key)
    assert message.startswith("--api-key: ")
    assert not key.strip() or key not in message


def test_an_unusable_file_is_named(authority: Authority, tmp_path: Path) -> None:
    files = files_of(authority)
    other, none = authority.issue("other")["key"], tmp_path / "none"
    certificate, key = files["tls_certificate_file"], files["tls_key_file"]
    assert refusal(tls_ca_file=none).startswith(f"--tls-ca-file: {none}: ")
    assert refusal(tls_ca_file=other).startswith(f"--tls-ca-file: {other}: ")
    assert refusal(**files | {"tls_certificate_file": other}).startswith(f"--tls-certificate-file: {other}: ")
    assert refusal(**files | {"tls_key_file": other}).startswith(f"--tls-key-file: {other}: ")
    assert refusal(tls_key_file=key) == f"--tls-key-file: {key}: expected --tls-certificate-file too"
    assert refusal(tls_certificate_file=certificate).endswith(": expected --tls-key-file too")


@pytest.mark.parametrize("option", ["tls", "tls_ca_file"])
def test_tls_options_contradict_an_address_without_tls(option: str, authority: Authority) -> None:
    options: dict[str, Any] = {option: True if option == "tls" else authority.file}
    command = TranslateCommand(**options)
    with pytest.raises(UserError, match=f"^--{option.replace('_', '-')}: "):
        command.connection("grpc://127.0.0.1:8001", "http://127.0.0.1:8000")


def test_an_https_address_turns_tls_on_for_both_interfaces_of_a_load() -> None:
    assert LoadCommand(rest_url="https://127.0.0.1:8000").targets.security.encrypted


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "ftp://host:1", "http://", "http://host:many", "http://[::1", "http://host/v1"]
)
def test_a_load_requires_a_base_url(url: str) -> None:
    with pytest.raises(UsageError, match=r"^rest-url: "):
        _ = LoadCommand(rest_url=url).targets


def test_a_password_in_a_base_url_is_rejected_and_not_shown() -> None:
    """Reports would contain the password."""
    with pytest.raises(UsageError) as raised:
        _ = LoadCommand(rest_url=f"https://somebody:{KEY}@host:8000").targets
    assert KEY not in str(raised.value)


def test_certificates_with_comments_of_any_encoding_are_read(authority: Authority, tmp_path: Path) -> None:
    commented = tmp_path / "commented.pem"
    commented.write_bytes("# Zürich\n".encode() + b"# \xff\n" + authority.file.read_bytes())
    assert TranslateCommand(tls_ca_file=commented).connection().encrypted


def test_text_that_is_no_certificate_is_one_line(tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text("Zürich", encoding="utf-8")
    assert refusal(tls_ca_file=other) == f"--tls-ca-file: {other}: not a certificate in PEM"
