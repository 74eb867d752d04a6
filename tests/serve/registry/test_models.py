"""Several models behind both interfaces: choice of models, pivots, and descriptions of models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from pydantic import TypeAdapter

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.protos import translation_pb2 as messages
from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.protect.alignment import Alignment, compose
from tests.support.cases import cases
from tests.support.fake_bundles import LONG_TEXT, MAX_TARGET_TOKENS, direction, load_fakes, put_bundle
from tests.support.fakes import DESCRIPTION, EOS_ID, FakeModel, translate
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service
from tests.support.wire import score_over_both

CASES = cases(__file__)

Answer = dict[str, Any]
SERVICE = "dragoman.v1.TranslationService"
PREFIXES = {"all": (7,), "de-en": (16,), "en-de": (17,), "fr-en": (10,)}
FR_DE = {"source_language": "fr", "target_language": "de"}
PIVOT = {**FR_DE, "allow_pivot": True}


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


@pytest.fixture
def models() -> dict[str, FakeModel]:
    return {name: FakeModel(2) for name in PREFIXES}


@pytest.fixture
def own(folder: Path, models: dict[str, FakeModel]) -> Iterator[LiveService]:
    """A service whose models a test may break."""
    with run_service(folder, load=lambda _, bundle: [models[bundle.folder.name]], engines=1, slots=2) as live:
        yield live


def expected(tokenizer: Tokenizer, text: str, model: str) -> str:
    source_ids = (*PREFIXES[model], *tokenizer.encode(text), EOS_ID)
    return tokenizer.decode(translate(source_ids, MAX_TARGET_TOKENS)[0])


def ask(live: LiveService, **fields: Any) -> Answer:
    """Sends a request over both interfaces; returns the response, which is equal except for times."""
    rest = live.post(fields)
    assert rest.status_code == 200, rest.text
    message = live.call(messages.TranslateRequest(**{**fields, "text": [fields["text"]]}))
    answer: Answer = rest.json()
    assert message.model == answer["model"]
    pivot = answer.get("pivot")
    assert (MessageToDict(message.pivot) if message.HasField("pivot") else None) == pivot
    (translation,) = answer["translations"]
    assert (message.translations[0].text, message.translations[0].score) == (translation["text"], translation["score"])
    return {**translation, "model": answer["model"], "pivot": pivot}


def rejected(live: LiveService, **fields: Any) -> tuple[int, str]:
    """Sends an invalid request over both interfaces; returns status and field."""
    rest = live.post(fields)
    error: Any = live.call_error(messages.TranslateRequest(**{**fields, "text": [fields["text"]]}))
    problem = rest.json()
    assert error.details() == problem["detail"]
    return rest.status_code, problem["field"]


@pytest.mark.parametrize(("fields", "model"), CASES["the named model or the first with the direction answers"])
def test_the_named_model_or_the_first_with_the_direction_answers(
    many: LiveService, tokenizer: Tokenizer, fields: Answer, model: str
) -> None:
    """A model with one direction comes before one with several."""
    answer = ask(many, text=LONG_TEXT, **fields)
    assert (answer["model"], answer["pivot"]) == (model, None)
    assert answer["text"] == expected(tokenizer, LONG_TEXT, model)


def test_the_models_answer_differently(tokenizer: Tokenizer) -> None:
    """Otherwise the other tests of this file would prove nothing."""
    assert len({expected(tokenizer, LONG_TEXT, model) for model in PREFIXES}) == len(PREFIXES)


def test_a_text_is_translated_through_a_pivot_if_the_client_allows_it(many: LiveService, tokenizer: Tokenizer) -> None:
    answer = ask(many, text=LONG_TEXT, **PIVOT)
    assert answer["text"] == expected(tokenizer, expected(tokenizer, LONG_TEXT, "fr-en"), "en-de")
    assert (answer["model"], answer["pivot"]) == ("en-de", {"language": "en", "model": "fr-en"})
    assert answer["source_tokens"] == len(tokenizer.encode(LONG_TEXT)) + 2


def test_alignments_through_a_pivot_link_the_texts_of_the_client(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Sentence by sentence, with the alignments of both models multiplied."""
    for name in ("en-de", "fr-en"):
        put_bundle(tmp_path / name, tokenizer, direction(name, *PREFIXES[name]), aligned=True)
    text = f"{LONG_TEXT}\nalpha one."
    with run_service(tmp_path, load=load_fakes, alignments=True) as live:
        options = {"alignments": "words"}
        answer = ask(live, text=text, **PIVOT, options=options)
        between = ask(live, text=text, model="fr-en", options=options)
        last = ask(live, text=between["text"], model="en-de", options=options)
    hops = [TypeAdapter(tuple[Alignment, ...]).validate_python(hop["alignments"]) for hop in (between, last)]
    expected = TypeAdapter(tuple[Alignment, ...]).dump_python(compose(*hops), mode="json")
    assert answer["text"] == last["text"]
    assert answer["alignments"] == expected
    sources = [span for item in expected for span in item["source"]]
    assert {text[span["start"] : span["end"]] for span in sources} <= {"gamma", "beta", "alpha", "one", "."}
    assert len(expected) == last["sentences"] > 1


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"model": "none"}, 404, "model"),
        ({}, 400, "target_language"),
        (FR_DE, 400, "source_language"),
        ({**PIVOT, "options": {"alignments": "words"}}, 400, "options.alignments"),
        ({**PIVOT, "options": {"suppressed_tokens": ["no such piece"]}}, 400, "options.suppressed_tokens[0]"),
    ],
)
def test_an_invalid_choice_names_a_field_at_no_cost(many: LiveService, fields: Answer, status: int, field: str) -> None:
    """Also if only the second model of a pivot rejects the request."""
    many.settle()
    before = many.metric("engine_steps_total")
    assert rejected(many, text="one", **fields) == (status, field)
    assert many.metric("engine_steps_total") == before


def test_options_apply_to_the_last_translation_of_a_pivot(many: LiveService, tokenizer: Tokenizer) -> None:
    own = {"target_prefix": ["alpha"], "options": {"max_target_tokens": 4, "token_scores": True}}
    answer = ask(many, text=LONG_TEXT, **own, **PIVOT)
    assert answer["target_tokens"] == 4
    assert answer["text"].startswith("alpha")
    between = expected(tokenizer, LONG_TEXT, "fr-en")
    direct = ask(many, text=between, **own, model="en-de", split_sentences=False)
    assert (answer["tokens"], answer["score"]) == (direct["tokens"], direct["score"])


def test_a_sampled_pivot_is_reproduced_by_the_seed_of_the_response(many: LiveService) -> None:
    """A sampled pivot text may be blank, which the second model refuses."""

    def sample(**options: float) -> Answer | None:
        body = {"text": LONG_TEXT, **PIVOT, "options": {"temperature": 1.0, **options}}
        translations: list[Answer] = many.post(body).json().get("translations", [None])
        return translations[0]

    first = next(filter(None, (sample() for _ in range(100))))
    assert sample(seed=first["seed"]) == first


def test_a_text_in_the_pivot_language_may_be_too_long_for_the_next_model(tokenizer: Tokenizer, tmp_path: Path) -> None:
    for name in ("fr-en", "en-de"):
        put_bundle(tmp_path / name, tokenizer, direction(name, *PREFIXES[name]))
    assert len(expected(tokenizer, LONG_TEXT, "fr-en")) > len(LONG_TEXT)
    own = {"en-de": {"max_text_characters": len(LONG_TEXT)}}
    with run_service(tmp_path, load=load_fakes, own_settings=own) as live:
        assert rejected(live, text=LONG_TEXT, **PIVOT) == (400, "text[0]")


def test_scores_come_from_the_chosen_model(letters: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "a", letters, direction("en-de", 7))
    put_bundle(tmp_path / "b", letters, direction("de-en", 8))
    request = {"pairs": [{"text": "ab ba", "translation": "ba"}]}
    with run_service(tmp_path, load=load_fakes) as live:
        chosen = [{**request, "target_language": language} for language in ("de", "en")]
        assert [live.post(item, path="/v1/score").json()["model"] for item in chosen] == ["a", "b"]
        assert len({score_over_both(live, item)[0]["score"] for item in chosen}) == 2


def as_json(model: messages.Model) -> Answer:
    written = MessageToDict(model, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {**written, "state": written["state"].removeprefix("MODEL_STATE_").lower()}


def test_models_are_listed_with_their_limits_in_the_order_in_which_requests_choose(many: LiveService) -> None:
    """Both interfaces list and describe them equally."""
    listed = many.get("/v1/models").json()["models"]
    assert [entry["name"] for entry in listed] == ["de-en", "en-de", "fr-en", "all"]
    assert listed[3]["directions"] == [{"source_language": "en", "target_language": name} for name in ("de", "cs")]
    assert {entry["state"] for entry in listed} == {"ready"}
    assert {entry["description"] for entry in listed} == {DESCRIPTION}
    sizes = {"max_source_tokens": 60, "max_target_tokens": 20, "max_texts": 3, "max_text_characters": 10_000}
    assert listed[0]["limits"] == {**sizes, "slots": 4, "engine_slots": 2, "queue_limit": 16}
    message = many.stub("ListModels", messages.ListModelsRequest(), messages.ListModelsResponse)
    assert [as_json(model) for model in message.models] == listed
    assert many.get("/v1/models/all").json() == listed[3]
    assert as_json(many.stub("GetModel", messages.GetModelRequest(name="all"), messages.Model)) == listed[3]


def test_the_description_of_an_unknown_model_is_not_found(many: LiveService) -> None:
    assert (many.get("/v1/models/none").status_code, many.get("/v1/models/").status_code) == (404, 404)
    with pytest.raises(grpc.RpcError) as raised:
        many.stub("GetModel", messages.GetModelRequest(name="none"), messages.Model)
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.NOT_FOUND


def test_a_model_has_limits_of_its_own(many: LiveService) -> None:
    four = {"text": ["one"] * 4}
    assert many.post({**four, "model": "de-en"}).json()["field"] == "text"
    assert many.post({**four, "model": "en-de"}).status_code == 200


def test_a_request_is_counted_by_the_model_that_answers_it(many: LiveService) -> None:
    def counts() -> dict[str, float]:
        many.settle()
        return {model: many.metric("requests_total", model=model) for model in (*PREFIXES, "")}

    before = counts()
    for fields in (PIVOT, {"text": " ", "model": "fr-en"}, {"model": "none"}):
        many.post({"text": "one", **fields})
    increase = {model: count - before[model] for model, count in counts().items()}
    assert increase == {"all": 0, "de-en": 0, "en-de": 1, "fr-en": 1, "": 1}


def break_model(live: LiveService, model: FakeModel) -> None:
    """Fails three requests of the model fr-en, after which it is not ready."""
    model.decode_error = RuntimeError("broken")
    assert [live.post({"text": "one", "model": "fr-en"}).status_code for _ in range(3)] == [500] * 3
    eventually(lambda: live.health(f"{SERVICE}/fr-en") == "NOT_SERVING")


def test_a_failing_model_refuses_and_makes_the_service_unready(own: LiveService, models: dict[str, FakeModel]) -> None:
    """Other models continue to serve; every model has a health of its own."""
    eventually(lambda: {own.health(f"{SERVICE}/{name}") for name in PREFIXES} == {"SERVING"})
    break_model(own, models["fr-en"])
    assert own.get("/readyz").json()["detail"].startswith("fr-en: ")
    assert own.post({"text": "one", "model": "fr-en"}).status_code == 503
    assert own.get("/v1/models/fr-en").json()["state"] == "failed"
    assert own.post({"text": "one", "model": "en-de"}).status_code == 200
    models["fr-en"].decode_error = None
    eventually(lambda: own.get("/readyz").status_code == 200)


def test_the_watch_continues_after_an_unexpected_error(
    own: LiveService, models: dict[str, FakeModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a transient error would exclude a working model forever."""
    failures = {"warm_up": 2, "_publish_health": 2, "write": 2}

    def fail_twice(target: Any, name: str) -> None:
        work = getattr(target, name)

        async def fail_or_work() -> None:
            if failures[name]:
                failures[name] -= 1
                raise ZeroDivisionError(name)
            await work()

        monkeypatch.setattr(target, name, fail_or_work)

    fail_twice(own.service.models.get("fr-en").pipeline, "warm_up")
    fail_twice(own.service, "_publish_health")
    fail_twice(own.service.core.security.accounts, "write")
    break_model(own, models["fr-en"])
    models["fr-en"].decode_error = None
    eventually(lambda: own.health(f"{SERVICE}/fr-en") == "SERVING")
    eventually(lambda: not any(failures.values()))


def test_the_service_is_ready_when_every_model_is(folder: Path, models: dict[str, FakeModel]) -> None:
    models["fr-en"] = slow = GatedModel(2)
    slow.gate.clear()
    try:
        with run_service(
            folder, load=lambda _, bundle: [models[bundle.folder.name]], wait_ready=False, engines=1, slots=2
        ) as live:
            assert slow.stepping.wait(WAIT_SECONDS)
            assert live.get("/readyz").status_code == 503
            assert live.get("/v1/models/fr-en").json()["state"] == "loading"
            assert live.post({"text": "one", "model": "en-de"}).json()["reason"] == "not_ready"
            slow.gate.set()
            eventually(lambda: live.get("/readyz").status_code == 200)
    finally:
        slow.gate.set()


def test_one_wrong_bundle_keeps_the_service_from_becoming_ready(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "good", tokenizer, direction("en-de"))
    put_bundle(tmp_path / "wrong", tokenizer, direction("de-en"), wrong=True)
    with pytest.raises(BundleError), run_service(tmp_path, load=load_fakes):
        pass
