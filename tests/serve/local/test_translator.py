"""Translation in this process, by an engine in Python, equals the fake model's translation of each text alone."""

import asyncio
from pathlib import Path
from typing import Unpack

import pytest

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.local.options import RequestFields
from dragoman.serve.local.translator import LocalTranslator
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


def test_texts_of_many_sentences_wait_for_room(bundle_path: Path) -> None:
    """Each needs twice the slots that there are."""
    assert len(set(translate(bundle_path, *["alpha. beta. alpha beta. beta alpha."] * 8))) == 1


def test_a_folder_of_bundles_translates_through_a_pivot(tokenizer: Tokenizer, tmp_path: Path) -> None:
    put_bundle(tmp_path / "a", tokenizer, direction("fr-en", 7))
    put_bundle(tmp_path / "b", tokenizer, direction("en-de", 8))
    (text,) = translate(tmp_path, LONG_TEXT, source_language="fr", target_language="de", allow_pivot=True)
    assert text == expected(tokenizer, expected(tokenizer, LONG_TEXT, 7), 8)
