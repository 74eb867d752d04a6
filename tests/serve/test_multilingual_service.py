"""A service with a multilingual model: its languages over every interface, and requests for any two of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.golden import golden_samples
from dragoman.export.imports.hugging_face import import_checkpoint
from dragoman.export.make_bundle import BundleOptions, write_bundle
from dragoman.protos.translation_pb2 import ListModelsRequest, ListModelsResponse, TranslateRequest
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.language_codes import flores_codes
from dragoman.serve.registry.engine_models import load_models
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from tests.support.live import LiveService, run_service
from tests.support.marian import make_texts
from tests.support.multilingual import write_nllb

TEXTS = list(make_texts(5, 6))
LIMITS: dict[str, Any] = {"engines": 1, "slots": 8, "device": "cpu"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("nllb")
    write_nllb(folder / "m")
    exportable = import_checkpoint(folder / "m", ImportOptions(max_source_tokens=40, max_target_tokens=21))
    options = BundleOptions("nllb", precision="int8")
    return write_bundle(exportable, golden_samples(exportable), folder / "bundle", options)


@pytest.fixture(scope="module")
def served(bundle: Bundle) -> Iterator[LiveService]:
    with run_service(bundle.folder, [], load=load_models, **LIMITS) as live:
        yield live


def translated(live: LiveService, source: str, target: str, **options: Any) -> Any:
    answer = live.post({"text": TEXTS, "source_language": source, "target_language": target, "options": options})
    assert answer.status_code == 200, answer.text
    return [(item["text"], item["target_tokens"], item["score"]) for item in answer.json()["translations"]]


def test_codes_of_flores_and_of_iso_639_name_the_same_language(served: LiveService) -> None:
    german = translated(served, "eng_Latn", "deu_Latn")
    assert translated(served, "en", "de") == german
    assert translated(served, "en", "fr") != german
    assert translated(served, "fr", "de") != german


@pytest.mark.skipif(bool(why_no_kernels()), reason=why_no_kernels())
def test_the_native_engine_translates_like_the_one_in_python(served: LiveService, bundle: Bundle) -> None:
    with run_service(bundle.folder, [], **LIMITS) as native:
        for options in ({}, {"beam_size": 4}, {"temperature": 1.0, "seed": 3}):
            assert translated(native, "en", "zh-Hant", **options) == translated(served, "en", "zh-Hant", **options)


def test_a_stream_has_the_same_text_without_the_language_token(served: LiveService) -> None:
    with served.call_stream(TranslateRequest(text=TEXTS[:1], source_language="en", target_language="de")) as events:
        *deltas, result = events
    text = translated(served, "en", "de")[0][0]
    assert "".join(delta.delta.text for delta in deltas) == result.result.translations[0].text == text


def test_several_targets_have_the_translations_of_a_request_for_each(served: LiveService) -> None:
    answer = served.post({"text": TEXTS, "source_language": "en", "target_languages": ["de", "fr", "zh-Hant"]}).json()
    for target in answer["targets"]:
        found = [(item["text"], item["target_tokens"], item["score"]) for item in target["translations"]]
        assert found == translated(served, "en", target["target_language"])


@pytest.mark.skipif(bool(why_no_kernels()), reason=why_no_kernels())
def test_a_native_engine_encodes_a_text_once_for_all_targets(bundle: Bundle) -> None:
    with run_service(bundle.folder, [], **LIMITS) as native:
        wanted = {"text": TEXTS[:1], "source_language": "en", "target_languages": ["de", "fr", "zh-Hant", "cs"]}
        encoded = []
        for _ in range(2):
            native.get("/metrics")
            encoded.append(native.metric("engine_step_sequences_sum", phase="encode"))
            assert native.post(wanted).status_code == 200
        assert encoded[1] - encoded[0] == 1


def test_unknown_languages_are_refused_with_the_languages_of_the_model(served: LiveService) -> None:
    answer = served.post({"text": TEXTS, "source_language": "en", "target_language": "tlh"})
    assert answer.status_code == 400
    assert "'tlh', expected the target of one of any two of ace ace-Arab" in answer.text
    assert served.post({"text": TEXTS, "source_language": "en", "target_language": "eng_Latn"}).status_code == 400


def test_every_interface_lists_the_languages(served: LiveService) -> None:
    everything = set(flores_codes().values())
    (model,) = served.get("/v1/models").json()["models"]
    assert (model["directions"], set(model["languages"])) == ([], everything)
    assert set(served.stub("ListModels", ListModelsRequest(), ListModelsResponse).models[0].languages) == everything
    libretranslate = {item["code"]: item["targets"] for item in served.get("/languages").json()}
    assert len(libretranslate) == len(everything)
    assert {len(targets) for targets in libretranslate.values()} == {len(everything)}
    answer = served.get("/v2/languages?type=source").json()
    written = {"nb" if item == "no" else item.lower() for item in everything}
    assert {item["language"].lower() for item in answer} == written


def test_improbable_translations_have_low_confidence_over_both_protocols(served: LiveService, bundle: Bundle) -> None:
    confidence = bundle.manifest.confidence
    assert confidence is not None
    translations = served.post({"text": TEXTS, "source_language": "en", "target_language": "de"}).json()["translations"]
    for translation in translations:
        mean = translation["score"] / (translation["target_tokens"] + translation["sentences"])
        assert translation["low_confidence"] == (mean < confidence.mean - 2.5 * confidence.deviation)
    (best,) = served.call(TranslateRequest(text=TEXTS[:1], source_language="en", target_language="de")).translations
    assert best.HasField("low_confidence")
    assert best.low_confidence == translations[0]["low_confidence"]


def test_other_interfaces_translate_into_scripts_and_regions(served: LiveService) -> None:
    german, traditional = translated(served, "en", "de"), translated(served, "en", "zho_Hant")
    for code, expected in (("DE", german), ("deu_Latn", german), ("ZH-HANT", traditional), ("zh-TW", traditional)):
        answer = served.post({"text": TEXTS, "source_lang": "EN", "target_lang": code}, path="/v2/translate")
        assert answer.status_code == 200, answer.text
        assert [translation["text"] for translation in answer.json()["translations"]] == [text for text, *_ in expected]


def test_a_detected_language_is_one_of_the_model(served: LiveService) -> None:
    text = "Ein brauner Hund springt über einen Holzzaun."
    answer = served.post({"text": [text], "source_language": "auto", "target_language": "eng_Latn"}).json()
    assert answer["translations"][0]["detected_language"]["code"] == "de"
    unchanged = served.post({"text": [text], "source_language": "auto", "target_language": "deu_Latn"}).json()
    assert unchanged["translations"][0]["text"] == text
