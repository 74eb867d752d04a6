"""Fixtures shared by the tests of serving: a tiny tokenizer, bundles for the fake model, and a live service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from model.tokenizer import Tokenizer, train_tokenizer
from tests.fakes import EOS_ID, translate
from tests.live import LONG_TEXT, MAX_TARGET_TOKENS, LiveService, run_service, write_bundle


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    words = ["alpha", "beta", "gamma", "delta", "one", "two", "three", "house", "garden", "river"]
    lines = [f"{first} {second} {third}." for first in words for second in words for third in words[:4]]
    tokenizer = train_tokenizer(lines, vocabulary_size=60)
    target_ids, _, _ = translate((*tokenizer.encode(LONG_TEXT), EOS_ID), MAX_TARGET_TOKENS)
    assert len(target_ids) > 5, "with this tokenizer, another text has to be the long one"
    return tokenizer


@pytest.fixture(scope="session")
def bundle_path(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose golden sentences are what the fake model answers; its graphs are never opened."""
    return write_bundle(tmp_path_factory.mktemp("bundle"), tokenizer)


@pytest.fixture
def live(bundle_path: Path) -> Iterator[LiveService]:
    """A ready service with small limits, in front of two engines with fake models."""
    with run_service(bundle_path) as service:
        yield service
