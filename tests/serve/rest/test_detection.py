"""Detected languages over REST, gRPC and the clients, with fake models."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from libretranslatepy import LibreTranslateAPI

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos.translation_pb2 import DetectRequest, DetectResponse, TranslateRequest
from dragoman.serve.clients.client import TranslationClient
from dragoman.serve.registry.lifecycle import Stage
from tests.support.fake_bundles import direction, load_fakes, put_bundle
from tests.support.interfaces import OpenDeepl
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service
from tests.support.wire import stream_over_rest

EN = "An old woman sells flowers at the market."
DE = "Ein brauner Hund springt über einen Holzzaun."
FR = "Un chien brun saute par-dessus une clôture en bois."
CS = "Hnědý pes skáče přes dřevěný plot."
EMOJI = "😀👍🏽"
TEXTS = [EN, FR, DE, EMOJI, EN]
CODES = ["en", "fr", "de", "en", "en"]
AUTO: dict[str, Any] = {"source_language": "auto", "target_language": "de"}


@pytest.fixture(scope="module")
def served(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """Models from English and French into German, and from Czech and German into English."""
    folder = tmp_path_factory.mktemp("models")
    for prefix, name in enumerate(("en-de", "fr-de", "cs-en", "de-en"), 10):
        put_bundle(folder / name, tokenizer, direction(name, prefix))
    with run_service(folder, load=load_fakes) as live:
        yield live


def translated(live: LiveService, text: str, source: str, **fields: Any) -> str:
    """Returns the translation from a named language into German."""
    answer = live.post({"text": text, "source_language": source, "target_language": "de", **fields})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["translations"][0]["text"])


def expected(live: LiveService) -> list[str]:
    """Returns the translations of `TEXTS`."""
    english = translated(live, EN, "en")
    assert english
    return [english, translated(live, FR, "fr"), DE, EMOJI, english]


def codes(translations: list[Any]) -> list[str]:
    return [translation["detected_language"]["code"] for translation in translations]


def test_each_text_is_translated_from_its_own_language(served: LiveService) -> None:
    answer = served.post({"text": TEXTS, **AUTO}).json()
    translations = answer["translations"]
    assert [translation["text"] for translation in translations] == expected(served)
    assert codes(translations) == CODES
    confidences = [translation["detected_language"]["confidence"] for translation in translations]
    assert min(confidences[:3]) > 0.9
    assert confidences[3] == 0.0
    assert [translation["sentences"] for translation in translations] == [1, 1, 0, 0, 1]
    assert answer["model"] == "en-de"
    assert answer["timings"]["total_seconds"] > 0


def test_without_a_source_language_it_is_detected_where_several_are_possible(served: LiveService) -> None:
    for texts, model, source in ((TEXTS, "", "auto"), ([EN], "en-de", "en")):
        request: dict[str, Any] = {"text": texts, "target_language": "de", **({"model": model} if model else {})}
        named = served.post({**request, "source_language": source}).json()
        assert served.post(request).json()["translations"] == named["translations"]


def test_a_named_language_is_not_detected(served: LiveService) -> None:
    answer = served.post({"text": EN, "source_language": "en", "target_language": "de"}).json()
    assert "detected_language" not in answer["translations"][0]


def test_both_protocols_and_streams_give_the_same_response(served: LiveService) -> None:
    rest = served.post({"text": TEXTS, **AUTO}).json()["translations"]
    message = TranslateRequest(text=TEXTS, **AUTO)
    called = served.call(message).translations
    assert [item.detected_language.code for item in called] == CODES
    assert [item.text for item in called] == [item["text"] for item in rest]
    deltas, result = stream_over_rest(served, {"text": TEXTS, **AUTO})
    assert result["translations"] == rest
    grown = [""] * len(TEXTS)
    for delta in deltas:
        grown[delta["text_index"]] += delta["text"]
    assert grown == [item["text"] for item in rest]
    with served.call_stream(message) as stream:
        *_, last = stream
    assert [translation.text for translation in last.result.translations] == grown


def test_a_text_that_needs_no_translation_alone_comes_back(served: LiveService) -> None:
    for text in (DE, EMOJI):
        answer = served.post({"text": text, **AUTO}).json()
        assert (answer["translations"][0]["text"], answer["model"]) == (text, "")


def test_a_text_without_evidence_is_english_also_as_a_target(served: LiveService) -> None:
    answer = served.post({"text": ["12:30", CS], **AUTO, "target_language": "en"}).json()["translations"]
    assert answer[0]["text"] == "12:30"
    assert [item["detected_language"]["code"] for item in answer] == ["en", "cs"]
    assert answer[0]["detected_language"]["confidence"] == 0.0


def test_only_languages_that_reach_the_target_are_found(served: LiveService) -> None:
    assert codes(served.post({"text": CS, **AUTO}).json()["translations"]) != ["cs"]
    pivot = served.post({"text": [EN, CS], "allow_pivot": True, **AUTO}).json()["translations"]
    assert codes(pivot) == ["en", "cs"]
    assert pivot[1]["text"] == translated(served, CS, "cs", allow_pivot=True)
    assert codes(served.post({"text": FR, "model": "en-de", **AUTO}).json()["translations"])[0] in ("de", "en")


def test_prefixes_stay_with_their_texts(served: LiveService) -> None:
    fields = {"target_prefix": ["alpha", "", "beta"]}
    translations = served.post({"text": [EN, FR, EN], **AUTO, **fields}).json()["translations"]
    assert [translation["text"] for translation in translations] == [
        translated(served, EN, "en", target_prefix=["alpha"]),
        translated(served, FR, "fr"),
        translated(served, EN, "en", target_prefix=["beta"]),
    ]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"text": [EN, " "]}, "text[1]"),
        ({"text": [EN, FR, f"{EN} " * 20], "split_sentences": False}, "text[2]"),
        ({"text": []}, "text"),
        ({"text": [EN] * 65}, "text"),
        ({"text": [EN, FR], "target_prefix": ["alpha"]}, "target_prefix"),
        ({"text": EN, "target_language": "fr"}, "target_language"),
        ({"text": EN, "target_language": ""}, "target_language"),
        ({"text": EN, "options": {"beam_size": 900}}, "options.beam_size"),
    ],
)
def test_errors_name_the_field_of_the_request(served: LiveService, fields: dict[str, Any], field: str) -> None:
    for path in ("/v1/translate", "/v1/translate/stream"):
        answer = served.post({**AUTO, **fields}, path=path).json()
        assert (answer["reason"], answer["field"]) == ("invalid", field)


def test_markup_is_not_read_to_detect(letters_live: LiveService) -> None:
    text = '<p class="the house and the garden of the king"><b>12</b></p>'
    answer = letters_live.post({"text": text, "format": "html", **AUTO}).json()["translations"]
    assert answer[0]["detected_language"] == {"code": "en", "confidence": 0.0}


def test_languages_are_detected_without_a_translation(served: LiveService) -> None:
    requested = [DE, EMOJI, "", CS]
    detections = served.post({"text": requested}, path="/v1/detect").json()["detections"]
    found = [[language["code"] for language in detection["languages"][:1]] for detection in detections]
    assert found == [["de"], [], [], ["cs"]]
    assert all(language["confidence"] > 0.9 for index in (0, 3) for language in detections[index]["languages"][:1])
    message = served.stub("Detect", DetectRequest(text=requested), DetectResponse)
    assert [[language.code for language in detection.languages[:1]] for detection in message.detections] == found
    with TranslationClient.open(served.grpc_target) as client:
        assert [detection.languages[:1] for detection in client.detect(requested).detections][1:3] == [(), ()]
        translation = client.translate(FR, source_language="auto", target_language="de").translations[0]
    assert translation.detected_language is not None
    assert translation.detected_language.code == "fr"


@pytest.mark.parametrize(
    ("body", "field"),
    [({"text": []}, "text"), ({"text": ["a", "b\0"]}, "text[1]"), ({"text": ["a" * 10_001]}, "text[0]"), ({}, "text")],
)
def test_invalid_texts_are_not_detected(served: LiveService, body: dict[str, Any], field: str) -> None:
    answer = served.post(body, path="/v1/detect")
    assert (answer.status_code, answer.json()["field"]) == (400, field)
    with pytest.raises(grpc.RpcError, match=r"text(\[\d\])?: "):
        served.stub("Detect", DetectRequest(**body), DetectResponse)


def test_long_texts_are_detected_in_parts(served: LiveService) -> None:
    texts = [f"{sentence} " * 100 for sentence in (EN, DE, FR)]
    detections = served.post({"text": texts}, path="/v1/detect").json()["detections"]
    assert [detection["languages"][0]["code"] for detection in detections] == ["en", "de", "fr"]


def test_libretranslate_detects_each_text(served: LiveService) -> None:
    answer = served.post({"q": TEXTS, "source": "auto", "target": "de"}, path="/translate").json()
    assert answer["translatedText"] == expected(served)
    assert [item["language"] for item in answer["detectedLanguage"]] == CODES
    assert [item["confidence"] > 90 for item in answer["detectedLanguage"]] == [True, True, True, False, True]
    assert answer["detectedLanguage"][3]["confidence"] == 0
    single = served.post({"q": FR, "source": "auto", "target": "de"}, path="/translate").json()
    assert single["detectedLanguage"]["language"] == "fr"
    client = LibreTranslateAPI(served.http_url)
    assert client.detect(CS)[0]["language"] == "cs"
    assert client.detect(EMOJI) == [{"confidence": 0.0, "language": "en"}]
    assert client.translate(FR, "auto", "de") == translated(served, FR, "fr")


def test_deepl_detects_each_text(served: LiveService, open_deepl: OpenDeepl) -> None:
    results = open_deepl(served).translate_text(TEXTS, target_lang="DE")
    assert isinstance(results, list)
    assert [result.text for result in results] == expected(served)
    assert [result.detected_source_lang for result in results] == [code.upper() for code in CODES]
    listed = served.get("/v3/languages?resource=translate_text").json()
    assert all(("auto_detection" in entry["features"]) == entry["usable_as_source"] for entry in listed)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_of_several_languages_is_answered_as_a_whole_while_the_server_drains(
    tokenizer: Tokenizer, tmp_path: Path, *, stream: bool
) -> None:
    """The drain begins while the texts of its first language are translated."""
    for prefix, name in enumerate(("en-de", "fr-de"), 10):
        put_bundle(tmp_path / name, tokenizer, direction(name, prefix))
    models = {name: GatedModel(2) for name in ("en-de", "fr-de")}
    with (
        run_service(tmp_path, engines=1, slots=2, load=lambda _, bundle: [models[bundle.folder.name]]) as live,
        ThreadPoolExecutor() as pool,
    ):
        path = "/v1/translate/stream" if stream else "/v1/translate"
        whole = live.post({"text": [EN, FR], **AUTO}).json()["translations"]
        first = models["en-de"]
        first.gate.clear()
        requested = pool.submit(live.post, {"text": [EN, FR], **AUTO}, path=path)
        eventually(lambda: live.metric("sequences_running", model="en-de") == 1)
        live.stop()
        eventually(lambda: live.service.lifecycle.stage is Stage.DRAINING)
        first.gate.set()
        answer = requested.result(WAIT_SECONDS)
        assert answer.status_code == 200
        response = json.loads(answer.text.rsplit("data: ", 1)[1].partition("\n")[0]) if stream else answer.json()
        assert [translation["text"] for translation in response["translations"]] == [item["text"] for item in whole]
        live.join()
