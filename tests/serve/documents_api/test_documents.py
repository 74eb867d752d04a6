"""Documents over REST, with a fake model from English into German."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dragoman.serve.clients.rest import RestClient
from dragoman.serve.documents.job_store import FOLDER
from dragoman.serve.local.errors import TranslationError
from tests.support.cases import cases
from tests.support.live import LiveService, eventually, run_service

CASES = cases(__file__)

TEXT = "alpha beta."
PAIR = {"source_language": "en", "target_language": "de"}
PATH = "/v1/documents"


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def folder(state_dir: Path) -> Path:
    return state_dir / FOLDER


@pytest.fixture(scope="module")
def served(bundle_path: Path, state_dir: Path) -> Iterator[LiveService]:
    with run_service(bundle_path, state_dir=state_dir, document_max_bytes=2000, documents_max_count=20) as live:
        yield live


@pytest.fixture(scope="module")
def expected(served: LiveService) -> str:
    return str(served.post({"text": TEXT}).json()["translations"][0]["text"])


def create(live: LiveService, data: bytes, name: str = "a.txt", **fields: str) -> httpx.Response:
    return live.post(path=PATH, content=data, params={"name": name, **PAIR, **fields})


def finish(live: LiveService, answer: httpx.Response) -> dict[str, Any]:
    """Waits for the end of a job and returns its description."""
    assert answer.status_code == 201, answer.text
    path = f"{PATH}/{answer.json()['id']}"
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(live.get(path).json())
        return found["status"] in ("done", "failed")

    eventually(ended)
    return found


def test_a_document_is_translated(served: LiveService, expected: str) -> None:
    answer = create(served, f"{TEXT}\n\n{TEXT}\n".encode())
    job = finish(served, answer)
    assert answer.headers["location"] == f"{PATH}/{job['id']}"
    assert (job["status"], job["progress"], job["characters"], job["error"]) == ("done", 1.0, 2 * len(TEXT), None)
    result = served.get(f"{PATH}/{job['id']}/result")
    assert result.text == f"{expected}\n\n{expected}\n"
    assert result.headers["content-disposition"] == "attachment; filename*=UTF-8''a.de.txt"
    assert result.headers["content-type"] == "application/octet-stream"
    assert result.headers["x-content-type-options"] == "nosniff"
    eventually(lambda: served.metric("documents_total", status="done") >= 1)


def test_a_form_has_the_file_and_its_fields(served: LiveService, expected: str) -> None:
    form = {**PAIR, "allow_pivot": "true", "placeholders": "", "split_sentences": "1"}
    job = finish(served, served.post(path=PATH, files={"file": ("dir/b.md", f"# {TEXT}\n")}, data=form))
    assert (job["name"], job["status"]) == ("b.md", "done")
    assert served.get(f"{PATH}/{job['id']}/result").text == f"# {expected}\n"


def test_the_language_of_a_document_is_detected(served: LiveService) -> None:
    text = "This is a house with a garden near the river.\n"
    assert finish(served, create(served, text.encode(), source_language="auto"))["status"] == "done"
    german = "Das ist ein Haus mit einem Garten nahe am Fluss.\n"
    job = finish(served, create(served, german.encode(), source_language="auto"))
    assert (job["status"], job["error"]) == ("failed", 'target_language: Source and target language are equal: "de"')


def test_named_tags_of_a_document_stay(served: LiveService, expected: str) -> None:
    page = "<p>{}</p><aside>alpha</aside><p><code>beta</code></p>"
    job = finish(served, create(served, page.format(TEXT).encode(), "a.html", ignore_tags="Aside,b"))
    assert served.get(f"{PATH}/{job['id']}/result").text == page.format(expected)


def test_chosen_columns_of_a_table_are_translated(served: LiveService, expected: str) -> None:
    table = f"id,text,note\n{TEXT},{{}},{TEXT}\n"
    job = finish(served, create(served, table.format(TEXT).encode(), "a.csv", columns="text", csv_formulas="keep"))
    assert served.get(f"{PATH}/{job['id']}/result").text == table.format(expected)
    job = finish(served, create(served, table.encode(), "a.csv", columns="text,none"))
    assert job["error"] == "columns: 'none', expected a name of the first row, or a number from 1"


def test_a_malformed_document_fails_with_its_place(served: LiveService) -> None:
    job = finish(served, create(served, b'{"a": ', "a.json"))
    assert job["status"] == "failed"
    assert job["error"].startswith("not JSON")
    answer = served.get(f"{PATH}/{job['id']}/result")
    assert (answer.status_code, answer.json()["reason"]) == (409, "document_not_ready")


def test_a_document_fails_without_its_glossary(served: LiveService) -> None:
    job = finish(served, create(served, TEXT.encode(), glossary="a,b"))
    assert (job["status"], job["error"]) == ("failed", "glossary 'a': unknown")


def test_a_deleted_document_is_gone(served: LiveService) -> None:
    job = finish(served, create(served, TEXT.encode()))
    path = f"{PATH}/{job['id']}"
    with served.http() as client:
        assert client.delete(path).status_code == 204
        for answer in (client.get(path), client.get(f"{path}/result"), client.delete(path), client.get(f"{PATH}/x")):
            assert (answer.status_code, answer.json()["reason"]) == (404, "document_not_found")


@pytest.mark.parametrize(
    ("fields", "data", "status", "detail"),
    [
        *CASES["a wrong request is refused"],
        ({}, "x" * 2001, 413, "file: 2001 bytes, expected at most 2000"),
        ({"ignore_tags": "b," * 65}, "x", 400, "ignore_tags: 65 names, expected at most 64"),
    ],
)
def test_a_wrong_request_is_refused(
    served: LiveService, fields: dict[str, str], data: str, status: int, detail: str
) -> None:
    answer = create(served, data.encode(), **fields)
    assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (status, detail)


def test_a_form_without_a_file_is_refused(served: LiveService) -> None:
    answer = served.post(path=PATH, files={"a": (None, "x")})
    assert answer.json()["detail"] == "file: expected a part with this name and the name of a file"


def test_the_formats_are_listed(served: LiveService) -> None:
    listed = served.get(f"{PATH}/formats").json()
    assert listed["max_bytes"] == 2000
    assert ".txt" in listed["formats"]


def test_the_client_returns_a_translated_file_and_leaves_nothing_behind(
    served: LiveService, folder: Path, expected: str, tmp_path: Path
) -> None:
    progress = list[float]()

    async def translate(name: str, content: str) -> bytes:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        async with RestClient.open("127.0.0.1", served.service.http_port) as client:
            return await client.translate_document(path, progress.append, target_language="de", allow_pivot=True)

    stored = sorted(folder.iterdir())
    assert asyncio.run(translate("a.md", f"# {TEXT}\n")).decode() == f"# {expected}\n"
    assert progress[-1] == 1.0
    with pytest.raises(TranslationError, match=r"bad\.json: not JSON"):
        asyncio.run(translate("bad.json", "{"))
    assert sorted(folder.iterdir()) == stored


def test_a_document_is_one_request_of_its_key(bundle_path: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"one name=one characters={3 * len(TEXT)} period=ever\ntwo name=two models=other\n")

    def ask(live: LiveService, text: str, key: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        return live.post(path=PATH, content=text.encode(), params={"name": "a.txt", **PAIR}, headers=headers)

    def ended(live: LiveService, text: str) -> dict[str, Any]:
        with live.http() as client:
            client.headers["authorization"] = "Bearer one"
            path = f"{PATH}/{ask(live, text, 'one').json()['id']}"
            eventually(lambda: client.get(path).json()["status"] in ("done", "failed"))
            return dict(client.get(path).json())

    with run_service(bundle_path, state_dir=tmp_path / "state", api_keys_file=keys) as live:
        assert ended(live, f"{TEXT}\n{TEXT}\n")["status"] == "done"
        assert ended(live, f"{TEXT}\n{TEXT}\n")["error"].startswith("the request exceeds the quota of the API key")
        assert ended(live, TEXT)["status"] == "done"
        assert ask(live, TEXT, "two").status_code == 403
        assert ask(live, TEXT, "three").status_code == 401


def test_jobs_go_on_after_a_restart(bundle_path: Path, tmp_path: Path) -> None:
    with run_service(bundle_path, state_dir=tmp_path, wait_ready=False) as live:
        first = create(live, f"{TEXT}\n".encode() * 20).json()
    with run_service(bundle_path, state_dir=tmp_path) as live:
        eventually(lambda: live.get(f"{PATH}/{first['id']}").json()["status"] == "done")


def test_a_server_without_a_state_directory_says_what_it_requires(bundle_path: Path) -> None:
    with run_service(bundle_path) as live:
        for answer in (create(live, b"x"), live.get(f"{PATH}/formats"), live.get(f"{PATH}/{'0' * 32}")):
            assert answer.status_code == 404
            assert answer.json()["detail"] == "documents: requires a server with --state-dir"
