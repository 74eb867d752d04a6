"""Several models behind both interfaces: choice of models, pivots, and descriptions of models."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from model.tokenizer.tokenizer import Tokenizer
from protos.translation_pb2 import (
    GetModelRequest,
    ListModelsRequest,
    ListModelsResponse,
    Model,
    ScoreRequest,
    SearchOptions,
    TextPair,
    TranslateRequest,
)
from tests.support.fakes import EOS_ID, FakeModel, translate
from tests.support.live import (
    LONG_TEXT,
    MAX_TARGET_TOKENS,
    GatedModel,
    LiveService,
    direction,
    eventually,
    load_fakes,
    put_bundle,
    run_service,
)

Answer = dict[str, Any]
SERVICE = "dragoman.v1.TranslationService"
PREFIXES = {"all": (7,), "de-en": (8,), "en-de": (9,), "fr-en": (10,)}
FR_DE = {"source_language": "fr", "target_language": "de"}


@pytest.fixture(scope="module")
def folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four models; each translates the same text differently."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("de-en", "en-de", "fr-en"):
        put_bundle(folder / name, tokenizer, direction(name, *PREFIXES[name]))
    put_bundle(folder / "all", tokenizer, direction("en-de", *PREFIXES["all"]), direction("en-cs", *PREFIXES["all"]))
    return folder


@pytest.fixture(scope="module")
def many(folder: Path) -> Iterator[LiveService]:
    with run_service(folder, load=load_fakes, own_settings={"de-en": {"slots": 2, "max_texts": 3}}) as live:
        yield live


def expected(tokenizer: Tokenizer, text: str, model: str) -> str:
    """Returns the translation of a text by a model."""
    source_ids = (*PREFIXES[model], *tokenizer.encode(text), EOS_ID)
    return tokenizer.decode(translate(source_ids, MAX_TARGET_TOKENS)[0])


def ask(live: LiveService, **fields: Any) -> Answer:
    """Sends a request over both interfaces; returns the response, which is equal except for times."""
    rest = live.post(fields)
    assert rest.status_code == 200, rest.text
    message = live.call(TranslateRequest(**{**fields, "text": [fields["text"]]}))
    answer: Answer = rest.json()
    assert message.model == answer["model"]
    pivot = answer.get("pivot")
    assert (MessageToDict(message.pivot) if message.HasField("pivot") else None) == pivot
    (translation,) = answer["translations"]
    assert (message.translations[0].text, message.translations[0].score) == (translation["text"], translation["score"])
    return {**translation, "model": answer["model"], "pivot": pivot, "timings": answer["timings"]}


def refuse(live: LiveService, **fields: Any) -> tuple[int, str, str | None, str]:
    """Sends an invalid request over both interfaces; returns status, reason, field and the common message."""
    rest = live.post(fields)
    error: Any = live.call_error(TranslateRequest(**{**fields, "text": [fields["text"]]}))
    problem = rest.json()
    assert error.details() == problem["detail"]
    return rest.status_code, problem["reason"], problem.get("field"), problem["detail"]


@pytest.mark.parametrize(
    ("fields", "model"),
    [
        ({"source_language": "en", "target_language": "de"}, "en-de"),
        ({"target_language": "de"}, "en-de"),
        ({"target_language": "cs"}, "all"),
        ({"target_language": "de", "model": "all"}, "all"),
        ({"model": "fr-en"}, "fr-en"),
    ],
)
def test_the_model_that_is_named_or_has_the_direction_answers_and_is_told(
    many: LiveService, tokenizer: Tokenizer, fields: Answer, model: str
) -> None:
    """A model with one direction comes before one with several."""
    answer = ask(many, text=LONG_TEXT, **fields)
    assert (answer["model"], answer["pivot"]) == (model, None)
    assert answer["text"] == expected(tokenizer, LONG_TEXT, model)


def test_the_models_answer_differently(tokenizer: Tokenizer) -> None:
    """Otherwise the other tests of this file would prove nothing."""
    assert len({expected(tokenizer, LONG_TEXT, model) for model in PREFIXES}) == len(PREFIXES)


def test_an_unknown_model_is_not_found(many: LiveService) -> None:
    detail = "model: 'none', expected one of de-en, en-de, fr-en, all"
    assert refuse(many, text="one", model="none") == (404, "model_not_found", "model", detail)
    error: Any = many.call_error(TranslateRequest(text=["one"], model="none"))
    assert error.code() is grpc.StatusCode.NOT_FOUND


def test_a_direction_that_is_not_clear_is_refused_as_by_one_model(many: LiveService) -> None:
    detail = "target_language: '', expected the target of one of de-en, en-de, fr-en, en-cs"
    assert refuse(many, text="one") == (400, "invalid", "target_language", detail)


def test_without_a_direction_a_text_goes_by_way_of_a_pivot_if_that_is_allowed(
    many: LiveService, tokenizer: Tokenizer
) -> None:
    answer = ask(many, text=LONG_TEXT, allow_pivot=True, **FR_DE)
    between = expected(tokenizer, LONG_TEXT, "fr-en")
    assert answer["text"] == expected(tokenizer, between, "en-de")
    assert (answer["model"], answer["pivot"]) == ("en-de", {"language": "en", "model": "fr-en"})
    assert answer["source_tokens"] == len(tokenizer.encode(LONG_TEXT)) + 2


def test_without_allow_pivot_the_error_names_a_possible_pivot(many: LiveService) -> None:
    status, _, field, detail = refuse(many, text="one", **FR_DE)
    assert (status, field) == (400, "source_language")
    assert detail.endswith("; allow_pivot would translate through en")


def test_the_options_of_the_last_text_do_not_cut_the_text_between(many: LiveService, tokenizer: Tokenizer) -> None:
    prefix = "alpha"
    fields = {"text": LONG_TEXT, "target_prefix": [prefix], "allow_pivot": True, **FR_DE}
    answer = ask(many, options=SearchOptionsFields(max_target_tokens=4, token_scores=True), **fields)
    assert answer["target_tokens"] == 4
    assert answer["text"].startswith(prefix)
    between = expected(tokenizer, LONG_TEXT, "fr-en")
    direct = ask(
        many,
        text=between,
        target_prefix=[prefix],
        options=SearchOptionsFields(max_target_tokens=4, token_scores=True),
        model="en-de",
        split_sentences=False,
    )
    assert (answer["tokens"], answer["score"]) == (direct["tokens"], direct["score"])


def SearchOptionsFields(**options: Any) -> Answer:  # noqa: N802 - stands for the message
    """Returns options for both interfaces: JSON, which is also the constructor's form."""
    return {field.name: value for field, value in SearchOptions(**options).ListFields()}


def test_a_sampled_pivot_can_be_drawn_again_with_the_seed_of_the_answer(many: LiveService) -> None:
    fields = {"text": LONG_TEXT, "allow_pivot": True, **FR_DE}
    first = many.post({**fields, "options": {"temperature": 1.0}}).json()["translations"][0]
    again = many.post({**fields, "options": {"temperature": 1.0, "seed": first["seed"]}}).json()["translations"][0]
    assert again == first


def test_alignments_with_a_pivot_are_refused(many: LiveService) -> None:
    status, _, field, _ = refuse(many, text="one", allow_pivot=True, options={"alignments": True}, **FR_DE)
    assert (status, field) == (400, "options.alignments")


def test_what_the_second_model_would_refuse_costs_no_translation(many: LiveService) -> None:
    many.settle()
    before = many.metric("engine_steps_total", model="fr-en")
    status, _, field, _ = refuse(
        many, text="one", allow_pivot=True, options={"suppressed_tokens": ["no such piece"]}, **FR_DE
    )
    assert (status, field) == (400, "options.suppressed_tokens[0]")
    assert many.metric("engine_steps_total", model="fr-en") == before


def test_a_text_that_is_too_long_for_the_second_model_is_told_from_one_that_is_for_the_first(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """The first model writes more characters than the second one reads."""
    put_bundle(tmp_path / "fr-en", tokenizer, direction("fr-en", *PREFIXES["fr-en"]))
    put_bundle(tmp_path / "en-de", tokenizer, direction("en-de", *PREFIXES["en-de"]))
    between = expected(tokenizer, LONG_TEXT, "fr-en")
    own = {"en-de": {"max_text_characters": len(LONG_TEXT)}}
    assert len(between) > len(LONG_TEXT)
    with run_service(tmp_path, load=load_fakes, own_settings=own) as live:
        status, _, field, detail = refuse(live, text=LONG_TEXT, allow_pivot=True, **FR_DE)
    assert (status, field) == (400, "text[0]")
    problem = f"{len(between)} characters, expected at most {len(LONG_TEXT)}"
    assert detail == f"text[0]: translation into the pivot language en: {problem}"


def test_scores_come_from_the_model_that_is_chosen(letters: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "a", letters, direction("en-de", 7))
    put_bundle(tmp_path / "b", letters, direction("de-en", 8))
    pair = {"text": "ab ba", "translation": "ba"}
    with run_service(tmp_path, load=load_fakes) as live:
        answers = [
            live.post({"pairs": [pair], "target_language": language}, path="/v1/score").json()
            for language in ("de", "en")
        ]
        messages = [
            live.call_score(ScoreRequest(pairs=[TextPair(**pair)], target_language=language))
            for language in ("de", "en")
        ]
    assert [answer["model"] for answer in answers] == [message.model for message in messages] == ["a", "b"]
    assert len({answer["scores"][0]["score"] for answer in answers}) == 2


def test_models_are_listed_in_the_order_in_which_requests_choose(many: LiveService) -> None:
    """Both interfaces list them with their limits."""
    listed = many.get("/v1/models").json()["models"]
    assert [each["name"] for each in listed] == ["de-en", "en-de", "fr-en", "all"]
    assert listed[3]["directions"] == [
        {"source_language": "en", "target_language": "de"},
        {"source_language": "en", "target_language": "cs"},
    ]
    assert {each["state"] for each in listed} == {"ready"}
    assert listed[0]["limits"] == {
        "max_source_tokens": 60,
        "max_target_tokens": 20,
        "max_texts": 3,
        "max_text_characters": 10_000,
        "slots": 4,
        "engine_slots": 2,
        "queue_limit": 16,
    }
    message = many.stub("ListModels", ListModelsRequest(), ListModelsResponse)
    assert [as_json(each) for each in message.models] == listed


def as_json(model: Model) -> Answer:
    """Returns a model as REST writes it."""
    written = MessageToDict(model, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {**written, "state": written["state"].removeprefix("MODEL_STATE_").lower()}


def test_one_model_is_described_by_its_name(many: LiveService) -> None:
    told = many.get("/v1/models/all").json()
    assert told == many.get("/v1/models").json()["models"][3]
    assert as_json(many.stub("GetModel", GetModelRequest(name="all"), Model)) == told
    assert (many.get("/v1/models/none").status_code, many.get("/v1/models/").status_code) == (404, 404)
    with pytest.raises(grpc.RpcError) as refused:
        many.stub("GetModel", GetModelRequest(name="none"), Model)
    error: Any = refused.value
    assert error.code() is grpc.StatusCode.NOT_FOUND


def test_a_model_has_limits_of_its_own(many: LiveService) -> None:
    four = {"text": ["one"] * 4}
    assert many.post({**four, "model": "de-en"}).json()["detail"] == "text: 4 texts, expected 1 to 3"
    assert many.post({**four, "model": "en-de"}).status_code == 200


def test_a_request_is_counted_by_the_model_that_answers_it(many: LiveService) -> None:
    many.settle()
    before = {model: many.metric("requests_total", model=model) for model in (*PREFIXES, "")}
    many.post({"text": "one", "allow_pivot": True, **FR_DE})
    many.post({"text": " ", "model": "fr-en"})
    many.post({"text": "one", "model": "none"})
    many.settle()
    after = {model: many.metric("requests_total", model=model) for model in (*PREFIXES, "")}
    assert {model: after[model] - before[model] for model in after} == {
        "all": 0,
        "de-en": 0,
        "en-de": 1,
        "fr-en": 1,
        "": 1,
    }


def test_every_model_has_a_health_of_its_own(many: LiveService) -> None:
    assert {many.health(f"{SERVICE}/{name}") for name in PREFIXES} == {"SERVING"}


def test_a_failing_model_refuses_requests_and_makes_the_service_unready(folder: Path) -> None:
    """Other models continue to serve."""
    models = {name: FakeModel(2) for name in PREFIXES}
    with run_service(
        folder, load=lambda _, bundle: [models[bundle.folder.name]], engines=1, slots=2, lame_duck_seconds=0
    ) as live:
        models["fr-en"].decode_error = RuntimeError("broken")
        assert [live.post({"text": "one", "model": "fr-en"}).status_code for _ in range(3)] == [500] * 3
        eventually(lambda: live.health(f"{SERVICE}/fr-en") == "NOT_SERVING")
        assert live.get("/readyz").json()["detail"].startswith("fr-en: ")
        assert live.post({"text": "one", "model": "fr-en"}).status_code == 503
        assert live.get("/v1/models/fr-en").json()["state"] == "failed"
        assert live.post({"text": "one", "model": "en-de"}).status_code == 200
        models["fr-en"].decode_error = None
        eventually(lambda: live.get("/readyz").status_code == 200)


def test_the_watch_continues_after_an_unexpected_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a transient error would keep a working model out forever."""
    models = {name: FakeModel(2) for name in PREFIXES}
    with run_service(
        folder, load=lambda _, bundle: [models[bundle.folder.name]], engines=1, slots=2, lame_duck_seconds=0
    ) as live:
        served = next(each for each in live.service.models if each.name == "fr-en")
        warm_up, publish = served.pipeline.warm_up, live.service._publish_health
        stumbles = {"warm up": 2, "publish": 2}

        def stumble(where: str) -> None:
            if stumbles[where]:
                stumbles[where] -= 1
                raise ZeroDivisionError(where)

        async def stumble_and_warm_up() -> None:
            stumble("warm up")
            await warm_up()

        async def stumble_and_publish() -> None:
            stumble("publish")
            await publish()

        monkeypatch.setattr(served.pipeline, "warm_up", stumble_and_warm_up)
        monkeypatch.setattr(live.service, "_publish_health", stumble_and_publish)
        models["fr-en"].decode_error = RuntimeError("broken")
        assert [live.post({"text": "one", "model": "fr-en"}).status_code for _ in range(3)] == [500] * 3
        eventually(lambda: live.health(f"{SERVICE}/fr-en") == "NOT_SERVING")
        models["fr-en"].decode_error = None
        eventually(lambda: live.health(f"{SERVICE}/fr-en") == "SERVING")
        assert stumbles == {"warm up": 0, "publish": 0}


def test_it_is_ready_when_every_model_is(folder: Path) -> None:
    slow = GatedModel(2)
    slow.gate.clear()
    try:
        with run_service(
            folder,
            load=lambda _, bundle: [slow if bundle.folder.name == "fr-en" else FakeModel(2)],
            wait_ready=False,
            engines=1,
            slots=2,
        ) as live:
            assert slow.stepping.wait(20)
            assert live.get("/readyz").status_code == 503
            states = {each["name"]: each["state"] for each in live.get("/v1/models").json()["models"]}
            assert states["fr-en"] == "loading"
            assert live.post({"text": "one", "model": "en-de"}).json()["detail"] == "warming up"
            slow.gate.set()
            eventually(lambda: live.get("/readyz").status_code == 200)
    finally:
        slow.gate.set()


def test_the_documentation_lists_the_models(many: LiveService) -> None:
    document = json.dumps(many.get("/openapi.json").json())
    assert "/v1/models/{name}" in document
    assert "allow_pivot" in document
    assert "/v1/admin/reload" not in document, "without a key there is no such call"


def test_one_wrong_bundle_keeps_the_service_from_becoming_ready(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "good", tokenizer, direction("en-de"))
    put_bundle(tmp_path / "wrong", tokenizer, direction("de-en"), wrong=True)
    with (
        pytest.raises(Exception, match=r"^golden sentence 0: target tokens"),
        run_service(tmp_path, load=load_fakes),
    ):
        pass
