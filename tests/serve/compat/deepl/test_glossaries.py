"""DeepL's glossaries of both versions: the calls of its Python client, and errors."""

import io
import json
import time
from contextlib import ExitStack
from typing import Any

import deepl
import httpx
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries

from tests.support.cases import cases
from tests.support.interfaces import OpenDeepl
from tests.support.live import LiveService
from tests.support.raw_http import JSON, connect_to, head

CASES = cases(__file__)

UNKNOWN = "96ab91fd-e715-41a1-adeb-5d701f84a483"
ENTRIES = {"a b": "b a", "A%=&": "B&=%", "\u0394\u3041": "\u6df1"}


@pytest.fixture
def client(lettered: LiveService, open_deepl: OpenDeepl) -> deepl.DeepLClient:
    return open_deepl(lettered)


def create(live: LiveService, **changes: Any) -> httpx.Response:
    body = {"name": "one", "source_lang": "en", "target_lang": "DE", "entries": "a\tb", "entries_format": "tsv"}
    return live.post({**body, **changes}, path="/v2/glossaries")


def test_glossaries_for_one_pair_of_languages(client: deepl.DeepLClient) -> None:
    glossary = client.create_glossary("one", "EN", "DE", ENTRIES)
    assert (glossary.name, glossary.source_lang, glossary.target_lang) == ("one", "EN", "DE")
    assert (glossary.entry_count, glossary.ready) == (len(ENTRIES), True)
    found = client.get_glossary(glossary.glossary_id)
    assert (found.glossary_id, found.creation_time) == (glossary.glossary_id, glossary.creation_time)
    assert glossary.glossary_id in [list_glossary.glossary_id for list_glossary in client.list_glossaries()]
    assert client.get_glossary_entries(glossary) == ENTRIES
    client.delete_glossary(glossary)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary(glossary.glossary_id)
    (language,) = client.get_glossary_languages()
    assert (language.source_lang, language.target_lang) == ("en", "de")


def test_a_file_of_four_columns_has_the_entries_of_the_first_two(client: deepl.DeepLClient) -> None:
    csv = 'one,eins,en,de\n"a ""b""","c, d",en,de\n'
    glossary = client.create_glossary_from_csv("csv", "EN", "DE", csv)
    assert client.get_glossary_entries(glossary) == {"one": "eins", 'a "b"': "c, d"}


def test_glossaries_with_dictionaries(client: deepl.DeepLClient) -> None:
    dictionary = MultilingualGlossaryDictionaryEntries("EN", "DE", {"one": "eins"})
    glossary = client.create_multilingual_glossary("many", [dictionary])
    assert [item.entry_count for item in glossary.dictionaries] == [1]
    more = MultilingualGlossaryDictionaryEntries("EN", "DE", {"one": "ein", "two": "zwei"})
    merged = client.update_multilingual_glossary_dictionary(glossary, more)
    assert [item.entry_count for item in merged.dictionaries] == [2]
    assert client.update_multilingual_glossary_name(glossary, "renamed").name == "renamed"
    found = client.get_multilingual_glossary_entries(glossary, "EN", "DE").dictionaries[0]
    assert str(found.entries) == "one\tein\ntwo\tzwei"
    assert client.replace_multilingual_glossary_dictionary(glossary, dictionary).entry_count == 1
    assert "renamed" in [listed.name for listed in client.list_multilingual_glossaries()]
    client.delete_multilingual_glossary_dictionary(glossary, source_lang="EN", target_lang="DE")
    assert client.get_multilingual_glossary(glossary.glossary_id).dictionaries == []
    client.delete_multilingual_glossary(glossary)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_multilingual_glossary(glossary.glossary_id)


def test_ten_thousand_entries_come_back(client: deepl.DeepLClient) -> None:
    entries = {f"Source-{number}": f"Target-{number}" for number in range(10_000)}
    assert client.get_glossary_entries(client.create_glossary("large", "EN", "DE", entries)) == entries


@pytest.mark.parametrize(("changes", "part"), CASES["an invalid glossary is refused by name"])
def test_an_invalid_glossary_is_refused_by_name(lettered: LiveService, changes: dict[str, Any], part: str) -> None:
    answer = create(lettered, **changes)
    assert answer.status_code == 400
    assert part in answer.json()["message"]


def test_the_invalid_entry_is_named_by_its_index(lettered: LiveService) -> None:
    assert "index 1" in create(lettered, entries="a\tb\na\tc").json()["detail"]


def test_ids_are_checked_in_every_route(lettered: LiveService) -> None:
    body = {"source_lang": "en", "target_lang": "de", "entries": "a\tb", "entries_format": "tsv"}
    pair = "source_lang=en&target_lang=de"
    with lettered.http() as client:
        for glossary_id, status in (("invalid", 400), (UNKNOWN, 404)):
            old, new = f"/v2/glossaries/{glossary_id}", f"/v3/glossaries/{glossary_id}"
            for method, path in (
                *(("GET", old), ("DELETE", old), ("GET", f"{old}/entries")),
                *(("GET", new), ("PATCH", new), ("DELETE", new), ("GET", f"{new}/entries?{pair}")),
                *(("PUT", f"{new}/dictionaries"), ("DELETE", f"{new}/dictionaries?{pair}")),
            ):
                content = body if method == "PUT" else {} if method == "PATCH" else None
                answer = client.request(method, path, json=content)
                assert (answer.status_code, method, path) == (status, method, path)


def test_a_translation_has_the_terms_of_its_glossary(client: deepl.DeepLClient, lettered: LiveService) -> None:
    glossary = client.create_glossary("terms", "EN", "DE", {"b": "dcd"})
    result = client.translate_text("a b a", source_lang="EN", target_lang="DE", glossary=glossary)
    assert isinstance(result, deepl.TextResult)
    assert "dcd" in result.text
    body = {"text": ["a b a"], "target_lang": "DE", "glossary_id": glossary.glossary_id}
    assert lettered.post(body, path="/v2/translate").json()["message"].startswith("Parameter 'source_lang' must")
    for changes, status in (
        ({"glossary_id": UNKNOWN}, 404),
        ({"glossary_id": "x"}, 400),
        ({"glossary_ids": [glossary.glossary_id]}, 400),
        ({"glossary_id": None, "glossary_ids": [glossary.glossary_id]}, 200),
        ({"glossary_id": None, "glossary_ids": [glossary.glossary_id] * 6}, 400),
    ):
        assert lettered.post({**body, "source_lang": "EN", **changes}, path="/v2/translate").status_code == status


def test_a_text_that_is_a_term_becomes_its_translation(client: deepl.DeepLClient) -> None:
    glossary = client.create_glossary("whole", "EN", "DE", {"a b": "dcd", "c": "a"})
    results = client.translate_text(["a b", "c", " c "], source_lang="EN", target_lang="DE", glossary=glossary)
    assert isinstance(results, list)
    assert [result.text.strip() for result in results] == ["dcd", "a", "a"]


ROUTES = (
    ("GET", "/v2/glossaries"),
    ("POST", "/v2/glossaries"),
    ("PATCH", f"/v3/glossaries/{UNKNOWN}"),
    ("POST", "/v2/document"),
    ("POST", "/v2/document/1"),
)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_a_state_directory_a_request_is_refused_before_its_body_is_read(
    live: LiveService, method: str, path: str
) -> None:
    with ExitStack() as stack:
        client = connect_to(stack, live)()
        client.send(head(method, path, JSON, "content-length: 100"))
        answer = client.answer()
    assert answer.status == 400
    assert "--state-dir" in json.loads(answer.body)["message"]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_only_a_request_with_entries_or_a_file_may_have_the_size_of_a_document(
    lettered: LiveService, method: str, path: str
) -> None:
    large = ("POST", "/v2/glossaries"), ("PATCH", f"/v3/glossaries/{UNKNOWN}"), ("POST", "/v2/document")
    with lettered.http() as client:
        answer = client.request(method, path, content=bytes(3_000_000))
    assert (answer.status_code == 413) == ((method, path) not in large)


def test_a_document_has_the_terms_of_its_glossary(client: deepl.DeepLClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.serve.compat.deepl.documents._SOONEST_SECONDS", 0)
    glossary = client.create_glossary("document", "EN", "DE", {"a b": "dcd", "c": "a"})
    languages: dict[str, Any] = {"source_lang": "EN", "target_lang": "DE"}
    handle = client.translate_document_upload("a b\nc", filename="one.txt", glossary=glossary, **languages)
    while not (status := client.translate_document_get_status(handle)).done:
        assert status.ok
        time.sleep(0.05)
    client.translate_document_download(handle, output := io.BytesIO())
    assert output.getvalue().decode() == "dcd\na"
