"""Translation in this process, by an engine in Python, equals the fake model's translation of each text alone."""

import asyncio
from pathlib import Path
from typing import Unpack

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.local.errors import InvalidArgumentError
from dragoman.serve.local.options import RequestFields
from dragoman.serve.local.translator import LocalTranslator
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.response import TranslationDelta
from tests.support.fake_bundles import LONG_TEXT, MAX_TARGET_TOKENS, direction, put_bundle
from tests.support.fakes import EOS_ID, FakeModel
from tests.support.fakes import translate as translate_alone

SLOTS = 2


@pytest.fixture(autouse=True)
def _fake_models(monkeypatch: pytest.MonkeyPatch, restored_logs: None) -> None:
    """Replaces the graphs, which the bundle lacks, by a fake model."""
    del restored_logs
    monkeypatch.setattr("dragoman.serve.local.dispatcher.load_engines", lambda *_: [FakeModel(SLOTS)])
    for name, number in {"SLOTS": SLOTS, "ENGINES": 1}.items():
        monkeypatch.setenv(f"DRAGOMAN_{name}", str(number))


def translate(bundle: Path, *texts: str, **wanted: Unpack[RequestFields]) -> list[str]:
    async def collect() -> list[str]:
        async with LocalTranslator(bundle) as translator:
            return [translation.text for translation in await translator.translate(texts, **wanted)]

    return asyncio.run(collect())


def expected(tokenizer: Tokenizer, text: str, *prefix: int) -> str:
    target_ids, _, _ = translate_alone((*prefix, *tokenizer.encode(text), EOS_ID), MAX_TARGET_TOKENS)
    return tokenizer.decode(target_ids)


def test_each_text_is_translated_as_if_alone(bundle_path: Path, tokenizer: Tokenizer) -> None:
    texts = [f"{word} beta gamma." for word in ("one", "two", "three", "house", "garden", "river")]
    assert translate(bundle_path, *texts) == [expected(tokenizer, text) for text in texts]


def test_texts_of_many_sentences_wait_for_room(bundle_path: Path) -> None:
    """Each needs twice the slots that there are."""
    assert len(set(translate(bundle_path, *["alpha. beta. alpha beta. beta alpha."] * 8))) == 1


def test_a_folder_of_bundles_translates_through_a_pivot(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "a", tokenizer, direction("fr-en", 7))
    put_bundle(tmp_path / "b", tokenizer, direction("en-de", 8))
    (text,) = translate(tmp_path, LONG_TEXT, source_language="fr", target_language="de", allow_pivot=True)
    assert text == expected(tokenizer, expected(tokenizer, LONG_TEXT, 7), 8)


def test_a_stream_ends_with_the_response(bundle_path: Path, tokenizer: Tokenizer) -> None:
    async def collect() -> list[object]:
        async with LocalTranslator(bundle_path) as translator:
            return [event async for event in translator.stream(LONG_TEXT, split_sentences=False)]

    *deltas, response = asyncio.run(collect())
    streamed = "".join(delta.text for delta in deltas if isinstance(delta, TranslationDelta))
    assert streamed == expected(tokenizer, LONG_TEXT)
    assert response.translations[0].text == streamed  # type: ignore[attr-defined]


def test_the_search_options_are_used(bundle_path: Path, tokenizer: Tokenizer) -> None:
    (text,) = translate(bundle_path, LONG_TEXT, options=SearchFields(max_target_tokens=1))
    assert len(text) < len(expected(tokenizer, LONG_TEXT))


@pytest.mark.parametrize(
    ("wanted", "text", "field"),
    [
        ({"options": SearchFields(beam_size=SLOTS + 1)}, "one", "beam_size"),
        ({"split_sentences": False}, "alpha " * 200, r"text\[0\]"),
    ],
)
def test_an_invalid_request_names_its_field(bundle_path: Path, wanted: RequestFields, text: str, field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{field}: "):
        translate(bundle_path, text, **wanted)
