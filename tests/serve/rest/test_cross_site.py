"""Without keys, pages of other origins make no browser store or change anything; other clients do."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.datastructures import Headers

from dragoman.serve.errors import ForbiddenError
from dragoman.serve.rest.cross_site import CrossSiteGuard
from tests.support.live import LiveService, run_service

OTHER = "https://other.example"
ALLOWED = "https://allowed.example"
DOCUMENT = {"files": {"file": ("a.txt", b"alpha")}, "data": {"target_language": "de", "source_language": "en"}}
GLOSSARY = {"name": "a", "source_lang": "en", "target_lang": "de", "entries": "a\tb", "entries_format": "tsv"}
FILE = {"files": {"file": ("a.txt", b"alpha")}, "data": {"source": "en", "target": "de"}}
SUGGESTION = {"data": {"q": "alpha", "s": "Alpha", "source": "en", "target": "de"}}
# Requests that a form can send.
FORMS = [
    ("/v1/documents", DOCUMENT),
    ("/v2/document", {**DOCUMENT, "data": {"target_lang": "de", "source_lang": "en"}}),
    ("/v2/glossaries", {"data": GLOSSARY}),
    ("/translate_file", FILE),
    ("/suggest", SUGGESTION),
    ("/v1/glossaries", {"content": b'{"name": "a"}', "headers": {"content-type": "text/plain"}}),
]


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def served(bundle_path: Path, state_dir: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, state_dir=state_dir, corrections=True) as live:
        yield live


def send(live: LiveService, path: str, request: Mapping[str, Any], **headers: str) -> httpx.Response:
    sent = {**request, "headers": {**request.get("headers", {}), **headers}}
    return live.post(path=path, **sent)


@pytest.mark.parametrize(("path", "request_"), FORMS)
@pytest.mark.parametrize("headers", [{"origin": OTHER}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}])
def test_a_form_of_another_page_stores_nothing(
    served: LiveService, path: str, request_: Mapping[str, Any], headers: dict[str, str]
) -> None:
    answer = send(served, path, request_, **headers)
    assert answer.status_code == 403
    assert "expected this server or one of --cors-origins" in answer.text


@pytest.mark.parametrize(("path", "request_"), FORMS[:-1])
def test_other_clients_and_the_own_page_store_as_before(
    served: LiveService, path: str, request_: Mapping[str, Any]
) -> None:
    own = {"origin": served.http_url}
    for headers in ({}, own, {**own, "sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}):
        assert send(served, path, request_, **headers).status_code < 400


def test_any_page_translates_over_libretranslate(served: LiveService) -> None:
    fields = {"data": {"q": "alpha", "source": "en", "target": "de"}}
    for path in ("/translate", "/detect"):
        assert send(served, path, fields, origin=OTHER).status_code == 200


def test_named_origins_may_store(bundle_path: Path, tmp_path: Path) -> None:
    with run_service(bundle_path, state_dir=tmp_path, cors_origins=(ALLOWED,)) as live:
        assert send(live, "/v1/documents", DOCUMENT, origin=ALLOWED).status_code == 201
        for path, request in (("/v1/documents", DOCUMENT), ("/translate", {"data": {"q": "alpha"}})):
            assert send(live, path, request, origin=OTHER).status_code == 403


def test_a_page_with_a_key_may_store(bundle_path: Path, tmp_path: Path) -> None:
    key = "k" * 32
    with run_service(bundle_path, state_dir=tmp_path, api_keys=key) as live:
        file = {**FILE, "data": {"source": "en", "target": "de", "api_key": key}}
        assert send(live, "/translate_file", file, origin=OTHER).status_code == 200
        assert send(live, "/translate_file", FILE, origin=OTHER).status_code == 400


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_methods_that_change_nothing_are_not_checked(method: str) -> None:
    CrossSiteGuard(()).check(method, Headers({"origin": OTHER}))


@pytest.mark.parametrize("origin", ["http://[", "", "x" * 1000, "http://here.example:1"])
def test_an_origin_may_have_any_form(origin: str) -> None:
    headers = Headers({"origin": origin, "host": "here.example"})
    with pytest.raises(ForbiddenError):
        CrossSiteGuard(()).check("POST", headers)
    CrossSiteGuard(("*",)).check("POST", headers)
