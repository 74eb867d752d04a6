"""TLS over real connections: both ports, client certificates, renewal without restart, and invalid files."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from dragoman.protos.translation_pb2 import TranslateRequest, TranslateResponse
from dragoman.serve.app import serve
from dragoman.serve.edge.auth import Tls
from dragoman.serve.host.files import FileError
from dragoman.serve.settings import ServeSettings
from tests.support.certificates import Authority
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, LiveService, run_service

REQUEST = {"text": ["alpha beta."]}


@pytest.fixture(name="authority")
def _authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(name="secured")
def _secured(bundle_path: Path, authority: Authority) -> Iterator[LiveService]:
    with run_service(bundle_path, **authority.settings()) as live:
        yield live


@pytest.fixture(name="mutual")
def _mutual(bundle_path: Path, authority: Authority) -> Iterator[LiveService]:
    with run_service(bundle_path, **authority.settings(), tls_client_ca_file=authority.file) as live:
        yield live


def ask_grpc(live: LiveService, credentials: grpc.ChannelCredentials | None) -> str:
    """Returns a translation, or the name of the status."""
    target = live.grpc_target
    with grpc.insecure_channel(target) if credentials is None else grpc.secure_channel(target, credentials) as channel:
        method: Any = channel.unary_unary(
            TRANSLATE_METHOD, TranslateRequest.SerializeToString, TranslateResponse.FromString
        )
        try:
            answer = method(TranslateRequest(text=REQUEST["text"]), timeout=WAIT_SECONDS)
        except grpc.RpcError as error:
            status: Any = error
            return str(status.code().name)
    return str(answer.translations[0].text)


def rest_client(live: LiveService, **options: Any) -> httpx.Client:
    return httpx.Client(
        base_url=f"https://127.0.0.1:{live.service.http_port}", timeout=WAIT_SECONDS, trust_env=False, **options
    )


def served_certificates(live: LiveService, authority: Authority) -> list[Any]:
    """Returns the serial numbers of the certificates of new connections, over REST and gRPC."""
    serials = []
    for port in (live.service.http_port, live.service.grpc_port):
        context = authority.context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            certificate = connection.getpeercert()
            assert certificate
            serials.append(certificate["serialNumber"])
    return serials


def test_both_ports_serve_tls_to_clients_that_trust_the_authority(secured: LiveService, authority: Authority) -> None:
    with rest_client(secured, verify=authority.context()) as client:
        (translation,) = client.post("/v1/translate", json=REQUEST).json()["translations"]
        assert client.get("/readyz").status_code == 200
    assert ask_grpc(secured, authority.credentials()) == translation["text"]


def test_unencrypted_requests_get_no_response(secured: LiveService) -> None:
    with pytest.raises(httpx.TransportError):
        secured.post(REQUEST)
    assert ask_grpc(secured, None) == "UNAVAILABLE"


def test_clients_without_a_certificate_get_only_probes(mutual: LiveService, authority: Authority) -> None:
    with rest_client(mutual, verify=authority.context()) as rest:
        assert [rest.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]
        refused = rest.post("/v1/translate", json=REQUEST)
        assert (refused.status_code, refused.json()["reason"]) == (401, "unauthorized")
    assert ask_grpc(mutual, authority.credentials()) == "UNAVAILABLE"
    assert mutual.metric("requests_total", outcome="unauthorized") == 1
    assert mutual.metric("requests_total", outcome="ok") == 0


def test_a_renewed_certificate_is_served_without_a_restart(secured: LiveService, authority: Authority) -> None:
    before = served_certificates(secured, authority)
    assert before[0] == before[1]
    assert served_certificates(secured, authority) == before
    authority.settings()
    secured.service.core.security.refresh()
    after = served_certificates(secured, authority)
    assert after[0] == after[1] != before[0]
    assert ask_grpc(secured, authority.credentials()) != "UNAVAILABLE"


def test_an_incomplete_renewal_keeps_the_old_certificate(secured: LiveService, authority: Authority) -> None:
    before = served_certificates(secured, authority)
    (authority.folder / "server.key").write_bytes(authority.issue("other")["key"].read_bytes())
    secured.service.core.security.refresh()
    assert served_certificates(secured, authority) == before
    (authority.folder / "server.pem").write_bytes((authority.folder / "other.pem").read_bytes())
    secured.service.core.security.refresh()
    assert served_certificates(secured, authority) != before


def test_only_clients_with_a_certificate_of_the_current_authority_are_accepted(
    mutual: LiveService, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The authority of clients can be replaced without a restart."""
    other = Authority(tmp_path_factory.mktemp("other"))
    old, new = authority.issue("old", "client"), other.issue("new", "client")

    def assert_accepted(client: dict[str, Path]) -> None:
        with rest_client(mutual, verify=authority.context(client)) as rest:
            (translation,) = rest.post("/v1/translate", json=REQUEST).json()["translations"]
        assert ask_grpc(mutual, authority.credentials(client)) == translation["text"]

    def assert_rejected(client: dict[str, Path]) -> None:
        with rest_client(mutual, verify=authority.context(client)) as rest, pytest.raises(httpx.TransportError):
            rest.post("/v1/translate", json=REQUEST)
        assert ask_grpc(mutual, authority.credentials(client)) == "UNAVAILABLE"

    assert_accepted(old)
    assert_rejected(new)
    other.ca.cert_pem.write_to_path(authority.folder / "ca.pem")
    mutual.service.core.security.refresh()
    assert_accepted(new)
    assert_rejected(old)


def swap(first: Path, second: Path) -> None:
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def replace_by_folder(files: dict[str, Path]) -> None:
    files["key"].unlink()
    files["key"].mkdir()


def encrypt(path: Path) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    key = serialization.load_pem_private_key(path.read_bytes(), None)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.mark.parametrize(
    ("setting", "spoil"),
    [
        ("certificate", lambda files: files["certificate"].unlink()),
        ("key", lambda files: files["key"].unlink()),
        ("client-ca", lambda files: files["client-ca"].unlink()),
        ("key", replace_by_folder),
        ("certificate", lambda files: files["certificate"].write_text("")),
        ("client-ca", lambda files: files["client-ca"].write_bytes(b"\xff")),
        ("key", lambda files: files["key"].write_text("a key")),
        ("key", lambda files: encrypt(files["key"])),
        ("key", lambda files: files["key"].write_bytes(files["other"].read_bytes())),
        ("certificate", lambda files: swap(files["certificate"], files["key"])),
    ],
)
def test_errors_of_invalid_files_name_setting_and_path(
    authority: Authority, setting: str, spoil: Callable[[dict[str, Path]], None]
) -> None:
    files = authority.issue("server")
    named = {**files, "client-ca": authority.file, "other": authority.issue("other")["key"]}
    spoil(named)
    with pytest.raises(FileError, match=f"^--tls-{setting}-file: {named[setting]}: "):
        Tls(files["certificate"], files["key"], named["client-ca"])


@pytest.mark.parametrize("name", ["tls_certificate_file", "tls_key_file", "tls_client_ca_file"])
@pytest.mark.usefixtures("restored_logs")
def test_certificate_and_key_require_each_other(bundle_path: Path, name: str) -> None:
    """A missing file must not lead to unencrypted ports."""
    settings = ServeSettings.model_validate({"bundle": bundle_path, name: "a", "http_port": 0, "grpc_port": 0})
    with pytest.raises(SystemExit, match=f"^dragoman serve: --{name.replace('_', '-')}: a: "):
        serve(settings)
