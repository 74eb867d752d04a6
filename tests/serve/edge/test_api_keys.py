"""API keys: valid and invalid ones, their sources, and that no output contains a key."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from dragoman.serve.edge.auth import Authenticator, Security
from dragoman.serve.errors import UnauthorizedError
from dragoman.serve.host.files import FileError
from dragoman.serve.keys.accounts import Accounts
from dragoman.serve.keys.ring import KeyRing
from dragoman.serve.settings import ServeSettings
from tests.support.cases import cases
from tests.support.live import WAIT_SECONDS, LiveService, run_service

CASES = cases(__file__)

BODY = {"text": "alpha beta."}
ADMIN_KEY = "admin"
RELOAD_PATH = "/v1/admin/reload"
SERVICE = "/dragoman.v1.TranslationService"


@pytest.fixture(name="keyed")
def _keyed(bundle_path: Path) -> Iterator[LiveService]:
    """A service with two client keys and an admin key."""
    with run_service(bundle_path, api_keys="first second", admin_key=ADMIN_KEY) as live:
        yield live


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def call(live: LiveService, kind: str, path: str, metadata: dict[str, str]) -> Any:
    """Calls a method of any kind with no or an empty request; returns the final status."""
    with live.grpc_channel() as channel:
        method: Any = getattr(channel, kind)(path)
        requests = b"" if kind.startswith("unary") else iter(())
        options = {"metadata": tuple(metadata.items()), "timeout": WAIT_SECONDS}
        call = method(requests, **options) if kind.endswith("stream") else method.future(requests, **options)
        with suppress(grpc.RpcError):
            list(call) if kind.endswith("stream") else call.result()
        return call.code()


CALLS: list[tuple[str, str, str]] = CASES["calls"]
WRONG: list[dict[str, str]] = [{}, bearer("third"), {"authorization": "Basic first"}, bearer(ADMIN_KEY)]


def test_calls_over_grpc_require_a_key(keyed: LiveService) -> None:
    for kind, path, _ in CALLS:
        for metadata in WRONG:
            assert call(keyed, kind, path, metadata) is grpc.StatusCode.UNAUTHENTICATED
        for key in ("first", "second"):
            assert call(keyed, kind, path, bearer(key)) is not grpc.StatusCode.UNAUTHENTICATED
    keyed.settle()
    for method in {method for _, _, method in CALLS}:
        expected = len(WRONG) * sum(item == method for _, _, item in CALLS)
        assert keyed.metric("requests_total", protocol="grpc", method=method, outcome="unauthorized") == expected


def test_requests_over_rest_require_a_key(keyed: LiveService) -> None:
    paths = ("/v1/translate", "/v1/translate/stream", "/v1/score", "/v1/attention", "/v1/detect", "/none")
    for path in paths:
        for headers in WRONG:
            answer = keyed.post(BODY, path=path, headers=headers)
            assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert [keyed.post(BODY, headers=bearer(key)).status_code for key in ("first", "second")] == [200, 200]
    keyed.settle()
    assert keyed.metric("requests_total", protocol="rest", outcome="unauthorized") == len(WRONG) * len(paths)


def test_probes_health_and_metrics_need_no_key(keyed: LiveService) -> None:
    paths = ("/healthz", "/readyz", "/metrics")
    with keyed.http() as client:
        for method in ("GET", "HEAD"):
            assert [client.request(method, path).status_code for path in paths] == [200, 200, 200]
    assert keyed.health() == "SERVING"
    with keyed.grpc_channel() as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_SECONDS)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING


def test_metrics_can_require_a_key(bundle_path: Path) -> None:
    with run_service(bundle_path, api_keys="first", open_metrics=False) as live:
        assert live.get("/metrics").status_code == 401
        with live.http() as client:
            assert client.get("/metrics", headers=bearer("first")).status_code == 200
        assert live.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        *({}, {"authorization": "Bearer"}, bearer("first"), bearer(f"{ADMIN_KEY}x"), {"authorization": ADMIN_KEY}),
        *({"authorization": "Bearer \u00e4".encode()}, {"authorization": f"Basic {ADMIN_KEY}"}),
    ],
)
def test_reloads_require_the_admin_key(keyed: LiveService, headers: dict[str, Any]) -> None:
    answer = keyed.post(path=RELOAD_PATH, headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert keyed.metric("reloads_total") == 0
    assert keyed.post(path=RELOAD_PATH, headers=bearer(ADMIN_KEY)).status_code == 200


@pytest.mark.parametrize("suffix", ["%0A", "%0D", "%0D%0A", "%00", "%20", "%E2%80%A8", "%C2%85", "/", "?", ";a", "//"])
def test_no_spelling_of_the_admin_path_opens_to_other_keys(keyed: LiveService, suffix: str) -> None:
    """A route of Starlette also matches its path with a line feed behind it."""
    assert keyed.post(path=f"{RELOAD_PATH}{suffix}", headers=bearer("first")).status_code in (400, 401, 404)
    assert keyed.metric("reloads_total") == 0


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "POST"])
def test_the_admin_path_asks_for_its_key_before_anything_else(keyed: LiveService, method: str) -> None:
    with keyed.http() as client:
        for headers in ({}, bearer("first")):
            assert client.request(method, RELOAD_PATH, headers=headers).status_code == 401
        status = client.request(method, RELOAD_PATH, headers=bearer(ADMIN_KEY)).status_code
    assert status == (200 if method == "POST" else 405)


def test_several_keys_are_refused_even_if_each_is_valid(keyed: LiveService) -> None:
    with keyed.http() as client:
        headers = [("authorization", "Bearer first"), ("authorization", "Bearer second")]
        answer = client.post("/v1/translate", json=BODY, headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (401, "unauthorized")


def test_no_output_contains_a_key(keyed: LiveService) -> None:
    with capture_logs() as logs:
        assert "wrong-key" not in keyed.post(BODY, headers=bearer("wrong-key")).text
        assert keyed.post(BODY, headers=bearer("first")).status_code == 200
        call(keyed, *CALLS[0][:2], bearer("wrong-key"))
        keyed.settle()
    text = f"{logs} {keyed.service.core.settings!r} {vars(keyed.service.core.security.authenticator._keys)}"
    assert len([log for log in logs if log["event"] == "request"]) == 3
    assert "wrong-key" not in text
    assert [key for key in ("first", "second", ADMIN_KEY) if f"'{key}'" in text] == []


def test_keys_are_reloaded_with_their_file(bundle_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# of the first client\nfirst\n\n  second  \n")
    with run_service(bundle_path, api_keys_file=path) as live:

        def statuses() -> list[int]:
            keys = ("first", "second", "third", "of the first client")
            return [live.post(BODY, headers=bearer(key)).status_code for key in keys]

        assert statuses() == [200, 200, 401, 401]
        path.write_text("second\nthird\n")
        live.service.core.security.refresh()
        assert statuses() == [401, 200, 200, 401]


@pytest.mark.parametrize("content", [None, b"", b"# nothing\n", b"two words\n"])
def test_an_invalid_file_keeps_the_previous_keys(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys"
    path.write_text("first\n")
    ring = KeyRing.open(Accounts(None), path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with capture_logs() as logs:
        ring.refresh()
        ring.refresh()
    assert ring.find("first") is not None
    assert [log["log_level"] for log in logs] == ["warning"]


@pytest.mark.parametrize(
    ("content", "where"),
    [(None, ""), (b"\n# nothing\n", ""), (b"fine\nse cret\n", "line 2: "), ("schl\u00fcssel".encode(), "line 1: ")],
)
def test_an_invalid_key_file_is_rejected_with_path_and_line(tmp_path: Path, content: bytes | None, where: str) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileError, match=f"^--api-keys-file: {path}: {where}"):
        Security.open(ServeSettings(api_keys_file=path))


@pytest.mark.parametrize(
    ("settings", "name"), CASES["keys that no header can carry or given twice are rejected by name"]
)
def test_keys_that_no_header_can_carry_or_given_twice_are_rejected_by_name(settings: dict[str, str], name: str) -> None:
    with pytest.raises(FileError, match=f"^{name}: ") as raised:
        Security.open(ServeSettings.model_validate(settings))
    assert "schl" not in str(raised.value)


def test_an_admin_key_in_a_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("two words\n")
    with pytest.raises(FileError, match=f"^--admin-key-file: {path}: "):
        Security.open(ServeSettings(admin_key_file=path))


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGOMAN_API_KEYS", "one\ntwo")
    authenticator = Security.open(ServeSettings()).authenticator
    authenticator.check_key("Bearer one")
    authenticator.check_key("bearer  two ")


@given(st.text(max_size=5), st.text("abc", min_size=1, max_size=5))
def test_only_exact_keys_are_valid(shown: str, key: str) -> None:
    authenticator = Authenticator(KeyRing(Accounts(None), [key]))

    def accepts(authorization: str) -> bool:
        with suppress(UnauthorizedError):
            return authenticator.check_key(authorization) is not None
        return False

    assert accepts(f"Bearer {key}")
    assert not accepts(shown)
    assert accepts(f"Bearer {shown}") == (shown.strip() == key)
