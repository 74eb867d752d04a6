"""Documents over the interfaces of DeepL and LibreTranslate."""

import io
import time
from collections.abc import Iterator
from pathlib import Path

import deepl
import httpx
import pytest

from tests.support.cases import cases
from tests.support.interfaces import OpenDeepl
from tests.support.live import LiveService, eventually, run_service
from tests.support.pdf_files import page_of, pages_of

CASES = cases(__file__)

TEXT = "alpha beta.\n"
SOONEST = "dragoman.serve.compat.deepl.documents._SOONEST_SECONDS"


@pytest.fixture(scope="module")
def served(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    with run_service(bundle_path, state_dir=tmp_path_factory.mktemp("state")) as live:
        yield live


@pytest.fixture(scope="module")
def expected(served: LiveService) -> bytes:
    text: str = served.post({"text": TEXT}).json()["translations"][0]["text"]
    return text.encode()


def upload(live: LiveService, name: str = "one.txt", data: bytes = TEXT.encode(), **form: str) -> httpx.Response:
    return live.post(path="/v2/document", files={"file": (name, data)}, data={"target_lang": "DE", **form})


def send_file(live: LiveService, name: str = "one.txt", data: bytes = TEXT.encode(), **form: str) -> httpx.Response:
    fields = {"source": "en", "target": "de", **form}
    return live.post(path="/translate_file", files={"file": (name, data)}, data=fields)


def test_the_client_of_deepl_translates_a_document(
    served: LiveService, expected: bytes, open_deepl: OpenDeepl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document is not done as soon as it is sent."""
    client = open_deepl(served)
    monkeypatch.setattr(SOONEST, 1e9)
    handle = client.translate_document_upload(TEXT, source_lang="EN", target_lang="DE", filename="one.txt")
    status = client.translate_document_get_status(handle)
    assert (status.ok, status.done) == (True, False)
    monkeypatch.setattr(SOONEST, 0)
    while not status.done:
        time.sleep(0.05)
        status = client.translate_document_get_status(handle)
    assert status.billed_characters == len(TEXT.strip())
    output = io.BytesIO()
    client.translate_document_download(handle, output)
    assert output.getvalue() == expected
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_get_status(handle)


def test_a_document_in_its_target_language_is_refused(served: LiveService, open_deepl: OpenDeepl) -> None:
    german = "Das ist ein Haus mit einem Garten nahe am Fluss.\n"
    with pytest.raises(deepl.DeepLException, match="Source and target language are equal"):
        open_deepl(served).translate_document(german, io.BytesIO(), target_lang="DE", filename="one.txt")
    answer = send_file(served, data=german.encode(), source="auto")
    error = 'Invalid request: target_language: Source and target language are equal: "de"'
    assert (answer.status_code, answer.json()["error"]) == (400, error)


def test_the_id_and_the_key_of_a_document_are_both_needed(served: LiveService) -> None:
    handle = upload(served, source_lang="EN").json()
    path = f"/v2/document/{handle['document_id']}"
    assert (len(handle["document_id"]), len(handle["document_key"])) == (32, 64)
    assert served.post({"document_key": handle["document_key"]}, path=path).json()["status"] != "error"
    for key in ("", "0" * 64):
        assert served.post({"document_key": key}, path=path).status_code == 404
        assert served.post({"document_key": key}, path=f"{path}/result").status_code == 404
    assert served.post({"document_key": handle["document_key"]}, path=f"{path}/result").status_code in (200, 503)


@pytest.mark.parametrize(("name", "text", "form", "part"), CASES["invalid uploads are refused by name"])
def test_invalid_uploads_are_refused_by_name(
    served: LiveService, name: str, text: str, form: dict[str, str], part: str
) -> None:
    answer = upload(served, name, text.encode(), **form)
    assert answer.status_code == 400
    assert part in answer.json()["message"]


def test_a_file_of_libretranslate_is_translated_and_downloaded(served: LiveService, expected: bytes) -> None:
    address = send_file(served).json()["translatedFileUrl"]
    assert address.startswith(f"{served.http_url}/download_file/")
    with served.http() as client:
        for _ in range(2):
            downloaded = client.get(address)
            assert (downloaded.status_code, downloaded.content) == (200, expected)
    settings = served.get("/frontend/settings").json()
    assert settings["filesTranslation"]
    assert ".txt" in settings["supportedFilesFormat"]


def test_the_translation_of_a_pdf_file_is_named_as_markdown(served: LiveService, expected: bytes) -> None:
    pytest.importorskip("pypdfium2_raw", reason="needs the extra `pdf`")
    content = pages_of([page_of([(50, 700, 10, TEXT.strip())])])
    address = send_file(served, "one.PDF", content).json()["translatedFileUrl"]
    assert address.endswith(".md")
    with served.http() as client:
        downloaded = client.get(address)
    assert downloaded.content == expected
    handle = upload(served, "one.pdf", content, source_lang="EN").json()
    key, path = {"document_key": handle["document_key"]}, f"/v2/document/{handle['document_id']}"
    eventually(lambda: served.post(key, path=path).json()["status"] == "done")
    result = served.post(key, path=f"{path}/result")
    for answer in (downloaded, result):
        assert answer.headers["content-disposition"].endswith("one.de.md")


def test_the_id_of_a_document_is_no_address_of_its_file(served: LiveService, expected: bytes) -> None:
    fields = {"name": "a.txt", "source_language": "en", "target_language": "de"}
    document = served.post(path="/v1/documents", content=b"alpha", params=fields).json()["id"]
    eventually(lambda: served.get(f"/v1/documents/{document}").json()["status"] == "done")
    assert served.get(f"/download_file/{document}.txt").status_code == 400
    name = send_file(served).json()["translatedFileUrl"].rpartition("/")[2]
    assert served.get(f"/download_file/{name}").content == expected
    for wrong in (f"{name[:32]}.txt", f"{name[:32]}{'0' * 64}.txt", f"{document}{name[32:]}", "ü" * 96):
        assert served.get(f"/download_file/{wrong}").status_code == 400


@pytest.mark.parametrize(("name", "text", "form", "error"), CASES["invalid files have the errors of libretranslate"])
def test_invalid_files_have_the_errors_of_libretranslate(
    served: LiveService, name: str, text: str, form: dict[str, str], error: str
) -> None:
    answer = send_file(served, name, text.encode(), **form)
    assert (answer.status_code, answer.json()["error"]) == (400, error)
    missing = served.post({"source": "en", "target": "de"}, path="/translate_file")
    assert missing.json()["error"] == "Invalid request: missing file parameter"
    assert served.get("/download_file/none.txt").status_code == 400


def test_the_address_of_a_file_may_be_set(bundle_path: Path, tmp_path: Path) -> None:
    public = "https://translate.example/api"
    with run_service(bundle_path, state_dir=tmp_path, public_url=public, libretranslate_path="/lt") as live:
        fields = {"source": "en", "target": "de"}
        answer = live.post(path="/lt/translate_file", files={"file": ("a.txt", b"alpha")}, data=fields)
        assert answer.json()["translatedFileUrl"].startswith(f"{public}/lt/download_file/")


def test_without_a_state_directory_documents_are_refused(bundle_path: Path) -> None:
    with run_service(bundle_path) as live:
        assert send_file(live).json()["error"] == "Files translation are disabled on this server."
        assert "--state-dir" in upload(live).json()["message"]
