"""Headers of REST responses: timings, compression and CORS."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.live import LiveService, run_service

CASES = cases(__file__)

PAGE = "https://page.example"
TEXTS = ["alpha beta."] * 8


@pytest.fixture(scope="module")
def open_to_a_page(bundle_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, cors_origins=[PAGE]) as service:
        yield service


@pytest.mark.parametrize(("path", "body"), CASES["responses have timings in milliseconds"])
def test_responses_have_timings_in_milliseconds(letters_live: LiveService, path: str, body: dict[str, object]) -> None:
    answer = letters_live.post(body, path=path)
    assert answer.status_code == 200, answer.text
    durations_ms = dict(part.split(";dur=") for part in answer.headers["server-timing"].split(", "))
    assert list(durations_ms) == ["tokenize", "queue", "inference", "total"]
    for name, seconds in answer.json().get("timings", {}).items():
        assert float(durations_ms[name.removesuffix("_seconds")]) == pytest.approx(1000 * seconds, abs=0.001)


def test_a_long_response_is_compressed_if_the_client_accepts_it(live: LiveService) -> None:
    for path, body in (("/v1/translate", {"text": TEXTS}), ("/v2/models/fake", None)):
        for accepted in ("gzip", "identity"):
            headers = {"accept-encoding": accepted}
            with live.http() as client:
                answer = client.post(path, json=body, headers=headers) if body else client.get(path, headers=headers)
            assert answer.status_code == 200
            long = len(answer.content) > 1024
            assert long == (body is not None)
            assert (answer.headers.get("content-encoding") == "gzip") == (long and accepted == "gzip")
            assert answer.json()


@pytest.mark.parametrize("path", ["/", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics", "/v1/models"])
def test_head_is_answered_as_get_without_a_body(live: LiveService, path: str) -> None:
    changing = {"date", "x-request-id", "content-length"}
    with live.http() as client:
        whole, head, again = client.get(path), client.head(path), client.get(path)
    assert (whole.status_code, head.status_code, again.status_code) == (200, 200, 200)
    assert head.content == b""
    assert int(head.headers["content-length"]) > 0
    kept = [{name: answer.headers[name] for name in answer.headers if name not in changing} for answer in (whole, head)]
    assert kept[0] == kept[1]


def test_head_is_refused_where_get_is(live: LiveService) -> None:
    with live.http() as client:
        answers = [client.head("/v1/translate"), client.head("/unknown")]
    assert [answer.status_code for answer in answers] == [405, 404]


def test_compression_does_not_delay_a_stream(live: LiveService) -> None:
    answer = live.post({"text": TEXTS}, path="/v1/translate/stream", headers={"accept-encoding": "gzip"})
    assert len(answer.content) > 1024
    assert "content-encoding" not in answer.headers


def test_cross_origin_requests_are_disabled_by_default(live: LiveService) -> None:
    answer = live.post({"text": "alpha."}, headers={"origin": PAGE})
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_cross_origin_requests_are_limited_to_configured_origins(open_to_a_page: LiveService) -> None:
    for origin, allowed, status in ((PAGE, PAGE, 400), ("https://other.example", None, 403)):
        answer = open_to_a_page.post({"text": " "}, headers={"origin": origin})
        assert answer.status_code == status
        assert answer.headers.get("access-control-allow-origin") == allowed
        asks = {"origin": origin, "access-control-request-method": "POST"}
        asks["access-control-request-headers"] = "content-type,x-request-timeout-ms"
        with open_to_a_page.http() as client:
            preflight = client.options("/v1/translate", headers=asks)
        assert (preflight.status_code == 200) == (allowed is not None)
        assert preflight.headers.get("access-control-allow-origin") == allowed
    open_to_a_page.settle()
    assert open_to_a_page.metric("requests_total") == 2
