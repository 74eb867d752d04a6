"""Several target languages in one request: over REST, gRPC and request streams, with pivots, keys and documents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.clients.client import TranslationClient
from dragoman.serve.clients.many import ManyItem
from dragoman.serve.translation.response import TranslationResponse
from tests.support.cases import cases
from tests.support.fake_bundles import LONG_TEXT, direction, load_fakes, put_bundle
from tests.support.live import LiveService, eventually, run_service

CASES = cases(__file__)

TEXT = "alpha beta."
ADMIN = {"authorization": "Bearer admin"}
SEVERAL: dict[str, Any] = {"source_language": "en", "target_languages": ["fr", "tlh", "de"]}


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    put_bundle(folder / "from-en", tokenizer, direction("en-de", 7), direction("en-fr", 10))
    put_bundle(folder / "into-en", tokenizer, direction("cs-en", 16), direction("de-en", 17))
    return folder


@pytest.fixture(scope="module")
def live(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    own: Any = {"max_texts": 4, "state_dir": tmp_path_factory.mktemp("state"), "microsoft_path": "/microsoft"}
    with run_service(folder, load=load_fakes, **own) as service:
        yield service


def translated(live: LiveService, target: str, **fields: Any) -> list[str]:
    answer = live.post({"source_language": "en", **fields, "target_language": target}).json()
    return [translation["text"] for translation in answer["translations"]]


def test_each_target_has_its_translations_or_its_error_in_order(live: LiveService) -> None:
    live.settle()
    tokens = live.metric("source_tokens_total")
    answer = live.post({"text": TEXT, **SEVERAL})
    assert (answer.status_code, answer.json()["translations"]) == (200, [])
    french, klingon, german = answer.json()["targets"]
    for target, found in (("fr", french), ("de", german)):
        assert (found["target_language"], found["model"], "error" in found) == (target, "from-en", False)
        assert [each["text"] for each in found["translations"]] == translated(live, target, text=TEXT)
    assert (klingon["target_language"], klingon["translations"]) == ("tlh", [])
    detail = klingon["error"].pop("detail")
    assert detail.startswith("target_languages[1]: 'tlh', expected the target of one of ")
    assert klingon["error"] == {"status": 400, "reason": "invalid", "field": "target_languages[1]"}
    live.settle()
    # The translations that the test compares with cost the same tokens again.
    costs = sum(each["translations"][0]["source_tokens"] for each in (french, german))
    assert live.metric("source_tokens_total") == tokens + 2 * costs


def test_calls_and_request_streams_of_grpc_answer_as_rest_does(live: LiveService) -> None:
    over_rest = TypeAdapter(TranslationResponse).validate_json(live.post({"text": TEXT, **SEVERAL}).content)
    with TranslationClient.open(live.grpc_target) as client:
        response = client.translate(TEXT, **SEVERAL)
        assert (response.translations, response.targets) == ((), over_rest.targets)
        item: Any = ManyItem(TEXT, SEVERAL)  # type: ignore[arg-type]
        results = [result.get().targets for result in client.translate_many([item, item])]
    assert results == [over_rest.targets] * 2


@pytest.mark.parametrize(("fields", "field", "part"), CASES["a request with wrong targets is refused as a whole"])
def test_a_request_with_wrong_targets_is_refused_as_a_whole(
    live: LiveService, fields: dict[str, Any], field: str, part: str
) -> None:
    body = {"text": TEXT, "source_language": "en", **fields}
    problem = live.post(body).json()
    assert (problem["status"], problem["reason"], problem["field"]) == (400, "invalid", field)
    assert part in problem["detail"]
    texts = [TEXT] if isinstance(body["text"], str) else body["text"]
    error: Any = live.call_error(TranslateRequest(**{**body, "text": texts}))
    assert error.details() == problem["detail"]


def test_clients_of_microsoft_may_have_more_texts_in_all_targets_than_in_a_request(live: LiveService) -> None:
    texts, query = [TEXT, LONG_TEXT, TEXT], {"api-version": "3.0", "from": "en", "to": ["fr", "de"]}
    answer = live.post([{"Text": text} for text in texts], path="/microsoft/translate", params=query).json()
    french, german = (translated(live, target, text=texts) for target in ("fr", "de"))
    found = [[each["text"] for each in item["translations"]] for item in answer]
    assert found == [list(pair) for pair in zip(french, german, strict=True)]


def test_a_stream_has_one_target(live: LiveService) -> None:
    body = {"text": [TEXT], **SEVERAL}
    problem = live.post(body, path="/v1/translate/stream").json()
    assert (problem["status"], problem["field"]) == (400, "target_languages")
    with live.call_stream(TranslateRequest(**body)) as events, pytest.raises(Exception, match="expected none in a"):
        next(events)


def test_targets_of_one_model_share_source_tokens_and_a_turn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded, encode = list[str](), Tokenizer.encode

    def note(self: Tokenizer, text: str) -> list[int]:
        encoded.append(text)
        return encode(self, text)

    with run_service(folder, load=load_fakes) as own:
        monkeypatch.setattr(Tokenizer, "encode", note)
        submitted = own.count_submitted()
        own.post({"text": [TEXT, LONG_TEXT], "source_language": "en", "target_languages": ["de", "fr"]})
    assert sorted(encoded) == sorted([TEXT, LONG_TEXT])
    assert len(submitted) == 4
    assert len({sequence.group.fairness_key for sequence in submitted}) == 1


def test_targets_through_a_third_language_share_the_first_translation(folder: Path, live: LiveService) -> None:
    body = {"text": LONG_TEXT, "source_language": "cs", "allow_pivot": True}
    expected = {target: translated(live, target, **body) for target in ("de", "fr", "en")}
    with run_service(folder, load=load_fakes) as own:
        submitted = own.count_submitted()
        found = own.post({**body, "target_languages": ["de", "fr", "en"]}).json()["targets"]
    assert {each["target_language"]: [item["text"] for item in each["translations"]] for each in found} == expected
    assert [each.get("pivot", {}).get("language") for each in found] == ["en", "en", None]
    # One into the third language, one from it into each target, and one into English as a target.
    assert len(submitted) == 4


def test_a_text_has_one_detected_language_whatever_its_target(live: LiveService) -> None:
    body = {"text": ["Das Haus steht im Garten.", "The house is in the garden."], "source_language": "auto"}
    found = live.post({**body, "target_languages": ["de", "en"]}).json()["targets"]
    codes = [[item["detected_language"]["code"] for item in each["translations"]] for each in found]
    assert codes == [["de", "en"]] * 2
    assert [[item["sentences"] for item in each["translations"]] for each in found] == [[0, 1], [1, 0]]


def test_a_key_pays_for_each_target_that_is_translated(folder: Path, tmp_path: Path) -> None:
    limits = {"name": "web", "characters": 3 * len(TEXT), "requests_per_minute": 2}
    with run_service(folder, load=load_fakes, state_dir=tmp_path, stored_api_keys=True, admin_key="admin") as own:
        key = own.post(limits, path="/v1/keys", headers=ADMIN).json()["key"]

        def ask() -> Any:
            return own.post({"text": TEXT, **SEVERAL}, headers={"authorization": f"Bearer {key}"}).json()

        assert "targets" in ask()
        own.settle()
        with own.http() as client:
            assert client.get("/v1/keys/web/usage", headers=ADMIN).json()["characters"] == 2 * len(TEXT)
        assert ask()["reason"] == "quota_exceeded"


def test_a_document_for_several_targets_is_a_document_per_target(live: LiveService) -> None:
    def create(targets: str) -> Any:
        query = {"name": "a.txt", "source_language": "en", "target_languages": targets}
        return live.post(path="/v1/documents", content=TEXT.encode(), params=query)

    refused = create("fr,tlh").json()
    assert (refused["status"], refused["field"]) == (400, "target_languages[1]")
    answer = create("fr,de")
    assert answer.status_code == 201
    created = answer.json()["documents"]
    assert [each["target_language"] for each in created] == ["fr", "de"]
    for each in created:
        path = f"/v1/documents/{each['id']}"
        eventually(lambda path=path: live.get(path).json()["status"] == "done")  # type: ignore[misc]
        assert [live.get(f"{path}/result").text] == translated(live, each["target_language"], text=TEXT)
