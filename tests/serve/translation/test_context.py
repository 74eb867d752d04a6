"""Context chooses the pronoun of a translation, over every interface, and the answer states whether it was used."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman import command_line
from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.clients.client import TranslationClient
from dragoman.serve.clients.many import ManyItem
from dragoman.serve.registry.engine_models import load_models
from tests.support.cases import cases
from tests.support.commands import refusal
from tests.support.context_models import NOUNS, SEPARATOR, train_run
from tests.support.live import LiveService, run_service

CASES = cases(__file__)
CONTEXT = "lamp red"


@pytest.fixture(scope="module")
def trained(once: Callable[..., Path]) -> Path:
    """A folder with the run and the bundle of a model."""

    def train(folder: Path) -> None:
        folder.mkdir()
        train_run(folder)
        options = "--align", "0:0", "--context-separator", SEPARATOR
        command_line.run("export", [str(folder / "run"), "--out", str(folder / "bundle"), *options])

    return once("context_model", train)


@pytest.fixture(scope="module")
def live(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    state, table = tmp_path_factory.mktemp("state"), tmp_path_factory.mktemp("memory") / "table.tsv"
    table.write_text("lamp big\tGroße Lampe\n", encoding="utf-8")
    command_line.run("memory import", ["own", str(table), "en", "de", "--state-dir", str(state)])
    settings: dict[str, Any] = {"alignments": True, "state_dir": state, "result_cache_bytes": 1 << 20}
    with run_service(trained / "bundle", [], load=load_models, **settings) as live:
        yield live


def ask(live: LiveService, text: str, **fields: Any) -> Any:
    answer = live.post({"text": text, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["translations"][0]


@pytest.mark.parametrize("noun", NOUNS)
def test_a_pronoun_follows_the_noun_of_the_context(live: LiveService, noun: str) -> None:
    answer = ask(live, "it old", context=f"{noun} new")
    assert (answer["text"], answer["context_used"]) == (f"{NOUNS[noun][1]} alt", True)
    assert "context_used" not in ask(live, "it old")


@pytest.mark.parametrize(("fields", "text"), CASES["translations with context"])
def test_translations_with_context(live: LiveService, fields: dict[str, Any], text: str) -> None:
    answer = ask(live, **{"text": "it old", "context": CONTEXT, **fields})
    assert (answer["text"], answer["context_used"]) == (text, True)


@pytest.mark.parametrize("why", CASES["a sentence is translated as without context"])
def test_a_sentence_is_translated_as_without_context(live: LiveService, why: str) -> None:
    fields: dict[str, Any] = {"text": "it old", **CASES["a sentence is translated as without context"][why]}
    answer = ask(live, **{"context": CONTEXT, **fields})
    assert answer["context_used"] is False
    alone = ask(live, **{**fields, "context": ""})
    assert [answer[name] for name in ("text", "score")] == [alone[name] for name in ("text", "score")]


def test_scores_and_alignments_are_those_of_the_sentence_alone(live: LiveService) -> None:
    options = {"token_scores": True, "length_penalty": 0, "alignments": "words"}
    answer = ask(live, "it new", context=CONTEXT, options=options)
    assert [token["piece"] for token in answer["tokens"]] == ["\u2581sie", "\u2581neu", "</s>"]
    assert answer["score"] == answer["normalized_score"]
    assert answer["score"] == pytest.approx(sum(token["log_probability"] for token in answer["tokens"]))
    (found,) = answer["alignments"]
    assert (found["source"][1], found["target"][1]) == ({"start": 3, "end": 6}, {"start": 4, "end": 7})
    assert {"source": 1, "target": 1} in found["links"]


def test_a_cached_translation_is_that_with_the_same_context(live: LiveService) -> None:
    asked = [ask(live, "it big", context=context) for context in ("moon big", "door big", "moon big")]
    assert [each["text"] for each in asked] == ["er groß", "sie groß", "er groß"]
    assert [each["cached"] for each in asked] == [False, False, True]


def test_a_memory_answers_whatever_the_context_is(live: LiveService) -> None:
    answer = ask(live, "lamp big\nit old", context=CONTEXT, memory="own")
    # What a memory answers is not read as context either.
    assert (answer["text"], answer["origin"], answer["context_used"]) == ("Große Lampe\nsie alt", "mixed", True)


def test_every_interface_passes_context_on(live: LiveService, trained: Path) -> None:
    with TranslationClient.open(live.grpc_target) as client:
        asking: Any = {"context": CONTEXT}
        found = client.translate("it red", **asking).translations
        many = list(client.translate_many([ManyItem("it red", asking), ManyItem("it red")]))
        targets = client.translate("it red", target_languages=["de"], **asking).targets
        events: list[Any] = list(client.stream("it red\nit red", **asking))
    assert [(each.text, each.context_used) for each in found] == [("sie rot", True)]
    assert sorted(each.get().translations[0].text for each in many) == ["es rot", "sie rot"]
    assert targets is not None
    assert targets[0].translations[0].text == "sie rot"
    assert len(events) == 2
    assert events[0].text == events[1].translations[0].text
    of_deepl = {"text": ["it red"], "source_lang": "EN", "target_lang": "DE", "context": CONTEXT * 900 + "\nlamp red"}
    assert live.post(of_deepl, path="/v2/translate").json()["translations"][0]["text"] == "sie rot"
    with dragoman.Translator(trained / "bundle") as translator:
        assert translator.translate("it red", context=CONTEXT).context_used


@pytest.mark.parametrize("context", ["a" * 10_001, "a\0b"])
def test_a_wrong_context_is_refused_by_name(live: LiveService, context: str) -> None:
    assert live.post({"text": "it", "context": context}).json()["field"] == "context"
    error: Any = live.call_error(TranslateRequest(text=["it"], context=context))
    assert error.details().startswith("context: ")


def test_a_model_without_a_separator_ignores_context(bundle_path: Path) -> None:
    with run_service(bundle_path) as plain:
        answer = ask(plain, "alpha beta.", context="gamma.")
        assert (answer["text"], answer["context_used"]) == (ask(plain, "alpha beta.")["text"], False)


def test_a_bundle_that_is_exported_again_keeps_its_separator(trained: Path, tmp_path: Path) -> None:
    command_line.run("export", [str(trained / "bundle"), "--out", str(tmp_path / "b")])
    assert Bundle.open(tmp_path / "b").manifest.context_separator == SEPARATOR


@pytest.mark.parametrize("separator", ["§", "lamp  red", " |"])
def test_a_separator_that_the_tokenizer_does_not_keep_is_refused(trained: Path, tmp_path: Path, separator: str) -> None:
    arguments = str(trained / "run"), "--out", str(tmp_path / "b"), "--context-separator", separator
    assert f"context-separator: {separator!r}: expected a word that the tokenizer keeps" in refusal(
        "export", *arguments
    )
    assert not (tmp_path / "b").exists()
